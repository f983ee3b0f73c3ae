"""Sandboxes that are folders on this machine, for machines without a container engine.

What an agent does, it does here, as the user who started the run. Each attempt has a home,
a temporary folder and a workspace of its own, sees none of the user's variables beyond what a
program needs to work, and leaves no process and no file behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from pytest_pinchbench.environments import EnvironmentSetup
from pytest_pinchbench.environments.inside import supervisor, transfer
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.environments.sandbox import GRACE, Exchange, ExecSandbox, file_name
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure, SettingsError

PASSED_ON = (
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SHELL"),
    *("USER", "LOGNAME", "LD_LIBRARY_PATH"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    "NODE_EXTRA_CA_CERTS",
)
"""The user's variables that an agent sees. The others are full of keys."""


class LocalEnvironment:
    kind = "local"
    on_this_machine = True
    has_streams = True

    def __init__(self, setup: EnvironmentSetup) -> None:
        read_options(setup.recipe, {})  # there are none
        origin = setup.recipe.origins.get("image", "")
        # an image in the ini file is for runs that are not local
        if setup.recipe.image and not origin.endswith("(pinchbench_image)"):
            raise SettingsError(
                f"{origin or 'image'}: the local environment has no images, and would not use "
                f"{setup.recipe.image}; leave it out, or choose --pinchbench-env docker"
            )
        self._setup = setup
        self._lock = threading.Lock()
        self._folder: Path | None = None

    def prepare(self) -> None:
        for folder in _folders_of_dead_runs(self._base()):
            _remove(folder)
        if self._setup.agent_runs:
            self._setup.say(
                "the agent acts on this machine, as you: it can read, change and send what you "
                "can (environment local; --pinchbench-env docker keeps it in a container)"
            )

    def open(self, name: str, *, labels: Mapping[str, str], lifetime: float) -> LocalSandbox:
        try:
            # what is kept must not go with the other folders of a dead run
            parent = self._base() if self._setup.keep else self._own_folder()
            folder = Path(tempfile.mkdtemp(prefix=f"{file_name(name)}-", dir=parent))
            return LocalSandbox(folder, self._setup.recipe.variables(*PASSED_ON), self._setup)
        except OSError as error:
            raise SandboxFailure(f"{name}: no folder for the sandbox: {error}") from error

    def image_id(self) -> str:
        programs = [sys.version, platform.platform(), sys.executable]
        return "local-" + hashlib.sha256("\n".join(programs).encode()).hexdigest()[:16]

    def shared_folder(self, name: str) -> None:
        return None

    def url_inside(self, url: str) -> str:
        return url

    def _base(self) -> Path:
        """The folder of all runs; in a shared temporary folder, one that is surely ours."""
        root = self._setup.recipe.workspace_root
        base = Path(root) if root else Path(tempfile.gettempdir(), f"pinchbench-{os.getuid()}")
        try:
            base.mkdir(mode=0o755 if root else 0o700, parents=True, exist_ok=True)
            if not root and (base.is_symlink() or base.stat().st_uid != os.getuid()):
                raise PermissionError(f"{base} belongs to somebody else")
        except OSError as error:
            raise EnvironmentUnavailable(
                f"no folder for local sandboxes: {error}; name another one with "
                "--pinchbench-workspace-root, or set TMPDIR"
            ) from error
        return base

    def _own_folder(self) -> Path:
        """This process's folder, beside a lock file that says that the process lives."""
        with self._lock:
            if self._folder is None:
                self._folder, lock = _claim_folder(self._base())
                weakref.finalize(self, _give_up_folder, self._folder, lock)
            return self._folder


def _claim_folder(base: Path) -> tuple[Path, int]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix="run-", suffix=".lock", dir=base)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # held until this process ends, however it ends
        folder = Path(name).with_suffix("")
        # whoever cleans up may have got in between, and taken us for dead
        if os.path.exists(name) and os.fstat(descriptor).st_nlink:
            folder.mkdir(mode=0o700)
            return folder, descriptor
        os.close(descriptor)


def _give_up_folder(folder: Path, lock: int) -> None:
    """At the end of the process. With a sandbox still in it, it is for the next run to remove."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.with_suffix(".lock").unlink()
        os.close(lock)


def _folders_of_dead_runs(base: Path) -> Iterator[Path]:
    for lock in base.glob("run-*.lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it lives
            yield lock.with_suffix("")
            lock.unlink()


def _remove(folder: Path) -> None:
    """Remove a folder whatever an agent has done to the modes of what is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for path, names, _ in os.walk(folder):  # from the top, so that it gets further down
            for inner in (path, *(os.path.join(path, name) for name in names)):
                if not os.path.islink(inner):  # what a link leads to is not ours
                    with contextlib.suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


class LocalSandbox(ExecSandbox):
    _held = True

    def __init__(self, folder: Path, environ: dict[str, str], setup: EnvironmentSetup) -> None:
        super().__init__(folder.name)
        self._folder = folder
        self._setup = setup
        # supervisors whose command runs, and those that look after what a command left running
        self._busy: set[subprocess.Popen[bytes]] = set()
        self._staying: set[subprocess.Popen[bytes]] = set()
        self._streams: list[subprocess.Popen[bytes]] = []
        self.workspace_root = str(folder / "workspace")
        self.private_root = str(folder / "private")
        self.python = sys.executable
        home, temporary = f"{self.private_root}/home", f"{self.private_root}/tmp"
        self._environ = {"HOME": home, "TMPDIR": temporary, **environ}
        for path in (self.workspace_root, self.private_root, home, temporary):
            os.mkdir(path, 0o700)

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        process = subprocess.Popen(
            exchange.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.workspace_root,
            env=self._environ,
            start_new_session=True,  # Ctrl-C in the terminal is for pytest alone
            bufsize=0,
        )
        self._busy.add(process)
        try:
            _converse(process, exchange)
        finally:
            self._busy.discard(process)
            if exchange.trailer and exchange.trailer["left"] and not self._closed:
                self._staying.add(process)
            else:
                _end(process)

    def open_stream(self, argv: Sequence[str], *, as_root: bool = False) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._streams.append(
                subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    cwd=self.workspace_root,
                    env=self._environ,
                    start_new_session=True,
                )
            )
        return ours

    def stop_processes(self) -> None:
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        self._kill_everything()

    def _kill_everything(self) -> None:
        while self._staying:
            _end(self._staying.pop())
        # what a thread of ours still waits for, and what had its supervisor killed under it
        busy = frozenset(process.pid for process in list(self._busy))
        survivors = supervisor.stop(self._cookie, busy)
        if survivors:
            raise SandboxFailure(f"{self.name}: {survivors} processes could not be killed")

    def _transfer(
        self,
        what: str,
        function: str,
        arguments: list[str],
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        as_root: bool = False,
    ) -> None:
        """The sandbox's files are this machine's: no need for a process."""
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        if stdin is not None:
            stdin.seek(0)
        try:
            getattr(transfer, function)(*arguments, stdin, stdout)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SandboxFailure(f"{self.name}: could not {what}: {error}") from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for program in self._streams:
            program.kill()
            program.wait()
        with contextlib.suppress(SandboxFailure):
            self._kill_everything()
        if self._setup.keep:
            self._setup.say(
                f"{self.name}: kept in {self._folder}; to remove it: rm -rf {self._folder}"
            )
        else:
            _remove(self._folder)


def _converse(process: subprocess.Popen[bytes], exchange: Exchange) -> None:
    stdin, stdout, stderr = _pipes(process)
    for stream in (stdin, stdout, stderr):
        os.set_blocking(stream.fileno(), False)
        supervisor.widen(stream.fileno())
    unsent = memoryview(b"")
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ, exchange.add_stdout)
        selector.register(stderr, selectors.EVENT_READ, exchange.add_stderr)
        open_streams = 2
        while open_streams and not exchange.finished:
            wait = None if exchange.give_up_at is None else exchange.give_up_at - time.monotonic()
            if wait is not None and wait <= 0:
                return
            for key, _ in selector.select(wait):
                if key.fileobj is stdin:
                    unsent = unsent or memoryview(exchange.request(supervisor.CHUNK))
                    try:
                        unsent = unsent[os.write(key.fd, unsent) :]
                    except BrokenPipeError:
                        unsent = memoryview(b"")
                        selector.unregister(stdin)
                        continue
                    if not unsent:
                        unsent = memoryview(exchange.request(supervisor.CHUNK))
                        if not unsent:
                            selector.unregister(stdin)
                elif data := os.read(key.fd, supervisor.CHUNK):
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)
                    open_streams -= 1


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its input tells a supervisor to kill what it looks after."""
    for stream in _pipes(process):
        stream.close()
    process.send_signal(signal.SIGCONT)  # an agent can stop its own supervisor
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr
