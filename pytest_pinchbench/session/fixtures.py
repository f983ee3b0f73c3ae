"""The fixtures that do the work. Each can be overridden in a conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_pinchbench.issues import AttemptInvalid
from pytest_pinchbench.session.items import RUN, TaskItem

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment
    from pytest_pinchbench.harnesses import Harness
    from pytest_pinchbench.results.records import Record
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task


@pytest.fixture(scope="session")
def pinchbench_settings(pytestconfig: pytest.Config) -> Settings:
    """Everything this run was asked for."""
    return pytestconfig.stash[RUN].settings


@pytest.fixture
def pinchbench_task(request: pytest.FixtureRequest) -> Task:
    """The task of this item. Override it to change a task on its way in."""
    assert isinstance(request.node, TaskItem)
    return request.node.pinchbench_task


@pytest.fixture(scope="session")
def pinchbench_environment(
    pytestconfig: pytest.Config, pinchbench_settings: Settings
) -> Environment:
    """What opens a fresh sandbox for every attempt (an ``Environment``)."""
    return pytestconfig.stash[RUN].make_environment(pinchbench_settings)


@pytest.fixture(scope="session")
def pinchbench_harness(pytestconfig: pytest.Config, pinchbench_settings: Settings) -> Harness:
    """What runs the agent (a ``Harness``)."""
    return pytestconfig.stash[RUN].make_harness(pinchbench_settings)


@pytest.fixture(scope="session")
def pinchbench_judge(pinchbench_settings: Settings) -> ModelSpec | None:
    """The judge of ``llm_judge`` and ``hybrid`` tasks, or None."""
    return pinchbench_settings.judge


@pytest.fixture
def pinchbench_result(
    request: pytest.FixtureRequest,
    pinchbench_settings: Settings,
    pinchbench_task: Task,
    pinchbench_environment: Environment,
    pinchbench_harness: Harness,
    pinchbench_judge: ModelSpec | None,
) -> Record:
    """Runs the attempt and gives its record; an attempt without a score is an error here."""
    from pytest_pinchbench.reports.terminal import why_invalid

    item = request.node
    assert isinstance(item, TaskItem)
    record = request.config.stash[RUN].attempt(
        item,
        pinchbench_task,
        pinchbench_settings,
        pinchbench_environment,
        pinchbench_harness,
        pinchbench_judge,
    )
    if record["metrics"]["score"] is None:
        raise AttemptInvalid(why_invalid(record))
    return record
