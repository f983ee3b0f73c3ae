"""Settings of a run: every option's value, from the strongest source that gives one.

A value comes from the command line, else from the environment, the ini file, the YAML file of
``--pinchbench-config``, or is the default of the option's row in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench import readers
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.options import OPTIONS, Option, only_looks
from pytest_pinchbench.settings import ModelSpec, Settings
from pytest_pinchbench.settings.recipes import Layer, load_recipe
from pytest_pinchbench.settings.secrets import environment_secrets
from pytest_pinchbench.settings.sources import (
    CONFIG_FILE,
    ConfigFile,
    Given,
    Level,
    config_folder,
    from_command_line,
    from_environment,
    from_ini,
    merge,
    with_params,
)
from pytest_pinchbench.spelling import did_you_mean

if TYPE_CHECKING:
    import pytest

    from pytest_pinchbench.environments import Recipe


def resolve_each(config: pytest.Config, environ: Mapping[str, str]) -> dict[str, Settings]:
    """Return the settings of each model's run, validated, by what the model is called; for one
    model, by an empty text. Raises ``SettingsError``.
    """
    levels = (from_command_line(config), from_environment(config, environ), from_ini(config))
    wanted = merge(levels).get("model")
    names = _names(wanted) if wanted else ()
    if len(names) < 2:
        return {"": resolve(config, environ)}
    found = {name: resolve(config, environ, name) for name in names}
    # every run's output passes a redaction that knows the secrets of all
    secrets = tuple(secret for settings in found.values() for secret in settings.secrets())
    return {
        name: replace(settings, environment_secrets=tuple(dict.fromkeys(secrets)))
        for name, settings in found.items()
    }


def resolve(
    config: pytest.Config, environ: Mapping[str, str], among: str | None = None
) -> Settings:
    """Return the settings of a run, validated. Raises ``SettingsError``.

    ``environ`` is the user's environment (``os.environ``). ``among``: of this model among the
    several that are given; what its entry in the YAML file says holds for it before what is
    given for all, and a key that is given for all does not go to an endpoint of its own.
    """
    warnings: list[str] = []
    levels = [
        with_params(from_command_line(config), warnings),
        from_environment(config, environ),
        with_params(from_ini(config), warnings),
    ]
    found = config_folder(config) / CONFIG_FILE
    if "config" not in merge(levels) and found.exists():
        levels.append({"config": Given(str(found), str(found), found.parent)})
    file = ConfigFile.read(merge(levels).get("config"), warnings)
    wanted = merge(levels).get("model")
    if wanted is not None:
        wanted = wanted._replace(raw=among or _names(wanted)[0])
    entry = file.model(wanted)
    levels += [entry, file.level]
    given = merge([entry, *levels] if among else levels)
    if among and "model-base-url" in entry and not entry.keys() & _KEYS:
        for name in _KEYS & given.keys():
            del given[name]
    if wanted is not None:
        given["model"] = entry.get("model", wanted)  # the entry's id, where its name was given
    if "data-dir" not in given:
        given["data-dir"] = Given(_user_data_dir(), "default", Path())
    values = {option.key: _value(option, given, config) for option in OPTIONS}
    if not values["model"] and not _needs_no_model(config, values):
        # a project's own --model is not for this plugin
        option = "--pinchbench-model" if hasattr(config.option, "model") else "--model"
        raise SettingsError(
            f"no model to measure; give {option} ID or set MODEL_NAME"
            " (and --pinchbench-model-base-url and MODEL_API_KEY for an endpoint of your own)"
            + file.models_hint()
        )
    for part in ("model", "judge"):
        if not values[f"{part}_api_key"] and (name := values[f"{part}_api_key_env"]):
            values[f"{part}_api_key"] = environ.get(name)
            if not values[f"{part}_api_key"] and not _needs_no_model(config, values):
                raise SettingsError(
                    f"{given[f'{part}-api-key-env'].origin}: cannot take the key from the "
                    f"environment variable {name}: it is not set. Set it, or remove api_key_env"
                )
    _refuse_contradictions(values, given)
    model = ModelSpec(**{"id": "", **_fields("model", values)})
    nowhere = model.base_url is None and "/" not in model.id and not entry
    if nowhere and (hint := did_you_mean(model.id, file.models)):
        raise SettingsError(
            f"{given['model'].origin}: there is no model {model.id!r} in {file.name}{hint}"
        )
    if values["evaluation_timeout"] is not None:
        values["evaluation_timeout"] *= values["evaluation_timeout_multiplier"]
    return Settings(
        **{name: values[name] for name in Settings.__dataclass_fields__ if name in values}
        | {
            "model": model,
            "judge": _judge(model, values, given),
            "recipe": _recipe(levels, file),
            "harness_settings": _harness_settings(values["harness"], file),
            "warnings": tuple(dict.fromkeys(warnings)),
            "origins": {
                option.key: given[option.name].origin if option.name in given else "default"
                for option in OPTIONS
            },
            "environment_secrets": environment_secrets(environ),
        }
    )


_KEYS = {"model-api-key", "model-api-key-env"}


def _names(wanted: Given) -> tuple[str, ...]:
    try:
        return readers.words(wanted.raw)
    except ValueError as error:
        raise SettingsError(f"{wanted.origin}: model {error}") from None


def _fields(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values given for a part of the settings (``model``), by field."""
    return {
        name: values[option.key]
        for option in OPTIONS
        if values[option.key] not in (None, ())
        and (name := option.place.removeprefix(f"{part}.")) != option.place
    }


def _value(option: Option, given: Level, config: pytest.Config) -> Any:
    found = given.get(option.name)
    if found is None:
        if option.default is None:
            return () if option.several else None
        found = Given(option.default, "default", config.invocation_params.dir)
    try:
        return option.read(found.raw, found.base)
    except ValueError as error:
        raise SettingsError(f"{found.origin}: {option.key} {error}") from None


def _user_data_dir() -> str:
    from platformdirs import user_data_dir

    return user_data_dir("pytest-pinchbench", appauthor=False)


def _needs_no_model(config: pytest.Config, values: Mapping[str, Any]) -> bool:
    reports = ("compare", "merge", "regrade", "replay", "show_recipe", "list", "check")
    return only_looks(config) or any(values[name] for name in reports)


def _refuse_contradictions(values: Mapping[str, Any], given: Level) -> None:
    """Raise ``SettingsError`` for options that contradict one another."""
    for name in ("regrade", "resume"):
        if values["merge"] and values[name]:
            raise SettingsError(
                f"--pinchbench-merge and --pinchbench-{name} contradict each other;"
                " give one of them"
            )
    # as a standing setting it waits for a comparison
    origin = given["compare-fail"].origin if "compare-fail" in given else ""
    if origin.startswith("--") and not values["compare"]:
        raise SettingsError(
            f"{origin} has nothing to compare with; name the earlier run with --pinchbench-compare"
        )


def _judge(model: ModelSpec, values: Mapping[str, Any], given: Level) -> ModelSpec | None:
    """Return the judge; connection fields that are left out are the model's."""
    fields = _fields("judge", values)
    if "id" not in fields:
        for name in fields:
            origin = given[f"judge-{name.replace('_', '-')}"].origin
            raise SettingsError(
                f"{origin}: there is a judge {name} but no judge; give its id with"
                " --pinchbench-judge-model, JUDGE_MODEL_NAME, or as id of judge_model"
            )
        return None
    fields = {"base_url": model.base_url, "api_protocol": model.api_protocol, **fields}
    if fields["base_url"] == model.base_url:  # a key is for the endpoint that it was given for
        fields = {"api_key": model.api_key, **fields}
    return ModelSpec(**fields)


def _recipe(levels: list[Level], file: ConfigFile) -> Recipe:
    """Load the recipe of the strongest source that names a recipe or a kind of environment."""
    default: Level = {"env": Given("docker", "default", Path())}
    level = next((level for level in levels if "recipe" in level or "env" in level), default)
    named = level.get("recipe") or level["env"]
    try:
        source = readers.text(named.raw, named.base)
    except ValueError as error:
        raise SettingsError(f"{named.origin}: the name of the sandbox {error}") from None
    given = merge(levels)
    over = [
        Layer({option.replace("-", "_"): given[option].raw}, lambda *_, o=given[option].origin: o)
        for option in ("image", "workspace-root")
        if option in given
    ]
    recipe = load_recipe(source, named.base, by_kind=file.environment, given=over)
    wanted = level.get("env")
    if wanted and wanted.raw != recipe.environment:
        raise SettingsError(
            f"{wanted.origin} asks for {wanted.raw}, but {named.origin} names the recipe"
            f" {recipe.name}, which is for {recipe.environment}; give only one of them"
        )
    return recipe


def _harness_settings(harness: str, file: ConfigFile) -> dict[str, Any]:
    if harness not in file.harnesses:
        return {}
    given = file.harnesses[harness]
    try:
        return readers.mapping(given.raw)
    except ValueError as error:
        raise SettingsError(f"{given.origin}: {error}") from None
