"""The relay's process: an ASGI application between agents and their models' endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import httpx

from pytest_pinchbench.relay.exchange import (
    Answer,
    Events,
    Exchange,
    decoded,
    only_usage,
)
from pytest_pinchbench.relay.grants import Clock, Grant
from pytest_pinchbench.relay.replay import Replay, record_line
from pytest_pinchbench.relay.upstream import (
    ANSWER_PATHS,
    LARGEST_REPORT,
    Body,
    Endpoint,
    Reply,
    Scope,
    Unanswered,
    Upstream,
    connection_words,
)

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Relay:
    """All grants of a run, and the ASGI application that serves them.

    ``admin`` is the token of those who open and close grants; ``budget`` the run's dollars.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        admin: str,
        *,
        concurrency: int | None = None,
        budget: float | None = None,
        spent: float = 0.0,
    ) -> None:
        self.endpoints = endpoints
        self.grants: dict[str, Grant] = {}
        self.spent = spent
        self._admin = admin
        self._budget = budget
        self._upstream = Upstream()
        self._slots = asyncio.Semaphore(concurrency) if concurrency else None
        self._refuse_usage: set[str] = set()  # endpoints that do not know stream_options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.lower(): value for name, value in scope["headers"]}
        if scope["path"].startswith("/pinchbench/"):
            await self._administer(scope["path"][12:], headers, bytes(body), receive, send)
            return
        token = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        token = token or headers.get(b"x-api-key") or headers.get(b"api-key") or b""
        grant = self.grants.get(token.decode("latin-1"))
        if grant is None:
            await _refuse(send, 401, "cannot ask the model: the token's attempt has ended")
            return
        await self._exchange(grant, scope, bytes(body), receive, send)

    # -- grants -------------------------------------------------------------------------

    async def _administer(
        self,
        action: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        given = headers.get(b"x-pinchbench-admin", b"").decode("latin-1")
        order = decoded(body)
        if not hmac.compare_digest(given, self._admin) or not isinstance(order, dict):
            await _refuse(send, 401, "cannot administer the relay: wrong token")
            return
        answer: dict[str, Any] = {}
        now = time.monotonic()
        grant = self.grants.get(order.get("token", ""))
        if action == "open":
            clock = Clock(order["seconds"], order["startup"], order["waiting"])
            grant = Grant(
                order["label"], order["endpoint"], clock, order["patience"], order["max_requests"]
            )
            grant.connect_patience = order["connect_patience"]
            grant.record = order["record"]
            if order["replay"] is not None:
                grant.replay = Replay(order["replay"], order["paths"])
            self.grants[grant.token] = grant
            answer = {"token": grant.token}
        elif action == "spent":
            answer = {"usd": self.spent}
        elif grant is None:
            await _refuse(send, 404, "no such grant")
            return
        elif action == "begin_turn":
            grant.clock.begin_turn(now)
            grant.patience = grant.patience_left = min(grant.patience, order["patience"])
            grant.changed.set()
        elif action == "end_turn":
            grant.clock.end_turn(now)
            grant.changed.set()
        elif action == "wait":
            await _until_gone(grant.wait(), receive)
        elif action == "close":
            answer = await self._close(grant)
        await _send_json(send, 200, {**(grant.state() if grant else {}), **answer})

    async def _close(self, grant: Grant) -> dict[str, Any]:
        """End a grant: its token is worthless, its open requests are abandoned."""
        self.grants.pop(grant.token, None)
        for task in list(grant.tasks):
            task.cancel()
        if grant.tasks:
            await asyncio.wait(list(grant.tasks), timeout=5)
        grant.end("closed")
        replay = grant.replay
        return {
            "exchanges": [exchange.record() for exchange in grant.exchanges],
            "recording": grant.recording if grant.record else None,
            "divergences": replay.divergences if replay else 0,
            "first_divergence": replay.first if replay else "",
        }

    # -- one request --------------------------------------------------------------------

    async def _exchange(
        self, grant: Grant, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        path = "/" + scope["path"].partition("/v1/")[2]
        is_answer = path in ANSWER_PATHS
        asked = sum(one.is_answer for one in grant.exchanges)
        if is_answer and grant.max_requests is not None and asked >= grant.max_requests:
            grant.end("task_budget")
            await _refuse(send, 403, "cannot ask the model: the task's budget is used up")
            return
        exchange = Exchange(
            len(grant.exchanges) + 1, path, is_answer, time.time(), request_bytes=len(body)
        )
        grant.exchanges.append(exchange)
        grant.clock.request(time.monotonic())
        grant.changed.set()
        work = asyncio.ensure_future(self._answer(grant, exchange, scope, body, send))
        grant.tasks.add(work)
        try:
            exchange.abandoned = not await _until_gone(work, receive)
        except asyncio.CancelledError:  # the grant was closed
            exchange.abandoned = True
        finally:
            grant.tasks.discard(work)
            grant.clock.advance(time.monotonic())
            grant.clock.open -= 1
            exchange.end = time.time()
            self._count(grant, exchange)
            grant.changed.set()

    def _count(self, grant: Grant, exchange: Exchange) -> None:
        if exchange.usage is None:
            return
        if grant.replay is not None:
            exchange.usage = {**exchange.usage, "cost_usd": 0.0}
            return
        exchange.usage["cost_usd"] = self.endpoints[grant.endpoint].cost(exchange.usage)
        self.spent += exchange.usage["cost_usd"] or 0.0
        if self._budget is not None and self.spent > self._budget:
            for other in self.grants.values():
                other.end("run_budget")

    async def _answer(
        self, grant: Grant, exchange: Exchange, scope: Scope, body: bytes, send: Send
    ) -> None:
        if grant.replay is not None:
            recorded = grant.replay.answer(exchange.path, body)
            if recorded is None:
                exchange.status, exchange.error = 502, "502 the recording has no such request"
                await _refuse(send, 502, exchange.error)
                return
            await self._pass_on(grant, exchange, Reply.recorded(recorded), False, body, send)
            exchange.usage = recorded["usage"]
            return
        async with contextlib.AsyncExitStack() as stack:
            if self._slots is not None:
                with _held(grant, exchange):
                    await stack.enter_async_context(self._slots)
            try:
                reply, filtered = await self._patiently(grant, exchange, scope, body, stack)
            except Unanswered as failure:
                exchange.status, exchange.error = failure.status, failure.words
                if failure.reply is None:
                    await _refuse(send, 502, failure.words)
                    return
                reply, filtered = failure.reply, False
            await self._pass_on(grant, exchange, reply, filtered, body, send)

    async def _patiently(
        self,
        grant: Grant,
        exchange: Exchange,
        scope: Scope,
        body: bytes,
        stack: contextlib.AsyncExitStack,
    ) -> tuple[Reply, bool]:
        """Ask the endpoint, again while it may mend. Raises ``Unanswered``."""
        endpoint = self.endpoints[grant.endpoint]
        while True:
            usage = grant.endpoint not in self._refuse_usage
            sent = Body.of(endpoint, exchange.path, body, usage=usage)
            exchange.tries += 1
            try:
                reply = await self._upstream.ask(endpoint, exchange, scope, sent, stack)
            except Unanswered as failure:
                refused = failure.status == 400 and "stream_options" in failure.words
                if refused and sent.asked_for_usage:
                    self._refuse_usage.add(grant.endpoint)
                    continue
                wait = failure.after
                patience = grant.patience_left
                if failure.status is None:
                    patience = min(patience, grant.connect_patience)
                if wait is None or exchange.waited + wait > patience:
                    if wait is not None:  # the agent's next try is not waited for once more
                        grant.patience_left = 0.0
                    raise
                with _held(grant, exchange):
                    await asyncio.sleep(wait)
            else:
                grant.patience_left = grant.patience
                return reply, sent.asked_for_usage

    async def _pass_on(
        self,
        grant: Grant,
        exchange: Exchange,
        reply: Reply,
        filtered: bool,
        request: bytes,
        send: Send,
    ) -> None:
        """Send the answer to the agent as it comes, and read it on the way."""
        kinds = {name.lower(): value for name, value in reply.headers}
        streamed = kinds.get(b"content-type", b"").startswith(b"text/event-stream")
        events, answer, document = Events(), Answer(), bytearray()
        recorded = bytearray()
        exchange.status = reply.status
        await send(
            {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
        )
        try:
            async for chunk in reply.chunks:
                exchange.first_byte = exchange.first_byte or time.time()
                exchange.answer_bytes += len(chunk)
                if not streamed:
                    if len(document) <= LARGEST_REPORT:
                        document += chunk
                elif not events.is_too_large:
                    found = events.feed(chunk)
                    for _, payload in found:
                        answer.read(payload)
                    if filtered:
                        chunk = b"".join(raw for raw, payload in found if not only_usage(payload))
                    if answer.heard and exchange.first_delta is None:
                        exchange.first_delta = time.time()
                        grant.heard = True
                if grant.record:
                    recorded += chunk
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            rest = events.rest() if filtered else b""
            recorded += rest
            if not streamed and len(document) <= LARGEST_REPORT:
                answer.read(decoded(bytes(document)))
                grant.heard = grant.heard or answer.heard
            exchange.error = exchange.error or answer.error
            await send({"type": "http.response.body", "body": rest})
        except httpx.HTTPError as error:
            exchange.error = f"the answer broke off: {connection_words(error, None)}"
            raise ConnectionAbortedError(exchange.error) from None
        finally:
            exchange.usage, exchange.tool_calls = answer.usage, answer.tool_calls
            if grant.record:
                kind = kinds.get(b"content-type", b"").decode("latin-1")
                grant.recording.append(record_line(exchange, request, kind, bytes(recorded)))


@contextlib.contextmanager
def _held(grant: Grant, exchange: Exchange) -> Iterator[None]:
    """The request waits in the relay: the attempt's clock may stand still."""
    began = time.monotonic()
    grant.clock.advance(began)
    grant.clock.held += 1
    grant.changed.set()
    try:
        yield
    finally:
        now = time.monotonic()
        grant.clock.advance(now)
        grant.clock.held -= 1
        exchange.waited += now - began
        grant.changed.set()


async def _until_gone(work: Awaitable[Any], receive: Receive) -> bool:
    """Await ``work`` for as long as the client is there. Return whether it was done."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
    if task.cancelled():
        return False
    task.result()
    return True


async def _refuse(send: Send, status: int, words: str) -> None:
    """Send an error in a form that the clients of all three protocols read."""
    error = {"type": "relay_error", "message": words}
    await _send_json(send, status, {"type": "error", "error": error})


async def _send_json(send: Send, status: int, value: Mapping[str, Any]) -> None:
    content = json.dumps(value).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
