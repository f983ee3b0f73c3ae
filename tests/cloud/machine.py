"""What both fake clouds are made of: sandboxes that are a directory and real processes, and
faults that can be ordered in advance.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

_MARK = "PINCHBENCH_FAKE_SANDBOX"

Fault = TypeVar("Fault")


class Machine:
    """One sandbox: a directory, and every process that carries its mark in the environment.

    There is no isolation: commands run as the user who runs the tests, on this machine, with
    HOME and TMPDIR in the sandbox's own directory.
    """

    def __init__(self, name: str, labels: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.id = uuid.uuid4().hex
        self.name = name
        self.labels = dict(labels)
        self.directory = Path(tempfile.mkdtemp(prefix="fake-cloud-"))
        self.request: Any = None
        """What the client asked for, as it came over the wire."""
        self.created = time.time()
        self._env = dict(env)
        for folder in ("home", "tmp"):
            (self.directory / folder).mkdir()

    def environ(self, extra: Mapping[str, str] = {}) -> dict[str, str]:
        """The variables of a command: like a container's, nothing of the tests' own."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            **self._env,
            **extra,
            _MARK: self.id,
        }

    @property
    def cwd(self) -> Path:
        return self.directory / "home"

    def processes(self) -> list[int]:
        """Every living process of this sandbox, however detached."""
        wanted = f"{_MARK}={self.id}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # gone, or somebody else's
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """Lose the machine: every process, then the directory."""
        deadline = time.monotonic() + 10
        while (alive := self.processes()) and time.monotonic() < deadline:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # a killed process stays in /proc until it is reaped
        shutil.rmtree(self.directory, ignore_errors=True)


def kill_tree(root: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants by parentage, as a daemon does on a lost client.

    What has detached itself (its parent is gone) is not found, and lives on.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    doomed = [root.pid]
    for pid in doomed:
        doomed.extend(children.get(pid, ()))
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Script(Generic[Fault]):
    """The calls a server has seen, and the faults it was told to answer with.

    A fault is ordered for an operation by name and used up in order; ``when`` narrows it to
    requests that it accepts.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.came: list[float] = []
        """When each of them came."""
        self._lock = threading.Lock()
        self._faults: list[tuple[str, Fault, Callable[[Any], bool]]] = []

    def fail(
        self,
        operation: str,
        *faults: Fault,
        when: Callable[[Any], bool] = lambda request: True,
    ) -> None:
        with self._lock:
            self._faults.extend((operation, fault, when) for fault in faults)

    def count(self, operation: str) -> int:
        return self.calls.count(operation)

    def times(self, operation: str) -> list[float]:
        """When each call of this operation came."""
        return [at for at, name in zip(self.came, self.calls, strict=True) if name == operation]

    def next_fault(self, operation: str, request: Any = None) -> Fault | None:
        """Note the call, and take the first fault that fits it."""
        with self._lock:
            self.calls.append(operation)
            self.came.append(time.monotonic())
            for index, (name, fault, when) in enumerate(self._faults):
                if name == operation and when(request):
                    del self._faults[index]
                    return fault
        return None

    def clear(self) -> None:
        """Forget calls and faults."""
        with self._lock:
            self.calls.clear()
            self.came.clear()
            self._faults.clear()
