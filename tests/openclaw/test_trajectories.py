from __future__ import annotations

from pathlib import Path

from transcript_files import (
    SESSION,
    assistant,
    call,
    failed,
    said,
    tool_result,
    user,
    write_lines,
    write_table,
)

from pytest_pinchbench.harnesses.openclaw.trajectory import to_actf
from pytest_pinchbench.harnesses.openclaw.transcripts import read_transcript

CONVERSATION = [
    {"type": "session"},
    user("make a file"),
    assistant(
        {"type": "thinking", "thinking": "hm"},
        said("I will."),
        call("write", path="a.txt", content="x"),
        asked=1.0,
        answered=3.5,
    ),
    tool_result("written", second=5.0),
    assistant(said("Done."), asked=5.5, answered=6.0),
]


def test_a_step_for_each_message_of_the_model() -> None:
    trajectory = to_actf(CONVERSATION)
    assert trajectory == {
        "schema_version": "ACTF_v1.0",
        "started_at": "2026-09-12T12:00:01.000+00:00",
        "finished_at": "2026-09-12T12:00:06.000+00:00",
        "steps": [
            {
                "step_id": 1,
                "system_prompt": "",
                "user_content": "make a file",
                "tools": [],
                "assistant_content": {
                    "content": "I will.",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {
                                "name": "write",
                                "arguments": {"path": "a.txt", "content": "x"},
                            },
                        }
                    ],
                },
                "observation": [
                    {
                        "tool_call_id": "c1",
                        "name": "write",
                        "content": "written",
                        "is_error": False,
                    }
                ],
                "metric": {
                    "prompt_tokens_len": 100,
                    "completion_tokens_len": 7,
                    "llm_infer_ms": 2500,
                    "env_action_ms": 1500,
                    "stop_reason": "toolUse",
                },
                "started_at": "2026-09-12T12:00:01.000+00:00",
                "finished_at": "2026-09-12T12:00:05.000+00:00",
            },
            {
                "step_id": 2,
                "system_prompt": "",
                "user_content": "",
                "tools": [],
                "assistant_content": {
                    "content": "Done.",
                    "reasoning_content": "",
                    "tool_calls": [],
                },
                "observation": [],
                "metric": {
                    "prompt_tokens_len": 100,
                    "completion_tokens_len": 7,
                    "llm_infer_ms": 500,
                    "env_action_ms": None,
                    "stop_reason": "stop",
                },
                "started_at": "2026-09-12T12:00:05.500+00:00",
                "finished_at": "2026-09-12T12:00:06.000+00:00",
            },
        ],
    }


def test_both_eras_give_the_same_trajectory(tmp_path: Path) -> None:
    as_lists = [
        user("make a file", as_list=True) if e is CONVERSATION[1] else e for e in CONVERSATION
    ]
    write_lines(tmp_path / "lines", as_lists)
    write_table(tmp_path / "table", CONVERSATION)
    older, newer = (read_transcript(tmp_path / era, [SESSION]) for era in ("lines", "table"))
    assert to_actf(older) == to_actf(newer)


def test_results_go_to_the_step_that_made_the_call() -> None:
    trajectory = to_actf(
        [
            assistant(call("read", "a"), call("read", "b")),
            tool_result("of a", "a"),
            assistant(call("read", "c")),
            tool_result("of b, late", "b"),
            tool_result("of c", "c", isError=True),
        ]
    )
    found = [[seen["content"] for seen in step["observation"]] for step in trajectory["steps"]]
    assert found == [["of a", "of b, late"], ["of c"]]
    assert trajectory["steps"][1]["observation"][0]["is_error"] is True


def test_several_messages_before_an_answer_are_a_list() -> None:
    (step,) = to_actf([user("one"), user("two"), assistant(said("ok"))])["steps"]
    assert step["user_content"] == ["one", "two"]


def test_a_failed_request_is_a_step_with_its_reason() -> None:
    (step,) = to_actf([user("hi"), failed("401 no")])["steps"]
    assert step["metric"]["stop_reason"] == "error"


def test_without_times_there_are_no_durations() -> None:
    event = assistant(said("ok"))
    del event["timestamp"]
    event["message"].pop("timestamp")
    (step,) = to_actf([event])["steps"]
    assert step["started_at"] is None
    assert step["metric"]["llm_infer_ms"] is None


def test_an_empty_transcript_is_a_trajectory_without_steps() -> None:
    assert to_actf([]) == {
        "schema_version": "ACTF_v1.0",
        "steps": [],
        "started_at": None,
        "finished_at": None,
    }
