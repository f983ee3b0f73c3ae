"""How large the pages are, and how long a browser takes to open them.

    python benchmarks/reports.py

A run of 124 tasks with three attempts each and conversations of 60 KB, and an index of 100 runs
of 124 tasks. Prints bytes, elements, seconds of writing, and milliseconds until the page is
drawn in headless Chromium (the median of five).
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
TASKS, ATTEMPTS, RUNS = 124, 3, 100
DRAWN = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => "
    "done(performance.now()))))"
)


def main(folder: Path) -> None:
    sys.path[:0] = [str(TESTS), str(TESTS / "reports")]
    from browser import browser
    from runs import write_run

    from pytest_pinchbench.reports.files import write_files
    from pytest_pinchbench.reports.index_page import write_index
    from pytest_pinchbench.results.summary import read_summary

    generator = random.Random(1)
    names = [f"task_{number:03}_of_a_usual_length" for number in range(TASKS)]
    scores = {
        name: [generator.choice([0.0, 0.25, 0.5, 1.0]) for _ in range(ATTEMPTS)] for name in names
    }
    categories = {name: f"category {number % 10}" for number, name in enumerate(names)}
    # the transcript says it five times
    text = "A sentence of the conversation. " * (60_000 // 5 // 32)
    directory = write_run(folder / "m" / "0", scores, categories=categories, text=text)
    summary = read_summary(directory.path)
    records = directory.records()
    began = time.perf_counter()
    write_files(directory, records, summary)
    print(
        f"{len(records)} attempts, their pages and the report: {time.perf_counter() - began:.1f} s"
    )
    document = json.loads((directory.path / "summary.json").read_bytes())
    for number in range(1, RUNS):
        write_other_run(directory.path, document, number)
    began = time.perf_counter()
    index = write_index(folder)
    print(f"index of {RUNS} runs: {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    write_index(folder)
    print(f"the same once its pairs are known: {time.perf_counter() - began:.1f} s")
    attempt = next(directory.path.glob("*/attempt-1/attempt.html"))
    with browser(folder / "profile") as started:
        for page in (directory.path / "report.html", attempt, index):
            times = []
            for _ in range(5):
                opened = started.open(page, width=1280)
                times.append(opened.run(DRAWN))
            elements = opened.run("document.querySelectorAll('*').length")
            size = page.stat().st_size / 1e3
            drawn = f"drawn after {median(times):.0f} ms"
            print(f"{page.name}: {size:.0f} kB, {elements} elements, {drawn}")


def write_other_run(first: Path, document: dict[str, Any], number: int) -> None:
    other = first.parent.parent / f"m{number % 20}" / str(number)
    other.mkdir(parents=True)
    shutil.copy(first / "run.json", other)
    changed = {**document, "run_id": str(number), "model": f"lab/m{number % 20}"}
    (other / "summary.json").write_text(json.dumps(changed))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
