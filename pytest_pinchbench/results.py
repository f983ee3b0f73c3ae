"""The run directory and the records in it: what a run leaves behind.

``<results dir>/<model>/<time>/`` holds ``run.json`` (what was asked for), one folder
``<task id>/attempt-<k>/`` an attempt with its ``result.json`` and the files it names. A
result is written last and atomically: where there is one, it is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_pinchbench.issues import Issue, PinchBenchError

RESULT_SCHEMA = "pinchbench-result-1"

Record = dict[str, Any]


@dataclass(frozen=True)
class TaskResult:
    """The outcome of one attempt.

    ``record`` is what ``result.json`` says (JSON values, redacted); ``files`` are written
    beside it, by name.
    """

    record: Record
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """0 to 1, or None: the attempt is invalid."""
        score: float | None = self.record["metrics"]["score"]
        return score

    @property
    def issues(self) -> tuple[Issue, ...]:
        return tuple(Issue(**issue) for issue in self.record["issues"])


class RunDirectory:
    """Where one run keeps its results; the same directory in every process of the run."""

    def __init__(self, path: Path) -> None:
        self.path = path

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

    def write(self, result: TaskResult) -> Path:
        """Write an attempt's files, and last its ``result.json``. Returns the folder."""
        folder = self.attempt_dir(result.record["task_id"], result.record["attempt"])
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in result.files.items():
            write_atomically(folder / name, data)
        write_json(folder / "result.json", result.record)
        return folder

    def read(self, task_id: str, attempt: int) -> Record | None:
        """The record of one attempt, or None when there is none yet."""
        return read_record(self.attempt_dir(task_id, attempt) / "result.json")

    def records(self) -> list[Record]:
        """Every record there is, in order of task id and attempt."""
        found = (read_record(path) for path in self.path.glob("*/attempt-*/result.json"))
        return sorted(
            (record for record in found if record is not None),
            key=lambda record: (record["task_id"], record["attempt"]),
        )

    def once(self, name: str, action: Callable[[], None]) -> None:
        """Do something once in the whole run, in whichever process comes first.

        The others wait for it. An action that raised ``PinchBenchError`` raises the same
        error, of the same type, in every process that asks.
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
                except PinchBenchError as error:
                    outcome = {"type": type(error).__name__, "message": str(error)}
                write_json(done, outcome)
            outcome = json.loads(done.read_bytes())
        if outcome:
            from pytest_pinchbench import issues

            error_type: type[PinchBenchError] = getattr(issues, outcome["type"], PinchBenchError)
            raise error_type(outcome["message"])

    def finish(self) -> None:
        """Remove what only the running processes needed."""
        with contextlib.suppress(OSError):
            for path in (self.path / ".once").iterdir():
                path.unlink()
            (self.path / ".once").rmdir()


def safe_name(text: str) -> str:
    """A model or task id as one path component: ``openrouter/x:free`` is ``openrouter-x-free``."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip(".-") or "unnamed"


def read_record(path: Path) -> Record | None:
    """A record as written by this or a later version, or None where there is no whole one."""
    try:
        record: Record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "task_id" in record else None


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # a lone surrogate, which a model can produce, has no UTF-8: it stays the escape JSON has
    write_atomically(path, text.encode("utf-8", "backslashreplace") + b"\n")


def write_atomically(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, and a killed process leaves no torn one."""
    with _temporary(path) as temporary:
        with open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
