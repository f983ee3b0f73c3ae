"""What a task's automated checks may do, and what becomes of it: run as in an attempt."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from judging import make_task, message

from pytest_pinchbench.attempt.grading import Grade, grade
from pytest_pinchbench.environments import Sandbox


def check(
    sandbox: Sandbox,
    workspace: Path | str,
    body: str,
    *,
    transcript: Any = (),
    check_timeout: float = 120.0,
) -> Grade:
    """Grade with ``body`` as the inside of ``grade``."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"def grade(transcript, workspace_path):\n{lines}"
    return grade(
        sandbox,
        make_task(source),
        str(workspace),
        transcript,
        judge=None,
        judge_timeout=1.0,
        check_timeout=check_timeout,
    )


def said(result: Grade) -> list[str]:
    return [f"{issue.severity} {issue.code}" for issue in result.issues]


VALUES = {
    "the mean of the numbers": ("return {'a': 1.0, 'b': 0.5, 'c': 0}", 0.5),
    "True is 1.0": ("return {'a': True, 'b': False}", 0.5),
    "ten tenths": ("return {str(i): 0.1 for i in range(10)}", 0.1),
    "three thirds are full marks": ("return dict.fromkeys('abc', 1.0)", 1.0),
    "a mapping that is no dict": (
        "import types\nreturn types.MappingProxyType({'a': 0.25})",
        0.25,
    ),
    "a dict of a class of its own": (
        "import collections\nreturn collections.OrderedDict(a=0.25)",
        0.25,
    ),
    "Decimal and Fraction": (
        "import decimal, fractions\n"
        "return {'a': decimal.Decimal('0.5'), 'b': fractions.Fraction(1, 4)}",
        0.375,
    ),
    "a float of a class of its own": ("class F(float): pass\nreturn {'a': F(0.5)}", 0.5),
    "keys that are no strings": ("return {1: 1.0, '1': 0.0, None: 0.5}", 0.5),
    "ten thousand criteria": ("return {i: 0.5 for i in range(10_000)}", 0.5),
}


@pytest.mark.parametrize(("body", "score"), VALUES.values(), ids=VALUES)
def test_a_score_is_the_mean_of_the_numeric_values(
    sandbox: Sandbox, workspace: Path, body: str, score: float
) -> None:
    result = check(sandbox, workspace, body)
    assert result.score == score
    assert result.issues == ()


WARNED = {
    "text is left out": ("return {'a': 1.0, 'b': 'great'}", 1.0, "left out: b (str)"),
    "None and lists are left out": (
        "return {'a': 0.5, 'b': None, 'c': [1]}",
        0.5,
        "left out: b (NoneType), c (list)",
    ),
    "nested mappings are left out": ("return {'a': {'b': 1.0}}", 0.0, "left out: a (dict)"),
    "a complex number is no score": ("return {'a': 1j}", 0.0, "left out: a (complex)"),
    "nothing": ("return None", 0.0, "a NoneType instead of a mapping"),
    "a number": ("return 1.0", 0.0, "a float instead of a mapping"),
    "a list": ("return [('a', 1.0)]", 0.0, "a list instead of a mapping"),
    "an empty mapping": ("return {}", 0.0, "no numeric value"),
    "NaN": ("return {'a': 1.0, 'b': float('nan')}", 0.0, "NaN or infinite; counted as 0: b"),
    "infinity": ("return {'a': float('-inf')}", 0.0, "NaN or infinite; counted as 0: a"),
    "an int beyond all floats": ("return {'a': 10**400}", 0.0, "NaN or infinite"),
    "above 1, the mean within": ("return {'a': 1.5, 'b': 0.0}", 0.75, "outside 0 to 1"),
    "above 1, the mean too": ("return {'a': 5}", 1.0, "outside 0 to 1 (the mean is kept"),
    "below 0": ("return {'a': -3.0}", 0.0, "a = -3"),
    "sums beyond all floats": ("return {'a': 1.5e308, 'b': 1.5e308}", 1.0, "outside 0 to 1"),
}


@pytest.mark.parametrize(("body", "score", "words"), WARNED.values(), ids=WARNED)
def test_odd_values_are_a_warning(
    sandbox: Sandbox, workspace: Path, body: str, score: float, words: str
) -> None:
    result = check(sandbox, workspace, body)
    assert result.score == score
    assert set(said(result)) == {"WARNING check_result"}
    assert any(words in issue.message for issue in result.issues)


FAILED = {
    "raises": (
        "d = {}\nd['missing']",
        "check_raised",
        "KeyError: 'missing' (line 3 of the task's checks: d['missing'])",
    ),
    "raises in a library": ("import json\njson.loads('{')", "check_raised", "(line 3 of"),
    "raises without a message": ("raise ValueError", "check_raised", "raised ValueError (line 2"),
    "raises what cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise OSError\nraise E",
        "check_raised",
        "raised E: (its message cannot be shown) (line 4",
    ),
    "recurses for ever": (
        "f = lambda: f()\nf()",
        "check_raised",
        "RecursionError: maximum recursion depth exceeded",
    ),
    "calls sys.exit": ("import sys\nsys.exit(0)", "check_raised", "SystemExit: 0 (line 3"),
    "interrupts itself": ("raise KeyboardInterrupt", "check_raised", "KeyboardInterrupt"),
    "reads a file that is no text": (
        "import pathlib\npathlib.Path('x').write_bytes(b'\\xff')\npathlib.Path('x').read_text()",
        "check_raised",
        "UnicodeDecodeError",
    ),
    "has a mapping that raises": (
        "class D(dict):\n    def items(self): raise OSError('no')\nreturn D(a=1)",
        "check_raised",
        "OSError: no (line 3",
    ),
    "calls os._exit": ("import os\nos._exit(0)", "check_died", "ended early, with exit status 0"),
    "crashes": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "check_died",
        "ended by SIGSEGV",
    ),
    "is killed": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "check_died",
        "was killed (out of memory?)",
    ),
    "closes all descriptors": (
        "import os\nos.closerange(0, 256)\nreturn {'a': 1.0}",
        "check_died",
        "gave no result",
    ),
    "returns a hundred megabytes": (
        "return {'x' * 190 + str(i): 1.0 for i in range(30_000)}",
        "check_died",
        "larger than 4 MiB",
    ),
}


@pytest.mark.parametrize(("body", "code", "words"), FAILED.values(), ids=FAILED)
def test_checks_that_fail_are_an_error_and_score_0(
    sandbox: Sandbox, workspace: Path, body: str, code: str, words: str
) -> None:
    result = check(sandbox, workspace, body)
    assert result.score == 0.0
    assert said(result) == [f"ERROR {code}"]
    assert words in result.issues[0].message


HOSTILE = {
    "prints without a newline": "print('no newline', end='')",
    "prints something like a verdict": "print('\\n' * 3 + '0' * 32 + ' {\"score\": 0.0}')",
    "writes to descriptors 1 and 2": "import os\nos.write(1, b'{}\\n')\nos.write(2, b'{}\\n')",
    "closes standard output": "import sys, os\nsys.stdout.close()\nos.close(1)",
    "prints a megabyte": "print('x' * 1_000_000)",
    "replaces sys.stdout": "import sys\nsys.stdout = None",
    "leaves a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    ),
    "leaves an exit handler": "import atexit, time\natexit.register(time.sleep, 600)",
    "leaves a process that holds its output": (
        "import subprocess\nsubprocess.Popen(['sleep', '600'])"
    ),
    "leaves a fork that returns, too": "import os\nos.fork()",
    "leaves a fork that stays": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)"
    ),
    "reads standard input": "import sys\nassert sys.stdin.read() == ''",
    "changes the transcript": "transcript.clear()",
    "changes directory": "import os\nos.chdir('/')",
    "removes the workspace": "import shutil\nshutil.rmtree(workspace_path)",
    "replaces json.dumps": "import json\njson.dumps = None",
    "sets an alarm": "import signal\nsignal.alarm(600)",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_what_checks_do_besides_does_not_touch_their_verdict(
    sandbox: Sandbox, workspace: Path, body: str
) -> None:
    result = check(sandbox, workspace, f"{body}\nreturn {{'a': 0.75}}")
    assert (result.score, result.issues) == (0.75, ())


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import time\ntime.sleep(600)",
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n"
        "time.sleep(600)",
        "import os, time\nos.close(1); os.close(2)\ntime.sleep(600)",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
    ],
)
def test_checks_that_never_return_are_stopped(sandbox: Sandbox, workspace: Path, body: str) -> None:
    result = check(sandbox, workspace, body, check_timeout=0.5)
    assert result.score == 0.0
    assert said(result) == ["ERROR check_timeout"]
    assert "did not return within 0.5 s" in result.issues[0].message


def test_nothing_that_checks_started_is_left(sandbox: Sandbox, workspace: Path) -> None:
    body = (
        "import subprocess, pathlib\n"
        "loose = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "pathlib.Path('pid').write_text(str(loose.pid))\n"
        "return {'a': 1.0}"
    )
    assert check(sandbox, workspace, body).score == 1.0
    process = Path("/proc", (workspace / "pid").read_text())
    with contextlib.suppress(OSError):  # gone; or the number is another process's by now
        assert b"sleep" not in (process / "cmdline").read_bytes()


def test_checks_run_in_the_workspace_with_the_transcript(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "grüße.txt").write_text("schön", encoding="utf-8")
    transcript = [message("user", [{"type": "text", "text": "hällo \udcff \0"}])]
    body = (
        "import os, pathlib\n"
        "text = transcript[0]['message']['content'][0]['text']\n"
        "return {'here': os.path.samefile('.', workspace_path),\n"
        "        'file': pathlib.Path('grüße.txt').read_text() == 'schön',\n"
        "        'list': isinstance(transcript, list),\n"
        "        'text': text == 'hällo \\udcff \\0'}"
    )
    result = check(sandbox, workspace, body, transcript=transcript)
    assert result.breakdown == {"here": 1.0, "file": 1.0, "list": 1.0, "text": 1.0}


def test_a_workspace_that_the_agent_removed_is_graded_as_empty(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    body = "import os\nreturn {'there': os.path.exists(workspace_path)}"
    result = check(sandbox, tmp_path / "removed", body)
    assert (result.score, result.issues) == (0.0, ())


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (None, "check_missing", "no automated checks"),
        ("def grad(transcript, workspace_path): return {}", "check_missing", "called grade"),
        ("grade = 1", "check_missing", "called grade"),
        ("def grade(transcript): return {}", "check_raised", "TypeError"),
        ("def grade(:\n  pass", "check_raised", "SyntaxError: invalid syntax"),
        ("import no_such_module", "check_raised", "ModuleNotFoundError"),
    ],
)
def test_checks_that_cannot_be_run_are_an_error(
    sandbox: Sandbox, workspace: Path, source: str | None, code: str, words: str
) -> None:
    result = grade(sandbox, make_task(source), str(workspace), [], judge=None, judge_timeout=1.0)
    assert (result.score, said(result)) == (0.0, [f"ERROR {code}"])
    assert words in result.issues[0].message


def test_dataclasses_and_annotations_work_in_checks(sandbox: Sandbox, workspace: Path) -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "def grade(transcript, workspace_path):\n"
        "    return {'x': Point(1).x}\n"
    )
    result = grade(sandbox, make_task(source), str(workspace), [], judge=None, judge_timeout=1.0)
    assert (result.score, result.issues) == (1.0, ())


def test_what_checks_print_is_kept_for_the_record(sandbox: Sandbox, workspace: Path) -> None:
    body = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nreturn {'a': 1.0}"
    result = check(sandbox, workspace, body)
    assert result.debug["stdout"] == "out\n"
    assert result.debug["stderr"] == "err\n"
