"""Runs with a judge: a real HTTP server answers, the agent is a shell script."""

from __future__ import annotations

import json
import secrets

import pytest
from judging import KEY, VERDICT, JudgeServer, Reply, chat

GOOD = "echo yes > made.txt"
HALF = "echo no > made.txt"
CHECKED = Reply(chat("ok"))  # what the one tiny request before the first task is told


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", KEY)
    server = JudgeServer()
    yield server
    server.close()


@pytest.fixture
def judged(run, judge):
    def start(*options):
        return run(
            "--pinchbench-judge-model=judge",
            f"--pinchbench-judge-base-url={judge.address}/v1",
            *options,
        )

    return start


def record(pytester, task="task_b"):
    (path,) = (pytester.path / "pinchbench-results").rglob(f"{task}/attempt-1/result.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_a_hybrid_score_is_the_weighted_mean_of_what_the_parts_give(pytester, project, judged):
    weights = {"automated": 0.6, "llm_judge": 0.4}
    project(
        {"task_a": HALF, "task_b": HALF, "task_c": HALF},
        task_b={"grading_type": "hybrid", "grading_weights": weights},
        task_c={"grading_type": "llm_judge"},
    )
    judged()
    assert record(pytester, "task_a")["metrics"]["score"] == 0.5
    assert record(pytester, "task_c")["metrics"]["score"] == 0.7
    hybrid = record(pytester, "task_b")
    assert hybrid["metrics"]["score"] == pytest.approx(0.6 * 0.5 + 0.4 * 0.7)
    assert hybrid["judge_usage"]["total_tokens"] == 120
    scoring = hybrid["meta"]["benchmark"]["scoring"]
    assert set(scoring["breakdown"]) == {
        "automated.made",
        "automated.right",
        "llm_judge.quality",
        "llm_judge.style",
    }
    assert scoring["raw"]["debug"]["llm_judge"]["parsed_verdict"] == VERDICT


@pytest.mark.slow
def test_a_judge_that_fails_twice_is_asked_again_and_the_agent_runs_once(
    pytester, project, judged, judge
):
    log = pytester.path / "ran.log"
    project({"task_b": f"echo x >> {log}; {GOOD}"}, task_b={"grading_type": "hybrid"})
    busy = Reply({"error": "busy"}, status=529, headers={"Retry-After": "0"})
    judge.replies = [CHECKED, busy, busy, Reply(chat(json.dumps(VERDICT)))]
    judged("--pinchbench-retries", "2")
    assert record(pytester)["metrics"]["score"] == pytest.approx((1.0 + 0.7) / 2)
    assert log.read_text() == "x\n"
    assert len(judge.requests) == 4


@pytest.mark.slow
def test_a_failed_judge_is_no_score_and_a_regrade_asks_it_again(pytester, project, judged, judge):
    log = pytester.path / "ran.log"
    project({"task_b": f"echo x >> {log}; {GOOD}"}, task_b={"grading_type": "hybrid"})
    judge.replies = [CHECKED, Reply(chat("I would rather not say."))]
    result = judged()
    result.assert_outcomes(errors=1)
    assert record(pytester)["metrics"] == {"score": None, "passed": None}
    (old,) = (pytester.path / "pinchbench-results").glob("*/*")
    judge.replies = [Reply(chat(json.dumps(VERDICT)))]
    judged(f"--pinchbench-regrade={old}").assert_outcomes(failed=1)
    new = max((pytester.path / "pinchbench-results").glob("*/*"), key=lambda path: path.name)
    regraded = json.loads((new / "task_b" / "attempt-1" / "result.json").read_text())
    assert regraded["metrics"]["score"] == pytest.approx(0.85)
    assert log.read_text() == "x\n"


def newest(pytester):
    return max((pytester.path / "pinchbench-results").glob("*/*"), key=lambda path: path.name)


@pytest.mark.slow
def test_a_resume_after_a_failed_judge_asks_it_again_and_pays_no_agent(
    pytester, project, judged, judge
):
    log = pytester.path / "ran.log"
    project({"task_b": f"echo x >> {log}; {GOOD}"}, task_b={"grading_type": "hybrid"})
    judge.replies = [CHECKED, Reply(chat("I would rather not say."))]
    judged().assert_outcomes(errors=1)
    first = record(pytester)
    judge.replies = [CHECKED, Reply(chat(json.dumps(VERDICT)))]
    judged("--pinchbench-resume=latest").assert_outcomes(failed=1)
    again = record(pytester)
    assert again["metrics"]["score"] == pytest.approx(0.85)
    assert log.read_text() == "x\n"
    assert again["usage"] == first["usage"]
    assert again["judge_usage"]["total_tokens"] == 240
    assert again["retried"][0]["issues"] == first["issues"]


@pytest.mark.slow
def test_what_cannot_be_graded_again_has_no_score_of_then(pytester, project, judged, judge):
    project(
        {"task_a": GOOD, "task_c": GOOD},
        task_a={"grading_type": "hybrid"},
        task_c={"grading_type": "llm_judge"},
    )
    judged("--pinchbench-keep-workspace=no").assert_outcomes(failed=2)
    judge.replies = [CHECKED, Reply(chat('{"total": 0.25}'))]
    result = judged(f"--pinchbench-regrade={newest(pytester)}")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*it cannot be graded again: the workspace of *was not kept*"])
    new = newest(pytester)
    scores = {
        task: json.loads((new / task / "attempt-1" / "result.json").read_text())["metrics"]["score"]
        for task in ("task_a", "task_c")
    }
    assert scores == {"task_a": None, "task_c": 0.25}


@pytest.mark.slow
def test_an_endpoint_that_is_busy_at_the_check_is_asked_again(project, judged, judge):
    project({"task_b": GOOD}, task_b={"grading_type": "llm_judge"})
    busy = Reply({"error": "busy"}, status=429, headers={"Retry-After": "0"})
    judge.replies = [busy, busy, CHECKED, Reply(chat(json.dumps(VERDICT)))]
    judged("--pinchbench-retries=2").assert_outcomes(failed=1)
    assert len(judge.requests) == 4


def test_a_shortfall_shows_what_each_part_of_a_hybrid_gave_and_its_weight(project, judged):
    weights = {"automated": 0.6, "llm_judge": 0.4}
    project({"task_b": HALF}, task_b={"grading_type": "hybrid", "grading_weights": weights})
    judged().stdout.fnmatch_lines(
        ["  automated  0.500  weight 0.6", "  llm_judge  0.700  weight 0.4"]
    )


@pytest.mark.slow
def test_the_judges_price_is_part_of_the_cost_and_of_the_budget(project, judged, judge):
    tasks = ("task_a", "task_b", "task_c")
    judging = {task: {"grading_type": "llm_judge"} for task in tasks}
    project(dict.fromkeys(tasks, GOOD), cost=0.1, **judging)
    verdict = chat(json.dumps(VERDICT))
    verdict["usage"]["cost"] = 0.3
    judge.replies = [CHECKED, Reply(verdict)]
    result = judged("--pinchbench-budget-usd=0.5")
    result.stdout.fnmatch_lines(
        ["task_c * missing *", "Cost * $0.8000", "*the budget of $0.5 is used up: $0.8000 spent*"]
    )


@pytest.mark.slow
def test_a_wrong_judge_key_stops_the_run_before_the_first_agent(pytester, project, judged, judge):
    log = pytester.path / "ran.log"
    project({"task_a": f"echo x >> {log}", "task_b": GOOD}, task_b={"grading_type": "llm_judge"})
    judge.replies = [Reply({"error": {"message": "no such key"}}, status=401)]
    result = judged()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the judge judge at *no such key*"])
    assert not log.exists()


def test_an_automated_run_makes_no_request_to_the_judge(project, judged, judge):
    project({"task_a": GOOD})
    judged().assert_outcomes(passed=1)
    assert judge.requests == []


def test_without_a_judges_endpoint_nothing_is_asked_and_the_others_are_scored(
    pytester, project, run, judge, monkeypatch
):
    monkeypatch.delenv("JUDGE_MODEL_API_KEY")
    project({"task_a": GOOD, "task_b": GOOD}, task_b={"grading_type": "llm_judge"})
    result = run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["Mean score  none: 1 invalid of 2 attempts"])
    assert judge.requests == []


def test_a_shortfall_shows_the_judges_notes(project, judged):
    project({"task_b": GOOD}, task_b={"grading_type": "llm_judge"})
    result = judged()
    result.stdout.fnmatch_lines(["score 0.700, pass mark 1", "  quality  0.500", "  notes: Fair."])


@pytest.mark.slow
def test_the_judges_key_is_nowhere(pytester, project, judged, judge, monkeypatch):
    key = secrets.token_hex(16)  # of no other test that runs beside this one
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", key)
    # some process ends while it is looked at, which is no failure
    project({"task_b": "env; cat /proc/*/cmdline; true"}, task_b={"grading_type": "llm_judge"})
    result = judged("--junitxml=junit.xml", "--json-report", "-vv")
    result.assert_outcomes(failed=1)
    assert judge.requests[-1].headers["authorization"] == f"Bearer {key}"
    assert key not in result.stdout.str()
    for path in pytester.path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


def shown_to(judge):
    return [json.dumps(request.body["messages"]) for request in judge.requests[1:]]


@pytest.mark.slow
def test_the_view_of_the_judge_is_the_suites_or_the_options(pytester, project, judged, judge):
    project(
        {"task_b": "echo Roses > poem.txt; echo Done so."}, task_b={"grading_type": "llm_judge"}
    )
    judged()
    assert "judge_blind" in [issue["code"] for issue in record(pytester)["issues"]]
    judged("--pinchbench-regrade=latest", "--pinchbench-judge-view=full")
    reference, full = shown_to(judge)[:1] + shown_to(judge)[-1:]
    for words in ("Done so.", "Roses"):
        assert words not in reference
        assert words in full
    regraded = max((pytester.path / "pinchbench-results").rglob("result.json"), key=str)
    again = json.loads(regraded.read_text())
    assert again["issues"] == []
    assert again["meta"]["benchmark"]["scoring"]["raw"]["debug"]["view"] == "full"
    (pytester.path / "skill" / "tasks" / "manifest.yaml").write_text("tasks: [task_b]\n")
    judged()
    assert "Done so." in shown_to(judge)[-1]
    runs = sorted((pytester.path / "pinchbench-results").rglob("run.json"))
    views = [json.loads(path.read_text())["identity"]["judge_view"] for path in runs]
    assert views == ["reference", "full", "full"]
