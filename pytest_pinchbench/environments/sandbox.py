"""What every kind of sandbox shares: the whole protocol, on top of one way to run a program.

A kind subclasses :class:`ExecSandbox` and says how a program is started in it and spoken to
(:meth:`ExecSandbox._talk`), and how it is taken down. Commands run under ``supervisor.py``,
files move by ``transfer.py``; both are sent along, so that nothing but a Python has to be in
the sandbox, and nothing in it can be tampered with.
"""

from __future__ import annotations

import functools
import io
import json
import os
import re
import secrets
import socket
import tarfile
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, Protocol

from pytest_pinchbench.environments import DOWNLOAD_LIMIT, OUTPUT_LIMIT, ExecResult
from pytest_pinchbench.environments.inside import transfer
from pytest_pinchbench.issues import OutputTooLarge, SandboxFailure

GRACE = 30.0
"""Seconds that a sandbox has for its answer beyond a command's own timeout."""
READ_LIMIT = 200_000_000
"""Bytes of one file that are read into memory."""
TRANSFER_TIMEOUT = 900.0
"""Seconds for one move of files."""
_IN_MEMORY = 1 << 24  # a bigger upload waits on this machine's disk

# What stands in the process list is this, not the supervisor itself: an agent that looks at
# its processes is not shown pages of our source, and its `pkill -f server` does not match it.
BOOT = """\
import os
n,s=%d,b''
while len(s)<n:
 b=os.read(0,n-len(s))
 if not b:raise SystemExit(1)
 s+=b
exec(s)"""


@functools.cache
def _source(module: str) -> bytes:
    return files("pytest_pinchbench.environments.inside").joinpath(module).read_bytes()


def file_name(name: str) -> str:
    """A short name that files, containers and labels may bear, and people recognise."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40] or "sandbox"


class Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Tail:
    """Keeps the last ``limit`` bytes of what is written, and how many bytes went before."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self._limit = limit
        self._cut = 0

    def write(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > 2 * self._limit:  # seldom, since it moves what is kept
            self._shorten()

    def getvalue(self) -> bytes:
        self._shorten()
        note = f"[{self._cut} bytes left out]\n".encode() if self._cut else b""
        return note + bytes(self.data)

    def _shorten(self) -> None:
        excess = max(0, len(self.data) - self._limit)
        del self.data[:excess]
        self._cut += excess


class Bounded:
    """Passes on at most ``limit`` bytes; one more is an ``OSError``."""

    def __init__(self, target: Writer, limit: int) -> None:
        self._target = target
        self._limit = self._left = limit

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise OutputTooLarge(f"more than {self._limit // 1_000_000} MB came out of a sandbox")
        self._target.write(data)


class CommandLost(SandboxFailure):
    """A command's supervisor was ended or stopped from inside a sandbox that lives."""

    def __init__(self, message: str, stderr: bytes, timed_out: bool) -> None:
        super().__init__(message)
        self.stderr = stderr
        self.timed_out = timed_out


class Exchange:
    """One program's run, as seen from outside: what to send it, what it has answered so far.

    Whoever carries it starts ``command``, sends what :meth:`request` gives, hands over what
    comes back, and goes on until ``finished``, an end of both streams, or ``give_up_at``. The
    program's input must stay open until then.
    """

    def __init__(
        self,
        python: str,
        header: Mapping[str, Any],
        stdin: IO[bytes],
        stdout: Writer,
        patience: float | None,
    ) -> None:
        self._token = secrets.token_hex(16)
        source = _source("supervisor.py")
        length = stdin.seek(0, os.SEEK_END)
        stdin.seek(0)
        line = json.dumps({**header, "token": self._token, "stdin": length})
        self.command = [python, "-I", "-S", "-c", BOOT % len(source)]
        self.give_up_at = None if patience is None else time.monotonic() + patience
        self._head = io.BytesIO(source + line.encode() + b"\n")
        self._stdin = stdin
        self._stdout = stdout
        self._stdout_bytes = 0
        self._stderr = Tail(OUTPUT_LIMIT)
        self.trailer: dict[str, Any] | None = None

    def request(self, size: int) -> bytes:
        """The next bytes to send, at most ``size``; none when all are sent."""
        return self._head.read(size) or self._stdin.read(size)

    def add_stdout(self, data: bytes) -> None:
        self._stdout.write(data)
        self._stdout_bytes += len(data)

    def add_stderr(self, data: bytes) -> None:
        self._stderr.write(data)
        if self.trailer is None:
            said = self._stderr.data
            # the token can lie across the border of two pieces
            look_from = max(0, len(said) - len(data) - len(self._token) - 4096)
            at = said.find(self._token.encode(), look_from)
            if at >= 0 and said.endswith(b"\n"):
                self.trailer = json.loads(said[at + len(self._token) :])
                del said[at:]

    @property
    def stderr(self) -> bytes:
        return self._stderr.getvalue()

    @property
    def finished(self) -> bool:
        """The trailer is there, and everything that it counts.

        The two streams may reach us in any order.
        """
        return self.trailer is not None and self._stdout_bytes >= self.trailer["stdout"]


class ExecSandbox(ABC):
    """The protocol :class:`~pytest_pinchbench.environments.Sandbox`, but for two methods."""

    name: str
    workspace_root: str
    private_root: str
    python: str

    _watched = True
    """The program's input ends when this process does: the sandbox then kills the command."""
    _held = False
    """The supervisor stays as the parent of what a command leaves running."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cookie = secrets.token_hex(8)
        self._closed = False

    @abstractmethod
    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        """Carry an exchange. Raises ``SandboxFailure`` where the sandbox cannot be reached;
        an answer that ends too early it may leave to the caller."""

    @abstractmethod
    def close(self) -> None: ...

    def open_stream(self, argv: Sequence[str], *, as_root: bool = False) -> socket.socket:
        raise SandboxFailure(f"{self.name}: this kind of sandbox has no streams")

    def _lives(self) -> bool:
        """Return whether the sandbox goes on although a supervisor was lost in it."""
        return False

    def _why_lost(self) -> str:
        """After an answer that ended too early: what has become of the sandbox, if known."""
        return ""

    def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        stdout, began = Tail(output_limit), time.monotonic()
        header = {"argv": list(argv), "cwd": cwd, "env": dict(env or {}), "timeout": timeout}
        try:
            exchange = self._command(header, io.BytesIO(stdin), stdout)
        except CommandLost as lost:
            try:
                self.stop_processes()
            except SandboxFailure:
                raise lost from None
            seconds = time.monotonic() - began
            return ExecResult(-9, stdout.getvalue(), lost.stderr, lost.timed_out, seconds)
        trailer = exchange.trailer
        assert trailer is not None  # _run has seen to it
        return ExecResult(
            exit_code=trailer["exit_code"],
            stdout=stdout.getvalue(),
            stderr=exchange.stderr,
            timed_out=trailer["timed_out"],
            seconds=trailer["seconds"],
        )

    def stop_processes(self) -> None:
        self._stop(self._cookie, as_root=False)

    def freeze(self) -> None:
        self.stop_processes()

    def changed_folders(self) -> list[str]:
        return []

    def interrupt(self) -> None:
        self._stop(self._cookie, as_root=False)

    def write(self, files: Mapping[str, bytes | None]) -> None:
        index = [
            [path, None if content is None else len(content)] for path, content in files.items()
        ]
        stdin = io.BytesIO()
        stdin.write(json.dumps(index).encode() + b"\n")
        for content in files.values():
            stdin.write(content or b"")
        what = next(iter(files), "nothing") + (" ..." if len(files) > 1 else "")
        self._transfer(f"write {what}", "write_files", [], stdin=stdin)

    def read(self, path: str) -> bytes:
        content = io.BytesIO()
        bounded = Bounded(content, READ_LIMIT)
        self._transfer(f"read {path}", "read_file", [path], stdout=bounded)
        return content.getvalue()

    def upload(self, local: Path, remote: str) -> None:
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
            # resolved: a link given by name is followed, one inside a folder is not
            transfer.pack(str(local.resolve()), "[]", packed, packed)
            self._transfer(f"copy {local} to {remote}", "unpack", [remote], stdin=packed)

    def download(
        self,
        remote: str,
        local: Path,
        *,
        only: Sequence[str] = (),
        limit: int = DOWNLOAD_LIMIT,
    ) -> None:
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
            bounded, arguments = Bounded(packed, limit), [remote, json.dumps(only)]
            self._transfer(f"copy {remote} out", "pack", arguments, stdout=bounded)
            packed.seek(0)
            try:
                transfer.unpack(str(local), packed, packed)
            except (OSError, tarfile.TarError) as error:
                raise SandboxFailure(
                    f"{self.name}: could not write what was copied out of {remote} to "
                    f"{local}: {error}"
                ) from error

    def _transfer(
        self,
        what: str,
        function: str,
        arguments: list[str],
        *,
        stdin: IO[bytes] | None = None,
        stdout: Writer | None = None,
        as_root: bool = False,
    ) -> None:
        """Call a function of ``transfer.py`` in the sandbox."""
        exchange = self._command(
            {
                "code": _source("transfer.py").decode(),
                "call": [function, arguments],
                "cwd": None,
                "env": {},
                "timeout": TRANSFER_TIMEOUT,
            },
            stdin or io.BytesIO(),
            stdout or io.BytesIO(),
            as_root=as_root,
        )
        trailer = exchange.trailer
        assert trailer is not None  # _run has seen to it
        if trailer["exit_code"] == 0:
            return
        said = exchange.stderr.decode(errors="replace")
        try:
            number, reason, path = json.loads(said)
        except ValueError:
            reason = "it took too long" if trailer["timed_out"] else said
        else:
            if number == 2:
                raise FileNotFoundError(number, reason, path)
            reason = f"{path}: {reason}"
        raise SandboxFailure(f"{self.name}: could not {what}: {reason}")

    def _stop(self, which: str, as_root: bool) -> None:
        header = {"stop": which}
        exchange = self._run(header, io.BytesIO(), io.BytesIO(), patience=GRACE, as_root=as_root)
        assert exchange.trailer is not None  # _run has seen to it
        if exchange.trailer["survivors"]:
            raise SandboxFailure(
                f"{self.name}: {exchange.trailer['survivors']} processes could not be killed"
            )

    def _command(
        self,
        header: dict[str, Any],
        stdin: IO[bytes],
        stdout: Writer,
        as_root: bool = False,
    ) -> Exchange:
        timeout: float | None = header["timeout"]
        header = {
            **header,
            "cookie": f"{self._cookie}-{secrets.token_hex(4)}",
            "watch": self._watched,
            "stay": self._held,
        }
        patience = None if timeout is None else timeout + GRACE
        exchange = self._run(header, stdin, stdout, patience=patience, as_root=as_root)
        assert exchange.trailer is not None  # _run has seen to it
        if exchange.trailer["survivors"]:
            self.stop_processes()  # which may do more than the supervisor, or says so
        return exchange

    def _run(
        self,
        header: Mapping[str, Any],
        stdin: IO[bytes],
        stdout: Writer,
        patience: float | None,
        as_root: bool,
    ) -> Exchange:
        """An exchange that has ended with a trailer. Raises ``SandboxFailure`` without."""
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        exchange = Exchange(self.python, header, stdin, stdout, patience)
        self._talk(exchange, as_root)
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox was closed while a command ran in it")
        if not exchange.finished:
            give_up_at = exchange.give_up_at
            late = give_up_at is not None and time.monotonic() >= give_up_at
            if late:
                what = f"the sandbox did not answer for {patience:.0f} seconds"
            else:
                what = "the sandbox was lost while a command ran in it"
            said = exchange.stderr.decode(errors="replace").strip()[-500:]
            details = [detail for detail in (self._why_lost(), said) if detail]
            message = ": ".join([self.name, what, *details])
            if self._lives():
                raise CommandLost(message, exchange.stderr, late)
            raise SandboxFailure(message)
        return exchange
