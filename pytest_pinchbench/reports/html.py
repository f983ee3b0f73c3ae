"""``report.html``: the verdict of a run, its categories, and one list of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats, text
from pytest_pinchbench.reports.attempt_page import NAME
from pytest_pinchbench.reports.markdown import why_no_score
from pytest_pinchbench.reports.page import page
from pytest_pinchbench.reports.terminal import selection, valid_of, warnings, what_is_missing
from pytest_pinchbench.results.comparison import Comparison
from pytest_pinchbench.results.files import safe_name

_COLUMNS = (
    *(("task", ""), ("score", "n"), ("attempts", ""), ("full", "n"), ("category", "")),
    *(("grading", ""), ("time", "n"), ("tokens", "n"), ("cost", "n"), ("fell short", "")),
)


def report_html(summary: Mapping[str, Any], comparisons: Sequence[Comparison] = ()) -> str:
    """The page of a run."""
    tasks = summary["tasks"]
    repeated = any(len(task["attempts"]) > 1 for task in tasks)
    return page(
        "report.html.j2",
        "list.js",
        summary=summary,
        verdict=text.verdict_line(summary),
        missing=None if summary["official"] else what_is_missing(summary),
        warnings=list(warnings(summary)),
        numbers=list(_numbers(summary)),
        facts=list(_facts(summary)),
        categories=[_category(category) for category in summary["categories"]],
        comparisons=[
            (
                comparison,
                text.verdict(comparison),
                text.mean_line(comparison),
                list(_changes(comparison)),
                list(text.one_sided(comparison)),
            )
            for comparison in comparisons
        ],
        columns=[one for one in _COLUMNS if repeated or one[0] != "attempts"],
        repeated=repeated,
        rows=[_row(task) for task in tasks],
        choices={
            name: sorted({task[name] for task in tasks if task[name]})
            for name in ("category", "grading_type")
        },
    )


def _numbers(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    score = formats.shown_score(summary)
    if score:
        interval = score["interval"]
        yield (
            "mean score" if summary["official"] else "mean, for reference",
            formats.score(score["mean"]),
            f"95 % interval {formats.bounds(interval)}" if interval else None,
        )
        yield (
            "full score",
            formats.percent(score["pass_rate"]),
            f"of {formats.counted(score['tasks'], 'task')}",
        )
    usage, judge = summary["usage"], summary["judge_usage"]
    yield "tokens", formats.count(usage["total_tokens"]), formats.tokens(usage)
    agent, judged, total = (formats.money(summary["cost"][n]) for n in ("agent", "judge", "total"))
    yield "cost", total, f"agent {agent}, judge {judged}"
    yield "requests", formats.count(usage["request_count"]), None
    if judge:
        yield "judge's tokens", formats.count(judge["total_tokens"]), formats.tokens(judge)
    if summary["wall_seconds"] is not None:
        yield "wall time", formats.seconds(summary["wall_seconds"]), None


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What this run was."""
    settings = summary["settings"]
    recipe = settings.get("recipe") or {}
    yield "tasks", selection(summary)
    if summary["started_at"]:
        yield "started", summary["started_at"][:19].replace("T", " ") + " UTC"
    yield "judge", summary["judge"] or "none"
    for name, commit in summary["suites"].items():
        yield "suite", f"{name} {formats.commit(commit)}"
    if recipe:
        image = f", {recipe['image']}" if recipe.get("image") else ""
        yield "sandbox", f"{recipe.get('environment')}{image}"
    identity = summary["identity"] or {}
    if "brave_api_key" in identity:
        yield "web search", "Brave" if identity["brave_api_key"] else "no key"
    parameters = (settings.get("model") or {}).get("params") or {}
    if parameters:
        yield "model parameters", ", ".join(f"{name} {value}" for name, value in parameters.items())
    for name, version in summary["versions"].items():
        name = formats.harness(summary) if name == "agent" else name
        yield name, ", ".join(version) if isinstance(version, list) else str(version)
    yield "settings", summary["settings_digest"][:19]
    for reason, count in (summary.get("fell_short") or {}).items():
        yield f"fell short: {reason}", formats.counted(count, "attempt")


def _category(category: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of the table of categories. Start and length of a bar are percentages of 0 to 1."""
    score = category["score"] or {"mean": None, "interval": None, "pass_rate": None}
    mean, interval, full = score["mean"], score["interval"], score["pass_rate"]
    return {
        "name": category["category"],
        "mean": None if mean is None else (0, 100 * mean),
        "interval": interval and (100 * interval[0], 100 * (interval[1] - interval[0])),
        "cells": [
            (formats.score(mean), _number(mean)),
            (formats.bounds(interval), _number(interval and interval[0])),
            (formats.percent(full), _number(full)),
            (valid_of(category), category["tasks"]),
        ],
    }


def _changes(comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    for task in comparison.tasks:
        if task.verdict != "same":
            yield (
                task,
                formats.score(task.baseline),
                formats.score(task.new),
                formats.difference(task.difference),
            )


def _row(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task of the list: the words to filter it by, and its cells."""
    usage, total = task["usage"], task["cost"]["total"]
    attempts = task["attempts"]
    states = {attempt["status"] for attempt in attempts} - {"scored"}
    if task["pass_rate"] is not None and task["pass_rate"] < 1:
        states.add("failed")
    if any(attempt.get("timed_out") for attempt in attempts):
        states.add("timed-out")
    reasons = dict.fromkeys(why for one in attempts for why in one.get("fell_short", ()))
    folder = safe_name(task["task_id"])
    return {
        "task": task,
        "states": " ".join(sorted(states)),
        "score": why_no_score(task) if task["mean"] is None else formats.score(task["mean"]),
        "spread": "" if task["std"] is None else f"±{formats.spread(task['std'])}",
        "links": [
            (
                formats.short_score(one["score"]) if one["score"] is not None else one["status"],
                f"{folder}/attempt-{one['attempt']}/{NAME}" if one["status"] != "missing" else None,
                one["score"],
            )
            for one in attempts
        ],
        "cells": [
            (formats.percent(task["pass_rate"]), _number(task["pass_rate"])),
            (task["category"] or formats.UNKNOWN, None),
            (task["grading_type"] or formats.UNKNOWN, None),
            (formats.seconds(task["execution_time"]), _number(task["execution_time"])),
            (formats.count(usage["total_tokens"]), usage["total_tokens"]),
            (formats.money(total), _number(total["usd"])),
            (", ".join(reasons), None),
        ],
    }


def _number(value: float | None) -> float:
    """What is not known sorts below everything."""
    return -1 if value is None else value
