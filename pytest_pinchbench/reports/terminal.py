"""What the terminal says: one line a task, the categories, the mean; and why a task fell short."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_pinchbench.issues import printable
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results.comparison import some
from pytest_pinchbench.results.records import Record

WIDTH = 80
_INDENT = " " * 12
_ISSUES = 12  # messages


class Line(NamedTuple):
    """A line of the terminal, and its colour (a name of pytest's ``TerminalWriter``)."""

    text: str
    colour: str = ""


def summary_lines(summary: Mapping[str, Any], where: str) -> list[Line]:
    """The section at the end of a run, ready to print, at most 80 columns wide."""
    lines = [*_task_table(summary["tasks"]), Line("")]
    if wrong := list(_issues(summary["tasks"])):
        lines += [*map(Line, wrong), Line("")]
    if summary["categories"]:
        lines += [*map(Line, _category_table(summary["categories"])), Line("")]
    return [*lines, *map(Line, _totals(summary)), Line(f"Results     {where}")]


def _task_table(tasks: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """One line a task: its time and tokens, or the scores of its attempts."""
    attempts = max((len(task["attempts"]) for task in tasks), default=1)
    longest = max(len(name) for name in [*(task["task_id"] for task in tasks), "task"])
    width = min(longest, WIDTH - 26 if attempts == 1 else max(WIDTH - 18 - 5 * attempts, 24))
    head = "  time   tokens" if attempts == 1 else "attempts"
    yield Line(f"{'task':{width}}    score  {head if attempts == 1 else f'{chr(32):6}  {head}'}")
    for task in tasks:
        row = f"{formats.short(task['task_id'], width):{width}}  {mean_or_why(task):>7}  "
        if attempts == 1:
            time, tokens = task["execution_time"], task["usage"]["total_tokens"]
            row += f"{formats.seconds(time):>6}  {formats.count(tokens):>7}"
        else:
            std = f"±{formats.spread(task['std'])}" if task["std"] is not None else ""
            row += f"{std:6}  {_scores(task['attempts'], WIDTH - len(row) - 8)}"
        yield Line(row.rstrip(), colour(task["mean"]))


def _scores(attempts: Sequence[Mapping[str, Any]], width: int) -> str:
    """``0.79 0.00 inv``, as many as fit and the number of the others."""
    words = [
        "inv" if attempt["status"] == "invalid" else formats.short_score(attempt["score"])
        for attempt in attempts
    ]
    fitting = len(words) if 5 * len(words) <= width + 1 else (width - 4) // 5
    rest = f" +{len(words) - fitting}" if fitting < len(words) else ""
    return " ".join(words[:fitting]) + rest


def colour(mean: float | None) -> str:
    """Green: full score, yellow: a part of it, red: nothing, magenta: invalid or not run."""
    if mean is None:
        return "purple"
    return "green" if mean >= 1 else "yellow" if mean > 0 else "red"


def mean_or_why(task: Mapping[str, Any]) -> str:
    """The mean, or ``invalid`` or ``missing``."""
    if task["mean"] is not None:
        return formats.score(task["mean"])
    states = {attempt["status"] for attempt in task["attempts"]}
    return "invalid" if "invalid" in states else "missing"


def _issues(tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What went wrong, the same message once: how often, and at which tasks."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        for attempt in task["attempts"]:
            if attempt["status"] == "missing":
                issues = [f"NOT RUN: {attempt['why_missing']}"]
            else:
                issues = [f"{one['severity']}: {one['message']}" for one in attempt["issues"]]
            for issue in issues:
                found.setdefault(" ".join(issue.split()), []).append(task["task_id"])
    order = ("FATAL", "NOT RUN", "ERROR", "WARNING")
    groups = sorted(found.items(), key=lambda group: order.index(group[0].partition(":")[0]))
    for text, at in groups[:_ISSUES]:
        names = list(dict.fromkeys(at))
        times = f" ({len(at)} times)" if len(at) > 1 else ""
        yield from _no_commands(
            textwrap.wrap(text, WIDTH, subsequent_indent="  ", max_lines=4, break_on_hyphens=False)
        )
        yield from textwrap.wrap(
            f"at {some(names)}{times}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    if len(groups) > _ISSUES:
        yield f"and {len(groups) - _ISSUES} other messages: see report.html"


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
        if efficiency := formats.efficiency(summary):
            yield f"Efficiency  {efficiency}"
    if summary["wall_seconds"] is not None:
        yield f"Wall time   {formats.seconds(summary['wall_seconds'])}"
    if (waited := summary["waiting_seconds"] or 0.0) >= 1.0:
        yield f"Waiting     {formats.seconds(waited)} for the endpoint, beside the tasks' time"
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
