"""Why an attempt fell short: four rules."""

from __future__ import annotations

import pytest

from pytest_pinchbench.results.fell_short import why_it_fell_short


def conversation(*calls):
    """A trajectory of one step a call (tool, argument)."""
    return {
        "steps": [
            {"assistant_content": {"tool_calls": [{"function": {"name": n, "arguments": a}}]}}
            for n, a in calls
        ]
    }


WROTE = conversation(("write", {"path": "a"}))


@pytest.mark.parametrize(
    ("timed_out", "answer", "trajectory", "reasons"),
    [
        (False, "Done.", WROTE, []),
        (True, None, WROTE, ["out of time"]),
        (False, "", conversation(*[("exec", {"command": "ls", "n": 1})] * 5), ["loop"]),
        (False, "", conversation(*[("exec", {"command": str(n)}) for n in range(5)]), []),
        (False, "", conversation(*[("exec", {"command": "ls"})] * 4), []),
        (False, "It says 4.", conversation(("read", {"path": "a"})), ["nothing written"]),
        (False, "I'm sorry, but I can\u2019t help with that.", WROTE, ["refusal"]),
        (False, "I am unable to complete this.", {}, ["nothing written", "refusal"]),
        (False, "I cannot find any error; all is done.", WROTE, []),
        (False, "", {"steps": [None, {"assistant_content": 5}]}, ["nothing written"]),
    ],
)
def test_a_rule_holds_for_what_it_says(timed_out, answer, trajectory, reasons):
    assert why_it_fell_short(0.5, timed_out, answer, trajectory) == reasons


def test_a_full_score_and_an_invalid_attempt_did_not_fall_short():
    for score in (1.0, None):
        assert why_it_fell_short(score, True, "", {}) == []
