"""A trajectory as a person reads it."""

from __future__ import annotations

import pytest
from runs import transcript, write_run

from pytest_pinchbench.harnesses.openclaw.trajectory import to_actf
from pytest_pinchbench.reports.conversation import (
    LONGEST,
    Entry,
    bounded,
    conversation,
    entries,
    tail,
)


def test_everything_that_happened_is_there_in_order():
    found = [(entry.kind, entry.text) for entry in entries(to_actf(transcript("yes")))]
    assert found == [
        ("user", "Make made.txt that says yes."),
        ("thinking", "A file, then."),
        ("call", "path: made.txt\ntext: yes"),
        ("result", "wrote made.txt: yes"),
        ("assistant", "yes"),
    ]


def test_a_failed_tool_and_a_failed_endpoint_are_told():
    step = {
        "assistant_content": {"content": "", "tool_calls": []},
        "observation": [{"name": "exec", "content": "no such file", "is_error": True}],
        "metric": {"stop_reason": "error"},
    }
    found = list(entries({"steps": [step]}))
    assert [(entry.kind, entry.title) for entry in found] == [
        ("error", "tool error: exec"),
        ("error", "model"),
    ]


def test_arguments_that_are_no_plain_texts_are_shown_as_json():
    call = {"function": {"name": "edit", "arguments": {"edits": [{"old": "é"}]}}}
    (entry,) = entries({"steps": [{"assistant_content": {"tool_calls": [call]}}]})
    assert '"old": "é"' in entry.text


def test_a_long_text_is_cut_in_the_middle():
    (entry,) = entries({"steps": [{"user_content": "a" + "x" * 9 * LONGEST + "z"}]})
    assert len(entry.text) < LONGEST + 50
    assert entry.text.startswith("a")
    assert entry.text.endswith("z")


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_long_conversation_keeps_its_beginning_and_its_end(count):
    long = [Entry("assistant", "model", f"{n} " + "x" * 500) for n in range(count)]
    short = bounded(long, 20_000)
    assert sum(len(entry.text) for entry in short) < 20_500
    if count < 1000:
        assert short == long
    else:
        assert short[0] == long[0]
        assert short[-1] == long[-1]
        (note,) = (entry for entry in short if entry.kind == "note")
        assert note.title == f"{count - len(short) + 1} entries left out"


def test_a_conversation_is_bounded_by_any_limit():
    long = [Entry("assistant", "model", "x" * LONGEST) for _ in range(3)]
    assert sum(len(entry.text) for entry in bounded(long, 2_000)) < 2_500


def test_the_tail_is_the_end_and_not_longer_than_asked():
    said = [Entry("assistant", "model", "x" * 3000), Entry("assistant", "model", "the end")]
    text = tail(said, 1000)
    assert len(text) == 1000
    assert text.endswith("the end")
    assert "left out" in text


@pytest.mark.parametrize("content", ["not json", "[]", '{"steps": [1, {"user_content": 5}]}'])
def test_a_trajectory_of_any_shape_stops_no_report(tmp_path, content):
    directory = write_run(tmp_path / "run", {"task_a": [1.0]})
    (record,) = directory.records()
    (directory.attempt_dir("task_a", 1) / "trajectory.json").write_text(content)
    assert isinstance(conversation(directory, record, 1000), list)
