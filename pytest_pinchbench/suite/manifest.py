"""``tasks/manifest.yaml``: a suite's tasks, order and categories, and the rules it runs by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.settings.yaml_document import Document, LineError, parse, shown

MANIFEST = "manifest.yaml"


@dataclass(frozen=True)
class Rules:
    """What a suite's own runner does by default, decided by the form of its manifest."""

    manifest: Literal["none", "flat", "categories"] = "none"

    @property
    def judge_view(self) -> Literal["reference", "full"]:
        return "reference" if self.manifest == "none" else "full"

    @property
    def new_session(self) -> bool:
        """Whether prompts that say ``new_session`` begin a new session."""
        return self.manifest == "categories"

    def begins_sessions(self, asked: bool | None) -> bool:
        """Return whether ``new_session`` is acted on: as asked, else as the suite has it."""
        return self.new_session if asked is None else asked

    def __str__(self) -> str:
        names = {"none": "no manifest", "flat": "flat manifest"}
        session = "on" if self.new_session else "off"
        return (
            f"{names.get(self.manifest, 'manifest with categories')}: "
            f"judge view {self.judge_view}, new_session {session}"
        )


@dataclass(frozen=True)
class Manifest:
    """Tasks are named by their files, without ``.md``."""

    rules: Rules = field(default_factory=Rules)
    lines: Mapping[str, int] = field(default_factory=dict)
    """The tasks in the order in which they run, each with its line in the manifest."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """The category of each task; empty for a flat list."""
    core: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The names that select several tasks: the categories, and ``core``."""
        return (*dict.fromkeys(self.categories.values()), *(["core"] if self.core else []))

    def members(self, group: str) -> tuple[str, ...]:
        """Return the tasks of a category (letter case aside) or of ``core``; empty for others."""
        found = [task for task, one in self.categories.items() if one.lower() == group.lower()]
        return self.core if self.core and group == "core" else tuple(found)


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest at ``path``; None where there is not one. Raises ``TaskFileError``."""
    if not path.is_file():
        return None
    try:
        document = parse(path.read_text(encoding="utf-8-sig"))
        return _manifest(document)
    except LineError as error:
        raise TaskFileError(path, error.line, error.reason) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskFileError(path, 1, f"cannot read the manifest: {error}") from None


def _manifest(document: Document) -> Manifest:
    value = document.value
    if not isinstance(value, dict) or ("categories" in value) == ("tasks" in value):
        raise document.error("the manifest has to have either categories: or tasks:")
    if "tasks" in value:
        listed = _names(document, "tasks")
        return Manifest(Rules("flat"), {name: document.line(*at) for name, at in listed.items()})
    if not isinstance(value["categories"], dict):
        raise document.error("categories has to be a mapping of lists", "categories")
    places: dict[str, tuple[Any, ...]] = {}
    categories: dict[str, str] = {}
    for category in value["categories"]:
        for name, at in _names(document, "categories", category).items():
            if name in categories:
                reason = f"{name} is in two categories: {categories[name]} and {category}"
                raise document.error(reason, *at)
            categories[name], places[name] = str(category), at
    ordered = {**_names(document, "run_first"), **places}
    core = _names(document, "core")
    for name, at in core.items():
        if name not in ordered:
            raise document.error(f"core names {name}, which is in none of the categories", *at)
    lines = {name: document.line(*at) for name, at in ordered.items()}
    return Manifest(Rules("categories"), lines, categories, tuple(core))


def _names(document: Document, *place: Any) -> dict[str, tuple[Any, ...]]:
    """Return the names in the list at ``place``, in order, each with its own place."""
    value = document.value
    for key in place:
        value = value.get(key)
    names: dict[str, tuple[Any, ...]] = {}
    if not isinstance(value or [], list):
        raise document.error(f"{place[-1]} has to be a list of tasks", *place)
    for index, name in enumerate(value or []):
        if not isinstance(name, str) or not name:
            raise document.error(f"{shown(name)} cannot be the name of a task", *place, index)
        names.setdefault(name, (*place, index))
    return names
