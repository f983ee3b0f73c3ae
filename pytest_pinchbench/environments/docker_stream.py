"""The streams of a docker ``exec``, over the one connection that carries both."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable

from pytest_pinchbench.environments.inside.supervisor import CHUNK
from pytest_pinchbench.environments.sandbox import Exchange

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, TimeoutError)


def converse(channel: socket.socket, exchange: Exchange) -> None:
    """Carry an exchange over the connection of an ``exec``."""
    _make_ready(channel)
    split = _Splitter(exchange.add_stdout, exchange.add_stderr)
    unsent = memoryview(exchange.request(CHUNK))
    while not exchange.finished:
        moved = False
        try:
            data = channel.recv(CHUNK)
            if not data:
                return
            split.add(data)
            moved = True
        except _WOULD_BLOCK:
            pass
        except OSError:
            return
        if unsent:
            try:
                unsent = unsent[channel.send(unsent) :] or memoryview(exchange.request(CHUNK))
                moved = True
            except _WOULD_BLOCK:
                pass
            except OSError:
                unsent = memoryview(b"")  # there may still be something to read
        if not moved:
            left = None if exchange.give_up_at is None else exchange.give_up_at - time.monotonic()
            if left is not None and left <= 0:
                return
            poll = select.poll()
            poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if unsent else 0))
            poll.poll(None if left is None else left * 1000 + 1)


def carry_stream(channel: socket.socket, inner: socket.socket) -> None:
    """Join an ``exec``'s standard input and output with a socket, until either ends."""
    _make_ready(channel)
    inner.setblocking(False)
    received = bytearray()
    split = _Splitter(received.extend, lambda data: None)
    unsent = memoryview(b"")
    while True:
        moved = False
        try:
            if len(received) < CHUNK:
                data = channel.recv(CHUNK)
                if not data:
                    return
                split.add(data)
                moved = True
        except _WOULD_BLOCK:
            pass
        except OSError:
            return
        try:
            if received:
                del received[: inner.send(received)]
                moved = True
        except BlockingIOError:
            pass
        except OSError:
            return
        try:
            if not unsent:
                data = inner.recv(CHUNK)
                if not data:
                    return
                unsent = memoryview(data)
            unsent = unsent[channel.send(unsent) :]
            moved = True
        except _WOULD_BLOCK:
            pass
        except OSError:
            return
        if not moved:
            poll = select.poll()
            reads = select.POLLIN if len(received) < CHUNK else 0
            poll.register(channel.fileno(), reads | (select.POLLOUT if unsent else 0))
            reads = 0 if unsent else select.POLLIN
            poll.register(inner.fileno(), reads | (select.POLLOUT if received else 0))
            poll.poll()


def _make_ready(channel: socket.socket) -> None:
    if getattr(channel, "family", None) in (socket.AF_INET, socket.AF_INET6):
        # nothing may move for as long as an agent thinks, and an engine far away may vanish
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    channel.setblocking(False)


class _Splitter:
    """Takes the two streams of an ``exec`` apart.

    They come in frames: a head of eight bytes (which stream, three zeros, the length as a
    big-endian number), then the bytes.
    """

    def __init__(self, stdout: Callable[[bytes], None], stderr: Callable[[bytes], None]) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._head = b""
        self._left = 0  # bytes of the current frame that have not come yet

    def add(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._left == 0:
                taken = 8 - len(self._head)
                self._head += bytes(view[:taken])
                view = view[taken:]
                if len(self._head) == 8:
                    self._left = int.from_bytes(self._head[4:], "big")
                    self._add = self._stderr if self._head[0] == 2 else self._stdout
                    self._head = b""
            else:
                piece = view[: self._left]
                self._add(bytes(piece))
                self._left -= len(piece)
                view = view[len(piece) :]
