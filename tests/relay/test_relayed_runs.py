"""Whole runs whose agent is a shell script that asks its model through the relay."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import runner_image
from judging import VERDICT, chat
from raw_endpoint import Connection, Play, RawEndpoint

from pytest_pinchbench import zstd
from pytest_pinchbench.environments.bubblewrap import why_unusable

KEY = "sk-the-real-key-of-the-model"
ASK = """
ask() { python3 - <<'PYTHON'
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
headers = {"authorization": "Bearer " + os.environ["MODEL_KEY"]}
request = urllib.request.Request(os.environ["MODEL_URL"] + "/chat/completions", body, headers)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(request).read().decode())
PYTHON
}
"""
GOOD = "echo yes > made.txt\n"


def answer(connection: Connection) -> None:
    usage = {"prompt_tokens": 100_000, "completion_tokens": 50_000, "total_tokens": 150_000}
    document = {"choices": [{"message": {"content": "hello"}}], "usage": usage}
    connection.answer(json.dumps(document).encode(), content_type="application/json")


def busy(connection: Connection) -> None:
    connection.answer(b"slow down", "429 Too Many Requests", retry_after="1")


def silent(connection: Connection) -> None:
    connection.socket.recv(1)


@pytest.fixture
def relayed_run(
    run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[RawEndpoint, pytest.RunResult]]]:
    """``relayed_run([play, ...], option, ...)``: the endpoint, and the run's result."""
    monkeypatch.setenv("MODEL_API_KEY", KEY)
    with contextlib.ExitStack() as stack:

        def start(plays: list[Play], *options: str) -> tuple[RawEndpoint, pytest.RunResult]:
            endpoint = stack.enter_context(RawEndpoint(plays))
            given = [f"--pinchbench-model-base-url={endpoint.url}", "--pinchbench-relay=yes"]
            if not any(option.startswith("--pinchbench-model-check") for option in options):
                given.append("--pinchbench-model-check=no")
            return endpoint, run(*given, *options)

        yield start


def record(pytester: pytest.Pytester, task: str = "task_a") -> dict[str, Any]:
    (path,) = (pytester.path / "pinchbench-results").rglob(f"{task}/attempt-1/result.json")
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def codes(value: dict[str, Any]) -> list[tuple[str, str]]:
    return [(issue["severity"], issue["code"]) for issue in value["issues"]]


def test_usage_timing_and_requests_are_the_relays(pytester, project, relayed_run):
    project({"task_a": f"{ASK} env > env.txt; ask; ask; {GOOD}"})
    endpoint, result = relayed_run([answer], '--pinchbench-model-price={"input": 1, "output": 2}')
    result.assert_outcomes(passed=1)
    found = record(pytester)
    assert found["usage"] == {
        "input_tokens": 200_000,
        "output_tokens": 100_000,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "total_tokens": 300_000,
        "cost_usd": pytest.approx(0.4),
        "request_count": 2,
        "cost_is_complete": True,
    }
    assert set(found["timing"]) == {"startup", "waiting", "answering", "own"}
    folder = next((pytester.path / "pinchbench-results").rglob("task_a/attempt-1"))
    lines = (folder / "requests.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]
    assert all(f"Bearer {KEY}".encode() in request.head for request in endpoint.requests)


def test_the_agent_never_has_the_key(pytester, project, relayed_run):
    script = "env > env.txt; cat /proc/*/environ >> env.txt 2>/dev/null; ask"
    project({"task_a": f"{ASK} {script}; {GOOD}"})
    relayed_run([answer], "--pinchbench-keep-environment")
    sandboxes = list(pytester.path.parent.rglob("env.txt"))
    record(pytester)
    for path in [*sandboxes, *pytester.path.rglob("*")]:
        if path.is_file():
            inside = path.read_bytes()
            # this process has the key, and is one that the agent's user can look at
            assert KEY.encode() not in inside or path.name == "env.txt"


def test_a_model_that_never_begins_to_answer_is_no_score(pytester, project, relayed_run):
    project({"task_a": f"{ASK} ask; {GOOD}"}, task_a={"timeout_seconds": 1})
    relayed_run([silent])
    found = record(pytester)
    assert (found["status"], codes(found)) == ("invalid", [("FATAL", "model_silent")])


def test_an_agent_that_runs_out_of_time_after_an_answer_is_graded(pytester, project, relayed_run):
    project({"task_a": f"{ASK} {GOOD} ask; ask"}, task_a={"timeout_seconds": 1})
    relayed_run([answer, silent])
    found = record(pytester)
    assert (found["metrics"]["score"], found["timed_out"]) == (1.0, True)
    assert codes(found) == [("ERROR", "agent_timeout")]
    assert not found["usage"]["cost_is_complete"]


def test_an_agent_that_asks_nothing_is_starved(pytester, project, relayed_run):
    project({"task_a": "sleep 60"}, task_a={"timeout_seconds": 1})
    relayed_run([answer], "--pinchbench-timeout-multiplier=0.005")
    assert codes(record(pytester)) == [("FATAL", "agent_starved")]


def test_the_clock_stands_still_while_the_endpoint_is_busy(pytester, project, relayed_run):
    project({"task_a": f"{ASK} ask; {GOOD}"}, task_a={"timeout_seconds": 2})
    _, result = relayed_run([busy, busy, busy, answer])
    found = record(pytester)
    assert (found["metrics"]["score"], codes(found)) == (1.0, [])
    assert found["timing"]["waiting"] >= 3
    result.stdout.fnmatch_lines(["Waiting     * for the endpoint, beside the tasks' time"])


def test_a_loop_is_ended_by_the_tasks_budget_and_graded(pytester, project, relayed_run):
    project({"task_a": f"{ASK} {GOOD} while true; do ask; done"})
    endpoint, _ = relayed_run([answer], "--pinchbench-task-max-requests=3")
    found = record(pytester)
    assert (found["metrics"]["score"], codes(found)) == (1.0, [("ERROR", "task_budget")])
    assert len(endpoint.requests) == 3


def test_the_runs_budget_ends_it_in_mid_task(pytester, project, relayed_run):
    loop = f"{ASK} {GOOD} while true; do ask; done"
    project({"task_a": loop, "task_b": GOOD})
    price = '--pinchbench-model-price={"input": 1, "output": 0}'
    endpoint, result = relayed_run([answer], price, "--pinchbench-budget-usd=0.35")
    result.assert_outcomes(skipped=1)
    assert 4 <= len(endpoint.requests) <= 5
    assert not list((pytester.path / "pinchbench-results").rglob("result.json"))
    result.stdout.fnmatch_lines(["*budget was used up in mid-attempt*"])
    asked = len(endpoint.requests)
    same = f"--pinchbench-model-base-url={endpoint.url}"
    (directory,) = (pytester.path / "pinchbench-results" / "lab-m").iterdir()
    resumed = f"--pinchbench-resume={directory}"
    _, again = relayed_run([answer], price, "--pinchbench-budget-usd=0.35", same, resumed)
    again.stdout.fnmatch_lines(["*the budget of $0.35 is used up: $0.*"])
    assert len(endpoint.requests) == asked


def test_a_budget_without_a_price_is_an_error_before_anything_runs(project, relayed_run):
    project({"task_a": GOOD})
    endpoint, result = relayed_run([answer], "--pinchbench-budget-usd=0.35")
    result.stderr.fnmatch_lines(["*what lab/m costs at 127.0.0.1 is not known*model-price*"])
    assert (result.ret, endpoint.requests) == (pytest.ExitCode.USAGE_ERROR, [])


def test_the_judge_is_asked_through_the_relay(pytester, project, relayed_run, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", "sk-the-real-key-of-the-judge")
    project({"task_a": GOOD}, task_a={"grading_type": "llm_judge"})
    judge_says = json.dumps(chat(json.dumps(VERDICT))).encode()
    with RawEndpoint([lambda c: c.answer(judge_says, content_type="application/json")]) as judge:
        relayed_run(
            [answer],
            "--pinchbench-judge-model=judge",
            f"--pinchbench-judge-base-url={judge.url}",
            "--pinchbench-judge-check=no",
            "--pinchbench-record",
        )
        found = record(pytester)
        assert found["metrics"]["score"] == 0.7
        assert (found["judge_usage"]["request_count"], found["judge_usage"]["total_tokens"]) == (
            1,
            120,
        )
        (packed,) = pytester.path.rglob("recording.jsonl.zst")
        lines = zstd.ZstdDecompressor().decompress(packed.read_bytes()).splitlines()
        assert [json.loads(line).get("is_judge") for line in lines] == [True]
        (request,) = judge.requests
        assert b"Bearer sk-the-real-key-of-the-judge" in request.head


def test_the_check_before_the_run_goes_through_the_relay(pytester, project, relayed_run):
    project({"task_a": GOOD})
    options = ("--pinchbench-model-check=yes", '--pinchbench-model-params={"top_p": 0.5}')
    endpoint, result = relayed_run([answer], *options)
    result.assert_outcomes(passed=1)
    (request,) = endpoint.requests
    assert json.loads(request.body)["top_p"] == 0.5


def test_workers_share_the_relay(pytester, project, relayed_run):
    project(dict.fromkeys(("task_a", "task_b", "task_c"), f"{ASK} ask; {GOOD}"))
    limits = ("--pinchbench-model-concurrency=1", "-n2")
    endpoint, result = relayed_run([lambda c: (time.sleep(0.1), answer(c))], *limits)
    result.assert_outcomes(passed=3)
    assert len(endpoint.requests) == 3


@pytest.mark.docker
def test_a_kept_container_holds_neither_key(pytester, project, relayed_run, monkeypatch):
    """Not in its files, in the environment of a process, or in what the engine says of it."""
    judges_key = "sk-the-real-key-of-the-judge"
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", judges_key)
    path = pytester.path / "docker.yaml"
    path.write_text(docker_recipe())
    project(
        {"task_of_keys": f"{ASK} env > env.txt; cat /proc/*/environ >> env.txt; ask; {GOOD}"},
        task_of_keys={"grading_type": "hybrid"},
    )
    judge_says = json.dumps(chat(json.dumps(VERDICT))).encode()
    with RawEndpoint([lambda c: c.answer(judge_says, content_type="application/json")]) as judge:
        relayed_run(
            [answer],
            *("--pinchbench-env=docker", f"--pinchbench-recipe={path}"),
            *("--pinchbench-keep-environment", "--pinchbench-judge-check=no"),
            *("--pinchbench-judge-model=judge", f"--pinchbench-judge-base-url={judge.url}"),
        )
        assert len(judge.requests) == 1

    def docker(*arguments: str) -> bytes:
        return subprocess.run(["docker", *arguments], capture_output=True, check=True).stdout

    kept = docker("ps", "-aq", "--filter", "name=pinchbench-task_of_keys-").split()
    try:
        assert kept
        for name in map(bytes.decode, kept):
            everything = docker("inspect", name) + docker("logs", name) + docker("export", name)
            everything += docker("cp", f"{name}:/workspace", "-")  # a volume is not exported
            running = docker("ps", "-q", "--filter", f"id={name}")
            if running:
                everything += docker("exec", name, "sh", "-c", "cat /proc/[0-9]*/environ; true")
            assert b"MODEL_KEY=pinchbench-" in everything
            for key in (KEY, judges_key):
                assert key.encode() not in everything
    finally:
        docker("rm", "-f", *map(bytes.decode, kept))


def docker_recipe() -> str:
    try:
        image = runner_image.base()
    except runner_image.Missing as missing:
        pytest.skip(str(missing))
    return f"environment: docker\nimage: {image}\noptions: {{network: internal}}\n"


def bubblewrap_recipe() -> str:
    if reason := why_unusable():
        pytest.skip(reason)
    return "environment: bubblewrap\noptions: {network: none}\n"


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        pytest.param("docker", docker_recipe, marks=pytest.mark.docker),
        ("bubblewrap", bubblewrap_recipe),
    ],
)
def test_a_sandbox_without_a_network_reaches_a_model_on_loopback(
    pytester, project, relayed_run, kind, recipe
):
    path = pytester.path / "closed.yaml"
    path.write_text(recipe())
    project({"task_a": f"{ASK} ask; {GOOD}"})
    options = (f"--pinchbench-env={kind}", f"--pinchbench-recipe={path}")
    _, result = relayed_run([answer], *options)
    result.assert_outcomes(passed=1)
    assert record(pytester)["usage"]["request_count"] == 1


def test_a_recorded_run_is_replayed_without_its_model(pytester, project, relayed_run, run):
    two = f"{ASK} ask > first.txt; ask > second.txt; {GOOD}"
    project({"task_a": two})
    endpoint, _ = relayed_run([answer], "--pinchbench-record")
    endpoint.listening.close()
    first = record(pytester)
    (recorded,) = (pytester.path / "pinchbench-results" / "lab-m").iterdir()
    result = run(f"--pinchbench-replay={recorded}", "--pinchbench-results-dir=replayed")
    result.assert_outcomes(passed=1)
    (path,) = (pytester.path / "replayed").rglob("task_a/attempt-1/result.json")
    again = json.loads(path.read_text())
    assert again["metrics"] == first["metrics"]
    assert again["issues"] == []
    assert again["usage"]["total_tokens"] == first["usage"]["total_tokens"]
    assert again["usage"]["cost_usd"] == 0
    result.stdout.fnmatch_lines([f"*replayed from {recorded}, 0 divergences*"])
    summary = json.loads((path.parents[2] / "summary.json").read_text())
    assert not summary["official"]
    assert len(endpoint.requests) == 2


def test_a_replay_says_what_differs_from_the_recording(pytester, project, relayed_run, run):
    project({"task_a": f"{ASK} ask; {GOOD}"})
    relayed_run([answer], "--pinchbench-record")
    (recorded,) = (pytester.path / "pinchbench-results" / "lab-m").iterdir()
    changed = ASK.replace('"model": "m"', '"model": "other"')
    project({"task_a": f"{changed} ask; ask; {GOOD}"})
    result = run(f"--pinchbench-replay={recorded}", "--pinchbench-results-dir=replayed")
    (path,) = (pytester.path / "replayed").rglob("task_a/attempt-1/result.json")
    again = json.loads(path.read_text())
    assert again["metrics"]["score"] == 1.0
    (issue,) = again["issues"]
    assert issue["message"] == (
        '2 of 2 requests differ from the recording; the first: request 1: model: "m", now "other"'
    )
    result.stdout.fnmatch_lines(["*replayed from *, 2 divergences*"])


def test_a_run_that_was_not_recorded_cannot_be_replayed(pytester, project, relayed_run, run):
    project({"task_a": f"{ASK} ask; {GOOD}"})
    relayed_run([answer])
    (recorded,) = (pytester.path / "pinchbench-results" / "lab-m").iterdir()
    run(f"--pinchbench-replay={recorded}", "--pinchbench-results-dir=replayed")
    (path,) = (pytester.path / "replayed").rglob("task_a/attempt-1/result.json")
    (issue,) = json.loads(path.read_text())["issues"]
    assert "Only a run with --pinchbench-record can be replayed" in issue["message"]
