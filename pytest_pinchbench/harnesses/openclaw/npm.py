"""Run npm as this machine's own npm would run: its registry, its proxy, its certificates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pytest_pinchbench.harnesses.openclaw import node
from pytest_pinchbench.issues import HarnessUnavailable

# npm's own pauses between tries (10 and 60 s) keep a user waiting for an error that stays;
# these are 0.5, 1, 2 and 4 s.
_SOON = ("--fetch-retries=4", "--fetch-retry-mintimeout=500", "--fetch-retry-factor=2")
INSTALL = ("install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *_SOON)
TIMEOUT_S = 1800.0
_GLOBAL_CONFIGURATION = "NPM_CONFIG_GLOBALCONFIG"
_CERTIFICATE = re.compile(r"\b(\w*SELF_SIGNED\w*|UNABLE_TO_\w+|CERT_\w+|ERR_TLS_CERT\w*)\b")
_NO_CONNECTION = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ERR_SOCKET_TIMEOUT)\b")


def run(*arguments: str, cwd: Path | None = None) -> str:
    """Run npm on this machine and return its standard output. Raises ``HarnessUnavailable``."""
    command = _command()
    environ = {
        **os.environ,
        **node.trust(os.environ),
        **_global_configuration(),
        "PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessUnavailable(f"cannot run npm: {error}") from error
    if done.returncode:
        raise HarnessUnavailable(failure(arguments, done.stderr or done.stdout))
    return done.stdout


def view(what: str, field: str) -> str:
    """Ask the registry for one field of a package. Raises ``HarnessUnavailable``."""
    return run("view", what, field, *_SOON).strip()


def failure(arguments: tuple[str, ...], output: str) -> str:
    """Say why npm failed, and what to set where the way to the registry is at fault."""
    what = arguments[-1] if arguments[0] == "install" else arguments[1]
    if "ETARGET" in output or "E404" in output:
        return (
            f"cannot install {what}: npm knows no such release of OpenClaw. "
            "Choose another with --pinchbench-openclaw-version"
        )
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith(("npm error", "npm ERR!"))]
    reason = " / ".join((errors or lines[-6:])[:6])
    if found := _CERTIFICATE.search(output):
        reason = (
            f"npm does not trust the certificate of the registry ({found[1]}). Set "
            "NODE_EXTRA_CA_CERTS (or SSL_CERT_FILE) to the file with the certificates of your "
            "company or proxy (PEM)"
        )
    elif found := _NO_CONNECTION.search(output):
        reason += (
            f" ({found[1]}). Set NPM_CONFIG_REGISTRY to a registry that this machine reaches, or "
            "HTTPS_PROXY to its proxy"
        )
    return f"cannot install {what}: {reason}"


def _command() -> list[str]:
    """npm with a Node that can run it."""
    for found in node.nodes():
        script = found.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if script.is_file():
            return [str(found), str(script)]
    if npm := shutil.which("npm"):
        return [npm]
    raise HarnessUnavailable(
        f"OpenClaw needs Node and npm, and there is no npm; {node.HOW_TO_GET_NODE}"
    )


def _global_configuration() -> dict[str, str]:
    """The global npmrc of the machine's own npm; npm from PyPI looks for one beside itself."""
    machines = shutil.which("npm")
    if not machines or any(name.upper() == _GLOBAL_CONFIGURATION for name in os.environ):
        return {}
    try:
        asked = subprocess.run(
            [machines, "config", "get", "globalconfig"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    path = asked.stdout.strip()
    return {_GLOBAL_CONFIGURATION: path} if os.path.isfile(path) else {}
