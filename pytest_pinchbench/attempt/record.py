"""An attempt as a record, in the field names of the reference documentation."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from pytest_pinchbench import zstd
from pytest_pinchbench.attempt.kept_work import RECORDING
from pytest_pinchbench.attempt.workspace import Workspace
from pytest_pinchbench.harnesses import AgentRun, sum_usage
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.results.fell_short import why_it_fell_short
from pytest_pinchbench.results.files import LENIENT, json_bytes
from pytest_pinchbench.results.records import (
    RESULT_SCHEMA,
    GradedIn,
    Record,
    Scoring,
    TaskResult,
    iso_time,
    issue_record,
)

if TYPE_CHECKING:
    from pytest_pinchbench.attempt.grading import Grade
    from pytest_pinchbench.redaction import Redactor
    from pytest_pinchbench.suite.task_file import Task

TRANSCRIPT = "transcript.jsonl"
TRAJECTORY = "trajectory.json"
AGENT_STDOUT = "agent.stdout.txt"
AGENT_STDERR = "agent.stderr.txt"
REQUESTS = "requests.jsonl"
WORKSPACE = "workspace.tar.gz"

# what tells records apart, and leads to their files, is no secret, whatever words are in it
_FIXED = ["schema_version", "task_id", "category", "grading_type", "status"]
_FIXED += ["trajectory", "artifacts"]


def make_result(
    task: Task,
    attempt: int,
    *,
    run: AgentRun | None,
    grade: Grade | None,
    issues: Sequence[Issue],
    workspace: Workspace | None,
    archive: bytes | None,
    graded_in: GradedIn | None,
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
        files[TRANSCRIPT] = "".join(f"{line}\n" for line in lines).encode(*LENIENT)
        files[TRAJECTORY] = json_bytes(redactor.json(run.trajectory))
        files[AGENT_STDOUT] = redactor.text(run.stdout).encode(*LENIENT)
        if run.recording is not None:
            lines = (json.dumps(redactor.json(one)) for one in run.recording)
            packed = "".join(f"{line}\n" for line in lines).encode()
            files[RECORDING] = zstd.compress(packed, 9)
        if run.requests is not None:
            lines = (json.dumps(redactor.json(one), ensure_ascii=False) for one in run.requests)
            files[REQUESTS] = "".join(f"{line}\n" for line in lines).encode(*LENIENT)
        files[AGENT_STDERR] = redactor.text(run.stderr).encode(*LENIENT)
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
            "prompts": [prompt.text for prompt in task.prompts],
            "judge_rubric": task.judge_rubric,
            "automated_checks": task.automated_checks,
            "grading_weights": task.grading_weights and dict(task.grading_weights),
        },
        "fell_short": why_it_fell_short(score, run.timed_out, run.final_answer, run.trajectory)
        if run
        else [],
        "issues": [asdict(issue) for issue in issues],
        "usage": asdict(sum_usage(spent)),
        "judge_usage": asdict(sum_usage(judged)) if judged else None,
        "timing": dict(run.timing) if run and run.timing is not None else None,
        "execution_time": round(run.execution_time, 3) if run else None,
        "started_at": iso_time(started),
        "finished_at": iso_time(time.time()),
        "seconds": {
            **{name: round(value, 3) for name, value in seconds.items()},
            **({"startup": round(run.startup_seconds, 3)} if run and run.startup_seconds else {}),
        },
        "retried": [
            {
                "issues": [asdict(issue) for issue in one["issues"]],
                "usage": asdict(one["usage"]) if one["usage"] else None,
                "judge_usage": asdict(one["judge_usage"]) if one["judge_usage"] else None,
            }
            for one in earlier
        ],
        "graded_in": graded_in,
        "trajectory": TRAJECTORY if run else None,
        "artifacts": {
            "workspace": WORKSPACE if archive is not None else None,
            "workspace_path": workspace.path if workspace else None,
            "harness_execution": {
                "version": run.version,
                "transcript": TRANSCRIPT,
                "stdout": AGENT_STDOUT,
                "stderr": AGENT_STDERR,
                "requests": REQUESTS if run.requests is not None else None,
            }
            if run
            else None,
        },
        "meta": {"benchmark": {"scoring": _scoring(grade)}},
    }
    fixed = {name: record[name] for name in (*keys, *_FIXED)}
    return TaskResult(cast(Record, {**redactor.json(record), **fixed}), files)


def _scoring(grade: Grade | None) -> Scoring | None:
    """The grading evidence, under the names of the reference documentation."""
    if grade is None:
        return None
    return {
        "score": grade.score,
        "max_score": grade.max_score,
        "breakdown": dict(grade.breakdown),
        "notes": grade.notes,
        "issues": [issue_record(issue) for issue in grade.issues],
        "parts": dict(grade.parts),
        "seconds": round(grade.seconds, 3),
        "raw": {"debug": grade.debug},
    }
