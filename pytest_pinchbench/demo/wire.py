"""The protocol that the demo's agent speaks, as far as a scripted model needs.

A protocol reads a request body into messages and writes an answer, whole or as server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_pinchbench.demo.script import Answer, Message, Usage


@dataclass(frozen=True)
class Reply:
    """An answer with what every protocol wraps around it. ``number`` makes ids unique."""

    model: str
    number: int
    answer: Answer
    usage: Usage


class WireProtocol(Protocol):
    def messages(self, body: Mapping[str, Any]) -> list[Message]:
        """The conversation of a request."""

    def whole(self, reply: Reply) -> dict[str, Any]:
        """The response body of a request without ``stream``."""

    def events(self, reply: Reply) -> Iterator[str]:
        """The server-sent events of a request with ``stream``."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body that goes with an HTTP error."""


class ChatCompletions:
    """OpenAI's ``POST /v1/chat/completions``."""

    def messages(self, body: Mapping[str, Any]) -> list[Message]:
        return [
            Message(message.get("role", ""), text_of(message.get("content")))
            for message in body.get("messages", [])
        ]

    def whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.answer.text or None}
        if reply.answer.calls:
            message["tool_calls"] = self._calls(reply)
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply)}
        return {
            **self._frame(reply, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(reply),
        }

    def events(self, reply: Reply) -> Iterator[str]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return server_sent({**self._frame(reply, "chat.completion.chunk"), "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(reply.answer.text):
            yield chunk({"content": piece})
        for index, call in enumerate(self._calls(reply)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, self._finish(reply))
        yield server_sent(
            {
                **self._frame(reply, "chat.completion.chunk"),
                "choices": [],
                "usage": self._usage(reply),
            }
        )
        yield "data: [DONE]\n\n"

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def _frame(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{reply.number}",
            "object": kind,
            "created": 0,
            "model": reply.model,
        }

    def _calls(self, reply: Reply) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{reply.number}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for index, call in enumerate(reply.answer.calls)
        ]

    def _finish(self, reply: Reply) -> str:
        return "tool_calls" if reply.answer.calls else "stop"

    def _usage(self, reply: Reply) -> dict[str, int]:
        usage = reply.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }


PROTOCOLS: dict[str, WireProtocol] = {"/v1/chat/completions": ChatCompletions()}
"""By the path that requests go to."""


def text_of(content: Any) -> str:
    """All the text in a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            text_of(part.get("text", part.get("content")))
            for part in content
            if isinstance(part, dict)
        )
    return ""


def pieces(text: str) -> list[str]:
    """A text as a stream brings it: in pieces."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def server_sent(data: Mapping[str, Any], name: str = "") -> str:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


def error_type(status: int) -> str:
    """Return what APIs call an HTTP status."""
    return {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
    }.get(status, "invalid_request_error" if status < 500 else "api_error")


def openai_error(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error as OpenAI writes it."""
    return {"error": {"message": message, "type": error_type(status), "code": None}}
