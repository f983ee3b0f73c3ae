"""What the tests of environments have in common: commands, and whether a process lives."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from pytest_pinchbench.environments import ExecResult, Sandbox

_numbers = itertools.count()


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(sandbox: Sandbox, program: str) -> list[str]:
    return [sandbox.python, "-c", program]


def long_sleep() -> str:
    """A command that ends long after the test, unlike any other on this machine."""
    return f"sleep 30{os.getpid()}.{next(_numbers)}{time.time_ns()}"


def is_running(command: str) -> str:
    """A shell condition: such a process is there, its last word seen on its own."""
    word = command.split()[-1]
    # not the text itself, which is among the words of this very grep
    return f"grep -zxqs '[{word[0]}]{word[1:]}' /proc/[0-9]*/cmdline"


def count(sandbox: Sandbox, command: str) -> int:
    """How many processes in the sandbox run this very command."""
    program = f"""
import os
found = 0
for name in os.listdir("/proc"):
    try:
        words = open(f"/proc/{{name}}/cmdline").read().split(chr(0))
    except OSError:
        continue
    found += words[:-1] == {command.split()!r}
print(found)
"""
    return int(sandbox.exec(python(sandbox, program)).stdout)


def timed_out_after(output: bytes, run: Callable[[float], ExecResult]) -> ExecResult:
    """What ``run(timeout)`` has when its time is up, with time enough to have said ``output``.

    How long that takes is the machine's matter: a short timeout first, then longer ones.
    """
    for timeout in (1.0, 10.0, 60.0):
        result = run(timeout)
        if result.stdout == output:
            break
    assert result.timed_out
    assert result.stdout == output
    assert timeout <= result.seconds < timeout + 100  # what runs sleeps 1000 s
    return result
