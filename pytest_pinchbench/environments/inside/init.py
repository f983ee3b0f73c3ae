"""Process 1 of a bubblewrap sandbox: starts programs for the process that holds its socket.

Run as ``python -I -S init.py SOCKET``, with the number of an inherited SOCK_SEQPACKET socket.
A message is a JSON list, the program's argument vector, with three descriptors: its standard
input, output and error. The end of the socket (the other process is gone, or wants it so) ends
this process, and with it every process of the sandbox: the kernel ends a PID namespace with
its first process. A signal from inside the namespace cannot end or stop this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket

_PR_SET_DUMPABLE = 4
_LARGEST = 1 << 17  # bytes of a message


def main(number: int) -> None:
    # closed to ptrace and /proc/1/mem: an agent of the same user must not speak for this process
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGCHLD, _reap)
    os.set_inheritable(number, False)
    with socket.socket(fileno=number) as orders:
        orders.send(b".")  # ready
        while True:
            message, streams, _, _ = socket.recv_fds(orders, _LARGEST, 3)
            if not message:
                return
            if os.fork() == 0:
                _become(json.loads(message), streams)
            for stream in streams:
                os.close(stream)


def _become(argv: list[str], streams: list[int]) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.set_inheritable(stream, False)  # or the command's own children would hold it
        os.execvp(argv[0], argv)
    finally:
        os._exit(127)


def _reap(number: int, frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]))
