"""What a judge's endpoint answers, over real HTTP, and the exact score or failure for each."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import KEY, VERDICT, JudgeServer, Reply, ask, chat

TEXT = json.dumps(VERDICT)
DRAFT = json.dumps({"scores": {"quality": 0.1}, "total": 0.1})


def responses(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    return {"status": "completed", "error": None, "output": list(output), "usage": usage, **more}


def output_text(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


def messages(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20}
    return {"type": "message", "content": list(content), "stop_reason": stop, "usage": usage}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


Case = tuple[str, Reply, float]
SCORED: dict[str, Case] = {
    # openai-chat
    "chat: bare": ("openai-chat", Reply(chat(TEXT)), 0.7),
    "chat: a fence": ("openai-chat", Reply(chat(f"```json\n{TEXT}\n```")), 0.7),
    "chat: prose around": ("openai-chat", Reply(chat(f"My verdict: {TEXT} Regards.")), 0.7),
    "chat: two objects": ("openai-chat", Reply(chat(f"{DRAFT} or rather {TEXT}")), 0.7),
    "chat: nested scores": (
        "openai-chat",
        Reply(chat('{"scores": {"a": {"score": 0.5, "why": "x"}, "b": {"score": "1.0"}}}')),
        0.75,
    ),
    "chat: criterion1": (
        "openai-chat",
        Reply(chat('{"criterion1": {"score": 0.25}, "criterion2": {"score": 0.75}}')),
        0.5,
    ),
    "chat: overall": (
        "openai-chat",
        Reply(chat('{"overall": {"score": 0.9, "summary": "Good."}}')),
        0.9,
    ),
    "chat: a numeric string": ("openai-chat", Reply(chat('{"total": "0.35"}')), 0.35),
    "chat: zero": ("openai-chat", Reply(chat('{"total": 0}')), 0.0),
    "chat: one": ("openai-chat", Reply(chat('{"total": 1}')), 1.0),
    "chat: content in parts": (
        "openai-chat",
        Reply(chat([{"type": "reasoning", "text": DRAFT}, text(TEXT[:9]), text(TEXT[9:])])),
        0.7,
    ),
    "chat: reasoning beside": ("openai-chat", Reply(chat(TEXT, reasoning_content=DRAFT)), 0.7),
    "chat: thinking in tags": ("openai-chat", Reply(chat(f"<think>{DRAFT}</think>\n{TEXT}")), 0.7),
    "chat: no usage": ("openai-chat", Reply({"choices": chat(TEXT)["choices"]}), 0.7),
    "chat: a text content type": (
        "openai-chat",
        Reply(chat(TEXT), headers={"Content-Type": "text/plain"}),
        0.7,
    ),
    "chat: a byte order mark": (
        "openai-chat",
        Reply(b"\xef\xbb\xbf" + json.dumps(chat(TEXT)).encode()),
        0.7,
    ),
    "chat: 201": ("openai-chat", Reply(chat(TEXT), status=201), 0.7),
    "chat: cut off after the verdict": ("openai-chat", Reply(chat(TEXT, "length")), 0.7),
    # openai-responses
    "responses: text": ("openai-responses", Reply(responses(output_text(TEXT))), 0.7),
    "responses: reasoning before": (
        "openai-responses",
        Reply(responses({"type": "reasoning", "summary": [text(DRAFT)]}, output_text(TEXT))),
        0.7,
    ),
    # anthropic
    "anthropic: text": ("anthropic", Reply(messages(text(TEXT))), 0.7),
    "anthropic: thinking before": (
        "anthropic",
        Reply(messages({"type": "thinking", "thinking": DRAFT}, text(TEXT))),
        0.7,
    ),
    "anthropic: two blocks": ("anthropic", Reply(messages(text(TEXT[:9]), text(TEXT[9:]))), 0.7),
}


@pytest.mark.parametrize(("protocol", "reply", "score"), SCORED.values(), ids=SCORED)
def test_scored(judge_server: JudgeServer, protocol: str, reply: Reply, score: float) -> None:
    judge_server.replies = [reply]
    part = ask(judge_server, protocol)
    assert (part.score, part.issues) == (score, [])
    assert len(judge_server.requests) == 1


def answer(content: Any, **message: Any) -> Reply:
    return Reply(chat(content, **message))


def error(status: int, words: str, **headers: str) -> Reply:
    return Reply({"error": {"message": words}}, status=status, headers=headers)


FAILED: dict[str, tuple[str, Reply, str, str]] = {
    # the verdict
    "true": ("openai-chat", answer('{"total": true}'), "judge_answer", "the total is true"),
    "NaN": ("openai-chat", answer('{"total": NaN}'), "judge_answer", "the total is NaN"),
    "infinity": ("openai-chat", answer('{"total": 1e999}'), "judge_answer", "is Infinity"),
    "a percentage": ("openai-chat", answer('{"total": 85}'), "judge_answer", "the total is 85"),
    "a percent sign": ("openai-chat", answer('{"total": "85%"}'), "judge_answer", "not a number"),
    "negative": ("openai-chat", answer('{"total": -0.5}'), "judge_answer", "the total is -0.5"),
    "a criterion above 1": (
        "openai-chat",
        answer('{"scores": {"a": 7}, "total": 0.7}'),
        "judge_answer",
        '"a" is 7, not a number from 0 to 1',
    ),
    "no total": ("openai-chat", answer('{"notes": "x"}'), "judge_answer", "no total"),
    "prose": (
        "openai-chat",
        answer("I would say 0.8 of 1."),
        "judge_answer",
        "no JSON object; the judge wrote: I would say 0.8 of 1.",
    ),
    "truncated by the model": (
        "openai-chat",
        answer(TEXT[:-9], finish="length"),
        "judge_answer",
        "cut off before its verdict was complete",
    ),
    "truncated before any verdict": (
        "openai-chat",
        answer("Let me think", finish="length"),
        "judge_answer",
        "cut off before its verdict was complete",
    ),
    # the message
    "empty content": ("openai-chat", answer(""), "judge_answer", "the answer has no text (stop)"),
    "null content": ("openai-chat", answer(None), "judge_answer", "no text"),
    "only reasoning": (
        "openai-chat",
        answer("", finish="length", reasoning_content=TEXT),
        "judge_answer",
        "no text (length)",
    ),
    "only thinking in tags": ("openai-chat", answer("<think>" + TEXT), "judge_answer", "no text"),
    "tool calls": (
        "openai-chat",
        answer(None, finish="tool_calls", tool_calls=[{"id": "1", "type": "function"}]),
        "judge_answer",
        "called a tool instead of answering",
    ),
    "refusal": (
        "openai-chat",
        answer(None, refusal="I cannot judge this."),
        "judge_answer",
        "refused: I cannot judge this.",
    ),
    "filtered": ("openai-chat", answer(TEXT, finish="content_filter"), "judge_answer", "refused"),
    "a router's error in the choice": (
        "openai-chat",
        Reply({"choices": [{"error": {"code": 502, "message": "upstream is down"}}]}),
        "judge_http",
        "upstream is down",
    ),
    "no choices": ("openai-chat", Reply({"choices": []}), "judge_answer", "another form than"),
    "a list": ("openai-chat", Reply([1]), "judge_answer", "another form than"),
    "responses: refusal": (
        "openai-responses",
        Reply(responses({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]})),
        "judge_answer",
        "refused: No.",
    ),
    "responses: a function call": (
        "openai-responses",
        Reply(responses({"type": "function_call", "name": "read"})),
        "judge_answer",
        "called a tool instead",
    ),
    "responses: incomplete": (
        "openai-responses",
        Reply(
            responses(
                output_text("Well, "),
                status="incomplete",
                incomplete_details={"reason": "max_output_tokens"},
            )
        ),
        "judge_answer",
        "cut off before",
    ),
    "responses: failed": (
        "openai-responses",
        Reply(responses(status="failed", error={"message": "The server had an error"})),
        "judge_http",
        "reported an error: The server had an error",
    ),
    "anthropic: refusal": (
        "anthropic",
        Reply(messages(text(TEXT), stop="refusal")),
        "judge_answer",
        "refused",
    ),
    "anthropic: tool use": (
        "anthropic",
        Reply(messages({"type": "tool_use", "name": "x"}, stop="tool_use")),
        "judge_answer",
        "called a tool",
    ),
    "anthropic: cut off": (
        "anthropic",
        Reply(messages(text("Firstly"), stop="max_tokens")),
        "judge_answer",
        "cut off",
    ),
    "another protocol's answer": ("anthropic", answer(TEXT), "judge_answer", "another form than"),
    # the response
    "an empty body": ("openai-chat", Reply(b""), "judge_answer", "is empty"),
    "not JSON": (
        "openai-chat",
        Reply(b"<html>Welcome</html>", headers={"Content-Type": "text/html; charset=utf-8"}),
        "judge_answer",
        "is not JSON (text/html): <html>Welcome</html>",
    ),
    "not UTF-8": ("openai-chat", Reply(b'{"a": "\xff\xfe"}'), "judge_answer", "is not UTF-8"),
    "truncated JSON": (
        "openai-chat",
        Reply(json.dumps(chat(TEXT)).encode()[:-20]),
        "judge_answer",
        "is not JSON",
    ),
    "an event stream": (
        "openai-chat",
        Reply(b'data: {"choices": []}\n\n', headers={"Content-Type": "text/event-stream"}),
        "judge_answer",
        "is an event stream, which was not asked for",
    ),
    "huge": ("openai-chat", Reply(b" " * (5 << 20)), "judge_answer", "is larger than 4 MiB"),
    "an error with status 200": (
        "openai-chat",
        Reply({"error": {"message": "Upstream is on fire", "code": 502}}),
        "judge_http",
        "reported an error: Upstream is on fire",
    ),
    # the status
    "400": ("openai-chat", error(400, "context too long"), "judge_http", "context too long"),
    "401": (
        "openai-chat",
        error(401, "Incorrect API key provided"),
        "judge_http",
        "Incorrect API key provided (check the API key)",
    ),
    "403": ("openai-chat", error(403, "Forbidden here"), "judge_http", "HTTP 403"),
    "404": (
        "openai-chat",
        error(404, "The model `judge-model` does not exist"),
        "judge_http",
        "does not exist (check the base URL and the model's name)",
    ),
    "429": ("openai-chat", error(429, "Slow down", **{"Retry-After": "7"}), "judge_http", "429"),
    "500": ("openai-chat", error(500, "Oops"), "judge_http", "HTTP 500"),
    "500 with HTML": (
        "openai-chat",
        Reply(
            b"<html><head><title>t</title></head><body>Bad <b>gateway</b></body></html>",
            status=502,
        ),
        "judge_http",
        "/v1/chat/completions: Bad gateway",
    ),
    "503 without a body": ("openai-chat", Reply(status=503), "judge_http", "Service Unavailable"),
    "529": (
        "anthropic",
        Reply({"type": "error", "error": {"type": "x", "message": "Overloaded"}}, status=529),
        "judge_http",
        "Overloaded",
    ),
    "a redirect": (
        "openai-chat",
        Reply(status=307, headers={"Location": "https://elsewhere.example/v1?k=secret"}),
        "judge_http",
        "it redirects to https://elsewhere.example/v1, which is not followed",
    ),
    "FastAPI's errors": (
        "openai-chat",
        Reply({"detail": "Not authenticated"}, status=403),
        "judge_http",
        "Not authenticated",
    ),
}


@pytest.mark.parametrize(("protocol", "reply", "code", "words"), FAILED.values(), ids=FAILED)
def test_fatal(
    judge_server: JudgeServer, protocol: str, reply: Reply, code: str, words: str
) -> None:
    judge_server.replies = [reply]
    part = ask(judge_server, protocol)
    assert part.score is None
    assert [(issue["severity"], issue["code"]) for issue in part.issues] == [("FATAL", code)]
    assert words in part.issues[0]["message"]
    assert len(judge_server.requests) == 1


def test_the_three_protocols_are_spoken_as_their_servers_expect(
    judge_server: JudgeServer,
) -> None:
    judge_server.replies = [
        Reply(chat(TEXT)),
        Reply(responses(output_text(TEXT))),
        Reply(messages(text(TEXT))),
    ]
    for protocol in ("openai-chat", "openai-responses", "anthropic"):
        ask(judge_server, protocol)
    one, two, three = judge_server.requests
    assert one.path == "/v1/chat/completions"
    assert one.headers["authorization"] == f"Bearer {KEY}"
    assert one.body.pop("messages")[0]["role"] == "user"
    assert one.body == {"model": "judge-model", "temperature": 0}
    assert two.path == "/v1/responses"
    assert two.headers["authorization"] == f"Bearer {KEY}"
    assert "Write a poem." in two.body.pop("input")
    assert two.body == {"model": "judge-model", "temperature": 0}
    assert three.path == "/v1/messages"
    assert three.headers["x-api-key"] == KEY
    assert three.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in three.headers
    assert three.body.pop("messages")[0]["role"] == "user"
    assert three.body == {"model": "judge-model", "temperature": 0, "max_tokens": 8192}


@pytest.mark.parametrize(
    ("protocol", "end", "path"),
    [
        ("openai-chat", "", "/chat/completions"),
        ("openai-chat", "/v1/", "/v1/chat/completions"),
        ("openai-chat", "/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("openai-chat", "/d?api-version=2024-10-21", "/d/chat/completions?api-version=2024-10-21"),
        ("openai-responses", "/v1", "/v1/responses"),
        ("anthropic", "", "/v1/messages"),
        ("anthropic", "/v1", "/v1/messages"),
        ("anthropic", "/v1/messages", "/v1/messages"),
        ("anthropic", "/proxy/", "/proxy/v1/messages"),
    ],
)
def test_the_path_joins_the_base_url_as_the_sdks_do(
    judge_server: JudgeServer, protocol: str, end: str, path: str
) -> None:
    ask(judge_server, protocol, base_url=judge_server.address + end)
    assert judge_server.requests[0].path == path


def test_params_and_headers_of_the_user_go_along(judge_server: JudgeServer) -> None:
    params = {
        "temperature": 0.3,
        "reasoning_effort": "low",
        "extra_headers": {"X-Team": "bench"},
        "extra_body": {"provider": {"order": ["a"]}},
    }
    ask(judge_server, params=params)
    request = judge_server.requests[0]
    request.body.pop("messages")
    assert request.headers["x-team"] == "bench"
    assert request.body == {
        "model": "judge-model",
        "temperature": 0.3,
        "reasoning_effort": "low",
        "provider": {"order": ["a"]},
    }


def test_a_param_of_null_leaves_our_default_out(judge_server: JudgeServer) -> None:
    ask(judge_server, params={"temperature": None})
    assert "temperature" not in judge_server.requests[0].body


UNSUPPORTED = error(400, "Unsupported parameter: 'temperature' is not supported with this model.")


@pytest.mark.parametrize(
    "refusal",
    [
        UNSUPPORTED,
        error(422, "temperature: extra fields not permitted"),
        Reply({"error": {"message": "Provider returned error", "raw": "temperature is fixed"}}),
    ],
)
def test_a_default_that_the_endpoint_refuses_is_left_out_once(
    judge_server: JudgeServer, refusal: Reply
) -> None:
    judge_server.replies = [refusal, Reply(chat(TEXT))]
    part = ask(judge_server)
    assert part.score == 0.7
    assert part.debug["dropped_parameters"] == ["temperature"]
    assert part.usage is not None
    assert part.usage["request_count"] == 2
    assert ["temperature" in request.body for request in judge_server.requests] == [True, False]


def test_a_second_refusal_is_the_end(judge_server: JudgeServer) -> None:
    judge_server.replies = [UNSUPPORTED]
    part = ask(judge_server)
    assert [issue["code"] for issue in part.issues] == ["judge_http"]
    assert part.usage is not None
    assert part.usage["request_count"] == len(judge_server.requests) == 2


def test_a_parameter_of_the_user_is_never_left_out(judge_server: JudgeServer) -> None:
    judge_server.replies = [UNSUPPORTED, Reply(chat(TEXT))]
    part = ask(judge_server, params={"temperature": 0})
    assert "'temperature' is not supported" in part.issues[0]["message"]
    assert len(judge_server.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("nan", None),
    ],
)
def test_retry_after_is_passed_on(
    judge_server: JudgeServer, header: str, seconds: float | None
) -> None:
    judge_server.replies = [error(429, "Slow down", **{"Retry-After": header})]
    assert ask(judge_server).debug["retry_after"] == seconds


@pytest.mark.parametrize(
    ("protocol", "payload", "expected"),
    [
        (
            "openai-chat",
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60},
                "cost": 0.0125,
            },
            (100, 20, 60, 0, 120, 0.0125),
        ),
        (
            "openai-responses",
            {
                "input_tokens": 100,
                "output_tokens": 20,
                "input_tokens_details": {"cached_tokens": 5},
            },
            (100, 20, 5, 0, 120, None),
        ),
        (
            "anthropic",
            {
                "input_tokens": 40,
                "output_tokens": 20,
                "cache_read_input_tokens": 50,
                "cache_creation_input_tokens": 10,
            },
            (100, 20, 50, 10, 120, None),
        ),
        (  # LiteLLM
            "openai-chat",
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
            (100, 20, 60, 10, 120, None),
        ),
        ("openai-chat", {"prompt_tokens": -1, "completion_tokens": "many"}, (0, 0, 0, 0, 0, None)),
        ("openai-chat", ["no", "mapping"], (0, 0, 0, 0, 0, None)),
    ],
)
def test_the_judges_usage_is_recorded(
    judge_server: JudgeServer, protocol: str, payload: Any, expected: tuple[Any, ...]
) -> None:
    body = {
        "openai-chat": chat(TEXT),
        "openai-responses": responses(output_text(TEXT)),
        "anthropic": messages(text(TEXT)),
    }[protocol]
    judge_server.replies = [Reply({**body, "usage": payload})]
    usage = ask(judge_server, protocol).usage
    assert usage is not None
    assert tuple(usage.values()) == (*expected, 1)


def test_an_invalid_answer_costs_what_it_cost(judge_server: JudgeServer) -> None:
    judge_server.replies = [answer("no")]
    usage = ask(judge_server).usage
    assert usage is not None
    assert usage["total_tokens"] == 120


def test_the_evidence_of_a_verdict_is_kept(judge_server: JudgeServer) -> None:
    part = ask(judge_server)
    assert part.notes == "Fair."
    assert part.breakdown == {"quality": 0.5, "style": 1.0}
    assert part.debug["parsed_verdict"] == VERDICT
    assert json.loads(part.debug["raw_verdict"]) == VERDICT
    assert part.debug["protocol"] == "openai-chat"
    assert part.debug["url"] == judge_server.address + "/v1/chat/completions"
    assert part.debug["finish_reason"] == "stop"
    assert part.debug["seconds"] > 0


@pytest.mark.parametrize(
    "reply",
    [
        error(401, f"Incorrect API key provided: {KEY}"),
        error(500, f"x{KEY}y" * 50_000),
        answer(f"Your key is {KEY}."),
        answer(json.dumps({"total": 0.5, "notes": KEY, "scores": {KEY: 0.5}, KEY: [KEY]})),
        Reply(f"<p>{KEY}".encode(), headers={"Content-Type": "text/html"}),
        Reply(b'{"a": "' + KEY.encode() + b'\xff"}'),
        Reply({KEY: KEY}),
        Reply(status=302, headers={"Location": f"https://a.example/{KEY}"}),
    ],
)
def test_a_key_that_the_endpoint_echoes_is_nowhere(judge_server: JudgeServer, reply: Reply) -> None:
    judge_server.replies = [reply]
    part = ask(judge_server, params={"extra_headers": {"X-Token": f"Basic {KEY}-2"}})
    assert KEY in str(judge_server.requests[0].headers)
    assert KEY not in repr(part)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"base_url": None}, "judge_missing", "--pinchbench-judge-base-url"),
        ({"base_url": "ftp://host/v1"}, "judge_settings", "must be http:// or https://"),
        ({"base_url": "localhost:8000"}, "judge_settings", "must be http:// or https://"),
        ({"base_url": "http://[::1"}, "judge_settings", "must be http:// or https://"),
        ({"base_url": "http://user:pw@host"}, "judge_settings", "holds a user name"),
        ({"api_key": "sk-ünique-secret"}, "judge_settings", "the API key is not plain text"),
        ({"api_key": "sk-two\nlines"}, "judge_settings", "the API key is not plain text"),
        ({"params": {"extra_headers": ["a"]}}, "judge_settings", "extra_headers is not a mapping"),
    ],
)
def test_settings_that_cannot_work_make_no_request(
    judge_server: JudgeServer, changes: dict[str, Any], code: str, words: str
) -> None:
    part = ask(judge_server, **changes)
    assert [(issue["severity"], issue["code"]) for issue in part.issues] == [("FATAL", code)]
    assert words in part.issues[0]["message"]
    assert "secret" not in part.issues[0]["message"]
    assert part.usage is None
    assert judge_server.requests == []


def test_a_key_files_line_break_is_none_of_the_key(judge_server: JudgeServer) -> None:
    assert ask(judge_server, api_key=KEY + "\n").score == 0.7
    assert judge_server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_no_header_is_sent(judge_server: JudgeServer) -> None:
    assert ask(judge_server, api_key=None).score == 0.7
    assert "authorization" not in judge_server.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "score", "warning"),
    [
        ({"scores": {"a": 0.5, "b": 0.5, "c": 0.5}, "total": 1.5}, 0.5, "is the sum of its 3"),
        ({"scores": {"a": 0.3, "b": 0.3, "c": 0.3}, "total": 0.9}, 0.3, "is the sum of its 3"),
        ({"scores": {"a": 1, "b": 0.8}, "total": "1.8"}, 0.9, "is the sum of its 2"),
        ({"scores": {"a": 0.4, "b": 0.6}, "total": 0.9}, 0.9, "outside the range of its scores"),
        ({"scores": {"a": 0.4, "b": 0.6}, "total": 0.1}, 0.1, "outside the range of its scores"),
        ({"scores": {"a": 0.0, "b": 1.0}, "total": 1.0}, 1.0, None),
        ({"scores": {"a": 0.7}, "total": 0.7}, 0.7, None),
        ({"criterion_scores": [{"score": 0.5}, {"value": 1}], "completionScore": 0.75}, 0.75, None),
        ({"criterion1": 0.2, "criterion2": 0.6}, 0.4, None),
        ({"scores": {"a": {"score": 1, "weight": 3}, "b": {"value": 0, "weight": 1}}}, 0.75, None),
        ({"total": {"value": 0.6}}, 0.6, None),
        ({"total_score": 0.6, "notes": "x"}, 0.6, None),
    ],
)
def test_totals_in_every_spelling_and_sums(
    judge_server: JudgeServer, answer: dict[str, Any], score: float, warning: str | None
) -> None:
    judge_server.replies = [Reply(chat(json.dumps(answer)))]
    part = ask(judge_server)
    assert part.score == pytest.approx(score)
    assert [issue["severity"] for issue in part.issues] == ["WARNING"] * (warning is not None)
    assert warning is None or warning in part.issues[0]["message"]


@pytest.mark.parametrize("total", [1.4, 2, 15])
def test_a_total_that_is_no_sum_is_not_rescaled(judge_server: JudgeServer, total: float) -> None:
    answer = {"scores": {"a": 0.5, "b": 0.5, "c": 0.5}, "total": total}
    judge_server.replies = [Reply(chat(json.dumps(answer)))]
    assert ask(judge_server).score is None


def test_raw_line_breaks_and_braces_in_notes_are_read(judge_server: JudgeServer) -> None:
    raw = '{"total": 0.5, "notes": "one\ntwo\t{ \\"total\\": 1.0 }"}'
    for text in (raw, f"```json\n{raw}\n```"):
        judge_server.replies = [Reply(chat(text))]
        part = ask(judge_server)
        assert (part.score, part.notes[:7]) == (0.5, "one\ntwo")


def test_a_packed_answer_that_was_not_asked_for_is_read(judge_server: JudgeServer) -> None:
    body = gzip.compress(json.dumps(chat(json.dumps(VERDICT))).encode())
    judge_server.replies = [Reply(body, headers={"Content-Encoding": "gzip"})]
    assert ask(judge_server).score == 0.7


def test_a_thinking_budget_leaves_room_for_the_answer(judge_server: JudgeServer) -> None:
    judge_server.replies = [Reply({"content": [{"type": "text", "text": json.dumps(VERDICT)}]})]
    params = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert ask(judge_server, "anthropic", params=params).score == 0.7
    assert judge_server.requests[-1].body["max_tokens"] == 14_096
    assert "temperature" not in judge_server.requests[-1].body
    ask(judge_server, "anthropic")
    assert judge_server.requests[-1].body["max_tokens"] == 8192


def test_an_answer_that_ran_out_of_tokens_says_so(judge_server: JudgeServer) -> None:
    for text in ("", '{"scores": {"a": 0.5'):
        judge_server.replies = [Reply(chat(text, finish="length"))]
        message = ask(judge_server).issues[0]["message"]
        assert "at its limit of tokens" in message
        assert "max_tokens" in message


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10)
FIELDS = (
    *("choices", "message", "content", "text", "type", "finish_reason", "tool_calls", "usage"),
    *("refusal", "output", "status", "incomplete_details", "reason", "error", "total", "scores"),
)
payloads = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=15,
)
bodies = (
    st.binary(max_size=60)
    | payloads.map(lambda value: json.dumps(value).encode())
    | payloads.map(lambda value: json.dumps(chat(json.dumps(value))).encode())
    | payloads.map(lambda value: json.dumps(chat(value)).encode())
    | payloads.map(lambda value: json.dumps({"output": value}).encode())
    | payloads.map(lambda value: json.dumps({"content": value}).encode())
)


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    bodies,
    st.sampled_from([200, 200, 200, 400, 500]),
    st.sampled_from(["openai-chat", "openai-responses", "anthropic"]),
)
def test_fuzzed_responses_give_a_score_within_0_and_1_or_are_fatal(
    judge_server: JudgeServer, body: bytes, status: int, protocol: str
) -> None:
    judge_server.replies = [Reply(body, status=status)]
    part = ask(judge_server, protocol)
    if part.score is None:
        assert [issue["severity"] for issue in part.issues] == ["FATAL"]
        assert part.issues[0]["code"] in ("judge_answer", "judge_http")
    else:
        assert 0.0 <= part.score <= 1.0
    json.dumps(part._asdict(), allow_nan=False).encode("utf-8")
