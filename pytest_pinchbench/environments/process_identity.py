"""A unique process identity: machine, pid, start time."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def process_identity(pid: int) -> str:
    """Identify a process uniquely: machine, pid, start time."""
    return f"{_this_machine()} {pid} {_started(pid)}"


def is_dead(owner: str) -> bool:
    """Return whether that process is surely dead (False if it cannot be seen from here)."""
    machine, _, rest = owner.partition(" ")
    pid = rest.partition(" ")[0]
    return machine == _this_machine() and owner != process_identity(int(pid))


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
