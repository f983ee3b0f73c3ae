"""What passes the relay arrives byte for byte, as it comes, whatever the chunks are."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from raw_endpoint import Connection
from support.waiting import wait_until


def events(*payloads: Any, end: str = "\n\n") -> list[bytes]:
    return [f"data: {json.dumps(p, ensure_ascii=False)}{end}".encode() for p in payloads]


CHAT = [*events(
    {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
    {"choices": [{"index": 0, "delta": {"content": "Grüße 🦞"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "c", "function": {"name": "read", "arguments": '{"path"'}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "function": {"arguments": ': "ä.txt"}'}}]}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18,
                              "prompt_tokens_details": {"cached_tokens": 5}}},
), b"data: [DONE]\n\n"]  # fmt: skip
RESPONSES = events(
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_text.delta", "delta": "Grüße"},
    {"type": "response.output_item.done",
     "item": {"type": "function_call", "call_id": "c", "name": "read",
              "arguments": '{"path": "ä.txt"}'}},
    {"type": "response.completed", "response": {"output": [], "usage": {
        "input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
        "input_tokens_details": {"cached_tokens": 5}}}},
    end="\r\n\r\n",
)  # fmt: skip
ANTHROPIC = events(
    {"type": "message_start", "message": {"usage": {
        "input_tokens": 6, "cache_read_input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße"}},
    {"type": "content_block_start", "index": 1,
     "content_block": {"type": "tool_use", "id": "c", "name": "read", "input": {}}},
    {"type": "content_block_delta", "index": 1,
     "delta": {"type": "input_json_delta", "partial_json": '{"path": "ä.txt"}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
)  # fmt: skip
ANSWERS = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC}
ASKS_FOR_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("protocol", ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 10_000], ids="chunks of {} bytes".format)
def test_an_answer_arrives_byte_for_byte_and_is_read(relayed, protocol, size):
    whole = b"".join(ANSWERS[protocol])
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    relay = relayed(lambda c: c.stream(chunks), protocol=protocol)

    response = relay.post(ASKS_FOR_USAGE)

    assert response.status == 200
    assert response.read() == whole
    (exchange,) = relay.exchanges()
    assert exchange["usage"] == {
        "input_tokens": 11,
        "output_tokens": 7,
        "cache_read_tokens": 5,
        "cache_write_tokens": 0,
        "total_tokens": 18,
        "reasoning_tokens": 0,
        "cost_usd": None,
    }
    assert [(n, json.loads(a)) for n, a in exchange["tool_calls"]] == [("read", {"path": "ä.txt"})]
    assert exchange["error"] == ""
    times = [exchange[name] for name in ("received", "sent", "first_byte", "first_delta", "end")]
    assert times == sorted(times)


def test_an_answer_that_is_not_streamed_is_read_too(relayed):
    document = json.dumps({
        "choices": [{"message": {"content": "hello"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.25},
    }).encode()  # fmt: skip
    relay = relayed(lambda c: c.answer(document, content_type="application/json"))
    response = relay.post({"messages": []})
    assert (response.read(), response.getheader("content-length")) == (document, str(len(document)))
    state = relay.grant.close()
    assert state["heard"]
    assert state["exchanges"][0]["usage"]["cost_usd"] == 0.25


def test_usage_is_asked_for_and_taken_out_again_where_the_agent_did_not_ask(relayed):
    relay = relayed(lambda c: c.stream([b"".join(CHAT)[:90], b"".join(CHAT)[90:]]))
    response = relay.post({"stream": True, "messages": []})
    assert response.read() == b"".join([*CHAT[:-2], CHAT[-1]])
    sent = json.loads(relay.endpoint.requests[0].body)
    assert sent == {"stream": True, "messages": [], "stream_options": {"include_usage": True}}
    assert relay.exchanges()[0]["usage"]["total_tokens"] == 18


def test_an_endpoint_without_stream_options_is_asked_without(relayed):
    refusal = b'{"error": {"message": "unknown field: stream_options"}}'
    relay = relayed(
        lambda c: c.answer(refusal, "400 Bad Request"), lambda c: c.stream(CHAT[:-2] + CHAT[-1:])
    )
    for _ in range(2):
        assert relay.post({"stream": True}).read() == b"".join([*CHAT[:-2], CHAT[-1]])
    bodies = [json.loads(request.body) for request in relay.endpoint.requests]
    assert ["stream_options" in body for body in bodies] == [True, False, False]
    assert [one["usage"] for one in relay.exchanges()] == [None, None]


def test_a_slow_drip_is_passed_on_as_it_comes(relayed):
    go_on = threading.Event()

    def drip(connection: Connection) -> None:
        connection.stream(CHAT[:1], end=False)
        go_on.wait(30)
        connection.send(b"1\r\nx\r\n0\r\n\r\n")

    relay = relayed(drip)
    response = relay.post(ASKS_FOR_USAGE)
    assert response.read1(len(CHAT[0])) == CHAT[0]  # though the endpoint has not gone on
    go_on.set()
    assert response.read() == b"x"


@pytest.mark.parametrize("asked", ["gzip", "identity"])
def test_a_compressed_answer_arrives_uncompressed(relayed, asked):
    packed = gzip.compress(b"".join(CHAT))
    chunks = [packed[at : at + 11] for at in range(0, len(packed), 11)]
    relay = relayed(lambda c: c.stream(chunks, content_encoding="gzip"))
    response = relay.post(ASKS_FOR_USAGE, **{"accept-encoding": asked})
    assert response.getheader("content-encoding") is None
    assert response.read() == b"".join(CHAT)
    assert b"accept-encoding: identity" in relay.endpoint.requests[0].head.lower()
    assert relay.exchanges()[0]["usage"]["total_tokens"] == 18


def test_an_answer_with_trailers_arrives(relayed):
    def play(connection: Connection) -> None:
        connection.stream(CHAT, end=False, trailer="x-checksum")
        connection.send(b"0\r\nx-checksum: 1\r\n\r\n")

    assert relayed(play).post(ASKS_FOR_USAGE).read() == b"".join(CHAT)


def test_a_reset_in_mid_stream_breaks_the_answer_off(relayed):
    def play(connection: Connection) -> None:
        connection.stream(CHAT[:2], end=False)
        connection.reset()

    relay = relayed(play)
    response = relay.post(ASKS_FOR_USAGE)
    with pytest.raises((OSError, http.client.IncompleteRead)):
        response.read()
    (exchange,) = relay.exchanges()
    assert exchange["error"].startswith("the answer broke off")
    assert exchange["tries"] == 1  # what the agent has seen in part is not asked for again


def test_an_answer_that_ends_before_its_length_is_not_whole(relayed):
    relay = relayed(lambda c: (c.send(c.head_of(content_length="100"), b"half"), c.end()))
    response = relay.post({})
    with pytest.raises((OSError, http.client.IncompleteRead)):
        response.read()


def test_a_large_answer_passes_in_little_memory(relayed):
    piece = b"data: " + b"x" * 65_530 + b"\n"  # one event of 50 MB: its blank line never comes
    relay = relayed(lambda c: c.stream(piece for _ in range(800)))
    response = relay.post(ASKS_FOR_USAGE)
    digest, size = hashlib.sha256(), 0
    while data := response.read1(1 << 20):
        digest.update(data)
        size += len(data)
    assert size == 800 * len(piece)
    assert digest.digest() == hashlib.sha256(piece * 800).digest()
    status = Path(f"/proc/{relay.process._process.pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    assert peak < 250_000, f"{peak} kB"


def test_a_client_that_goes_away_ends_the_request_at_the_endpoint(relayed):
    gone = threading.Event()

    def play(connection: Connection) -> None:
        connection.stream(CHAT[:2], end=False)
        while connection.socket.recv(1024):
            pass
        gone.set()

    relay = relayed(play)
    response = relay.post(ASKS_FOR_USAGE)
    response.read1(1)
    response.close()
    assert gone.wait(30)
    wait_until(lambda: relay.grant.end_turn()["requests"] == 0)  # an abandoned one is no failure
    assert relay.exchanges()[0]["abandoned"]
