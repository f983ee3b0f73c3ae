"""Sandboxes that are containers of a Docker Engine, or of what speaks its API (Podman).

Nothing is asked of an image but a ``python3``: its entrypoint, user, shell and tools are its
own affair.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docker import errors
from docker.types import Mount

from pytest_pinchbench.environments import EnvironmentSetup, SharedFolder
from pytest_pinchbench.environments.docker_engine import FAULTS, OTHER_WAY, Engine, is_loopback
from pytest_pinchbench.environments.inside.supervisor import CHUNK
from pytest_pinchbench.environments.limits import OpenLimits, Slot
from pytest_pinchbench.environments.recipe_options import LIMITS, read_options
from pytest_pinchbench.environments.sandbox import Exchange, ExecSandbox, file_name
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure, using_data_dir
from pytest_pinchbench.readers import (
    Reader,
    choice,
    number,
    text,
    text_or_number,
    texts,
    whole_number,
    yes_no,
)

LABEL = "pytest-pinchbench"
SHARED = "/opt/pinchbench"
KEPT_LIFETIME = 30 * 24 * 3600.0
"""Seconds for which a kept container runs."""

# Process 1: buries orphans, and ends with the lifetime, so that a killed run leaves nothing.
# Only from outside can it be told to stop (such a sender has no id in here): an agent that
# runs `pkill python3` does not take its own container down.
_PROCESS_1 = """\
import os,signal,sys,time
end=time.monotonic()+float(sys.argv[1])
signals={signal.SIGCHLD,signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK,signals)
while time.monotonic()<end:
 got=signal.sigtimedwait(signals,max(0,end-time.monotonic()))
 if got and got.si_signo==signal.SIGTERM and not got.si_pid:break
 try:
  while os.waitpid(-1,os.WNOHANG)[0]:pass
 except ChildProcessError:pass"""


def _size(value: Any, base: Path) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?([kmgt]?b)?|\d+[kmgt]", str(value), re.IGNORECASE):
        raise ValueError(f"has to be a size like 512m or 4g, not {value!r}")
    return str(value)


def _hosts(value: Any, base: Path) -> dict[str, str]:
    """A mapping, or a list of ``name:address`` as ``docker run --add-host`` has it."""
    pairs = value.items() if isinstance(value, dict) else [v.split(":", 1) for v in texts(value)]
    try:
        return {text(name): text_or_number(address) for name, address in pairs}
    except ValueError:
        raise ValueError("has to map names to addresses, or list name:address") from None


def _volumes(value: Any, base: Path) -> tuple[str, ...]:
    volumes = texts(value)
    if not all(re.fullmatch("[^:]+:/[^:]*(:[^:]+)?", volume) for volume in volumes):
        raise ValueError("has to list HOST_PATH_OR_VOLUME:/PATH, or that with :ro")
    return volumes


@dataclass(frozen=True)
class DockerOptions:
    """The ``options`` of a docker recipe; each means what ``docker run`` means by it."""

    cpus: float | None = None
    memory: str | None = None
    pids_limit: int | None = None
    network: str = "bridge"
    """``bridge``, ``host``, ``none``, a network's name, or ``container:NAME``."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    platform: str | None = None
    pull: str = "missing"
    user: str | None = None
    """None: the image's own."""
    read_only: bool = False
    """The workspace root, the private root and ``/tmp`` stay writable, in memory."""
    tmpfs: tuple[str, ...] = ()
    """``PATH`` or ``PATH:OPTIONS``."""
    volumes: tuple[str, ...] = ()
    """``HOST_PATH_OR_VOLUME:PATH[:ro]``."""
    shm_size: str | None = None
    runtime: str | None = None
    max_open: int | None = None
    opens_per_second: float | None = None


READERS: Mapping[str, Reader] = {
    **LIMITS,
    "cpus": number(above=0),
    "memory": _size,
    "pids_limit": whole_number(1),
    "network": text_or_number,
    "extra_hosts": _hosts,
    "platform": text_or_number,
    "pull": choice("missing", "always", "never"),
    "user": text_or_number,
    "read_only": yes_no,
    "tmpfs": texts,
    "volumes": _volumes,
    "shm_size": _size,
    "runtime": text_or_number,
}


class DockerEnvironment:
    kind = "docker"
    on_this_machine = False

    def __init__(self, setup: EnvironmentSetup) -> None:
        self._setup = setup
        self._recipe = setup.recipe
        self._options = DockerOptions(**read_options(setup.recipe, READERS))
        self._engine = Engine()
        self._limits = OpenLimits(
            setup.data_dir / "open-sandboxes",
            self.kind,
            self._options.max_open,
            self._options.opens_per_second,
        )

    def prepare(self) -> None:
        self._remove_leftovers()
        self._image = self._find_image(self._options.pull)

    def open(self, name: str, *, labels: Mapping[str, str], lifetime: float) -> DockerSandbox:
        image = self.image_id()
        slot = self._limits.acquire()
        sandbox = DockerSandbox(
            f"pinchbench-{file_name(name)}-{secrets.token_hex(4)}",
            self._engine,
            self._recipe.workspace_root or "/workspace",
            kept=self._setup.keep,
            on_close=lambda sandbox: self._on_close(sandbox, slot),
        )
        try:
            self._start(sandbox, image, labels, lifetime)
        except BaseException:
            sandbox.remove()
            slot.release()
            raise
        return sandbox

    def image_id(self) -> str:
        return self._image

    def shared_folder(self, name: str) -> SharedFolder | None:
        if self._shared is None:
            return None
        return SharedFolder(self._shared / name, f"{SHARED}/{name}")

    @cached_property
    def _shared(self) -> Path | None:
        """What all containers of this image see at ``SHARED``."""
        if not self._engine.is_here:
            return None
        image = re.sub(r"[^A-Za-z0-9]", "-", self._image)
        folder = self._setup.data_dir / "shared" / image
        with using_data_dir(EnvironmentUnavailable):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def url_inside(self, url: str) -> str:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if not is_loopback(host):
            return url
        if not self._engine.is_here:
            raise EnvironmentUnavailable(
                f"{url} names this machine, but the Docker daemon at {self._engine.address} is "
                "on another one: give a URL that can be reached from there"
            )
        if self._options.network == "host":
            return url
        if self._options.network == "none":
            raise EnvironmentUnavailable(
                f"{url} cannot be reached from a container without a network: the recipe "
                "says `network: none`"
            )
        port = parts.port or (443 if parts.scheme == "https" else 80)
        bridge = self._bridge_address()
        if bridge and not _answers(bridge, port) and _answers(host, port):
            raise EnvironmentUnavailable(
                f"the server at {url} listens on {host} only, where no container reaches it: "
                f"start it with --host 0.0.0.0 (or {bridge}, this machine's address for "
                f"containers), or give the recipe `network: host`; {OTHER_WAY}"
            )
        login, at, _ = parts.netloc.rpartition("@")
        written_port = f":{parts.port}" if parts.port else ""
        return parts._replace(netloc=f"{login}{at}{self._host_name}{written_port}").geturl()

    @property
    def _host_name(self) -> str:
        """What this machine is called inside a container."""
        # older Podmans do not know Docker's `host-gateway`, but have a name of their own
        return "host.containers.internal" if self._engine.is_podman else "host.docker.internal"

    def _bridge_address(self) -> str | None:
        """The address that containers reach this machine by, where that can be told.

        Docker names it in no answer; engines in a virtual machine or of a user who is not
        root have ways of their own.
        """
        names = ("podman0", "cni-podman0") if self._engine.is_podman else ("docker0",)
        return next(filter(None, map(_interface_address, names)), None)

    @cached_property
    def _image(self) -> str:
        # in a process that has not prepared: `always` was always done by the one that has
        return self._find_image("never" if self._options.pull == "never" else "missing")

    def _find_image(self, pull: str) -> str:
        if not self._recipe.image:
            raise EnvironmentUnavailable(
                f"recipe {self._recipe.name} names no image: give one with --pinchbench-image"
            )
        return self._engine.find_image(
            self._recipe.image, pull=pull, platform=self._options.platform, say=self._setup.say
        )

    def _start(
        self, sandbox: DockerSandbox, image: str, labels: Mapping[str, str], lifetime: float
    ) -> None:
        seconds = KEPT_LIFETIME if self._setup.keep else lifetime
        api = self._engine.api
        with self._engine.translated(f"{sandbox.name} could not be started"):
            try:
                api.create_container(
                    image,
                    name=sandbox.name,
                    entrypoint=["python3", "-I", "-S", "-c", _PROCESS_1, str(seconds)],
                    command=[],
                    environment=self._environ(),
                    labels={
                        **{f"{LABEL}.{name}": value for name, value in labels.items()},
                        f"{LABEL}.owner": _owner(os.getpid()),
                        f"{LABEL}.kept": str(self._setup.keep).lower(),
                    },
                    user=self._options.user,
                    platform=self._options.platform,
                    stop_signal="SIGTERM",
                    healthcheck={"test": ["NONE"]},
                    host_config=self._host_config(sandbox),
                )
                api.start(sandbox.name)
            except errors.APIError as error:
                if self._shared and str(self._shared) in self._engine.explain(error):
                    # An engine that is reached from here, but sees other files (that of the
                    # host of a CI job's container): without the cache it is only slower.
                    self._shared = None
                    sandbox.remove()
                    self._start(sandbox, image, labels, lifetime)
                    return
                self._raise_if_hopeless(error)
                raise
        sandbox.set_up()

    def _environ(self) -> dict[str, str]:
        names = self._recipe.pass_env
        return {**{n: os.environ[n] for n in names if n in os.environ}, **self._recipe.env}

    def _host_config(self, sandbox: DockerSandbox) -> dict[str, Any]:
        options = self._options
        tmpfs = {}
        for entry in options.tmpfs:
            path, _, how = entry.partition(":")
            tmpfs[path] = how
        if options.read_only:
            volumes = {volume.split(":")[1] for volume in options.volumes}
            for path in {sandbox.workspace_root, sandbox.private_root, "/tmp"} - volumes:
                tmpfs.setdefault(path, "mode=1777,exec")
        hosts = dict(options.extra_hosts)
        if not (self._engine.is_podman or re.match("host$|none$|container:", options.network)):
            hosts.setdefault(self._host_name, "host-gateway")
        shared = [Mount(SHARED, str(self._shared), "bind", read_only=True)] if self._shared else []
        return dict(
            self._engine.api.create_host_config(
                auto_remove=not self._setup.keep,
                network_mode=options.network,
                extra_hosts=hosts or None,
                nano_cpus=round(options.cpus * 1e9) if options.cpus else None,
                mem_limit=options.memory,
                pids_limit=options.pids_limit,
                read_only=options.read_only,
                tmpfs=tmpfs or None,
                binds=list(options.volumes) or None,
                mounts=shared,
                shm_size=options.shm_size,
                runtime=options.runtime,
            )
        )

    def _raise_if_hopeless(self, error: errors.APIError) -> None:
        """What is wrong with the image or the recipe is wrong for every attempt."""
        reason = self._engine.explain(error)
        if "python3" in reason and re.search("no such file|not found", reason):
            raise EnvironmentUnavailable(
                f"the image {self._recipe.image} has no python3 (3.8 or newer), which every "
                f"sandbox needs: install it there, or name another image; {OTHER_WAY}"
            ) from error
        if error.is_client_error():
            raise EnvironmentUnavailable(
                f"recipe {self._recipe.name}: the Docker daemon refuses the container: {reason}"
            ) from error

    def _on_close(self, sandbox: DockerSandbox, slot: Slot) -> None:
        if self._setup.keep:
            self._setup.say(
                f"kept the container {sandbox.name} (workspaces in {sandbox.workspace_root}); "
                f"to get in: docker exec -it {sandbox.name} sh; "
                f"to remove it: docker rm -f {sandbox.name}"
            )
        elif fault := sandbox.remove():
            self._setup.say(
                f"the container {sandbox.name} could not be removed ({fault}); it ends by itself "
                f"when its time is over, or with: docker rm -f {sandbox.name}"
            )
        slot.release()

    def _remove_leftovers(self) -> None:
        """Remove the containers of runs on this machine whose process is dead.

        They would go by themselves, later, when their lifetime is over.
        """
        with self._engine.translated("", EnvironmentUnavailable):
            containers = self._engine.api.containers(
                all=True, filters={"label": [f"{LABEL}.owner", f"{LABEL}.kept=false"]}
            )
        for container in containers:
            if _is_dead(container["Labels"][f"{LABEL}.owner"]):
                with contextlib.suppress(*FAULTS):  # another run may be faster
                    self._engine.api.remove_container(container["Id"], force=True, v=True)


class DockerSandbox(ExecSandbox):
    def __init__(
        self,
        name: str,
        engine: Engine,
        workspace_root: str,
        kept: bool,
        on_close: Callable[[DockerSandbox], None],
    ) -> None:
        super().__init__(name)
        self.workspace_root = workspace_root
        self.private_root = f"/var/tmp/pinchbench-{secrets.token_hex(8)}"
        self.python = "python3"
        self._engine = engine
        self._kept = kept
        self._on_close = on_close

    def set_up(self) -> None:
        """Make the folders, and learn where the container's Python is."""
        python = io.BytesIO()
        folders = [self.workspace_root, self.private_root]
        self._transfer("make its folders", "set_up", folders, stdout=python, as_root=True)
        self.python = os.fsdecode(python.getvalue())

    def stop_processes(self) -> None:
        # everything in the container is ours
        self._stop("everything", as_root=True)

    def remove(self) -> str:
        """Remove the container. Returns why that failed, or nothing."""
        try:
            self._engine.api.remove_container(self.name, force=True, v=True)
        except errors.APIError as error:
            if error.status_code not in (404, 409):  # gone, or going
                return self._engine.explain(error)
        except (*FAULTS, EnvironmentUnavailable) as error:
            return self._engine.explain(error)
        return ""

    def close(self) -> None:
        if self._closed:
            return
        if self._kept:
            with contextlib.suppress(SandboxFailure):
                self.stop_processes()
        self._closed = True
        self._on_close(self)

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        api = self._engine.api
        with self._engine.translated(f"{self.name}: no command can be started"):
            try:
                command = api.exec_create(
                    self.name, exchange.command, stdin=True, user="0:0" if as_root else ""
                )
                connection: Any = api.exec_start(command["Id"], socket=True)
            except errors.APIError as error:
                if error.status_code in (404, 409):  # no such container, or not running
                    raise SandboxFailure(f"{self.name} is lost: {self._why_lost()}") from error
                raise
        # under what the SDK gives lies a socket, but for TLS and SSH: there it is one itself
        channel: socket.socket = getattr(connection, "_sock", connection)
        try:
            _converse(channel, exchange)
        finally:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            connection.close()
            channel.close()

    def _why_lost(self) -> str:
        try:
            # a daemon that removes a container says so a moment after its processes have ended
            for _ in range(20):
                state = self._engine.api.inspect_container(self.name)["State"]
                if not state["Running"]:
                    break
                time.sleep(0.1)
        except errors.NotFound:
            return "its container is gone (somebody removed it, or its lifetime was over)"
        except (*FAULTS, EnvironmentUnavailable) as error:
            return self._engine.explain(error)
        if state.get("OOMKilled"):
            return "its container ran out of memory"
        if not state["Running"]:
            return f"its container has ended (exit code {state['ExitCode']})"
        return "its container still runs"


def _converse(channel: socket.socket, exchange: Exchange) -> None:
    """Carry an exchange over the connection of an ``exec``."""
    if getattr(channel, "family", None) in (socket.AF_INET, socket.AF_INET6):
        # nothing may move for as long as an agent thinks, and an engine far away may vanish
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    channel.setblocking(False)
    would_block = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, TimeoutError)
    split = _Splitter(exchange)
    unsent = memoryview(exchange.request(CHUNK))
    while not exchange.finished:
        moved = False
        try:
            data = channel.recv(CHUNK)
            if not data:
                return
            split.add(data)
            moved = True
        except would_block:
            pass
        except OSError:
            return
        if unsent:
            try:
                unsent = unsent[channel.send(unsent) :] or memoryview(exchange.request(CHUNK))
                moved = True
            except would_block:
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


class _Splitter:
    """Takes the two streams of an ``exec`` apart.

    They come in frames: a head of eight bytes (which stream, three zeros, the length as a
    big-endian number), then the bytes.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
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
                    self._add = (
                        self._exchange.add_stderr
                        if self._head[0] == 2
                        else self._exchange.add_stdout
                    )
                    self._head = b""
            else:
                piece = view[: self._left]
                self._add(bytes(piece))
                self._left -= len(piece)
                view = view[len(piece) :]


def _owner(pid: int) -> str:
    """A process, told from all others that ever had its id, here or elsewhere."""
    return f"{_this_machine()} {pid} {_started(pid)}"


def _is_dead(owner: str) -> bool:
    """Whether that process is surely dead. Of one that cannot be seen from here it is not."""
    machine, _, rest = owner.partition(" ")
    pid = rest.partition(" ")[0]
    return machine == _this_machine() and owner != _owner(int(pid))


def _this_machine() -> str:
    """This boot of this machine and this PID namespace: only in there do ids mean anything."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """When a process started, in the system's own terms; "dead" when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b")")[2].split()[19].decode()
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        pass
    return "alive"


def _interface_address(name: str) -> str | None:
    SIOCGIFADDR = 0x8915
    request = struct.pack("256s", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True
