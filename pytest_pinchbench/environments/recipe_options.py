"""What a recipe's ``options`` hold: reading them, and the two that every container kind has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_pinchbench.environments import Recipe
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.readers import Reader, number, whole_number
from pytest_pinchbench.spelling import did_you_mean


def read_options(recipe: Recipe, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The recipe's options, each read by the reader of its name. Raises ``SettingsError``."""
    found = {}
    for name, value in recipe.options.items():
        place = recipe.origins.get(f"options.{name}", f"recipe {recipe.name}")
        if name not in readers:
            known = ", ".join(sorted(readers)) or "none"
            raise SettingsError(
                f"{place}: the {recipe.environment} environment has no option {name!r}"
                f"{did_you_mean(name, readers)} (there are: {known})"
            )
        if value is None:
            continue  # as if left out
        try:
            found[name] = readers[name](value, Path())
        except ValueError as error:
            raise SettingsError(f"{place}: options.{name} {error}") from None
    return found


#: see ``limits.py``
LIMITS: Mapping[str, Reader] = {"max_open": whole_number(1), "opens_per_second": number(above=0)}
