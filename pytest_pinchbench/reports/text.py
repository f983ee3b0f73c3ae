"""A run in one line; comparisons and gates in words, for terminals of 80 columns too."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.terminal import WIDTH, what_is_missing
from pytest_pinchbench.results.comparison import Comparison, TaskVerdict, names
from pytest_pinchbench.results.gates import Gate
from pytest_pinchbench.results.statistics import ATTEMPTS_FOR_POWER

_INDENT = " " * len("Comparison  ")
_ORDER: tuple[TaskVerdict, ...] = ("worse", "lower", "within noise", "same", "higher", "better")


def headline(run: Mapping[str, Any]) -> str:
    """A run in one line that names its model."""
    return f"{run['model']} · {verdict_line(run)}"


def verdict_line(run: Mapping[str, Any]) -> str:
    """A run in one line, its gates included: the last line of the terminal."""
    score = formats.shown_score(run)
    figures, interval = [], ""
    if score is not None:
        interval = f" [{formats.bounds(score['interval'])}]" if score["interval"] else ""
        figures.append(f"{formats.percent(score['pass_rate'])} full")
    selected, of = run["selection"]["tasks"], run["selection"]["suite_tasks"]
    part = f"{selected:,} of {of:,} tasks (partial)" if run["partial"] else ""
    figures.append(part or formats.counted(selected, "task"))
    if run["official"] and score is not None:
        first = f"{formats.score(score['mean'])}{interval}"
    else:
        first = f"no official mean: {what_is_missing(run)}"
        if score is not None:
            figures[0] = f"for reference {formats.score(score['mean'])}{interval} over " + (
                f"{formats.counted(score['tasks'], 'valid task')} · {figures[0]}"
            )
    gates = [
        f"{gate['name'].lower()} {'met' if gate['met'] else 'not met'}"
        for gate in run.get("gates", ())
    ]
    total = run["cost"]["total"]
    cost = f"{'' if total['usd'] is not None else 'cost '}{formats.money(total)}"
    return " · ".join([first, *figures, cost, *gates])


def comparison_lines(comparison: Comparison) -> list[str]:
    """The means, then every task that is not the same, regressions first."""
    lines = _heading(comparison)
    for finding in findings(comparison):
        lines += textwrap.wrap(
            finding, WIDTH, initial_indent=_INDENT, subsequent_indent=f"{_INDENT}  "
        )
    lines += _task_table(comparison)
    for what, tasks in one_sided(comparison):
        lines += _wrapped(f"{what}: {', '.join(tasks)}")
    for note in comparison.notes:
        lines += _wrapped(f"Note: {note}")
    return lines


def _heading(comparison: Comparison) -> list[str]:
    new, old = comparison.new_name, comparison.baseline_name
    line = f"Comparison  {new} with {old}"
    if len(line) <= WIDTH:
        return [line]
    rest = WIDTH - len(_INDENT)
    return [
        f"Comparison  {formats.short(new, rest)}",
        f"{_INDENT}{formats.short(f'with {old}', rest)}",
    ]


def gate_document(gate: Gate, summary: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A gate as ``summary.json`` has it. ``summary``: of the run that it judges the mean of."""
    required = formats.mark(gate.required)
    if gate.reasons:
        why = f"{'; '.join(gate.reasons)} (allowed: {required})"
    elif gate.mean is not None and summary is not None:
        mean = formats.against(gate.mean, gate.required)
        why = f"mean {mean} of {formats.selection(summary)}, required {required}"
    elif gate.met:
        why = f"no significant drop of more than {required}"
    else:
        why = f"no official mean to hold against {required}"
    return {"name": gate.name, "met": gate.met, "why": why}


def gate_lines(gate: Mapping[str, Any]) -> list[str]:
    """``Gate        met: mean 0.737 of 7 of the 7 tasks of demo, required 0.7``"""
    state = "met" if gate["met"] else "not met"
    line = f"{gate['name']:{len(_INDENT)}}{state}: {gate['why']}"
    return textwrap.wrap(line, WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False)


def verdict(comparison: Comparison) -> str:
    """``mean worse``, and whether tasks changed beside it."""
    if comparison.verdict is None:
        return "nothing to compare"
    both = comparison.tasks_changed and comparison.verdict != "tasks changed"
    return f"{comparison.verdict}, tasks changed" if both else comparison.verdict


def findings(comparison: Comparison) -> Iterator[str]:
    """What a comparison found, a statement each."""
    if comparison.difference is None or comparison.interval is None:
        return
    yield (
        f"{formats.score(comparison.baseline)} -> {formats.score(comparison.new)}, "
        f"{formats.difference(comparison.difference)}: {verdict(comparison)}"
    )
    yield (
        f"on these tasks {formats.bounds_of_difference(comparison.interval)} "
        f"({formats.mark(100 * (comparison.confidence or 0))} % interval)"
    )
    if similar := comparison.similar_tasks_interval:
        yield f"on tasks like these {formats.bounds_of_difference(similar)} (95 % interval)"
    tests = ((comparison.p_mean, "the mean"), (comparison.p_any, "any task"))
    yield ", ".join(f"{what} {formats.p_value(p)}" for p, what in tests if p is not None)
    if comparison.findable_drop is not None:
        yield (
            f"a mean drop of {formats.score(comparison.findable_drop)} would have been found 4 "
            "times in 5"
        )
    elif (comparison.attempts or 0) < ATTEMPTS_FOR_POWER:
        few = "one attempt" if comparison.attempts == 1 else "two attempts"
        yield f"{few} a task cannot say what a comparison would have missed; three can"
    yield f"over {counts(comparison)}"
    first = sum(task.verdict in ("lower", "higher") for task in comparison.tasks)
    if first and comparison.apart_by_chance is not None:
        yield (
            f"look first at the {formats.counted(first, 'task')} called lower or higher (chance "
            f"alone: about {comparison.apart_by_chance:.1f})"
        )


def mean_line(comparison: Comparison) -> str:
    """The findings in one line."""
    return "; ".join(findings(comparison)) or "nothing to compare"


def one_sided(comparison: Comparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The tasks that only one of the runs has."""
    for what, tasks in (
        ("Only in the baseline", comparison.only_in_baseline),
        ("Only in the new run", comparison.only_in_new),
    ):
        if tasks:
            yield what, tasks


def counts(comparison: Comparison) -> str:
    """``23 tasks: 2 worse, 20 same, 1 better``."""
    found = Counter(task.verdict for task in comparison.tasks)
    total = len(comparison.tasks)
    parts = ", ".join(f"{found[verdict]} {verdict}" for verdict in _ORDER if found[verdict])
    return f"{formats.counted(total, 'task')}: {parts}"


def table_lines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a run, the best mean first."""
    rows = [
        (name, _mark(run), *figures(run))
        for run, name in sorted(zip(runs, names(runs), strict=True), key=lambda row: rank(row[0]))
    ]
    width = min(22, max(5, *(len(name) for name, *_ in rows)))
    head = ("model", "", "mean", "95 % interval", "passed", "tokens", "total", "s/task")
    lines = []
    for name, mark, mean, interval, passed, tokens, cost, time in [head, *rows]:
        name = formats.short(name, width)
        lines.append(
            f"{name:{width}} {mean:>5}{mark or ' '} {interval:>14} {passed:>6} "
            f"{tokens:>7} {cost:>9} {time:>7}".rstrip()
        )
    if any(mark for _, mark, *_ in rows):
        lines.append("* no official mean: invalid or missing attempts; over the valid tasks")
    return lines


def figures(run: Mapping[str, Any]) -> tuple[str, str, str, str, str, str]:
    """Mean, interval, pass rate, tokens, total cost and agent's time a task, for a table."""
    score = formats.shown_score(run) or {"mean": None, "interval": None, "pass_rate": None}
    return (
        formats.score(score["mean"]),
        formats.bounds(score["interval"]),
        formats.percent(score["pass_rate"]),
        formats.count(run["usage"]["total_tokens"]),
        formats.money(run["cost"]["total"]),
        formats.seconds(run["task_seconds"]),
    )


def rank(run: Mapping[str, Any]) -> float:
    """Sorts the best mean first, a run without any mean last."""
    score = formats.shown_score(run)
    return -score["mean"] if score else 1.0


def _mark(run: Mapping[str, Any]) -> str:
    return "" if run["official"] else "*"


def _task_table(comparison: Comparison) -> Iterator[str]:
    rows = [task for task in comparison.tasks if task.verdict != "same"]
    if not rows:
        return
    yield ""
    width = min(39, max(len(task.task_id) for task in rows))
    yield f"{'task':{width}}  {'before':>7}  {'after':>7}  {'change':>7}  verdict"
    for task in rows:
        yield (
            f"{formats.short(task.task_id, width):{width}}  {formats.score(task.baseline):>7}  "
            f"{formats.score(task.new):>7}  {formats.difference(task.difference):>7}  "
            f"{task.verdict}"
        )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
