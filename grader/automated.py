"""The automated part: runs a task's ``grade(transcript, workspace_path)`` and averages it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from typing import Any, BinaryIO, Dict, List, Optional, Set, Tuple

from . import guard
from .part import Issue, Part, issue

LARGEST_VERDICT = 4 << 20  # bytes; thousands of criteria fit
KEPT_OUTPUT = 20_000  # bytes of each of the checks' streams that are kept for the record


def run_checks(source: Optional[str], transcript: Any, workspace: str, timeout: float) -> Part:
    """The checks' part of a grade. ``timeout`` in seconds covers everything they do."""
    started = time.monotonic()
    if not source:
        problem = issue("ERROR", "check_missing", "the task has no automated checks to run")
        return Part(0.0, {}, [problem], {}, 0.0)
    verdict, failure, debug = _run(source, transcript, workspace, timeout)
    score, breakdown, issues = _score(verdict) if failure is None else (0.0, {}, [failure])
    return Part(score, breakdown, issues, debug, time.monotonic() - started)


def _run(
    source: str, transcript: Any, workspace: str, timeout: float
) -> Tuple[Any, Optional[Issue], Dict[str, Any]]:
    """The verdict of the checks' process, or what is wrong; and the evidence."""
    nonce = os.urandom(16).hex()
    verdict_fd, theirs = os.pipe()
    guard.adopt_orphans()
    # -X utf8: what the checks read does not depend on the locale of the machine.
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", sys.argv[0], "check"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(theirs,),
        start_new_session=True,
    )
    os.close(theirs)
    assert child.stdin
    assert child.stdout
    assert child.stderr
    order = {
        "source": source,
        "transcript": transcript,
        "workspace": workspace,
        "nonce": nonce,
        "verdict_fd": theirs,
    }
    feeder = threading.Thread(target=_feed, args=(child.stdin, json.dumps(order)), daemon=True)
    feeder.start()
    stdout, stderr = child.stdout.fileno(), child.stderr.fileno()
    streams = _Streams({verdict_fd: LARGEST_VERDICT, stdout: KEPT_OUTPUT, stderr: KEPT_OUTPUT})
    deadline = time.monotonic() + timeout
    in_time = _listen(child, streams, verdict_fd, deadline)
    if in_time:  # it is about to end, and what it printed last is on its way
        closing = min(deadline, time.monotonic() + 1.0)
        while child.poll() is None and time.monotonic() < closing:
            streams.read(0.005)
        while streams.read(0.0) and time.monotonic() < closing:
            pass
    ended_by_itself = child.poll() is not None
    _end(child)
    os.close(verdict_fd)
    debug = {
        "stdout": streams.text(stdout),
        "stderr": streams.text(stderr),
        "exit_code": child.returncode if in_time else None,
    }
    line = streams.text(verdict_fd)
    if line.startswith(nonce + " ") and line.endswith("\n"):
        verdict = json.loads(line[len(nonce) + 1 :])
        if "error" in verdict:
            return None, _raised(verdict["error"]), debug
        if "missing" in verdict:
            text = "the task's automated checks define no function called grade"
            return None, issue("ERROR", "check_missing", text), debug
        return verdict, None, debug
    return None, _no_verdict(child, ended_by_itself, in_time, line, timeout), debug


def _feed(stdin: BinaryIO, text: str) -> None:
    try:
        stdin.write(text.encode("ascii"))
        stdin.close()
    except OSError:  # it is gone; its exit status says more
        pass


class _Streams:
    """Reads several descriptors, keeping so much of each and throwing the rest away."""

    def __init__(self, limits: Dict[int, int]) -> None:
        self._limits = limits
        self._data = {descriptor: bytearray() for descriptor in limits}
        self._selector = selectors.DefaultSelector()
        self.open: Set[int] = set(limits)
        for descriptor in limits:
            self._selector.register(descriptor, selectors.EVENT_READ)

    def read(self, timeout: float) -> Set[int]:
        """Wait so many seconds for something to read, and read it. Where there was anything."""
        ready = set()
        for key, _ in self._selector.select(timeout):
            ready.add(key.fd)
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fd)
                self.open.discard(key.fd)
            kept = self._data[key.fd]
            kept += data[: self._limits[key.fd] - len(kept)]
        return ready

    def text(self, descriptor: int) -> str:
        return self._data[descriptor].decode("utf-8", "replace")


def _listen(
    child: "subprocess.Popen[bytes]", streams: _Streams, verdict_fd: int, deadline: float
) -> bool:
    """Read until the verdict is there, cannot come any more, or (False) time is up."""
    while True:
        # Asked before reading: what it wrote before it ended is in the pipe by now.
        ended = child.poll() is not None
        remaining = deadline - time.monotonic()
        ready = streams.read(0.0 if ended else max(0.0, min(remaining, 0.1)))
        if verdict_fd not in streams.open or streams.text(verdict_fd)[-1:] == "\n":
            return True
        if ended and verdict_fd not in ready:  # a process it left behind keeps the pipe open
            return True
        if remaining <= 0:
            return False


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The checks' process and all that it started, however detached."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    guard.kill_children()
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()


def _raised(error: Dict[str, Any]) -> Issue:
    where = ""
    if error["line"]:
        where = " (line {} of the task's checks: {})".format(error["line"], error["text"])
    what = ": ".join(filter(None, [error["type"], error["message"]]))
    return issue("ERROR", "check_raised", "the task's grade() raised {}{}".format(what, where))


def _no_verdict(
    child: "subprocess.Popen[bytes]",
    ended_by_itself: bool,
    in_time: bool,
    line: str,
    timeout: float,
) -> Issue:
    if not in_time:
        text = "the task's grade() did not return within {:g} s and was stopped".format(timeout)
        return issue("ERROR", "check_timeout", text)
    if len(line) >= LARGEST_VERDICT:
        why = "its result is larger than {} MiB".format(LARGEST_VERDICT >> 20)
    elif not ended_by_itself:
        why = "it closed the stream that its result goes to"
    elif child.returncode == -signal.SIGKILL:
        why = "its process was killed (out of memory?)"
    elif child.returncode < 0:
        why = "its process was ended by {}".format(signal.Signals(-child.returncode).name)
    else:
        why = "its process ended early, with exit status {}".format(child.returncode)
    return issue("ERROR", "check_died", "the task's grade() gave no result: " + why)


def _score(verdict: Dict[str, Any]) -> Tuple[float, Dict[str, float], List[Issue]]:
    """The arithmetic mean of the numeric values, and what to say about the others."""
    issues: List[Issue] = []

    def warn(text: str) -> None:
        issues.append(issue("WARNING", "check_result", "the task's grade() returned " + text))

    if "type" in verdict:
        warn("a {} instead of a mapping of scores; counted as 0".format(verdict["type"]))
        return 0.0, {}, issues
    values = [(str(key), float(value)) for key, value in verdict["values"]]
    finite = {key: value for key, value in values if math.isfinite(value)}
    if verdict["left_out"]:
        names = ", ".join("{} ({})".format(*pair) for pair in verdict["left_out"][:10])
        warn("values that are not numbers, which are left out: " + names)
    if not values:
        warn("no numeric value; counted as 0")
        return 0.0, {}, issues
    odd = [key for key, value in values if not math.isfinite(value)]
    if odd:
        warn("a value that is NaN or infinite; counted as 0: " + ", ".join(odd[:10]))
        return 0.0, finite, issues
    outside = ["{} = {:g}".format(key, value) for key, value in values if not 0 <= value <= 1]
    if outside:
        warn("values outside 0 to 1 (the mean is kept within it): " + ", ".join(outside[:10]))
    try:
        mean = math.fsum(value for _, value in values) / len(values)
    except OverflowError:  # the sum of huge values
        mean = max((value for _, value in values), key=abs)
    return min(max(mean, 0.0), 1.0), finite, issues
