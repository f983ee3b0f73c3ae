"""Run directories for tests, made by the code that makes real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.records import make_grade, make_run, record, result
from support.surroundings import foreign_variables

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.harnesses.openclaw.trajectory import to_actf
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.results.records import RUN_SCHEMA
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary, read_summary, summarize

Scores = Mapping[str, Sequence[float | None]]

HOSTILE = "</pre><script>document.title = 'owned'</script><img src=x onerror=alert(1)> & `|*"


def transcript(text: str = "Done.") -> tuple[dict[str, Any], ...]:
    """A short conversation: thinking, a tool call, its result, an answer."""

    def event(second: int, **message: Any) -> dict[str, Any]:
        stamp = f"2026-02-17T10:00:{second:02}.000Z"
        return {"type": "message", "timestamp": stamp, "message": message}

    def said(**part: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": [part], "stopReason": "stop"}

    return (
        event(1, role="user", content=[{"type": "text", "text": "Make made.txt that says yes."}]),
        event(2, **said(type="thinking", thinking="A file, then.")),
        event(
            3,
            **said(
                type="toolCall", id="c1", name="write", arguments={"path": "made.txt", "text": text}
            ),
        ),
        event(
            4,
            role="toolResult",
            toolCallId="c1",
            toolName="write",
            content=[{"type": "text", "text": f"wrote made.txt: {text}"}],
            isError=False,
        ),
        event(5, **said(type="text", text=text)),
    )


def write_run(
    path: Path,
    scores: Scores,
    *,
    model: str = "m",
    categories: Mapping[str, str] | None = None,
    text: str = "Done.",
    cost: float | None = 0.01,
    description: Mapping[str, Any] | None = None,
) -> RunDirectory:
    """A run directory as a run leaves it: records, trajectories and ``run.json``.

    ``scores`` are those of each task's attempts; None is an invalid attempt, NaN one that was
    to run and has no record.
    """
    path.mkdir(parents=True)
    directory = RunDirectory(path)
    selected = []
    for place, (task_id, attempts) in enumerate(scores.items(), 1):
        for attempt, score in enumerate(attempts, 1):
            category = (categories or {}).get(task_id, "basic")
            selected.append({"task_id": task_id, "attempt": attempt, "category": category})
            if score is not None and score != score:
                continue
            conversation = transcript(text)
            run = make_run(
                transcript=conversation,
                trajectory=to_actf(conversation),
                usage=Usage(
                    input_tokens=900 * place,
                    output_tokens=100 * place,
                    total_tokens=1000 * place,
                    cost_usd=cost and cost * place,
                    request_count=2,
                ),
                execution_time=1.5 * place,
            )
            done = result(
                task_id,
                score,
                attempt=attempt,
                run=run,
                grade=None
                if score is None
                else make_grade(score, breakdown={"said": score, text: 1.0}, notes=text),
                issues=(Issue("FATAL", "sandbox", f"the sandbox was lost: {text}"),)
                if score is None
                else (),
                category=category,
                name=f"Task {place}: {text}",
                expected_behavior=text,
            )
            done.record["model"] = model
            directory.write(done)
    run_json: Any = {
        "schema_version": RUN_SCHEMA,
        "run_id": "r1",
        "started_at": "2026-02-17T10:00:00.000+00:00",
        "model": model,
        "identity": {"model": model, "timeout_multiplier": 1.0},
        "settings": {
            "suite": "all",
            "limit": 0,
            "sample_ids": [],
            "attempts": 1,
            "judge": None,
            "timeout_multiplier": 1.0,
        },
        "suites": {"skill": "0123456789abcdef"},
        "selected": selected,
        "versions": {"pytest-pinchbench": "0.1.0", "pytest": "9", "python": "3.11"},
        **(description or {}),
    }
    directory.write_run(run_json)
    return directory


def summary_of(path: Path, scores: Scores, **more: Any) -> Summary:
    return read_summary(write_run(path, scores, **more).path)


def quick_summary(scores: Scores, *, model: str = "m") -> Summary:
    """A summary without any file."""
    records = [
        record(task_id, score, attempt=attempt)
        for task_id, attempts in scores.items()
        for attempt, score in enumerate(attempts, 1)
    ]
    return summarize(records, {"model": model, "run_id": model, "identity": {"model": model}})


SCRIPTS = {
    "task_a": "echo yes > made.txt; echo done",
    "task_b": "echo no > made.txt; cat said.txt",
    "task_c": "exit 3",
}


@dataclass(frozen=True)
class Run:
    """A finished run of three tasks: full score, half of it with a hostile answer, a crash."""

    exit_code: int
    output: str
    folder: Path

    @property
    def directory(self) -> Path:
        return next((self.folder / "pinchbench-results" / "lab-m").iterdir())


def run_pinchbench(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """pytest in a project of its own, whose agent is a shell script."""
    foreign = set(foreign_variables())
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"),
            *("--pinchbench", "--model", "lab/m", "--pinchbench-env", "local", *options),
        ],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name not in foreign},
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "PINCHBENCH_SKILL_DIR": str(folder / "skill"),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
