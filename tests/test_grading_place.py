"""Where a task is graded, and what the record says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_pinchbench.attempt.grading_place import looks_outside
from pytest_pinchbench.environments.bubblewrap import why_unusable

Run = Callable[..., pytest.RunResult]
Project = Callable[..., Path]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import subprocess", "subprocess"),
        ("import json, subprocess as s", "subprocess"),
        ("def grade(t, w):\n    from subprocess import run", "subprocess"),
        ("import pty", "pty"),
        ("from os import system", "os.system"),
        ("import os\nos.execv('x', [])", "os.execv"),
        ("import os\nos.popen('x')", "os.popen"),
        ("import sys\nx = [sys.executable]", "sys.executable"),
        ("from pathlib import Path\nPath.home()", "Path.home"),
        ("import os\nos.path.expanduser('x')", "os.path.expanduser"),
        ("open('/usr/local/bin/tool')", "'/usr/local/bin/tool'"),
        ("open(f'/tmp/{1}')", "'/tmp/'"),
        ("open('~/x')", "'~/x'"),
        ("x.environ['HOME']", "'HOME'"),
        ("import os\nos.path.join('a', 'b')\nos.walk('.')", ""),
        ("x = '/' in 'a/b'; y = '/api/v1'; z = 'see /tmp for more'", ""),
        ("import re, json, csv, pathlib, sqlite3", ""),
    ],
)
def test_what_checks_need_beyond_the_workspace_is_in_their_syntax_tree(
    source: str, found: str
) -> None:
    assert looks_outside(source) == found


@pytest.fixture
def graded(run: Run, project: Project, pytester: pytest.Pytester) -> Callable[..., dict[str, str]]:
    """Where ``task_a`` was graded; its result is in ``graded.record``."""
    if reason := why_unusable():
        pytest.skip(reason)

    def grade(*options: str, script: str = "echo yes > made.txt", **task: object) -> dict[str, str]:
        project({"task_a": script}, task_a=task)
        run("--pinchbench-env", "bubblewrap", *options)
        (path,) = pytester.path.glob("pinchbench-results/*/*/*/*/result.json")
        grade.record = json.loads(path.read_text())  # type: ignore[attr-defined]
        return grade.record["graded_in"]  # type: ignore[attr-defined,no-any-return]

    return grade


def score(graded: Callable[..., dict[str, str]]) -> float | None:
    return graded.record["metrics"]["score"]  # type: ignore[attr-defined,no-any-return]


CHECK = "def grade(transcript, workspace_path):\n    from pathlib import Path\n"
TOOL = CHECK + "    return {'x': float(Path('/tmp/tool').exists())}"
HIDDEN = CHECK + "    return {'x': float(Path('/', 'home', 'agent', 'tool').exists())}"


def test_a_task_is_graded_where_its_agent_has_not_been(graded) -> None:  # type: ignore[no-untyped-def]
    where = graded()
    assert (where["sandbox"], score(graded)) == ("fresh", 1.0)
    assert "nothing but the workspace" in where["reason"]


def test_checks_that_look_elsewhere_are_run_where_the_agent_was(graded) -> None:  # type: ignore[no-untyped-def]
    where = graded(script="echo > /tmp/tool", check=TOOL)
    assert (where["sandbox"], score(graded)) == ("same", 1.0)
    assert "'/tmp/tool'" in where["reason"]


def test_what_was_left_behind_is_named_where_the_grade_is_bad(graded) -> None:  # type: ignore[no-untyped-def]
    assert graded(script="echo > ~/tool; echo > /tmp/log", check=HIDDEN)["sandbox"] == "fresh"
    assert score(graded) == 0.0
    (issue,) = graded.record["issues"]
    assert (issue["severity"], issue["code"]) == ("WARNING", "left_behind")
    assert "changed in /home/agent;" in issue["message"]


@pytest.mark.parametrize("place", ["fresh", "same"])
def test_an_option_decides_for_all_tasks(graded, place: str) -> None:  # type: ignore[no-untyped-def]
    other = {"fresh": "same", "same": "fresh"}[place]
    where = graded("--pinchbench-grade-in", place, grade_in=other)
    assert where == {"sandbox": place, "reason": f"--pinchbench-grade-in {place}"}
    assert score(graded) == 1.0


def test_a_task_decides_for_itself(graded) -> None:  # type: ignore[no-untyped-def]
    where = graded(script="echo > ~/tool; echo > /tmp/log", check=HIDDEN, grade_in="same")
    assert where == {"sandbox": "same", "reason": "the task says grade_in: same"}
    assert score(graded) == 1.0
