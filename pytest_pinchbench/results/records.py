"""The record of an attempt: its fields, and what is read off it.

A record is what an attempt's ``result.json`` holds: JSON values, redacted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, TypedDict, cast

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.issues import Issue, Severity
from pytest_pinchbench.results.fell_short import Reason
from pytest_pinchbench.results.files import has_shape

RESULT_SCHEMA = "pinchbench-result-1"
RUN_SCHEMA = "pinchbench-run-1"


class IssueRecord(TypedDict):
    """See :class:`pytest_pinchbench.Issue`."""

    severity: Severity
    code: str
    message: str


class _Since(TypedDict, total=False):
    cost_is_complete: bool


class UsageRecord(_Since):
    """See :class:`pytest_pinchbench.Usage`; tokens, US dollars."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    cost_usd: float | None
    request_count: int


class Metrics(TypedDict):
    """None: the attempt is invalid."""

    score: float | None
    passed: bool | None


class Retried(TypedDict):
    """One of the tries before the last, each of which ended FATAL."""

    issues: list[IssueRecord]
    usage: UsageRecord | None
    judge_usage: UsageRecord | None


class _Asked(TypedDict, total=False):
    prompts: list[str]
    judge_rubric: str | None
    automated_checks: str | None
    grading_weights: dict[str, float] | None


class GroundTruth(_Asked):
    """What the task file asks for, Markdown; the checks as Python's source."""

    expected_behavior: str
    grading_criteria: str


class HarnessExecution(TypedDict):
    """The agent's version, and the files with what it said."""

    version: str
    transcript: str
    stdout: str
    stderr: str
    requests: str | None


class Artifacts(TypedDict):
    """Files beside the record, and where the workspace was in the sandbox."""

    workspace: str | None
    workspace_path: str | None
    harness_execution: HarnessExecution | None


class Scoring(TypedDict):
    """The grading evidence, under the names of the reference documentation."""

    score: float | None
    max_score: float
    breakdown: dict[str, float]
    notes: str
    issues: list[IssueRecord]
    parts: dict[str, Any]
    seconds: float
    raw: dict[str, Any]


class Benchmark(TypedDict):
    scoring: Scoring | None


class Meta(TypedDict):
    benchmark: Benchmark


class Selected(TypedDict):
    task_id: str
    attempt: int
    category: str | None


class RunDescription(TypedDict):
    """What ``run.json`` holds; ``schemas/pinchbench-run-1.json`` says what it means."""

    schema_version: str
    run_id: str
    started_at: str
    model: str
    identity: dict[str, Any]
    settings: dict[str, Any]
    suites: dict[str, str | None]
    suite_tasks: dict[str, int]
    arguments: list[str]
    selected: list[Selected]
    versions: dict[str, str]


class GradedIn(TypedDict):
    """``fresh`` or ``same``: a sandbox in which the agent has not been, or its own; and why."""

    sandbox: str
    reason: str


class _Explained(TypedDict, total=False):
    fell_short: list[Reason]


class Record(_Explained):
    """What ``result.json`` holds; ``schemas/pinchbench-result-1.json`` says what it means."""

    schema_version: str
    run_id: str
    model: str
    task_id: str
    name: str
    category: str
    grading_type: str
    attempt: int
    status: str
    metrics: Metrics
    timed_out: bool
    final_answer: str | None
    ground_truth: GroundTruth
    issues: list[IssueRecord]
    usage: UsageRecord
    judge_usage: UsageRecord | None
    timing: dict[str, float] | None
    execution_time: float | None
    started_at: str
    finished_at: str
    seconds: dict[str, float]
    retried: list[Retried]
    graded_in: GradedIn | None
    trajectory: str | None
    artifacts: Artifacts
    meta: Meta


_NUMBER = (int, float)


def is_score(value: Any) -> bool:
    """Return whether a value can stand where a record has its score."""
    return value is None or (has_shape(value, _NUMBER) and 0 <= value <= 1)


_ISSUE = {"severity": str, "code": str, "message": str}
RECORD_SHAPE = {
    **dict.fromkeys(("task_id", "name", "category", "grading_type", "status"), str),
    "attempt": int,
    "metrics": {"score": is_score, "passed": (bool, type(None))},
    "timed_out": bool,
    "ground_truth": {},
    "issues": [_ISSUE],
    "usage": {
        name: (*_NUMBER, type(None)) for name in asdict(Usage()) if name != "cost_is_complete"
    },
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
        return self.record["metrics"]["score"]

    @property
    def issues(self) -> tuple[Issue, ...]:
        return tuple(Issue(**issue) for issue in self.record["issues"])


def cost_of(record: Record, *, agent: bool = True) -> float:
    """Dollars that an attempt cost, its judge included, as far as prices are known; without
    the agent where its work was paid for in an earlier run.
    """
    spent = [record["usage"] if agent else None, record["judge_usage"]]
    return sum(usage["cost_usd"] or 0.0 for usage in spent if usage)


def cost_parts(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """What records cost: ``agent``, ``judge`` and their ``total``, each ``usd`` (None: not one
    price is known) and ``complete`` (False: it is a lower bound).
    """
    agent = [record["usage"] for record in records]
    judge = [record["judge_usage"] for record in records if record["judge_usage"]]
    return {"agent": _money(agent), "judge": _money(judge), "total": _money([*agent, *judge])}


def _money(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = [usage["cost_usd"] for usage in usages if usage["cost_usd"] is not None]
    unknown = [
        usage
        for usage in usages
        if (usage["cost_usd"] is None and (usage["request_count"] or usage["total_tokens"]))
        or not usage.get("cost_is_complete", True)
    ]
    # what made no request cost nothing
    return {"usd": math.fsum(known) if known or not unknown else None, "complete": not unknown}


def iso_time(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def user_properties(record: Record) -> list[tuple[str, Any]]:
    """What a report of pytest's ecosystem gets of a record: plain JSON values.

    A value that is not known (the score of an invalid attempt, a cost without a price) is
    left out.
    """
    usage = record["usage"]
    judge: Mapping[str, Any] = record["judge_usage"] or {}
    scoring = record["meta"]["benchmark"]["scoring"]
    total = cost_parts([record])["total"]
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
        "total_cost_usd": total["usd"],
        "cost_is_complete": total["complete"],
        "request_count": usage["request_count"],
        "execution_time": record["execution_time"],
        "breakdown": scoring["breakdown"] if scoring else None,
    }
    return [(name, value) for name, value in properties.items() if value is not None]


def issue_record(issue: Issue) -> IssueRecord:
    return IssueRecord(severity=issue.severity, code=issue.code, message=issue.message)


def usage_record(usage: Usage) -> UsageRecord:
    return cast(UsageRecord, asdict(usage))


def agent_issues(record: Record) -> tuple[Issue, ...]:
    """What went wrong before the grading."""
    scoring = record["meta"]["benchmark"]["scoring"]
    of_grading = scoring["issues"] if scoring else []
    return tuple(Issue(**one) for one in record["issues"] if one not in of_grading)
