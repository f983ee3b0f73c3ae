"""The work of an earlier attempt: read back, so that it is graded again and not paid for again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_pinchbench import zstd
from pytest_pinchbench.attempt.workspace import Workspace
from pytest_pinchbench.harnesses import AgentRun, Usage
from pytest_pinchbench.issues import Issue, PinchBenchError, SandboxFailure
from pytest_pinchbench.results.records import Record, Retried, agent_issues, issue_record
from pytest_pinchbench.results.run_directory import RunDirectory

RECORDING = "recording.jsonl.zst"
_NOT_THE_AGENTS = ("sandbox", "work_missing", "check_import", "prerequisite")


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


@dataclass(frozen=True)
class Recording:
    """The requests and answers of an attempt, and where its workspace was."""

    exchanges: list[dict[str, Any]]
    path: str
    relative: str


def read_recording(directory: RunDirectory, task_id: str, attempt: int) -> Recording:
    """Read what ``--pinchbench-record`` kept of an attempt. Raises ``SandboxFailure``."""
    record = directory.read(task_id, attempt)
    try:
        if record is None:
            raise FileNotFoundError("it has no record")
        path = str(record["artifacts"]["workspace_path"])
        packed = directory.attempt_dir(task_id, attempt) / RECORDING
        lines = map(json.loads, filter(None, _unpacked(packed).split("\n")))
        exchanges = [line for line in lines if not line.get("is_judge")]
    except (OSError, ValueError, KeyError, zstd.ZstdError) as error:
        raise SandboxFailure(
            f"cannot replay {task_id}/{attempt} of {directory.path}: {error}. Only a run with "
            "--pinchbench-record can be replayed"
        ) from None
    return Recording(exchanges, path, Workspace(path).relative)


def _unpacked(path: Path) -> str:
    return str(zstd.ZstdDecompressor().decompress(path.read_bytes()), "utf-8")


def kept_work(
    directory: RunDirectory, record: Record, reads_workspace: bool = True
) -> KeptWork | None:
    """What the agent of an attempt left; None where there is nothing to grade, since
    there was no agent, or it failed. Raises ``WorkMissing`` where it is not whole; a grade
    that ``reads_workspace`` needs that, too.
    """
    folder = directory.attempt_dir(record["task_id"], record["attempt"])
    try:
        return _read(folder, record, reads_workspace)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkMissing(f"{folder} is damaged: {type(error).__name__}: {error}") from None


def _read(folder: Path, record: Any, reads_workspace: bool) -> KeptWork | None:
    # untyped: a damaged file can lack anything
    artifacts = record["artifacts"]
    execution = artifacts["harness_execution"]
    # after the agent's end, a lost sandbox is not the agent's issue
    issues = tuple(one for one in agent_issues(record) if one.code not in _NOT_THE_AGENTS)
    if execution is None or any(issue.severity == "FATAL" for issue in issues):
        return None
    archive = None
    if reads_workspace:
        if artifacts["workspace"] is None:
            raise WorkMissing(f"the workspace of {folder} was not kept")
        archive = (folder / artifacts["workspace"]).read_bytes()

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    def lines(text: str) -> tuple[dict[str, Any], ...]:
        return tuple(json.loads(line) for line in text.split("\n") if line)

    recording = folder / RECORDING
    run = AgentRun(
        transcript=lines(text(execution["transcript"])),
        trajectory=json.loads(text(record["trajectory"])),
        usage=Usage(**record["usage"]),
        final_answer=record["final_answer"],
        timed_out=record["timed_out"],
        execution_time=record["execution_time"],
        stdout=text(execution["stdout"]),
        stderr=text(execution["stderr"]),
        version=execution["version"],
        issues=issues,
        requests=lines(text(execution["requests"])) if execution.get("requests") else None,
        recording=lines(_unpacked(recording)) if recording.exists() else None,
        timing=record.get("timing"),
    )
    return KeptWork(run, archive, Workspace(artifacts["workspace_path"]).relative)


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
        "issues": [issue_record(issue) for issue in issues],
    }


def previous_attempts(record: Record, *, work_reused: bool) -> list[Retried]:
    """Convert an invalid record into the ``retried`` entries of its successor.

    With ``work_reused`` the agent's work is graded again, and its usage is counted there. The
    record's usage is the sum over all its tries.
    """
    before: list[Retried] = [
        {"issues": one["issues"], "usage": None, "judge_usage": None} for one in record["retried"]
    ]
    usage = None if work_reused else record["usage"]
    judged = record["judge_usage"]
    return [*before, {"issues": record["issues"], "usage": usage, "judge_usage": judged}]
