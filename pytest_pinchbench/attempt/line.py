"""An attempt's connection with its model or judge: through the relay, or direct."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_pinchbench.harnesses import AgentRun, Requests, Usage, sum_usage
from pytest_pinchbench.issues import SandboxFailure
from pytest_pinchbench.relay.client import GrantClient, RelayLost
from pytest_pinchbench.relay.tunnel import Tunnel

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.settings import ModelSpec

_HARD_MARGIN = 60.0
"""Seconds beyond every limit of the relay, after which a turn is stopped without it."""


def reaches_relay(environment: Environment) -> bool:
    """Return whether sandboxes of this kind can be connected with the relay."""
    return environment.on_this_machine or getattr(environment, "has_streams", False)


class RelayedLine:
    """See :class:`~pytest_pinchbench.harnesses.Line`. A context manager: at its end the token
    is worthless, and the tunnel is closed. Raises ``SandboxFailure``.
    """

    is_relayed = True

    def __init__(
        self, sandbox: Sandbox, environment: Environment, spec: ModelSpec, grant: GrantClient
    ) -> None:
        self._sandbox = sandbox
        self._grant = grant
        self._ended = ""
        self._watched = False
        self._last: Requests | None = None
        try:
            self._tunnel = None if environment.on_this_machine else Tunnel(sandbox, grant.port)
        except BaseException:
            grant.close()
            raise
        port = self._tunnel.port if self._tunnel else grant.port
        # OpenClaw derives what an endpoint can do from host names in its URL
        host = urlsplit(spec.base_url or "").hostname
        url = f"http://127.0.0.1:{port}/{host}/v1"
        self.model = replace(spec, base_url=url, api_key=grant.token)

    def __enter__(self) -> RelayedLine:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RelayLost):
            self._grant.close()
        if self._tunnel:
            self._tunnel.close()

    def begin_turn(self, patience: float) -> float:
        if self._ended:
            return 0.0
        self._grant.begin_turn(patience)
        if not self._watched:
            self._watched = True
            self._grant.when_ended(self._stop)
            if self._tunnel:
                self._tunnel.when_ended(lambda: self._stop("tunnel_lost"))
        return self._grant.hard_limit + _HARD_MARGIN

    def end_turn(self, seconds: float) -> Requests:
        try:
            state = self._grant.end_turn()
        except RelayLost:
            self._ended = self._ended or "relay_lost"
            state = {"heard": False, "failure": "", "ended": ""}
        # a limit that was met on the way counts, though the agent was faster
        ended = self._ended or state["ended"]
        self._last = Requests(state["heard"], state["failure"], ended)
        return self._last

    def _stop(self, reason: str) -> None:
        """End the attempt, in a thread of the relay's."""
        self._ended = self._ended or reason
        with contextlib.suppress(SandboxFailure):
            self._sandbox.interrupt()

    def close(self, run: AgentRun) -> AgentRun:
        """Close the line. Return the run with the requests, their usage and their timing."""
        try:
            state = self._grant.close()
        except RelayLost:
            return run
        exchanges = tuple(state["exchanges"])
        usage = usage_of(exchanges) if exchanges else run.usage
        return replace(run, usage=usage, requests=exchanges, timing=state["seconds"])


def usage_of(exchanges: tuple[dict[str, Any], ...]) -> Usage:
    """Add up what the endpoint counted; a request without a count is one without tokens."""
    names = [name for name in Usage.__dataclass_fields__ if name != "request_count"]
    known = [
        Usage(**{name: one["usage"][name] for name in names if name in one["usage"]})
        for one in exchanges
        if one["usage"]
    ]
    return replace(sum_usage(known), request_count=sum(one["is_answer"] for one in exchanges))
