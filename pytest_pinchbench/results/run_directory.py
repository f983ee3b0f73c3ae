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
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.harnesses import AgentRun, Usage, sum_usage
from pytest_pinchbench.issues import RUN_ENDERS, Issue, PinchBenchError
from pytest_pinchbench.attempt.workspace import Workspace

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from pytest_pinchbench.attempt.grading import Grade
    from pytest_pinchbench.redaction import Redactor
    from pytest_pinchbench.suite.task_file import Task

RESULT_SCHEMA = "pinchbench-result-1"
RUN_SCHEMA = "pinchbench-run-1"
TRANSCRIPT = "transcript.jsonl"
TRAJECTORY = "trajectory.json"
AGENT_STDOUT = "agent.stdout.txt"
AGENT_STDERR = "agent.stderr.txt"
WORKSPACE = "workspace.tar.gz"

# what tells records apart, and leads to their files, is no secret, whatever words are in it
_FIXED = ["schema_version", "task_id", "category", "grading_type", "status"]
_FIXED += ["trajectory", "artifacts"]

# a lone surrogate, which a model can produce, has no UTF-8: it stays the escape JSON has
_LENIENT = ("utf-8", "backslashreplace")

Record = dict[str, Any]

_NUMBER = (int, float)
_ISSUE = {"severity": str, "code": str, "message": str}
_RECORD_SHAPE = {
    **dict.fromkeys(("task_id", "name", "category", "grading_type", "status"), str),
    "attempt": int,
    "metrics": {"score": (*_NUMBER, type(None)), "passed": (bool, type(None))},
    "timed_out": bool,
    "ground_truth": {},
    "issues": [_ISSUE],
    "usage": {name: (*_NUMBER, type(None)) for name in Usage.__dataclass_fields__},
    "judge_usage": (dict, type(None)),
    "execution_time": (*_NUMBER, type(None)),
    **dict.fromkeys(("started_at", "finished_at"), str),
    "retried": [{}],
    "artifacts": {"workspace": object, "harness_execution": (dict, type(None))},
    "meta": {"benchmark": {"scoring": (dict, type(None))}},
}
"""What is read of a record, for :func:`has_shape`."""


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


def make_result(
    task: Task,
    attempt: int,
    *,
    run: AgentRun | None,
    grade: Grade | None,
    issues: Sequence[Issue],
    workspace: Workspace | None,
    archive: bytes | None,
    started: float,
    seconds: Mapping[str, float],
    earlier: Sequence[Mapping[str, Any]],
    keys: Mapping[str, str],
    redactor: Redactor,
) -> TaskResult:
    """An attempt as a record, in the field names of the reference documentation.

    ``started`` is Unix time, ``seconds`` wall time a stage, ``earlier`` what the tries before
    the last one came to, ``keys`` what tells this run from others. With a FATAL issue there
    is no score, whatever a part of the grading gave.
    """
    valid = grade is not None and not any(issue.severity == "FATAL" for issue in issues)
    score = grade.score if grade is not None and valid else None
    spent = [run.usage] if run else []
    spent += [one["usage"] for one in earlier if one["usage"]]
    judged = [grade.judge_usage] if grade and grade.judge_usage else []
    judged += [one["judge_usage"] for one in earlier if one["judge_usage"]]
    files: dict[str, bytes] = {}
    if run is not None:
        lines = (json.dumps(redactor.json(event), ensure_ascii=False) for event in run.transcript)
        files[TRANSCRIPT] = "".join(f"{line}\n" for line in lines).encode(*_LENIENT)
        files[TRAJECTORY] = _json_bytes(redactor.json(run.trajectory))
        files[AGENT_STDOUT] = redactor.text(run.stdout).encode(*_LENIENT)
        files[AGENT_STDERR] = redactor.text(run.stderr).encode(*_LENIENT)
    if archive is not None:
        files[WORKSPACE] = archive
    record = {
        "schema_version": RESULT_SCHEMA,
        **keys,
        "task_id": task.id,
        "name": task.name,
        "category": task.category,
        "grading_type": task.grading_type,
        "attempt": attempt,
        "status": "scored" if score is not None else "invalid",
        "metrics": {"score": score, "passed": grade.passed if grade and valid else None},
        "timed_out": bool(run and run.timed_out),
        "final_answer": run.final_answer if run else None,
        "ground_truth": {
            "expected_behavior": task.expected_behavior,
            "grading_criteria": task.grading_criteria,
        },
        "issues": [asdict(issue) for issue in issues],
        "usage": asdict(sum_usage(spent)),
        "judge_usage": asdict(sum_usage(judged)) if judged else None,
        "execution_time": round(run.execution_time, 3) if run else None,
        "started_at": iso_time(started),
        "finished_at": iso_time(time.time()),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "retried": [
            {
                "issues": [asdict(issue) for issue in one["issues"]],
                "usage": asdict(one["usage"]) if one["usage"] else None,
                "judge_usage": asdict(one["judge_usage"]) if one["judge_usage"] else None,
            }
            for one in earlier
        ],
        "trajectory": TRAJECTORY if run else None,
        "artifacts": {
            "workspace": WORKSPACE if archive is not None else None,
            "workspace_path": workspace.path if workspace else None,
            "harness_execution": {
                "version": run.version,
                "transcript": TRANSCRIPT,
                "stdout": AGENT_STDOUT,
                "stderr": AGENT_STDERR,
            }
            if run
            else None,
        },
        "meta": {"benchmark": {"scoring": _scoring(grade)}},
    }
    fixed = {name: record[name] for name in (*keys, *_FIXED)}
    return TaskResult({**redactor.json(record), **fixed}, files)


def _scoring(grade: Grade | None) -> Record | None:
    """The grading evidence, under the names of the reference documentation."""
    if grade is None:
        return None
    return {
        "score": grade.score,
        "max_score": grade.max_score,
        "breakdown": dict(grade.breakdown),
        "notes": grade.notes,
        "issues": [asdict(issue) for issue in grade.issues],
        "parts": grade.parts,
        "seconds": round(grade.seconds, 3),
        "raw": {"debug": grade.debug},
    }


def cost_of(record: Record, *, agent: bool = True) -> float:
    """Dollars that an attempt cost, its judge included, as far as prices are known; without
    the agent where its work was paid for in an earlier run.
    """
    spent = [record["usage"] if agent else {}, record["judge_usage"] or {}]
    return sum(usage.get("cost_usd") or 0.0 for usage in spent)


def iso_time(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def user_properties(record: Record) -> list[tuple[str, Any]]:
    """What a report of pytest's ecosystem gets of a record: plain JSON values.

    A value that is not known (the score of an invalid attempt, a cost without a price) is
    left out.
    """
    usage, judge = record["usage"], record["judge_usage"] or {}
    scoring = record["meta"]["benchmark"]["scoring"]
    properties = {
        "score": record["metrics"]["score"],
        "passed": record["metrics"]["passed"],
        "task_id": record["task_id"],
        "category": record["category"],
        "grading_type": record["grading_type"],
        "status": record["status"],
        "attempt": record["attempt"],
        "timed_out": record["timed_out"],
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "cost_usd": usage["cost_usd"],
        "judge_tokens": judge.get("total_tokens"),
        "judge_cost_usd": judge.get("cost_usd"),
        "request_count": usage["request_count"],
        "execution_time": record["execution_time"],
        "breakdown": scoring["breakdown"] if scoring else None,
    }
    return [(name, value) for name, value in properties.items() if value is not None]


@dataclass(frozen=True)
class KeptWork:
    """What an earlier attempt left: enough to grade it again."""

    run: AgentRun
    archive: bytes | None
    """The workspace; None where the grade does not look at it."""
    workspace: str
    """Its path below the sandbox's workspace root."""


class WorkMissing(PinchBenchError):
    """An earlier attempt's work cannot be graded again: a part of it is not there."""


def not_regraded(record: Record, why: str) -> Record:
    """The record of an attempt that was to be graded again, and cannot be: no score of today's
    judge and checks, and so none.
    """
    message = f"it cannot be graded again: {why}; its score of then is in the earlier run"
    issues = [*agent_issues(record), Issue("FATAL", "work_missing", message)]
    return {
        **record,
        "status": "invalid",
        "metrics": {"score": None, "passed": None},
        "issues": [asdict(issue) for issue in issues],
    }


def tries(record: Record, *, taken_up: bool) -> list[dict[str, Any]]:
    """What an invalid record stands for, as the tries before a next one (``make_result``).

    ``taken_up``: its agent's work is graded again, and is counted there. Its sums cover the
    tries before it.
    """
    usage = None if taken_up else Usage(**record["usage"])
    judged = Usage(**record["judge_usage"]) if record["judge_usage"] else None
    before = [(one["issues"], None, None) for one in record["retried"]]
    return [
        {
            "issues": [Issue(**issue) for issue in issues],
            "usage": used,
            "judge_usage": used_by_judge,
        }
        for issues, used, used_by_judge in [*before, (record["issues"], usage, judged)]
    ]


def agent_issues(record: Record) -> tuple[Issue, ...]:
    """What went wrong before the grading."""
    scoring = record["meta"]["benchmark"]["scoring"]
    of_grading = scoring["issues"] if scoring else []
    return tuple(Issue(**one) for one in record["issues"] if one not in of_grading)


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

    def write_run(self, description: Record) -> None:
        """Write ``run.json``; a resumed run keeps what it had, and notes when it went on."""
        path = self.path / "run.json"
        if path.exists():
            earlier = json.loads(path.read_bytes())
            resumed = [*earlier.get("resumed_at", []), description["started_at"]]
            description = {**earlier, "selected": description["selected"], "resumed_at": resumed}
        write_json(path, description)

    def copy_from(self, source: RunDirectory, record: Record) -> Record:
        """Take an attempt's files over from another run, with this record."""
        folder = self.attempt_dir(record["task_id"], record["attempt"])
        shutil.copytree(
            source.attempt_dir(record["task_id"], record["attempt"]),
            folder,
            ignore=shutil.ignore_patterns("result.json"),
            dirs_exist_ok=True,
        )
        write_json(folder / "result.json", record)
        return record

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

    def kept_work(self, record: Record) -> KeptWork | None:
        """What the agent of an attempt left; None where there is nothing to grade, since
        there was no agent, or it failed. Raises ``WorkMissing`` where it is not whole.
        """
        folder = self.attempt_dir(record["task_id"], record["attempt"])
        try:
            return self._kept_work(folder, record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorkMissing(f"{folder} is damaged: {type(error).__name__}: {error}") from None

    def _kept_work(self, folder: Path, record: Record) -> KeptWork | None:
        artifacts = record["artifacts"]
        execution = artifacts["harness_execution"]
        issues = agent_issues(record)
        if execution is None or any(issue.severity == "FATAL" for issue in issues):
            return None
        archive = None
        if record["grading_type"] != "llm_judge":  # a judge reads no workspace
            if artifacts["workspace"] is None:
                raise WorkMissing(f"the workspace of {folder} was not kept")
            archive = (folder / artifacts["workspace"]).read_bytes()

        def text(name: str) -> str:
            return (folder / name).read_text(encoding="utf-8")

        run = AgentRun(
            transcript=tuple(
                json.loads(line) for line in text(execution["transcript"]).split("\n") if line
            ),
            trajectory=json.loads(text(record["trajectory"])),
            usage=Usage(**record["usage"]),
            final_answer=record["final_answer"],
            timed_out=record["timed_out"],
            execution_time=record["execution_time"],
            stdout=text(execution["stdout"]),
            stderr=text(execution["stderr"]),
            version=execution["version"],
            issues=issues,
        )
        return KeptWork(run, archive, Workspace(artifacts["workspace_path"]).relative)

    def records(self) -> list[Record]:
        """Every whole record there is, in order of task id and attempt."""
        found = (read_record(path) for path in self.path.glob("*/attempt-*/result.json"))
        return sorted(
            (record for record in found if record is not None),
            key=lambda record: (record["task_id"], record["attempt"]),
        )

    def damaged(self) -> list[Path]:
        """The files that should be records and are none."""
        found = sorted(self.path.glob("*/attempt-*/result.json"))
        return [path for path in found if read_record(path) is None]

    def once(self, name: str, action: Callable[[], None]) -> None:
        """Do something once in the whole run, in whichever process comes first.

        The others wait for it. An error that ends the run (``RUN_ENDERS``) is raised again in
        every process that asks; after any other one, the next process tries.
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
                except RUN_ENDERS as error:
                    outcome = {"type": type(error).__name__, "message": str(error)}
                write_json(done, outcome)
            outcome = json.loads(done.read_bytes())
        for ender in RUN_ENDERS:
            if outcome.get("type") == ender.__name__:
                raise ender(outcome["message"])

    def has_ended(self, name: str) -> bool:
        """Whether that which is done once has ended the run."""
        return bool(read_json(self.path / ".once" / f"{name}.json"))

    def hold(self) -> None:
        """Until :meth:`finish`, or the end of this process, no other can hold the directory.

        Raises ``PinchBenchError`` when another one does: both would pay for the same attempts.
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


def safe_name(text: str) -> str:
    """A model or task id as one path component: ``openrouter/x:free`` is ``openrouter-x-free``."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip(".-") or "unnamed"


def read_record(path: Path) -> Record | None:
    """A record as written by this or a later version, or None where there is no whole one."""
    record = read_json(path)
    return record if has_shape(record, _RECORD_SHAPE) else None


def read_json(path: Path) -> Any:
    """What a JSON file holds; None where there is no file, or it holds no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def has_shape(value: Any, shape: Any) -> bool:
    """Whether a JSON value holds what will be read of it.

    A shape is a type or several, a mapping of names that have to be there to shapes, or a
    list of the one shape that every item has.
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            name in value and has_shape(value[name], part) for name, part in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    return isinstance(value, shape)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, _json_bytes(value))


def _json_bytes(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode(*_LENIENT) + b"\n"


def write_atomically(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, and a killed process leaves no torn one."""
    with _temporary(path) as temporary:
        with open(temporary, "wb") as stream:  # a killed process of this number may have left one
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
