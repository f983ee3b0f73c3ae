"""Why an attempt fell short, as far as four rules can say; never part of a score."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Reason = Literal["out of time", "loop", "nothing written", "refusal"]

_REPEATED = 5
_READING = {"read", "web_search", "web_fetch", "memory_search", "memory_get", "session_status"}
_REFUSAL = re.compile(
    r"\b(i|we)('m| am|'re| are)? ?(sorry,? (but )?i )?"
    r"(can(no|')t|can not|won't|will not|unable to|not able to)"
    r" (help|assist|do|comply|complete|fulfil|fulfill|provide|create|support)\b",
    re.IGNORECASE,
)


def why_it_fell_short(
    score: float | None, timed_out: bool, final_answer: str | None, trajectory: Mapping[str, Any]
) -> list[Reason]:
    """Return the rules that hold for an attempt below the full score, in this order:

    - *out of time*: the clock stopped the agent;
    - *loop*: the same tool was called five times with the same arguments;
    - *nothing written*: no tool was called but such as only read;
    - *refusal*: the final answer says that the agent will not or cannot do it.
    """
    if score is None or score >= 1:
        return []
    calls = list(_calls(trajectory))
    most = max(Counter(calls).values(), default=0)
    refused = _REFUSAL.search((final_answer or "").replace("\u2019", "'")[:500])
    found: list[tuple[Reason, bool]] = [
        ("out of time", timed_out),
        ("loop", most >= _REPEATED),
        ("nothing written", {name for name, _ in calls} <= _READING),
        ("refusal", refused is not None),
    ]
    return [reason for reason, holds in found if holds]


def _calls(trajectory: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each tool call: its name and arguments. The trajectory is a harness's: of any shape."""
    steps = trajectory.get("steps")
    for step in steps if isinstance(steps, list) else []:
        answer = step.get("assistant_content") if isinstance(step, Mapping) else None
        calls = answer.get("tool_calls") if isinstance(answer, Mapping) else None
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                arguments = json.dumps(function.get("arguments"), sort_keys=True, default=str)
                yield str(function.get("name")), arguments
