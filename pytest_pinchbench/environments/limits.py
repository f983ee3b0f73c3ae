"""How many sandboxes are open at once, and how fast they are opened, over all processes.

A cloud account has limits of its own, and they are one for all xdist workers and all runs
that a machine has under way. So the count is kept in files of the data directory: a slot is
a locked file, and the lock goes with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_pinchbench.issues import EnvironmentUnavailable, using_data_dir

_LOOK_AGAIN = 0.25  # seconds between two looks for a free slot
_LONGEST_QUEUE = 3600.0  # seconds; a turn later than that was given by a clock gone wrong


@dataclass(frozen=True)
class OpenLimits:
    """``None``: without a limit. ``folder`` is where the count is kept, ``kind`` whose it is."""

    folder: Path
    kind: str
    max_open: int | None = None
    opens_per_second: float | None = None

    def acquire(self) -> Slot:
        """Wait until one more sandbox may be opened."""
        slot = self._take_slot()
        try:
            self._wait_for_turn()
        except BaseException:
            slot.release()
            raise
        return slot

    def _take_slot(self) -> Slot:
        if self.max_open is None:
            return Slot(None)
        while True:
            for number in range(self.max_open):
                descriptor = self._open(f"{self.kind}-{number}.slot")
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return Slot(descriptor)
                except BlockingIOError:
                    os.close(descriptor)
            time.sleep(_LOOK_AGAIN * random.uniform(0.5, 1.5))

    def _wait_for_turn(self) -> None:
        if self.opens_per_second is None:
            return
        descriptor = self._open(f"{self.kind}.turn")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            turn = now = time.time()
            with contextlib.suppress(ValueError):  # empty: nobody before us
                last = float(os.pread(descriptor, 64, 0))
                if last < now + _LONGEST_QUEUE:
                    turn = max(now, last + 1 / self.opens_per_second)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, repr(turn).encode(), 0)
        finally:
            os.close(descriptor)
        time.sleep(max(0.0, turn - time.time()))

    def _open(self, name: str) -> int:
        with using_data_dir(EnvironmentUnavailable):
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)


class Slot:
    """The permission to have one sandbox open."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Twice is once."""
        if self._descriptor is not None:
            os.close(self._descriptor)  # and so unlock
            self._descriptor = None
