"""Grading from end to end: a task, a real sandbox, a real judge's server."""

from __future__ import annotations

import json
import os
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from judging import KEY, VERDICT, JudgeServer, Reply, chat, make_task, message

from pytest_pinchbench.attempt.grading import Grade, check_endpoint, grade
from pytest_pinchbench.environments import ExecResult, Sandbox
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.settings import ModelSpec

HALF = "def grade(transcript, workspace_path):\n    return {'a': 1.0, 'b': 0.0}\n"
# the judge of an agent that made no call is shown nothing, and warns
CALL = {"type": "toolCall", "id": "1", "name": "exec", "arguments": {"command": "ls"}}
BROKEN = "def grade(transcript, workspace_path):\n    raise OSError('no')\n"


def run(sandbox: Sandbox, workspace: Path, judge: ModelSpec | None, **changes: Any) -> Grade:
    names = ("judge_timeout", "timeout", "check_timeout", "previous", "transcript_limit")
    given: dict[str, Any] = {"judge_timeout": 120.0}
    given.update({name: changes.pop(name) for name in names if name in changes})
    transcript = changes.pop("transcript", [message("assistant", [CALL])])
    task = make_task(changes.pop("checks", HALF), **changes)
    return grade(sandbox, task, str(workspace), transcript, judge=judge, **given)


def silent(released: threading.Event) -> Reply:
    """A reply that does not come before it is released."""

    def wait(handler: Any) -> None:
        released.wait(60)

    return Reply(write=wait)


def codes(result: Grade) -> list[str]:
    return [f"{issue.severity} {issue.code}" for issue in result.issues]


def test_an_automated_task_needs_no_judge_and_asks_none(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    result = run(sandbox, workspace, judge_server.spec())
    assert (result.score, result.max_score, result.passed) == (0.5, 1.0, False)
    assert result.breakdown == {"a": 1.0, "b": 0.0}
    assert result.judge_usage is None
    assert judge_server.requests == []


def test_full_marks_pass(sandbox: Sandbox, workspace: Path) -> None:
    checks = "def grade(transcript, workspace_path): return dict.fromkeys('abcdefg', 1.0)"
    assert run(sandbox, workspace, None, checks=checks).passed


def test_a_judged_task_has_the_judges_score(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    result = run(sandbox, workspace, judge_server.spec(), grading_type="llm_judge")
    assert (result.score, result.passed, result.issues) == (0.7, False, ())
    assert result.breakdown == {"quality": 0.5, "style": 1.0}
    assert result.notes == "Fair."
    assert result.judge_usage is not None
    assert result.judge_usage.total_tokens == 120
    assert result.debug["parsed_verdict"] == VERDICT
    assert result.parts["llm_judge"]["score"] == 0.7
    assert len(judge_server.requests) == 1


def test_the_judge_sees_the_transcript_within_the_limit(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    result = run(
        sandbox,
        workspace,
        judge_server.spec(),
        grading_type="llm_judge",
        transcript=[
            *(message("user", f"wörd {number}") for number in range(1000)),
            message("assistant", [CALL]),
        ],
        transcript_limit=2000,
    )
    prompt = judge_server.requests[0].body["messages"][0]["content"]
    assert '{"user": "wörd 0"}' in prompt
    assert '{"user": "wörd 999"}' in prompt
    assert '{"user": "wörd 500"}' not in prompt
    assert result.debug["transcript_left_out"]["entries"] > 800


WEIGHTS: list[tuple[dict[str, Any] | None, float, list[str]]] = [
    (None, 0.6, []),
    ({"automated": 0.4, "llm_judge": 0.6}, 0.62, []),
    ({"automated": 3, "llm_judge": 1}, 0.55, []),
    ({"automated": 1.0, "llm_judge": 0.0}, 0.5, []),
    ({"automated": 0, "llm_judge": 0}, 0.6, []),
    ({"llm_judge": 1.5}, 0.65, []),
    ({"automated": -1, "llm_judge": 2}, 0.6, ["WARNING grading_weights"]),
    ({"automated": "much", "llm_judge": 2}, 0.6, ["WARNING grading_weights"]),
]


@pytest.mark.parametrize(("weights", "score", "issues"), WEIGHTS)
def test_a_hybrid_task_is_the_weighted_mean_of_both_parts(
    sandbox: Sandbox,
    workspace: Path,
    judge_server: JudgeServer,
    weights: dict[str, Any] | None,
    score: float,
    issues: list[str],
) -> None:
    result = run(
        sandbox, workspace, judge_server.spec(), grading_type="hybrid", grading_weights=weights
    )
    assert result.score == pytest.approx(score)
    assert codes(result) == issues
    assert result.breakdown == {
        "automated.a": 1.0,
        "automated.b": 0.0,
        "llm_judge.quality": 0.5,
        "llm_judge.style": 1.0,
    }
    used = {name: part["weight"] for name, part in result.parts.items()}
    parts = {name: part["score"] for name, part in result.parts.items()}
    assert parts == {"automated": 0.5, "llm_judge": 0.7}
    weighted = sum(parts[name] * used[name] for name in parts) / sum(used.values())
    assert result.score == pytest.approx(weighted)
    assert result.debug["llm_judge"]["parsed_verdict"] == VERDICT
    assert "stdout" in result.debug["automated"]


def test_a_hybrid_task_with_full_marks_in_both_parts_passes(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    judge_server.replies = [Reply(chat('{"total": 1.0}'))]
    checks = "def grade(transcript, workspace_path): return {'a': 1.0}"
    result = run(
        sandbox,
        workspace,
        judge_server.spec(),
        checks=checks,
        grading_type="hybrid",
        grading_weights={"automated": 0.1, "llm_judge": 0.7},
    )
    assert result.passed


def test_checks_that_raise_leave_a_hybrid_task_the_judges_part(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    result = run(sandbox, workspace, judge_server.spec(), grading_type="hybrid", checks=BROKEN)
    assert result.score == pytest.approx(0.35)
    assert codes(result) == ["ERROR check_raised"]


@pytest.mark.parametrize("kind", ["llm_judge", "hybrid"])
def test_no_judge_is_fatal_and_names_the_options(
    sandbox: Sandbox, workspace: Path, kind: str
) -> None:
    result = run(sandbox, workspace, None, grading_type=kind)
    assert (result.score, result.passed) == (None, False)
    assert codes(result) == ["FATAL judge_missing"]
    for name in (
        "--pinchbench-judge-model",
        "--pinchbench-judge-base-url",
        "JUDGE_MODEL_NAME",
        "JUDGE_MODEL_BASE_URL",
    ):
        assert name in result.issues[0].message


@pytest.mark.parametrize("kind", ["llm_judge", "hybrid"])
def test_a_judge_without_a_base_url_is_fatal_before_any_request(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer, kind: str
) -> None:
    judge = judge_server.spec(id="openrouter/anthropic/claude-opus-4.5", base_url=None)
    result = run(sandbox, workspace, judge, grading_type=kind)
    assert codes(result) == ["FATAL judge_missing"]
    assert "openrouter/anthropic/claude-opus-4.5 has no base URL" in result.issues[0].message
    assert judge_server.requests == []


def test_a_failed_judge_leaves_the_automated_part_to_be_taken_up_again(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    (workspace / "runs").write_text("")
    checks = (
        "def grade(transcript, workspace_path):\n"
        "    with open('runs', 'a') as file: file.write('x')\n"
        "    return {'a': 1.0, 'b': 0.0}\n"
    )
    judge_server.replies = [
        Reply({"error": "busy"}, status=503, headers={"Retry-After": "3"}),
        Reply(chat("no verdict")),
        Reply(chat(json.dumps(VERDICT))),
    ]
    settings: dict[str, Any] = {"grading_type": "hybrid", "checks": checks}
    first = run(sandbox, workspace, judge_server.spec(), **settings)
    assert (first.score, codes(first)) == (None, ["FATAL judge_http"])
    assert first.parts["automated"]["score"] == 0.5
    assert first.retry_after == 3.0
    second = run(sandbox, workspace, judge_server.spec(), previous=first, **settings)
    assert codes(second) == ["FATAL judge_answer"]
    assert second.retry_after is None
    third = run(sandbox, workspace, judge_server.spec(), previous=second, **settings)
    assert third.score == pytest.approx(0.6)
    assert third.issues == ()
    assert (workspace / "runs").read_text() == "x"
    assert third.judge_usage is not None
    assert third.judge_usage.request_count == 3
    assert third.judge_usage.total_tokens == 240


def test_a_judge_for_whom_no_time_is_left_is_not_asked(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    result = run(sandbox, workspace, judge_server.spec(), grading_type="llm_judge", timeout=1e-6)
    assert codes(result) == ["FATAL judge_timeout"]
    assert "it was not asked" in result.issues[0].message
    assert result.judge_usage is None
    assert judge_server.requests == []


@pytest.mark.slow
def test_the_evaluation_deadline_stops_judge_and_checks(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    released = threading.Event()
    judge_server.replies = [silent(released)]
    result = run(sandbox, workspace, judge_server.spec(), grading_type="llm_judge", timeout=1.0)
    released.set()
    assert codes(result) == ["FATAL judge_timeout"]
    hang = "def grade(transcript, workspace_path):\n    while True: pass\n"
    result = run(sandbox, workspace, None, checks=hang, timeout=1.0, check_timeout=1000.0)
    assert codes(result) == ["ERROR check_timeout"]
    assert result.seconds < 500


class Watched:
    """A sandbox whose every command is looked at while it waits on the judge."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.python, self.private_root = sandbox.python, sandbox.private_root
        self.written: dict[str, bytes] = {}
        self.argvs: list[Any] = []
        self.results: list[ExecResult] = []

    def write(self, files: dict[str, bytes]) -> None:
        self.written.update(files)
        self.sandbox.write(files)

    def exec(self, argv: Any, **kwargs: Any) -> ExecResult:
        self.argvs.append(argv)
        self.results.append(self.sandbox.exec(argv, **kwargs))
        return self.results[-1]


def test_the_key_is_in_no_file_process_list_or_result(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer, tmp_path: Path
) -> None:
    seen: list[str] = []
    key = secrets.token_hex(16)  # of no other test that runs beside this one

    def look(handler: Any) -> None:
        """From the judge's side, while the grader waits: what anyone can see of it."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for name in ("cmdline", "environ"):
                try:
                    text = Path("/proc", pid, name).read_bytes().decode(errors="replace")
                except OSError:
                    continue
                if ".pyz" in text:
                    seen.append(text)
        for path in tmp_path.rglob("*"):
            if path.is_file():
                seen.append(path.read_bytes().decode(errors="replace"))
        data = json.dumps({"error": {"message": f"bad key {key}"}}).encode()
        handler.send_response(401)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    judge_server.replies = [Reply(write=look)]
    watched = Watched(sandbox)
    result = grade(
        watched,  # type: ignore[arg-type]
        make_task(HALF, grading_type="hybrid"),
        str(workspace),
        [message("assistant", [CALL])],
        judge=judge_server.spec(api_key=key),
        judge_timeout=60.0,
    )
    assert codes(result) == ["FATAL judge_http"]
    assert judge_server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert any(".pyz" in text for text in seen)
    everything = [*seen, repr(result), str(watched.argvs), str(watched.written)]
    everything += [str(done.stdout + done.stderr) for done in watched.results]
    assert not any(key in text for text in everything)


def test_a_grader_that_gives_no_result_is_fatal_and_says_why(
    sandbox: Sandbox, workspace: Path
) -> None:
    class NoPython:
        private_root, write = sandbox.private_root, sandbox.write
        python = "/nowhere/python3"
        exec = sandbox.exec

    result = grade(
        NoPython(),  # type: ignore[arg-type]
        make_task(HALF),
        str(workspace),
        [],
        judge=None,
        judge_timeout=1.0,
    )
    assert (result.score, codes(result)) == (None, ["FATAL grader"])
    assert "/nowhere/python3 ended with exit code 127" in result.issues[0].message


def test_every_grade_is_plain_json(
    sandbox: Sandbox, workspace: Path, judge_server: JudgeServer
) -> None:
    checks = "def grade(transcript, workspace_path): raise OSError('\\udcff')"
    odd = '{"total": 0.5, "x": 1e999, "y": NaN, "z": "\\ud800", "n": 1' + "0" * 100 + "}"
    judge_server.replies = [Reply(chat(odd))]
    result = run(sandbox, workspace, judge_server.spec(), grading_type="hybrid", checks=checks)
    assert result.score == 0.25
    messages = [issue.message for issue in result.issues]
    for value in (result.debug, result.parts, result.breakdown, messages):
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")


def test_an_endpoint_that_answers_is_fine(sandbox: Sandbox, judge_server: JudgeServer) -> None:
    assert check_endpoint(sandbox, judge_server.spec()) is None
    body = judge_server.requests[0].body
    assert body["max_tokens"] == 16
    assert len(json.dumps(body)) < 300


@pytest.mark.parametrize(
    "reply",
    [
        Reply(chat("OK", "length")),
        Reply(chat(None, "length")),
        Reply(chat(None, refusal="I cannot.")),
    ],
)
def test_whatever_the_model_says_to_the_check_is_fine(
    sandbox: Sandbox, judge_server: JudgeServer, reply: Reply
) -> None:
    judge_server.replies = [reply]
    assert check_endpoint(sandbox, judge_server.spec()) is None


def test_a_limit_that_the_model_does_not_take_is_left_out_of_the_check(
    sandbox: Sandbox, judge_server: JudgeServer
) -> None:
    words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    judge_server.replies = [
        Reply({"error": {"message": words}}, status=400),
        Reply(chat("OK")),
    ]
    assert check_endpoint(sandbox, judge_server.spec()) is None


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply({"error": {"message": f"bad key {KEY}"}}, status=401), "bad key [redacted]"),
        (Reply({"error": {"message": "no such model"}}, status=404), "no such model (check the"),
        (Reply(b"<html>hello</html>"), "is not JSON"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_said_in_its_words(
    sandbox: Sandbox, judge_server: JudgeServer, reply: Reply, words: str
) -> None:
    judge_server.replies = [reply]
    problem = check_endpoint(sandbox, judge_server.spec())
    assert problem is not None
    assert words in problem.words
    assert judge_server.address in problem.words
    assert KEY not in problem.words
    assert not problem.transient


@pytest.mark.parametrize("status", [429, 503, 529])
def test_an_endpoint_that_is_busy_may_be_asked_again(
    sandbox: Sandbox, judge_server: JudgeServer, status: int
) -> None:
    judge_server.replies = [Reply({"error": "busy"}, status=status, headers={"Retry-After": "7"})]
    problem = check_endpoint(sandbox, judge_server.spec())
    assert problem is not None
    assert (problem.transient, problem.retry_after) == (True, 7.0)


def test_an_endpoint_that_is_silent_is_given_up_on(
    sandbox: Sandbox, judge_server: JudgeServer
) -> None:
    released = threading.Event()
    judge_server.replies = [silent(released)]
    problem = check_endpoint(sandbox, judge_server.spec(), timeout=1.0)
    released.set()
    assert problem is not None
    assert "gave no answer within 1 s" in problem.words


def test_issues_are_of_the_projects_own_type(sandbox: Sandbox, workspace: Path) -> None:
    result = run(sandbox, workspace, None, checks=BROKEN)
    assert isinstance(result.issues[0], Issue)
