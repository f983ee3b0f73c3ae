"""Reading one message of a transcript, whichever release of OpenClaw (or other writer) wrote it.

Releases differ in small things: a user's ``content`` is a string on 2026.9.6 and a list before;
a tool call's arguments are called ``arguments``, ``params`` or ``input``, and are now and then
a JSON string. Nothing here changes a message; it only looks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pytest_pinchbench.harnesses import Usage

Message = Mapping[str, Any]

# Written into the conversation by OpenClaw itself (provider "openclaw"), not by the model.
_NOT_THE_MODEL = ("delivery-mirror", "gateway-injected")
_TOOL_CALL_TYPES = ("toolCall", "toolUse", "tool_call", "tool_use", "functionCall")


@dataclass(frozen=True)
class ToolCall:
    """``arguments`` is a mapping wherever the writer's could be read as one."""

    id: str
    name: str
    arguments: Any


def messages(transcript: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The messages among a transcript's events, in order."""
    return [message for event in transcript if (message := message_of(event)) is not None]


def message_of(event: Mapping[str, Any]) -> Message | None:
    message = event.get("message")
    return message if event.get("type") == "message" and isinstance(message, Mapping) else None


def is_from_model(message: Message) -> bool:
    """Whether a model was asked for this message (an error counts: it was asked)."""
    return message.get("role") == "assistant" and message.get("model") not in _NOT_THE_MODEL


def blocks(message: Message) -> list[Mapping[str, Any]]:
    """``content`` as a list of blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, Sequence):
        return []
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block
        for block in content
        if isinstance(block, (str, Mapping))
    ]


def text(message: Message) -> str:
    """The text blocks, joined by newlines."""
    return _joined(message, "text", "text")


def reasoning(message: Message) -> str:
    """The thinking blocks, joined by newlines."""
    return _joined(message, "thinking", "thinking")


def _joined(message: Message, kind: str, key: str) -> str:
    found = [block.get(key) for block in blocks(message) if block.get("type") == kind]
    return "\n".join(part for part in found if isinstance(part, str) and part)


def tool_calls(message: Message) -> list[ToolCall]:
    calls = []
    for block in blocks(message):
        if block.get("type") in _TOOL_CALL_TYPES:
            written = [block[key] for key in ("arguments", "params", "input") if key in block]
            calls.append(
                ToolCall(
                    id=str(block.get("id", "")),
                    name=str(block.get("name", "")),
                    arguments=_decoded(written[0]) if written else {},
                )
            )
    return calls


def _decoded(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        decoded = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return decoded if isinstance(decoded, dict) else arguments


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
