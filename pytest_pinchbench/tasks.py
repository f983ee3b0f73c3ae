"""The task file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

GradingType = Literal["automated", "llm_judge", "hybrid"]


@dataclass(frozen=True)
class WorkspaceFile:
    """A file that is in the workspace before the agent starts.

    ``dest`` is a relative POSIX path inside the workspace. Exactly one of ``content`` (text,
    written as UTF-8) and ``source`` (a file inside the suite's assets folder) is given.
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
