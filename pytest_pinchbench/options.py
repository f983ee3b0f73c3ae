"""Every option: where its value comes from, what is valid, and the one frozen Settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_pinchbench.environments import Recipe

Protocol = Literal["openai-chat", "openai-responses", "anthropic"]


@dataclass(frozen=True)
class ModelSpec:
    """A model and how to reach it: the model under test, or the judge.

    ``base_url`` None: the id is OpenClaw's own (``openrouter/...``), or, for a judge, there
    is no endpoint. ``api_key`` never shows in a repr.
    """

    id: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_protocol: Protocol = "openai-chat"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """All that a run was asked for, validated. See :func:`resolve`."""

    # what to run
    suite: str | tuple[str, ...]
    """``all``, ``automated-only``, or task ids in the order given."""
    limit: int
    sample_ids: tuple[str, ...]
    skill_dir: Path | None
    skill_repo_url: str
    skill_repo_tag: str
    data_dir: Path
    # model under test
    model: ModelSpec
    context_window: int
    max_tokens: int
    # judge
    judge: ModelSpec | None
    judge_timeout: float
    # sandbox
    recipe: Recipe
    keep_environment: bool
    # agent
    harness: str
    openclaw_version: str | None
    openclaw_install: str
    openclaw_binary: str | None
    skip_bootstrap: bool
    new_session: bool
    brave_api_key: str | None = field(repr=False)
    # how often, how long
    attempts: int
    retries: int
    timeout_multiplier: float
    evaluation_timeout: float | None
    model_check: bool
    judge_check: bool
    # what comes out
    results_dir: Path
    resume: str | None
    compare: tuple[str, ...]
    fail_under: float | None
    pass_mark: float
