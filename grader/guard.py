"""Keeping this process to itself, and ending whatever it started.

Code that the agent wrote may run beside the grader (a check can execute it), as the same
user. Linux lets a process close its memory and its descriptors to such neighbours.
"""

from __future__ import annotations

import os
import signal
import time
from typing import List

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    """Best effort: not on macOS, and Debian's python3-minimal has no ctypes."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def close_to_neighbours() -> None:
    """No other process of this user can read our memory, our descriptors, or trace us.

    That goes for root in a container, too, unless it was given CAP_SYS_PTRACE.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Descendants whose parent ends become our children, so that they can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def volunteer_for_the_oom_killer() -> None:
    """When memory runs out, this process goes first, and its parent can say so."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def kill_children(seconds: float = 5.0) -> None:
    """Kill our children until there are none; needs :func:`adopt_orphans` for grandchildren."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        children = _children()
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:  # somebody else's, or already gone
                pass


def _children() -> List[int]:
    me = str(os.getpid())
    found = []
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no /proc here (macOS): the process group was all there was to kill
        return []
    for pid in pids:
        try:
            with open("/proc/{}/stat".format(pid), "rb") as file:
                stat = file.read()
        except OSError:
            continue
        # after the command's name, which may hold spaces and brackets: state, parent
        if stat.rpartition(b")")[2].split()[1].decode() == me:
            found.append(int(pid))
    return found
