"""Getting OpenClaw: onto this machine, once a version, or into a sandbox.

An install is some 700 MB, so on this machine it is made once a version in the data directory
and kept. ``npm install --ignore-scripts`` is enough.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.harnesses.openclaw import node, npm
from pytest_pinchbench.issues import HarnessUnavailable

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox

DEFAULT_VERSION = "2026.9.6"
"""Installed where no version is asked for. Fixed, so that a score does not change because a
release came out over night; ``--pinchbench-openclaw-version latest`` follows the newest."""

_ENTRY = "node_modules/openclaw/openclaw.mjs"
_PENDING = "node_modules/openclaw/.openclaw-lifecycle-pending"
"""There until OpenClaw (from 2026.9 on) has run its post-install, at its first start."""
_INSTALLED_BY = "installed-by"
_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True)
class HostInstall:
    """An OpenClaw on this machine, with a Node that is new enough for it."""

    version: str
    folder: Path
    node: Path

    @property
    def entry(self) -> Path:
        return self.folder / _ENTRY

    @property
    def compile_cache(self) -> Path:
        """Where Node keeps what it compiled; one a version, shared by its attempts."""
        return self.folder / "node-compile-cache"

    @property
    def programs(self) -> Path:
        """For PATH: an agent may call ``openclaw`` itself."""
        return self.folder / "bin"


def install_here(
    data_dir: Path, version: str | None, *, again: bool, say: Callable[[str], None]
) -> HostInstall:
    """The install of a version in the data directory, made if it is not there yet.

    Safe when several processes ask at once: one installs, the others wait. With ``again`` an
    install that an earlier run has made does not count. Raises ``HarnessUnavailable``.
    """
    from filelock import FileLock, Timeout

    home = data_dir / "openclaw"
    home.mkdir(parents=True, exist_ok=True)
    exact = _exact_version(version or DEFAULT_VERSION)
    folder = home / exact

    def is_there() -> bool:
        # what is there is whole (it was renamed to its place), and needs no lock
        return (folder / _ENTRY).is_file() and not (again and _installed_by(folder) != _this_run())

    if not is_there():
        lock = FileLock(home / f"{exact}.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            say(f"waiting for another process, which is installing OpenClaw {exact}")
            lock.acquire()
        try:
            if not is_there():
                _install(folder, exact, say)
        finally:
            lock.release()
    found = HostInstall(exact, folder, _node_for(folder))
    _write_launcher(found)
    if (folder / _PENDING).exists():
        with FileLock(home / f"{exact}.lock"):
            _complete(found)
    return found


def _this_run() -> str:
    """The same word in all processes of a run: workers must not replace each other's install."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", _PROCESS)


def _installed_by(folder: Path) -> str:
    try:
        return (folder / _INSTALLED_BY).read_text()
    except FileNotFoundError:
        return ""


def _install(folder: Path, version: str, say: Callable[[str], None]) -> None:
    say(f"installing OpenClaw {version} into {folder} (some 700 MB, once)")
    for left_over in folder.parent.glob(f".{version}-*"):  # of an install that was interrupted
        shutil.rmtree(left_over, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=folder.parent))
    try:
        # without a package.json of its own, npm would look for one further up
        (new / "package.json").write_text('{"private": true}\n')
        npm.run(*npm.INSTALL, "--prefix", str(new), f"openclaw@{version}", cwd=new)
        if not (new / _ENTRY).is_file():
            raise HarnessUnavailable(
                f"npm installed openclaw@{version}, but there is no {_ENTRY} in it; "
                "choose another with --pinchbench-openclaw-version"
            )
        (new / _INSTALLED_BY).write_text(_this_run())
        if folder.exists():
            folder.rename(new / "replaced")
        new.rename(folder)
        shutil.rmtree(folder / "replaced", ignore_errors=True)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    say(f"installed OpenClaw {version}")


def _complete(install: HostInstall) -> None:
    """Let OpenClaw run its post-install, which it cannot do in a folder that is read-only."""
    if not (install.folder / _PENDING).exists():  # by now
        return
    command = [str(install.node), str(install.entry), "--version"]
    with tempfile.TemporaryDirectory(prefix="pinchbench-") as state:
        done = subprocess.run(
            command,
            env={**os.environ, "OPENCLAW_STATE_DIR": state},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=npm.TIMEOUT_S,
        )
    if done.returncode:
        raise HarnessUnavailable(
            f"cannot complete the install of OpenClaw {install.version}: "
            f"{(done.stderr or done.stdout).strip()[-500:]}. Remove {install.folder} and try again."
        )


def _write_launcher(install: HostInstall) -> None:
    # npm's own takes the first node on PATH, which may be too old
    text = (
        f'#!/bin/sh\nexec {shlex.quote(str(install.node))} {shlex.quote(str(install.entry))} "$@"\n'
    )
    launcher = install.programs / "openclaw"
    if launcher.is_file() and launcher.read_text() == text:
        return
    install.programs.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=install.programs, delete=False) as new:
        new.write(text)
    os.chmod(new.name, 0o755)
    os.replace(new.name, launcher)


def _exact_version(version: str) -> str:
    """A version as it is, a tag such as ``latest`` as the version that it names now."""
    if re.fullmatch(r"\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?", version):
        return version
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", version):
        raise HarnessUnavailable(
            f"{version!r} is not an OpenClaw version; versions look like {DEFAULT_VERSION}"
        )
    found = npm.view(f"openclaw@{version}", "version")
    if not found:
        raise HarnessUnavailable(f"OpenClaw has no release tagged {version!r}")
    return found


def _node_for(folder: Path) -> Path:
    wanted = _wanted_node(folder)
    seen = []
    for program in node.nodes():
        version = node.node_version(program)
        if version and node.satisfies(version, wanted):
            return program
        seen.append(f"{program} is {version or 'not running'}")
    raise HarnessUnavailable(
        f"OpenClaw {folder.name} needs Node {wanted}, and "
        f"{', '.join(seen) or 'there is none'}; {node.HOW_TO_GET_NODE}"
    )


def _wanted_node(folder: Path) -> str:
    """The range of Node versions that an installed release says it runs on."""
    package = json.loads((folder / "node_modules/openclaw/package.json").read_bytes())
    return str(package.get("engines", {}).get("node", "*"))


def missing(
    where: str, command: Sequence[str], found: str | None, wanted: str | None
) -> HarnessUnavailable:
    """What to say where the OpenClaw that is wanted is not in the image."""
    what = (
        f"OpenClaw in {where} is {found}, not {wanted}"
        if found
        else f"there is no {command[0]} in {where}"
    )
    return HarnessUnavailable(
        f"{what}; choose an image that has it (--pinchbench-image), name where it is "
        "(--pinchbench-openclaw-binary), or have it installed in every sandbox "
        "(--pinchbench-openclaw-install install_if_missing, or upload)"
    )


def install_inside(
    sandbox: Sandbox, prefix: str, version: str | None, variables: Mapping[str, str]
) -> tuple[str, ...]:
    """Install with the sandbox's own npm, given ``variables``; the command that runs it."""
    arguments = (*npm.INSTALL, "--prefix", prefix, f"openclaw@{version or DEFAULT_VERSION}")
    sandbox.write({f"{prefix}/package.json": b'{"private": true}\n'})
    done = sandbox.exec(["npm", *arguments], cwd=prefix, env=variables, timeout=npm.TIMEOUT_S)
    if done.exit_code in (126, 127):
        raise HarnessUnavailable(
            f"OpenClaw cannot be installed in {sandbox.name}: there is no npm in it; use an image "
            "with Node and npm, or --pinchbench-openclaw-install upload"
        )
    if done.timed_out:
        raise HarnessUnavailable(
            f"npm install of OpenClaw in {sandbox.name} took more than {npm.TIMEOUT_S:.0f} s"
        )
    if done.exit_code:
        said = (done.stderr or done.stdout).decode(errors="replace")
        raise HarnessUnavailable(f"{sandbox.name}: {npm.failure(arguments, said)}")
    return ("node", f"{prefix}/{_ENTRY}")


def upload(sandbox: Sandbox, prefix: str, install: HostInstall) -> tuple[str, ...]:
    """Copy an install of this machine into the sandbox, and its Node where that one's is not
    new enough; the command that runs it."""
    sandbox.upload(install.folder / "node_modules", f"{prefix}/node_modules")
    program = "node"
    found = sandbox.exec([program, "--version"], timeout=60.0)
    if found.exit_code or not node.satisfies(
        found.stdout.decode(errors="replace"), _wanted_node(install.folder)
    ):
        program = f"{prefix}/bin/node"
        sandbox.upload(install.node, program)
    return (program, f"{prefix}/{_ENTRY}")
