"""What GitHub Actions shows of a run: annotations, and the page of the step.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_pinchbench.reports import text
from pytest_pinchbench.reports.markdown import summary_markdown
from pytest_pinchbench.reports.terminal import against_mark
from pytest_pinchbench.results.comparison import Comparison
from pytest_pinchbench.results.gates import reaches

_SHOWN = 10  # GitHub shows that many errors, warnings and notices of a step each, and no more
_STEP_SUMMARY_BYTES = 900_000  # of the 1 MiB that GitHub takes from a step

Level = Literal["error", "warning", "notice"]


def in_github_actions(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def annotation_lines(
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
    *,
    pass_mark: float = 1.0,
    shortfalls: bool = True,
) -> list[str]:
    """Lines for standard output: gates and invalid tasks are errors, shortfalls warnings (unless
    something else shows them), the mean a notice. What is beyond GitHub's number of annotations
    goes into the last one of its kind.
    """
    errors = [*_gates(summary), *_invalid(summary), *_drops(comparisons)]
    warnings = list(_shortfalls(summary, pass_mark)) if shortfalls else []
    return [
        *_commands("error", errors),
        *_commands("warning", warnings),
        *_commands("notice", [("PinchBench", text.headline(summary))]),
    ]


def write_step_summary(
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
    environ: Mapping[str, str] = os.environ,
) -> list[str]:
    """Append the run to the step's page, with fewer tasks if it is too long.

    Returns what there is to say of it: why the page could not be written.
    """
    for limit in (None, 500, 50, 0):
        data = summary_markdown(summary, comparisons, limit=limit).encode("utf-8", "replace")
        if len(data) <= _STEP_SUMMARY_BYTES:
            break
    return append_to_step_summary(data + b"\n", environ)


def append_to_step_summary(data: bytes, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Append Markdown to the step's page, if there is one.

    Returns what there is to say of it: why the page could not be written.
    """
    page = environ.get("GITHUB_STEP_SUMMARY")
    if not page:
        return []
    try:
        with Path(page).open("ab") as stream:
            stream.write(data)
    except OSError as error:
        return [f"cannot write GITHUB_STEP_SUMMARY: {error}. The results have the same page."]
    return []


def command(level: Level, title: str, message: str) -> str:
    """One workflow command, escaped as the runner reads it."""
    escaped = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={escaped}::{_escape(message)}"


def _escape(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _commands(level: Level, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    if len(found) > _SHOWN:
        rest = found[_SHOWN - 1 :]
        together = "\n".join(f"{title}: {message}" for title, message in rest)
        found = [*found[: _SHOWN - 1], (f"PinchBench: {len(rest)} more", together)]
    for title, message in found:
        yield command(level, title, message)


def _gates(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for gate in summary.get("gates", ()):
        if not gate["met"]:
            yield f"PinchBench {gate['name'].lower()}", f"not met: {gate['why']}"


def _invalid(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, _, attempt in _attempts(summary):
        if attempt["status"] == "missing":
            yield f"{name} was not run", "it has no result, so the run has no official mean"
        elif attempt["score"] is None:
            fatal = [i["message"] for i in attempt["issues"] if i["severity"] == "FATAL"]
            yield f"{name} is invalid", "\n".join(fatal) or "it has no score"


def _drops(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    for comparison in comparisons:
        if comparison.verdict == "mean worse" or comparison.tasks_dropped:
            yield f"worse than {comparison.baseline_name}", text.mean_line(comparison)


def _shortfalls(summary: Mapping[str, Any], pass_mark: float) -> Iterator[tuple[str, str]]:
    for name, task, attempt in _attempts(summary):
        if attempt["score"] is not None and not reaches(attempt["score"], pass_mark):
            issues = [f"{i['severity']}: {i['message']}" for i in attempt["issues"]]
            score = against_mark(attempt["score"], pass_mark)
            yield f"{name} ({task['category']})", "\n".join([score, *issues])


def _attempts(
    summary: Mapping[str, Any],
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for task in summary["tasks"]:
        for attempt in task["attempts"]:
            repeated = len(task["attempts"]) > 1
            suffix = f"[{attempt['attempt']}]" if repeated else ""
            yield f"{task['task_id']}{suffix}", task, attempt
