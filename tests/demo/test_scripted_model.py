"""The scripted endpoint, asked over HTTP as agents and judges ask it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import Fault, parse_script

SCRIPT = parse_script(
    """
usage: {input_tokens: 11, output_tokens: 7}
turns:
  - when: sing
    steps:
      - - write: {path: song.txt, content: la la}
        - exec: {command: cat song.txt}
      - I sang.
judge:
  - when: how was the song
    verdict: {total: 0.9}
"""
)
TOOLS = [{"type": "function", "function": {"name": "write"}}]


# a busy machine may take long to answer, and a proxy is for servers elsewhere
PATIENT: dict[str, Any] = {"timeout": 60, "trust_env": False}
get: Callable[..., httpx.Response] = functools.partial(httpx.get, **PATIENT)
post: Callable[..., httpx.Response] = functools.partial(httpx.post, **PATIENT)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as model:
        yield model


def ask(model: ScriptedModel, text: str = "sing", /, **more: Any) -> httpx.Response:
    """One request of an agent in its first step; ``more`` is added to the body."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "tools": TOOLS,
        **more,
    }
    return post(f"{model.url}/chat/completions", json=body)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# the three protocols; what each makes of the same conversation


def chat_body(answered: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "sing"}]
    if answered:
        call = {"id": "1", "type": "function", "function": {"name": "write", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "ok"},
        ]
    return {"messages": messages, "tools": TOOLS}


def responses_body(answered: bool) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "sing"}]}
    ]
    if answered:
        items += [
            {"type": "function_call", "call_id": "1", "name": "write", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "exec", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "ok"},
            {"type": "function_call_output", "call_id": "2", "output": "ok"},
        ]
    return {"input": items, "tools": TOOLS}


def anthropic_body(answered: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "sing"}]
    if answered:
        messages += [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "write", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": "sing"}],
            },
        ]
    return {"messages": messages, "tools": TOOLS, "max_tokens": 100}


Said = tuple[str, list[tuple[str, Any]], tuple[int, int]]
"""Text, tool calls with their arguments, tokens in and out: what a client understood."""


def read_chat(response: httpx.Response, stream: bool) -> Said:
    if not stream:
        data = response.json()
        message = data["choices"][0]["message"]
        usage = data["usage"]
        calls = message.get("tool_calls", [])
        text = message["content"] or ""
    else:
        deltas = [c["delta"] for e in events(response) for c in e["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        usage = events(response)[-1]["usage"]
    found = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
    return text, found, (usage["prompt_tokens"], usage["completion_tokens"])


def read_responses(response: httpx.Response, stream: bool) -> Said:
    data = response.json() if not stream else events(response)[-1]["response"]
    calls = [
        (item["name"], json.loads(item["arguments"]))
        for item in data["output"]
        if item["type"] == "function_call"
    ]
    text = "".join(
        part["text"]
        for item in data["output"]
        for part in item.get("content", [])
        if part["type"] == "output_text"
    )
    if stream:
        deltas = [e for e in events(response) if e["type"] == "response.output_text.delta"]
        assert text == "".join(delta["delta"] for delta in deltas)
    return text, calls, (data["usage"]["input_tokens"], data["usage"]["output_tokens"])


def read_anthropic(response: httpx.Response, stream: bool) -> Said:
    if not stream:
        data = response.json()
        blocks, usage = data["content"], data["usage"]
    else:
        blocks = []
        usage = {}
        for event in events(response):
            if event["type"] == "message_start":
                usage |= event["message"]["usage"]
            elif event["type"] == "message_delta":
                usage |= event["usage"]
            elif event["type"] == "content_block_start":
                blocks.append(dict(event["content_block"], json=""))
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                blocks[-1]["json"] += delta.get("partial_json", "")
                blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"])
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
    return text, calls, (usage["input_tokens"], usage["output_tokens"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("chat/completions", chat_body, read_chat),
        ("responses", responses_body, read_responses),
        ("messages", anthropic_body, read_anthropic),
    ],
    ids=["openai-chat", "openai-responses", "anthropic"],
)
def test_every_protocol_carries_calls_text_and_usage(
    model: ScriptedModel,
    path: str,
    body: Callable[[bool], dict[str, Any]],
    read: Callable[[httpx.Response, bool], Said],
    stream: bool,
) -> None:
    def said(answered: bool) -> Said:
        request = {"model": "m", "stream": stream, **body(answered)}
        return read(post(f"{model.url}/{path}", json=request), stream)

    calls = [
        ("write", {"path": "song.txt", "content": "la la"}),
        ("exec", {"command": "cat song.txt"}),
    ]
    assert said(answered=False) == ("", calls, (11, 7))
    assert said(answered=True) == ("I sang.", [], (11, 7))


def test_it_is_the_judge_too(model: ScriptedModel) -> None:
    response = ask(model, "Task: sing. So how was the song?", tools=None)
    assert json.loads(response.json()["choices"][0]["message"]["content"]) == {"total": 0.9}
    assert model.requests[0].audience == "judge"


def test_requests_are_kept_as_they_came(model: ScriptedModel) -> None:
    post(
        f"{model.url}/chat/completions",
        json={"messages": [], "temperature": 0.5},
        headers={"X-Extra": "yes"},
    )
    (request,) = model.requests
    assert request.path == "/v1/chat/completions"
    assert request.body["temperature"] == 0.5
    assert request.headers["x-extra"] == "yes"


def test_the_log_has_a_line_for_each_request(model: ScriptedModel) -> None:
    ask(model)
    ask(model, "and what is this?")
    assert model.log == [
        "#1 /v1/chat/completions agent -> write, exec",
        "#2 /v1/chat/completions agent -> text",
    ]


def test_models_are_listed() -> None:
    with ScriptedModel(SCRIPT, models=["one", "two"]) as model:
        listed = get(f"{model.url}/models").json()["data"]
    assert [entry["id"] for entry in listed] == ["one", "two"]


def test_a_model_it_does_not_have_is_404() -> None:
    with ScriptedModel(SCRIPT, models=["one"]) as model:
        response = ask(model, model="two")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "The model 'two' does not exist"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer right"}, 200),
        ({"x-api-key": "right"}, 200),
    ],
)
def test_a_required_key_is_required(headers: dict[str, str], status: int) -> None:
    with ScriptedModel(SCRIPT, api_key="right") as model:
        response = post(f"{model.url}/chat/completions", json={"messages": []}, headers=headers)
    assert response.status_code == status


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": [1]}'])
def test_a_body_that_is_no_request_is_400(model: ScriptedModel, body: bytes) -> None:
    assert post(f"{model.url}/chat/completions", content=body).status_code == 400


def test_a_path_that_no_protocol_has_is_404(model: ScriptedModel) -> None:
    assert post(f"{model.url}/v1/chat/completions", json={}).status_code == 404


# faults


def test_a_fault_begins_and_ends_with_its_requests(model: ScriptedModel) -> None:
    model.faults = [Fault(first=2, last=3, status=429, headers={"retry-after": "7"})]
    responses = [ask(model) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 429, 429, 200]
    assert responses[1].headers["retry-after"] == "7"
    assert responses[1].json()["error"]["message"] == "scripted failure"


def test_a_fault_for_the_judge_leaves_agents_alone(model: ScriptedModel) -> None:
    model.faults = [Fault(only="judge", last=1, status=503)]
    statuses = [
        ask(model).status_code,
        ask(model, "how was the song", tools=None).status_code,
        ask(model, "how was the song", tools=None).status_code,
    ]
    assert statuses == [200, 503, 200]


@pytest.mark.parametrize(
    ("body", "sent"), [("nope", "nope"), ({"error": "full"}, '{"error": "full"}')]
)
def test_a_fault_may_have_a_body_of_its_own(model: ScriptedModel, body: Any, sent: str) -> None:
    model.faults = [Fault(status=400, body=body)]
    response = ask(model)
    assert (response.status_code, response.text) == (400, sent)


def test_faults_can_stand_in_the_script() -> None:
    script = parse_script("faults: [{status: 418, message: I am a teapot}]")
    with ScriptedModel(script) as model:
        response = ask(model)
    assert (response.status_code, response.json()["error"]["message"]) == (418, "I am a teapot")


def test_a_reset_connection_is_reset(model: ScriptedModel) -> None:
    model.faults = [Fault("reset")]
    with pytest.raises(httpx.ReadError, match="reset"):
        ask(model)


def test_a_cut_answer_breaks_off_in_the_middle(model: ScriptedModel) -> None:
    model.faults = [Fault("cut")]
    got: list[bytes] = []
    with (
        httpx.stream(
            "POST", f"{model.url}/messages", json=anthropic_body(False), **PATIENT
        ) as response,
        pytest.raises(httpx.TransportError),
    ):
        got.extend(response.iter_raw())
    assert 0 < len(b"".join(got)) < int(response.headers["content-length"])


def test_a_refusing_server_is_gone_for_the_next_request(model: ScriptedModel) -> None:
    model.faults = [Fault("refuse")]
    with pytest.raises(httpx.TransportError):
        ask(model)
    with pytest.raises(httpx.ConnectError, match="refused"):
        ask(model)


def test_silence_lasts_until_the_server_closes(model: ScriptedModel) -> None:
    model.faults = [Fault("silence")]
    ended: list[Exception] = []

    def wait() -> None:
        try:
            ask(model)
        except httpx.TransportError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    model.wait_for_requests(1)
    waiting.join(0.2)
    assert waiting.is_alive()
    model.close()
    waiting.join(60)
    assert len(ended) == 1


def test_a_delay_comes_before_every_answer() -> None:
    with ScriptedModel(SCRIPT, delay=0.2) as model:
        assert ask(model).elapsed.total_seconds() >= 0.2


def test_waiting_for_requests_that_never_come_says_how_many_came(model: ScriptedModel) -> None:
    ask(model)
    with pytest.raises(TimeoutError, match="1 of 2 requests"):
        model.wait_for_requests(2, timeout=0.01)


def test_many_clients_are_answered_at_once() -> None:
    all_are_there = threading.Barrier(8)

    def wait_for_the_others(line: str) -> None:
        all_are_there.wait(60)

    with (
        ScriptedModel(SCRIPT, say=wait_for_the_others) as model,
        ThreadPoolExecutor(8) as clients,
    ):
        answers = list(clients.map(lambda _: ask(model).status_code, range(8)))
    assert answers == [200] * 8
    assert len(model.log) == 8


def test_it_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "pytest_pinchbench.demo.model", "--api-key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            url = program.stdout.readline().split(" at ")[1].strip()
            listed = get(f"{url}/models", headers={"authorization": "Bearer k"})
        finally:
            program.terminate()
    assert listed.status_code == 200
