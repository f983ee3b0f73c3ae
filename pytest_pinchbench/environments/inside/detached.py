"""Runs in a Daytona sandbox: commands that outlive the HTTP request that started them.

A request to a cloud can be cut off, and then says nothing about what became of its work. So a
command is started once, however often the request for it is repeated, and goes on by itself;
every request waits a while for its end and reports. Standard library only, Python 3.8 and up;
sent along as text with each request (see ``daytona.py``), so that no agent can change it.

The last argument is JSON in base64:

``job``       a folder with the file ``request`` in it: what the command gets as its input
``argv``      the command; its input stays open after that, for as long as it runs
``wait``      seconds to wait for its output to end
``inline``    bytes of output that may stand in the report; what is more, lies in the folder
``finished``  folders of earlier jobs, to be removed
or, alone,
``kill``      ``[keeper, command]`` process ids of earlier jobs, to be ended if they still run

The report is one line of JSON: ``pids`` (``[keeper, command]``) and either ``running``: true,
or ``lost``: true (it ended without our seeing its output to the end), or ``stdout`` and
``stderr``, each in base64, or null where it lies in the folder under that name.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, NoReturn

KILL_PATIENCE = 20.0  # seconds for a command to end after its input has


def main() -> None:
    order = json.loads(base64.b64decode(sys.argv[-1]))
    if "kill" in order:
        for keeper, command in order["kill"]:
            end(keeper, command)
        report = {}
    else:
        for folder in order["finished"]:
            shutil.rmtree(folder, ignore_errors=True)
        report = run(order)
    print(json.dumps(report))


def run(order: dict[str, Any]) -> dict[str, Any]:
    os.chdir(order["job"])
    deadline = time.monotonic() + order["wait"]
    # the lock is held by the keeper until all output is in the folder
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    running = not take(lock, deadline)
    pids = None
    if not running and os.path.exists("request"):  # nobody has started it yet
        pids = start(order["argv"], lock)
        os.close(lock)
        lock = os.open("lock", os.O_RDWR)
        running = not take(lock, deadline)
    report: dict[str, Any] = {"pids": pids or noted_pids()}
    if running:
        report["running"] = True
    elif not os.path.exists("complete"):
        report["lost"] = True
    else:
        size = os.path.getsize("stdout") + os.path.getsize("stderr")
        for name in ("stdout", "stderr"):
            report[name] = None if size > order["inline"] else content(name)
    return report


def take(lock: int, deadline: float) -> bool:
    """Wait for the lock; False when the deadline comes first."""

    def give_up(number: int, frame: object) -> NoReturn:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return True
    except TimeoutError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def noted_pids() -> list[int] | None:
    """For a request whose predecessor's answer was lost."""
    try:
        with open("pids") as file:
            pids: list[int] | None = json.load(file)
    except (OSError, ValueError):
        return None
    return pids


def content(name: str) -> str:
    with open(name, "rb") as file:
        return base64.b64encode(file.read()).decode()


def start(argv: list[str], lock: int) -> list[int] | None:
    """Start the keeper, and come back when it has started the command. Their ids."""
    started, starting = os.pipe()
    if os.fork() == 0:
        # twice, so that it descends from nothing that goes down with this request
        os.setsid()
        if os.fork() == 0:
            try:
                os.close(started)
                keep(argv, starting, lock)
            finally:
                os._exit(0)
        os._exit(0)
    os.close(starting)
    os.wait()
    with open(started) as told:
        pids: list[int] | None = json.loads(told.read() or "null")
    return pids


def keep(argv: list[str], starting: int, lock: int) -> None:
    """Be the keeper: feed the command, store its output, and hold its input open."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    close_to_others()
    request = os.open("request", os.O_RDONLY)
    os.unlink("request")
    command = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )
    pids = json.dumps([os.getpid(), command.pid])
    with open("pids", "w") as file:
        file.write(pids)
    with open(starting, "w") as told:
        told.write(pids)

    assert command.stdin is not None  # all three are pipes
    assert command.stdout is not None
    assert command.stderr is not None
    stdin = command.stdin

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), open(request, "rb") as source:
            shutil.copyfileobj(source, stdin)
            stdin.flush()

    def store(source: IO[bytes], name: str) -> None:
        with open(name, "wb") as target:
            shutil.copyfileobj(source, target)

    threading.Thread(target=feed, daemon=True).start()
    storing = [
        threading.Thread(target=store, args=(command.stdout, "stdout")),
        threading.Thread(target=store, args=(command.stderr, "stderr")),
    ]
    for thread in storing:
        thread.start()
    for thread in storing:
        thread.join()
    open("complete", "w").close()
    os.close(lock)
    command.wait()


def close_to_others() -> None:
    """No process of the same user may look into this one, which holds the request open."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        PR_SET_DUMPABLE = 4
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def end(keeper: int, command: int) -> None:
    """Take a running command's keeper away: it kills what it started when its input ends."""
    if stat_of(command)[1:2] != [str(keeper)]:
        return  # it has ended, and the ids may be those of others by now
    kill(keeper)
    limit = time.monotonic() + KILL_PATIENCE
    while stat_of(command)[:1] not in ([], ["Z"], ["X"]) and time.monotonic() < limit:
        time.sleep(0.005)
    kill(command)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def stat_of(pid: int) -> list[str]:
    """State, parent and more; nothing of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    main()
