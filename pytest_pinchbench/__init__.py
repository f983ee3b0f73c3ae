"""Measure a language model as the model behind an OpenClaw agent, under pytest.

The names in ``__all__`` are for conftest.py files, for own kinds of environments and harnesses,
and for programs that read results. Each is imported when it is first asked for.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_pinchbench.environments import (
        Environment,
        EnvironmentSetup,
        ExecResult,
        Recipe,
        Sandbox,
    )
    from pytest_pinchbench.harnesses import AgentRun, Harness, Usage
    from pytest_pinchbench.issues import Issue, PinchBenchError
    from pytest_pinchbench.results.finished_run import FinishedRun, read_run
    from pytest_pinchbench.results.records import Record
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task

__all__ = [
    "AgentRun",
    "Environment",
    "EnvironmentSetup",
    "ExecResult",
    "FinishedRun",
    "Harness",
    "Issue",
    "ModelSpec",
    "PinchBenchError",
    "Recipe",
    "Record",
    "Sandbox",
    "Settings",
    "Task",
    "Usage",
    "read_run",
]

_HOMES = {
    "environments": ("Environment", "EnvironmentSetup", "ExecResult", "Recipe", "Sandbox"),
    "harnesses": ("AgentRun", "Harness", "Usage"),
    "issues": ("Issue", "PinchBenchError"),
    "results.finished_run": ("FinishedRun", "read_run"),
    "results.records": ("Record",),
    "settings": ("ModelSpec", "Settings"),
    "suite.task_file": ("Task",),
}

# In a source checkout the grader and the recipes stand beside this package, and python -m pytest
# takes the checkout before what is installed.
if not os.path.isdir(os.path.join(__path__[0], "grader")):
    __path__.append(os.path.dirname(__path__[0]))


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
