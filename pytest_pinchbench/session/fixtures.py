"""The fixtures that do the work. Each can be overridden in a conftest.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_pinchbench.attempt.context import AttemptContext
from pytest_pinchbench.environments import EnvironmentSetup, find_environment
from pytest_pinchbench.harnesses import find_harness
from pytest_pinchbench.issues import AttemptInvalid, SettingsError
from pytest_pinchbench.reports.terminal import why_invalid
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.session.items import TaskItem
from pytest_pinchbench.session.run import RUNS, Run
from pytest_pinchbench.session.runner import Runner

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment
    from pytest_pinchbench.harnesses import Harness
    from pytest_pinchbench.results.records import Record
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task


@pytest.fixture(scope="session")
def pinchbench_run(request: pytest.FixtureRequest) -> Run:
    """The run of one model: among several models, an item has its own as a parameter."""
    run: Run = getattr(request, "param", None) or request.config.stash[RUNS].first
    return run


@pytest.fixture(scope="session")
def pinchbench_settings(pinchbench_run: Run) -> Settings:
    """Everything this run was asked for."""
    return pinchbench_run.settings


@pytest.fixture
def pinchbench_task(request: pytest.FixtureRequest) -> Task:
    """The task of this item. Override it to change a task on its way in."""
    assert isinstance(request.node, TaskItem)
    return request.node.pinchbench_task


@pytest.fixture(scope="session")
def pinchbench_environment(pinchbench_run: Run, pinchbench_settings: Settings) -> Environment:
    """What opens a fresh sandbox for every attempt (an ``Environment``)."""
    return make_environment(pinchbench_run, pinchbench_settings)


@pytest.fixture(scope="session")
def pinchbench_harness(pinchbench_run: Run, pinchbench_settings: Settings) -> Harness:
    """What runs the agent (a ``Harness``)."""
    return _make_harness(pinchbench_run, pinchbench_settings)


@pytest.fixture(scope="session")
def pinchbench_judge(pinchbench_settings: Settings) -> ModelSpec | None:
    """The judge of ``llm_judge`` and ``hybrid`` tasks, or None."""
    return pinchbench_settings.judge


@pytest.fixture
def pinchbench_result(
    request: pytest.FixtureRequest,
    pinchbench_run: Run,
    pinchbench_settings: Settings,
    pinchbench_task: Task,
    pinchbench_environment: Environment,
    pinchbench_harness: Harness,
    pinchbench_judge: ModelSpec | None,
) -> Record:
    """Runs the attempt and gives its record; an attempt without a score is an error here."""
    item, run = request.node, pinchbench_run
    assert isinstance(item, TaskItem)
    context = AttemptContext(
        settings=pinchbench_settings,
        environment=pinchbench_environment,
        harness=pinchbench_harness,
        judge=pinchbench_judge,
        redactor=run.redactor,
        run_id=run.run_id,
        model_id=run.model_id,
        relay=run.relay,
        replay=RunDirectory(Path(run.settings.replay)) if run.settings.replay else None,
    )
    record = Runner(run, request.session, context).record(item, pinchbench_task)
    if record["metrics"]["score"] is None:
        raise AttemptInvalid(why_invalid(record))
    return record


def check_kinds(run: Run) -> None:
    """Make the environment and the harness once, so that bad settings are one error, and not an
    error a task.

    Skips what the project has a fixture of its own for. Raises ``PinchBenchError``.
    """
    plugins = run.config.pluginmanager.get_plugins()
    for fixture, make in (
        ("pinchbench_environment", make_environment),
        ("pinchbench_harness", _make_harness),
    ):
        if not any(hasattr(plugin, fixture) for plugin in plugins):
            make(run, run.settings)


def make_environment(run: Run, settings: Settings) -> Environment:
    recipe = settings.recipe
    environment = find_environment(recipe.environment)(
        EnvironmentSetup(
            recipe=recipe,
            run_id=run.run_id,
            data_dir=settings.data_dir,
            keep=settings.keep_environment,
            agent_runs=run.mode.agent_runs,
            say=run.say,
        )
    )
    if settings.grade_in == "fresh" and not getattr(environment, "grades_fresh", ""):
        raise SettingsError(
            f"cannot grade in a fresh sandbox: the recipe's {recipe.environment} sandboxes do "
            "not share workspaces. Leave --pinchbench-grade-in out, or choose another kind."
        )
    return environment


def _make_harness(run: Run, settings: Settings) -> Harness:
    harness = find_harness(settings.harness)(settings)
    harness.say = run.say
    return harness
