"""Random sequences of what happens to runs: nothing valid is lost, or paid for twice.

``PINCHBENCH_TESTS_SEQUENCES`` is how many (benchmarks/sequences.py: 300).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory

SCORES = {"task_a": 1.0, "task_b": 0.5, "task_c": 1.0}
FRAGILE = """

from pathlib import Path
from pytest_pinchbench.issues import SandboxFailure

class Fragile:
    def __init__(self, real, faults, name=""):
        self.real, self.faults, self.name = real, faults, name

    def __getattr__(self, name):
        return getattr(self.real, name)

    def open(self, name, **options):
        if (self.faults / f"open-{name}").exists():
            raise SandboxFailure("no sandbox to be had")
        return Fragile(self.real.open(name, **options), self.faults, name)

    def exec(self, argv, **options):
        if argv[-1].endswith(".pyz") and (self.faults / f"grade-{self.name}").exists():
            raise SandboxFailure("the sandbox was lost")
        return self.real.exec(argv, **options)

@pytest.fixture(scope="session")
def pinchbench_environment(pinchbench_environment):
    return Fragile(pinchbench_environment, Path("faults").resolve())
"""


def assert_is_clean(output: pytest.RunResult) -> None:
    assert "Traceback" not in f"{output.stdout}{output.stderr}"
    assert "INTERNALERROR" not in f"{output.stdout}{output.stderr}"


class Sequence:
    """One project, and what is known of its runs."""

    def __init__(
        self, pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], seed: int
    ) -> None:
        self.pytester, self.run, self.random = pytester, run, random.Random(seed)
        self.log, self.faults = pytester.path / "ran.log", pytester.path / "faults"
        self.results = pytester.path / "pinchbench-results"
        self.spill = pytester.path / "spill"
        self.directory = Path()
        self.forgotten = False  # an agent's work was lost by a kill, or by damage to its record

    def scripts(self) -> dict[str, str]:
        return {
            task: f"echo {task} >> {self.log}; test ! -e {self.faults}/hang || sleep 60; "
            f"echo {'yes' if score == 1 else 'no'} > made.txt"
            for task, score in SCORES.items()
        }

    def paid(self) -> Counter[str]:
        return Counter(self.log.read_text().split() if self.log.exists() else ())

    def records(self) -> dict[str, Record]:
        return {one["task_id"]: one for one in RunDirectory(self.directory).records()}

    def session(self, *options: str, earlier: Iterable[Path] | None = None) -> None:
        """Run pytest, and check that it loses nothing of the ``earlier`` run directories (the last
        one) and pays for nothing twice.
        """
        paid = self.paid()
        before = {
            one["task_id"]: one
            for path in ([self.directory] if earlier is None else earlier)
            for one in RunDirectory(path).records()
        }
        valid = {task for task, one in before.items() if one["metrics"]["score"] is not None}
        gradable = {
            task
            for task, one in before.items()
            if one["artifacts"]["workspace"] and one["artifacts"]["harness_execution"]
        }
        output = self.run(*options)
        assert_is_clean(output)
        known = set(self.results.glob("lab-m/*"))
        if "--pinchbench-resume=" not in " ".join(options):
            self.directory = max(known, key=lambda path: path.stat().st_ctime_ns)
        after, more = self.records(), self.paid() - paid
        for task in valid:
            assert after[task]["metrics"]["score"] == SCORES[task]
        assert not set(more) & (valid | gradable), "paid for twice"
        assert max(more.values(), default=0) <= 1

    def again(self) -> None:
        self.session(f"--pinchbench-resume={self.directory}")

    def break_something(self) -> None:
        self.faults.mkdir(exist_ok=True)
        for task in SCORES:
            if self.random.random() < 0.4:
                (self.faults / f"{self.random.choice(['open', 'grade'])}-{task}").touch()

    def repair(self) -> None:
        shutil.rmtree(self.faults, ignore_errors=True)

    # what may happen

    def resume(self) -> None:
        self.again()

    def resume_with_failing_sandboxes(self) -> None:
        self.break_something()
        self.again()
        self.repair()

    def damage_a_record(self) -> None:
        if found := sorted(self.directory.glob("*/attempt-1/result.json")):
            path = self.random.choice(found)
            path.write_bytes(path.read_bytes()[: self.random.randrange(200)])
            self.forgotten = True

    def lose_an_unfinished_file(self) -> None:
        folder = self.directory / self.random.choice(list(SCORES)) / "attempt-1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".result.json.1.tmp").write_text("{")

    def fill_the_disk(self) -> None:
        """A task's folder cannot be made; its work goes to the spill folder, and is put back."""
        open_tasks = [task for task in SCORES if not (self.directory / task).exists()]
        if not open_tasks:
            return
        in_the_way = self.directory / self.random.choice(open_tasks)
        in_the_way.write_text("no folder can be made here")
        self.again()
        in_the_way.unlink()
        for spilled in self.spill.glob("pinchbench-spill-*"):
            shutil.copytree(spilled, self.directory, dirs_exist_ok=True)
            shutil.rmtree(spilled)

    def regrade(self) -> None:
        if any(one["artifacts"]["harness_execution"] for one in self.records().values()):
            paid = self.paid()
            work = {
                task
                for task, one in self.records().items()
                if one["artifacts"]["workspace"] and one["artifacts"]["harness_execution"]
            }
            self.refuse_or_run(f"--pinchbench-regrade={self.directory}")
            assert self.paid() == paid
            for task in work & set(self.records()):
                assert self.records()[task]["metrics"]["score"] == SCORES[task]

    def refuse_or_run(self, *options: str) -> None:
        """A damaged record is refused by a regrade, in one line."""
        if RunDirectory(self.directory).damaged():
            output = self.run(*options)
            assert output.ret == pytest.ExitCode.USAGE_ERROR
            assert_is_clean(output)
        else:
            # a regrade's own directory: what it has not graded is for a resume of the run
            before = self.directory
            self.session(*options)
            if len(self.records()) < len(SCORES):
                self.directory = before

    def kill(self) -> None:
        """Kill -9 while the agent of a task works."""
        missing = [
            task
            for task, one in {**dict.fromkeys(SCORES), **self.records()}.items()
            if one is None or not one["artifacts"]["workspace"]
        ]
        if not missing:
            return
        self.faults.mkdir(exist_ok=True)
        (self.faults / "hang").touch()
        paid = self.paid()
        options = ["--pinchbench", "--model", "lab/m", "--pinchbench-env", "local"]
        options.append(f"--pinchbench-resume={self.directory}")
        process = self.pytester.popen([sys.executable, "-m", "pytest", *options])
        try:
            wait_until(lambda: process.poll() is not None or self.paid() != paid)
        finally:
            process.kill()
            process.wait()
        self.forgotten = True
        self.repair()


EVENTS = (
    *(Sequence.resume, Sequence.resume_with_failing_sandboxes, Sequence.damage_a_record),
    *(Sequence.lose_an_unfinished_file, Sequence.fill_the_disk, Sequence.regrade, Sequence.kill),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("PINCHBENCH_TESTS_SEQUENCES", "30"))))
def test_nothing_valid_is_lost_or_paid_for_twice(
    pytester: pytest.Pytester,
    project: Any,
    run: Callable[..., pytest.RunResult],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    sequence = Sequence(pytester, run, seed)
    sequence.spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(sequence.spill))
    project(sequence.scripts(), cost=0.25)
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write(FRAGILE)
    sequence.break_something()
    if sequence.random.random() < 0.3:  # shards of one run
        shards = []
        for tasks in ("task_a", "task_b or task_c"):
            sequence.session("-k", tasks, earlier=())
            shards.append(sequence.directory)
        sequence.repair()
        sequence.session(*(f"--pinchbench-merge={path}" for path in shards), earlier=shards)
    else:
        sequence.session(earlier=())
        sequence.repair()
    for event in sequence.random.choices(EVENTS, k=2 if seed < 30 else 4):
        event(sequence)
    sequence.again()
    summary = json.loads((sequence.directory / "summary.json").read_text())
    assert summary["official"]
    assert summary["score"]["mean"] == pytest.approx(sum(SCORES.values()) / len(SCORES))
    runs = sum(sequence.paid().values())
    if sequence.forgotten:
        assert summary["usage"]["request_count"] <= runs
    else:  # every try of an agent is in the numbers
        assert summary["usage"]["request_count"] == runs
        assert summary["cost"]["agent"] == {"usd": pytest.approx(0.25 * runs), "complete": True}
