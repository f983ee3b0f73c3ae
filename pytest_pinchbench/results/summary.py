"""Records of a run as one document: ``summary.json``.

Its shape is ``schemas/pinchbench-summary-1.json``. It holds every attempt's score, so that
a comparison needs nothing else.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.results import statistics as scores
from pytest_pinchbench.results.earlier_runs import find_run, read_run_json, refuse_damaged
from pytest_pinchbench.results.files import has_shape, read_json
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings

SUMMARY_SCHEMA = "pinchbench-summary-1"

Summary = dict[str, Any]

_SHAPE = {
    **dict.fromkeys(("run_id", "model", "judge", "started_at", "score", "reference"), object),
    "official": bool,
    "usage": {"total_tokens": int, "cost_usd": (int, float, type(None))},
    "tasks": [
        {
            **dict.fromkeys(("category", "execution_time"), object),
            "task_id": str,
            "attempts": [{"score": (int, float, type(None))}],
        }
    ],
    "suites": {},
    "versions": {},
    "settings": {},
}
"""What is read of the summary of a run to compare with."""

# where a run keeps its files and what it does with its scores change no score
_NO_PART_OF_THE_DIGEST = (
    *("results_dir", "data_dir", "skill_dir", "keep_workspace", "keep_environment"),
    *("resume", "regrade", "merge", "compare", "compare_fail", "fail_under", "budget_usd"),
)


def summarize(
    records: Sequence[Record], run: Mapping[str, Any], *, wall_seconds: float | None = None
) -> Summary:
    """The summary of a run.

    ``records`` are those of its run directory, ``run`` is its ``run.json`` (or empty), whose
    ``selected`` says which attempts were to run and in what order: one without a record is
    ``missing``, a record that was not selected is left out. Without it, the records are all
    there is. ``wall_seconds`` is how long the run took, where that is known.
    """
    wanted = [(entry["task_id"], entry["attempt"]) for entry in run.get("selected") or ()]
    found = {(record["task_id"], record["attempt"]): record for record in records}
    wanted = wanted or sorted(found)
    records = [found[key] for key in wanted if key in found]
    counts = {
        "selected": len(wanted),
        "scored": sum(_is_scored(record) for record in records),
        "invalid": sum(not _is_scored(record) for record in records),
        "missing": len(wanted) - len(records),
    }
    valid = _score(records)
    official = bool(wanted) and counts["scored"] == counts["selected"]
    settings = run.get("settings") or {}
    judge = settings.get("judge") or {}
    first = records[0] if records else {}
    return {
        "schema_version": SUMMARY_SCHEMA,
        "run_id": run.get("run_id", first.get("run_id")),
        "model": run.get("model", first.get("model")),
        "judge": judge.get("id"),
        "started_at": min((record["started_at"] for record in records), default=None),
        "finished_at": max((record["finished_at"] for record in records), default=None),
        "wall_seconds": wall_seconds,
        "official": official,
        "score": valid if official else None,
        "reference": None if official else valid,
        "attempts": counts,
        "usage": _usage([record["usage"] for record in records]),
        "judge_usage": _judge_usage(records),
        "categories": _categories(records),
        "tasks": _tasks(wanted, found),
        "suites": run.get("suites") or {},
        "versions": {
            **(run.get("versions") or {}),
            "agent": sorted({version for record in records if (version := _agent(record))}),
        },
        "identity": run.get("identity"),
        "settings": settings,
        "settings_digest": _digest(settings),
    }


def read_baselines(settings: Settings, start: Path) -> list[Summary]:
    """The runs of ``--pinchbench-compare``. Raises ``PinchBenchError``."""
    return [read_run(find_run(named, settings, start)) for named in settings.compare]


def read_run(path: Path) -> Summary:
    """The summary of a finished run, given its directory or its ``summary.json``.

    Of a directory the records count, not the summary in it. Raises ``PinchBenchError``.
    """
    if path.is_dir():
        refuse_damaged(path)
        records = RunDirectory(path).records()
        if not records:
            raise PinchBenchError(
                f"{path} holds no results: a run directory has <task id>/attempt-1/result.json"
            )
        run = read_run_json(path) if (path / "run.json").exists() else {}
        return summarize(records, run, wall_seconds=wall_seconds_of(path))
    summary: Summary = read_json(path)
    if not has_shape(summary, _SHAPE):
        raise PinchBenchError(
            f"{path} is neither a run directory nor the summary.json of a run"
            + ("" if path.exists() else ": there is no such file")
        )
    return summary


def wall_seconds_of(directory: Path) -> float | None:
    """How long a run has taken so far, where its summary says so."""
    summary = read_json(directory / "summary.json")
    if not has_shape(summary, {"wall_seconds": (int, float)}):
        return None
    return float(summary["wall_seconds"])


def shown_score(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The official score, or else the one over the valid tasks (``official`` says which)."""
    score: dict[str, Any] | None = summary["score"] or summary["reference"]
    return score


def _score(records: Sequence[Record]) -> dict[str, Any] | None:
    """Mean, pass rate and interval over the valid records."""
    score = scores.overall(records)
    if score is None:
        return None
    bounds = scores.mean_interval(records)
    return {
        "mean": score.mean,
        "pass_rate": score.pass_rate,
        "interval": list(bounds) if bounds else None,
        "tasks": score.tasks,
    }


def _categories(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "category": name,
            "tasks": len({record["task_id"] for record in group}),
            "official": all(_is_scored(record) for record in group),
            "score": _score(group),
            "usage": _usage([record["usage"] for record in group]),
        }
        for name, group in scores.by_category(records).items()
    ]


def _tasks(
    wanted: Sequence[tuple[str, int]], found: Mapping[tuple[str, int], Record]
) -> list[dict[str, Any]]:
    """One entry a task, in the order of the run."""
    attempts: dict[str, list[int]] = {}
    for task_id, attempt in wanted:
        attempts.setdefault(task_id, []).append(attempt)
    return [
        _task(task_id, {n: found.get((task_id, n)) for n in sorted(numbers)})
        for task_id, numbers in attempts.items()
    ]


def _task(task_id: str, attempts: Mapping[int, Record | None]) -> dict[str, Any]:
    records = [record for record in attempts.values() if record is not None]
    valid = [record for record in records if _is_scored(record)]
    values = [record["metrics"]["score"] for record in valid]
    times = [record["execution_time"] for record in records if record["execution_time"] is not None]
    last = records[-1] if records else {}
    return {
        "task_id": task_id,
        "name": last.get("name"),
        "category": last.get("category"),
        "grading_type": last.get("grading_type"),
        "mean": statistics.fmean(values) if values else None,
        "pass_rate": statistics.fmean(r["metrics"]["passed"] for r in valid) if valid else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "execution_time": statistics.fmean(times) if times else None,
        "usage": _usage([record["usage"] for record in records]),
        "judge_usage": _judge_usage(records),
        "attempts": [_attempt(number, record) for number, record in attempts.items()],
    }


def _attempt(number: int, record: Record | None) -> dict[str, Any]:
    if record is None:
        return {"attempt": number, "status": "missing", "score": None, "passed": None}
    return {
        "attempt": number,
        "status": record["status"],
        "score": record["metrics"]["score"],
        "passed": record["metrics"]["passed"],
        "timed_out": record["timed_out"],
        "execution_time": record["execution_time"],
        "usage": _usage([record["usage"]]),
        "issues": record["issues"],
    }


def _is_scored(record: Record) -> bool:
    return record["metrics"]["score"] is not None


def _agent(record: Record) -> str | None:
    execution = record["artifacts"]["harness_execution"]
    return execution["version"] if execution else None


def _judge_usage(records: Sequence[Record]) -> dict[str, Any] | None:
    """What the judge used; it is in no other sum. None where no judge was asked."""
    usages = [record["judge_usage"] for record in records if record["judge_usage"]]
    return _usage(usages) if usages else None


def _usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum; ``cost_usd`` is that of the parts whose price is known, None without any."""
    costs = [usage["cost_usd"] for usage in usages if usage["cost_usd"] is not None]
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return {
        **{
            name: sum(usage[name] for usage in usages)
            for name in (*names, "total_tokens", "request_count")
        },
        "cost_usd": sum(costs) if costs else None,
        "cost_is_complete": len(costs) == len(usages),
    }


def _digest(settings: Mapping[str, Any]) -> str:
    """Two runs with the same digest were asked for the same thing."""
    kept = {key: settings[key] for key in settings if key not in _NO_PART_OF_THE_DIGEST}
    canonical = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()
