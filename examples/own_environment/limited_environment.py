"""An environment of one's own: local sandboxes whose processes have a limit of memory.

Install this folder (``pip install examples/own_environment``), write a recipe, ``small.yaml``::

    environment: limited
    options:
      memory_mb: 2048

and run ``pytest --pinchbench --pinchbench-recipe small.yaml``. An environment that is not local
implements the protocols ``Environment`` and ``Sandbox`` in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_pinchbench import EnvironmentSetup, ExecResult, Sandbox
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.readers import whole_number

WITH_LIMIT = 'ulimit -v "$1" && shift && exec "$@"'


class LimitedEnvironment(LocalEnvironment):
    kind = "limited"

    def __init__(self, setup: EnvironmentSetup) -> None:
        options = read_options(setup.recipe, {"memory_mb": whole_number(1)})
        self._kilobytes = options.get("memory_mb", 4096) * 1024
        plain = dataclasses.replace(setup.recipe, options={})  # a local sandbox has no options
        super().__init__(dataclasses.replace(setup, recipe=plain))

    def open(self, name: str, *, labels: Mapping[str, str], lifetime: float) -> Any:
        return _Limited(super().open(name, labels=labels, lifetime=lifetime), self._kilobytes)


class _Limited:
    """A sandbox that runs every command with a limit."""

    def __init__(self, sandbox: Sandbox, kilobytes: int) -> None:
        self._sandbox = sandbox
        self._prefix = ["sh", "-c", WITH_LIMIT, "sh", str(kilobytes)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        return self._sandbox.exec([*self._prefix, *argv], **options)
