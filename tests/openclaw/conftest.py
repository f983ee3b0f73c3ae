from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness_attempts import KEY, Attempt
from stand_in import StandIn

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.harnesses import DirectLine
from pytest_pinchbench.harnesses.openclaw import OpenClawHarness
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.settings.resolve import resolve
from pytest_pinchbench.suite.task_file import Task


@pytest.fixture
def settings_for(pytester: pytest.Pytester) -> Callable[..., Settings]:
    """``settings_for("--pinchbench-skip-bootstrap=yes", ...)``, with a data folder of its own."""

    def settings(*arguments: str) -> Settings:
        given = ["--pinchbench", "--pinchbench-env=local", *arguments]
        if not any(argument.startswith("--model") for argument in arguments):
            given.append("--model=some/model")
        if not any("data-dir" in argument for argument in arguments):
            given.append(f"--pinchbench-data-dir={pytester.path / 'data'}")
        config = pytester.parseconfig(*given)
        return resolve(config, {"MODEL_API_KEY": KEY})

    return settings


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    """``attempt(harness, task, timeout)``: in a fresh local sandbox, open until the test ends."""
    opened: list[Sandbox] = []
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    environment = LocalEnvironment(EnvironmentSetup(recipe, "run", tmp_path / "data"))

    def run(harness: OpenClawHarness, task: Task, timeout: float = 60.0) -> Attempt:
        harness.prepare(environment)
        sandbox = environment.open(task.id, labels={}, lifetime=600)
        opened.append(sandbox)
        workspace = f"{sandbox.workspace_root}/task"
        line = DirectLine(harness.settings.model, environment, timeout)
        sandbox.write({workspace: None, **harness.files(sandbox, task, workspace, line)})
        ended = harness.run(sandbox, task, workspace, line)
        return Attempt(ended, sandbox, Path(workspace), Path(sandbox.private_root, "openclaw"))

    yield run
    for sandbox in opened:
        sandbox.close()


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, sys.executable, "2026.9.6")


@pytest.fixture
def stand_in_harness(settings_for: Callable[..., Settings], stand_in: StandIn) -> OpenClawHarness:
    return OpenClawHarness(
        settings_for(
            "--pinchbench-model-base-url=http://127.0.0.1:9/v1",
            "--pinchbench-openclaw-install=preinstalled",
            f"--pinchbench-openclaw-binary={stand_in.path}",
        )
    )
