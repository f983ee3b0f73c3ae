"""The task file format: YAML front matter, then Markdown with level-2 sections.

The Markdown is read as CommonMark reads it, so that a ``##`` line or a fence inside a fenced
block is text. Text is taken from the source lines as it stands.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, get_args

from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.spelling import nearest

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from pytest_pinchbench.settings.yaml_document import Document

GradingType = Literal["automated", "llm_judge", "hybrid"]


@dataclass(frozen=True)
class WorkspaceFile:
    """A file that is in the workspace before the agent starts.

    ``dest`` is a relative POSIX path inside the workspace. Exactly one of ``content`` (text,
    written as UTF-8) and ``source`` (a file inside the suite's assets folder) is given.
    ``source`` need not exist: a checkout may lack a large file, which then ends the attempts
    of this task alone.
    """

    dest: str
    content: str | None = None
    source: Path | None = None


@dataclass(frozen=True)
class Prompt:
    """One message to the agent. ``new_session`` is acted on only when asked for."""

    text: str
    new_session: bool = False


@dataclass(frozen=True)
class Task:
    """One task file, checked."""

    id: str
    name: str
    category: str
    grading_type: GradingType
    timeout_seconds: float
    prompts: tuple[Prompt, ...]
    """What is sent, in order: the ``sessions``, or else the Prompt section alone."""
    prompt: str
    """The text of the Prompt section (what a judge is shown), or the prompts, joined."""
    expected_behavior: str
    grading_criteria: str
    """The section's Markdown; a checklist as a rule."""
    automated_checks: str | None
    """Python source of the first python block of that section; None when there is none."""
    judge_rubric: str | None
    grading_weights: Mapping[str, float] | None
    """``{"automated": w, "llm_judge": w}`` as given; what they mean is the grader's."""
    workspace_files: tuple[WorkspaceFile, ...]
    path: Path
    front_matter: Mapping[str, Any]
    sections: Mapping[str, str]


def load_task(path: Path, assets: Path | None = None) -> Task:
    """Read and check one task file. Raises :class:`TaskFileError`.

    ``assets`` is the folder that ``source`` entries of ``workspace_files`` name files in;
    without it, the folder ``assets`` beside the one that holds the task file.
    """
    return _TaskFile(path, assets or path.parent.parent / "assets").task()


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
class _TaskFile:
    """One task file on its way to a :class:`Task`; knows which line to blame."""

    def __init__(self, path: Path, assets: Path) -> None:
        self.path = path
        self.assets = assets
        self.front: Document

    def task(self) -> Task:
        front, front_line, body, body_line = self._split(self._read())
        self.front = self._front_matter(front, front_line)
        matter = self.front.value
        sections = self._sections(body, body_line)
        texts = {title: section.text for title, section in sections.items()}
        sessions = self._sessions()
        prompt = texts.get("Prompt", "")
        if not sessions and not prompt:
            section = sections.get("Prompt")
            raise self._error(
                section.line if section else body_line,
                "the section Prompt is empty"
                if section
                else "there is no section '## Prompt', and no sessions in its place",
            )
        checks = sections.get("Automated Checks")
        task_id = self._id()
        return Task(
            id=task_id,
            name=self._text("name", default=task_id),
            category=self._text("category", default="uncategorized"),
            grading_type=self._grading_type(),
            timeout_seconds=self._timeout(),
            prompts=sessions or (Prompt(prompt),),
            prompt=prompt or "\n\n".join(session.text for session in sessions),
            expected_behavior=texts.get("Expected Behavior", ""),
            grading_criteria=texts.get("Grading Criteria", ""),
            automated_checks=checks.python if checks else None,
            judge_rubric=texts.get("LLM Judge Rubric") or None,
            grading_weights=self._weights(),
            workspace_files=self._workspace_files(),
            path=self.path,
            front_matter=matter,
            sections=texts,
        )

    def _error(self, line: int, reason: str) -> TaskFileError:
        return TaskFileError(self.path, line, reason)

    def _wrong(self, reason: str, *place: Any) -> TaskFileError:
        """The error for the front matter value at ``place``, with its line."""
        return self._error(self.front.line(*place), reason)

    # the file's two halves

    def _read(self) -> str:
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise self._error(1, f"cannot be read: {error.strerror or error}") from None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self._error(data.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _split(self, text: str) -> tuple[str, int, str, int]:
        """Front matter and body, each with the line of the file that it starts on."""
        from frontmatter.default_handlers import YAMLHandler

        handler = YAMLHandler()
        if not handler.detect(text):
            raise self._error(1, "the file has to begin with front matter, after a line '---'")
        try:
            front, body = handler.split(text)
        except ValueError:
            raise self._error(1, "the front matter has no end: a second line '---'") from None
        body_line = text.count("\n", 0, len(text) - len(body)) + 1
        fence_line = text[: len(text) - len(body)].rstrip().count("\n") + 1
        return front, fence_line - front.count("\n"), body, body_line

    def _front_matter(self, front: str, line: int) -> Document:
        from pytest_pinchbench.settings.yaml_document import YamlError, parse

        try:
            document = parse(front, line)
        except YamlError as error:
            raise self._error(error.line, error.reason) from None
        if not isinstance(document.value, dict):
            raise self._error(line, "the front matter has to be a mapping (key: value)")
        return document

    # front matter, key by key

    def _id(self) -> str:
        matter = self.front.value
        if matter.get("id") is None:
            raise self._wrong("id is missing", "id")
        task_id = matter["id"]
        if not isinstance(task_id, str):
            raise self._wrong(f"id has to be text, in quotes if need be, not {task_id!r}", "id")
        if not _ID.fullmatch(task_id):
            raise self._wrong(
                f"id {task_id!r} may hold only letters, digits, '_', '-' and '.', 100 at most,"
                " and begins with a letter or digit: it names folders and test cases",
                "id",
            )
        return task_id

    def _text(self, key: str, default: str) -> str:
        value = self.front.value.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(f"{key} has to be text, in quotes if need be, not {value!r}", key)
        return value.strip() or default

    def _grading_type(self) -> GradingType:
        known: tuple[GradingType, ...] = get_args(GradingType)
        value = self.front.value.get("grading_type")
        if value is None:
            raise self._wrong(f"grading_type is missing: one of {', '.join(known)}", "grading_type")
        for grading_type in known:
            if value == grading_type:
                return grading_type
        hint = nearest(value, known) or f"; there are: {', '.join(known)}"
        raise self._wrong(f"unknown grading_type {value!r}{hint}", "grading_type")

    def _timeout(self) -> float:
        value = self.front.value.get("timeout_seconds")
        if value is None:
            raise self._wrong("timeout_seconds is missing", "timeout_seconds")
        if not _is_number(value) or value <= 0:
            raise self._wrong(
                f"timeout_seconds has to be a number of seconds above 0, not {value!r}",
                "timeout_seconds",
            )
        return float(value)

    def _weights(self) -> Mapping[str, float] | None:
        value = self.front.value.get("grading_weights")
        if value is None:
            return None
        known = ("automated", "llm_judge")
        if not isinstance(value, dict):
            raise self._wrong(f"grading_weights has to be a mapping of {known}", "grading_weights")
        for key, weight in value.items():
            place = ("grading_weights", key)
            if key not in known:
                raise self._wrong(
                    f"unknown key {key!r} in grading_weights{nearest(key, known)}", *place
                )
            if not _is_number(weight):
                raise self._wrong(
                    f"grading_weights.{key} has to be a number, not {weight!r}", *place
                )
        return {key: float(weight) for key, weight in value.items()}

    def _sessions(self) -> tuple[Prompt, ...]:
        value = self.front.value.get("sessions")
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong("sessions has to be a list", "sessions")
        return tuple(self._session(entry, index) for index, entry in enumerate(value))

    def _session(self, entry: Any, index: int) -> Prompt:
        place = ("sessions", index)
        new_session = False
        if isinstance(entry, dict):
            new_session = entry.get("new_session") or False
            if not isinstance(new_session, bool):
                raise self._wrong("new_session has to be true or false", *place, "new_session")
            entry = entry.get("prompt", entry.get("message"))
        if not isinstance(entry, str) or not entry.strip():
            raise self._wrong(
                f"session {index + 1} has to be text, or a mapping with text as prompt", *place
            )
        return Prompt(entry.strip(), new_session)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond any float
        return False
