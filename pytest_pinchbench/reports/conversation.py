"""A trajectory (ACTF_v1.0) as a person reads it: who said or did what, within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_pinchbench.results.files import read_json
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory

Kind = Literal["user", "thinking", "assistant", "call", "result", "error", "note"]

LONGEST = 4000  # characters of one entry
_BEGINNING = 0.3  # of what is shown of a long conversation; the rest is its end


@dataclass(frozen=True)
class Entry:
    """One thing that happened. ``title`` says who did it, ``text`` is as it was, perhaps cut."""

    kind: Kind
    title: str
    text: str


@dataclass(frozen=True)
class Step:
    """A message of the model with what led to it and what came of it; seconds, tokens."""

    number: int
    seconds: float | None
    tokens: int | None
    entries: list[Entry]


def trajectory(directory: RunDirectory, record: Record) -> Mapping[str, Any]:
    """Return an attempt's trajectory; empty where the agent never ran, or if unreadable."""
    if record["trajectory"] is None:
        return {}
    folder = directory.attempt_dir(record["task_id"], record["attempt"])
    return _mapping(read_json(folder / record["trajectory"]))


def conversation(directory: RunDirectory, record: Record, limit: int) -> list[Entry]:
    """The conversation of one attempt, in at most about ``limit`` characters."""
    return bounded(list(entries(trajectory(directory, record))), limit)


def as_text(conversation: Sequence[Entry]) -> str:
    return "\n".join(f"--- {entry.title}\n{entry.text}" for entry in conversation)


def tail(conversation: Sequence[Entry], limit: int) -> str:
    """The end of the conversation as text, at most ``limit`` characters."""
    text = as_text(conversation)
    if len(text) <= limit:
        return text
    mark = "[... the beginning is left out ...]\n"
    return mark + text[len(text) - limit + len(mark) :]


def entries(trajectory: Mapping[str, Any]) -> Iterator[Entry]:
    """Everything in it, in order; long texts are cut in the middle."""
    for step in steps(trajectory):
        yield from step.entries


def steps(trajectory: Mapping[str, Any]) -> Iterator[Step]:
    """Each step with its entries."""
    for number, step in enumerate(_mappings(trajectory.get("steps")), 1):
        metric = _mapping(step.get("metric"))
        times = [metric.get(name) for name in ("llm_infer_ms", "env_action_ms")]
        used = [metric.get(name) for name in ("prompt_tokens_len", "completion_tokens_len")]
        spent = [one for one in times if isinstance(one, int)]
        counts = [one for one in used if isinstance(one, int)]
        yield Step(
            number,
            sum(spent) / 1000 if spent else None,
            sum(counts) if counts else None,
            list(_step_entries(step)),
        )


def _step_entries(step: Mapping[str, Any]) -> Iterator[Entry]:
    asked = step.get("user_content")
    for message in asked if isinstance(asked, list) else [asked]:
        yield from _entry("user", "user", message)
    answer = _mapping(step.get("assistant_content"))
    yield from _entry("thinking", "model, thinking", answer.get("reasoning_content"))
    yield from _entry("assistant", "model", answer.get("content"))
    for call in _mappings(answer.get("tool_calls")):
        function = _mapping(call.get("function"))
        yield Entry("call", f"tool call: {function.get('name')}", _arguments(function))
    for result in _mappings(step.get("observation")):
        failed = result.get("is_error") is True
        title = f"tool {'error' if failed else 'result'}: {result.get('name')}"
        yield Entry("error" if failed else "result", title, _text(result.get("content")))
    if _mapping(step.get("metric")).get("stop_reason") == "error":
        yield Entry("error", "model", "The endpoint failed; the model gave no answer here.")


def bounded(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """The beginning and, mostly, the end of a conversation that is longer than ``limit``."""
    if sum(_size(entry) for entry in entries) <= limit:
        return list(entries)
    beginning = _fitting(entries, limit * _BEGINNING)
    rest = entries[len(beginning) :]
    end = _fitting(rest[::-1], limit * (1 - _BEGINNING))[::-1]
    left_out = len(rest) - len(end)
    if not left_out:
        return [*beginning, *end]
    note = Entry("note", f"{left_out} entries left out", "trajectory.json has them all")
    return [*beginning, note, *end]


def _fitting(entries: Sequence[Entry], limit: float) -> list[Entry]:
    """The first of them that fit; the very first one always, cut if need be."""
    fitting = [replace(entry, text=_cut(entry.text, int(limit))) for entry in entries[:1]]
    room = limit - sum(map(_size, fitting))
    for entry in entries[1:]:
        room -= _size(entry)
        if room < 0:
            break
        fitting.append(entry)
    return fitting


def _size(entry: Entry) -> int:
    return len(entry.title) + len(entry.text)


def _entry(kind: Kind, title: str, value: Any) -> Iterator[Entry]:
    if value:
        yield Entry(kind, title, _text(value))


def _arguments(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments")
    if isinstance(arguments, dict) and all(isinstance(value, str) for value in arguments.values()):
        # a file's content or a command is read more easily without JSON's escapes
        return _cut("\n".join(f"{key}: {value}" for key, value in arguments.items()), LONGEST)
    return _text(arguments)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return _cut(text, LONGEST)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
