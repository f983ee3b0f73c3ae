"""How long many records take: reading, summary, comparison, and what people open.

    python benchmarks/records.py [RECORDS [ATTEMPTS]]

Two runs of RECORDS records (2,000), made by the code that makes real ones, with ATTEMPTS
attempts a task (2). Prints seconds, those of the processor (on a busy machine the fairer
number), and the most memory that the process ever had.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

TESTS = Path(__file__).parent.parent / "tests"
Value = TypeVar("Value")


def main(records: int, attempts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / name for name in ("old", "new")]
        print(f"{records} records each, {attempts} attempts a task")
        # in a process of its own, so that making them is in no memory that is shown
        arguments = [__file__, "--make", str(records), str(attempts), *map(str, runs)]
        subprocess.run([sys.executable, *arguments], check=True)
        measure(*runs)


def make(records: int, attempts: int, paths: list[Path]) -> None:
    sys.path[:0] = [str(TESTS), str(TESTS / "reports")]
    from runs import write_run

    generator = random.Random(1)
    names = [f"task_{n:04}" for n in range(records // attempts)]
    categories = {name: f"category {n % 10}" for n, name in enumerate(names)}
    for path in paths:
        scores = {
            name: [generator.choice([0.0, 0.25, 0.5, 1.0]) for _ in range(attempts)]
            for name in names
        }
        write_run(path, scores, model=path.name, categories=categories, text="word " * 400)


def measure(old: Path, new: Path) -> None:
    from pytest_pinchbench.reports.html import report_html
    from pytest_pinchbench.reports.markdown import summary_markdown
    from pytest_pinchbench.results.comparison import compare
    from pytest_pinchbench.results.summary import read_summary

    baseline = step("read and summarize the old run", lambda: read_summary(old))
    summary = step("read and summarize the new run", lambda: read_summary(new))
    comparison = step("compare them", lambda: compare(baseline, summary))
    step("summary.md", lambda: summary_markdown(summary, [comparison]))
    page = step("report.html", lambda: report_html(summary, [comparison]))
    print(f"report.html has {len(page) / 1e6:.1f} MB")


def step(name: str, action: Callable[[], Value]) -> Value:
    began, used = time.perf_counter(), time.process_time()
    value = action()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:32}{seconds:7.2f} s, {processor:.2f} s of processor, {memory:.0f} MB so far")
    return value


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(int(sys.argv[2]), int(sys.argv[3]), [Path(path) for path in sys.argv[4:]])
    else:
        main(*(int(argument) for argument in sys.argv[1:]) if len(sys.argv) > 2 else (2000, 2))
