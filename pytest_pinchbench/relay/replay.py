"""Recorded exchanges: served again, and compared with what is asked now."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_pinchbench.relay.exchange import Exchange

# What differs between any two runs of one agent: times, ids, and lengths of time.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (
        re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \w+ \d+(st|nd|rd|th)?, \d{4}"),
        "DATE",
    ),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d( \w+)?"), "TIME"),
    (re.compile(r"\b\d{1,2}:\d\d(:\d\d)?( ?[AP]M)?\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"(?<=-)[0-9a-z_]{8}(?=/)|\b[0-9a-f]{12,}\b|\b\d{10,}\b"), "ID"),
    (re.compile(r"\b\d+(\.\d+)? ?m?s\b"), "SECONDS"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
)


def record_line(exchange: Exchange, request: bytes, kind: str, answer: bytes) -> dict[str, Any]:
    """Return one exchange as a recording keeps it."""
    return {
        "number": exchange.number,
        "path": exchange.path,
        "request": request.decode("utf-8", "surrogateescape"),
        "status": exchange.status,
        "usage": exchange.usage,
        "content_type": kind,
        "answer": answer.decode("utf-8", "surrogateescape"),
    }


class Replay:
    """The recording of one attempt. ``paths`` maps recorded paths to those of now."""

    def __init__(self, recording: Sequence[Mapping[str, Any]], paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self._left: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._taken: dict[str, str] = {}
        for one in recording:
            self._left[self._conversation(one["path"], one["request"])].append(one)
        self.divergences = 0
        self.first = ""
        """Where the first request that differs does so."""

    def answer(self, path: str, request: bytes) -> Mapping[str, Any] | None:
        """Return the recorded exchange, with today's paths in its answer; None without one.

        An answer is found by its conversation (the first user message) and its place in it. A
        conversation that is not in the recording is its first one that no other has taken.
        """
        asked = request.decode("utf-8", "surrogateescape")
        left = self._left.get(self._recorded(self._conversation(path, asked)))
        if not left:
            self._diverge("the recording has no such request")
            return None
        recorded = left.pop(0)
        if where := first_difference(self._plain(recorded["request"]), self._plain(asked)):
            self._diverge(f"request {recorded['number']}: {where}")
        answer = str(recorded["answer"])
        for old, new in self._paths.items():
            answer = answer.replace(old, new)
        return {**recorded, "answer": answer}

    def _recorded(self, conversation: str) -> str:
        if conversation not in self._taken:
            free = [one for one in self._left if one not in self._taken.values()]
            same = conversation if conversation in free else next(iter(free), conversation)
            self._taken[conversation] = same
        return self._taken[conversation]

    def _diverge(self, where: str) -> None:
        self.divergences += 1
        self.first = self.first or where

    def _conversation(self, path: str, request: str) -> str:
        body = _decoded(request)
        messages = body.get("messages") or body.get("input") or [] if isinstance(body, dict) else []
        if isinstance(messages, str):
            return path + self._plain(messages)
        users = [one for one in messages if isinstance(one, dict) and one.get("role") == "user"]
        return path + self._plain(json.dumps(users[:1], ensure_ascii=False))

    def _plain(self, text: str) -> str:
        """Return the text without what differs between any two runs."""
        for number, pair in enumerate(self._paths.items()):
            for path in pair:
                text = text.replace(path, f"PATH{number}")
        for pattern, word in _VARYING:
            text = pattern.sub(word, text)
        return text


def first_difference(old: str, new: str) -> str:
    """Return where two JSON documents differ first, with both values; empty if nowhere."""
    if old == new:
        return ""
    found = _differ(_decoded(old), _decoded(new), "")
    return found or "spelled differently"


def _differ(old: Any, new: Any, where: str) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            if found := _differ(old.get(name), new.get(name), f"{where}.{name}"):
                return found
        return ""
    if isinstance(old, list) and isinstance(new, list):
        for index, pair in enumerate(zip(old, new, strict=False)):
            if found := _differ(*pair, f"{where}[{index}]"):
                return found
        return (
            ""
            if len(old) == len(new)
            else f"{where.lstrip('.')}: {len(old)} entries, now {len(new)}"
        )
    if old == new:
        return ""
    if isinstance(old, str) and isinstance(new, str):
        pairs = zip(old, new, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
        old, new = old[max(at - 20, 0) : at + 60], new[max(at - 20, 0) : at + 60]
    return f"{where.lstrip('.')}: {json.dumps(old)[:200]}, now {json.dumps(new)[:200]}"


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
