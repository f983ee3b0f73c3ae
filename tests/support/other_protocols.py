"""The protocols beside the demo's, for the scripted model: imported, it speaks them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_pinchbench.demo.script import Message
from pytest_pinchbench.demo.wire import (
    PROTOCOLS,
    Reply,
    error_type,
    openai_error,
    pieces,
    server_sent,
    text_of,
)


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
                found.append(Message("assistant", text_of(item.get("content"))))
            elif not mine:
                text = text_of(item.get("content", item.get("output")))
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
            return server_sent({"type": kind, "sequence_number": number, **data}, kind)

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
                for piece in pieces(part["text"]):
                    yield event("response.output_text.delta", **at, delta=piece)
                yield event("response.output_text.done", **at, text=part["text"])
                yield event("response.content_part.done", **at, part=part)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=self.whole(reply))

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

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
        found = [Message("system", text_of(body.get("system")))]
        for message in body.get("messages", []):
            role, content = message.get("role", ""), message.get("content")
            if not isinstance(content, list):
                content = [{"type": "text", "text": content}]
            # tool results come in user messages, and must not be taken for the user's words
            results = [part for part in content if part.get("type") == "tool_result"]
            spoken = [part for part in content if part.get("type") != "tool_result"]
            if results:
                found.append(Message("tool", text_of(results)))
            if spoken:
                found.append(Message(role, text_of(spoken)))
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
            return server_sent({"type": kind, **data}, kind)

        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": 0}
        yield event("message_start", message={**self._frame(reply), "content": [], "usage": usage})
        for index, (block, empty) in enumerate(self._blocks(reply)):
            yield event("content_block_start", index=index, content_block=empty)
            if block["type"] == "text":
                deltas = [{"type": "text_delta", "text": text} for text in pieces(block["text"])]
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
        return {"type": "error", "error": {"type": error_type(status), "message": message}}

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


PROTOCOLS["/v1/responses"] = Responses()
PROTOCOLS["/v1/messages"] = AnthropicMessages()
