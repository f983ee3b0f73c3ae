"""A model's endpoint of raw bytes: what goes over the wire is what a test says, to the byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Play = Callable[["Connection"], None]


@dataclass
class Connection:
    """One connection, and the request that has just come over it."""

    socket: socket.socket
    head: bytes = b""
    body: bytes = b""

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def head_of(self, status: str = "200 OK", **headers: str) -> bytes:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()

    def answer(self, body: bytes, status: str = "200 OK", **headers: str) -> None:
        self.send(self.head_of(status, content_length=str(len(body)), **headers), body)

    def stream(self, chunks: Iterable[bytes], end: bool = True, **headers: str) -> None:
        """Send server-sent events in exactly these chunks."""
        kind = {"content_type": "text/event-stream", "transfer_encoding": "chunked", **headers}
        self.send(self.head_of(**kind))
        for chunk in chunks:
            self.send(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
        if end:
            self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end()

    def end(self) -> None:
        raise ConnectionAbortedError


@dataclass
class RawEndpoint:
    """Plays ``plays`` in turn, the last one for all further requests."""

    plays: list[Play]
    requests: list[Connection] = field(default_factory=list)
    listening: socket.socket = field(
        default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=200)
    )

    def __enter__(self) -> RawEndpoint:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.listening.close()

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self.listening.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, accepted.makefile("rb") as lines:
            try:
                while head := _head(lines):
                    length = 0
                    for line in head.lower().split(b"\r\n"):
                        if line.startswith(b"content-length:"):
                            length = int(line.partition(b":")[2])
                    connection = Connection(accepted, head, lines.read(length))
                    self.requests.append(connection)
                    play = self.plays[min(len(self.requests), len(self.plays)) - 1]
                    play(connection)
            except (OSError, ValueError):  # the client went away, or the play ended it
                return


def _head(lines: Any) -> bytes:
    head = b""
    while (line := lines.readline()) not in (b"\r\n", b""):
        head += line
    return head
