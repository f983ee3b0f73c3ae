"""False alarms and power of a comparison: how often it says that a model differs from itself,
and how often it finds three broken tasks of 23.

    python benchmarks/comparisons.py [SETS [ALARMS]]

ALARMS comparisons (2,000) of a model with itself and SETS (500) with one in which three tasks
(of those with a mean above 0.8) always give 0, for each population of task means and each
number of attempts. Prints shares; *held* is how often the interval for these tasks holds the
true mean difference. Takes half an hour.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence

from pytest_pinchbench.results.statistics import Pair, Permutations, Tests

TASKS = 23
BROKEN = 3
DRAWS = 999  # permutations of one comparison: a tenth of what a run takes, for the time

POPULATIONS: dict[str, Callable[[random.Random], float]] = {
    "all .9": lambda generator: 0.9,
    "70 % at .95, else .3": lambda generator: 0.95 if generator.random() < 0.7 else 0.3,
    "70 % at .98, else .05": lambda generator: 0.98 if generator.random() < 0.7 else 0.05,
    "beta(.5, .5)": lambda generator: generator.betavariate(0.5, 0.5),
}


def means_of(population: str, generator: random.Random) -> list[float]:
    """Task means of which enough are above 0.8 to break some."""
    while True:
        means = [POPULATIONS[population](generator) for _ in range(TASKS)]
        if sum(mean > 0.8 for mean in means) >= BROKEN:
            return means


def run(means: Sequence[float], attempts: int, generator: random.Random) -> list[list[float]]:
    """Each attempt gives 1 with the probability of its task's mean, else 0."""
    return [[float(generator.random() < mean) for _ in range(attempts)] for mean in means]


def compared(
    before: Sequence[float], after: Sequence[float], attempts: int, generator: random.Random
) -> Tests:
    pairs: list[Pair] = list(
        zip(run(before, attempts, generator), run(after, attempts, generator), strict=True)
    )
    return Permutations(pairs, generator, DRAWS).tests()


def alarms(population: str, attempts: int, sets: int, generator: random.Random) -> dict[str, float]:
    """A model against itself."""
    found = []
    for _ in range(sets):
        means = means_of(population, generator)
        found.append(compared(means, means, attempts, generator))
    return {
        "different": _share(one.mean_differs or one.any_differs for one in found),
        "dropped": _share(one.tasks_dropped for one in found),
        "held": _share(one.interval[0] <= 0 <= one.interval[1] for one in found),
    }


def power(population: str, attempts: int, sets: int, generator: random.Random) -> dict[str, float]:
    """Three tasks broken."""
    found, held = [], 0
    for _ in range(sets):
        means = means_of(population, generator)
        good = [place for place, mean in enumerate(means) if mean > 0.8]
        broken = set(generator.sample(good, BROKEN))
        after = [0.0 if place in broken else mean for place, mean in enumerate(means)]
        tests = compared(means, after, attempts, generator)
        true = (sum(after) - sum(means)) / TASKS
        held += tests.interval[0] <= true <= tests.interval[1]
        found.append(tests)
    return {
        "mean": _share(one.mean_differs for one in found),
        "any": _share(one.any_differs for one in found),
        "dropped": _share(one.tasks_dropped for one in found),
        "held": held / sets,
    }


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return sum(values) / len(values)


def main(sets: int, self_sets: int) -> None:
    print(
        "| task means | attempts | itself: different | itself: dropped | held "
        "| broken: mean | broken: any task | broken: dropped | held |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for attempts in (1, 3, 6):
        for population in POPULATIONS:
            generator = random.Random(f"{population} {attempts}")
            false = alarms(population, attempts, self_sets, generator)
            true = power(population, attempts, sets, generator)
            cells = [f"{value:.1%}" for value in (*false.values(), *true.values())]
            print(f"| {population} | {attempts} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:3]) if len(sys.argv) > 2 else (500, 2000))
