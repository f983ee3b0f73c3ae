"""Reading OpenClaw's messages: for the judge here, for the harness and the trajectory there.

Releases differ: a user's ``content`` is a string on 2026.9.6 and a list of blocks before; a
tool call's arguments are called ``arguments``, ``params`` or ``input``, and are now and then a
JSON string. Nothing here changes a message; it only looks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, List, NamedTuple, Optional

TOOL_CALLS = ("toolCall", "toolUse", "tool_call", "tool_use", "functionCall")


class ToolCall(NamedTuple):
    """``arguments`` is a mapping wherever the writer's could be read as one."""

    id: str
    name: str
    arguments: Any


def message_of(event: Any) -> "Optional[Mapping[str, Any]]":
    """The message of a transcript's event; None for an event of another kind."""
    if not isinstance(event, Mapping) or event.get("type") != "message":
        return None
    message = event.get("message")
    return message if isinstance(message, Mapping) else None


def blocks(message: "Mapping[str, Any]") -> "List[Mapping[str, Any]]":
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


def joined(message: "Mapping[str, Any]", kind: str) -> str:
    """What the blocks of a kind (``text``, ``thinking``) say, joined by newlines."""
    found = [block.get(kind) for block in blocks(message) if block.get("type") == kind]
    return "\n".join(part for part in found if isinstance(part, str) and part)


def tool_calls(message: "Mapping[str, Any]") -> List[ToolCall]:
    calls = []
    for block in blocks(message):
        if block.get("type") in TOOL_CALLS:
            given = (block.get(field) for field in ("arguments", "params", "input"))
            arguments: Any = next((one for one in given if one is not None), {})
            name, number = str(block.get("name", "")), str(block.get("id", ""))
            calls.append(ToolCall(number, name, _decoded(arguments)))
    return calls


def _decoded(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        decoded = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return decoded if isinstance(decoded, dict) else arguments
