"""Finding and reading the conversation that OpenClaw wrote down, in both of its eras.

Up to 2026.7 a session is a file ``sessions/SESSION.jsonl``; since 2026.8 it is rows of a table
in ``agent/openclaw-agent.sqlite``. Which one it is, is told by what is there, never by the
version. Everything here was writable for the agent, so nothing in it is trusted: links are not
followed, sizes are bounded, and what cannot be read is left out.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_pinchbench import zstd
from pytest_pinchbench.harnesses.openclaw import messages as read

Event = dict[str, Any]

MAX_BYTES = 256 * 1024 * 1024
"""Of one transcript as text. OpenClaw itself refuses events of more than 4 MiB."""
_QUERY_SECONDS = 60.0


class TranscriptUnreadable(Exception):
    """There is something, and it cannot be read; ``str()`` says what and why."""


_DATABASE = "agent/openclaw-agent.sqlite"
_INDEX = "sessions/sessions.json"
_MOST_SESSIONS = 1000


def transcript_files(sessions: Sequence[str]) -> list[str]:
    """Return the files below ``agents/AGENT`` that can hold the sessions' conversations."""
    lines = [f"sessions/{session}.jsonl" for session in sessions]
    return [*lines, _INDEX, _DATABASE, f"{_DATABASE}-wal"]


def known_sessions(agent_dir: Path) -> dict[str, str]:
    """Return the key of each session that OpenClaw knows, by the session's id: a subagent's is
    ``agent:AGENT:subagent:...``. Raises :class:`TranscriptUnreadable`.
    """
    index, database = agent_dir / _INDEX, agent_dir / _DATABASE
    found: dict[str, str] = {}
    if _is_plain_file(index, agent_dir):
        try:
            entries = json.loads(_Budget(MAX_BYTES).text(index.read_bytes()))
            found = {entry["sessionId"]: key for key, entry in entries.items()}
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return {}  # torn, or not OpenClaw's
    elif _is_plain_file(database, agent_dir):
        query = "SELECT current_session_id, session_key FROM session_nodes"
        try:
            with closing(sqlite3.connect(database, isolation_level=None)) as connection:
                _guard(connection)
                if _has_table(connection, "session_nodes"):
                    found = dict(connection.execute(query).fetchmany(_MOST_SESSIONS))
        except sqlite3.Error as error:
            raise TranscriptUnreadable(f"{database.name}: {error}") from error
    return {
        session: key
        for session, key in list(found.items())[:_MOST_SESSIONS]
        if isinstance(key, str) and re.fullmatch(r"[\w-]{1,100}", str(session))
    }


def read_transcript(agent_dir: Path, sessions: Sequence[str]) -> tuple[Event, ...]:
    """The events of the sessions, one session after the other; empty when there are none.

    ``agent_dir`` is a copy of the state directory's ``agents/AGENT``. A message's ``content``
    is made a list; all else is as OpenClaw wrote it. Raises :class:`TranscriptUnreadable`.
    """
    database = agent_dir / _DATABASE
    budget = _Budget(MAX_BYTES)
    events: list[Event] = []
    for session in sessions:
        lines = agent_dir / "sessions" / f"{session}.jsonl"
        if _is_plain_file(lines, agent_dir):
            events += _parse_stream(budget.text(lines.read_bytes()))
        elif _is_plain_file(database, agent_dir):
            events += _read_table(database, session, budget)
    return tuple(_with_list_content(event) for event in events)


def _is_plain_file(path: Path, root: Path) -> bool:
    """Whether the path is a file, with no link on the way to it from ``root``."""
    steps = [path, *path.parents][: len(path.relative_to(root).parts)]
    return path.is_file() and not any(step.is_symlink() for step in steps)


class _Budget:
    def __init__(self, size: int) -> None:
        self.left = size

    def text(self, data: bytes) -> str:
        """The text of ``data``, counted. A torn character at the end is not an error."""
        self.left -= len(data)
        if self.left < 0:
            raise TranscriptUnreadable(
                f"the transcript is larger than {MAX_BYTES // 1024 // 1024} MiB"
            )
        return data.decode("utf-8", "replace")


def _parse_stream(text: str) -> Iterator[Event]:
    """The objects in a text of JSON values one after the other, over any number of lines.

    Some releases spread an event over several lines, and a killed run leaves its last one
    torn: what does not parse is skipped to the next line that starts an object.
    """
    decoder = json.JSONDecoder()
    starts = re.compile(r"^\{", re.MULTILINE)
    position = 0
    while found := starts.search(text, position):
        try:
            value, position = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            position = found.end()
            continue
        yield value


def _read_table(database: Path, session: str, budget: _Budget) -> Iterator[Event]:
    try:
        # the shared-memory index is not copied: SQLite makes it anew
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            yield from _select(connection, session, budget)
    except sqlite3.Error as error:
        raise TranscriptUnreadable(f"{database.name}: {error}") from error


def _select(connection: sqlite3.Connection, session: str, budget: _Budget) -> Iterator[Event]:
    _guard(connection)
    if not _has_table(connection, "transcript_events"):
        return
    columns = {row[1] for row in connection.execute("PRAGMA table_info(transcript_events)")}
    compressed = "event_zstd" if "event_zstd" in columns else "NULL"
    rows = connection.execute(
        f"SELECT event_json, {compressed} FROM transcript_events WHERE session_id = ? ORDER BY seq",
        (session,),
    )
    for text, frame in rows:
        data = _decompress(frame, budget.left) if text is None else str(text).encode()
        try:
            value = json.loads(budget.text(data))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _guard(connection: sqlite3.Connection) -> None:
    """Bound the time of queries, and read what older SQLite would refuse."""
    if sqlite3.sqlite_version_info < (3, 37):
        # Older SQLite does not know the STRICT of the table's definition; with this it
        # overlooks it (sqlite.org/stricttables.html, "Backwards Compatibility").
        connection.execute("PRAGMA writable_schema = ON")
    deadline = time.monotonic() + _QUERY_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    # A view could run anything. (PRAGMA trusted_schema = OFF is not to be had: SQLite then
    # refuses the json_valid() in OpenClaw's own definition of the table.)
    query = "SELECT 1 FROM sqlite_master WHERE name = ? AND type = 'table'"
    return connection.execute(query, (name,)).fetchone() is not None


def _decompress(data: bytes, limit: int) -> bytes:
    """At most ``limit`` bytes and one more, however much the frame claims or holds."""
    decompressor = zstd.ZstdDecompressor()
    try:
        text = decompressor.decompress(data, limit + 1)
    except (zstd.ZstdError, TypeError) as error:
        raise TranscriptUnreadable(f"a compressed event: {error}") from error
    if not decompressor.eof and len(text) <= limit:
        raise TranscriptUnreadable("a compressed event: its end is missing")
    return text


def _with_list_content(event: Event) -> Event:
    message = read.message_of(event)
    if message is None or isinstance(message.get("content"), list):
        return event
    return {**event, "message": {**message, "content": read.blocks(message)}}
