"""Retries of one attempt: what is done again, and what is not paid for twice."""

from __future__ import annotations

import pytest
from support.records import make_task
from support.settings_of import settings_of
from support.shell_agent import ShellAgent

from pytest_pinchbench.attempt import run_attempt
from pytest_pinchbench.attempt.context import AttemptContext
from pytest_pinchbench.attempt.grading import Grade
from pytest_pinchbench.attempt.kept_work import kept_work, previous_attempts
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.issues import EnvironmentUnavailable, Issue, SandboxFailure
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.settings import ModelSpec

JUDGE = ModelSpec("judge", base_url="http://127.0.0.1:1/v1")
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

        sandbox.exec = exec_until_lost  # type: ignore[method-assign]
        return sandbox


@pytest.fixture
def attempt(tmp_path, pytester):
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    environment = FailingEnvironment(EnvironmentSetup(recipe, "run", tmp_path / "data"))
    log = tmp_path / "ran.log"

    def run(lost_at="", *options, retries=1, judge=None, sleep=lambda seconds: None, **task):
        environment.lost_at = lost_at
        setup = AttemptContext(
            settings=settings_of(
                pytester, "--model=m", f"--pinchbench-retries={retries}", *options
            ),
            environment=environment,
            harness=ShellAgent({"task_a": f"echo x >> {log}; touch made.txt"}),
            judge=judge,
            redactor=Redactor([]),
            run_id="run",
            model_id="m",
            sleep=sleep,
        )
        result = run_attempt(make_task("task_a", automated_checks=CHECK, **task), 1, setup)
        assert list((tmp_path / "sandboxes").rglob("workspace")) == []  # every one is closed
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


BUSY = Issue("FATAL", "judge_http", "the judge failed: HTTP 529: busy")


def graded(score, *issues, retry_after=None):
    parts = {"llm_judge": {"debug": {"retry_after": retry_after}}}
    usage = Usage(total_tokens=10, request_count=1)
    return Grade(score, 1.0, {}, "", issues, {}, parts, usage, 0.1)


@pytest.fixture
def asked(monkeypatch):
    """What the grader was asked each time; ``asked.answers`` are its grades, in turn."""

    class Asked(list):
        def __init__(self):
            self.answers = [graded(1.0)]

        def grade(self, sandbox, task, workspace, transcript, **options):
            self.append(options)
            answer = self.answers[min(len(self), len(self.answers)) - 1]
            return answer(sandbox) if callable(answer) else answer

    asked = Asked()
    monkeypatch.setattr("pytest_pinchbench.attempt.grading.grade", asked.grade)
    return asked


def test_the_grader_is_given_what_the_options_say(attempt, asked):
    attempt(
        "",
        "--pinchbench-judge-timeout=11",
        "--pinchbench-check-timeout=22",
        "--pinchbench-transcript-limit=33000",
        "--pinchbench-evaluation-timeout=44",
        judge=JUDGE,
        grading_type="llm_judge",
    )
    (options,) = asked
    assert options["judge"].id == "judge"
    assert options["judge_timeout"] == 11
    assert options["check_timeout"] == 22
    assert options["transcript_limit"] == 33000
    assert 0 < options["timeout"] <= 44


def test_without_an_evaluation_timeout_there_is_no_deadline(attempt, asked):
    attempt()
    assert asked[0]["timeout"] is None


def test_the_judge_is_asked_again_after_what_it_asked_for_or_ever_longer(attempt, asked):
    waits = []
    asked.answers = [
        graded(None, BUSY, retry_after=7.0),
        graded(None, BUSY),
        graded(None, BUSY),
        graded(0.5),
    ]
    record, agents = attempt(retries=3, judge=JUDGE, sleep=waits.append)
    assert waits == [7.0, 2.0, 4.0]
    assert (record["metrics"]["score"], agents) == (0.5, 1)
    assert [options["previous"] for options in asked] == [None, *asked.answers[:3]]


def test_a_judge_that_cannot_be_asked_is_not_asked_again(attempt, asked):
    asked.answers = [graded(None, Issue("FATAL", "judge_missing", "none is configured"))]
    record, _ = attempt(retries=3)
    assert len(asked) == 1
    assert record["status"] == "invalid"


def test_no_wait_goes_beyond_the_deadline_and_the_judges_words_are_kept(attempt, asked):
    waits = []
    asked.answers = [graded(None, BUSY, retry_after=50.0)]
    record, _ = attempt(
        "", "--pinchbench-evaluation-timeout=40", retries=3, judge=JUDGE, sleep=waits.append
    )
    assert waits == []
    assert [issue["message"] for issue in record["issues"]] == [BUSY.message]


def test_a_sandbox_lost_between_two_questions_costs_the_budget_what_was_asked(attempt, asked):
    def lose(sandbox):
        sandbox.close()
        return sandbox.exec(["true"])

    asked.answers = [graded(None, BUSY), lose, graded(None, BUSY), graded(0.5)]
    record, agents = attempt(retries=2, judge=JUDGE)
    assert len(asked) == 3  # one retry for the judge, one for the sandbox
    assert (record["status"], agents) == ("invalid", 1)
    assert record["judge_usage"]["request_count"] == 2


def test_a_judge_that_no_sandbox_can_reach_ends_the_run_before_an_agent_is_paid(
    attempt, tmp_path, monkeypatch
):
    monkeypatch.setattr(FailingEnvironment, "shares_loopback", False)
    with pytest.raises(EnvironmentUnavailable):
        attempt(judge=JUDGE, grading_type="hybrid")
    assert not (tmp_path / "ran.log").exists()
    assert attempt(judge=JUDGE)[0]["metrics"]["score"] == 1.0  # which needs no judge


def test_paid_work_survives_sandboxes_that_cannot_be_opened(tmp_path, pytester):
    """Graded in no sandbox twice, then resumed: the work and its cost are still there."""
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    environment = FailingEnvironment(EnvironmentSetup(recipe, "run", tmp_path / "data"))
    task = make_task("task_a", automated_checks=CHECK)
    directory = RunDirectory(tmp_path / "run")
    agent = ShellAgent({"task_a": "touch made.txt"}, cost=0.25)
    context = AttemptContext(
        settings=settings_of(pytester, "--model=m"),
        environment=environment,
        harness=agent,
        judge=None,
        redactor=Redactor([]),
        run_id="run",
        model_id="m",
    )
    environment.lost_at = ".pyz"  # the sandbox is lost while its work is graded
    directory.write(run_attempt(task, 1, context))
    for fails in (True, False):
        record = directory.read("task_a", 1)
        assert record["metrics"]["score"] is None
        kept = kept_work(directory, record)
        assert kept is not None
        if fails:
            environment.open = no_sandbox  # type: ignore[method-assign]
        else:
            del environment.open
        earlier = previous_attempts(record, work_reused=True)
        directory.write(run_attempt(task, 1, context, kept, earlier))
    record = directory.read("task_a", 1)
    assert record["metrics"]["score"] == 1.0
    assert record["usage"]["cost_usd"] == 0.25


def no_sandbox(*args, **options):
    raise SandboxFailure("no room for a sandbox")
