"""The numbers of a run, computed once: ``summary.json``. Every report renders it.

Its shape is ``schemas/pinchbench-summary-1.json``. It holds every attempt's score, so that
a comparison needs nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.results.earlier_runs import find_run, read_run_json, refuse_damaged
from pytest_pinchbench.results.files import has_shape, read_json
from pytest_pinchbench.results.records import Record, cost_parts
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.statistics import mean_interval

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings

SUMMARY_SCHEMA = "pinchbench-summary-1"

Summary = dict[str, Any]

_OVERLOADED = 3.0  # times the first start-up that the median one may take
_TOKENS = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("total_tokens", "request_count"),
)

SUMMARY_SHAPE = {
    **dict.fromkeys(("run_id", "model", "judge", "started_at", "score", "reference"), object),
    "official": bool,
    "usage": {"total_tokens": int},
    "selection": {"tasks": int, "suite_tasks": (int, type(None))},
    "cost": {"total": {"usd": (int, float, type(None)), "complete": bool}},
    "task_seconds": (int, float, type(None)),
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


def summarize(
    records: Sequence[Record],
    run: Mapping[str, Any],
    *,
    wall_seconds: float | None = None,
    troubles: Mapping[tuple[str, int], str] | None = None,
) -> Summary:
    """The summary of a run.

    ``records`` are those of its run directory, ``run`` is its ``run.json`` (or empty), whose
    ``selected`` says which attempts were to run and in what order: one without a record is
    ``missing``, a record that was not selected is left out. Without it, the records are all
    there is. ``wall_seconds`` is how long the run took, where that is known; ``troubles`` say
    why attempts (task id, number) have no record.
    """
    selected = run.get("selected") or ()
    wanted = [(entry["task_id"], entry["attempt"]) for entry in selected]
    categories = {entry["task_id"]: entry.get("category") for entry in selected}
    found = {(record["task_id"], record["attempt"]): record for record in records}
    wanted = wanted or sorted(found)
    records = [found[key] for key in wanted if key in found]
    counts = {
        "selected": len(wanted),
        "scored": sum(_is_scored(record) for record in records),
        "invalid": sum(not _is_scored(record) for record in records),
        "missing": len(wanted) - len(records),
    }
    attempts: dict[str, dict[int, Record | None]] = {}
    for task_id, attempt in sorted(wanted, key=lambda key: key[1]):
        attempts.setdefault(task_id, {})[attempt] = found.get((task_id, attempt))
    tasks = [
        _task(task_id, categories.get(task_id), attempts[task_id], troubles or {})
        for task_id in dict.fromkeys(task_id for task_id, _ in wanted)
    ]
    times = [task["execution_time"] for task in tasks if task["execution_time"] is not None]
    waited = [timing["waiting"] for record in records if (timing := record.get("timing"))]
    valid = _score(tasks)
    settings = run.get("settings") or {}
    official = bool(wanted) and counts["scored"] == counts["selected"]
    official = official and not settings.get("replay")
    selection, partial = _selection(run, tasks)
    judge = settings.get("judge") or {}
    first: Mapping[str, Any] = records[0] if records else {}
    return {
        "schema_version": SUMMARY_SCHEMA,
        "run_id": run.get("run_id", first.get("run_id")),
        "model": run.get("model", first.get("model")),
        "judge": judge.get("id"),
        "started_at": min((record["started_at"] for record in records), default=None),
        "finished_at": max((record["finished_at"] for record in records), default=None),
        "wall_seconds": wall_seconds,
        "task_seconds": fmean(times) if times else None,
        "startup_seconds": _startup(records),
        "waiting_seconds": sum(waited) if waited else None,
        "official": official,
        "partial": partial,
        "selection": selection,
        "score": valid if official else None,
        "reference": None if official else valid,
        "attempts": counts,
        "fell_short": dict(Counter(why for one in records for why in one.get("fell_short", ()))),
        **_spent(records),
        "efficiency": _efficiency(records),
        "categories": _categories(tasks),
        "tasks": tasks,
        "suites": run.get("suites") or {},
        "versions": {
            **(run.get("versions") or {}),
            "agent": sorted({version for record in records if (version := _agent(record))}),
        },
        "identity": run.get("identity"),
        "settings": settings,
        "settings_digest": _digest(run.get("identity"), wanted),
    }


def read_baselines(settings: Settings, start: Path) -> list[Summary]:
    """The runs of ``--pinchbench-compare``. Raises ``PinchBenchError``."""
    return [read_summary(find_run(named, settings, start)) for named in settings.compare]


def read_summary(path: Path) -> Summary:
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
        run: Mapping[str, Any] = read_run_json(path) if (path / "run.json").exists() else {}
        return summarize(records, run, wall_seconds=wall_seconds_of(path))
    summary: Summary = read_json(path)
    if not has_shape(summary, SUMMARY_SHAPE):
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


def _score(tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Mean, pass rate and interval over the valid tasks; None without one."""
    valid = [task for task in tasks if task["mean"] is not None]
    if not valid:
        return None
    interval = mean_interval([task["mean"] for task in valid])
    return {
        "mean": fmean(task["mean"] for task in valid),
        "pass_rate": fmean(task["pass_rate"] for task in valid),
        "interval": list(interval) if interval else None,
        "tasks": len(valid),
    }


def _selection(
    run: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], bool | None]:
    """How many of how many tasks were chosen, and whether that is a part of them."""
    sizes = run.get("suite_tasks") or {}
    size = sum(sizes.values()) if sizes else None
    chosen = {"tasks": len(tasks), "suite_tasks": size, "suite": " and ".join(sizes) or None}
    return chosen, None if size is None else len(tasks) < size


def _categories(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """In alphabetical order; a task that never ran has the category that was selected."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        if task["category"] is not None:
            groups.setdefault(task["category"], []).append(task)
    return [
        {
            "category": name,
            "tasks": len(group),
            "official": all(task["mean"] is not None for task in group),
            "score": _score(group),
        }
        for name, group in sorted(groups.items())
    ]


def _task(
    task_id: str,
    category: str | None,
    attempts: Mapping[int, Record | None],
    troubles: Mapping[tuple[str, int], str],
) -> dict[str, Any]:
    """One task. With an invalid or a missing attempt it has no number at all."""
    records = [record for record in attempts.values() if record is not None]
    valid = len(records) == len(attempts) and all(map(_is_scored, records))
    metrics: list[Any] = [record["metrics"] for record in records] if valid else []
    values = [one["score"] for one in metrics]
    passed = [one["passed"] for one in metrics]
    times = [record["execution_time"] for record in records if record["execution_time"] is not None]
    last: Mapping[str, Any] = records[-1] if records else {}
    return {
        "task_id": task_id,
        "name": last.get("name"),
        "category": last.get("category", category),
        "grading_type": last.get("grading_type"),
        "mean": fmean(values) if valid else None,
        "pass_rate": fmean(passed) if valid else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "std": stdev(values) if len(values) > 1 else None,
        "execution_time": fmean(times) if times else None,
        **_spent(records),
        "attempts": [
            _attempt(number, record, troubles.get((task_id, number), "not run"))
            for number, record in attempts.items()
        ],
    }


def _attempt(number: int, record: Record | None, why: str) -> dict[str, Any]:
    if record is None:
        return {
            "attempt": number,
            "status": "missing",
            "score": None,
            "passed": None,
            "why_missing": why,
        }
    return {
        "attempt": number,
        "status": record["status"],
        "score": record["metrics"]["score"],
        "passed": record["metrics"]["passed"],
        "timed_out": record["timed_out"],
        "fell_short": record.get("fell_short", []),
        "execution_time": record["execution_time"],
        **_spent([record]),
        "issues": record["issues"],
    }


def _is_scored(record: Record) -> bool:
    return record["metrics"]["score"] is not None


def _agent(record: Record) -> str | None:
    execution = record["artifacts"]["harness_execution"]
    return execution["version"] if execution else None


def _startup(records: Sequence[Record]) -> dict[str, Any] | None:
    """Seconds from starting the agent to its first prompt; None where no attempt has them."""
    found = [
        (record["started_at"], record["seconds"]["startup"])
        for record in records
        if record.get("seconds", {}).get("startup") is not None
    ]
    if not found:
        return None
    first, middle = min(found)[1], median(value for _, value in found)
    return {"first": first, "median": middle, "overloaded": middle > _OVERLOADED * first}


def _spent(records: Sequence[Record]) -> dict[str, Any]:
    """Tokens of the agent and of the judge (in no other sum), and what both cost."""
    agent = [record["usage"] for record in records]
    judge = [record["judge_usage"] for record in records if record["judge_usage"]]
    return {
        "usage": _usage(agent),
        "judge_usage": _usage(judge) if judge else None,
        "cost": cost_parts(records),
    }


def _efficiency(records: Sequence[Record]) -> dict[str, float | None]:
    """Return the sum of the scores for 1,000 tokens and for a dollar of the agent's, all tries
    counted; None where tokens or prices are not known.
    """
    points = sum(record["metrics"]["score"] or 0.0 for record in records)
    tokens = sum(record["usage"]["total_tokens"] for record in records)
    cost = cost_parts(records)["agent"]
    return {
        "score_per_1000_tokens": 1000 * points / tokens if tokens else None,
        "score_per_usd": points / cost["usd"] if cost["usd"] and cost["complete"] else None,
    }


def _usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: sum(usage[name] for usage in usages) for name in _TOKENS}


def _digest(identity: Any, wanted: Sequence[tuple[str, int]]) -> str:
    """Two runs with the same digest were asked for the same thing."""
    canonical = json.dumps([identity, wanted], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()
