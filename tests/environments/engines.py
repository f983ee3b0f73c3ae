"""Engines of our own beside the machine's Docker daemon: another dockerd, and Podman."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.waiting import wait_until

Engine = Callable[[str], contextlib.AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]]

# What Python and a shell need, and not the whole image, which takes longer.
_PARTS = "cd / && tar -c bin lib lib64 sbin etc usr/bin usr/lib64 usr/lib/python3* usr/lib/*-gnu"


@contextlib.contextmanager
def dockerd(image: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A second Docker daemon that has ``image``: its address, and the process."""
    with _folder("dockerd") as folder:
        address = f"unix://{folder}/docker.sock"
        # in a network of its own: `--bridge none` removes the bridge of the one that is there
        command = ["unshare", "--net", "dockerd", "--host", address]
        command += ["--bridge", "none", "--iptables=false"]
        for option in ("data-root", "exec-root", "pidfile"):
            command += [f"--{option}", f"{folder}/{option}"]
        with _serving(command, address, folder) as daemon:
            _copy(image, ["docker", "--host", address, "import"])
            yield address, daemon


@contextlib.contextmanager
def podman(image: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Podman's Docker-compatible service with ``image``: its address, and the process."""
    with _folder("podman") as folder:
        address = f"unix://{folder}/podman.sock"
        own = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
        # runc works with either version of cgroups, and with both at once
        own += ["--cgroup-manager", "cgroupfs", "--runtime", shutil.which("runc") or "runc"]
        # left to itself, Podman asks for a million files and processes: too many for some
        limits = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
        (folder / "containers.conf").write_text(limits)
        command = ["env", f"CONTAINERS_CONF={folder}/containers.conf", *own]
        command += ["system", "service", "--time=0", address]
        with _serving(command, address, folder) as service:
            _copy(image, [*own, "import"])
            yield address, service
        subprocess.run(["umount", f"{folder}/root/overlay"], capture_output=True)


@contextlib.contextmanager
def _folder(program: str) -> Iterator[Path]:
    """Short, since the engines put sockets into it."""
    if os.geteuid() != 0 or shutil.which(program) is None:
        pytest.skip(f"needs root and {program}")
    folder = Path(tempfile.mkdtemp(prefix=f"{program}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _serving(
    command: Sequence[str], address: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    log = folder / "log"
    asked = ["docker", "--host", address, "version"]
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as engine:

        def answers() -> bool:
            assert engine.poll() is None, log.read_text()
            return subprocess.run(asked, capture_output=True).returncode == 0

        try:
            wait_until(answers, seconds=120)
            yield engine
        finally:
            engine.terminate()


def _copy(image: str, load: Sequence[str]) -> None:
    pack = ["docker", "run", "--rm", image, "sh", "-c", _PARTS]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packed:
        subprocess.run([*load, "-", image], stdin=packed.stdout, check=True, capture_output=True)
