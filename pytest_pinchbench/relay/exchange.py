"""One request to a model and its answer: times, usage, error words, tool calls."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

LARGEST_EVENT = 1 << 25
"""Bytes of one event or JSON answer that are read; a larger one is passed on unread."""


@dataclass
class Exchange:
    """Times are Unix seconds; ``usage`` is None where the endpoint gave no count."""

    number: int
    path: str
    is_answer: bool
    """The request asks for an answer (not for embeddings or a list of models)."""
    received: float
    sent: float | None = None
    first_byte: float | None = None
    first_delta: float | None = None
    end: float | None = None
    waited: float = 0.0
    """Seconds that the relay held the request back: a rate limit, an outage, its queue."""
    tries: int = 0
    status: int | None = None
    error: str = ""
    """The endpoint's words where it failed, or how the connection failed."""
    abandoned: bool = False
    """The agent closed the connection before the answer was complete."""
    usage: dict[str, Any] | None = None
    request_bytes: int = 0
    answer_bytes: int = 0
    tool_calls: list[tuple[str, str]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return the exchange as a line of ``requests.jsonl``."""
        return asdict(self)


class Events:
    """Split a stream of server-sent events at its blank lines, whatever the chunks are."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._line = 0  # where the current line begins
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[tuple[bytes, Any]]:
        """Return the events that ``data`` completes: the bytes, and their JSON (or None)."""
        found: list[tuple[bytes, Any]] = []
        buffer = self._buffer
        start = len(buffer)
        buffer += data
        begin = 0
        while (end := buffer.find(b"\n", max(start, self._line))) >= 0:
            line = bytes(buffer[self._line : end]).rstrip(b"\r")
            self._line = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                found.append((bytes(buffer[begin : end + 1]), decoded(b"\n".join(self._data))))
                begin, self._data = end + 1, []
        del buffer[:begin]
        self._line -= begin
        return found

    def rest(self) -> bytes:
        """Return what follows the last complete event."""
        return bytes(self._buffer)

    @property
    def is_too_large(self) -> bool:
        return len(self._buffer) > LARGEST_EVENT


def decoded(data: bytes) -> Any:
    """Return the JSON value of ``data``, or None."""
    try:
        return json.loads(data) if data and data != b"[DONE]" else None
    except (ValueError, RecursionError):
        return None


def only_usage(payload: Any) -> bool:
    """Return whether an event of ``openai-chat`` holds the usage and nothing else."""
    return isinstance(payload, dict) and payload.get("choices") == [] and bool(payload.get("usage"))


class Answer:
    """What an answer says, event by event, or as one JSON document; any of three protocols."""

    def __init__(self) -> None:
        self.heard = False
        """A delta of content, reasoning or a tool call has come."""
        self.error = ""
        self._counts: dict[str, Any] = {}
        self._calls: dict[Any, list[str]] = {}

    @property
    def usage(self) -> dict[str, Any] | None:
        if not self._counts:
            return None
        return usage_of(self._counts)

    @property
    def tool_calls(self) -> list[tuple[str, str]]:
        """Name and arguments (JSON text) of each call, in order."""
        return [(name, arguments) for name, arguments in self._calls.values()]

    def read(self, payload: Any) -> None:
        """Take in one event or one document; anything of another form is ignored."""
        if not isinstance(payload, dict):
            return
        try:
            self._read(payload)
        except (AttributeError, TypeError, KeyError, ValueError):
            return

    def _read(self, payload: dict[str, Any]) -> None:
        kind = payload.get("type")
        self._note_error(payload.get("error"))
        self._count(payload.get("usage"))
        for choice in payload.get("choices") or ():
            self._note_error(choice.get("error"))
            self._chat(choice.get("index", 0), choice.get("delta") or choice.get("message") or {})
        if kind == "message_start":
            self._count(payload["message"].get("usage"))
        elif kind in ("content_block_start", "content_block_delta"):
            block = payload.get("content_block") or payload["delta"]
            self._block(payload["index"], block)
        elif kind == "message":
            for index, block in enumerate(payload["content"]):
                self._block(index, block)
        elif isinstance(kind, str) and kind.startswith("response."):
            self._response_event(kind, payload)
        elif payload.get("object") == "response":
            self._response(payload)

    def _note_error(self, error: Any) -> None:
        if error and not self.error:
            message = error.get("message") if isinstance(error, dict) else error
            self.error = message if isinstance(message, str) else json.dumps(error)

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts.update({name: value for name, value in usage.items() if value is not None})

    def _chat(self, index: int, message: dict[str, Any]) -> None:
        if any(message.get(key) for key in ("content", "reasoning_content", "reasoning")):
            self.heard = True
        for place, call in enumerate(message.get("tool_calls") or ()):
            self.heard = True
            function = call.get("function") or {}
            found = self._calls.setdefault((index, call.get("index", place)), ["", ""])
            found[0] += function.get("name") or ""
            found[1] += function.get("arguments") or ""

    def _block(self, index: int, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use":
            arguments = json.dumps(block["input"]) if block.get("input") else ""
            self._calls[index] = [block.get("name", ""), arguments]
        elif "partial_json" in block and index in self._calls:
            self._calls[index][1] += block["partial_json"]
        if any(block.get(key) for key in ("text", "thinking", "partial_json", "name")):
            self.heard = True

    def _response_event(self, kind: str, payload: dict[str, Any]) -> None:
        if kind.endswith(".delta") and payload.get("delta"):
            self.heard = True
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._response(payload["response"])
        elif kind == "response.output_item.done":
            self._item(payload["item"])

    def _response(self, response: dict[str, Any]) -> None:
        self._note_error(response.get("error"))
        self._count(response.get("usage"))
        for item in response.get("output") or ():
            self._item(item)

    def _item(self, item: dict[str, Any]) -> None:
        if item["type"] == "function_call":
            self._calls[item.get("call_id") or item.get("id")] = [item["name"], item["arguments"]]
        self.heard = self.heard or item["type"] in ("function_call", "message", "reasoning")


def usage_of(counts: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens of an answer, cached input included in the input (three protocols)."""

    def number(*names: str, inside: str = "") -> int:
        for name in names:
            found: Any = counts.get(name)
            if inside:
                found = found.get(inside) if isinstance(found, dict) else None
            if isinstance(found, (int, float)) and not isinstance(found, bool) and found > 0:
                return int(found)
        return 0

    # Anthropic counts cached tokens apart from the others
    apart = number("cache_read_input_tokens")
    written = number("cache_creation_input_tokens")
    within = number("prompt_tokens_details", "input_tokens_details", inside="cached_tokens")
    given = number("prompt_tokens", "input_tokens") + apart + written
    answered = number("completion_tokens", "output_tokens")
    details = ("completion_tokens_details", "output_tokens_details")
    cost = counts.get("cost")  # OpenRouter's, in dollars
    priced = isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost >= 0
    return {
        "input_tokens": given,
        "output_tokens": answered,
        "cache_read_tokens": apart or within,
        "cache_write_tokens": written,
        "total_tokens": number("total_tokens") or given + answered,
        "reasoning_tokens": number(*details, inside="reasoning_tokens"),
        "cost_usd": cost if priced else None,
    }


def error_words(status: int, body: bytes) -> str:
    """Return what a failed answer says: its error's message, or the start of its text."""
    answer = Answer()
    answer.read(decoded(body))
    text = answer.error or " ".join(body.decode("utf-8", "replace").split())[:500]
    return f"{status} {text}".strip()
