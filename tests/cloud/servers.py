"""The two fake clouds, each started once in a process that needs it, and pointed to.

The SDKs read the environment variables, and Modal's keeps the client that it made from them.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.environments import Environment, EnvironmentSetup, Sandbox

if TYPE_CHECKING:
    from tests.cloud.daytona_server import FakeDaytona
    from tests.cloud.modal_server import FakeModal


@functools.cache
def daytona() -> FakeDaytona:
    pytest.importorskip("daytona", reason="needs pytest-pinchbench[daytona]")
    from tests.cloud.daytona_server import FakeDaytona

    cloud = FakeDaytona().__enter__()
    atexit.register(cloud.__exit__)
    os.environ.update(DAYTONA_API_URL=cloud.url, DAYTONA_API_KEY=cloud.key)
    return cloud


@functools.cache
def modal() -> FakeModal:
    pytest.importorskip("modal", reason="needs pytest-pinchbench[modal]")
    from tests.cloud.modal_server import FakeModal

    cloud = FakeModal().__enter__()
    atexit.register(cloud.__exit__)
    os.environ.update(
        MODAL_SERVER_URL=cloud.url,
        MODAL_TOKEN_ID=cloud.token_id,
        MODAL_TOKEN_SECRET=cloud.token_secret,
    )
    return cloud


class OwnRoots:
    """An environment whose sandboxes get a workspace root each.

    A real sandbox has a file system of its own; those of the fakes share this machine's.
    """

    def __init__(
        self, factory: Callable[[EnvironmentSetup], Environment], setup: EnvironmentSetup
    ) -> None:
        self._factory = factory
        self._setup = setup
        self._environment = factory(setup)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def open(self, name: str, **order: Any) -> Sandbox:
        root = self._setup.recipe.workspace_root
        assert root is not None
        os.makedirs(root, exist_ok=True)
        own = replace(self._setup.recipe, workspace_root=tempfile.mkdtemp(dir=root))
        return self._factory(replace(self._setup, recipe=own)).open(name, **order)
