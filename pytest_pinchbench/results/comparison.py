"""Is one run better than another, or is it noise? Two runs task by task, several as a table.

Runs are given as summaries (``reports.summarize``), so that a run directory, a
``summary.json`` and the run that has just ended compare alike.

The mean: tasks that both runs have are paired, and their differences averaged. It goes with
the bootstrap interval of the scoring rules, and with a permutation test: were the two runs
the same model, which attempts of a task belong to which run would be chance. A difference is
called significant when the interval leaves 0 out **and** chance gives one as large in less
than 5 % of the permutations. The interval alone would call four flaky tasks of 23 that fall
the same way significant, which happens to a model against itself once in eight times.

A task: the same permutation test over its own attempts. With one or two attempts a run it
cannot tell a difference from noise, whatever the scores: then a task whose attempts are all
on one side of the other run's is only ``changed``.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from pytest_pinchbench.results.identity import differences
from pytest_pinchbench.results.statistics import (
    bootstrap,
    bounds,
    pool_size,
    repetitions,
    resampled_means,
)

Summary = Mapping[str, Any]
Verdict = Literal["worse", "changed", "within noise", "same", "better"]

_SEED = 20260217
_MEAN_LEVEL = 0.05
# Three attempts a run can give no p below 0.1: all of one run under all of the other.
_TASK_LEVEL = 0.10
_SPLITS = 1000  # permutations of one task's attempts that are looked at
_TINY = 1e-9
_NAMED = 5  # tasks in one note
_LONGEST = 60  # characters of a setting in one


@dataclass(frozen=True)
class TaskDifference:
    """One task that has valid attempts in both runs; ``difference`` is new minus baseline.

    ``interval`` is the 95 % bootstrap interval over the attempts, None where a run has only
    one. ``p_value``: how often chance alone gives such a difference.
    """

    task_id: str
    category: str | None
    baseline: float
    new: float
    difference: float
    interval: tuple[float, float] | None
    p_value: float
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """A new run against a baseline.

    ``tasks`` are in order of their difference, regressions first; the means are over these
    tasks alone. ``interval`` and ``p_value`` are those of ``difference``, the mean of the
    paired differences; None for fewer than two tasks. ``notes`` say what is not compared, and
    why the runs may not be comparable at all.
    """

    baseline_name: str
    new_name: str
    tasks: tuple[TaskDifference, ...]
    baseline: float | None
    new: float | None
    difference: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    verdict: Verdict | None
    only_in_baseline: tuple[str, ...]
    only_in_new: tuple[str, ...]
    not_valid: tuple[str, ...]
    """Tasks of both runs that have no valid attempt in one of them."""
    lost: tuple[str, ...]
    """Tasks that have a valid attempt in the baseline, and in the new run none."""
    notes: tuple[str, ...]

    @property
    def significant(self) -> bool:
        return self.verdict in ("better", "worse")

    def worse_by_more_than(self, drop: float) -> bool:
        """Whether the mean fell by more than ``drop``, and significantly."""
        fall = -(self.difference or 0.0)
        return self.verdict == "worse" and fall > drop + _TINY

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "significant": self.significant}


def compare(baseline: Summary, new: Summary) -> Comparison:
    """``new`` against ``baseline``. Seeded: the same runs compare the same every time."""
    generator = random.Random(_SEED)
    old_tasks, new_tasks = _by_id(baseline), _by_id(new)
    shared = sorted(old_tasks.keys() & new_tasks.keys())
    scores = {
        task_id: (_valid_scores(old_tasks[task_id]), _valid_scores(new_tasks[task_id]))
        for task_id in shared
    }
    paired = {task_id: pair for task_id, pair in scores.items() if all(pair)}
    chance = {task_id: _chance(*pair, generator) for task_id, pair in paired.items()}
    size = pool_size(attempts for pair in paired.values() for attempts in pair)
    resampled = {task_id: _resampled(*pair, size, generator) for task_id, pair in paired.items()}
    tasks = [
        _task_difference(new_tasks[task_id], *pair, chance[task_id], resampled[task_id])
        for task_id, pair in paired.items()
    ]
    difference = fmean(task.difference for task in tasks) if tasks else None
    interval = bootstrap(list(resampled.values()), generator)
    p_value = _p_value(difference, list(chance.values()), generator)
    baseline_name, new_name = names([baseline, new])
    not_valid = tuple(task_id for task_id in shared if task_id not in paired)
    return Comparison(
        baseline_name=baseline_name,
        new_name=new_name,
        tasks=tuple(sorted(tasks, key=lambda task: (task.difference, task.task_id))),
        baseline=fmean(task.baseline for task in tasks) if tasks else None,
        new=fmean(task.new for task in tasks) if tasks else None,
        difference=difference,
        interval=interval,
        p_value=p_value,
        verdict=_mean_verdict(difference, interval, p_value),
        only_in_baseline=tuple(sorted(old_tasks.keys() - new_tasks.keys())),
        only_in_new=tuple(sorted(new_tasks.keys() - old_tasks.keys())),
        not_valid=not_valid,
        lost=tuple(
            task_id
            for task_id, task in sorted(old_tasks.items())
            if _valid_scores(task) and task_id not in paired
        ),
        notes=tuple(_notes(baseline, new, paired, not_valid)),
    )


def _by_id(summary: Summary) -> dict[str, Mapping[str, Any]]:
    return {task["task_id"]: task for task in summary["tasks"]}


def _valid_scores(task: Mapping[str, Any]) -> list[float]:
    return [one["score"] for one in task["attempts"] if one["score"] is not None]


def compare_with_last(runs: Sequence[Summary]) -> list[Comparison]:
    """The last run against each of those before it."""
    return [compare(baseline, runs[-1]) for baseline in runs[:-1]]


def names(runs: Sequence[Summary]) -> list[str]:
    """A name for each run: its model, and what tells it from other runs of that model."""
    models = [str(run["model"]) for run in runs]
    dated = [f"{run['model']} of {str(run['started_at'])[:19].replace('T', ' ')}" for run in runs]
    return [
        model
        if models.count(model) == 1
        else (date if dated.count(date) == 1 else f"{model} {run['run_id']}")
        for run, model, date in zip(runs, models, dated, strict=True)
    ]


# -- what to mind ---------------------------------------------------------------------------


def _notes(
    baseline: Summary,
    new: Summary,
    paired: Mapping[str, tuple[list[float], list[float]]],
    not_valid: Sequence[str],
) -> Iterator[str]:
    if not paired:
        yield "the runs have no task in common that has a valid result in both: nothing to compare"
    for which, run in (("baseline", baseline), ("new run", new)):
        tasks = _by_id(run)
        invalid = [task_id for task_id in not_valid if not _valid_scores(tasks[task_id])]
        if invalid:
            yield f"no valid attempt in the {which}, so in no mean here: {some(invalid)}"
        partly = [
            f"{task_id} ({valid} of {len(task['attempts'])})"
            for task_id, task in tasks.items()
            if task_id in paired and (valid := len(_valid_scores(task))) < len(task["attempts"])
        ]
        if partly:
            yield f"compared over its valid attempts in the {which}: {some(partly)}"
    old_agent, new_agent = (_agent_version(run) for run in (baseline, new))
    if old_agent != new_agent:
        yield f"the runs differ in agent version: {old_agent} and {new_agent}"
    if not (baseline.get("identity") and new.get("identity")):
        yield "cannot compare the settings of the runs: one of them has no run.json"
        return
    for name, old, now in differences(baseline, new):
        if name != "model":  # each run is named by its model
            yield f"the runs differ in {name}: {_cut(old)} and {_cut(now)}"


def _agent_version(run: Summary) -> str:
    return ", ".join(run["versions"].get("agent") or ()) or "unknown"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


# -- chance ---------------------------------------------------------------------------------


def _chance(old: Sequence[float], new: Sequence[float], generator: random.Random) -> list[float]:
    """The differences that come out when chance decides which attempt belongs to which run.

    All of them where they are few, else a sample.
    """
    both = [*old, *new]
    if min(both) == max(both):
        return [0.0]
    chosen: Iterable[tuple[float, ...]]
    if math.comb(len(both), len(new)) <= _SPLITS:
        chosen = itertools.combinations(both, len(new))
    else:
        chosen = (tuple(generator.sample(both, len(new))) for _ in range(_SPLITS))
    total = math.fsum(both)
    return [_split_difference(sum(part), total, len(old), len(new)) for part in chosen]


def _split_difference(part: float, total: float, old: int, new: int) -> float:
    return part / new - (total - part) / old


def _p_value(
    difference: float | None, chance: Sequence[Sequence[float]], generator: random.Random
) -> float | None:
    """How often chance gives a mean difference at least as large, in either direction."""
    if difference is None or len(chance) < 2:
        return None
    varying = [values for values in chance if len(values) > 1]
    draws = repetitions(len(chance))
    totals = [0.0] * draws
    for values in varying:
        totals = list(map(operator.add, totals, generator.choices(values, k=draws)))
    limit = abs(difference) * len(chance) - _TINY
    as_large = sum(abs(total) >= limit for total in totals)
    return (as_large + 1) / (draws + 1)


def _resampled(
    old: Sequence[float], new: Sequence[float], size: int, generator: random.Random
) -> list[float]:
    """Bootstrap values of one task's difference."""
    return list(
        map(
            operator.sub,
            resampled_means(new, size, generator),
            resampled_means(old, size, generator),
        )
    )


# -- verdicts -------------------------------------------------------------------------------


def _mean_verdict(
    difference: float | None, interval: tuple[float, float] | None, p_value: float | None
) -> Verdict | None:
    if difference is None:
        return None
    if interval is None or p_value is None:
        return "same" if abs(difference) < _TINY else "changed"
    if p_value < _MEAN_LEVEL and interval[1] < -_TINY:
        return "worse"
    if p_value < _MEAN_LEVEL and interval[0] > _TINY:
        return "better"
    return "same" if interval == (0.0, 0.0) else "within noise"


def _task_difference(
    task: Mapping[str, Any],
    old: Sequence[float],
    new: Sequence[float],
    chance: Sequence[float],
    resampled: Sequence[float],
) -> TaskDifference:
    difference = fmean(new) - fmean(old)
    largest = max(map(abs, chance))
    p_value = sum(abs(value) >= abs(difference) - _TINY for value in chance) / len(chance)
    # so few attempts that even the clearest difference could be chance
    few = 2 / math.comb(len(old) + len(new), len(new)) > _TASK_LEVEL
    verdict: Verdict
    if abs(difference) < _TINY:
        verdict = "same"
    elif p_value <= _TASK_LEVEL:
        verdict = "better" if difference > 0 else "worse"
    elif few and abs(difference) >= largest - _TINY:
        verdict = "changed"
    else:
        verdict = "within noise"
    return TaskDifference(
        task_id=task["task_id"],
        category=task["category"],
        baseline=fmean(old),
        new=fmean(new),
        difference=difference,
        interval=bounds(resampled) if min(len(old), len(new)) > 1 else None,
        p_value=p_value,
        verdict=verdict,
    )
