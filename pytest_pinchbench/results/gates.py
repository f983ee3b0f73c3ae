"""The gates of a run: ``--pinchbench-fail-under`` and ``--pinchbench-compare-fail``.

A gate without enough data fails: what was lost on the way must not pass for a success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_pinchbench.results.comparison import Comparison, some
from pytest_pinchbench.results.statistics import TOLERANCE


@dataclass(frozen=True)
class Gate:
    """What one gate says; ``name`` is for people, ``required`` the value of its option.

    ``mean`` is the official mean that was held against it (None: there is none, or the gate is
    of a comparison); ``reasons`` are those of a comparison that is not met.
    """

    name: str
    met: bool
    required: float
    mean: float | None = None
    reasons: tuple[str, ...] = ()


def gates(
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison],
    *,
    fail_under: float | None,
    compare_fail: float | None,
) -> list[Gate]:
    """One for each that was asked for."""
    found = []
    if fail_under is not None:
        mean = summary["score"]["mean"] if summary["score"] else None
        met = mean is not None and reaches(mean, fail_under)
        found.append(Gate("Gate", met, fail_under, mean))
    if compare_fail is not None and comparisons:
        found.append(comparison_gate(comparisons, compare_fail))
    return found


def reaches(score: float, mark: float) -> bool:
    """Whether a score is at least ``mark``, up to rounding."""
    return score >= mark - TOLERANCE


def comparison_gate(comparisons: Sequence[Comparison], drop: float) -> Gate:
    """Met when no baseline is significantly better by more than ``drop``, in the mean or in
    the tasks that dropped, and the runs have the same tasks with all of their attempts valid.
    """
    reasons = [reason for comparison in comparisons for reason in _against(comparison, drop)]
    return Gate("Comparison", not reasons, drop, reasons=tuple(reasons))


def _against(comparison: Comparison, drop: float) -> Iterator[str]:
    baseline = comparison.baseline_name
    for what, tasks in (
        ("with an invalid or missing attempt", comparison.not_valid),
        (f"only in {baseline}", comparison.only_in_baseline),
        ("only in this run", comparison.only_in_new),
    ):
        if tasks:
            yield f"too little to go by against {baseline}: {what}: {some(tasks)}"
    if not comparison.tasks:
        yield f"nothing to compare with {baseline}"
    if comparison.worse_by_more_than(drop):
        yield f"the mean is significantly below that of {baseline}, by more than allowed"
    if comparison.dropped_by_more_than(drop):
        yield f"tasks dropped significantly against {baseline}, by more than allowed"
