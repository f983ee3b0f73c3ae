"""The numbers of a run: means, pass rates, their uncertainty. Rules: README, scoring."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_pinchbench.results.records import Record

TOLERANCE = 1e-9
"""What a mark is missed by before it is missed: a mean of 0.8 may be a float just below it."""
_SEED = 20260217  # fixed: the same results print the same interval
_PICKS = 500_000  # bounds the work of one interval, whatever the number of tasks
_POOL = 200  # bootstrap means that stand for one task with several attempts


@dataclass(frozen=True)
class Score:
    """Mean score and full-score pass rate over ``tasks`` tasks, both 0 to 1."""

    mean: float
    pass_rate: float
    tasks: int


def by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each valid task, in order of attempts. An invalid attempt makes its task
    invalid: it is left out.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["task_id"], []).append(record)
    return {
        task: sorted(attempts, key=lambda record: int(record["attempt"]))
        for task, attempts in sorted(found.items())
        if all(record["metrics"]["score"] is not None for record in attempts)
    }


def overall(records: Sequence[Record]) -> Score | None:
    """Attempts are averaged to tasks, then tasks to the run. None without a valid record."""
    tasks = by_task(records).values()
    if not tasks:
        return None
    return Score(
        mean=_mean([_mean([r["metrics"]["score"] for r in attempts]) for attempts in tasks]),
        pass_rate=_mean([_mean([r["metrics"]["passed"] for r in attempts]) for attempts in tasks]),
        tasks=len(tasks),
    )


def by_category(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each category, in alphabetical order."""
    categories: dict[str, list[Record]] = {}
    for record in records:
        categories.setdefault(record["category"], []).append(record)
    return dict(sorted(categories.items()))


def interval(scores: Mapping[str, Sequence[float]]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over tasks, given each task's scores.

    Tasks are resampled, and within a task its attempts. Seeded, and independent of the
    order of tasks. None for fewer than two tasks: one task says nothing about others.
    """
    generator = random.Random(_SEED)
    size = pool_size(scores.values())
    return bootstrap(
        [resampled_means(scores[task], size, generator) for task in sorted(scores)], generator
    )


def pool_size(tasks: Iterable[Sequence[float]]) -> int:
    """How many values of :func:`resampled_means` stand for a task: one where nothing varies."""
    return 1 if all(len(attempts) == 1 for attempts in tasks) else _POOL


def resampled_means(attempts: Sequence[float], size: int, generator: random.Random) -> list[float]:
    """``size`` bootstrap means of a task's attempts.

    Balanced: over all of them each attempt is drawn equally often, so that their mean is
    exactly that of the attempts.
    """
    drawn = list(attempts) * size
    generator.shuffle(drawn)
    count = len(attempts)
    return [_mean(drawn[start : start + count]) for start in range(0, len(drawn), count)]


def bootstrap(
    tasks: Sequence[Sequence[float]], generator: random.Random
) -> tuple[float, float] | None:
    """95 % interval of the mean over tasks, each given by equally many equally likely values.

    Resampling tasks, and for each one drawn one of its values, is drawing from all values of
    all tasks at once. None for fewer than two tasks.
    """
    if len(tasks) < 2:
        return None
    values = [value for task in tasks for value in task]
    count = len(tasks)
    draws = repetitions(count)
    return bounds([_mean(generator.choices(values, k=count)) for _ in range(draws)])


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Between which the middle 95 % of them lie."""
    count, ordered = len(values), sorted(values)
    return ordered[int(0.025 * count)], ordered[int(0.975 * count) - 1]


def repetitions(tasks: int) -> int:
    """How often a statistic over so many tasks is drawn anew."""
    return max(2000, min(10_000, _PICKS // tasks))


def mean_interval(records: Sequence[Record]) -> tuple[float, float] | None:
    """:func:`interval` of the valid records' scores."""
    return interval(
        {
            task: [record["metrics"]["score"] for record in attempts]
            for task, attempts in by_task(records).items()
        }
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
