from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from transcript_files import (
    OLDER_TABLE,
    SESSION,
    Event,
    Writer,
    assistant,
    call,
    said,
    tool_result,
    user,
    write_lines,
    write_table,
)

from pytest_pinchbench.harnesses.openclaw import transcripts
from pytest_pinchbench.harnesses.openclaw.transcripts import (
    TranscriptUnreadable,
    known_sessions,
    read_transcript,
    zstd,
)

CONVERSATION: list[Event] = [
    {"type": "session", "version": 4, "id": SESSION},
    {"type": "model_change", "provider": "pinchbench", "modelId": "m"},
    user("make a file"),
    assistant(said("I will."), call("write", path="a.txt", content="x" * 500)),
    tool_result("Successfully wrote 500 bytes"),
    {"type": "custom", "customType": "openclaw.cache-ttl", "data": {}},
    assistant(said("Done — naïvely.")),
]
BOTH_ERAS = pytest.mark.parametrize("write", [write_lines, write_table])


@BOTH_ERAS
def test_events_come_in_order_and_whole(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, CONVERSATION)
    events = read_transcript(tmp_path, [SESSION])
    assert [event["type"] for event in events] == [event["type"] for event in CONVERSATION]
    assert events[3:] == tuple(CONVERSATION[3:])


@BOTH_ERAS
def test_content_given_as_text_becomes_a_list(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, CONVERSATION)
    message = read_transcript(tmp_path, [SESSION])[2]["message"]
    assert message["content"] == [{"type": "text", "text": "make a file"}]
    assert message["role"] == "user"


@BOTH_ERAS
def test_only_the_sessions_asked_for_are_read(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, [user("a subagent's")], "another-session")  # type: ignore[call-arg]
    write(tmp_path, [user("first")], "one")  # type: ignore[call-arg]
    write(tmp_path, [user("second")], "two")  # type: ignore[call-arg]
    events = read_transcript(tmp_path, ["one", "two"])
    assert [event["message"]["content"][0]["text"] for event in events] == ["first", "second"]


@BOTH_ERAS
def test_a_session_that_is_not_there_has_no_events(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, CONVERSATION)
    assert read_transcript(tmp_path, ["not-this-one"]) == ()


def test_nothing_there_is_no_events(tmp_path: Path) -> None:
    assert read_transcript(tmp_path, [SESSION]) == ()


def test_a_runtime_trace_is_not_the_conversation(tmp_path: Path) -> None:
    lines = write_lines(tmp_path, CONVERSATION)
    trace = lines.with_suffix(".trajectory.jsonl")
    trace.write_text(json.dumps({"type": "message", "message": {"role": "user"}}) + "\n")
    lines.unlink()
    assert read_transcript(tmp_path, [SESSION]) == ()


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    lines = write_lines(tmp_path, CONVERSATION)
    whole = lines.read_bytes()
    lines.write_bytes(whole[:-7])
    assert len(read_transcript(tmp_path, [SESSION])) == len(CONVERSATION) - 1


def test_a_torn_line_hides_nothing_after_it(tmp_path: Path) -> None:
    lines = write_lines(tmp_path, CONVERSATION[:3])
    with lines.open("a") as file:
        file.write('{"type": "message", "message": {"role": "assi\n')
        file.write(json.dumps(CONVERSATION[6]) + "\n")
    types = [event["type"] for event in read_transcript(tmp_path, [SESSION])]
    assert types == ["session", "model_change", "message", "message"]


def test_an_event_may_go_over_several_lines(tmp_path: Path) -> None:
    lines = write_lines(tmp_path, [])
    lines.write_text("\n".join(json.dumps(event, indent=2) for event in CONVERSATION))
    assert len(read_transcript(tmp_path, [SESSION])) == len(CONVERSATION)


def test_a_table_without_compressed_rows_is_read(tmp_path: Path) -> None:
    write_table(tmp_path, CONVERSATION, table=OLDER_TABLE)
    assert len(read_transcript(tmp_path, [SESSION])) == len(CONVERSATION)


def test_rows_that_are_only_in_the_log_of_the_database_are_read(tmp_path: Path) -> None:
    """A killed OpenClaw has moved nothing from the -wal file into the database."""
    running, copy = tmp_path / "running", tmp_path / "copy"
    database = write_table(running, [])
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES (?, 0, ?, 0)",
            (SESSION, json.dumps(user("hello"))),
        )
        connection.commit()
        (copy / "agent").mkdir(parents=True)
        for file in database.parent.iterdir():  # -wal and -shm too, while it is open
            (copy / "agent" / file.name).write_bytes(file.read_bytes())
    assert (copy / "agent" / f"{database.name}-wal").stat().st_size > 0
    assert len(read_transcript(copy, [SESSION])) == 1


def test_a_file_that_is_no_database_is_unreadable(tmp_path: Path) -> None:
    database = write_table(tmp_path, CONVERSATION)
    database.write_bytes(b"not a database, but long enough to look like one " * 200)
    with pytest.raises(TranscriptUnreadable, match="not a database"):
        read_transcript(tmp_path, [SESSION])


def test_a_view_in_place_of_the_table_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "agent" / "openclaw-agent.sqlite"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE VIEW transcript_events(session_id, seq, event_json) AS WITH RECURSIVE "
            f"n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT '{SESSION}', i, '{{}}' FROM n"
        )
    assert read_transcript(tmp_path, [SESSION]) == ()


def test_a_compressed_row_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "MAX_BYTES", 1_000_000)
    database = write_table(tmp_path, [])
    bomb = zstd.compress(b" " * 50_000_000)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO transcript_events VALUES (?, 0, NULL, 0, ?, 10, '{}')", (SESSION, bomb)
        )
    with pytest.raises(TranscriptUnreadable, match="larger than"):
        read_transcript(tmp_path, [SESSION])


@pytest.mark.parametrize("frame", [b"junk", zstd.compress(b'{"type": "message"}' * 100)[:-5]])
def test_a_row_that_is_not_a_whole_zstd_frame_is_unreadable(tmp_path: Path, frame: bytes) -> None:
    database = write_table(tmp_path, [])
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO transcript_events VALUES (?, 0, NULL, 0, ?, 10, '{}')", (SESSION, frame)
        )
    with pytest.raises(TranscriptUnreadable, match="compressed event"):
        read_transcript(tmp_path, [SESSION])


@pytest.mark.parametrize("linked", ["file", "folder"])
@BOTH_ERAS
def test_links_are_not_followed(tmp_path: Path, write: Writer, linked: str) -> None:
    elsewhere, agent = tmp_path / "elsewhere", tmp_path / "agent-of-task"
    write(elsewhere, CONVERSATION)
    for folder in elsewhere.iterdir():
        if linked == "folder":
            agent.mkdir()
            (agent / folder.name).symlink_to(folder)
        else:
            (agent / folder.name).mkdir(parents=True)
            for file in folder.iterdir():
                (agent / folder.name / file.name).symlink_to(file)
    assert read_transcript(agent, [SESSION]) == ()


def test_deeply_nested_json_is_left_out(tmp_path: Path) -> None:
    lines = write_lines(tmp_path, CONVERSATION[:1])
    with lines.open("a") as file:
        file.write('{"a":' * 100_000 + "\n" + json.dumps(CONVERSATION[6]) + "\n")
    assert len(read_transcript(tmp_path, [SESSION])) == 2


# -- sessions of subagents --------------------------------------------------------------------

KEYS = {"s-1": "agent:pinchbench:main", "s-2": "agent:pinchbench:subagent:x"}


def write_index(agent: Path, keys: dict[str, str]) -> None:
    (agent / "sessions").mkdir(parents=True)
    entries = {key: {"sessionId": session} for session, key in keys.items()}
    (agent / "sessions" / "sessions.json").write_text(json.dumps(entries))


def write_nodes(agent: Path, keys: dict[str, str]) -> None:
    path = write_table(agent, [])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE session_nodes (session_key, current_session_id)")
        connection.executemany("INSERT INTO session_nodes VALUES (?2, ?1)", keys.items())


@pytest.mark.parametrize("write", [write_index, write_nodes])
def test_sessions_are_known_by_their_keys(
    tmp_path: Path, write: Callable[[Path, dict[str, str]], None]
) -> None:
    # an agent can write there, too: an id that could lead elsewhere is left out
    write(tmp_path, {**KEYS, "../../etc/passwd": "agent:pinchbench:subagent:y"})
    assert known_sessions(tmp_path) == KEYS


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1}', '{"a": {"sessionId": [1]}}'])
def test_an_index_that_is_not_one_names_no_sessions(tmp_path: Path, text: str) -> None:
    write_index(tmp_path, {})
    (tmp_path / "sessions" / "sessions.json").write_text(text)
    assert known_sessions(tmp_path) == {}
