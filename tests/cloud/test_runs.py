"""Whole runs through a cloud: pytest, xdist, the grader and the SDK are real, the agent is a
shell script.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import shell_agent

from tests.cloud.conftest import Cloud

pytestmark = pytest.mark.slow

CONFTEST = """
    import sys

    import pytest

    sys.path.insert(0, {here!r})
    from support.shell_agent import ShellAgent

    @pytest.fixture(scope="session")
    def pinchbench_harness():
        return ShellAgent({scripts!r})
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, write_suite: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(cloud, {task id: script}, option...)``"""

    def start(cloud: Cloud, scripts: dict[str, str], *options: str) -> pytest.RunResult:
        here = str(Path(shell_agent.__file__).parents[1])
        pytester.makeconftest(CONFTEST.format(here=here, scripts=scripts))
        write_suite(pytester.path / "skill", **{task: {} for task in scripts})
        monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(pytester.path / "skill"))
        return pytester.runpytest_subprocess(
            *("--pinchbench", "--model", "lab/m", "--pinchbench-env", cloud.name),
            *("--pinchbench-workspace-root", str(cloud.folder / "workspace")),
            *("--pinchbench-data-dir", str(cloud.folder / "data")),
            *options,
        )

    return start


def test_workers_share_a_cloud_and_leave_nothing_in_it(cloud: Cloud, run: Run) -> None:
    scripts = {f"task_{number}": "echo yes > made.txt" for number in range(4)}

    result = run(cloud, scripts, "-n", "2", "--pinchbench-attempts", "2")

    result.assert_outcomes(passed=8)
    assert len(cloud.server.created) == 8
    assert cloud.server.open() == []


def test_a_sandbox_that_is_lost_costs_its_attempt_and_no_other(
    cloud: Cloud, run: Run, pytester: pytest.Pytester
) -> None:
    scripts = {"task_a": "echo yes > made.txt", "task_b": "kill -KILL $PPID; sleep 1000"}

    result = run(cloud, scripts)

    result.assert_outcomes(passed=1, errors=1)
    records = {
        path.parts[-3]: json.loads(path.read_text())
        for path in (pytester.path / "pinchbench-results").rglob("result.json")
    }
    assert records["task_a"]["metrics"]["score"] == 1.0
    assert [issue["severity"] for issue in records["task_b"]["issues"]] == ["FATAL"]
    assert cloud.server.open() == []


def test_a_refused_key_ends_the_run_before_the_first_task(cloud: Cloud, run: Run) -> None:
    cloud.fail("ask", "refused")

    result = run(cloud, {"task_a": "true", "task_b": "true"})

    result.stdout.fnmatch_lines(["*refuses*"])
    assert cloud.server.created == []


def test_a_run_that_its_cloud_keeps_from_the_relay_says_so_once(cloud: Cloud, run: Run) -> None:
    endpoint = ("--pinchbench-model-base-url=http://127.0.0.1:9/v1", "--pinchbench-model-check=no")

    result = run(cloud, {"task_a": "echo yes > made.txt"}, *endpoint)

    said = f"without the model relay: sandboxes of kind {cloud.name} carry no streams"
    assert (result.stdout.str() + result.stderr.str()).count(said) == 1
    result.assert_outcomes(passed=1)
