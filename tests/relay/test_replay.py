"""Finding recorded answers, and saying how a request differs from its recording."""

from __future__ import annotations

import json

import pytest

from pytest_pinchbench.relay.replay import Replay, first_difference


def request(*messages: str, **body: object) -> str:
    spoken = [{"role": "user", "content": text} for text in messages]
    return json.dumps({"messages": spoken, **body})


def recorded(asked: str, answer: str, number: int = 1) -> dict[str, object]:
    return {
        "number": number,
        "path": "/chat/completions",
        "request": asked,
        "status": 200,
        "usage": None,
        "content_type": "application/json",
        "answer": answer,
    }


def ask(replay: Replay, asked: str) -> str | None:
    found = replay.answer("/chat/completions", asked.encode())
    return found["answer"] if found else None


def test_answers_are_found_by_conversation_and_place():
    one, other = request("one"), request("other")
    replay = Replay([recorded(one, "1"), recorded(other, "2"), recorded(one, "3")], {})
    assert [ask(replay, each) for each in (other, one, one)] == ["2", "1", "3"]
    assert (ask(replay, one), replay.divergences) == (None, 1)


def test_a_conversation_that_begins_in_another_way_is_found_by_its_place():
    replay = Replay([recorded(request("one"), "1"), recorded(request("two"), "2")], {})
    assert [ask(replay, request(text)) for text in ("two", "one, said anew")] == ["2", "1"]
    assert replay.first == 'request 1: messages[0].content: "one", now "one, said anew"'


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("at 2026-12-01T10:00:00.123Z", "at 2027-01-02T11:11:11Z"),
        ("id 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "id 6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        ("/tmp/run-0_abcdef/x", "/tmp/run-9zyxwvut/x"),
        ("host=4bb0189149fd", "host=0242ac110002"),
        ("took 12.5 ms", "took 3.25 ms"),
        ("in /old/place", "in /new/place"),
    ],
)
def test_times_ids_and_paths_are_no_divergence(then, now):
    replay = Replay([recorded(request("go", x=then), "ok")], {"/old/place": "/new/place"})
    assert ask(replay, request("go", x=now)) == "ok"
    assert replay.divergences == 0


def test_recorded_paths_in_answers_become_those_of_now():
    replay = Replay([recorded(request("go"), "write /old/place/a")], {"/old/place": "/new/place"})
    assert ask(replay, request("go")) == "write /new/place/a"


def test_the_first_difference_is_named():
    old = request("go", tools=[{"name": "read"}, {"name": "exec"}], top_p=1)
    assert first_difference(old, old) == ""
    new = request("go", tools=[{"name": "read"}, {"name": "process"}], top_p=0)
    assert first_difference(old, new) == 'tools[1].name: "exec", now "process"'
    assert (
        first_difference(old, request("go"))
        == 'tools: [{"name": "read"}, {"name": "exec"}], now null'
    )
    assert first_difference(request("a"), request("a", "b")) == "messages: 1 entries, now 2"
