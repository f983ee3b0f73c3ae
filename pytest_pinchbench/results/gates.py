"""The gates of a run: ``--pinchbench-fail-under`` and ``--pinchbench-compare-fail``.

A gate that has nothing to go by is not met: what was lost on the way must not pass for a success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_pinchbench.results.comparison import Comparison, some
from pytest_pinchbench.results.statistics import TOLERANCE


@dataclass(frozen=True)
class Gate:
    """What one gate says; ``name`` is for people."""

    name: str
    met: bool
    why: str


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
        found.append(_mean_gate(summary, fail_under))
    if compare_fail is not None and comparisons:
        found.append(comparison_gate(comparisons, compare_fail))
    return found


def _mean_gate(summary: Mapping[str, Any], mark: float) -> Gate:
    score = summary["score"]
    if score is None:
        return Gate("Gate", False, f"no official mean to hold against {mark:g}")
    met = score["mean"] >= mark - TOLERANCE
    return Gate("Gate", met, f"mean {score['mean']:.4f}, required {mark:g}")


def comparison_gate(comparisons: Sequence[Comparison], drop: float) -> Gate:
    """Met when no baseline is significantly better by more than ``drop``, and each task that
    has a result there has one here.
    """
    reasons = [reason for comparison in comparisons for reason in _against(comparison, drop)]
    why = "; ".join(reasons) or f"no significant drop of more than {drop:g}"
    return Gate("Comparison", not reasons, why)


def _against(comparison: Comparison, drop: float) -> Iterator[str]:
    baseline = comparison.baseline_name
    if not comparison.tasks:
        yield f"nothing to compare with {baseline}"
    elif comparison.lost:
        yield f"no valid result here of what {baseline} has: {some(comparison.lost)}"
    if comparison.worse_by_more_than(drop):
        yield f"the mean is significantly below that of {baseline}, by more than {drop:g}"
