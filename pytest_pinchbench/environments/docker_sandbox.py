"""One container as a sandbox."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docker import errors

from pytest_pinchbench.environments import DOWNLOAD_LIMIT
from pytest_pinchbench.environments.docker_engine import FAULTS, Engine
from pytest_pinchbench.environments.docker_stream import carry_stream, converse
from pytest_pinchbench.environments.inside import transfer
from pytest_pinchbench.environments.sandbox import (
    READ_LIMIT,
    Bounded,
    CommandLost,
    Exchange,
    ExecSandbox,
)
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure

_RUNS = "its container still runs"


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
        self._frozen = False
        self._on_close = on_close

    def set_up(self) -> None:
        """Make the folders, and learn where the container's Python is."""
        python = io.BytesIO()
        folders = [self.workspace_root, self.private_root]
        self._transfer("make its folders", "set_up", folders, stdout=python, as_root=True)
        self.python = os.fsdecode(python.getvalue())

    def stop_processes(self) -> None:
        if self._frozen:
            return
        try:
            self._stop("everything", as_root=True)  # everything in the container is ours
        except SandboxFailure:
            if not self._lives():
                raise
            try:  # root without capabilities may not end another user's processes
                self._stop("everything", as_root=False)
            except SandboxFailure:  # an agent that is root can have removed Python
                self._pause()

    def freeze(self) -> None:
        if not self._frozen:
            try:
                self._pause()
            except SandboxFailure:  # an engine without the right to
                self._stop("everything", as_root=True)

    def _pause(self) -> None:
        with self._engine.translated(f"{self.name} cannot be paused"):
            self._engine.api.pause(self.name)
        self._frozen = True

    def changed_folders(self) -> list[str]:
        with self._engine.translated(f"{self.name} cannot be compared with its image"):
            found = {one["Path"] for one in self._engine.api.diff(self.name) or ()}
            mounts = self._engine.api.inspect_container(self.name)["Mounts"]
        files = found - {posixpath.dirname(path) for path in found}
        files -= {one["Destination"] for one in mounts}
        changed = (path for path in files if not path.startswith(self.private_root))
        return sorted({posixpath.dirname(path) for path in changed})

    def read(self, path: str) -> bytes:
        if not self._frozen:
            return super().read(path)
        with tempfile.TemporaryDirectory() as folder:
            self.download(path, Path(folder, "file"), limit=READ_LIMIT)
            return Path(folder, "file").read_bytes()

    def download(
        self,
        remote: str,
        local: Path,
        *,
        only: Sequence[str] = (),
        limit: int = DOWNLOAD_LIMIT,
    ) -> None:
        if not self._frozen:
            try:
                return super().download(remote, local, only=only, limit=limit)
            except CommandLost:
                self.stop_processes()
        for name in only or ("",):
            found = self._copy(posixpath.join(remote, name).rstrip("/"), local / name, limit)
            if not (found or only):
                raise FileNotFoundError(2, "not there", remote)
        return None

    def _copy(self, remote: str, local: Path, limit: int) -> bool:
        """Copy a file or a folder out by the engine alone. Return whether it is there."""
        with self._engine.translated(f"{self.name}: could not copy {remote} out"):
            try:
                pieces, _ = self._engine.api.get_archive(self.name, remote)
            except errors.NotFound:
                return False
            with tempfile.TemporaryFile() as packed:
                bounded = Bounded(packed, limit)
                for piece in pieces:
                    bounded.write(piece)
                packed.seek(0)
                transfer.unpack(str(local), packed, packed)
        return True

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
            with contextlib.suppress(SandboxFailure, *FAULTS):
                if self._frozen:
                    self._engine.api.unpause(self.name)
                    self._frozen = False
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
        if self._frozen:
            raise CommandLost(f"{self.name}: it was stopped for good", b"", False)
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

    def _lives(self) -> bool:
        return self._why_lost() == _RUNS

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
        return _RUNS


def _close(connection: Any, channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    # first what reads from it: Python 3.13 says of each left open that its file is closed
    for part in (getattr(connection, "_response", None), connection):
        if part is not None:
            part.close()
    channel.close()
