"""What the terminal says: one line a task, the categories, the mean; and why a task fell short."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_pinchbench.issues import printable
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results.records import Record

WIDTH = 80
_INDENT = " " * 12


def summary_lines(summary: Mapping[str, Any], where: str) -> list[str]:
    """The section at the end of a run, ready to print, at most 80 columns wide."""
    lines = [*_task_table(summary["tasks"]), ""]
    if summary["categories"]:
        lines += [*_category_table(summary["categories"]), ""]
    return [*lines, *_totals(summary), f"Results     {where}"]


def _task_table(tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    repeated = any(attempt["attempt"] > 1 for task in tasks for attempt in task["attempts"])
    rows = [
        (f"{task['task_id']}[{one['attempt']}]" if repeated else task["task_id"], one)
        for task in tasks
        for one in task["attempts"]
    ]
    width = max(len(name) for name in [*(name for name, _ in rows), "task"])
    yield f"{'task':{width}}  {'score':>7}  {'passed':6}  {'time':>6}  {'tokens':>7}"
    for name, attempt in rows:
        if attempt["status"] == "missing":
            # an id may take the whole line
            room = max(WIDTH - width - 11, 20)
            why = textwrap.shorten(printable(attempt["why_missing"]), room, placeholder=" ...")
            yield f"{name:{width}}  {'-':>7}  {why}"
            continue
        score, tokens = attempt["score"], attempt["usage"]["total_tokens"]
        passed = {True: "yes", False: "no", None: "-"}[attempt["passed"]]
        yield (
            f"{name:{width}}  {'invalid' if score is None else formats.score(score):>7}  "
            f"{passed:6}  {formats.seconds(attempt['execution_time']):>6}  "
            f"{formats.count(tokens):>7}"
        ).rstrip()
        for issue in attempt["issues"]:
            yield from _no_commands(_issue_lines(issue))


def _issue_lines(issue: Mapping[str, str]) -> list[str]:
    text = f"{issue['severity']}: {' '.join(issue['message'].split())}"
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="    ",
        subsequent_indent="      ",
        max_lines=4,
        break_on_hyphens=False,
    )


def _category_table(categories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [("category", "tasks", "score", "passed")]
    for category in categories:
        score = category["score"]
        rows.append(
            (
                category["category"],
                valid_of(category),
                formats.score(score["mean"]) if score else "none",
                formats.percent(score["pass_rate"] if score else None),
            )
        )
    names, counts = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, counted, mean, passed in rows:
        yield f"{name:{names}}  {counted:>{counts}}  {mean:>7}  {passed:>6}"


def valid_of(category: Mapping[str, Any]) -> str:
    """``3``, or ``2 of 3`` where a task of the category has no score."""
    valid = category["score"]["tasks"] if category["score"] else 0
    tasks = category["tasks"]
    return str(tasks) if valid == tasks else f"{valid} of {tasks}"


def _totals(summary: Mapping[str, Any]) -> Iterator[str]:
    score, usage, judge = summary["score"], summary["usage"], summary["judge_usage"]
    if score is not None:
        interval = score["interval"]
        spread = f"  (95 % interval {formats.bounds(interval)})" if interval else ""
        yield f"Mean score  {formats.score(score['mean'])}{spread}"
        yield (
            f"Pass rate   {formats.percent(score['pass_rate'])} of "
            f"{formats.counted(score['tasks'], 'task')}"
        )
    else:
        yield from _wrapped("Mean score", f"none: {what_is_missing(summary)}")
        if reference := summary["reference"]:
            yield f"{_INDENT}{for_reference(summary, reference)}"
    yield from _wrapped("Tasks", selection(summary))
    if any(
        attempt["status"] != "missing" for task in summary["tasks"] for attempt in task["attempts"]
    ):
        requests = formats.counted(usage["request_count"], "request")
        yield from _wrapped("Tokens", f"{formats.tokens(usage)} in {requests}")
        if judge:
            yield f"Judge       {formats.tokens(judge)}"
        yield f"Cost        {formats.cost(summary['cost'])}"
    if summary["wall_seconds"] is not None:
        yield f"Wall time   {formats.seconds(summary['wall_seconds'])}"
    for warning in warnings(summary):
        yield from _wrapped("Note", warning)


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{name:12}{text}", WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def what_is_missing(summary: Mapping[str, Any]) -> str:
    """Why there is no official mean: ``1 invalid and 2 not run of 7 attempts``."""
    counts = summary["attempts"]
    found = [(counts["invalid"], "invalid"), (counts["missing"], "not run")]
    words = " and ".join(f"{number} {what}" for number, what in found if number)
    if not words:
        return "its answers are replayed"
    return f"{words} of {formats.counted(counts['selected'], 'attempt')}"


def for_reference(summary: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """The mean over the valid tasks of a run without an official one."""
    return (
        f"for reference only, over the {reference['tasks']} valid of "
        f"{formats.counted(len(summary['tasks']), 'task')}: "
        f"{formats.score(reference['mean'])}, {formats.percent(reference['pass_rate'])} passed"
    )


def selection(summary: Mapping[str, Any]) -> str:
    """``2 of the 23 tasks of v1.1.0: a partial run``."""
    return f"{formats.selection(summary)}{': a partial run' if summary['partial'] else ''}"


def warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a reader of the numbers must know of the machine that made them."""
    startup = summary["startup_seconds"]
    if startup and startup["overloaded"]:
        yield (
            f"the machine was overloaded: an agent took {formats.seconds(startup['median'])} to "
            f"start (median), the first one {formats.seconds(startup['first'])}; run fewer at a "
            "time (-n)"
        )


def shortfall(record: Record, pass_mark: float) -> str:
    """Why an item failed: its score against the mark, and the criteria with what they gave."""
    scoring, score = record["meta"]["benchmark"]["scoring"], record["metrics"]["score"]
    assert scoring is not None
    assert score is not None, "an invalid attempt is not a failed one"
    lines = [against_mark(score, pass_mark)]
    parts = scoring["parts"]
    if len(parts) > 1:
        width = max(map(len, parts))
        lines += [
            f"  {name:{width}}  {formats.score(part['score'])}  "
            f"weight {formats.mark(part['weight'])}"
            for name, part in parts.items()
        ]
    breakdown = {" ".join(name.split()): value for name, value in scoring["breakdown"].items()}
    width = max(map(len, breakdown), default=0)
    lines += [f"  {name:{width}}  {formats.score(value)}" for name, value in breakdown.items()]
    if scoring["notes"]:
        lines += textwrap.wrap(
            f"notes: {scoring['notes']}", WIDTH, initial_indent="  ", subsequent_indent="    "
        )
    for issue in record["issues"]:
        lines += f"  {issue['severity']}: {issue['message']}".splitlines()
    return "\n".join(_no_commands(lines))


def against_mark(score: float, pass_mark: float) -> str:
    """``score 0.750, pass mark 1``."""
    return f"score {formats.against(score, pass_mark)}, pass mark {formats.mark(pass_mark)}"


def why_invalid(record: Record) -> str:
    """Why an item is an error: everything FATAL that happened in its last try."""
    fatal = [issue["message"] for issue in record["issues"] if issue["severity"] == "FATAL"]
    tries = len(record["retried"]) + 1
    after = f" after {tries} tries" if tries > 1 else ""
    lines = (f"invalid, no score{after}: " + "\n".join(fatal)).splitlines()
    return "\n".join(_no_commands(lines))


def _no_commands(lines: Iterable[str]) -> Iterator[str]:
    """Keep what a model or an endpoint said from being taken for a command of the CI that
    reads the log (GitHub acts on a line that begins with ``::`` or ``##[``).
    """
    for line in map(printable, lines):
        yield f"| {line}" if line.lstrip().startswith(("::", "##[")) else line
