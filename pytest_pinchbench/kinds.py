"""Kinds of environments and harnesses, found by entry points; the built-in kinds use them too."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.spelling import did_you_mean

Wing = Literal["environments", "harnesses"]
"""A section of the YAML file, and the end of an entry-point group's name."""
_SINGULAR = {"environments": "environment", "harnesses": "harness"}


def kinds(wing: Wing) -> dict[str, EntryPoint]:
    """Return every installed kind by its name."""
    return {point.name: point for point in entry_points(group=f"pytest_pinchbench.{wing}")}


def load_kind(wing: Wing, name: str) -> Any:
    """Return what the kind's entry point names. Raises ``SettingsError`` for an unknown kind."""
    found = kinds(wing)
    if name not in found:
        hint = did_you_mean(name, found) or f"; there are: {', '.join(sorted(found))}"
        raise SettingsError(f"no {_SINGULAR[wing]} called {name!r}{hint}")
    return found[name].load()
