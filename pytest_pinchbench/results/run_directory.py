"""The run directory and the records in it: what a run leaves behind.

``<results dir>/<model>/<time>/`` holds ``run.json`` (what was asked for), one folder
``<task id>/attempt-<k>/`` an attempt with its ``result.json`` and the files it names. A
result is written last and atomically: where there is one, it is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import PinchBenchError, ResultsUnwritable, RunAborted
from pytest_pinchbench.results.files import (
    has_shape,
    read_json,
    safe_name,
    write_atomically,
    write_json,
    writing,
)
from pytest_pinchbench.results.records import RECORD_SHAPE, Record, RunDescription, TaskResult

if TYPE_CHECKING:
    from filelock import BaseFileLock


class RunDirectory:
    """Where one run keeps its results; the same directory in every process of the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BaseFileLock | None = None

    @classmethod
    def new(cls, results_dir: Path, model_id: str) -> RunDirectory:
        """Make ``<results_dir>/<model>/<time>``, which no other run has."""
        parent = results_dir / safe_name(model_id)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
            path = parent / (stamp + suffix)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise PinchBenchError(
                    f"no run directory can be made at {path}: {error.strerror}; "
                    f"choose another place with --pinchbench-results-dir"
                ) from None
            return cls(path)
        raise PinchBenchError(f"{parent} is full of runs of this second; try again")

    def attempt_dir(self, task_id: str, attempt: int) -> Path:
        return self.path / safe_name(task_id) / f"attempt-{attempt}"

    def write_run(self, description: RunDescription) -> None:
        """Write ``run.json``; a resumed run keeps what it had, and notes when it went on."""
        path = self.path / "run.json"
        document: dict[str, Any] = {**description}
        if path.exists():
            earlier = json.loads(path.read_bytes())
            resumed = [*earlier.get("resumed_at", []), description["started_at"]]
            known = {one["task_id"]: one.get("category") for one in earlier["selected"]}
            selected = [
                {**one, "category": one.get("category") or known.get(one["task_id"])}
                for one in description["selected"]
            ]
            document = {
                **earlier,
                "settings": {
                    **earlier["settings"],
                    "attempts": max(one["attempt"] for one in description["selected"]),
                },
                "arguments": description["arguments"] if earlier.get("arguments") else [],
                "selected": selected,
                "resumed_at": resumed,
            }
        write_json(path, document)

    def copy_from(self, source: RunDirectory, record: Record) -> Record:
        """Take an attempt's files over from another run, with this record. Raises
        ``ResultsUnwritable``.
        """
        folder = self.attempt_dir(record["task_id"], record["attempt"])
        with writing(folder):
            shutil.copytree(
                source.attempt_dir(record["task_id"], record["attempt"]),
                folder,
                ignore=shutil.ignore_patterns("result.json"),
                dirs_exist_ok=True,
            )
        write_json(folder / "result.json", record)
        return record

    def write(self, result: TaskResult) -> Path:
        """Write an attempt's files, and last its ``result.json``. Returns the folder.

        Raises ``ResultsUnwritable``, after the result was put into a temporary folder.
        """
        folder = self.attempt_dir(result.record["task_id"], result.record["attempt"])
        try:
            _write_result(folder, result)
        except ResultsUnwritable as error:
            spilled = Path(tempfile.gettempdir(), f"pinchbench-spill-{os.getpid()}")
            try:
                _write_result(spilled / folder.relative_to(self.path), result)
            except ResultsUnwritable as second:
                raise ResultsUnwritable(f"{error} The attempt is lost: {second}") from None
            raise ResultsUnwritable(
                f"{error} The attempt is in {spilled}: make room, copy what is in there to "
                f"{self.path}, and resume."
            ) from None
        return folder

    def read(self, task_id: str, attempt: int) -> Record | None:
        """Return the record of an attempt, or None before its end."""
        return read_record(self.attempt_dir(task_id, attempt) / "result.json")

    def records(self) -> list[Record]:
        """Every whole record there is, in order of task id and attempt."""
        found = (read_record(path) for path in self.path.glob("*/attempt-*/result.json"))
        return sorted(
            (record for record in found if record is not None),
            key=lambda record: (record["task_id"], record["attempt"]),
        )

    def damaged(self) -> list[Path]:
        """Return the ``result.json`` files that are not records."""
        found = sorted(self.path.glob("*/attempt-*/result.json"))
        return [path for path in found if read_record(path) is None]

    def run_once(self, name: str, action: Callable[[], None]) -> None:
        """Run an action once in the whole run, in whichever process comes first.

        The other processes wait for it. ``RunAborted`` is raised again in every process that
        asks; after any other error, the next process tries.
        """
        from filelock import FileLock

        state = self.path / ".once"
        state.mkdir(parents=True, exist_ok=True)
        done = state / f"{name}.json"
        with FileLock(state / f"{name}.lock"):
            if not done.exists():
                outcome: dict[str, str] = {}
                try:
                    action()
                except RunAborted as error:
                    outcome = {"type": type(error).__name__, "message": str(error)}
                write_json(done, outcome)
            outcome = json.loads(done.read_bytes())
        for kind in RunAborted.__subclasses__():
            if outcome.get("type") == kind.__name__:
                raise kind(outcome["message"])

    def has_ended(self, name: str) -> bool:
        """Return whether an action of :meth:`run_once` has ended the run."""
        return bool(read_json(self.path / ".once" / f"{name}.json"))

    def share(self, name: str, value: object) -> None:
        """Show a JSON value to the run's other processes, for as long as the run lasts."""
        (self.path / ".once").mkdir(exist_ok=True)
        write_json(self.path / ".once" / f"{name}.shared", value)

    def shared(self, name: str) -> Any:
        """Return the value that a process of the run shared, or None."""
        return read_json(self.path / ".once" / f"{name}.shared")

    def lock(self) -> None:
        """Lock the directory until :meth:`finish` or the end of this process.

        Raises ``PinchBenchError`` when another process holds the lock: both would pay for the
        same attempts.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise PinchBenchError(
                f"{self.path} belongs to a run that is still going on; wait for its end"
            ) from None
        self._lock = lock
        self._clean()  # a killed run may have left something

    def finish(self) -> None:
        """Remove what only the running processes needed."""
        self._clean()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                (self.path / ".lock").unlink()
            self._lock.release()
            self._lock = None

    def _clean(self) -> None:
        with contextlib.suppress(OSError):
            for path in (self.path / ".once").iterdir():
                path.unlink()
            (self.path / ".once").rmdir()

    def remove_if_empty(self) -> None:
        """Leave no folder behind where nothing was selected, and so nothing written."""
        with contextlib.suppress(OSError):
            for folder in (self.path, *self.path.parents[:2]):
                folder.rmdir()


def _write_result(folder: Path, result: TaskResult) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, data in result.files.items():
        write_atomically(folder / name, data)
    write_json(folder / "result.json", result.record)


def read_record(path: Path) -> Record | None:
    """Read a record of this or a later version; None if it is missing or damaged."""
    record = read_json(path)
    return record if has_shape(record, RECORD_SHAPE) else None
