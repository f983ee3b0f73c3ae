"""The right of one attempt to ask an endpoint: its token, its clock, its exchanges."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from pytest_pinchbench.relay.exchange import Exchange
from pytest_pinchbench.relay.replay import Replay


@dataclass
class Clock:
    """The clock of an attempt, in seconds.

    It starts with the first request of each turn: an agent's start-up has a limit of its own.
    It stands still while every open request waits in the relay.
    """

    limit: float
    startup_limit: float
    waiting_limit: float
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("startup", "waiting", "answering", "own"), 0.0)
    )
    open: int = 0
    held: int = 0
    _phase: str = ""
    """``startup`` from a turn's beginning to its first request, then ``turn``."""
    _since: float = 0.0
    _startup: float = 0.0

    def _state(self) -> str:
        if self._phase != "turn":
            return self._phase
        if self.open and self.held == self.open:
            return "waiting"
        return "answering" if self.open else "own"

    def advance(self, now: float) -> None:
        """Count the time since the last call; to be called before anything changes."""
        state = self._state()
        if state:
            self.seconds[state] += now - self._since
            self._startup += now - self._since if state == "startup" else 0.0
        self._since = now

    def begin_turn(self, now: float) -> None:
        self.advance(now)
        self._phase, self._startup = "startup", 0.0

    def end_turn(self, now: float) -> None:
        self.advance(now)
        self._phase = ""

    def request(self, now: float) -> None:
        self.advance(now)
        self.open += 1
        if self._phase == "startup":
            self._phase = "turn"

    def expires(self, now: float) -> tuple[str, float]:
        """Return which limit is met next, and in how many seconds."""
        self.advance(now)
        state = self._state()
        if state == "startup":
            return "agent_starved", self.startup_limit - self._startup
        if state == "waiting":
            return "endpoint_waiting", self.waiting_limit - self.seconds["waiting"]
        if state:
            return "time", self.limit - self.seconds["answering"] - self.seconds["own"]
        return "", float("inf")


@dataclass
class Grant:
    """An attempt's access to one endpoint, known by its token."""

    label: str
    endpoint: str
    """``model`` or ``judge``."""
    clock: Clock
    patience: float
    """Seconds for which one request is tried again while the endpoint is out of order."""
    max_requests: int | None = None
    token: str = field(default_factory=lambda: f"pinchbench-{secrets.token_hex(24)}")
    connect_patience: float = float("inf")
    """As ``patience``, for connections that fail."""
    record: bool = False
    replay: Replay | None = None
    recording: list[dict[str, Any]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    ended: str = ""
    """Why the attempt has to end: a limit of the clock, ``task_budget``, ``run_budget``."""
    heard: bool = False
    patience_left: float = 0.0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.patience_left = self.patience

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self.changed.set()

    async def wait(self) -> str:
        """Return why the attempt has to end, when it has to."""
        while not self.ended:
            self.changed.clear()
            reason, left = self.clock.expires(time.monotonic())
            if left <= 0:
                self.end(reason)
                break
            timeout = None if left == float("inf") else left
            try:
                await asyncio.wait_for(self.changed.wait(), timeout)
            except asyncio.TimeoutError:
                continue
        return self.ended

    def state(self) -> dict[str, Any]:
        """Return what is known of the attempt's requests so far."""
        self.clock.advance(time.monotonic())
        answers = [one for one in self.exchanges if one.is_answer and not one.abandoned]
        ended = [one for one in answers if one.end is not None]
        last = ended[-1] if ended else None
        return {
            "ended": self.ended,
            "heard": self.heard,
            "requests": len(answers),
            "failure": last.error if last else "",
            "failure_status": last.status if last and last.error else None,
            "seconds": {name: round(value, 3) for name, value in self.clock.seconds.items()},
        }
