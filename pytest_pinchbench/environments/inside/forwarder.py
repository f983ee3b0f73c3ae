"""Many TCP connections over one stream of bytes, with flow control for each.

Standard library only, Python 3.8 and up. In the sandbox it is a program: it listens on a
loopback port and carries what connects over standard input and output. On this machine the
other end (``relay/tunnel.py``) uses the same :class:`Link` to make the connections anew.

A frame is a head (kind, connection, number) and, for ``DATA``, that many bytes. A side may
send ``WINDOW`` bytes of a connection before the other has returned ``CREDIT`` for them.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Tuple

HEAD = struct.Struct("!BII")
READY, OPEN, DATA, END, RESET, CREDIT = range(6)
WINDOW = 1 << 18
CHUNK = 1 << 16
UNSENT = 1 << 19
"""Bytes that may wait for the stream before no connection is read any more."""


class Connection:
    def __init__(self, number: int, connected: socket.socket) -> None:
        self.number = number
        self.socket = connected
        self.unwritten = bytearray()
        self.credit = WINDOW
        self.is_read = False  # its sender has ended, and END is sent
        self.ends = False  # END has come: no more is written than ``unwritten``
        self.is_written = False


class Link:
    """One end: the stream's two descriptors, and a listening socket or an address to call."""

    def __init__(
        self,
        source: int,
        target: int,
        listening: Optional[socket.socket] = None,
        address: Optional[Tuple[str, int]] = None,
    ) -> None:
        self.source = source
        self.target = target
        self.listening = listening
        self.address = address
        self.unsent = bytearray()
        self.unread = bytearray()
        self.connections: Dict[int, Connection] = {}
        self.last = 0
        self.port = 0
        """The port at the other end, once it has said so."""
        for descriptor in {source, target}:
            os.set_blocking(descriptor, False)

    def run(self, when_ready: Callable[[], None] = lambda: None) -> None:
        """Carry connections until the stream ends; then every connection ends, too.

        ``when_ready`` is called once ``port`` is known.
        """
        self.when_ready = when_ready
        try:
            while self.step():
                pass
        finally:
            for connection in list(self.connections.values()):
                self.drop(connection)

    def step(self) -> bool:
        """Wait for something to happen and move what can move. False: the stream has ended."""
        with selectors.PollSelector() as selector:
            full = len(self.unsent) > UNSENT
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            writing = selectors.EVENT_WRITE if self.unsent else 0
            if self.source == self.target:
                selector.register(self.source, both if writing else selectors.EVENT_READ)
            else:
                selector.register(self.source, selectors.EVENT_READ)
                if writing:
                    selector.register(self.target, writing)
            if self.listening is not None and not full:
                selector.register(self.listening, selectors.EVENT_READ)
            for connection in self.connections.values():
                wanted = selectors.EVENT_WRITE if connection.unwritten else 0
                if not (connection.is_read or full) and connection.credit:
                    wanted |= selectors.EVENT_READ
                if wanted:
                    selector.register(connection.socket, wanted, connection)
            happened = selector.select()
        for key, events in happened:
            if isinstance(key.data, Connection):
                self.move(key.data, events)
            elif key.fileobj is self.listening:
                self.accept()
            elif events & selectors.EVENT_READ and not self.receive():
                return False
        return self.flush()

    def flush(self) -> bool:
        """Write what the stream takes. False: nobody reads it any more."""
        try:
            while self.unsent:
                with memoryview(self.unsent) as view:
                    sent = os.write(self.target, view[: CHUNK * 4])
                del self.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def receive(self) -> bool:
        """Read from the stream and act on whole frames. False: it has ended."""
        try:
            data = os.read(self.source, CHUNK * 4)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self.unread += data
        at = 0
        while len(self.unread) - at >= HEAD.size:
            kind, number, value = HEAD.unpack_from(self.unread, at)
            end = at + HEAD.size + (value if kind == DATA else 0)
            if len(self.unread) < end:
                break
            self.act(kind, number, value, bytes(self.unread[at + HEAD.size : end]))
            at = end
        del self.unread[:at]
        return True

    def act(self, kind: int, number: int, value: int, data: bytes) -> None:
        if kind == READY:
            self.port = value
            self.when_ready()
        elif kind == OPEN:
            self.call(number)
        connection = self.connections.get(number)
        if connection is None:  # it has ended here already
            return
        if kind == DATA:
            connection.unwritten += data
            self.write(connection)
        elif kind == END:
            connection.ends = True
            self.write(connection)
        elif kind == CREDIT:
            connection.credit += value
        elif kind == RESET:
            self.drop(connection)

    def accept(self) -> None:
        assert self.listening is not None
        try:
            accepted, _ = self.listening.accept()
        except OSError:
            return
        self.last += 1
        self.add(self.last, accepted)
        self.send(OPEN, self.last)

    def call(self, number: int) -> None:
        assert self.address is not None
        try:
            self.add(number, socket.create_connection(self.address, timeout=10))
        except OSError:
            self.send(RESET, number)

    def add(self, number: int, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[number] = Connection(number, connected)

    def send(self, kind: int, number: int, value: int = 0, data: bytes = b"") -> None:
        self.unsent += HEAD.pack(kind, number, value)
        self.unsent += data

    def move(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.write(connection)
        gone = connection.number not in self.connections
        if gone or not events & selectors.EVENT_READ:
            return
        try:
            data = connection.socket.recv(min(CHUNK, connection.credit))
        except BlockingIOError:
            return
        except OSError:
            self.send(RESET, connection.number)
            self.drop(connection)
            return
        if data:
            connection.credit -= len(data)
            self.send(DATA, connection.number, len(data), data)
        else:
            connection.is_read = True
            self.send(END, connection.number)
            self.forget_if_over(connection)

    def write(self, connection: Connection) -> None:
        written = 0
        try:
            while connection.unwritten:
                sent = connection.socket.send(connection.unwritten)
                del connection.unwritten[:sent]
                written += sent
            if connection.ends and not connection.is_written:
                connection.is_written = True
                connection.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.send(RESET, connection.number)
            self.drop(connection)
            return
        if written:
            self.send(CREDIT, connection.number, written)
        self.forget_if_over(connection)

    def forget_if_over(self, connection: Connection) -> None:
        if connection.is_read and connection.is_written:
            del self.connections[connection.number]
            connection.socket.close()

    def drop(self, connection: Connection) -> None:
        """End a connection with a reset: what came of it may not be whole."""
        del self.connections[connection.number]
        linger = struct.pack("ii", 1, 0)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.socket.close()


def main() -> None:
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE"):  # an agent's pkill is not for us
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    listening.setblocking(False)
    link = Link(0, 1, listening)
    link.send(READY, 0, listening.getsockname()[1])
    link.flush()
    link.run()
    sys.exit(0)


if __name__ == "__main__":
    main()
