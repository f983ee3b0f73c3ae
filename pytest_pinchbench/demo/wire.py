"""The three protocols that OpenClaw and the judge speak, as far as a scripted model needs.

Each reads a request body into messages and writes an answer, whole or as server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
            Message(message.get("role", ""), _text(message.get("content")))
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
            return _event({**self._frame(reply, "chat.completion.chunk"), "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        for piece in _pieces(reply.answer.text):
            yield chunk({"content": piece})
        for index, call in enumerate(self._calls(reply)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, self._finish(reply))
        yield _event(
            {
                **self._frame(reply, "chat.completion.chunk"),
                "choices": [],
                "usage": self._usage(reply),
            }
        )
        yield "data: [DONE]\n\n"

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _openai_error(status, message)

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


class Responses:
    """OpenAI's ``POST /v1/responses``."""

    def messages(self, body: Mapping[str, Any]) -> list[Message]:
        items = body.get("input", [])
        if isinstance(items, str):
            return [Message("user", items)]
        found: list[Message] = []
        answering = False
        for item in items:
            # one answer may be several items (a text, calls); they count as one message
            mine = item.get("type") in ("function_call", "reasoning") or (
                item.get("role") == "assistant"
            )
            if mine and not answering:
                found.append(Message("assistant", _text(item.get("content"))))
            elif not mine:
                text = _text(item.get("content", item.get("output")))
                found.append(Message(item.get("role", "tool"), text))
            answering = mine
        return found

    def whole(self, reply: Reply) -> dict[str, Any]:
        return self._response(reply, "completed", [item for item, _ in self._items(reply)])

    def events(self, reply: Reply) -> Iterator[str]:
        number = 0

        def event(kind: str, **data: Any) -> str:
            nonlocal number
            number += 1
            return _event({"type": kind, "sequence_number": number, **data}, kind)

        yield event("response.created", response=self._response(reply, "in_progress", []))
        for index, (item, empty) in enumerate(self._items(reply)):
            at = {"output_index": index, "item_id": item["id"]}
            yield event("response.output_item.added", output_index=index, item=empty)
            if item["type"] == "function_call":
                kind = "response.function_call_arguments"
                yield event(f"{kind}.delta", **at, delta=item["arguments"])
                yield event(f"{kind}.done", **at, arguments=item["arguments"])
            else:
                (part,) = item["content"]
                at["content_index"] = 0
                yield event("response.content_part.added", **at, part={**part, "text": ""})
                for piece in _pieces(part["text"]):
                    yield event("response.output_text.delta", **at, delta=piece)
                yield event("response.output_text.done", **at, text=part["text"])
                yield event("response.content_part.done", **at, part=part)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=self.whole(reply))

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _openai_error(status, message)

    def _items(self, reply: Reply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The output items, each finished and as it stands when it is announced."""
        if reply.answer.text:
            message = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant"}
            part = {"type": "output_text", "text": reply.answer.text, "annotations": []}
            yield (
                {**message, "status": "completed", "content": [part]},
                {**message, "status": "in_progress", "content": []},
            )
        for index, call in enumerate(reply.answer.calls):
            item = {
                "id": f"fc_{reply.number}_{index}",
                "type": "function_call",
                "call_id": f"call_{reply.number}_{index}",
                "name": call.name,
            }
            yield (
                {**item, "status": "completed", "arguments": json.dumps(call.arguments)},
                {**item, "status": "in_progress", "arguments": ""},
            )

    def _response(
        self, reply: Reply, status: str, output: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        usage = reply.usage
        return {
            "id": f"resp_{reply.number}",
            "object": "response",
            "created_at": 0,
            "model": reply.model,
            "status": status,
            "output": output,
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
        }


class AnthropicMessages:
    """Anthropic's ``POST /v1/messages``."""

    def messages(self, body: Mapping[str, Any]) -> list[Message]:
        found = [Message("system", _text(body.get("system")))]
        for message in body.get("messages", []):
            role, content = message.get("role", ""), message.get("content")
            if not isinstance(content, list):
                content = [{"type": "text", "text": content}]
            # tool results come in user messages, and must not be taken for the user's words
            results = [part for part in content if part.get("type") == "tool_result"]
            spoken = [part for part in content if part.get("type") != "tool_result"]
            if results:
                found.append(Message("tool", _text(results)))
            if spoken:
                found.append(Message(role, _text(spoken)))
        return found

    def whole(self, reply: Reply) -> dict[str, Any]:
        return {
            **self._frame(reply),
            "content": [block for block, _ in self._blocks(reply)],
            "stop_reason": self._stop(reply),
            "usage": {
                "input_tokens": reply.usage.input_tokens,
                "output_tokens": reply.usage.output_tokens,
            },
        }

    def events(self, reply: Reply) -> Iterator[str]:
        def event(kind: str, **data: Any) -> str:
            return _event({"type": kind, **data}, kind)

        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": 0}
        yield event("message_start", message={**self._frame(reply), "content": [], "usage": usage})
        for index, (block, empty) in enumerate(self._blocks(reply)):
            yield event("content_block_start", index=index, content_block=empty)
            if block["type"] == "text":
                deltas = [{"type": "text_delta", "text": text} for text in _pieces(block["text"])]
            else:
                arguments = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": arguments}]
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        yield event(
            "message_delta",
            delta={"stop_reason": self._stop(reply), "stop_sequence": None},
            usage={"output_tokens": reply.usage.output_tokens},
        )
        yield event("message_stop")

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _error_type(status), "message": message}}

    def _frame(self, reply: Reply) -> dict[str, Any]:
        return {
            "id": f"msg_{reply.number}",
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _blocks(self, reply: Reply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The content blocks, each finished and as it stands when it is announced."""
        if reply.answer.text:
            yield {"type": "text", "text": reply.answer.text}, {"type": "text", "text": ""}
        for index, call in enumerate(reply.answer.calls):
            block = {
                "type": "tool_use",
                "id": f"toolu_{reply.number}_{index}",
                "name": call.name,
            }
            yield {**block, "input": dict(call.arguments)}, {**block, "input": {}}

    def _stop(self, reply: Reply) -> str:
        return "tool_use" if reply.answer.calls else "end_turn"


PROTOCOLS: Mapping[str, WireProtocol] = {
    "/v1/chat/completions": ChatCompletions(),
    "/v1/responses": Responses(),
    "/v1/messages": AnthropicMessages(),
}
"""By the path that requests go to."""


def _text(content: Any) -> str:
    """All the text in a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            _text(part.get("text", part.get("content")))
            for part in content
            if isinstance(part, dict)
        )
    return ""


def _pieces(text: str) -> list[str]:
    """A text as a stream brings it: in pieces."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _event(data: Mapping[str, Any], name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


def _error_type(status: int) -> str:
    return {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
    }.get(status, "invalid_request_error" if status < 500 else "api_error")


def _openai_error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": _error_type(status), "code": None}}
