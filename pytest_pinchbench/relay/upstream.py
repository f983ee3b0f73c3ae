"""What goes to an endpoint: its URL, its key, the request's body and headers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pytest_pinchbench.relay.exchange import decoded

ANSWER_PATHS = ("/chat/completions", "/responses", "/messages")
# OpenClaw's own settings, which stand among a model's params and are not an endpoint's.
_AGENT_PARAMS = {"cacheRetention", "transport", "fastMode", "openaiWsWarmup", "thinking"}
_TOKEN_LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
_NOT_PASSED_ON = {
    *(b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive"),
    *(b"authorization", b"x-api-key", b"api-key", b"accept-encoding", b"expect", b"te"),
    *(b"trailer", b"upgrade", b"proxy-authorization"),
}


@dataclass(frozen=True)
class Endpoint:
    """A model's endpoint, as the relay reaches it."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    protocol: str = "openai-chat"
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Merged into the body of each request for an answer."""
    drop: tuple[str, ...] = ()
    """Fields of a body that the endpoint refuses."""
    price: Mapping[str, float] | None = None
    """Dollars a million tokens: ``input``, ``output``, ``cached``."""

    def url(self, path: str) -> str:
        """Return the URL for a path below ``/v1``; a query of the base URL is kept."""
        parts = urlsplit(self.base_url)
        base = parts.path.rstrip("/")
        if self.protocol == "anthropic":  # its clients add /v1 by themselves
            base = base.removesuffix("/v1") + "/v1"
        return parts._replace(path=base + path).geturl()

    def headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the agent's headers with the endpoint's key in the place of the token."""
        headers = [(name, value) for name, value in given if name.lower() not in _NOT_PASSED_ON]
        # the answer is read on its way, and an agent takes an uncompressed one in any case
        headers.append((b"accept-encoding", b"identity"))
        if self.api_key and self.protocol == "anthropic":
            headers.append((b"x-api-key", self.api_key.encode()))
        elif self.api_key:
            headers.append((b"authorization", b"Bearer " + self.api_key.encode()))
        return headers

    def cost(self, usage: Mapping[str, Any]) -> float | None:
        """Return the dollars of a request: the endpoint's own number, or by the price."""
        if usage["cost_usd"] is not None:
            return float(usage["cost_usd"])
        if self.price is None:
            return None
        price, cached = self.price, usage["cache_read_tokens"]
        fresh = (usage["input_tokens"] - cached) * price.get("input", 0.0)
        read = cached * price.get("cached", price.get("input", 0.0))
        written = usage["output_tokens"] * price.get("output", 0.0)
        return float(fresh + read + written) / 1e6


@dataclass(frozen=True)
class Body:
    """A request's body as it is sent, and what was done to it."""

    content: bytes
    asked_for_usage: bool
    """``stream_options.include_usage`` is the relay's own addition."""

    @classmethod
    def of(cls, endpoint: Endpoint, path: str, content: bytes, *, usage: bool) -> Body:
        """Make the body for an endpoint; unchanged bytes where nothing is to be changed."""
        body = decoded(content)
        if path not in ANSWER_PATHS or not isinstance(body, dict):
            return cls(content, False)
        changed = {name: value for name, value in body.items() if name not in endpoint.drop}
        params = {n: v for n, v in endpoint.params.items() if n not in _AGENT_PARAMS}
        extra = params.pop("extra_body", None)
        params |= extra if isinstance(extra, dict) else {}
        if _TOKEN_LIMITS & params.keys():
            changed = {n: v for n, v in changed.items() if n not in _TOKEN_LIMITS}
        changed |= params
        asked = False
        if usage and path == "/chat/completions" and body.get("stream"):
            options = changed.get("stream_options") or {}
            if isinstance(options, dict) and not options.get("include_usage"):
                changed["stream_options"] = {**options, "include_usage": True}
                asked = True
        if changed == body:
            return cls(content, False)
        return cls(json.dumps(changed, ensure_ascii=False).encode("utf-8", "surrogatepass"), asked)
