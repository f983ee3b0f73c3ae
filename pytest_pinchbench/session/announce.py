"""What a run says of itself: its header, notes before the first task, hints at its end."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results.records import cost_of
from pytest_pinchbench.session.run import Run, Runs
from pytest_pinchbench.settings.sources import CONFIG_FILE
from pytest_pinchbench.suite.checkout import suite_name


def header(runs: Runs) -> list[str]:
    return list(dict.fromkeys(line for run in runs.all for line in _header(run)))


def _header(run: Run) -> list[str]:
    settings, recipe = run.settings, run.settings.recipe
    image = f", image {recipe.image}" if recipe.image else ""
    lines = [f"pinchbench: model {run.model_id}, environment {recipe.environment}{image}"]
    if settings.judge is not None:
        lines.append(f"pinchbench: judge {settings.judge.id}")
    file = Path(settings.origins["config"])
    if file.name == CONFIG_FILE:  # found, not named
        lines.append(f"pinchbench: settings in {run.short(file)}")
    for root, rules in run.suites.rules.items():
        lines.append(f"pinchbench: suite {suite_name(root)}, {rules}")
    if run.directory is not None:
        lines.append(f"pinchbench: results in {run.short(run.directory.path)}")
    return [run.redactor.text(line) for line in lines]


def notes(runs: Runs) -> list[str]:
    """Return what the user should know before the first task."""
    lines = [
        line
        for run in runs.all
        for line in (
            *run.settings.warnings,
            *run.mode.notes(run.selected, run.short),
            *run.suites.notes,
            *_task_warnings(run),
            *_judge_missing(run),
            *_machine_too_small(run),
        )
    ]
    return [runs.first.redactor.text(line) for line in dict.fromkeys(lines)]


def hints(run: Run, where: str) -> list[str]:
    """Return how to go on with a run that has no official mean, from the directory ``where``."""
    assert run.directory is not None
    if run.settings.replay:
        return [replayed(run)]
    lines = [f"To go on    the same command with --pinchbench-resume {where}"]
    if run.directory.has_ended("sanity"):
        lines.append(f"{'':12}--pinchbench-keep-going, or the sanity task stops it again")
    budget = run.settings.budget_usd
    agent = run.mode.agent_runs
    spent = sum(cost_of(record, agent=agent) for record in run.directory.records())
    if budget is not None and spent >= budget:
        lines.append(f"{'':12}--pinchbench-budget-usd above {formats.usd(spent)}: it is used up")
    return lines


def replayed(run: Run) -> str:
    """Return where a replay's answers come from, and how often its requests differed."""
    assert run.directory is not None
    issues = [issue for record in run.directory.records() for issue in record["issues"]]
    found = [one["message"] for one in issues if one["code"] == "replay_divergence"]
    count = sum(int(message.partition(" ")[0]) for message in found)
    return f"replayed from {run.settings.replay}, {formats.counted(count, 'divergence')}"


def _machine_too_small(run: Run) -> list[str]:
    """A start-up of OpenClaw takes a core for 4 to 10 seconds, an agent 1 GB of memory."""
    workers = len(getattr(run.config.option, "tx", None) or [None])  # -n, as xdist cut it
    if workers < 2 or run.settings.recipe.environment not in ("docker", "bubblewrap", "local"):
        return []
    if os.environ.get("DOCKER_HOST", "unix://").partition(":")[0] != "unix":
        return []  # the containers run elsewhere
    return too_small(workers, *_cores_and_gigabytes())


def too_small(workers: int, cores: int, gigabytes: float) -> list[str]:
    """Return the warning for a machine on which so many agents would starve one another."""
    if workers <= cores and workers <= gigabytes:
        return []
    return [
        f"-n {workers} is more than this machine can start at a time ({cores} cores, "
        f"{gigabytes:.0f} GB; an agent takes a core while it starts, and 1 GB): agents will "
        "start late, and may run out of time for it"
    ]


def _cores_and_gigabytes() -> tuple[int, float]:
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return cores, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _task_warnings(run: Run) -> list[str]:
    """Return the warnings about task files, each reason once."""
    found: dict[str, list[TaskFileError]] = {}
    for task in run.suites.tasks().values():
        for warning in task.warnings:
            found.setdefault(warning.reason, []).append(warning)
    return [
        str(first) + (f" (and in {len(others)} more task files)" if others else "")
        for first, *others in found.values()
    ]


def _judge_missing(run: Run) -> list[str]:
    judge = run.settings.judge
    if judge is not None and judge.base_url is not None:
        return []
    tasks = run.suites.tasks()
    selected = {task_id for task_id, _ in run.selected}
    judged = [
        task_id
        for task_id in selected
        if task_id in tasks and tasks[task_id].grading_type != "automated"
    ]
    if not judged:
        return []
    return [
        f"{len(judged)} of {len(selected)} tasks need a judge, "
        f"and no judge endpoint is configured: they will be invalid, and the run will have "
        f"no official mean. Set --pinchbench-judge-model and --pinchbench-judge-base-url "
        f"(or JUDGE_MODEL_NAME and JUDGE_MODEL_BASE_URL), or choose "
        f"--pinchbench-suite automated-only."
    ]
