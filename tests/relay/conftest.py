from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from raw_endpoint import Play, RawEndpoint

from pytest_pinchbench.relay.client import GrantClient, RelayClient, RelayProcess

PATHS = {
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
    "anthropic": "/messages",
}


@dataclass
class Relayed:
    """A relay before an endpoint, and a grant to ask it."""

    endpoint: RawEndpoint
    process: RelayProcess
    client: RelayClient
    grant: GrantClient
    protocol: str

    def post(
        self, body: Any, *, path: str = "", token: str = "", timeout: float = 30, **headers: str
    ) -> http.client.HTTPResponse:
        """Send a request as an agent does; the response is yet to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.client.port, timeout=timeout)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"authorization": f"Bearer {token or self.grant.token}", **headers}
        connection.request("POST", f"/v1{path or PATHS[self.protocol]}", content, given)
        return connection.getresponse()

    def exchanges(self) -> list[dict[str, Any]]:
        """End the grant; what was exchanged."""
        found: list[dict[str, Any]] = self.grant.close()["exchanges"]
        return found


@pytest.fixture
def relayed() -> Iterator[Callable[..., Relayed]]:
    """``relayed(play, ..., protocol=, endpoint fields, limits, grant limits)``."""
    with contextlib.ExitStack() as stack:

        def start(
            *plays: Play,
            protocol: str = "openai-chat",
            url: str = "",
            endpoint: dict[str, Any] | None = None,
            limits: dict[str, Any] | None = None,
            **grant: Any,
        ) -> Relayed:
            raw = stack.enter_context(RawEndpoint(list(plays)))
            spec = {"base_url": url or raw.url, "api_key": "real-key", "protocol": protocol}
            process = RelayProcess({"model": {**spec, **(endpoint or {})}}, **(limits or {}))
            stack.callback(process.close)
            client = RelayClient(process.port, process.admin)
            opened = client.open("task", "model", **{"seconds": 60.0, "patience": 5.0, **grant})
            return Relayed(raw, process, client, opened, protocol)

        yield start
