"""Recipes: the YAML files that describe a sandbox, and what a user puts over them.

The recipes that come with this project are the YAML files of ``pytest_pinchbench.recipes``
(``recipes/`` in the source tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_pinchbench import readers
from pytest_pinchbench.environments import Recipe
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.kinds import kinds
from pytest_pinchbench.options import INSTALL_STRATEGIES
from pytest_pinchbench.readers import Reader
from pytest_pinchbench.redaction import MASK
from pytest_pinchbench.settings.secrets import SECRET_NAME
from pytest_pinchbench.settings.yaml_document import Document, YamlError, parse
from pytest_pinchbench.spelling import did_you_mean


class Layer(NamedTuple):
    """Keys of a recipe from one source; a later layer goes over an earlier one."""

    keys: Mapping[str, Any]
    origin: Callable[..., str]
    """What to call the place of a key, for people: ``my.yaml:7``."""


def load_recipe(
    source: str,
    base: Path | None = None,
    *,
    by_kind: Callable[[str], Layer | None] = lambda kind: None,
    given: Iterable[Layer] = (),
) -> Recipe:
    """Load the recipe called ``source``, or in the file ``source``, with its overriding layers.

    ``base`` is the folder that a relative file name is meant from. ``by_kind`` says what a
    user wants of a kind of environment, ``given`` what they want of this very recipe.
    The name of an environment kind that has no recipe is a recipe of nothing but that kind.
    Raises ``SettingsError``.
    """
    name, layer = _find(source, base or Path())
    kind = layer.keys.get("environment")
    if not isinstance(kind, str) or not kind:
        raise SettingsError(
            f"{layer.origin('environment')}: a recipe has to say its environment:"
            " docker, local, daytona, modal, or a kind that a plugin brings"
        )
    of_kind = by_kind(kind)
    layers = [layer, *([of_kind] if of_kind else []), *given]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.keys.items():
            if value is None:
                continue
            try:
                read = _READERS[key](value, Path())
            except ValueError as error:
                raise SettingsError(f"{layer.origin(key)}: {key} {error}") from None
            if isinstance(read, dict):  # env and options are put together key by key
                values[key] = {**values.get(key, {}), **read}
                origins |= {f"{key}.{name}": layer.origin(key, name) for name in read}
            else:
                values[key] = read
                origins[key] = layer.origin(key)
    return Recipe(name=name, **values, origins=origins)


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with this project."""
    from importlib.resources import files

    found = (Path(entry.name) for entry in files("pytest_pinchbench.recipes").iterdir())
    return sorted(path.stem for path in found if path.suffix == ".yaml")


def describe_recipe(recipe: Recipe) -> str:
    """Describe the recipe in lines for people, with the origin of each value."""
    values: dict[str, object] = {
        "environment": recipe.environment,
        "image": recipe.image,
        "workspace_root": recipe.workspace_root,
        "openclaw_install": recipe.openclaw_install,
    }
    for name, value in recipe.env.items():
        values[f"env.{name}"] = MASK if SECRET_NAME.search(name) else value
    values["pass_env"] = ", ".join(recipe.pass_env) or None
    values |= {f"options.{name}": value for name, value in recipe.options.items()}
    rows = [
        (key, "-" if value is None else str(value), recipe.origins.get(key, "not given"))
        for key, value in values.items()
    ]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    lines = [
        f"  {key:{key_width}}  {value:{value_width}}  # {origin}" for key, value, origin in rows
    ]
    return "\n".join([f"recipe {recipe.name}", *lines])


def _find(source: str, base: Path) -> tuple[str, Layer]:
    from importlib.resources import files

    if source in (names := recipe_names()):
        text = (files("pytest_pinchbench.recipes") / f"{source}.yaml").read_text("utf-8")
        return source, _parse(text, f"recipes/{source}.yaml")
    try:
        path = base / Path(source).expanduser()
    except RuntimeError:
        raise SettingsError(f"recipe {source}: names the home of an unknown user") from None
    if "/" in source or path.suffix in (".yaml", ".yml"):
        try:
            return path.stem, _parse(path.read_text("utf-8"), str(path))
        except OSError as error:
            reason = error.strerror or error
            raise SettingsError(f"recipe {source}: cannot read {path}: {reason}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"recipe {source}: {path} is not UTF-8 text") from None
    if source in (found := kinds("environments")):
        return source, Layer({"environment": source}, lambda *place: f"kind {source}")
    known = sorted({*names, *found})
    hint = did_you_mean(source, known) or f"; there are: {', '.join(known)}"
    raise SettingsError(f"no recipe or environment called {source!r}{hint}")


def _parse(text: str, name: str) -> Layer:
    try:
        document = parse(text)
    except YamlError as error:
        raise SettingsError(f"{name}:{error.line}: {error.reason}") from None
    return layer_of(document, name)


def layer_of(document: Document, name: str, place: tuple[Any, ...] = ()) -> Layer:
    """Return the recipe keys at ``place`` of a YAML document in the file ``name``.

    Raises ``SettingsError`` for a key that no recipe has.
    """
    keys = document.value
    for step in place:
        keys = keys[step]

    def origin(*within: Any) -> str:
        return f"{name}:{document.line(*place, *within)}"

    if not isinstance(keys, dict):
        raise SettingsError(f"{origin()}: has to be a mapping (key: value)")
    for key in keys:
        if key not in _READERS:
            hint = did_you_mean(key, _READERS) or f"; there are: {', '.join(_READERS)}"
            raise SettingsError(f"{origin(key)}: unknown key {key!r}{hint}")
    return Layer(keys, origin)


_READERS: Mapping[str, Reader] = {
    "environment": readers.word,
    "image": readers.word,
    "workspace_root": readers.sandbox_path,
    "openclaw_install": readers.choice(*INSTALL_STRATEGIES),
    "env": readers.variables,
    "pass_env": readers.variable_names,
    "options": readers.mapping,
}
