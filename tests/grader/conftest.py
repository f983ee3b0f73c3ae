"""Fixtures for grading: a judge's server, a sandbox, a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import JudgeServer

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.local import LocalEnvironment


@pytest.fixture
def judge_server() -> Iterator[JudgeServer]:
    server = JudgeServer()
    yield server
    server.close()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    opened = LocalEnvironment(EnvironmentSetup(recipe, "test-run", tmp_path / "data")).open(
        "a_task", labels={}, lifetime=60.0
    )
    yield opened
    opened.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "the workspace"
    folder.mkdir()
    return folder
