"""The two clouds in one vocabulary, so that what holds for both is one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.cloud import CloudEnvironment, CloudSandbox
from pytest_pinchbench.environments.daytona import DaytonaEnvironment
from pytest_pinchbench.environments.modal import ModalEnvironment
from tests.cloud import servers


@dataclass
class Cloud:
    """A running fake, environments that use it, and the faults that it can be told to have."""

    name: str
    server: Any
    factory: Callable[[EnvironmentSetup], CloudEnvironment]
    folder: Path
    operations: dict[str, str]
    """What is done, in the server's words: ask, create, run, end."""
    faults: dict[str, Any]
    """``refused`` (the key), ``broken``, ``busy`` (for a second), ``cut`` off before it was
    done, done, but its answer ``lost``, and ``impossible``."""
    sdk_tries: int
    """How often the SDK itself tries what meets a passing fault."""
    said: list[str] = field(default_factory=list)

    def environment(
        self, *, keep: bool = False, run_id: str = "run-7", **recipe: Any
    ) -> CloudEnvironment:
        recipe = {
            "name": self.name,
            "environment": self.name,
            "image": "registry.example.com/image:1",
            "workspace_root": str(self.folder / "workspace"),
            **recipe,
        }
        return self.factory(
            EnvironmentSetup(
                recipe=Recipe(**recipe),
                run_id=run_id,
                data_dir=self.folder / "data",
                keep=keep,
                say=self.said.append,
            )
        )

    def open(self, environment: CloudEnvironment | None = None) -> CloudSandbox:
        return open_one(environment or self.environment())

    def fail(self, what: str, *faults: str) -> None:
        self.server.script.fail(self.operations[what], *(self.faults[name] for name in faults))

    def count(self, what: str) -> int:
        calls: int = self.server.script.count(self.operations[what])
        return calls


def open_one(environment: CloudEnvironment, lifetime: float = 300.0) -> CloudSandbox:
    labels = {"run": "run-7", "task": "task_00_sanity"}
    return environment.open("task_00_sanity", labels=labels, lifetime=lifetime)


def make_daytona(folder: Path) -> Cloud:
    server = servers.daytona()
    from tests.cloud.daytona_server import HTTPFault

    return Cloud(
        "daytona",
        server,
        DaytonaEnvironment,
        folder,
        {"ask": "list", "create": "create", "run": "execute", "end": "delete"},
        {
            "refused": HTTPFault(401, "Invalid credentials"),
            "broken": HTTPFault(503, "no upstream"),
            "busy": HTTPFault(429, "Too many requests", {"Retry-After": "1"}),
            "cut": HTTPFault(),
            "lost": HTTPFault(after=True),
            "impossible": HTTPFault(400, "CPU request 64 exceeds the maximum"),
        },
        sdk_tries=1,
    )


def make_modal(folder: Path) -> Cloud:
    server = servers.modal()
    from grpclib import Status

    from tests.cloud.modal_server import RPCFault

    return Cloud(
        "modal",
        server,
        ModalEnvironment,
        folder,
        {
            "ask": "AppGetOrCreate",
            "create": "SandboxCreateV2",
            "run": "TaskExecStart",
            "end": "SandboxTerminateV2",
        },
        {
            "refused": RPCFault(Status.UNAUTHENTICATED, "Token ID or secret is invalid"),
            "broken": RPCFault(Status.UNAVAILABLE, "no upstream"),
            "busy": RPCFault(Status.RESOURCE_EXHAUSTED, "Too many requests", retry_after=1.0),
            "cut": RPCFault(),
            "lost": RPCFault(after=True),
            "impossible": RPCFault(Status.INVALID_ARGUMENT, "CPU request 64 exceeds the maximum"),
        },
        sdk_tries=4,
    )


def _cleared(cloud: Cloud) -> Iterator[Cloud]:
    cloud.server.script.clear()
    cloud.server.created.clear()
    yield cloud
    cloud.server.script.clear()
    for machine in cloud.server.open():
        cloud.server.remove(machine)


@pytest.fixture(params=[make_daytona, make_modal], ids=["daytona", "modal"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    yield from _cleared(request.param(tmp_path))


@pytest.fixture
def daytona(tmp_path: Path) -> Iterator[Cloud]:
    yield from _cleared(make_daytona(tmp_path))


@pytest.fixture
def modal(tmp_path: Path) -> Iterator[Cloud]:
    yield from _cleared(make_modal(tmp_path))
