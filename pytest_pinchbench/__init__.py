"""Measure a language model as the model behind an OpenClaw agent, under pytest.

The names below are for other people's code: harnesses and environments of their own, fixtures,
programs that read results. A name is imported when it is first used.
"""

from __future__ import annotations

import os
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
    from pytest_pinchbench.results.records import Record
    from pytest_pinchbench.results.run_directory import RunResults, read_run
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task

_MODULES = {
    "environments": ("Environment", "EnvironmentSetup", "ExecResult", "Recipe", "Sandbox"),
    "harnesses": ("AgentRun", "Harness", "Usage"),
    "issues": ("Issue", "PinchBenchError"),
    "results.records": ("Record",),
    "results.run_directory": ("RunResults", "read_run"),
    "settings": ("ModelSpec", "Settings"),
    "suite.task_file": ("Task",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AgentRun",
    "Environment",
    "EnvironmentSetup",
    "ExecResult",
    "Harness",
    "Issue",
    "ModelSpec",
    "PinchBenchError",
    "Recipe",
    "Record",
    "RunResults",
    "Sandbox",
    "Settings",
    "Task",
    "Usage",
    "read_run",
]

# In a source checkout the grader and the recipes stand beside this package, and python -m pytest
# takes the checkout before what is installed.
if not os.path.isdir(os.path.join(__path__[0], "grader")):
    __path__.append(os.path.dirname(__path__[0]))


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
