"""Is one run better than another, or is it noise? Two runs task by task.

Runs are given as summaries, so that a run directory, a ``summary.json`` and the run that has
just ended compare alike. Tasks are paired; a task counts where all of its attempts are valid in
both runs. Two permutation tests ask whether the *mean* differs and whether *any task* changed
(``results.statistics``); of a single task nothing is said below six attempts a run, since no
test could.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from pytest_pinchbench.results.identity import differences
from pytest_pinchbench.results.statistics import (
    ATTEMPTS_FOR_A_TASK,
    TOLERANCE,
    Interval,
    Pair,
    Permutations,
    TaskChance,
    Tests,
    benjamini_hochberg,
    difference_interval,
    findable_drop,
)

Summary = Mapping[str, Any]
Verdict = Literal["mean worse", "mean better", "tasks changed", "no difference found"]
TaskVerdict = Literal["worse", "better", "lower", "higher", "within noise", "same"]

_SEED = 20260217
_NAMED = 5  # tasks in one note
_LONGEST = 60  # characters of a setting in one


@dataclass(frozen=True)
class TaskDifference:
    """One task that counts in both runs; ``difference`` is new minus baseline.

    ``verdict``: ``worse`` and ``better`` are significant (Benjamini-Hochberg over all tasks,
    from six attempts a run on, where ``p_value`` is given). With fewer attempts, ``lower`` and
    ``higher`` say that all attempts of the new run lie beyond all of the baseline: look at
    these first.
    """

    task_id: str
    category: str | None
    baseline: float
    new: float
    difference: float
    p_value: float | None
    verdict: TaskVerdict


@dataclass(frozen=True)
class Comparison:
    """A new run against a baseline.

    ``tasks`` are in order of their difference, regressions first; the means are over these
    tasks alone. Differences are new minus baseline; without a task to compare they, the tests'
    results and ``verdict`` are None.
    """

    baseline_name: str
    new_name: str
    tasks: tuple[TaskDifference, ...]
    attempts: int | None
    """The fewest attempts that a run has at a task."""
    baseline: float | None
    new: float | None
    difference: float | None
    interval: Interval | None
    """Of ``difference`` on these very tasks; it contains 0 unless the mean is worse or better."""
    confidence: float | None
    """Of ``interval``: 0.95 or 0.975."""
    similar_tasks_interval: Interval | None
    """Of ``difference`` on tasks like these; None below five tasks."""
    p_mean: float | None
    p_any: float | None
    p_drops: float | None
    verdict: Verdict | None
    tasks_changed: bool
    """Any task changed, significantly; the mean may not have."""
    tasks_dropped: bool
    mean_drop: float | None
    """The drops of the tasks that dropped, over all tasks."""
    apart_by_chance: float | None
    """How many tasks chance alone would have called ``lower`` or ``higher``."""
    findable_drop: float | None
    """The mean drop that would have been found four times in five, from three attempts on."""
    only_in_baseline: tuple[str, ...]
    only_in_new: tuple[str, ...]
    not_valid: tuple[str, ...]
    """Tasks of both runs with an invalid or missing attempt in one of them."""
    notes: tuple[str, ...]

    def worse_by_more_than(self, drop: float) -> bool:
        """Whether the mean fell by more than ``drop``, and significantly."""
        fall = -(self.difference or 0.0)
        return self.verdict == "mean worse" and fall > drop + TOLERANCE

    def dropped_by_more_than(self, drop: float) -> bool:
        """Whether tasks dropped significantly, together by more than ``drop`` of the suite."""
        return self.tasks_dropped and (self.mean_drop or 0.0) > drop + TOLERANCE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(baseline: Summary, new: Summary) -> Comparison:
    """``new`` against ``baseline``. Seeded: the same runs compare the same every time."""
    old_tasks, new_tasks = _by_id(baseline), _by_id(new)
    shared = sorted(old_tasks.keys() & new_tasks.keys())
    pairs: dict[str, Pair] = {}
    for task_id in shared:
        old, now = _scores(old_tasks[task_id]), _scores(new_tasks[task_id])
        if old and now:
            pairs[task_id] = old, now
    not_valid = tuple(task_id for task_id in shared if task_id not in pairs)
    tests, chances = None, []
    if pairs:
        permutations = Permutations(list(pairs.values()), random.Random(_SEED))
        tests, chances = permutations.tests(), permutations.task_chances()
    fewest = min((len(attempts) for pair in pairs.values() for attempts in pair), default=None)
    tasks = _task_differences(pairs, chances, new_tasks)
    differences = [task.difference for task in tasks]
    few = fewest is not None and fewest < ATTEMPTS_FOR_A_TASK
    baseline_name, new_name = names([baseline, new])
    difference = fmean(differences) if tasks else None
    return Comparison(
        baseline_name=baseline_name,
        new_name=new_name,
        tasks=tuple(sorted(tasks, key=lambda task: (task.difference, task.task_id))),
        attempts=fewest,
        baseline=fmean(task.baseline for task in tasks) if tasks else None,
        new=fmean(task.new for task in tasks) if tasks else None,
        difference=difference,
        interval=tests.interval if tests else None,
        confidence=tests.confidence if tests else None,
        similar_tasks_interval=difference_interval(differences),
        p_mean=tests.p_mean if tests else None,
        p_any=tests.p_any if tests else None,
        p_drops=tests.p_drops if tests else None,
        verdict=_verdict(tests, difference or 0.0) if tests else None,
        tasks_changed=tests is not None and tests.any_differs,
        tasks_dropped=tests is not None and tests.tasks_dropped,
        mean_drop=-fmean(min(one, 0.0) for one in differences) if tasks else None,
        apart_by_chance=sum(one.apart for one in chances) if few else None,
        findable_drop=findable_drop(list(pairs.values())) if pairs else None,
        only_in_baseline=tuple(sorted(old_tasks.keys() - new_tasks.keys())),
        only_in_new=tuple(sorted(new_tasks.keys() - old_tasks.keys())),
        not_valid=not_valid,
        notes=tuple(_notes(baseline, new, pairs, not_valid)),
    )


def _verdict(tests: Tests, difference: float) -> Verdict:
    if tests.mean_differs:
        return "mean worse" if difference < 0 else "mean better"
    return "tasks changed" if tests.any_differs else "no difference found"


def _task_differences(
    pairs: Mapping[str, Pair],
    chances: Sequence[TaskChance],
    tasks: Mapping[str, Mapping[str, Any]],
) -> list[TaskDifference]:
    many = all(len(part) >= ATTEMPTS_FOR_A_TASK for pair in pairs.values() for part in pair)
    found = benjamini_hochberg([chance.p_value for chance in chances]) if many else []
    differences = []
    for place, ((task_id, (old, new)), chance) in enumerate(
        zip(pairs.items(), chances, strict=True)
    ):
        difference = fmean(new) - fmean(old)
        verdict: TaskVerdict = "within noise"
        if abs(difference) < TOLERANCE:
            difference, verdict = 0.0, "same"
        elif many and found[place]:
            verdict = "better" if difference > 0 else "worse"
        elif not many and (min(new) > max(old) or max(new) < min(old)):
            verdict = "higher" if difference > 0 else "lower"
        differences.append(
            TaskDifference(
                task_id=task_id,
                category=tasks[task_id]["category"],
                baseline=fmean(old),
                new=fmean(new),
                difference=difference,
                p_value=chance.p_value if many else None,
                verdict=verdict,
            )
        )
    return differences


def _by_id(summary: Summary) -> dict[str, Mapping[str, Any]]:
    return {task["task_id"]: task for task in summary["tasks"]}


def _scores(task: Mapping[str, Any]) -> list[float] | None:
    """The scores of a task's attempts; None where one of them has none."""
    scores = [attempt["score"] for attempt in task["attempts"]]
    return None if None in scores else scores


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
    baseline: Summary, new: Summary, pairs: Mapping[str, Pair], not_valid: Sequence[str]
) -> Iterator[str]:
    if not pairs:
        yield "the runs have no task in common that is valid in both: nothing to compare"
    for which, run in (("baseline", baseline), ("new run", new)):
        tasks = _by_id(run)
        invalid = [task_id for task_id in not_valid if _scores(tasks[task_id]) is None]
        if invalid:
            yield f"left out, with an invalid or missing attempt in the {which}: {some(invalid)}"
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
