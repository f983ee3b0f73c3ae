"""Coverage of the interval of a mean: how often it holds the mean of all tasks like these.

    python benchmarks/intervals.py [SETS]

SETS sets (4,000) of n task means for each population. Takes a minute.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from pytest_pinchbench.results.statistics import mean_interval

SIZES = (5, 9, 23, 124)

Draw = Callable[[random.Random], float]


def attempts(probability: float, count: int) -> Draw:
    """The mean of ``count`` runs that give 1 with this probability, else 0."""
    return lambda generator: sum(generator.random() < probability for _ in range(count)) / count


def either(value: float, share: float) -> Draw:
    return lambda generator: value if generator.random() < share else 0.0


def mixed(generator: random.Random) -> float:
    kind = generator.random()
    return 1.0 if kind < 0.6 else 0.0 if kind < 0.7 else generator.random()


POPULATIONS: dict[str, tuple[Draw, float]] = {
    "0 or 1, p = .6": (attempts(0.6, 1), 0.6),
    "0 or 1, p = .9": (attempts(0.9, 1), 0.9),
    "0 or 1, p = .97": (attempts(0.97, 1), 0.97),
    "mean of 3 runs, p = .6": (attempts(0.6, 3), 0.6),
    "mean of 3 runs, p = .9": (attempts(0.9, 3), 0.9),
    "mean of 3 runs, p = .97": (attempts(0.97, 3), 0.97),
    "uniform": (lambda generator: generator.random(), 0.5),
    "60 % ones, 10 % zeros, else uniform": (mixed, 0.6 + 0.3 * 0.5),
    "beta(8, 2)": (lambda generator: generator.betavariate(8, 2), 0.8),
    ".9 with p = .9, else 0": (either(0.9, 0.9), 0.81),
    ".95 with p = .95, else 0": (either(0.95, 0.95), 0.9025),
}
"""How a task's mean is drawn, and the true mean."""


def coverage(population: str, size: int, sets: int) -> float:
    draw, true = POPULATIONS[population]
    generator = random.Random(f"{population} {size}")
    held = 0
    for _ in range(sets):
        interval = mean_interval([draw(generator) for _ in range(size)])
        assert interval is not None
        held += interval[0] <= true <= interval[1]
    return held / sets


def main(sets: int) -> None:
    print(f"| task means | {' | '.join(f'n = {size}' for size in SIZES)} |")
    print(f"|---|{'---|' * len(SIZES)}")
    for population in POPULATIONS:
        cells = [f"{coverage(population, size, sets):.1%}" for size in SIZES]
        print(f"| {population} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
