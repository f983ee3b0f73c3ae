"""What this project costs on top of OpenClaw: per task, and at collection.

``python benchmarks/overhead.py --env local --env bubblewrap`` or ``--env docker --image IMAGE``.

One run measures both sides, round by round, so that whatever else the machine does bears on
both: a whole attempt as pytest runs it, then the same ``openclaw agent`` command bare, in a
sandbox made ready beforehand, started by ``docker exec`` or as a plain process. The model is
the demo's, which answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from pytest_pinchbench.attempt.line import RelayedLine
from pytest_pinchbench.attempt.workspace import make_workspace
from pytest_pinchbench.environments import Environment, Sandbox
from pytest_pinchbench.harnesses import DirectLine, Harness
from pytest_pinchbench.session.run import Run
from pytest_pinchbench.suite.task_file import Task

TASK = "task_01_packing_list"  # one turn with one tool call
TARGETS = {"docker": 1.0, "bubblewrap": 0.3, "local": 0.3}  # seconds of ours a task
COLLECTION_TARGETS = {23: 0.5, 1000: 5.0}  # seconds by number of tasks

TASK_FILE = """\
---
id: task_{number:04}
name: Task {number}
category: category_{category}
grading_type: automated
timeout_seconds: 120
workspace_files:
  - path: notes.txt
    content: |
      Some notes.
---

## Prompt

Write `answer.txt`.

## Expected Behavior

The agent writes the file.

## Grading Criteria

- [ ] The file is there

## Automated Checks

```python
def grade(transcript, workspace_path):
    from pathlib import Path

    return {{"written": float((Path(workspace_path) / "answer.txt").exists())}}
```
"""


@dataclass
class Round:
    whole: float
    """Seconds of an attempt, from its sandbox to its record."""
    stages: Mapping[str, float]
    turn: float
    """Seconds of the agent's turn in that attempt, as our supervisor saw them."""
    bare: float
    """Seconds of the same turn of the agent, bare."""


class _Noted(Exception):
    """The command was noted instead of run."""


@dataclass
class _Notebook:
    """A sandbox that notes the agent's command instead of running it."""

    sandbox: Sandbox
    argv: tuple[str, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sandbox, name)

    def __hash__(self) -> int:
        return hash(self.sandbox)

    def __eq__(self, other: object) -> bool:
        # what a harness has learnt of the sandbox holds for its notebook, too
        return other is self.sandbox or other is self

    def exec(self, argv: tuple[str, ...], **how: Any) -> NoReturn:
        self.argv, self.how = tuple(argv), how
        raise _Noted


class Measure:
    """A pytest plugin that follows every attempt with its bare turn."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        if fixturedef.argname != "pinchbench_result":
            return (yield)
        environment = request.getfixturevalue("pinchbench_environment")
        harness = request.getfixturevalue("pinchbench_harness")
        begun = time.perf_counter()
        record = yield
        whole = time.perf_counter() - begun
        task = request.getfixturevalue("pinchbench_task")
        run = request.getfixturevalue("pinchbench_run")
        bare = bare_turn(environment, harness, task, run)
        self.rounds.append(Round(whole, record["seconds"], record["execution_time"], bare))
        return record


def bare_turn(environment: Environment, harness: Harness, task: Task, run: Run) -> float:
    """Seconds of the agent's command alone, in a fresh sandbox that is ready for it."""
    model = run.settings.model
    sandbox = environment.open(task.id, labels={"benchmark": "bare"}, lifetime=3600)
    ends = contextlib.ExitStack()
    try:
        line: DirectLine | RelayedLine
        if run.relay is None:
            line = DirectLine(model, environment, task.timeout_seconds)
        else:
            grant = run.relay.open("bare", "model", seconds=task.timeout_seconds)
            line = ends.enter_context(RelayedLine(sandbox, environment, model, grant))
        workspace = make_workspace(
            sandbox, task, lambda path: harness.files(sandbox, task, path, line)
        ).path
        notebook = _Notebook(sandbox)
        with contextlib.suppress(_Noted):
            harness.run(cast(Sandbox, notebook), task, workspace, line)
        argv = list(notebook.argv)
        variables = dict(notebook.how["env"])
        if environment.kind == "bubblewrap":
            return sandbox.exec(
                argv, cwd=workspace, env=variables, stdin=notebook.how["stdin"]
            ).seconds
        if environment.on_this_machine:
            variables = {"PATH": os.environ["PATH"], "HOME": sandbox.private_root, **variables}
        else:
            given = [part for item in variables.items() for part in ("-e", "=".join(item))]
            argv = ["docker", "exec", "-i", "-w", workspace, *given, sandbox.name, *argv]
            variables = dict(os.environ)
        begun = time.perf_counter()
        subprocess.run(
            argv,
            cwd=workspace if environment.on_this_machine else None,
            env=variables,
            input=notebook.how["stdin"],
            capture_output=True,
            check=True,
        )
        return time.perf_counter() - begun
    finally:
        ends.close()
        sandbox.close()


def measure_attempts(kind: str, rounds: int, extra: list[str]) -> list[Round]:
    measure = Measure()
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as results, contextlib.redirect_stdout(output):
        code = pytest.main(
            [
                "--pinchbench",
                *("-p", "pytest_pinchbench.demo", "-p", "no:cacheprovider", "--capture=no"),
                f"--pinchbench-env={kind}",
                f"--pinchbench-sample-ids={TASK}",
                f"--pinchbench-attempts={rounds + 1}",
                f"--pinchbench-results-dir={results}",
                *extra,
            ],
            plugins=[measure],
        )
    if code not in (0, 1) or len(measure.rounds) <= rounds:
        raise SystemExit(f"the run failed (exit code {int(code)}):\n{output.getvalue()}")
    # the first round pays for what happens once a run: the image, the endpoint's check
    return measure.rounds[1:]


def show_attempts(kind: str, rounds: list[Round]) -> None:
    def show(what: str, seconds: Callable[[Round], float], remark: str = "") -> None:
        median = statistics.median(seconds(one) for one in rounds)
        print(f"  {what:28} {median:7.3f} s{remark}")

    ratio = statistics.median(one.whole / one.bare for one in rounds)
    target = f" (target: {TARGETS[kind]:g} s)" if kind in TARGETS else ""
    print(f"\n{kind}, medians of {len(rounds)} rounds")
    show("bare turn", lambda one: one.bare)
    show("whole attempt", lambda one: one.whole, f", {ratio:.2f} times the bare turn")
    show("  the turn in it", lambda one: one.turn)
    show("  ours", lambda one: one.whole - one.turn, f"{target}, of it:")
    for stage in rounds[0].stages:
        if stage == "run":
            show("    transcript, processes", lambda one: one.stages["run"] - one.turn)
        else:
            show(f"    {stage}", partial(_stage, stage))
    show("    record and the rest", lambda one: one.whole - sum(one.stages.values()))


def _stage(name: str, one: Round) -> float:
    return one.stages[name]


def measure_collection(tasks: int) -> tuple[float, float]:
    """Seconds that pytest says the collection took, and seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "tasks")
        suite.mkdir()
        Path(folder, "assets").mkdir()
        for number in range(tasks):
            text = TASK_FILE.format(number=number, category=number % 7)
            (suite / f"task_{number:04}.md").write_text(text)
        command = ["--pinchbench", "--model", "x", "--pinchbench-skill-dir", folder]
        begun = time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *command, "--collect-only", "-q"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        whole = time.perf_counter() - begun
    found = re.search(rf"{tasks} tests collected in ([\d.]+)s", ran.stdout)
    if found is None:
        raise SystemExit(f"not {tasks} tasks:\n{ran.stdout}")
    return float(found[1]), whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = "local, bubblewrap, docker; repeatable"
    parser.add_argument("--env", action="append", default=[], help=kinds)
    parser.add_argument("--image", help="image for docker")
    parser.add_argument("--openclaw-version", help="release for local")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for tasks, target in COLLECTION_TARGETS.items():
        collected, whole = measure_collection(tasks)
        print(
            f"collection of {tasks:4} tasks  {collected:5.2f} s (target: {target:g} s), "
            f"the whole command {whole:.2f} s"
        )
    for kind in options.env:
        extra = ["--pinchbench-grade-in=fresh"]
        if kind == "docker" and options.image:
            extra += [f"--pinchbench-image={options.image}"]
        if kind != "docker" and options.openclaw_version:
            extra += [f"--pinchbench-openclaw-version={options.openclaw_version}"]
        show_attempts(kind, measure_attempts(kind, options.rounds, extra))


if __name__ == "__main__":
    main()
