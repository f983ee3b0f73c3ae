"""Where agents work: one file a kind, all behind the small protocol of this module.

A kind is found by its name among the entry points ``pytest_pinchbench.environments``; what
the entry point names is called with an :class:`EnvironmentSetup` and returns an
:class:`Environment`. The built-in kinds use that same door.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pytest_pinchbench.issues import EnvironmentUnavailable, SettingsError
from pytest_pinchbench.kinds import load_kind

OUTPUT_LIMIT = 20_000_000
"""Bytes that are kept of an output stream of a command."""
DOWNLOAD_LIMIT = 2_000_000_000
"""Bytes that are taken out of a sandbox at once; a sparse file counts its size."""


@dataclass(frozen=True)
class ExecResult:
    """What one command did: its streams apart, in bytes; of a long one the end, and a note.

    ``exit_code`` is that of the command, ``-N`` when signal N ended it (as ``subprocess``
    has it). With ``timed_out`` the clock ended it, and every process it had started.
    ``seconds`` is wall time.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    seconds: float


class Sandbox(Protocol):
    """One place for one attempt. Paths are absolute POSIX paths inside it.

    Every method raises :class:`~pytest_pinchbench.issues.SandboxFailure` when the sandbox
    itself fails (gone, closed, daemon lost, disk full); a command that merely fails does not.
    """

    name: str  #: what a person would look for: the container's name, a directory
    workspace_root: str  #: where workspaces are made: ``/workspace`` in the remote kinds
    private_root: str  #: a writable directory outside every workspace, for state and uploads
    python: str  #: absolute path of a Python 3.8 or newer, found before any agent ran

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
        """Run a command; ``env`` is added to the sandbox's own variables.

        Of each output stream the last ``output_limit`` bytes are kept.

        At ``timeout`` seconds the command and every process it started, however detached,
        are killed, and the result says ``timed_out``. A command that is not there is exit
        code 127, one that may not be run 126, with the reason on stderr. Processes that the
        command leaves behind when it ends by itself go on until :meth:`stop_processes`. A
        command that was ended together with its supervisor, from inside a sandbox that lives,
        has exit code -9.
        """

    def open_stream(self, argv: Sequence[str], *, as_root: bool = False) -> socket.socket:
        """Start a program whose standard input and output are the other end of a socket.

        The end of either ends the other. ``as_root``: out of the agent's reach where the
        kind can have it so. Only where :attr:`Environment.has_streams`.
        """

    def stop_processes(self) -> None:
        """Kill every process that any ``exec`` of this sandbox started and left running."""

    def freeze(self) -> None:
        """Keep everything in the sandbox from running, for good; files can still be read.

        Does not depend on programs that an agent can have replaced. This method and the next
        one only where :attr:`Environment.grades_fresh`.
        """

    def changed_folders(self) -> list[str]:
        """Return folders outside workspace and private root in which files were changed."""

    def interrupt(self) -> None:
        """Kill the command of an ``exec`` that another thread waits for; that then returns."""

    def write(self, files: Mapping[str, bytes | None]) -> None:
        """Write files, making their folders; None makes a folder.

        Mode 0600 files, 0700 folders where new.
        """

    def read(self, path: str) -> bytes:
        """The bytes of one file. ``FileNotFoundError`` when there is none."""

    def upload(self, local: Path, remote: str) -> None:
        """Copy a file or a folder in, to exactly ``remote``."""

    def download(
        self,
        remote: str,
        local: Path,
        *,
        only: Sequence[str] = (),
        limit: int = DOWNLOAD_LIMIT,
    ) -> None:
        """Copy a file or a folder out, to exactly ``local``; links stay links, never followed.

        ``only`` names what is wanted below the folder ``remote``, as far as it is there.
        ``FileNotFoundError`` when there is nothing at ``remote``, ``OutputTooLarge`` when more
        than ``limit`` bytes are received.
        """

    def close(self) -> None:
        """End every process and remove the sandbox. Twice is once. Never raises."""


class Environment(Protocol):
    """A kind of sandbox, set up for one run (in each process that runs tasks)."""

    kind: str
    on_this_machine: bool  #: a path of this machine is the same file inside

    @property
    def shares_loopback(self) -> bool:
        """Whether a port on this machine's loopback is the same port inside."""

    has_streams: bool  #: its sandboxes have :meth:`Sandbox.open_stream`
    grades_fresh: Literal["", "asked", "auto"]
    """Whether ``open`` knows ``beside``: not, used where asked for, or as a rule."""

    def prepare(self) -> None:
        """Once a run, before the first task, in one process: is everything there?

        Checks the daemon or credentials, gets the image (saying so through ``setup.say``),
        removes leftovers of dead runs. Raises ``EnvironmentUnavailable``.
        """

    def open(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None = None,
    ) -> Sandbox:
        """A fresh sandbox. ``name`` (a task id) helps people find it; ``lifetime`` is the
        number of seconds after which it must go away by itself should this process die.
        ``beside``: another sandbox of this environment, whose workspaces it shares; it is
        closed before that one. Raises ``SandboxFailure``, or ``EnvironmentUnavailable`` when no
        attempt could work.
        """

    def image_id(self) -> str:
        """What programs are in a fresh sandbox, as a key for caches: an image digest, or a name
        with the run's id, where another run may get other programs by it.
        """

    def image_digest(self) -> str | None:
        """Return what identifies the image on other machines, too: its digest in a registry, or
        ``local ID`` for an image that is in no registry; None where that is not known.
        """

    def shared_folder(self, name: str) -> SharedFolder | None:
        """A folder of this machine that every sandbox of this image sees, read-only, with what
        is in it at any moment; None where this kind has nothing of the sort.
        """


@dataclass(frozen=True)
class SharedFolder:
    """``here`` on this machine, made by whoever needs it, is ``inside`` in the sandboxes."""

    here: Path
    inside: str


@dataclass(frozen=True)
class EnvironmentSetup:
    """What an environment is built from."""

    recipe: Recipe
    run_id: str
    """Unique for this run; sandboxes are labelled with it."""
    data_dir: Path
    """This project's data directory on this machine (caches)."""
    keep: bool = False
    """Leave sandboxes in place at close, and say how to get in and how to remove them."""
    say: Callable[[str], None] = field(default=lambda message: None)
    """Prints a line for the user: a pull's progress, a warning."""
    agent_runs: bool = True
    """False: work that is done already is graded again, and no agent runs."""


@dataclass(frozen=True)
class Recipe:
    """A sandbox as described by one YAML file; see ``recipes/``."""

    name: str
    environment: str
    """The kind: ``docker``, ``local``, ``daytona``, ``modal``, or that of an entry point."""
    image: str | None = None
    workspace_root: str | None = None
    """None: the kind decides (``local`` makes a temporary directory)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What only this kind understands, as the recipe file has it; validated by the kind."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables set in every sandbox."""
    pass_env: tuple[str, ...] = ()
    """Names of variables of the user's own environment that are passed into every sandbox."""
    openclaw_install: str | None = None
    """Install strategy for ``auto``; None: the harness decides by what is there."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each value comes from, for people: ``image``, ``options.memory``, ..."""

    def variables(self, *names: str) -> dict[str, str]:
        """Return the variables of every sandbox; those of ``names`` are passed on as well."""
        passed_on = {n: os.environ[n] for n in (*names, *self.pass_env) if n in os.environ}
        return {**passed_on, **self.env}


def find_environment(kind: str) -> Callable[[EnvironmentSetup], Environment]:
    """Return the factory of a kind.

    Raises ``SettingsError`` for an unknown kind, and on a system that cannot have it.
    """
    if sys.platform == "win32":
        raise SettingsError("cannot run tasks on Windows: use WSL 2, where this is Linux.")
    if kind == "local" and sys.platform != "linux":
        raise SettingsError(
            "cannot make local sandboxes on this system: processes are followed as Linux shows "
            "them. Use --pinchbench-env docker."
        )
    factory: Callable[[EnvironmentSetup], Environment] = load_kind("environments", kind)
    return factory


def check_reachable(environment: Environment, url: str) -> None:
    """Raise ``EnvironmentUnavailable`` for a URL of this machine that no sandbox reaches."""
    if is_loopback(urlsplit(url).hostname or "") and not environment.shares_loopback:
        raise EnvironmentUnavailable(
            f"cannot reach {url} from a sandbox of kind {environment.kind}: it names this "
            "machine. --pinchbench-relay auto leads there from docker and bubblewrap; elsewhere, "
            "give a URL that the sandbox can reach."
        )


def is_loopback(host: str) -> bool:
    """Return whether a URL's host means the machine that opens the URL."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
