"""The tasks of a skill checkout, and which of them a run selects."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import SuiteError, TaskFileError
from pytest_pinchbench.spelling import did_you_mean
from pytest_pinchbench.suite.task_file import Task, load_task
from pytest_pinchbench.suite.workspace_files import CONTROL, is_inside

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings


@dataclass(frozen=True)
class Suite:
    """A skill checkout: its tasks in the order of their file names."""

    root: Path
    tasks: tuple[Task, ...]
    broken: tuple[TaskFileError, ...]
    """Task files that cannot be used, each with the reason."""


def is_suite_folder(path: Path) -> bool:
    """Whether a folder is the ``tasks`` of a skill checkout."""
    return path.name == "tasks" and holds_task_files(path)


def holds_task_files(path: Path) -> bool:
    """Return whether a folder contains task files (False if it cannot be read)."""
    try:
        return any(name.startswith("task_") and name.endswith(".md") for name in os.listdir(path))
    except OSError:
        return False


def load_suite(root: Path) -> Suite:
    """Every ``tasks/task_*.md`` of a skill checkout.

    Raises ``SuiteError`` when there is none, or when two files have the same id: also one
    that differs in letter case only, since both name folders.
    """
    paths = sorted((root / "tasks").glob("task_*.md"), key=lambda path: path.name)
    if not paths:
        raise SuiteError(f"{root} is not a skill checkout: there is no tasks/task_*.md in it")
    tasks: dict[str, Task] = {}
    broken: list[TaskFileError] = []
    for path in paths:
        try:
            if CONTROL.search(path.name) or "::" in path.name:
                reason = "cannot be used: its name holds a control character, or '::'"
                raise TaskFileError(path, 1, reason)
            task = load_task(path, root)
        except TaskFileError as error:
            broken.append(error)
            continue
        other = tasks.setdefault(task.id.lower(), task)
        if other is not task:
            differ = "" if other.id == task.id else f" (as {other.id}: letter case aside)"
            raise SuiteError(
                f"the id {task.id} is there twice: in {other.path}{differ} and in {path}"
            )
    return Suite(root, tuple(tasks.values()), tuple(broken))


def select(suite: Suite, settings: Settings) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...]]:
    """The tasks to run, in order, and the broken files that stand in the way of that.

    First ``suite``, then ``limit``, then ``sample_ids``. A broken file is in the way unless
    the tasks are named one by one. Raises ``SuiteError`` for an id that is not there.
    """
    known = {task.id: task for task in suite.tasks}
    named = settings.suite if isinstance(settings.suite, tuple) else ()
    unknown = [
        task_id for task_id in dict.fromkeys([*named, *settings.sample_ids]) if task_id not in known
    ]
    if unknown:
        raise SuiteError(_unknown_ids(unknown, suite))
    if named:
        tasks = tuple(known[task_id] for task_id in dict.fromkeys(named))
    elif settings.suite == "automated-only":
        tasks = tuple(task for task in suite.tasks if task.grading_type == "automated")
    else:
        tasks = suite.tasks
    if settings.limit:
        tasks = tasks[: settings.limit]
    if settings.sample_ids:
        samples = tuple(known[task_id] for task_id in dict.fromkeys(settings.sample_ids))
        left_out = [task.id for task in samples if task not in tasks]
        if left_out:
            raise SuiteError(
                f"{', '.join(left_out)}: among the sample ids, but not among the {len(tasks)}"
                " tasks that suite and limit leave"
            )
        tasks = samples
    by_name = bool(named or settings.sample_ids)
    return tasks, () if by_name else suite.broken


def _unknown_ids(unknown: list[str], suite: Suite) -> str:
    ids = [task.id for task in suite.tasks]
    known = [*ids, "all", "automated-only"]
    named = "; ".join(f"{task_id}{did_you_mean(task_id, known)}" for task_id in unknown)
    message = f"not in the suite {suite.root}: {named}"
    if suite.broken:
        files = "".join(f"\n  {error}" for error in suite.broken)
        message += f"\nfiles of this suite that cannot be used:{files}"
    return message


def suite_digest(root: Path) -> str:
    """SHA-256 over the names and contents of a checkout's task files and assets: the same
    wherever they lie, and another one after any edit. Links out of the checkout are left out.
    """
    digest = hashlib.sha256()
    paths = [*(root / "tasks").glob("task_*.md"), *(root / "assets").rglob("*")]
    for path in sorted(path for path in paths if path.is_file() and is_inside(path, root)):
        content = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                content.update(data)
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + content.digest())
    return digest.hexdigest()
