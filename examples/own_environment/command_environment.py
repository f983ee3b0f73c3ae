"""A kind of sandbox that runs every command behind one of yours: ``nice``, ``systemd-run``, ...

``pip install ./examples/own_environment``, then
``pytest --pinchbench --pinchbench-recipe slow.yaml`` with a recipe like::

    environment: command
    options: {prefix: [nice, -n, "10"]}

A kind that starts programs in its own way (``ssh``, another container engine) looks the same:
:class:`~pytest_pinchbench.environments.sandbox.ExecSandbox` makes the whole protocol of one
method, :meth:`CommandSandbox._talk`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from pytest_pinchbench import EnvironmentSetup
from pytest_pinchbench.environments.local import converse
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.environments.sandbox import Exchange, ExecSandbox
from pytest_pinchbench.readers import texts


class CommandEnvironment:
    """See :class:`pytest_pinchbench.Environment`."""

    kind = "command"
    on_this_machine = True
    has_streams = False

    def __init__(self, setup: EnvironmentSetup) -> None:
        options = read_options(setup.recipe, {"prefix": texts})
        self._prefix = list(options.get("prefix", ()))
        self._variables = setup.recipe.variables("PATH", "LANG")

    def prepare(self) -> None:
        """Nothing has to be fetched."""

    def open(self, name: str, *, labels: Mapping[str, str], lifetime: float) -> CommandSandbox:
        return CommandSandbox(name, self._prefix, self._variables)

    def image_id(self) -> str:
        return f"command-{sys.version}"

    def shared_folder(self, name: str) -> None:
        return None

    def url_inside(self, url: str) -> str:
        return url


class CommandSandbox(ExecSandbox):
    def __init__(self, name: str, prefix: list[str], variables: Mapping[str, str]) -> None:
        super().__init__(name)
        self._folder = tempfile.mkdtemp(prefix="command-")
        self._prefix = prefix
        self._environ = {**variables, "HOME": self._folder}
        self.workspace_root = os.path.join(self._folder, "workspace")
        self.private_root = os.path.join(self._folder, "private")
        self.python = sys.executable
        for folder in (self.workspace_root, self.private_root):
            os.mkdir(folder)

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        with subprocess.Popen(
            [*self._prefix, *exchange.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ,
            bufsize=0,
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            converse((process.stdin, process.stdout, process.stderr), exchange)

    def close(self) -> None:
        if not self._closed:
            self.stop_processes()
            self._closed = True
            shutil.rmtree(self._folder, ignore_errors=True)
