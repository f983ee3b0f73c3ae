"""Folders of this machine that hold sandboxes, and are removed with them or after their run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_pinchbench.environments.sandbox import file_name
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure


class RunFolders:
    """The folders of one process's sandboxes, below ``root`` or a temporary folder."""

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._own: Path | None = None

    def new(self, name: str, *, keep: bool) -> Path:
        """Make the folder of a sandbox. Raises ``SandboxFailure``, ``EnvironmentUnavailable``."""
        try:
            # a kept folder must not go with the other folders of a dead run
            parent = self.base() if keep else self._own_folder()
            return Path(tempfile.mkdtemp(prefix=f"{file_name(name)}-", dir=parent))
        except OSError as error:
            raise SandboxFailure(f"{name}: no folder for the sandbox: {error}") from error

    def remove_of_dead_runs(self) -> None:
        for folder in _of_dead_runs(self.base()):
            remove(folder)

    def base(self) -> Path:
        """The folder of all runs; in a shared temporary folder, one that is surely ours."""
        root = self._root
        base = Path(root) if root else Path(tempfile.gettempdir(), f"pinchbench-{os.getuid()}")
        try:
            base.mkdir(mode=0o755 if root else 0o700, parents=True, exist_ok=True)
            if not root and (base.is_symlink() or base.stat().st_uid != os.getuid()):
                raise PermissionError(f"{base} belongs to somebody else")
        except OSError as error:
            raise EnvironmentUnavailable(
                f"no folder for local sandboxes: {error}; name another one with "
                "--pinchbench-workspace-root, or set TMPDIR"
            ) from error
        return base

    def _own_folder(self) -> Path:
        """This process's folder, beside a lock file that says that the process lives."""
        with self._lock:
            if self._own is None:
                self._own, lock = _claim(self.base())
                weakref.finalize(self, _give_up, self._own, lock)
            return self._own


def _claim(base: Path) -> tuple[Path, int]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix="run-", suffix=".lock", dir=base)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # held until this process ends, however it ends
        folder = Path(name).with_suffix("")
        # whoever cleans up may have got in between, and taken us for dead
        if os.path.exists(name) and os.fstat(descriptor).st_nlink:
            folder.mkdir(mode=0o700)
            return folder, descriptor
        os.close(descriptor)


def _give_up(folder: Path, lock: int) -> None:
    """At the end of the process. With a sandbox still in it, it is for the next run to remove."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.with_suffix(".lock").unlink()
        os.close(lock)


def _of_dead_runs(base: Path) -> Iterator[Path]:
    for lock in base.glob("run-*.lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it lives
            yield lock.with_suffix("")
            lock.unlink()


def folders_with_files(folders: Mapping[str, Path]) -> list[str]:
    """Return the folders with files in them, below ``folders``, by the names in its keys."""
    found = []
    for name, folder in folders.items():
        for path, _, files in os.walk(folder):
            if files:
                found.append(os.path.normpath(os.path.join(name, os.path.relpath(path, folder))))
    return sorted(found)


def remove(folder: Path) -> None:
    """Remove a folder whatever an agent has done to the modes of what is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for path, names, _ in os.walk(folder):  # from the top, so that it gets further down
            for inner in (path, *(os.path.join(path, name) for name in names)):
                if not os.path.islink(inner):  # what a link leads to is not ours
                    with contextlib.suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(folder, ignore_errors=True)
