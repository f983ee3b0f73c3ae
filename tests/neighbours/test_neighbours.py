"""A run beside other people's plugins has the right scores, exit code, JUnit counts and number
of agents, or ends with one clear error before an agent runs.
"""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]

ONCE = {"task_a": 1, "task_b": 1, "task_c": 1}
SCORES = {"task_a": 1.0, "task_b": 0.5, "task_c": None}
JUNIT = {"tests": 3, "failures": 1, "errors": 1, "skipped": 0}


def autouse(fixture):
    """A project's conftest.py that applies a plugin's fixture to all of its tests."""
    return f"\n\n@pytest.fixture(autouse=True)\ndef everywhere({fixture}):\n    pass\n"


@pytest.mark.parametrize(
    ("environment", "options", "conftest"),
    [
        ("everyday", ["-n2", "--asyncio-mode=auto"], ""),
        ("everyday", ["-p", "randomly", "--randomly-seed=3"], ""),
        ("everyday", ["--reruns=2", "--timeout=0.1"], ""),
        ("everyday", ["--cov=.", "--cov-fail-under=100", "--cov-report=term"], ""),
        ("everyday", ["--html=report.html", "--self-contained-html"], ""),
        ("everyday", ["--disable-socket"], autouse("socket_disabled")),
        ("everyday", ["--allow-hosts=192.0.2.1"], ""),
        ("everyday", [], autouse("fs")),
        ("everyday", [], autouse("fp")),
        ("everyday", [], autouse("requests_mock")),
        ("everyday", [], autouse("freezer") + "    freezer.move_to('2020-01-01')\n"),
        ("reruns", ["--force-flaky", "--max-runs=3"], ""),
        ("reruns", ["--force-sugar"], ""),
        ("reruns", ["--testmon"], ""),
    ],
)
def test_scores_are_right(start, environment, options, conftest):
    found = start(environment, *options, conftest=conftest)
    assert found.exit_code == 1
    assert found.scores == SCORES
    assert found.agents == ONCE
    assert found.junit == JUNIT
    assert "Mean score  none: 1 invalid of 3 attempts" in found.stdout
    assert not [one for one in found.records if one["started_at"].startswith("2020")]


@pytest.mark.parametrize(
    ("environment", "options"),
    # pytest-rich itself fails with workers
    [("tldr", []), ("tldr", ["-v"]), ("tldr", ["-n2"]), ("rich", []), ("rich", ["-v"])],
)
def test_a_reporter_without_our_section_leaves_it_to_stderr(start, environment, options):
    rich = ["--rich"] if environment == "rich" else []
    found = start(environment, *rich, *options, terminal=environment == "rich")
    assert found.exit_code == 1
    assert found.scores == SCORES
    assert found.agents == ONCE
    assert found.junit == JUNIT
    assert found.stderr.count("PinchBench: lab/m") == 1
    assert "Mean score  none: 1 invalid of 3 attempts" in found.stderr
    assert "Traceback" not in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [(["-k", "task_a"], 0), (["--pinchbench-fail-under=0.5", "-k", "not task_c"], 0)],
)
def test_a_coverage_threshold_decides_nothing(start, options, code):
    found = start("everyday", "--cov=.", "--cov-fail-under=100", *options)
    assert found.exit_code == code
    assert "fail-under" not in found.stdout.replace("--pinchbench-fail-under", "").lower()


@pytest.mark.parametrize(
    ("options", "agents"),
    [
        (["--splits=3", "--group=1"], 1),
        (["--benchmark-only"], 0),
        (["--benchmark-only", "--pinchbench-fail-under=0"], 0),
    ],
)
def test_a_plugin_that_leaves_tasks_out_leaves_the_run_without_a_score(start, options, agents):
    found = start("everyday", *options)
    assert found.exit_code == 1
    assert sum(found.agents.values()) == agents
    assert f"Mean score  none: {3 - agents} not run of 3 attempts" in found.stdout


def test_testmon_does_not_leave_a_task_out(start):
    start("reruns", "--testmon", "-k", "task_a")
    found = start("reruns", "--testmon", "-k", "task_a")
    assert found.agents == {"task_a": 2}
    assert found.exit_code == 0
    assert found.scores == {"task_a": 1.0}


def test_repeats_are_an_error_before_an_agent_runs(start):
    found = start("reruns", "--count=2")
    assert found.exit_code == pytest.ExitCode.USAGE_ERROR
    assert found.agents == {}
    (line,) = (line for line in found.stderr.splitlines() if line.startswith("ERROR: "))
    assert line.startswith("ERROR: cannot run tasks with --count: ")
    assert "--pinchbench-attempts" in line


def test_allure_calls_an_invalid_task_broken(start, tmp_path):
    start("reruns", "--alluredir=allure")
    found = [json.loads(path.read_text()) for path in (tmp_path / "allure").glob("*-result.json")]
    assert {one["name"]: one["status"] for one in found} == {
        "task_a": "passed",
        "task_b": "failed",
        "task_c": "broken",
    }


@pytest.mark.parametrize("workers", ["0", "2"])
def test_github_is_shown_each_task_once(start, workers):
    found = start("reruns", "-n", workers, GITHUB_ACTIONS="true")
    lines = (found.stdout + "\n" + found.stderr).splitlines()
    shown = [line for line in lines if line.startswith(("::error", "::warning"))]
    assert {task: sum(task in line for line in shown) for task in SCORES} == {
        "task_a": 0,
        "task_b": 1,
        "task_c": 1,
    }
