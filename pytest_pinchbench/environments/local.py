"""Sandboxes that are folders on this machine, for machines without a container engine.

What an agent does, it does here, as the user who started the run. Each attempt has a home,
a temporary folder and a workspace of its own, sees none of the user's variables beyond what a
program needs to work, and leaves no process and no file behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from pytest_pinchbench.environments import EnvironmentSetup, Sandbox
from pytest_pinchbench.environments.inside import supervisor, transfer
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.environments.run_folders import RunFolders, folders_with_files, remove
from pytest_pinchbench.environments.sandbox import GRACE, Exchange, ExecSandbox, Writer
from pytest_pinchbench.issues import SandboxFailure, SettingsError

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
    shares_loopback = True
    has_streams = True
    grades_fresh: Literal["", "asked", "auto"] = "asked"  # the agent is this user, everywhere

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
        self._folders = RunFolders(setup.recipe.workspace_root)

    def prepare(self) -> None:
        self._folders.remove_of_dead_runs()
        if self._setup.agent_runs:
            self._setup.say(
                "the agent acts on this machine, as you: it can read, change and send what you "
                "can (environment local; --pinchbench-env bubblewrap or docker keeps it in a "
                "sandbox)"
            )

    def open(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None = None,
    ) -> LocalSandbox:
        folder = self._folders.new(name, keep=self._setup.keep)
        try:
            variables = self._setup.recipe.variables(*PASSED_ON)
            return LocalSandbox(folder, variables, self._setup, beside)
        except OSError as error:
            raise SandboxFailure(f"{name}: no folder for the sandbox: {error}") from error

    def image_id(self) -> str:
        return programs_id(self.kind)

    def image_digest(self) -> None:
        return None  # the programs are those of this machine

    def shared_folder(self, name: str) -> None:
        return None


def programs_id(kind: str) -> str:
    """A key for caches: the programs of this machine, as far as a run depends on them."""
    programs = [sys.version, platform.platform(), sys.executable]
    return f"{kind}-" + hashlib.sha256("\n".join(programs).encode()).hexdigest()[:16]


class LocalSandbox(ExecSandbox):
    _held = True

    def __init__(
        self,
        folder: Path,
        environ: dict[str, str],
        setup: EnvironmentSetup,
        beside: Sandbox | None = None,
    ) -> None:
        super().__init__(folder.name)
        self._folder = folder
        self._setup = setup
        # supervisors whose command runs, and those that look after what a command left running
        self._busy: set[subprocess.Popen[bytes]] = set()
        self._staying: set[subprocess.Popen[bytes]] = set()
        self._streams: list[subprocess.Popen[bytes]] = []
        self.workspace_root = beside.workspace_root if beside else str(folder / "workspace")
        self.private_root = str(folder / "private")
        self.python = sys.executable
        home, temporary = f"{self.private_root}/home", f"{self.private_root}/tmp"
        self._environ = {"HOME": home, "TMPDIR": temporary, **environ}
        for path in (self.workspace_root, self.private_root, home, temporary):
            Path(path).mkdir(0o700, exist_ok=path == self.workspace_root)

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
            converse(_pipes(process), exchange)
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

    def changed_folders(self) -> list[str]:
        private = Path(self.private_root)
        return folders_with_files({str(private / one): private / one for one in ("home", "tmp")})

    def _lives(self) -> bool:
        return True

    def interrupt(self) -> None:
        for process in list(self._busy):
            process.send_signal(signal.SIGCONT)  # an agent can stop its own supervisor
        supervisor.stop(self._cookie)  # and not a supervisor, which has yet to report

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
        stdout: Writer | None = None,
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
            remove(self._folder)


def converse(pipes: tuple[IO[bytes], IO[bytes], IO[bytes]], exchange: Exchange) -> None:
    """Carry an exchange over a program's standard input, output and error."""
    stdin, stdout, stderr = pipes
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
