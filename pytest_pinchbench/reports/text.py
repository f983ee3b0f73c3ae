"""Comparisons as lines for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.terminal import WIDTH
from pytest_pinchbench.results.comparison import Comparison, Verdict, names
from pytest_pinchbench.results.gates import Gate
from pytest_pinchbench.results.summary import shown_score

_INDENT = " " * len("Comparison  ")
_ORDER: tuple[Verdict, ...] = ("worse", "changed", "within noise", "same", "better")


def headline(run: Mapping[str, Any]) -> str:
    """A run in one sentence."""
    score = shown_score(run)
    if score is None:
        return f"{run['model']}: no valid result"
    kind = "mean score" if run["official"] else "no official mean; over the valid tasks"
    spread = f" (95 % interval {formats.bounds(score['interval'])})" if score["interval"] else ""
    return (
        f"{run['model']}: {kind} {formats.score(score['mean'])}{spread}, "
        f"{formats.percent(score['pass_rate'])} of {formats.counted(score['tasks'], 'task')} "
        f"with full score, cost {formats.cost(run['usage'])}"
    )


def comparison_lines(comparison: Comparison) -> list[str]:
    """The means, then every task that is not the same, regressions first."""
    lines = [*_heading(comparison), *(f"{_INDENT}{line}" for line in _mean(comparison))]
    lines += _task_table(comparison)
    for what, tasks in (
        ("Only in the baseline", comparison.only_in_baseline),
        ("Only in the new run", comparison.only_in_new),
    ):
        if tasks:
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
    return [f"Comparison  {short(new, rest)}", f"{_INDENT}{short(f'with {old}', rest)}"]


def gate_lines(gate: Gate) -> list[str]:
    """``Gate        met: mean 0.7371, required 0.7``"""
    line = f"{gate.name:{len(_INDENT)}}{'met' if gate.met else 'not met'}: {gate.why}"
    return textwrap.wrap(line, WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False)


def mean_line(comparison: Comparison) -> str:
    """The means in one line: ``0.700 -> 0.612, -0.088: within noise (...)``."""
    return " ".join(_mean(comparison)) or "nothing to compare"


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
    width = min(24, max(5, *(len(name) for name, *_ in rows)))
    head = ("model", "", "mean", "95 % interval", "passed", "tokens", "cost", "s/task")
    lines = []
    for name, mark, mean, interval, passed, tokens, cost, time in [head, *rows]:
        lines.append(
            f"{short(name, width):{width}} {mean:>5}{mark or ' '} {interval:>13} {passed:>6} "
            f"{tokens:>7} {cost:>9} {time:>7}".rstrip()
        )
    if any(mark for _, mark, *_ in rows):
        lines.append("* no official mean: invalid or missing attempts; over the valid tasks")
    return lines


def figures(run: Mapping[str, Any]) -> tuple[str, str, str, str, str, str]:
    """Mean, interval, pass rate, tokens, cost and agent's time per task, for a table."""
    score = shown_score(run) or {"mean": None, "interval": None, "pass_rate": None}
    times = [t["execution_time"] for t in run["tasks"] if t["execution_time"] is not None]
    return (
        formats.score(score["mean"]),
        formats.bounds(score["interval"]).replace(" to ", "-"),
        formats.percent(score["pass_rate"]),
        formats.count(run["usage"]["total_tokens"]),
        formats.cost(run["usage"]),
        formats.seconds(fmean(times) if times else None),
    )


def rank(run: Mapping[str, Any]) -> float:
    """Sorts the best mean first, a run without any mean last."""
    score = shown_score(run)
    return -score["mean"] if score else 1.0


def short(text: str, width: int) -> str:
    """At most ``width`` characters, cut in the middle: ids differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[head + 1 - width :]}"


def p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def _mark(run: Mapping[str, Any]) -> str:
    return "" if run["official"] else "*"


def _mean(comparison: Comparison) -> Iterator[str]:
    if comparison.difference is None:
        return
    yield (
        f"{formats.score(comparison.baseline)} -> {formats.score(comparison.new)}, "
        f"{formats.difference(comparison.difference)}: {comparison.verdict}"
    )
    if comparison.interval is not None and comparison.p_value is not None:
        low, high = map(formats.difference, comparison.interval)
        yield f"(95 % interval {low} to {high}, {p_value(comparison.p_value)})"
    yield f"over {counts(comparison)}"


def _task_table(comparison: Comparison) -> Iterator[str]:
    rows = [task for task in comparison.tasks if task.verdict != "same"]
    if not rows:
        return
    yield ""
    width = min(39, max(len(task.task_id) for task in rows))
    yield f"{'task':{width}}  {'before':>7}  {'after':>7}  {'change':>7}  verdict"
    for task in rows:
        yield (
            f"{short(task.task_id, width):{width}}  {formats.score(task.baseline):>7}  "
            f"{formats.score(task.new):>7}  {formats.difference(task.difference):>7}  "
            f"{task.verdict}"
        )
    if any(task.verdict == "changed" for task in rows):
        yield from _wrapped(
            "changed: too few attempts to tell it from noise; "
            "--pinchbench-attempts 3 or more in both runs can."
        )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
