"""The relay as seen from pytest: its process, and the grants of attempts."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_pinchbench.issues import SandboxFailure

WAITING_LIMIT = 600.0
"""Seconds for which the clock of an attempt may stand still, in all."""
STARTUP_LIMIT = 180.0
"""Seconds from a turn's start to its first request, times the timeout multiplier."""


class RelayLost(SandboxFailure):
    """The relay's process does not answer. FATAL for the attempt."""


class RelayProcess:
    """The relay's process; ends with :meth:`close`, or with the process that started it."""

    def __init__(self, endpoints: Mapping[str, Mapping[str, Any]], **limits: Any) -> None:
        self.admin = secrets.token_hex(24)
        order = {"endpoints": endpoints, "admin": self.admin, **limits}
        # connections wait in its queue until the process is there, and nobody waits for that
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
            self.port: int = listening.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest_pinchbench.relay", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for pytest alone
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class RelayClient:
    """Opens grants; in every process that runs attempts."""

    def __init__(self, port: int, admin: str) -> None:
        self.port = port
        self.admin = admin

    def open(
        self,
        label: str,
        endpoint: str,
        *,
        seconds: float,
        startup: float = STARTUP_LIMIT,
        waiting: float = WAITING_LIMIT,
        patience: float = 120.0,
        connect_patience: float = 3600.0,
        max_requests: int | None = None,
        record: bool = False,
        replay: Sequence[Mapping[str, Any]] | None = None,
        paths: Mapping[str, str] | None = None,
    ) -> GrantClient:
        """Open a grant. Times are seconds. Raises ``RelayLost``.

        ``patience`` bounds how long one request is sent again while the endpoint is busy or out
        of order, ``connect_patience`` the same where its connections fail.

        ``replay``: a recording that answers in the endpoint's place; ``paths`` maps its paths to
        those of now.
        """
        answer = self.call(
            "open",
            label=label,
            endpoint=endpoint,
            seconds=seconds,
            startup=startup,
            waiting=waiting,
            patience=patience,
            connect_patience=connect_patience,
            max_requests=max_requests,
            record=record,
            replay=replay,
            paths=paths or {},
        )
        return GrantClient(self, answer["token"], seconds + startup + waiting)

    def spent(self) -> float:
        """Return the dollars that the run has cost so far, as far as prices are known."""
        return float(self.call("spent")["usd"])

    def call(self, action: str, *, timeout: float | None = 60.0, **order: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"x-pinchbench-admin": self.admin}
            connection.request("POST", f"/pinchbench/{action}", json.dumps(order), headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RelayLost(
                f"the relay does not answer ({error or type(error).__name__}). "
                "--pinchbench-relay no does without it"
            ) from None
        finally:
            connection.close()
        if response.status != 200:
            raise RelayLost(f"the relay refuses {action!r}: {answer}")
        return answer


class GrantClient:
    """One grant, as the process that runs the attempt uses it."""

    def __init__(self, relay: RelayClient, token: str, hard_limit: float) -> None:
        self.token = token
        self.hard_limit = hard_limit
        """Seconds that the attempt's turn can take at most, whatever the clock says."""
        self.port = relay.port
        self._relay = relay
        self._closed: dict[str, Any] | None = None

    def begin_turn(self, patience: float) -> None:
        """Start the turn's start-up; ``patience`` bounds what one request may wait (seconds)."""
        self._relay.call("begin_turn", token=self.token, patience=patience)

    def end_turn(self) -> dict[str, Any]:
        """Stop the clock. Return what is known of the requests so far."""
        return self._relay.call("end_turn", token=self.token)

    def when_ended(self, act: Callable[[str], None]) -> None:
        """Call ``act`` in a thread, with the reason, when a limit ends the attempt."""

        def watch() -> None:
            try:
                reason = self._relay.call("wait", timeout=None, token=self.token)["ended"]
            except RelayLost:
                reason = "relay_lost"
            if reason != "closed":
                act(reason)

        threading.Thread(target=watch, name="relay-clock", daemon=True).start()

    def close(self) -> dict[str, Any]:
        """End the grant. Return its last state with its ``exchanges``. Idempotent."""
        if self._closed is None:
            self._closed = self._relay.call("close", token=self.token)
        return self._closed
