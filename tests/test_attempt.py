"""Retries of one attempt: what is done again, and what is not paid for twice."""

from __future__ import annotations

import pytest
from records import make_task
from settings_of import settings_of
from shell_agent import ShellAgent

from pytest_pinchbench.attempt import AttemptSetup, run_attempt
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.redaction import Redactor

CHECK = """
def grade(transcript, workspace_path):
    from pathlib import Path
    return {"made": float(Path(workspace_path, "made.txt").exists())}
"""


class FailingEnvironment(LocalEnvironment):
    """Local sandboxes; the first is lost when a command with ``lost_at`` in it is to run."""

    lost_at = ""

    def open(self, name, **kwargs):
        sandbox = super().open(name, **kwargs)
        words, self.lost_at = self.lost_at, ""
        real = sandbox.exec

        def exec_until_lost(argv, **options):
            if words and any(words in word for word in argv):
                sandbox.close()
            return real(argv, **options)

        sandbox.exec = exec_until_lost
        return sandbox


@pytest.fixture
def attempt(tmp_path, pytester):
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    environment = FailingEnvironment(EnvironmentSetup(recipe, "run", tmp_path / "data"))
    log = tmp_path / "ran.log"

    def run(lost_at, retries=1):
        environment.lost_at = lost_at
        setup = AttemptSetup(
            settings=settings_of(pytester, "--model=m", f"--pinchbench-retries={retries}"),
            environment=environment,
            harness=ShellAgent({"task_a": f"echo x >> {log}; touch made.txt"}),
            judge=None,
            redactor=Redactor([]),
            run_id="run",
            model_id="m",
            sleep=lambda seconds: None,
        )
        result = run_attempt(make_task("task_a", automated_checks=CHECK), 1, setup)
        return result.record, log.read_text().count("x")

    return run


def test_work_that_was_done_is_graded_in_a_fresh_sandbox_and_not_done_again(attempt):
    record, agents = attempt(lost_at=".pyz")
    assert record["metrics"]["score"] == 1.0
    assert agents == 1
    assert record["usage"]["total_tokens"] == 15
    assert [one["issues"][0]["code"] for one in record["retried"]] == ["sandbox"]


def test_a_sandbox_lost_before_the_agent_began_costs_nothing_but_time(attempt):
    record, agents = attempt(lost_at="touch made.txt")
    assert record["metrics"]["score"] == 1.0
    assert agents == 1
    assert record["usage"]["total_tokens"] == 15


def test_work_that_was_lost_is_done_again_and_paid_for_twice(attempt):
    record, agents = attempt(lost_at="gzip")  # the workspace is lost before it is kept
    assert record["metrics"]["score"] == 1.0
    assert agents == 2
    assert record["usage"]["total_tokens"] == 30


def test_without_a_retry_a_lost_sandbox_is_no_score(attempt):
    record, _ = attempt(lost_at=".pyz", retries=0)
    assert record["metrics"]["score"] is None
    assert record["issues"][-1]["code"] == "sandbox"
