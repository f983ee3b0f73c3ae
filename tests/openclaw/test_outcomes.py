from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from transcript_files import Event, assistant, call, failed, said, tool_result, user

from pytest_pinchbench.environments import ExecResult
from pytest_pinchbench.harnesses.openclaw.outcome import find_issues

WORKED = [user("hi"), assistant(said("I will."), call("write")), tool_result("ok", second=1.0)]
DONE = [*WORKED, assistant(said("Done."), asked=1.0, answered=2.0)]


def result(exit_code: int = 0, *, timed_out: bool = False, stderr: bytes = b"") -> ExecResult:
    return ExecResult(exit_code, b"", stderr, timed_out, 1.0)


def codes(
    ended: ExecResult, transcript: Sequence[Event], log: bytes = b""
) -> list[tuple[str, str]]:
    issues = find_issues(ended, transcript, log, "model m at http://host/v1")
    return [(issue.severity, issue.code) for issue in issues]


def logged(words: str, second: float) -> bytes:
    """A line of OpenClaw's log about a failed request."""
    fields = {"event": "embedded_run_agent_end", "isError": True, "rawErrorPreview": words}
    meta = {"date": f"2026-09-12T12:00:{second:06.3f}Z", "logLevelName": "WARN"}
    return json.dumps(
        {"0": "{}", "1": fields, "2": "embedded run agent end", "_meta": meta}
    ).encode()


def test_a_turn_that_went_well_has_no_issue() -> None:
    assert codes(result(), DONE) == []


@pytest.mark.parametrize("exit_code", [0, 1])  # before and since 2026.7
@pytest.mark.parametrize(
    "words",
    [
        "401 Incorrect API key provided",
        "403 forbidden",
        "404 The model `m` does not exist",
        "429 Rate limit reached",
        "500 The server had an error",
        "400 unknown model",
        "Connection error.",
        "Stream ended without finish_reason",
    ],
)
def test_a_model_that_was_never_heard_is_fatal_with_the_endpoints_words(
    exit_code: int, words: str
) -> None:
    (issue,) = find_issues(result(exit_code), [user("hi"), failed(words)], b"", "model m")
    assert (issue.severity, issue.code) == ("FATAL", "model_endpoint")
    assert words in issue.message
    assert "never heard" in issue.message


@pytest.mark.parametrize("words", ["429 slow down", "503 overloaded", "401 revoked", "terminated"])
def test_an_endpoint_that_fails_in_mid_task_is_fatal(words: str) -> None:
    (issue,) = find_issues(result(1), [*WORKED, failed(words, second=2.0)], b"", "model m")
    assert (issue.severity, issue.code) == ("FATAL", "model_endpoint")
    assert "mid-task" in issue.message


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize(
    "words",
    [
        "400 This model's maximum context length is 8192 tokens",
        "413 Request too large",
        "422 content filtered",
        "HTTP 400: bad request",
        "Context overflow: prompt too large for the model",
        "Provider finish_reason: content_filter",
    ],
)
def test_a_request_refused_for_its_content_is_graded(exit_code: int, words: str) -> None:
    ended = codes(result(exit_code), [*WORKED, failed(words, second=2.0)])
    assert ended == [("ERROR", "request_refused")]


@pytest.mark.parametrize(
    "words",
    [
        "400 Your credit balance is too low to access the API",
        "400 API key not valid. Please pass a valid API key.",
        "400 You exceeded your current quota",
    ],
)
def test_a_refusal_of_the_account_is_an_outage_whatever_its_status(words: str) -> None:
    ended = codes(result(1), [*WORKED, failed(words, second=2.0)])
    assert ended == [("FATAL", "model_endpoint")]


def test_a_failure_that_was_got_over_is_no_issue() -> None:
    assert codes(result(), [user("hi"), failed("500 oops"), *DONE[1:]]) == []


def test_a_turn_is_judged_by_what_came_in_it() -> None:
    refused = [*WORKED, failed("400 too long", second=2.0)]
    later = [user("next", 3.0), assistant(said("ok"), asked=3.0, answered=4.0)]
    assert find_issues(result(), [*refused, *later], b"", "m", known=len(refused)) == []
    (issue,) = find_issues(result(1), refused, b"", "m", known=len(refused))
    assert (issue.severity, issue.code) == ("FATAL", "agent_crash")
    (issue,) = find_issues(result(0), refused, b"", "m", known=len(refused))
    assert (issue.severity, issue.code) == ("FATAL", "model_endpoint")


def test_a_crash_is_fatal_and_quotes_the_last_words() -> None:
    (issue,) = find_issues(
        result(134, stderr=b"\x1b[31mFATAL ERROR\x1b[0m: heap out of memory\n"), DONE, b"", "m"
    )
    assert (issue.severity, issue.code) == ("FATAL", "agent_crash")
    assert "exit code 134: FATAL ERROR: heap out of memory" in issue.message


@pytest.mark.parametrize("code", [-1, -2, -9, -15, 129, 130, 137, 143])
def test_an_agent_that_ended_its_own_openclaw_is_graded(code: int) -> None:
    """Another try would be the prize for it."""
    assert codes(result(code), DONE) == [("ERROR", "agent_ended")]
    refused = [*WORKED, failed("400 too long", second=2.0)]
    assert codes(result(code), refused) == [("ERROR", "request_refused"), ("ERROR", "agent_ended")]


@pytest.mark.parametrize("code", [-9, 137, -6, -11])
def test_what_ends_openclaw_before_an_answer_or_by_its_own_fault_is_a_crash(code: int) -> None:
    assert codes(result(code), [user("hi")]) == [("FATAL", "agent_crash")]
    if code in (-6, -11):
        assert codes(result(code), DONE) == [("FATAL", "agent_crash")]


def test_no_transcript_is_fatal_and_says_how_openclaw_ended() -> None:
    (issue,) = find_issues(result(0, stderr=b"one\ntwo\n"), [], b"", "m")
    assert (issue.severity, issue.code) == ("FATAL", "no_transcript")
    assert "exit code 0: one / two" in issue.message


def test_a_turn_without_any_answer_is_fatal() -> None:
    assert codes(result(), [user("hi")]) == [("FATAL", "model_endpoint")]


def test_an_answer_without_words_is_an_answer() -> None:
    assert codes(result(), [user("hi"), assistant()]) == []


def test_an_empty_answer_that_openclaw_calls_a_failure_is_graded() -> None:
    """2026.9.6 exits 1 then, 2026.3.22 exits 0: the same model has to get the same score."""
    empty = assistant({"type": "thinking", "thinking": "hm"}, asked=1.0, answered=2.0)
    assert codes(result(1), [*WORKED, empty]) == [("ERROR", "bad_answer")]


def test_a_tool_call_that_is_no_json_is_the_models_own_fault() -> None:
    words = "Provider returned an incomplete or malformed tool call"
    assert codes(result(1), [user("hi"), failed(words)]) == [("ERROR", "bad_answer")]


def test_a_failure_of_openclaw_after_an_answer_with_words_is_a_crash() -> None:
    assert codes(result(1), DONE) == [("FATAL", "agent_crash")]


def test_running_out_of_time_is_graded() -> None:
    assert codes(result(-9, timed_out=True), WORKED) == [("ERROR", "agent_timeout")]


def test_a_model_silent_to_the_end_is_graded_and_said_to_be() -> None:
    expected = [("ERROR", "agent_timeout"), ("WARNING", "model_silent")]
    assert codes(result(-9, timed_out=True), [user("hi")]) == expected
    cut_off = assistant(stopReason="aborted")
    assert codes(result(-9, timed_out=True), [user("hi"), cut_off]) == expected


@pytest.mark.parametrize(
    ("events", "starved"),
    [([], True), ([user("hi", 0.6)], True), ([user("hi", 0.4)], False)],
)
def test_an_agent_that_started_too_late_is_not_scored(events: list[Event], starved: bool) -> None:
    """An overloaded machine is not the model's 0.0; the turn took 1 s."""
    began = datetime(2026, 9, 12, 12, tzinfo=timezone.utc)
    ended = result(-9, timed_out=True)
    found = find_issues(ended, events, b"", "model m", began=began)
    assert ((found[0].severity, found[0].code) == ("FATAL", "agent_starved")) is starved
    # a later turn of a conversation had a model to talk to
    again = find_issues(ended, [*DONE, *events], b"", "m", known=len(DONE), began=began)
    assert "agent_starved" not in [issue.code for issue in again]


def test_an_endpoint_dead_until_the_time_was_up_is_fatal() -> None:
    ended = codes(result(-9, timed_out=True), [user("hi"), failed("Connection error.")])
    assert ("FATAL", "model_endpoint") in ended


def test_the_log_tells_of_failures_that_openclaw_was_still_trying_to_get_over() -> None:
    log = logged("500 first", 1.0) + b"\n" + logged("503 last", 2.0) + b"\n" + b'{"0": "torn'
    issues = find_issues(result(-9, timed_out=True), [user("hi")], log, "m")
    assert issues[0].severity == "FATAL"
    assert "503 last" in issues[0].message


def test_a_logged_failure_after_the_last_answer_is_how_the_attempt_ended() -> None:
    timed_out = result(-9, timed_out=True)
    assert ("FATAL", "model_endpoint") in codes(timed_out, DONE, logged("500 oops", 2.5))
    assert codes(timed_out, DONE, logged("500 oops", 1.5)) == [("ERROR", "agent_timeout")]


@pytest.mark.parametrize(
    "log",
    [
        b"junk",
        b'{"1": {"event": "embedded_run_agent_end", "isError": false}}',
        b'["embedded_run_agent_end"]',
    ],
)
def test_a_log_that_tells_of_no_failure_says_nothing(log: bytes) -> None:
    assert ("FATAL", "model_endpoint") not in codes(result(-9, timed_out=True), [], log)
