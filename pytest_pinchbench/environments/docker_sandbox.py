"""One container as a sandbox."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from docker import errors

from pytest_pinchbench.environments.docker_engine import FAULTS, Engine
from pytest_pinchbench.environments.docker_stream import carry_stream, converse
from pytest_pinchbench.environments.sandbox import Exchange, ExecSandbox
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure


class DockerSandbox(ExecSandbox):
    def __init__(
        self,
        name: str,
        engine: Engine,
        workspace_root: str,
        kept: bool,
        on_close: Callable[[DockerSandbox], None],
    ) -> None:
        super().__init__(name)
        self.workspace_root = workspace_root
        self.private_root = f"/var/tmp/pinchbench-{secrets.token_hex(8)}"
        self.python = "python3"
        self._engine = engine
        self._kept = kept
        self._on_close = on_close

    def set_up(self) -> None:
        """Make the folders, and learn where the container's Python is."""
        python = io.BytesIO()
        folders = [self.workspace_root, self.private_root]
        self._transfer("make its folders", "set_up", folders, stdout=python, as_root=True)
        self.python = os.fsdecode(python.getvalue())

    def stop_processes(self) -> None:
        # everything in the container is ours
        self._stop("everything", as_root=True)

    def interrupt(self) -> None:
        self._stop(self._cookie, as_root=True)

    def remove(self) -> str:
        """Remove the container. Returns why that failed, or nothing."""
        try:
            self._engine.api.remove_container(self.name, force=True, v=True)
        except errors.APIError as error:
            if error.status_code not in (404, 409):  # gone, or going
                return self._engine.explain(error)
        except (*FAULTS, EnvironmentUnavailable) as error:
            return self._engine.explain(error)
        return ""

    def close(self) -> None:
        if self._closed:
            return
        if self._kept:
            with contextlib.suppress(SandboxFailure):
                self.stop_processes()
        self._closed = True
        self._on_close(self)

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        connection, channel = self._start(exchange.command, as_root)
        try:
            converse(channel, exchange)
        finally:
            _close(connection, channel)

    def open_stream(self, argv: Sequence[str], *, as_root: bool = False) -> socket.socket:
        connection, channel = self._start(argv, as_root)
        ours, theirs = socket.socketpair()

        def carry() -> None:
            try:
                carry_stream(channel, theirs)
            finally:
                _close(connection, channel)
                theirs.close()

        threading.Thread(target=carry, name="docker-stream", daemon=True).start()
        return ours

    def _start(self, argv: Sequence[str], as_root: bool) -> tuple[Any, socket.socket]:
        """Start a program. Return its connection, and the socket below that."""
        api = self._engine.api
        with self._engine.translated(f"{self.name}: no command can be started"):
            try:
                command = api.exec_create(
                    self.name, list(argv), stdin=True, user="0:0" if as_root else ""
                )
                connection: Any = api.exec_start(command["Id"], socket=True)
            except errors.APIError as error:
                if error.status_code in (404, 409):  # no such container, or not running
                    raise SandboxFailure(f"{self.name} is lost: {self._why_lost()}") from error
                raise
        # under what the SDK gives lies a socket, but for TLS and SSH: there it is one itself
        return connection, getattr(connection, "_sock", connection)

    def _why_lost(self) -> str:
        try:
            # a daemon that removes a container says so a moment after its processes have ended
            for _ in range(20):
                state = self._engine.api.inspect_container(self.name)["State"]
                if not state["Running"]:
                    break
                time.sleep(0.1)
        except errors.NotFound:
            return "its container is gone (somebody removed it, or its lifetime was over)"
        except (*FAULTS, EnvironmentUnavailable) as error:
            return self._engine.explain(error)
        if state.get("OOMKilled"):
            return "its container ran out of memory"
        if not state["Running"]:
            return f"its container has ended (exit code {state['ExitCode']})"
        return "its container still runs"


def _close(connection: Any, channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    # first what reads from it: Python 3.13 says of each left open that its file is closed
    for part in (getattr(connection, "_response", None), connection):
        if part is not None:
            part.close()
    channel.close()
