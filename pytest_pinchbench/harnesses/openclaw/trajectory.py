"""A transcript as an ACTF_v1.0 trajectory: a step for each message of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytest_pinchbench.harnesses.openclaw import messages as read

SCHEMA_VERSION = "ACTF_v1.0"

Event = Mapping[str, Any]


def to_actf(transcript: Iterable[Event]) -> dict[str, Any]:
    """The trajectory of one conversation.

    ``user_content`` is the user's message since the step before (a list when there are
    several, empty in a step that only goes on from tool results); tool calls have OpenAI's
    shape, their arguments as an object; times are ISO 8601 in UTC, None where the transcript
    has none. OpenClaw's transcript holds neither its system prompt nor its tool definitions,
    so ``system_prompt`` and ``tools`` are empty.
    """
    steps = [_step(number, exchange) for number, exchange in enumerate(_exchanges(transcript), 1)]
    return {
        "schema_version": SCHEMA_VERSION,
        "steps": steps,
        "started_at": steps[0]["started_at"] if steps else None,
        "finished_at": steps[-1]["finished_at"] if steps else None,
    }


@dataclass
class _Exchange:
    """One message of the model, what it answered, and the results of its tool calls."""

    answer: Event
    message: read.Message
    asked: list[str]
    results: list[Event] = field(default_factory=list)

    def called(self, call_id: object) -> bool:
        return any(call.id == call_id for call in read.tool_calls(self.message))


def _exchanges(transcript: Iterable[Event]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    asked: list[str] = []
    for event in transcript:
        message = read.message_of(event)
        if message is None:
            continue
        if message.get("role") == "user":
            asked.append(read.text(message))
        elif message.get("role") == "toolResult" and exchanges:
            call_id = message.get("toolCallId")
            made = (exchange for exchange in reversed(exchanges) if exchange.called(call_id))
            next(made, exchanges[-1]).results.append(event)
        elif read.is_from_model(message):
            exchanges.append(_Exchange(event, message, asked))
            asked = []
    return exchanges


def _step(number: int, exchange: _Exchange) -> dict[str, Any]:
    message, asked = exchange.message, exchange.asked
    used = message.get("usage")
    used = used if isinstance(used, Mapping) else {}
    started, answered = read.started(exchange.answer), read.finished(exchange.answer)
    observed = [moment for event in exchange.results if (moment := read.finished(event))]
    finished = max(observed, default=answered)
    return {
        "step_id": number,
        "system_prompt": "",
        "user_content": asked[0] if len(asked) == 1 else asked or "",
        "tools": [],
        "assistant_content": {
            "content": read.text(message),
            "reasoning_content": read.reasoning(message),
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in read.tool_calls(message)
            ],
        },
        "observation": [_observation(event["message"]) for event in exchange.results],
        "metric": {
            "prompt_tokens_len": _tokens(used, "input", "cacheRead", "cacheWrite"),
            "completion_tokens_len": _tokens(used, "output"),
            "llm_infer_ms": _milliseconds(started, answered),
            "env_action_ms": _milliseconds(answered, finished) if observed else None,
            "stop_reason": message.get("stopReason"),
        },
        "started_at": _iso(started),
        "finished_at": _iso(finished),
    }


def _observation(message: read.Message) -> dict[str, Any]:
    return {
        "tool_call_id": message.get("toolCallId"),
        "name": message.get("toolName"),
        "content": read.text(message),
        "is_error": message.get("isError") is True,
    }


def _tokens(used: Mapping[str, Any], *keys: str) -> int | None:
    counts = [used[key] for key in keys if isinstance(used.get(key), int)]
    return sum(counts) if counts else None


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return max(round((end - start).total_seconds() * 1000), 0)


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.isoformat(timespec="milliseconds")
