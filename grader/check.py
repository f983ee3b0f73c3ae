"""The process that runs a task's automated checks, and nothing else.

It is started by ``automated`` with the order on standard input, and gives its verdict on a
descriptor of its own, so that nothing the checks print is taken for one.
"""

from __future__ import annotations

import json
import numbers
import os
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any, Dict, Optional

from . import guard

_dumps = json.dumps  # as it is before the checks run, which may put something else there
FILE = "<automated checks>"  # what tracebacks call the task's source


def main() -> None:
    guard.close_to_neighbours()
    guard.volunteer_for_the_oom_killer()
    order = json.loads(sys.stdin.buffer.read())
    # Neither this program nor the agent's files are where the checks import from.
    sys.path[:] = [path for path in sys.path if path != sys.argv[0]]
    sys.path.append(sys.argv[0] + "/checks")
    sys.argv[:] = ["automated_checks"]
    pid = os.getpid()
    try:
        try:
            os.chdir(order["workspace"])
        except OSError:  # the agent removed it: the checks find nothing there, as they should
            os.chdir("/")
        verdict = _grade(order["source"], order["transcript"], order["workspace"])
    except BaseException as error:  # SystemExit and KeyboardInterrupt are no verdict either
        verdict = {"error": _describe(error, order["source"])}
    if os.getpid() == pid:  # a fork of the checks that returned into here has no say
        _write(order["verdict_fd"], "{} {}\n".format(order["nonce"], _dumps(verdict)))
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # whatever the checks made of these streams
            pass
    os._exit(0)  # no thread and no exit handler of the checks delays or changes anything


def _grade(source: str, transcript: Any, workspace: str) -> Dict[str, Any]:
    # A real module, since dataclasses and pickle look their classes' module up.
    module = types.ModuleType("automated_checks")
    sys.modules[module.__name__] = module
    exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)
    grade = getattr(module, "grade", None)
    if not callable(grade):
        return {"missing": True}
    result = grade(transcript, workspace)
    if not isinstance(result, Mapping):
        return {"type": type(result).__name__}
    values, left_out = [], []
    for key, value in result.items():
        name = str(key)[:200]
        number = _number(value)
        if number is None:
            left_out.append([name, type(value).__name__])
        else:
            values.append([name, number])
    return {"values": values, "left_out": left_out}


def _number(value: Any) -> Optional[float]:
    """The value as a float; None for what is not a number. True is 1.0."""
    if not isinstance(value, numbers.Number):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an int beyond any float
        return float("inf")
    except (TypeError, ValueError):  # complex
        return None


def _describe(error: BaseException, source: str) -> Dict[str, Any]:
    """The exception, and the line of the task's checks where it came through."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == FILE else None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == FILE:
            line = number
    lines = source.splitlines()
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be shown)"
    return {
        "type": type(error).__name__,
        "message": message[:1000],
        "line": line,
        "text": lines[line - 1].strip()[:200] if line and line <= len(lines) else "",
    }


def _write(descriptor: int, text: str) -> None:
    data = text.encode("ascii")  # json.dumps escapes everything else
    while data:
        data = data[os.write(descriptor, data) :]
