"""An attempt as a record, in the field names of the reference documentation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pytest_pinchbench import zstd
from pytest_pinchbench.attempt.kept_work import RECORDING
from pytest_pinchbench.attempt.tries import Try
from pytest_pinchbench.harnesses import Usage, sum_usage
from pytest_pinchbench.results.fell_short import why_it_fell_short
from pytest_pinchbench.results.files import LENIENT, json_bytes, json_lines
from pytest_pinchbench.results.records import (
    RESULT_SCHEMA,
    Record,
    Retried,
    Scoring,
    TaskResult,
    iso_time,
    issue_record,
    usage_record,
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
    last: Try,
    earlier: Sequence[Retried],
    keys: Mapping[str, str],
    redactor: Redactor,
) -> TaskResult:
    """An attempt as a record, in the field names of the reference documentation.

    ``keys``: what tells this run from others. With a FATAL issue there is no score, whatever a
    part of the grading gave.
    """
    run, grade = last.run, last.grade
    valid = grade is not None and not last.is_fatal
    score = grade.score if grade is not None and valid else None
    spent = [run.usage] if run else []
    spent += [Usage(**one["usage"]) for one in earlier if one["usage"]]
    judged = [grade.judge_usage] if grade and grade.judge_usage else []
    judged += [Usage(**one["judge_usage"]) for one in earlier if one["judge_usage"]]
    files: dict[str, bytes] = {}
    if run is not None:
        files[TRANSCRIPT] = json_lines(redactor.json(run.transcript))
        files[TRAJECTORY] = json_bytes(redactor.json(run.trajectory))
        files[AGENT_STDOUT] = redactor.text(run.stdout).encode(*LENIENT)
        files[AGENT_STDERR] = redactor.text(run.stderr).encode(*LENIENT)
        if run.recording is not None:
            files[RECORDING] = zstd.compress(json_lines(redactor.json(run.recording)), 9)
        if run.requests is not None:
            files[REQUESTS] = json_lines(redactor.json(run.requests))
    if last.archive is not None:
        files[WORKSPACE] = last.archive
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
        "issues": [issue_record(issue) for issue in last.issues],
        "usage": usage_record(sum_usage(spent)),
        "judge_usage": usage_record(sum_usage(judged)) if judged else None,
        "timing": dict(run.timing) if run and run.timing is not None else None,
        "execution_time": round(run.execution_time, 3) if run else None,
        "started_at": iso_time(last.started),
        "finished_at": iso_time(time.time()),
        "seconds": {
            **{name: round(value, 3) for name, value in last.seconds.items()},
            **({"startup": round(run.startup_seconds, 3)} if run and run.startup_seconds else {}),
        },
        "retried": list(earlier),
        "graded_in": last.graded_in,
        "trajectory": TRAJECTORY if run else None,
        "artifacts": {
            "workspace": WORKSPACE if last.archive is not None else None,
            "workspace_path": last.workspace.path if last.workspace else None,
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
