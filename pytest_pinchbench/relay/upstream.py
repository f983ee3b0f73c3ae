"""What goes to an endpoint: its URL, its key, the request's body and headers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from pytest_pinchbench.relay.exchange import Exchange, decoded, error_words

Scope = Mapping[str, Any]

ANSWER_PATHS = ("/chat/completions", "/responses", "/messages")
# OpenClaw's own settings, which stand among a model's params and are not an endpoint's.
_AGENT_PARAMS = {"cacheRetention", "transport", "fastMode", "openaiWsWarmup", "thinking"}
_TOKEN_LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
_NOT_PASSED_ON = {
    *(b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive"),
    *(b"authorization", b"x-api-key", b"api-key", b"accept-encoding", b"expect", b"te"),
    *(b"trailer", b"upgrade", b"proxy-authorization"),
}


PASSING = (429, 502, 503, 529)
"""Statuses that may change soon: a request is sent again after one, for a while."""
LONGEST_WAIT = 60.0
"""Seconds between two tries where the endpoint does not ask for more."""
CONNECT_TIMEOUT = 30.0
LARGEST_REPORT = 1 << 20
"""Bytes of a failed answer that are kept."""
# a 429 that no patience mends
_NO_MONEY = re.compile(r"insufficient_quota|billing|credit|exceeded your current quota", re.I)
_HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding", b"trailer", b"te", b"upgrade")


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


class Unanswered(Exception):
    """The endpoint gave no answer; ``words`` says why, ``after`` when to ask again (seconds)."""

    def __init__(
        self, words: str, status: int | None, after: float | None, reply: Reply | None
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.after = after
        self.reply = reply


class Reply:
    """An answer that has begun: its status, its headers, and its body as it comes."""

    def __init__(
        self, status: int, headers: list[tuple[bytes, bytes]], chunks: AsyncIterator[bytes]
    ) -> None:
        self.status = status
        self.headers = headers
        self.chunks = chunks

    @classmethod
    def recorded(cls, exchange: Mapping[str, Any]) -> Reply:
        """Make the reply of a recorded exchange."""
        headers = [(b"content-type", exchange["content_type"].encode("latin-1"))]
        body = exchange["answer"].encode("utf-8", "surrogateescape")
        return cls(exchange["status"] or 502, headers, _chained(body, None))


class Upstream:
    """Sends requests to endpoints; keeps connections."""

    def __init__(self) -> None:
        context = _tls_context()
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._clients = [
            httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=trusting, verify=context)
            for trusting in (False, True)
        ]

    async def ask(
        self,
        endpoint: Endpoint,
        exchange: Exchange,
        scope: Scope,
        body: Body,
        stack: contextlib.AsyncExitStack,
    ) -> Reply:
        """Send the request once, and wait for the first byte of its answer."""
        backoff = min(2.0 ** (exchange.tries - 1), LONGEST_WAIT)
        url = httpx.URL(endpoint.url(exchange.path))
        client = self._clients[url.host not in ("127.0.0.1", "localhost", "::1")]
        headers = endpoint.headers(scope["headers"])
        request = client.build_request(scope["method"], url, headers=headers, content=body.content)
        exchange.sent = time.time()
        try:
            response = await client.send(request, stream=True)
            stack.push_async_callback(response.aclose)
            kept = [
                (name, value)
                for name, value in response.headers.raw
                if name.lower() not in (*_HOP_BY_HOP, b"content-encoding")
            ]
            if response.headers.get("content-encoding") or body.asked_for_usage:
                kept = [pair for pair in kept if pair[0].lower() != b"content-length"]
            chunks = response.aiter_bytes()
            first = await anext(chunks, b"")
        except httpx.HTTPError as error:
            words = connection_words(error, url)
            # a kept connection that was closed in between is nobody's outage
            again = isinstance(error, httpx.RemoteProtocolError) and exchange.tries == 1
            raise Unanswered(words, None, 0.0 if again else backoff, None) from None
        if response.is_success:
            return Reply(response.status_code, kept, _chained(first, chunks))
        report = bytearray(first)
        with contextlib.suppress(httpx.HTTPError):
            async for chunk in chunks:
                report += chunk
                if len(report) > LARGEST_REPORT:
                    break
        status = response.status_code
        after = None
        if status in PASSING and not _NO_MONEY.search(report.decode("utf-8", "replace")):
            asked = response.headers.get("retry-after", "")
            after = float(asked) if re.fullmatch(r"\d{1,6}(\.\d+)?", asked) else backoff
        words = error_words(status, bytes(report)) + _hint(status, bytes(report), body)
        kept = [pair for pair in kept if pair[0].lower() != b"content-length"]
        raise Unanswered(words, status, after, Reply(status, kept, _chained(bytes(report), None)))


async def _chained(first: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    if first:
        yield first
    if rest is not None:
        async for chunk in rest:
            yield chunk


def _tls_context() -> ssl.SSLContext:
    """Trust what httpx, this machine and (by ``NODE_EXTRA_CA_CERTS``) an agent's Node trust."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    with contextlib.suppress(OSError):
        context.load_verify_locations(os.environ.get("NODE_EXTRA_CA_CERTS", ""))
    return context


def connection_words(error: httpx.HTTPError, url: httpx.URL | None) -> str:
    where = f" ({url.scheme}://{url.netloc.decode().rpartition('@')[2]})" if url else ""
    return f"{type(error).__name__}: {str(error) or 'the connection failed'}{where}"


def _hint(status: int, report: bytes, body: Body) -> str:
    """Name a field of the request that a refusal names."""
    sent = decoded(body.content) if status in (400, 422) else None
    if not isinstance(sent, dict):
        return ""
    text = report.decode("utf-8", "replace")
    named = [n for n in sent if re.search(rf"['\"`:.\s]{re.escape(n)}['\"`]", text)]
    named = [name for name in named if name not in ("model", "messages", "input", "stream")]
    if not named:
        return ""
    return f" (to leave the field out: `compat: {{drop: [{named[0]}]}}` of the model in the YAML)"
