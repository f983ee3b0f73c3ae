"""A model endpoint that answers from a script: the same every time, no key, no account.

``python -m pytest_pinchbench.demo.model --port 8000`` serves the demo's own script.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_pinchbench.demo.script import (
    SCRIPT,
    Answer,
    Audience,
    Fault,
    Script,
    load_script,
)
from pytest_pinchbench.demo.wire import PROTOCOLS, Reply, WireProtocol


@dataclass(frozen=True)
class Request:
    """One request as it came in; ``headers`` have lower-case names, ``time`` is Unix time."""

    number: int
    audience: Audience
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    time: float


class ScriptedModel:
    """A server on this machine that plays ``script`` to whoever asks.

    Used as a context manager, or with ``start`` and ``close``. ``faults`` and ``delay``
    (seconds before each answer) may be changed while it runs. With ``api_key`` every request
    must carry it (as a bearer token or as ``x-api-key``), with ``models`` it must name one
    of them. ``log`` has a line for each request, and ``say`` gets the same lines.
    """

    def __init__(
        self,
        script: Script,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        api_key: str | None = None,
        models: Sequence[str] = (),
        delay: float = 0.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.script = script
        self.api_key = api_key
        self.models = tuple(models)
        self.delay = delay
        self.faults: Sequence[Fault] = script.faults
        self.requests: list[Request] = []
        self.log: list[str] = []
        self._host = host
        self._port = port
        self._say = say
        self._counts: Counter[Audience] = Counter()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._connections: set[socket.socket] = set()
        self._server: _Server | None = None

    def start(self) -> ScriptedModel:
        self._server = _Server((self._host, self._port), _handler(self))
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="scripted-model", daemon=True
        ).start()
        return self

    def close(self) -> None:
        """Stop serving, and end connections that are still open. Twice is once."""
        self._closing.set()
        server, self._server = self._server, None
        if server:
            server.shutdown()
            server.server_close()
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> ScriptedModel:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, ``http://.../v1``, for clients on this machine."""
        host = "127.0.0.1" if self._host == "0.0.0.0" else self._host
        return f"http://{host}:{self._port}/v1"

    def wait_for_requests(self, count: int, timeout: float = 60.0) -> None:
        """Return once ``count`` requests have come in. Raises ``TimeoutError``."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(
                    f"{len(self.requests)} of {count} requests in {timeout:g} s: {self.log}"
                )

    # what the handler asks of its model

    def _record(
        self, audience: Audience, path: str, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[Request, Fault | None]:
        with self._changed:
            number = len(self.requests) + 1
            request = Request(number, audience, path, headers, body, time.time())
            self.requests.append(request)
            self._counts[audience] += 1
            fault = next((f for f in self.faults if f.concerns(audience, self._counts)), None)
            self._changed.notify_all()
        return request, fault

    def _note(self, line: str) -> None:
        self.log.append(line)
        if self._say:
            self._say(line)

    @contextlib.contextmanager
    def _connected(self, connection: socket.socket) -> Iterator[None]:
        with self._changed:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._connections.discard(connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect: agents get killed in mid-answer."""


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.model = model
    return Handler


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with self.model._connected(self.connection):
            super().handle()

    def do_GET(self) -> None:
        self.model._note(f"GET {self.path}")
        if not self._authorized():
            self._send_error(PROTOCOLS["/v1/chat/completions"], 401, "Incorrect API key provided")
        elif self.path == "/v1/models":
            names = self.model.models or ("scripted",)
            data = [{"id": name, "object": "model", "owned_by": "demo"} for name in names]
            self._send_json(200, {"object": "list", "data": data})
        else:
            self._send_json(404, {"error": {"message": f"no such path: {self.path}"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        protocol = PROTOCOLS.get(path)
        if protocol is None:
            self.model._note(f"POST {path} -> 404")
            self._send_json(404, {"error": {"message": f"no such path: {path}"}})
            return
        try:
            body = json.loads(raw)
            audience, answer = self.model.script.answer(
                protocol.messages(body), has_tools=bool(body.get("tools"))
            )
        except (ValueError, AttributeError, TypeError) as error:
            self.model._note(f"POST {path} -> 400")
            self._send_error(protocol, 400, f"this is not a request of that API: {error}")
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request, fault = self.model._record(audience, path, headers, body)
        if self.model.delay:
            self.model._closing.wait(self.model.delay)
        self._answer(protocol, request, answer, fault)

    def _answer(
        self, protocol: WireProtocol, request: Request, answer: Answer, fault: Fault | None
    ) -> None:
        """Answers, or fails as scripted; what it does is in the log before a byte is sent."""

        def note(said: object) -> None:
            self.model._note(f"#{request.number} {request.path} {request.audience} -> {said}")

        wanted = str(request.body.get("model", ""))
        if not self._authorized():
            note(401)
            self._send_error(protocol, 401, "Incorrect API key provided")
            return
        if self.model.models and wanted not in self.model.models:
            note(f"404, no model {wanted!r}")
            self._send_error(protocol, 404, f"The model {wanted!r} does not exist")
            return
        reply = Reply(wanted, request.number, answer, self.model.script.usage)
        if request.body.get("stream"):
            kind, payload = "text/event-stream", "".join(protocol.events(reply)).encode()
        else:
            kind, payload = "application/json", json.dumps(protocol.whole(reply)).encode()
        if fault is None:
            note(answer)
            self._send(200, kind, payload)
            return
        if fault.action == "status":
            note(fault.status)
            body = fault.body
            if isinstance(body, str):
                self._send(fault.status, "text/plain", body.encode(), fault.headers)
            else:
                error = protocol.error(fault.status, fault.message) if body is None else body
                self._send_json(fault.status, error, fault.headers)
            return
        note(fault.action)
        if fault.action == "refuse":
            self.model.close()
        elif fault.action == "cut":
            self._send(200, kind, payload, sent=len(payload) // 2)
        elif fault.action == "silence":
            while self.connection.recv(1024):
                pass
        self._reset()

    def _authorized(self) -> bool:
        key = self.model.api_key
        given = (
            self.headers.get("authorization", "").removeprefix("Bearer "),
            self.headers.get("x-api-key"),
        )
        return key is None or key in given

    def _send_error(self, protocol: WireProtocol, status: int, message: str) -> None:
        self._send_json(status, protocol.error(status, message))

    def _send_json(
        self, status: int, data: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        self._send(status, "application/json", json.dumps(data).encode(), headers)

    def _send(
        self,
        status: int,
        kind: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        sent: int | None = None,
    ) -> None:
        """Sends a response; with ``sent``, only that many of the bytes it announces."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(payload)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload[:sent])
        self.wfile.flush()

    def _reset(self) -> None:
        """Ends the connection with a TCP reset, not with an orderly close."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """The model keeps its own log."""


def main(argv: Sequence[str] | None = None) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m pytest_pinchbench.demo.model",
        description="A model endpoint that answers from a script, for trying things out.",
    )
    parser.add_argument("--script", type=Path, default=SCRIPT, help="default: the demo's")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for use from containers")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--api-key", help="refuse requests without this key")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args(argv)
    model = ScriptedModel(
        load_script(options.script),
        options.host,
        options.port,
        api_key=options.api_key,
        delay=options.delay,
        say=lambda line: print(line, flush=True),
    )
    with model:
        print(f"serving {options.script} at {model.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
