"""The program that runs inside every sandbox around each command.

Standard library only, Python 3.8 and up: it is sent into the sandbox as text and run by the
sandbox's own ``python3 -I -S`` (see ``sandbox.py``, which speaks to it).

On standard input it gets one line of JSON, the header, and then the bytes that the command
is to read: so no secret is ever in an argument list, and the end of the command's input needs
no half-closed connection. The header's keys:

``token``    secret that proves the trailer; the command cannot read it
``argv``     the command; or ``code`` and ``call``: Python source, and ``[function, arguments]``
             to call in it, in a forked child (no second interpreter to start)
``cwd``      directory, or null
``env``      variables added to the supervisor's own
``cookie``   a value that every process of this command carries in its environment
``stdin``    number of bytes that follow the header
``timeout``  seconds, or null
``watch``    true where standard input stays open for as long as somebody waits for the result:
             its end then means that nobody does, and everything is killed
``stay``     true: outlive the command as the parent of what it left running, until standard
             input ends. False: leave that to process 1
``stop``     instead of a command: kill what earlier commands left running; ``"everything"``
             in this PID namespace but process 1, or what carries this cookie

The command's stdout and stderr come out as they are, on stdout and stderr. When the command
has ended, the trailer follows on stderr: the token, a space, and one line of JSON with
``exit_code`` (-N for signal N), ``timed_out``, ``seconds``, ``stdout`` and ``stderr`` (how many
bytes the command wrote), ``left`` (it left processes running) and ``survivors`` (how many
processes could not be killed). Without a trailer there was no result.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import time

TYPE_CHECKING = False  # typing is slow to import, and this program starts often
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

COOKIE = "SANDBOX_COMMAND"  # the environment variable that carries the cookie
CHUNK = 1 << 18
KILL_PATIENCE = 20.0  # seconds for a killed process to go; one stuck in the kernel may not
_SHRUGGED_OFF = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP")


class Gone(Exception):
    """Nobody waits for the result any more."""


class Flow:
    """Bytes on their way from one descriptor to another, at most one chunk held at a time.

    ``limit`` is how many more bytes to take from the source; None: until it ends.
    """

    def __init__(
        self, source: int | None, target: int | None, limit: int | None = None, held: bytes = b""
    ) -> None:
        self.source = source
        self.target = target
        self.limit = limit
        self.held = memoryview(held)
        self.count = 0  # bytes taken from the source

    def ended(self) -> bool:
        return not self.held and (self.source is None or self.limit == 0)

    def take(self) -> bool:
        """Read once. False when the source has ended."""
        assert self.source is not None
        size = CHUNK if self.limit is None else min(CHUNK, self.limit)
        try:
            data = os.read(self.source, size)
        except BlockingIOError:
            return True
        if not data:
            self.source = None
            return False
        self.count += len(data)
        if self.limit is not None:
            self.limit -= len(data)
        self.held = memoryview(data)
        return True

    def give(self) -> bool:
        """Write what is held, as far as the target takes it. False when nobody reads it."""
        assert self.target is not None
        try:
            while self.held:
                self.held = self.held[os.write(self.target, self.held) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.held = memoryview(b"")
            return False
        return True


def main() -> None:
    header, rest = read_header()
    if "stop" in header:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGCONT)  # an agent can stop its own supervisor, which has to report
        survivors = stop(header["stop"])
        send_trailer(header, exit_code=0, stdout=0, stderr=0, survivors=survivors)
        return
    shrug_off_signals()
    subreaper = become_subreaper()
    Command(header, rest, subreaper).run()


def read_header() -> tuple[dict[str, Any], bytes]:
    text = b""
    while b"\n" not in text:
        data = os.read(0, CHUNK)
        if not data:
            raise SystemExit("the header on standard input is cut off")
        text += data
    line, _, rest = text.partition(b"\n")
    header: dict[str, Any] = json.loads(line)
    return header, rest


def shrug_off_signals() -> None:
    """An agent's ``pkill python3`` must not take its own supervisor with it."""
    for name in _SHRUGGED_OFF:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write("sandbox-exec")
    except OSError:
        pass


def become_subreaper() -> bool:
    """Make every orphan below this process its child, however detached. False: not to be had.

    Closed to ptrace and /proc/PID/mem, too: the token is in this process's memory, and the
    command runs as the same user.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return False
    PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    return bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class Command:
    """One command, from its start to its trailer (and with ``stay`` beyond)."""

    def __init__(self, header: dict[str, Any], rest: bytes, subreaper: bool) -> None:
        self.header = header
        self.subreaper = subreaper
        self.status: int | None = None  # as os.wait has it
        self.has_children = True
        child_in, feed = os.pipe()
        stdout, child_out = os.pipe()
        stderr, child_err = os.pipe()
        self.woken, wake = os.pipe()
        for descriptor in (feed, stdout, stderr, self.woken, wake, 0, 1, 2):
            os.set_blocking(descriptor, False)
        for descriptor in (feed, stdout, stderr):
            widen(descriptor)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        length = header["stdin"]
        self.input = Flow(0, feed, limit=length - len(rest), held=rest)
        self.outputs = (Flow(stdout, 1), Flow(stderr, 2))
        self.started = time.monotonic()
        self.child = os.fork()
        if self.child == 0:
            start(header, (child_in, child_out, child_err))
        for descriptor in (child_in, child_out, child_err):
            os.close(descriptor)

    def run(self) -> None:
        timeout = self.header["timeout"]
        deadline = None if timeout is None else self.started + timeout
        timed_out = False
        survivors = 0
        try:
            while self.status is None and not timed_out:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    timed_out = True
                    survivors = self.kill()
                else:
                    self.pump(left)
            seconds = time.monotonic() - self.started
            # what lies in the pipes now is what the command wrote: something it left behind
            # may hold them open, and go on writing, for ever
            for flow in self.outputs:
                if flow.source is not None:
                    flow.limit = waiting(flow.source)
            while not all(flow.ended() for flow in self.outputs):
                self.pump(None)
            self.reap()
            left_running = not timed_out and self.anything_left()
            send_trailer(
                self.header,
                exit_code=exit_code(self.status),
                timed_out=timed_out,
                seconds=seconds,
                stdout=self.outputs[0].count,
                stderr=self.outputs[1].count,
                left=left_running,
                survivors=survivors,
            )
            if left_running:
                self.look_after_the_rest()
        except Gone:
            self.kill()

    def pump(self, timeout: float | None) -> None:
        """Wait for something to happen, up to ``timeout`` seconds, and move what can move."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        if self.input.target is not None and self.input.ended():
            self.end_input()
        if self.input.target is not None and self.input.held:
            poll.register(self.input.target, select.POLLOUT)
        if self.input.source is not None:
            if not self.input.held:
                poll.register(0, select.POLLIN)
            elif self.header["watch"]:
                poll.register(0, 0)  # a hang-up is reported without being asked for
        for flow in self.outputs:
            if flow.held and flow.target is not None:
                poll.register(flow.target, select.POLLOUT)
            elif flow.source is not None and flow.limit != 0:
                poll.register(flow.source, select.POLLIN)
        events = poll.poll(None if timeout is None else timeout * 1000 + 1)
        for descriptor, _ in events:
            if descriptor == self.woken:
                os.read(self.woken, CHUNK)
                self.reap()
            elif descriptor == 0:
                self.take_input()
            elif descriptor == self.input.target:
                self.feed()
            else:
                self.relay(descriptor)

    def take_input(self) -> None:
        if self.input.held:  # only registered for the hang-up
            raise Gone
        if self.input.limit == 0:  # all there: what can still come is the end
            if not os.read(0, CHUNK):
                self.input.source = None
                if self.header["watch"]:
                    raise Gone
        elif not self.input.take():
            raise Gone  # cut off in the middle
        elif self.input.target is None:
            self.input.held = memoryview(b"")  # the command does not want it
        else:
            self.feed()

    def feed(self) -> None:
        if not self.input.give() or self.input.ended():
            self.end_input()

    def end_input(self) -> None:
        if self.input.target is not None:
            os.close(self.input.target)
            self.input.target = None

    def relay(self, descriptor: int) -> None:
        for flow in self.outputs:
            if descriptor == flow.source and not flow.held:
                flow.take()
            if flow.held and descriptor in (flow.source, flow.target) and not flow.give():
                raise Gone

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def anything_left(self) -> bool:
        return self.has_children or (not self.subreaper and bool(self.find()))

    def find(self) -> dict[int, Process]:
        cookie = None if self.subreaper else self.header["cookie"]
        return family({os.getpid(), self.child}, cookie)

    def kill(self) -> int:
        """Kill the command and all that came of it. Returns how many could not be killed."""
        limit = time.monotonic() + KILL_PATIENCE
        while True:
            found = self.find()
            killed = kill_processes(found)
            self.reap()
            if not found and not self.has_children:
                return 0
            if (found and not killed) or time.monotonic() > limit:
                return len(found)
            time.sleep(0.002)

    def look_after_the_rest(self) -> None:
        """The command has ended; what it left running goes on, and may go on writing."""
        if not self.header["stay"] and os.fork():
            return  # the result is complete for whoever waits for this process, too
        self.end_input()
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        for flow in self.outputs:
            flow.limit = None
        if not self.header["stay"]:
            os.dup2(nowhere, 0)
            os.setsid()
            self.input.source = None
        while (self.header["stay"] and self.anything_left()) or any(
            flow.source is not None for flow in self.outputs
        ):
            self.pump(None if self.subreaper else 1.0)


def start(header: dict[str, Any], streams: tuple[int, int, int]) -> None:
    """In the forked child: become the command. Does not return."""
    code = 126
    try:
        signal.set_wakeup_fd(-1)
        for name in (*_SHRUGGED_OFF, "SIGCHLD", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        if header["cwd"] is not None:
            os.chdir(encode(header["cwd"]))
        if "code" in header:
            code = call(header["code"], *header["call"])
        else:
            environment = dict(os.environb)
            added = {**header["env"], COOKIE: header["cookie"]}
            environment.update((encode(name), encode(value)) for name, value in added.items())
            code = become([encode(word) for word in header["argv"]], environment)
    except OSError as error:
        complain("%s: %s" % (header["cwd"], error.strerror))
    except BaseException as error:
        complain("%s: %s" % (type(error).__name__, error))
    finally:
        os._exit(code)


def become(argv: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Replace this process by the command. Returns, as shells do, 127 or 126 if that fails."""
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        complain("%s: %s" % (argv[0].decode("utf-8", "surrogateescape"), error.strerror))
        return 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126


def complain(text: str) -> None:
    os.write(2, encode(text + "\n"))


def call(source: str, function: str, arguments: list[Any]) -> int:
    """Run Python of ours. Its OSError goes to stderr as JSON, and is raised over there."""
    namespace: dict[str, Any] = {"__name__": "sandbox"}
    try:
        exec(source, namespace)
        namespace[function](*arguments, sys.stdin.buffer, sys.stdout.buffer)
        sys.stdout.flush()
        return 0
    except OSError as error:
        os.write(2, json.dumps([error.errno, error.strerror, error.filename]).encode())
        return 1


def send_trailer(header: dict[str, Any], **result: Any) -> None:
    text = "%s %s\n" % (header["token"], json.dumps(result))
    os.set_blocking(2, True)
    try:
        os.write(2, text.encode())  # shorter than PIPE_BUF: whole or not at all
    except BrokenPipeError:
        raise Gone from None


def stop(which: str, supervisors: frozenset[int] = frozenset()) -> int:
    """Kill everything in this PID namespace but process 1, or what carries a cookie or descends
    from a supervisor.

    Returns how many processes could not be killed.
    """
    limit = time.monotonic() + KILL_PATIENCE
    while True:
        if which == "everything":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)  # in one go: no fork gets past it
            found = {pid: entry for pid, entry in processes().items() if entry.state != "Z"}
            found.pop(1, None)
            found.pop(os.getpid(), None)
        else:
            found = family(supervisors, which)
        killed = kill_processes(found)
        if not found:
            return 0
        if not killed or time.monotonic() > limit:
            return len(found)
        time.sleep(0.002)


class Process:
    def __init__(self, state: str, parent: int, group: int, session: int) -> None:
        self.state = state
        self.parent = parent
        self.group = group
        self.session = session


def processes() -> dict[int, Process]:
    """Every process there is, as ``/proc`` shows it, by its id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            found[int(name)] = Process(
                fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])
            )
    return found


def family(ancestors: Container[int], cookie: str | None) -> dict[int, Process]:
    """The living processes that descend from ``ancestors``, are in a session that one of them
    leads, or carry ``cookie``; and whatever descends from those."""
    everything = processes()
    children: dict[int, list[int]] = {}
    ahead: list[int] = []
    for pid, process in everything.items():
        children.setdefault(process.parent, []).append(pid)
        if (
            process.parent in ancestors
            or process.session in ancestors
            or (cookie is not None and carries(pid, cookie))
        ):
            ahead.append(pid)
    found = {}
    while ahead:
        pid = ahead.pop()
        if pid not in found and pid != os.getpid():
            found[pid] = everything[pid]
            ahead += children.get(pid, ())
    return {pid: process for pid, process in found.items() if process.state not in "ZX"}


def carries(pid: int, cookie: str) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as environ:
            return ("\0%s=%s" % (COOKIE, cookie)).encode() in b"\0" + environ.read()
    except OSError:
        return False  # gone, or somebody else's


def kill_processes(found: dict[int, Process]) -> int:
    """SIGKILL. Returns how many could be sent it.

    Groups first, each in one go: a process that forks as fast as it can does not outrun that.
    Nobody but descendants of a command can be in its process groups.
    """
    killed = 0
    for group in {process.group for process in found.values()} - {0, os.getpgrp()}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            killed += 1
        except PermissionError:
            pass
    return killed


def exit_code(status: int | None) -> int:
    if status is None:  # stuck in the kernel, killed all the same
        return -signal.SIGKILL
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def waiting(descriptor: int) -> int:
    """How many bytes lie in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return int(count)


def widen(descriptor: int) -> None:
    F_SETPIPE_SZ = 1031  # fcntl has the name from Python 3.10
    with contextlib.suppress(OSError):  # it is for speed only
        fcntl.fcntl(descriptor, F_SETPIPE_SZ, 1 << 20)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    with contextlib.suppress(Gone):
        main()
