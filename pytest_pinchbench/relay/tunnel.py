"""A loopback port in a sandbox that leads to the relay, over the environment's own stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from pytest_pinchbench.environments.inside.forwarder import Link
from pytest_pinchbench.environments.sandbox import BOOT
from pytest_pinchbench.issues import SandboxFailure

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox

START_TIMEOUT = 60.0
"""Seconds for the forwarder to say which port it has."""


class Tunnel:
    """Carries connections from ``port`` in the sandbox to a port of this machine.

    Raises ``SandboxFailure`` where the forwarder does not start.
    """

    def __init__(self, sandbox: Sandbox, relay_port: int) -> None:
        source = files("pytest_pinchbench.environments.inside").joinpath("forwarder.py")
        program = source.read_bytes()
        self._stream = sandbox.open_stream(
            [sandbox.python, "-I", "-S", "-c", BOOT % len(program)], as_root=True
        )
        self._link = Link(
            self._stream.fileno(), self._stream.fileno(), address=("127.0.0.1", relay_port)
        )
        self._link.unsent += program
        self._ready = threading.Event()
        self._act: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._carry, name="relay-tunnel", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT) or not self._link.port:
            self.close()
            raise SandboxFailure(f"{sandbox.name}: cannot start the relay's forwarder")
        self.port = self._link.port

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def when_ended(self, act: Callable[[], None]) -> None:
        """Call ``act``, in a thread, when the tunnel has ended before :meth:`close`."""
        self._act = act
        if not self.is_open:
            act()

    def close(self) -> None:
        """End the forwarder and every connection. Idempotent."""
        self._act = lambda: None
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._stream.close()

    def _carry(self) -> None:
        try:
            self._link.run(self._ready.set)
        finally:
            self._ready.set()
            self._act()
