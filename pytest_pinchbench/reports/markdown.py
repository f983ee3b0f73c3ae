"""``summary.md``, and comparisons and tables of models for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats, text
from pytest_pinchbench.reports.terminal import (
    for_reference,
    selection,
    valid_of,
    warnings,
    what_is_missing,
)
from pytest_pinchbench.results.comparison import Comparison, names

_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]<>#|~$&])")
_LONGEST_ISSUE = 500  # characters


def summary_markdown(
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
    *,
    limit: int | None = None,
) -> str:
    """The run in headings and tables. ``limit``: at most so many tasks are shown."""
    parts = [
        f"# PinchBench: {escape(summary['model'])}",
        _verdict(summary),
        *map(gate_markdown, summary.get("gates", ())),
        _table(("", ""), _facts(summary)),
        *(comparison_markdown(comparison) for comparison in comparisons),
        "## Categories",
        _table(
            ("category", "tasks", "mean", "95 % interval", "passed"),
            [_category_row(category) for category in summary["categories"]],
        ),
        "## Tasks",
        _tasks(summary["tasks"][:limit]),
    ]
    left_out = len(summary["tasks"][limit:]) if limit is not None else 0
    if left_out:
        parts.append(f"and {left_out} more task{'s' * (left_out != 1)}; `summary.json` has all.")
    issues = list(_issues(summary["tasks"][:limit]))
    if issues:
        parts += ["## What went wrong", "\n".join(issues)]
    return "\n\n".join(parts) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """A section that says whether the mean moved, and which tasks did."""
    parts = [
        f"## Compared with {escape(comparison.baseline_name)}: {text.verdict(comparison)}",
        escape(text.mean_line(comparison)),
    ]
    rows = [
        (
            code(task.task_id),
            formats.score(task.baseline),
            formats.score(task.new),
            formats.difference(task.difference),
            task.verdict,
        )
        for task in comparison.tasks
        if task.verdict != "same"
    ]
    if rows:
        parts.append(_table(("task", "before", "after", "change", "verdict"), rows))
    parts += [
        f"{what}: {', '.join(map(code, tasks))}" for what, tasks in text.one_sided(comparison)
    ]
    parts += [f"Note: {escape(note)}" for note in comparison.notes]
    return "\n\n".join(parts)


def table_markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """One row a run, the best mean first."""
    ranked = sorted(zip(runs, names(runs), strict=True), key=lambda row: text.rank(row[0]))
    head = ("model", "mean", "95 % interval", "passed", "tokens", "total cost", "s/task")
    rows = []
    for run, name in ranked:
        mean, *others = text.figures(run)
        rows.append((escape(name), mean if run["official"] else f"{mean} \\*", *others))
    lines = [_table(head, rows)]
    if not all(run["official"] for run in runs):
        lines.append("\\* no official mean: over the valid tasks only")
    return "\n\n".join(lines) + "\n"


def escape(value: object) -> str:
    """Text that Markdown, HTML in it and a table's cell leave alone.

    ``@`` too, which would notify people on GitHub.
    """
    flat = " ".join(str(value).split())
    return _MEANS_SOMETHING.sub(r"\\\1", flat).replace("@", "@\u2060")


def code(value: str) -> str:
    """An id in code style; ids hold no backtick."""
    return f"`{value}`"


def _verdict(summary: Mapping[str, Any]) -> str:
    score = summary["score"]
    if score is None:
        missing = f"**No official mean**: {what_is_missing(summary)}."
        reference = summary["reference"]
        if reference is None:
            return missing
        words = for_reference(summary, reference)
        return f"{missing} {words[0].upper()}{words[1:]}."
    spread = f" (95 % interval {formats.bounds(score['interval'])})" if score["interval"] else ""
    return (
        f"**Mean score {formats.score(score['mean'])}**{spread}, "
        f"{formats.percent(score['pass_rate'])} of "
        f"{formats.counted(score['tasks'], 'task')} with full score"
    )


def gate_markdown(gate: Mapping[str, Any]) -> str:
    state = "met" if gate["met"] else "not met"
    return f"**{gate['name']} {state}**: {escape(gate['why'])}"


def _facts(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    usage, judge = summary["usage"], summary["judge_usage"]
    yield "Tasks", escape(selection(summary))
    yield "Tokens", formats.tokens(usage)
    yield "Requests", formats.count(usage["request_count"])
    if judge:
        yield "Judge", f"{escape(summary['judge'])}: {formats.tokens(judge)}"
    yield "Cost", escape(formats.cost(summary["cost"]))
    if efficiency := formats.efficiency(summary):
        yield "Efficiency", escape(efficiency)
    if summary["wall_seconds"] is not None:
        yield "Wall time", formats.seconds(summary["wall_seconds"])
    for name, commit in summary["suites"].items():
        yield "Suite", f"{escape(name)} {escape(commit or 'in no git repository')}"
    for warning in warnings(summary):
        yield "Note", escape(warning)
    versions = summary["versions"]
    if versions["agent"]:
        agent = f"{formats.harness(summary)} {', '.join(versions['agent'])}"
        yield "Agent", escape(agent)
    yield (
        "Versions",
        escape(", ".join(f"{name} {v}" for name, v in versions.items() if name != "agent")),
    )
    yield "Settings", code(summary["settings_digest"][:19])


def _category_row(category: Mapping[str, Any]) -> tuple[str, ...]:
    score = category["score"] or {"mean": None, "interval": None, "pass_rate": None}
    return (
        escape(category["category"]),
        valid_of(category),
        formats.score(score["mean"]),
        formats.bounds(score["interval"]),
        formats.percent(score["pass_rate"]),
    )


def _tasks(tasks: Sequence[Mapping[str, Any]]) -> str:
    repeated = any(len(task["attempts"]) > 1 for task in tasks)
    head = ("task", "category", "mean", "passed", "tokens", "total cost", "time")
    rows = []
    for task in tasks:
        row = [
            code(task["task_id"]),
            escape(task["category"] or formats.UNKNOWN),
            _task_score(task),
            formats.percent(task["pass_rate"]) if repeated else _yes_no(task["pass_rate"]),
            formats.count(task["usage"]["total_tokens"]),
            escape(formats.money(task["cost"]["total"])),
            formats.seconds(task["execution_time"]),
        ]
        if repeated:
            row.insert(3, _spread(task))
        rows.append(row)
    return _table((*head[:3], "min to max, std", *head[3:]) if repeated else head, rows)


def _task_score(task: Mapping[str, Any]) -> str:
    if task["mean"] is not None:
        return formats.score(task["mean"])
    return why_no_score(task)


def why_no_score(task: Mapping[str, Any]) -> str:
    """``invalid``, or ``1 invalid of 3`` where a task has several attempts."""
    states = [attempt["status"] for attempt in task["attempts"]]
    if len(states) == 1:
        return str(states[0])
    bad = [f"{states.count(state)} {state}" for state in ("invalid", "missing") if state in states]
    return f"{', '.join(bad)} of {len(states)}"


def _spread(task: Mapping[str, Any]) -> str:
    if task["std"] is None:
        return formats.UNKNOWN
    return f"{formats.bounds((task['min'], task['max']))}, {formats.spread(task['std'])}"


def _yes_no(pass_rate: float | None) -> str:
    return formats.UNKNOWN if pass_rate is None else "yes" if pass_rate == 1 else "no"


def _issues(tasks: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for task in tasks:
        for attempt in task["attempts"]:
            for issue in attempt.get("issues", ()):
                which = f" attempt {attempt['attempt']}" if len(task["attempts"]) > 1 else ""
                message = escape(issue["message"][:_LONGEST_ISSUE])
                yield f"- {code(task['task_id'])}{which}: **{issue['severity']}** {message}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
