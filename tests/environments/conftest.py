"""The kinds of environment that the conformance suite runs against: one entry a kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import runner_image

from pytest_pinchbench.environments import Environment, EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.bubblewrap import BubblewrapEnvironment, why_unusable
from pytest_pinchbench.environments.daytona import DaytonaEnvironment
from pytest_pinchbench.environments.docker import DockerEnvironment
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.environments.modal import ModalEnvironment
from tests.cloud import servers

MakeEnvironment = Callable[..., Environment]


def local(folder: Path, **setup: Any) -> Environment:
    recipe = {"name": "local", "environment": "local", "workspace_root": str(folder / "local")}
    return _environment(LocalEnvironment, folder, recipe, **setup)


def bubblewrap(folder: Path, **setup: Any) -> Environment:
    if reason := why_unusable():
        pytest.skip(reason)
    recipe = {"name": "bubblewrap", "environment": "bubblewrap"}
    return _environment(BubblewrapEnvironment, folder, recipe, **setup)


def docker(folder: Path, **setup: Any) -> Environment:
    image = runner_image.base()
    recipe = {"name": "docker", "environment": "docker", "image": image}
    return _environment(DockerEnvironment, folder, recipe, **setup)


def daytona(folder: Path, **setup: Any) -> Environment:
    servers.daytona()
    recipe = {"name": "daytona", "environment": "daytona", "image": "image"}
    recipe["workspace_root"] = str(folder / "daytona")
    factory = partial(servers.OwnRoots, DaytonaEnvironment)
    return _environment(factory, folder, recipe, **setup)


def modal(folder: Path, **setup: Any) -> Environment:
    servers.modal()
    recipe = {"name": "modal", "environment": "modal", "image": "image"}
    recipe["workspace_root"] = str(folder / "modal")
    factory = partial(servers.OwnRoots, ModalEnvironment)
    return _environment(factory, folder, recipe, **setup)


KINDS = [
    pytest.param(
        local, id="local", marks=pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
    ),
    pytest.param(bubblewrap, id="bubblewrap", marks=pytest.mark.slow),
    pytest.param(docker, id="docker", marks=pytest.mark.docker),
    pytest.param(daytona, id="daytona", marks=pytest.mark.slow),
    pytest.param(modal, id="modal", marks=pytest.mark.slow),
]


def _environment(
    factory: Callable[[EnvironmentSetup], Environment],
    folder: Path,
    recipe: dict[str, Any],
    *,
    run_id: str = "test",
    keep: bool = False,
    say: Callable[[str], None] = print,
    **changes: Any,
) -> Environment:
    """``changes`` are keys of the recipe."""
    return factory(
        EnvironmentSetup(
            recipe=Recipe(**{**recipe, **changes}),
            run_id=run_id,
            data_dir=folder / "data",
            keep=keep,
            say=say,
        )
    )


@pytest.fixture(params=KINDS)
def make_environment(request: pytest.FixtureRequest, tmp_path: Path) -> MakeEnvironment:
    """``make_environment(options={...}, keep=True)``: an environment of each kind."""
    try:
        request.param(tmp_path)
    except runner_image.Missing as missing:
        pytest.skip(str(missing))
    return lambda **changes: request.param(tmp_path, **changes)


@pytest.fixture
def environment(make_environment: MakeEnvironment) -> Environment:
    return make_environment()


@pytest.fixture
def open_sandbox(environment: Environment) -> Iterator[Callable[[], Sandbox]]:
    """Opens sandboxes, and closes them."""
    opened: list[Sandbox] = []

    def open_one() -> Sandbox:
        labels = {"run": "test", "task": "task_conformance"}
        opened.append(environment.open("task_conformance", labels=labels, lifetime=300))
        return opened[-1]

    yield open_one
    for sandbox in opened:
        sandbox.close()


@pytest.fixture
def sandbox(open_sandbox: Callable[[], Sandbox]) -> Sandbox:
    return open_sandbox()
