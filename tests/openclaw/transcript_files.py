"""Transcripts as OpenClaw leaves them, in both eras, from one list of events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_pinchbench.harnesses.openclaw.transcripts import zstd

Event = dict[str, Any]
Writer = Callable[[Path, Sequence[Event]], None]

SESSION = "5d1f3a3e-0000-4000-8000-000000000001"

# The table as 2026.9.6 makes it, shortened; 2026.8.2 has no event_zstd.
TABLE = """
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  event_json TEXT,
  created_at INTEGER NOT NULL,
  event_zstd BLOB,
  event_utf8_bytes INTEGER,
  navigation_json TEXT,
  PRIMARY KEY (session_id, seq),
  CHECK (navigation_json IS NULL OR json_valid(navigation_json))
) STRICT
"""
OLDER_TABLE = """
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  event_json TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, seq)
) STRICT
"""


def write_lines(agent: Path, events: Iterable[Event], session: str = SESSION) -> Path:
    file = agent / "sessions" / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


def write_table(
    agent: Path,
    events: Iterable[Event],
    session: str = SESSION,
    *,
    compressed: Callable[[int], bool] = lambda seq: seq % 3 == 0,
    table: str = TABLE,
) -> Path:
    """Rows in an order of their own, each third one compressed."""
    file = agent / "agent" / "openclaw-agent.sqlite"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = list(enumerate(events))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(table.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
        for seq, event in reversed(rows):
            text = json.dumps(event)
            if table is TABLE and compressed(seq):
                connection.execute(
                    "INSERT INTO transcript_events VALUES (?, ?, NULL, 0, ?, ?, '{}')",
                    (session, seq, zstd.compress(text.encode()), len(text)),
                )
            else:
                connection.execute(
                    "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
                    " VALUES (?, ?, ?, 0)",
                    (session, seq, text),
                )
    return file


def stamp(second: float) -> dict[str, Any]:
    """The time of an event, in seconds after an arbitrary noon."""
    whole, part = divmod(round(second * 1000), 1000)
    return {"timestamp": f"2026-09-12T12:00:{whole:02d}.{part:03d}Z"}


def milliseconds(second: float) -> int:
    return 1_789_214_400_000 + round(second * 1000)


def user(text: str, second: float = 0.0, *, as_list: bool = False) -> Event:
    content = [{"type": "text", "text": text}] if as_list else text
    message = {"role": "user", "content": content, "timestamp": milliseconds(second)}
    return {"type": "message", "id": "u", **stamp(second), "message": message}


def assistant(
    *content: dict[str, Any],
    asked: float = 0.0,
    answered: float = 0.0,
    usage: dict[str, Any] | None = None,
    **more: Any,
) -> Event:
    message = {
        "role": "assistant",
        "content": list(content),
        "model": "m",
        "provider": "pinchbench",
        "stopReason": "toolUse" if any(b["type"] == "toolCall" for b in content) else "stop",
        "usage": usage or {"input": 60, "output": 7, "cacheRead": 40, "totalTokens": 107},
        "timestamp": milliseconds(asked),
        **more,
    }
    return {"type": "message", "id": "a", **stamp(answered), "message": message}


def failed(words: str, *, second: float = 0.0, content: Sequence[Any] = ()) -> Event:
    """What OpenClaw writes down of a request that failed."""
    return assistant(
        *content, asked=second, answered=second, stopReason="error", errorMessage=words
    )


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def tool_result(text: str, call_id: str = "c1", second: float = 0.0, **more: Any) -> Event:
    message = {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": "write",
        "content": [said(text)],
        "isError": False,
        "timestamp": milliseconds(second),
        **more,
    }
    return {"type": "message", "id": "t", **stamp(second), "message": message}
