"""An OpenClaw gateway in a sandbox: what subagents, cron and messages need."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import SandboxFailure

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox

_START_TIMEOUT_S = 180.0
# Runs in the sandbox: starts the gateway, and ends once its port is open. The gateway goes on
# until the sandbox's processes are stopped.
_START = """
import socket, subprocess, sys, time
log, port, limit, command = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
with open(log, "ab") as out:
    gateway = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    )
deadline = time.monotonic() + limit
while time.monotonic() < deadline and gateway.poll() is None:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.05)
with open(log, "rb") as out:
    sys.exit(out.read()[-1000:].decode("utf-8", "replace") or "its port did not open")
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Gateway:
    """The gateway of one attempt: on a loopback port, with a token of its own."""

    port: int = field(default_factory=_free_port)
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def config(self) -> dict[str, Any]:
        """Return the section ``gateway`` of ``openclaw.json``."""
        auth = {"mode": "token", "token": self.token}
        return {"mode": "local", "port": self.port, "bind": "loopback", "auth": auth}

    def start(
        self,
        sandbox: Sandbox,
        command: Sequence[str],
        *,
        log: str,
        workspace: str,
        environ: Mapping[str, str],
    ) -> None:
        """Start it, and wait until it answers. Raises ``SandboxFailure``."""
        run = [*command, "gateway", "run", "--port", str(self.port)]
        order = [log, str(self.port), str(_START_TIMEOUT_S), *run]
        started = sandbox.exec(
            [sandbox.python, "-I", "-S", "-c", _START, *order],
            cwd=workspace,
            env=environ,
            timeout=_START_TIMEOUT_S + 30.0,
        )
        if started.exit_code or started.timed_out:
            said = started.stderr.decode(errors="replace").strip()[-1000:]
            raise SandboxFailure(f"cannot start OpenClaw's gateway: {said or 'no answer'}")
