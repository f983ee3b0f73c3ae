"""What ``--pinchbench-list`` and ``--pinchbench-check`` say of a suite; neither runs an agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from pytest_pinchbench.attempt.grading import grade
from pytest_pinchbench.attempt.needs import find_missing
from pytest_pinchbench.attempt.workspace import make_workspace
from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.reports.formats import counted
from pytest_pinchbench.session.fixtures import make_environment
from pytest_pinchbench.session.run import Run
from pytest_pinchbench.suite.checkout import suite_name
from pytest_pinchbench.suite.task_file import Task

_SEARCH = re.compile(r"web.?(search|fetch)|search(es|ing)? (the )?(web|internet|online)", re.I)


def list_suite(run: Run, form: str) -> int:
    """Print the selected tasks as ``text`` or ``json``. Return 1 where files cannot be used."""
    tasks, errors = list(run.suites.tasks().values()), _errors(run)
    rows = [_row(task) for task in tasks]
    if form == "json":
        rules = {suite_name(root): str(one) for root, one in run.suites.rules.items()}
        print(json.dumps({"suites": rules, "tasks": rows, "errors": list(map(str, errors))}))
        return int(bool(errors))
    cells = [("id", "category", "grading", "timeout", "needs")]
    cells += [
        (
            *(row["id"], row["category"], row["grading_type"]),
            f"{row['timeout_seconds']:g} s",
            ", ".join(row["needs"]),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(map(str.ljust, line, widths)).rstrip())
    for root, one in run.suites.rules.items():
        print(f"{len(tasks)} of {counted(run.suites.sizes[root], 'task')} of {suite_name(root)}")
        print(one)
    for error in errors:
        print(f"error: {error}")
    return int(bool(errors))


def _row(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "category": task.category,
        "grading_type": task.grading_type,
        "timeout_seconds": task.timeout_seconds,
        "messages": len(task.prompts),
        "needs": [
            *(["judge"] if task.grading_type != "automated" else []),
            *(["search"] if _SEARCH.search(task.prompt + task.expected_behavior) else []),
            *task.prerequisites,
        ],
        "path": str(task.path),
    }


def check_suite(run: Run) -> int:
    """Print what is wrong with the selected tasks. Return 1 for errors. Raises
    ``PinchBenchError`` where a sandbox cannot be had.
    """
    errors = _errors(run)
    for error in errors:
        print(f"error: {error}")
    warnings = [*run.suites.notes]
    tasks = list(run.suites.tasks().values())
    warnings += [str(warning) for task in tasks for warning in task.warnings]
    checked = [task for task in tasks if task.grading_type != "llm_judge"]
    if checked:
        environment = make_environment(run, run.settings)
        environment.prepare()
        lifetime = 2 * len(checked) * (run.settings.check_timeout + 60.0)
        with closing(environment.open("check", labels={}, lifetime=lifetime)) as sandbox:
            for task in checked:
                warnings += [
                    f"{task.path}: {reason}"
                    for reason in _try_checks(sandbox, task, run.settings.check_timeout)
                ]
    for warning in warnings:
        print(f"warning: {warning}")
    found = f"{counted(len(errors), 'error')}, {counted(len(warnings), 'warning')}"
    print(f"{counted(len(tasks), 'task')} checked: {found}")
    return int(bool(errors))


def _errors(run: Run) -> list[TaskFileError]:
    return [error for root in run.suites.roots() for error in run.suites.selected(root)[1]]


def _try_checks(sandbox: Sandbox, task: Task, timeout: float) -> Iterator[str]:
    """Yield what is odd about a task's checks where no agent has worked."""
    if missing := find_missing(sandbox, task, agent_runs=False):
        yield from (issue.message for issue in missing)
        return
    automated = replace(task, grading_type="automated")
    keys = []
    for where, files in (("an empty workspace", ()), ("the assets alone", task.workspace_files)):
        workspace = make_workspace(sandbox, replace(task, workspace_files=files), lambda path: {})
        found = grade(
            sandbox,
            automated,
            workspace.path,
            (),
            judge=None,
            judge_timeout=timeout,
            check_timeout=timeout,
        )
        yield from (f"on {where}: {issue.message}" for issue in found.issues)
        if found.score:
            given = ", ".join(
                f"{name} {value:g}" for name, value in found.breakdown.items() if value
            )
            yield f"on {where} the score of no work is {found.score:.3f}: {given}"
        if not any(issue.severity == "ERROR" for issue in found.issues):
            keys.append(sorted(found.breakdown))
    if len(keys) == 2 and keys[0] != keys[1]:
        differ = ", ".join(sorted({*keys[0]} ^ {*keys[1]}))
        yield f"the checks give other keys on an empty workspace than on the assets alone: {differ}"
