"""What a task needs in its sandbox: PyYAML for its checks, modules, programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from judging import make_task
from support.pythons import VERSIONS, find_python

from pytest_pinchbench.attempt.grading import archive, grade
from pytest_pinchbench.attempt.needs import find_missing
from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.suite.task_file import Task

YAML_CHECK = """
import yaml

def grade(transcript, workspace_path):
    try:
        with open("settings.yaml") as file:
            return {"right": yaml.safe_load(file) == {"ports": [80, 443]}}
    except yaml.YAMLError:
        return {"right": 0.0}
"""


@pytest.mark.parametrize(
    ("text", "score"), [("ports:\n- 80\n- 443\n", 1.0), ("ports: [80", 0.0), ("ports: 80", 0.0)]
)
def test_checks_can_read_yaml_wherever_they_run(
    sandbox: Sandbox, workspace: Path, text: str, score: float
) -> None:
    (workspace / "settings.yaml").write_text(text)
    found = grade(sandbox, make_task(YAML_CHECK), str(workspace), (), judge=None, judge_timeout=1)
    assert (found.score, found.issues) == (score, ())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_yaml_that_travels_is_read_by_every_python(tmp_path: Path, version: str) -> None:
    (tmp_path / "grader.pyz").write_bytes(archive(with_yaml=True))
    code = "import sys; sys.path.append(sys.argv[1]); import yaml; print(yaml.safe_load('[1, a]'))"
    argv = [find_python(version), "-I", "-S", "-c", code, f"{tmp_path}/grader.pyz/checks"]
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"[1, 'a']\n"
    assert len(archive()) < 150_000 < len(archive(with_yaml=True))


def needing(*imports: str, checks: str = "def grade(*given): pass", **changes: Any) -> Task:
    return make_task(checks, imports=imports, **changes)


def test_modules_that_are_there_and_yaml_are_not_missing(sandbox: Sandbox) -> None:
    assert find_missing(sandbox, needing("json", "os.path", "yaml"), agent_runs=True) == []


@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        (
            needing("json", "numpy_of_another"),
            "check_import",
            "import numpy_of_another on Python 3",
        ),
        (needing(checks="def grade(: pass"), "check_import", "do not compile on Python 3"),
        (needing(prerequisites=("cli:gh-of-another",)), "prerequisite", "cli:gh-of-another is not"),
        (needing(prerequisites=("npm:@a/b",)), "prerequisite", "npm:@a/b is not in the sandbox"),
    ],
)
def test_what_is_missing_is_fatal_and_names_the_way_on(
    sandbox: Sandbox, task: Task, code: str, words: str
) -> None:
    [issue] = find_missing(sandbox, task, agent_runs=True)
    assert (issue.severity, issue.code) == ("FATAL", code)
    assert words in issue.message
    assert "-k 'not task_x'" in issue.message
    assert len(find_missing(sandbox, task, agent_runs=False)) == (code == "check_import")


def test_programs_that_are_there_and_kinds_that_nobody_knows_are_not_missing(
    sandbox: Sandbox,
) -> None:
    task = needing(prerequisites=("cli:sh", "service:x"))
    assert find_missing(sandbox, task, agent_runs=True) == []


@pytest.mark.slow
def test_a_task_without_what_it_needs_is_invalid_before_its_agent_runs(
    pytester: pytest.Pytester, project: Any, run: Any
) -> None:
    log = pytester.path / "ran.log"
    script = f"echo $PWD >> {log}; echo yes > made.txt"
    project(
        {"task_a": script, "task_b": script},
        task_b={"prerequisites": ["cli:gh-of-another"]},
    )
    result = run("--pinchbench-retries=2")
    assert "task_a" in log.read_text()
    assert "task_b" not in log.read_text()
    [path] = (pytester.path / "pinchbench-results").rglob("task_b/attempt-1/result.json")
    record = json.loads(path.read_text())
    assert (record["status"], record["retried"]) == ("invalid", [])
    assert [issue["code"] for issue in record["issues"]] == ["prerequisite"]
    result.stdout.fnmatch_lines(["*-k 'not task_b'*"])
