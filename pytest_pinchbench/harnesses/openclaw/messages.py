"""Reading messages of a transcript, whichever release of OpenClaw (or other writer) wrote them.

What the judge is shown, too, is read by ``grader/messages.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.harnesses import Usage

if TYPE_CHECKING:
    # where a type checker finds the package that is installed as pytest_pinchbench.grader
    from grader.messages import blocks, joined, message_of, tool_calls
else:
    from pytest_pinchbench.grader.messages import blocks, joined, message_of, tool_calls

__all__ = ["blocks", "message_of", "tool_calls"]

Message = Mapping[str, Any]

# Written into the conversation by OpenClaw itself (provider "openclaw"), not by the model.
_NOT_THE_MODEL = ("delivery-mirror", "gateway-injected")


def messages(transcript: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The messages among a transcript's events, in order."""
    return [message for event in transcript if (message := message_of(event)) is not None]


def is_from_model(message: Message) -> bool:
    """Whether a model was asked for this message (an error counts: it was asked)."""
    return message.get("role") == "assistant" and message.get("model") not in _NOT_THE_MODEL


def text(message: Message) -> str:
    """The text blocks, joined by newlines."""
    return joined(message, "text")


def reasoning(message: Message) -> str:
    """The thinking blocks, joined by newlines."""
    return joined(message, "thinking")


def endpoint_error(message: Message) -> str | None:
    """What the model's endpoint said when it failed this request; None when it did not fail.

    OpenClaw ends a failed request with an assistant message of ``stopReason`` ``error`` and
    the endpoint's words in ``errorMessage``; since 2026.9 the answer's body is beside it.
    """
    if message.get("stopReason") != "error":
        return None
    words = message.get("errorMessage")
    return words if isinstance(words, str) and words else "no reason given"


def final_answer(transcript: Iterable[Mapping[str, Any]]) -> str:
    """The last text that the model wrote, empty when it wrote none.

    Some releases put a text of their own into the message of a failed request.
    """
    for message in reversed(messages(transcript)):
        if is_from_model(message) and endpoint_error(message) is None and text(message):
            return text(message)
    return ""


def usage(transcript: Iterable[Mapping[str, Any]]) -> Usage:
    """What the requests of a transcript used, added up.

    OpenClaw writes a cost of 0 for a model whose price it does not know, so a sum of 0 is
    "no price", not "free".
    """
    sums = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total", "cost"), 0.0)
    requests = 0
    for message in messages(transcript):
        if not is_from_model(message):
            continue
        requests += 1
        used = message.get("usage")
        if not isinstance(used, Mapping):
            continue
        parts = {key: _number(used.get(key)) for key in list(sums)[:4]}
        for key, value in parts.items():
            sums[key] += value
        sums["total"] += _number(used.get("totalTokens")) or sum(parts.values())
        cost = used.get("cost")
        sums["cost"] += _number(cost.get("total") if isinstance(cost, Mapping) else cost)
    return Usage(
        input_tokens=int(sums["input"] + sums["cacheRead"] + sums["cacheWrite"]),
        output_tokens=int(sums["output"]),
        cache_read_tokens=int(sums["cacheRead"]),
        cache_write_tokens=int(sums["cacheWrite"]),
        total_tokens=int(sums["total"]),
        cost_usd=sums["cost"] or None,
        request_count=requests,
    )


def _number(value: Any) -> float:
    """A count as written by an agent that may write anything: 0 where it is not a count."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    # an int too large for a float is no count either
    return float(value) if abs(value) < 1e15 and math.isfinite(value) and value >= 0 else 0.0


def started(event: Mapping[str, Any]) -> datetime | None:
    """When a message began: when the model was asked, for one of the model's."""
    message = message_of(event)
    return (message and moment(message.get("timestamp"))) or moment(event.get("timestamp"))


def seconds_to_prompt(transcript: Iterable[Mapping[str, Any]], began: float) -> float | None:
    """Seconds from ``began`` (Unix time) until the agent noted its first prompt; None where its
    transcript has no such time, or one before that (another clock).
    """
    for event in transcript:
        message = message_of(event)
        if message is not None and message.get("role") == "user":
            at = started(event)
            return at.timestamp() - began if at and at.timestamp() >= began else None
    return None


def finished(event: Mapping[str, Any]) -> datetime | None:
    """When a message was complete and written down."""
    message = message_of(event)
    return moment(event.get("timestamp")) or (message and moment(message.get("timestamp"))) or None


def moment(value: Any) -> datetime | None:
    """A timestamp in either of the transcript's spellings: ISO 8601, or milliseconds."""
    try:
        if isinstance(value, str):
            # Python 3.10 does not read the Z
            stamp = datetime.fromisoformat(value.replace("Z", "+00:00"))
            if stamp.tzinfo is None:
                return stamp.replace(tzinfo=timezone.utc)
            return stamp.astimezone(timezone.utc)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    return None
