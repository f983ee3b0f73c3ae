"""``summary.md``, and comparisons and tables of models for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats, text
from pytest_pinchbench.results.comparison import Comparison, names
from pytest_pinchbench.results.summary import shown_score

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
    heading = (
        f"## Compared with {escape(comparison.baseline_name)}: "
        f"{escape(comparison.verdict or 'nothing to compare')}"
    )
    parts = [heading, escape(text.mean_line(comparison))]
    rows = [
        (
            code(task.task_id),
            formats.score(task.baseline),
            formats.score(task.new),
            formats.difference(task.difference),
            formats.bounds_of_difference(task.interval),
            task.verdict,
        )
        for task in comparison.tasks
        if task.verdict != "same"
    ]
    if rows:
        head = ("task", "before", "after", "change", "95 % interval", "verdict")
        parts.append(_table(head, rows))
    for what, tasks in (
        ("Only in the baseline", comparison.only_in_baseline),
        ("Only in the new run", comparison.only_in_new),
    ):
        if tasks:
            parts.append(f"{what}: {', '.join(map(code, tasks))}")
    parts += [f"Note: {escape(note)}" for note in comparison.notes]
    return "\n\n".join(parts)


def table_markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """One row a run, the best mean first."""
    ranked = sorted(zip(runs, names(runs), strict=True), key=lambda row: text.rank(row[0]))
    head = ("model", "mean", "95 % interval", "passed", "tokens", "cost", "s/task")
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
    score, attempts = shown_score(summary), summary["attempts"]
    if summary["official"] and score:
        spread = (
            f" (95 % interval {formats.bounds(score['interval'])})" if score["interval"] else ""
        )
        return (
            f"**Mean score {formats.score(score['mean'])}**{spread}, "
            f"{formats.percent(score['pass_rate'])} of "
            f"{formats.counted(score['tasks'], 'task')} with full score"
        )
    missing = (
        f"**No official mean**: {attempts['invalid']} invalid and {attempts['missing']} not run "
        f"of {formats.counted(attempts['selected'], 'attempt')}."
    )
    if score is None:
        return missing
    return (
        f"{missing} For reference only, over the {score['tasks']} valid of "
        f"{formats.counted(len(summary['tasks']), 'task')}: mean {formats.score(score['mean'])}, "
        f"{formats.percent(score['pass_rate'])} passed."
    )


def gate_markdown(gate: Mapping[str, Any]) -> str:
    state = "met" if gate["met"] else "not met"
    return f"**{gate['name']} {state}**: {escape(gate['why'])}"


def _facts(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    usage, judge = summary["usage"], summary["judge_usage"]
    yield "Tokens", f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"
    yield "Requests", f"{usage['request_count']:,}"
    yield "Cost", escape(formats.cost(usage))
    if judge:
        yield (
            "Judge",
            f"{escape(summary['judge'])}: {judge['total_tokens']:,} tokens, "
            f"cost {escape(formats.cost(judge))}",
        )
    if summary["wall_seconds"] is not None:
        yield "Wall time", formats.seconds(summary["wall_seconds"])
    for name, commit in summary["suites"].items():
        yield "Suite", f"{escape(name)} {escape(commit or 'in no git repository')}"
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
        str(category["tasks"]),
        formats.score(score["mean"]),
        formats.bounds(score["interval"]),
        formats.percent(score["pass_rate"]),
    )


def _tasks(tasks: Sequence[Mapping[str, Any]]) -> str:
    repeated = any(len(task["attempts"]) > 1 for task in tasks)
    head = ("task", "category", "mean", "passed", "tokens", "cost", "time")
    rows = []
    for task in tasks:
        row = [
            code(task["task_id"]),
            escape(task["category"] or formats.UNKNOWN),
            _task_score(task),
            formats.percent(task["pass_rate"]) if repeated else _yes_no(task["pass_rate"]),
            formats.count(task["usage"]["total_tokens"]),
            escape(formats.cost(task["usage"])),
            formats.seconds(task["execution_time"]),
        ]
        if repeated:
            row.insert(3, _spread(task))
        rows.append(row)
    return _table((*head[:3], "min to max, std", *head[3:]) if repeated else head, rows)


def _task_score(task: Mapping[str, Any]) -> str:
    states = [attempt["status"] for attempt in task["attempts"]]
    bad = [f"{states.count(state)} {state}" for state in ("invalid", "missing") if state in states]
    if task["mean"] is None:
        return states[0] if len(states) == 1 else ", ".join(bad)
    return ", ".join([formats.score(task["mean"]), *bad])


def _spread(task: Mapping[str, Any]) -> str:
    if task["std"] is None:
        return formats.UNKNOWN
    low, high = formats.score(task["min"]), formats.score(task["max"])
    return f"{low} to {high}, {task['std']:.3f}"


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
