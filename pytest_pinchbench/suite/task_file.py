"""The task file format: YAML front matter, then Markdown with level-2 sections."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.settings.yaml_document import LineError, YamlError, parse, shown
from pytest_pinchbench.spelling import did_you_mean
from pytest_pinchbench.suite.checks import inspect_checks
from pytest_pinchbench.suite.manifest import Rules
from pytest_pinchbench.suite.markdown import Section, split_sections
from pytest_pinchbench.suite.workspace_files import (
    CONTROL,
    WorkspaceFile,
    WorkspaceFiles,
    is_inside,
)

if TYPE_CHECKING:
    from pytest_pinchbench.settings.yaml_document import Document

GradingType = Literal["automated", "llm_judge", "hybrid"]

LARGEST_FILE = 8 << 20
"""Bytes of a task file."""
DEFAULT_TIMEOUT_S = 120.0
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?")
# a file of the run directory ends in one of these, and each task has a folder there
_FILES = re.compile(r".*\.(json|jsonl|md|html|txt|xml|csv|lock|tmp)", re.IGNORECASE)
_KEYS = (
    *("id", "name", "category", "grading_type", "timeout_seconds", "workspace_files"),
    *("sessions", "multi_session", "grading_weights", "prerequisites", "grade_in"),
)
PREREQUISITES = ("cli", "npm")
"""Kinds of prerequisites that can be looked for in a sandbox."""


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
    imports: tuple[str, ...] = ()
    """Modules that the automated checks import at their top."""
    prerequisites: tuple[str, ...] = ()
    """What has to be in the sandbox: ``cli:gh`` is a program, ``npm:NAME`` a package."""
    warnings: tuple[TaskFileError, ...] = ()
    """What is odd about the file."""
    rules: Rules = field(default_factory=Rules)
    """What the suite's own runner does by default."""


def load_task(path: Path, root: Path | None = None) -> Task:
    """Read and check one task file of the checkout ``root`` (default: two folders up).

    Raises :class:`TaskFileError`.
    """
    try:
        return _TaskFile(path, root or path.parent.parent).task()
    except LineError as error:
        raise TaskFileError(path, error.line, error.reason) from None


class _TaskFile:
    """One task file on its way to a :class:`Task`. Its methods raise ``LineError``."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root
        self.front: Document

    def task(self) -> Task:
        front, front_line, body, body_line = self._split(self._read())
        self.front = self._front_matter(front, front_line)
        matter = self.front.value
        sections = split_sections(body, body_line)
        texts = {title: section.text for title, section in sections.items()}
        sessions = self._sessions()
        prompt = texts.get("Prompt", "")
        if not sessions and not prompt:
            section = sections.get("Prompt")
            raise LineError(
                section.line if section else body_line,
                "the section Prompt is empty"
                if section
                else "there is no section '## Prompt', and no sessions in its place",
            )
        if matter.get("grade_in") not in (None, "fresh", "same"):
            raise self._wrong("grade_in has to be fresh or same", "grade_in")
        task_id = self._id()
        grading_type = self._grading_type()
        checks = sections.get("Automated Checks")
        return Task(
            id=task_id,
            name=self._text("name", default=task_id),
            category=self._text("category", default="uncategorized"),
            grading_type=grading_type,
            timeout_seconds=self._timeout(),
            prompts=sessions or (Prompt(prompt),),
            prompt=prompt or "\n\n".join(session.text for session in sessions),
            expected_behavior=texts.get("Expected Behavior", ""),
            grading_criteria=texts.get("Grading Criteria", ""),
            automated_checks=checks.python if checks else None,
            judge_rubric=texts.get("LLM Judge Rubric") or None,
            grading_weights=self._weights(),
            workspace_files=WorkspaceFiles(self.front, self.root).read(),
            path=self.path,
            front_matter=matter,
            sections=texts,
            imports=() if grading_type == "llm_judge" else self._imports(checks),
            prerequisites=self._prerequisites(),
            warnings=tuple(self._warnings()),
        )

    # the file's two halves

    def _read(self) -> str:
        if not is_inside(self.path, self.root):
            raise LineError(1, f"cannot be read: it is a link out of {self.root}")
        try:
            # without O_NONBLOCK, a FIFO would hold us for ever
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise LineError(1, "cannot be read: it is not a regular file")
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise LineError(1, f"cannot be read: {error.strerror or error}") from None
        if len(data) > LARGEST_FILE:
            raise LineError(1, f"cannot be read: it is larger than {LARGEST_FILE >> 20} MiB")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise LineError(data.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _split(self, text: str) -> tuple[str, int, str, int]:
        """Front matter and body, each with the line of the file that it starts on."""
        from frontmatter.default_handlers import YAMLHandler

        handler = YAMLHandler()
        if not handler.detect(text):
            raise LineError(1, "the file has to begin with front matter, after a line '---'")
        try:
            front, body = handler.split(text)
        except ValueError:
            raise LineError(1, "the front matter has no end: a second line '---'") from None
        body_line = text.count("\n", 0, len(text) - len(body)) + 1
        fence_line = text[: len(text) - len(body)].rstrip().count("\n") + 1
        return front, fence_line - front.count("\n"), body, body_line

    def _front_matter(self, front: str, line: int) -> Document:
        document = parse(front, line)
        if not isinstance(document.value, dict):
            raise LineError(line, "the front matter has to be a mapping (key: value)")
        return document

    def _imports(self, checks: Section | None) -> tuple[str, ...]:
        if checks is None:
            raise self._wrong(
                "there is no section '## Automated Checks', which this grading_type needs",
                "grading_type",
            )
        if checks.python is None:
            raise LineError(
                checks.line, "the section Automated Checks has no block tagged ```python"
            )
        try:
            return inspect_checks(checks.python)
        except LineError as error:
            raise LineError(checks.python_line + error.line - 1, error.reason) from None

    # front matter, key by key

    def _wrong(self, reason: str, *place: Any) -> YamlError:
        """The error for the front matter value at ``place``, with its line."""
        return self.front.error(reason, *place)

    def _id(self) -> str:
        matter = self.front.value
        if matter.get("id") is None:
            raise self._wrong("id is missing", "id")
        task_id = matter["id"]
        if not isinstance(task_id, str):
            raise self._wrong(
                f"id has to be text, in quotes if need be, not {shown(task_id)}", "id"
            )
        if not _ID.fullmatch(task_id):
            raise self._wrong(
                f"id {shown(task_id)} may hold only letters, digits, '_', '-' and '.', 100 at most,"
                " begins with a letter or digit, and ends with one or '_': it names folders"
                " and test cases",
                "id",
            )
        if _FILES.fullmatch(task_id):
            raise self._wrong(
                f"id {task_id!r} cannot name a folder of a run: files there end in the same way",
                "id",
            )
        return task_id

    def _text(self, key: str, default: str) -> str:
        value = self.front.value.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(
                f"{key} has to be text, in quotes if need be, not {shown(value)}", key
            )
        if CONTROL.search(value.strip()):
            raise self._wrong(f"{key} {shown(value)} holds a control character", key)
        return value.strip() or default

    def _grading_type(self) -> GradingType:
        known: tuple[GradingType, ...] = get_args(GradingType)
        value = self.front.value.get("grading_type")
        if value is None:
            return "automated"
        for grading_type in known:
            if value == grading_type:
                return grading_type
        hint = did_you_mean(value, known) or f"; there are: {', '.join(known)}"
        raise self._wrong(f"unknown grading_type {shown(value)}{hint}", "grading_type")

    def _timeout(self) -> float:
        value = self.front.value.get("timeout_seconds")
        if value is None:
            return DEFAULT_TIMEOUT_S
        if not _is_number(value) or value <= 0:
            raise self._wrong(
                f"timeout_seconds has to be a number of seconds above 0, not {shown(value)}",
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
                    f"unknown key {shown(key)} in grading_weights{did_you_mean(key, known)}", *place
                )
            if not _is_number(weight):
                raise self._wrong(
                    f"grading_weights.{key} has to be a number, not {shown(weight)}", *place
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

    def _prerequisites(self) -> tuple[str, ...]:
        value = self.front.value.get("prerequisites") or []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong("prerequisites has to be a list of texts", "prerequisites")
        return tuple(one.strip() for one in value)

    def _warnings(self) -> list[TaskFileError]:
        matter = self.front.value
        found: list[tuple[str, tuple[Any, ...]]] = [
            (f"unknown key {shown(key)}{did_you_mean(key, _KEYS)}: it is not acted on", (key,))
            for key in matter
            if key not in _KEYS
        ]
        for key, default in (
            ("grading_type", "automated"),
            ("timeout_seconds", f"{DEFAULT_TIMEOUT_S:g}"),
        ):
            if matter.get(key) is None:
                found.append((f"{key} is missing: {default} is used", (key,)))
        for index, one in enumerate(self._prerequisites()):
            if one.partition(":")[0] not in PREREQUISITES:
                reason = f"the prerequisite {shown(one)} is not looked for: cli: and npm: are"
                found.append((reason, ("prerequisites", index)))
        return [TaskFileError(self.path, self.front.line(*at), reason) for reason, at in found]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond any float
        return False
