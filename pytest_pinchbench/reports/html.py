"""``report.html``: a run on one page that needs nothing else, no network and no server.

The page's own policy forbids every request and every script but the one it came with, so
that even text of a model that escaped escaping could do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats, text
from pytest_pinchbench.reports.conversation import conversation
from pytest_pinchbench.reports.markdown import why_no_score
from pytest_pinchbench.reports.page import attempt_html, source, templates
from pytest_pinchbench.reports.terminal import selection, valid_of, warnings, what_is_missing
from pytest_pinchbench.results.comparison import Comparison
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory

CONVERSATION = 60_000  # characters of one attempt's conversation
_CONVERSATIONS = 20_000_000  # of all of them: a browser has to open the page
_SHORTEST = 2_000

Row = tuple[str, list[tuple[str, float | None]]]


def report_html(
    directory: RunDirectory,
    records: Sequence[Record],
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
) -> str:
    """The page of a run. ``records`` are those that ``summary`` is of."""
    from markupsafe import Markup

    script = source("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    style = "\n".join(map(source, ("colours.css", "report.css", "attempt.css")))
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            summary=summary,
            policy=policy,
            style=Markup(style),
            script=Markup(script),
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
            columns=_columns(summary),
            rows=[_row(task, summary) for task in summary["tasks"]],
            details=_details(directory, records, summary),
        )
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
    for name, amount in summary["cost"].items():
        yield f"{name} cost", formats.money(amount), None
    yield "requests", formats.count(usage["request_count"]), None
    if judge:
        yield "judge's tokens", formats.count(judge["total_tokens"]), formats.tokens(judge)
    if summary["wall_seconds"] is not None:
        yield "wall time", formats.seconds(summary["wall_seconds"]), None


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "tasks", selection(summary)
    if summary["started_at"]:
        yield "started", summary["started_at"][:19].replace("T", " ") + " UTC"
    if summary["judge"]:
        yield "judge", summary["judge"]
    for name, commit in summary["suites"].items():
        yield "suite", f"{name} {formats.commit(commit)}"
    for name, version in summary["versions"].items():
        name = formats.harness(summary) if name == "agent" else name
        yield name, ", ".join(version) if isinstance(version, list) else str(version)
    yield "settings", summary["settings_digest"][:19]


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


def _is_repeated(summary: Mapping[str, Any]) -> bool:
    return any(len(task["attempts"]) > 1 for task in summary["tasks"])


def _columns(summary: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Titles, and whether the column holds numbers."""
    spread = [("min", True), ("max", True), ("std", True)] if _is_repeated(summary) else []
    return [
        ("task", False),
        ("score", True),
        *spread,
        ("full score", True),
        ("category", False),
        ("grading", False),
        ("time", True),
        ("tokens", True),
        ("requests", True),
        ("total cost", True),
    ]


def _row(task: Mapping[str, Any], summary: Mapping[str, Any]) -> Row:
    """The cells after the task's id: text, and what to sort by where it is a number."""
    mean, usage, total = task["mean"], task["usage"], task["cost"]["total"]
    spread = [
        (show(task[name]), _number(task[name]))
        for name, show in (
            ("min", formats.score),
            ("max", formats.score),
            ("std", formats.spread),
        )
    ]
    return task["task_id"], [
        (_status(task), _number(mean)),
        *(spread if _is_repeated(summary) else []),
        (formats.percent(task["pass_rate"]), _number(task["pass_rate"])),
        (task["category"] or formats.UNKNOWN, None),
        (task["grading_type"] or formats.UNKNOWN, None),
        (formats.seconds(task["execution_time"]), _number(task["execution_time"])),
        (formats.count(usage["total_tokens"]), usage["total_tokens"]),
        (formats.count(usage["request_count"]), usage["request_count"]),
        (formats.money(total), _number(total["usd"])),
    ]


def _number(value: float | None) -> float:
    """What is not known sorts below everything."""
    return -1 if value is None else value


def _status(task: Mapping[str, Any]) -> str:
    """The mean, or the word for why there is none."""
    if task["mean"] is None:
        return why_no_score(task)
    return formats.score(task["mean"])


def _details(
    directory: RunDirectory, records: Sequence[Record], summary: Mapping[str, Any]
) -> Iterable[Mapping[str, Any]]:
    """Each task that has a record, read while the page is written: they are the bulk of it."""
    from markupsafe import Markup

    found = {(record["task_id"], record["attempt"]): record for record in records}
    limit = max(_SHORTEST, min(CONVERSATION, _CONVERSATIONS // max(len(records), 1)))
    for task in summary["tasks"]:
        numbers = [attempt["attempt"] for attempt in task["attempts"]]
        attempts = [r for n in numbers if (r := found.get((task["task_id"], n)))]
        if not attempts:
            continue
        truth: Mapping[str, Any] = attempts[0]["ground_truth"]
        yield {
            "task_id": task["task_id"],
            "name": task["name"],
            "score": _status(task),
            "texts": [
                (title, truth[name])
                for title, name in (
                    ("Expected behaviour", "expected_behavior"),
                    ("Grading criteria", "grading_criteria"),
                )
                if truth[name]
            ],
            "attempts": [
                (
                    f"Attempt {record['attempt']}" if len(numbers) > 1 else "",
                    Markup(attempt_html(record, conversation(directory, record, limit))),
                )
                for record in attempts
            ],
        }
