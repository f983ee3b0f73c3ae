"""The tasks of a skill checkout, and which of them a run selects."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import SuiteError, TaskFileError, printable
from pytest_pinchbench.spelling import did_you_mean
from pytest_pinchbench.suite.manifest import MANIFEST, Manifest, Rules, read_manifest
from pytest_pinchbench.suite.task_file import Task, load_task
from pytest_pinchbench.suite.workspace_files import ASSETS, CONTROL, is_inside

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings


@dataclass(frozen=True)
class Suite:
    """A skill checkout: its tasks in the manifest's order, else in the order of their files."""

    root: Path
    manifest: Manifest
    tasks: tuple[Task, ...]
    broken: tuple[TaskFileError, ...]
    """Task files that cannot be used, each with the reason."""
    left_out: tuple[Path, ...]
    """Task files that the manifest does not name."""


def suite_root(path: Path) -> Path | None:
    """Return the root of the suite that a path in its folder ``tasks`` belongs to."""
    return next((one.parent for one in (path, *path.parents) if one.name == "tasks"), None)


def holds_task_files(path: Path) -> bool:
    """Return whether there are task files at any depth of a folder."""
    return any(True for _ in _task_files(path))


def _task_files(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        yield from (Path(where, one) for one in names if fnmatchcase(one, "task_*.md"))


def suite_rules(root: Path) -> Rules:
    """Return what the own runner of a suite does by default. Raises ``TaskFileError``."""
    manifest = read_manifest(root / "tasks" / MANIFEST)
    return manifest.rules if manifest else Rules()


def load_suite(root: Path) -> Suite:
    """Every ``tasks/**/task_*.md`` of a skill checkout that its manifest names, if it has one.

    Raises ``SuiteError`` when there are none, or when two files have the same id: also one
    that differs in letter case only, since both name folders.
    """
    folder = root / "tasks"
    paths = sorted(_task_files(folder), key=lambda path: path.relative_to(folder).parts)
    if not paths:
        raise SuiteError(f"{root} is not a skill checkout: {what_lies_in(folder)}")
    path_of_manifest = folder / MANIFEST
    manifest = read_manifest(path_of_manifest)
    broken: list[TaskFileError] = []
    left_out: tuple[Path, ...] = ()
    if manifest is not None:
        files = {path.stem: path for path in paths if path.parent == folder}
        broken = [
            TaskFileError(path_of_manifest, line, f"there is no file tasks/{name}.md")
            for name, line in manifest.lines.items()
            if name not in files
        ]
        listed = [files[name] for name in manifest.lines if name in files]
        left_out = tuple(path for path in paths if path not in listed)
        paths = listed
    manifest = manifest or Manifest()
    tasks: dict[str, Task] = {}
    spellings: dict[str, str] = {}
    for path in paths:
        try:
            if CONTROL.search(path.name) or "::" in path.name:
                reason = "cannot be used: its name holds a control character, or '::'"
                raise TaskFileError(path, 1, reason)
            task = load_task(path, root)
        except TaskFileError as error:
            broken.append(error)
            continue
        category = manifest.categories.get(path.stem, task.category)
        category = spellings.setdefault(category.lower(), category)
        task = replace(task, category=category, rules=manifest.rules)
        other = tasks.setdefault(task.id.lower(), task)
        if other is not task:
            differ = "" if other.id == task.id else f" (as {other.id}: letter case aside)"
            raise SuiteError(
                f"the id {task.id} is there twice: in {other.path}{differ} and in {path}"
            )
    return Suite(root, manifest, tuple(tasks.values()), tuple(broken), left_out)


def what_lies_in(folder: Path) -> str:
    """Say what was looked for in a folder ``tasks`` without task files, and what is there."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        return f"cannot read {folder}: {error.strerror}"
    lies = printable(", ".join(names[:5])) + (", ..." if names[5:] else "")
    return f"there is no tasks/**/task_*.md in it; in {folder} lies: {lies or 'nothing'}"


def select(suite: Suite, settings: Settings) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...]]:
    """The tasks to run, in order, and the broken files that stand in the way of that.

    First ``suite``, then ``limit``, then ``sample_ids``. A broken file is in the way unless
    the tasks are named one by one. Raises ``SuiteError`` for an id that is not there.
    """
    known = {task.id: task for task in suite.tasks}
    tasks, broken = suite.tasks, suite.broken
    unknown: list[str] = []
    if settings.suite == "automated-only":
        tasks = tuple(task for task in tasks if task.grading_type == "automated")
    elif settings.suite != "all":
        tasks, broken, unknown = _named(suite, settings.suite)
    unknown += [task_id for task_id in settings.sample_ids if task_id not in known]
    if unknown:
        raise SuiteError(_unknown_ids(list(dict.fromkeys(unknown)), suite))
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
        tasks, broken = samples, ()
    return tasks, broken


def _named(
    suite: Suite, named: str | tuple[str, ...]
) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...], list[str]]:
    """Return the tasks of ids and, in a text, of groups; the broken files of the groups; and the
    words that are neither. Groups alone keep the order of the suite.
    """
    manifest, words = suite.manifest, named
    if isinstance(words, str):
        words = tuple(word for word in re.split(r"[,+\n\s]+", words) if word)
    else:
        manifest = Manifest()
    known = {task.id: task for task in suite.tasks}
    members = {word: manifest.members(word) for word in words if word not in known}
    tasks: dict[str, Task] = {}
    for word in words:
        if word in known:
            tasks[word] = known[word]
        tasks |= {one.id: one for one in suite.tasks if one.path.stem in members.get(word, ())}
    if len(members) == len(set(words)):
        tasks = {one.id: one for one in suite.tasks if one.id in tasks}
    stems = {stem for group in members.values() for stem in group}
    broken = tuple(one for one in suite.broken if Path(str(one.path)).stem in stems)
    return tuple(tasks.values()), broken, [word for word, group in members.items() if not group]


def _unknown_ids(unknown: list[str], suite: Suite) -> str:
    ids = [task.id for task in suite.tasks]
    known = [*ids, *suite.manifest.groups, "all", "automated-only"]
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
    folder = root / "tasks"
    paths = {*_task_files(folder), folder / MANIFEST}
    paths.update(path for assets in ASSETS for path in (root / assets).rglob("*"))
    for path in sorted(path for path in paths if path.is_file() and is_inside(path, root)):
        content = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                content.update(data)
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + content.digest())
    return digest.hexdigest()
