"""The frozen settings of a run; ``resolve`` makes them from the sources of values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_pinchbench.environments import Recipe
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.settings.secrets import SECRET_NAME, params_secrets, public_url, url_secrets

__all__ = ["JudgeView", "ModelSpec", "Protocol", "Settings"]

JudgeView = Literal["reference", "full"]
"""``full``: the judge also sees the agent's words and the text files of its workspace."""
Protocol = Literal["openai-chat", "openai-responses", "anthropic"]


@dataclass(frozen=True)
class ModelSpec:
    """A model and how to reach it: the model under test, or the judge.

    ``id`` is empty only where nothing is sent to a model (``--collect-only``, a comparison).

    ``base_url`` None: the id is OpenClaw's own (``openrouter/...``), or, for a judge, there
    is no endpoint. ``api_key`` never shows in a repr.
    """

    id: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_protocol: Protocol = "openai-chat"
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    compat: Mapping[str, Any] = field(default_factory=dict)
    """``drop``: fields that the endpoint refuses; other keys are OpenClaw's."""
    price: Mapping[str, float] = field(default_factory=dict)
    """Dollars a million tokens: ``input``, ``output``, ``cached``."""


@dataclass(frozen=True)
class Settings:
    """All that a run was asked for, validated. See ``settings/resolve.py``."""

    # what to run
    suite: str | tuple[str, ...]
    """``all``, ``automated-only``, words for ids and groups of tasks, or a tuple of ids."""
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
    new_session: bool | None
    """None: as the suite's own runner does."""
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
    # grading
    check_timeout: float = 120.0
    """Seconds for the automated checks of one task."""
    grade_in: str = "auto"
    """``auto``, ``fresh`` or ``same``."""
    transcript_limit: int = 60_000
    """Characters of the transcript summary that the judge is shown."""
    judge_view: JudgeView | None = None
    """None: as the suite has it (``Task.rules``)."""
    regrade: str | None = None
    # what comes out
    keep_workspace: bool = True
    merge: tuple[Path, ...] = ()
    compare_fail: float | None = None
    # when to stop
    budget_usd: float | None = None
    task_max_requests: int | None = None
    # the relay
    relay: str = "auto"
    """``auto``, ``yes`` or ``no``."""
    model_patience: float = 120.0
    model_concurrency: int | None = None
    record: bool = False
    replay: str | None = None
    """The recorded run whose answers stand in for the model's."""
    keep_going: bool = False
    """Continue when the sanity task scores 0."""
    harness_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The section ``harnesses.<name>`` of the YAML file, for another harness than OpenClaw's."""
    # about these settings
    show_recipe: bool = False
    list: str | None = None
    openclaw_mode: str = "local"
    view: str | None = None
    """A results folder; ``yes`` means ``results_dir``."""
    thinking: str | None = None
    skills: Path | None = None
    export: Path | None = None
    check: bool = False
    warnings: tuple[str, ...] = ()
    """What the user should be told once, though nothing is wrong."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where each value comes from, by ini name without its prefix: ``model_base_url``."""
    environment_secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of the user's own environment variables that look like secrets by their names."""

    def secrets(self) -> tuple[str, ...]:
        """Every value that must never be printed or saved; for the ``Redactor``."""
        models = [self.model, *([self.judge] if self.judge else [])]
        urls = [self.skill_repo_url, *(model.base_url for model in models if model.base_url)]
        found = [
            self.brave_api_key,
            *(model.api_key for model in models),
            *(secret for url in urls for secret in url_secrets(url)),
            *(secret for model in models for secret in params_secrets(model.params)),
            *params_secrets(self.harness_settings),
            *(text for name, text in self.recipe.env.items() if SECRET_NAME.search(name)),
            *self.environment_secrets,
        ]
        return tuple(dict.fromkeys(secret for secret in found if secret))

    def public(self) -> dict[str, Any]:
        """The settings as a JSON value without secrets, for the run's record."""
        value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        for name in ("brave_api_key", "environment_secrets", "warnings", "origins"):
            del value[name]
        for model in (value["model"], value["judge"] or {}):
            model.pop("api_key", None)
            if model.get("base_url"):
                model["base_url"] = public_url(model["base_url"])
        value["skill_repo_url"] = public_url(self.skill_repo_url)
        value["recipe"]["env"] = sorted(self.recipe.env)
        del value["recipe"]["origins"]
        public: dict[str, Any] = Redactor(self.secrets()).json(value)
        return public
