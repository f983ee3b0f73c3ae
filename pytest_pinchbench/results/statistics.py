"""Intervals and tests for scores. The rules, and how they were measured, stand in
docs/explanation/statistics.md.

A comparison is given as pairs, one a task: the scores of its attempts in the baseline, and
those in the new run. Were both runs the same model, which attempts of a task belong to which
run would be chance: every test here permutes attempts within tasks (with one attempt a run:
flips signs). Everything is seeded by the caller's generator.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance

TOLERANCE = 1e-9
"""Tolerance for comparing a score with a threshold: a mean of 0.8 may be a float just below."""
LEVEL = 0.05
FEWEST_TASKS = 5
"""Tasks below which an interval over tasks is not given."""
ATTEMPTS_FOR_POWER = 3
ATTEMPTS_FOR_A_TASK = 6
"""Attempts a run from which a single task can be told apart from 22 others."""

Pair = tuple[Sequence[float], Sequence[float]]
Interval = tuple[float, float]

_SPLITS = 1000  # permutations of one task's attempts that are looked at
_PICKS = 500_000  # bounds the work of one comparison, whatever the number of tasks


# -- one mean ---------------------------------------------------------------------------------


@cache
def t_quantile(degrees: int, confidence: float = 0.95) -> float:
    """Return t such that Student's t lies within -t to t with probability ``confidence``.

    Bisection of the closed form for whole ``degrees`` (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < confidence else (low, angle)
    return math.tan(low) * math.sqrt(degrees)


def _within(angle: float, degrees: int) -> float:
    """The probability that Student's t lies within tan(``angle``) * sqrt(``degrees``) of 0."""
    cosine = math.cos(angle)
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))


def mean_interval(means: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of tasks like these, given each task's mean score.

    Wilson's, on the effective number of tasks (Korn and Graubard), with Student's t. None
    below five tasks.
    """
    count = len(means)
    if count < FEWEST_TASKS:
        return None
    mean, spread = fmean(means), variance(means)
    effective = float(count)
    if spread >= 1e-12 and 0 < mean < 1:
        effective = min(max(count * mean * (1 - mean) / spread, count - 1), 4 * count)
    square = t_quantile(count - 1) ** 2
    centre = (mean + square / (2 * effective)) / (1 + square / effective)
    half = math.sqrt(square * (mean * (1 - mean) / effective + square / (4 * effective**2))) / (
        1 + square / effective
    )
    # rounding must not put the mean of a clean sweep outside
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))


def difference_interval(differences: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean difference on tasks like these: Student's, over tasks.

    None below five tasks, and where they all differ by the same.
    """
    count = len(differences)
    if count < FEWEST_TASKS or (spread := variance(differences)) < 1e-12:
        return None
    mean, half = fmean(differences), t_quantile(count - 1) * math.sqrt(spread / count)
    return max(-1.0, mean - half), min(1.0, mean + half)


# -- two runs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskChance:
    """What chance could do to one task: ``p_value`` of its difference, and how probably all
    attempts of one run would lie beyond all of the other (``apart``).
    """

    p_value: float
    apart: float


@dataclass(frozen=True)
class Tests:
    """Permutation tests of two runs over the same tasks.

    ``p_mean`` is of the mean difference, ``p_drops`` of the sum of squared drops of tasks, and
    ``p_any`` of that sum or the one of squared rises, whichever is larger: that finds three
    broken tasks of 23 more often than the sum of all squared differences (86 % against 61 %).
    With one attempt a run ``p_any`` would say what ``p_mean`` says, and is None. ``interval`` is
    of the mean difference on these very tasks: it leaves 0 out where the mean differs
    significantly, and only there. Its ``confidence`` is 0.95, or 0.975 where Holm's rule
    demands it.
    """

    p_mean: float
    p_any: float | None
    p_drops: float
    interval: Interval
    confidence: float

    @property
    def mean_differs(self) -> bool:
        return self.p_mean <= 1 - self.confidence + TOLERANCE

    @property
    def any_differs(self) -> bool:
        return self.p_any is not None and self.p_any <= _holm(self.p_mean) + TOLERANCE

    @property
    def tasks_dropped(self) -> bool:
        return self.p_drops <= _holm(self.p_mean) + TOLERANCE


def _holm(other: float | None) -> float:
    """The level of one of two tests, given the other one's p (None: it was not made)."""
    return LEVEL if other is None or other <= LEVEL / 2 else LEVEL / 2


class Permutations:
    """Permutations of the attempts within each of ``pairs`` (at least one)."""

    def __init__(
        self, pairs: Sequence[Pair], generator: random.Random, draws: int | None = None
    ) -> None:
        self._pairs = pairs
        self._generator = generator
        self._draws = draws or max(1999, min(9999, _PICKS // len(pairs)))
        self._splits = [_splits(*pair, generator) for pair in pairs]

    def task_chances(self) -> list[TaskChance]:
        """Chance at each task alone."""
        return [
            TaskChance(
                _share(
                    abs(one.difference) >= abs(splits[0].difference) - TOLERANCE for one in splits
                ),
                _share(one.apart for one in splits),
            )
            for splits in self._splits
        ]

    def tests(self) -> Tests:
        """All splits together where they are few, else a sample."""
        count = len(self._pairs)
        observed = math.fsum(splits[0].difference for splits in self._splits) / count
        totals: list[list[float]] = [[], [], [], []]
        for splits, column in zip(self._splits, self._columns(), strict=True):
            values = [one.difference for one in splits]
            tables = (
                values,
                [one.shift for one in splits],
                [min(value, 0.0) ** 2 for value in values],
                [max(value, 0.0) ** 2 for value in values],
            )
            for place, table in enumerate(tables):
                drawn = map(table.__getitem__, column)
                before = totals[place] or itertools.repeat(0.0)
                totals[place] = list(map(operator.add, before, drawn))
        sums, shifts, drops, rises = totals
        reach = [
            _reach(total - shift * observed, shift, count)
            for total, shift in zip(sums, shifts, strict=True)
        ]
        p_mean = _share(abs(observed) <= far[observed < 0] + TOLERANCE for far in reach)
        larger = list(map(max, drops, rises))
        once = all(len(old) == len(new) == 1 for old, new in self._pairs)
        p_any = None if once else _share(one >= larger[0] - TOLERANCE for one in larger)
        level = _holm(p_any)
        rank = math.floor(level * len(reach) + TOLERANCE)
        below, above = (
            sorted((far[side] for far in reach), reverse=True)[rank] for side in (False, True)
        )
        return Tests(
            p_mean=p_mean,
            p_any=p_any,
            p_drops=_share(one >= drops[0] - TOLERANCE for one in drops),
            interval=(
                max(-1.0, _clean(observed - below)),
                min(1.0, _clean(observed + above)),
            ),
            confidence=1 - level,
        )

    def _columns(self) -> list[Sequence[int]]:
        """For each task, which of its splits each permutation has; the first is the real one."""
        sizes = [len(splits) for splits in self._splits]
        if math.prod(sizes) <= self._draws + 1:
            return list(zip(*itertools.product(*map(range, sizes)), strict=True))
        return [[0, *self._generator.choices(range(size), k=self._draws)] for size in sizes]


@dataclass(frozen=True)
class _Split:
    """One way to give a task's attempts to the two runs.

    ``difference`` is that of the means; ``shift`` by how much it falls for each unit that is
    taken off every attempt of the new run; ``apart`` whether the runs do not overlap.
    """

    difference: float
    shift: float
    apart: bool


def _splits(old: Sequence[float], new: Sequence[float], generator: random.Random) -> list[_Split]:
    """All of them where they are few, else a sample; the real one first."""
    both = [*new, *old]
    size = len(new)
    chosen: Iterable[Sequence[int]]
    if math.comb(len(both), size) <= _SPLITS:
        chosen = itertools.combinations(range(len(both)), size)
    else:
        drawn = (generator.sample(range(len(both)), size) for _ in range(_SPLITS - 1))
        chosen = itertools.chain([range(size)], drawn)
    found = []
    for part in chosen:
        given = set(part)
        mine = [both[place] for place in part]
        others = [value for place, value in enumerate(both) if place not in given]
        own = sum(place < size for place in part)
        found.append(
            _Split(
                math.fsum(mine) / size - math.fsum(others) / len(old),
                own / size - (size - own) / len(old),
                min(mine) > max(others) or max(mine) < min(others),
            )
        )
    return found


def _reach(rest: float, shift: float, count: int) -> tuple[float, float]:
    """How far below and above the observed mean difference a true one may lie so that this
    permutation still gives a sum at least as far from it as the real one.

    The permuted sum is ``rest`` + ``shift`` * e for a true difference e below the observed one;
    the real sum is ``count`` * e.
    """
    if count - abs(shift) < TOLERANCE:
        return math.inf, math.inf
    if rest >= 0:
        return rest / (count - shift), rest / (count + shift)
    return -rest / (count + shift), -rest / (count - shift)


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return sum(values) / len(values)


def _clean(value: float) -> float:
    return 0.0 if abs(value) < TOLERANCE else value


def benjamini_hochberg(p_values: Sequence[float], rate: float = LEVEL) -> list[bool]:
    """Which of them are discoveries at a false discovery rate of ``rate``."""
    ranked = sorted(p_values)
    limits = (
        value
        for rank, value in enumerate(ranked, 1)
        if value <= rate * rank / len(ranked) + TOLERANCE
    )
    limit = max(limits, default=-1.0)
    return [value <= limit for value in p_values]


def findable_drop(pairs: Sequence[Pair]) -> float | None:
    """The mean drop that would have been found four times in five.

    None below three attempts a run at any task, and where no two attempts at a task differ.
    """
    if min(len(attempts) for pair in pairs for attempts in pair) < ATTEMPTS_FOR_POWER:
        return None
    noise = math.fsum(variance(attempts) / len(attempts) for pair in pairs for attempts in pair)
    return 2.8 * math.sqrt(noise) / len(pairs) if noise > 1e-12 else None
