"""What a recipe's ``options`` hold: reading them, and the two that every container kind has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_pinchbench.environments import Recipe
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.spelling import nearest

Reader = Callable[[Any], Any]
"""Turns a value from YAML into what is meant; its ``ValueError`` says "must be ..."."""


def read_options(recipe: Recipe, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The recipe's options, each read by the reader of its name. Raises ``SettingsError``."""
    found = {}
    for name, value in recipe.options.items():
        place = recipe.origins.get(f"options.{name}", f"recipe {recipe.name}")
        if name not in readers:
            known = ", ".join(sorted(readers)) or "none"
            raise SettingsError(
                f"{place}: the {recipe.environment} environment has no option {name!r}"
                f"{nearest(name, readers)} (there are: {known})"
            )
        if value is None:
            continue  # as if left out
        try:
            found[name] = readers[name](value)
        except ValueError as error:
            raise SettingsError(f"{place}: options.{name} {error}, not {value!r}") from None
    return found


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError("must be a number above 0")
    return float(value)


def whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number above 0")
    return value


def text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise ValueError("must be a text")
    return str(value)


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    return tuple(text(item) for item in value)


def one_of(*words: str) -> Reader:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}{nearest(value, words)}")
        return str(value)

    return read


#: see ``limits.py``
LIMITS: Mapping[str, Reader] = {"max_open": whole_number, "opens_per_second": number}
