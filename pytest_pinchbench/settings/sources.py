"""Where values come from: command line, environment, ini file and YAML file."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_pinchbench import readers
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.kinds import Wing, kinds
from pytest_pinchbench.options import BENCHMARK, OPTIONS
from pytest_pinchbench.spelling import did_you_mean

if TYPE_CHECKING:
    from pytest_pinchbench.settings.recipes import Layer
    from pytest_pinchbench.settings.yaml_document import Document


class Given(NamedTuple):
    """A value as its source has it."""

    raw: Any
    origin: str
    base: Path
    """What a relative path is meant from."""


Level = dict[str, Given]
"""All that one source gives, by the option's name."""


def merge(levels: Iterable[Level]) -> Level:
    """Merge levels, given from the strongest to the weakest."""
    merged: Level = {}
    for level in levels:
        merged = {**level, **merged}
    return merged


def from_command_line(config: pytest.Config) -> Level:
    base = config.invocation_params.dir
    level: Level = {}
    for option in OPTIONS:
        raw = config.getoption(f"pinchbench_{option.key}")
        if raw and option.key == "model":
            raw = _models_given(config, raw)
        if raw is not None:
            level[option.name] = Given(raw, f"--pinchbench-{option.name}", base)
    return level


def _models_given(config: pytest.Config, models: list[str]) -> list[str]:
    """Return the models of the command line itself where it names any: those of ``addopts`` are
    a default, and no further models.
    """
    names = [argument.partition("=")[0] for argument in map(str, config.invocation_params.args)]
    count = names.count("--pinchbench-model")
    if not hasattr(config.option, "model"):  # else the project's own
        count += names.count("--model")
    return models[-count:]


def from_environment(config: pytest.Config, environ: Mapping[str, str]) -> Level:
    level: Level = {}
    for option in OPTIONS:
        for name in option.env:
            if environ.get(name, "").strip():
                origin = f"environment variable {name}"
                level[option.name] = Given(environ[name], origin, config.invocation_params.dir)
                break
    return level


CONFIG_FILE = "pinchbench.yaml"
"""Read without ``--pinchbench-config`` where it stands in :func:`config_folder`."""


def config_folder(config: pytest.Config) -> Path:
    """Return the folder of the ini file, or where pytest was started."""
    return config.inipath.parent if config.inipath else config.invocation_params.dir


def from_ini(config: pytest.Config) -> Level:
    base = config_folder(config)
    file = config.inipath.name if config.inipath else "ini"
    with python_warnings.catch_warnings():
        # newer pytests want no one to look into inicfg, and have no other way
        python_warnings.simplefilter("ignore")
        values = getattr(config, "inicfg", {})
        _refuse_unknown_ini([name for name in values if name.startswith("pinchbench_")], file)
        level: Level = {}
        for option in OPTIONS:
            name = f"pinchbench_{option.key}"
            try:
                raw = config.getini(name)
            except (TypeError, pytest.UsageError):
                raw = values[name]  # not text, in the native TOML of pytest 9
            if raw not in (None, ""):
                level[option.name] = Given(raw, f"{file} ({name})", base)
    return level


def _refuse_unknown_ini(names: list[str], file: str) -> None:
    """Raise ``SettingsError`` for a name that pytest itself would only warn of, at the end."""
    known = [f"pinchbench_{option.key}" for option in OPTIONS]
    for name in names:
        if name not in known:
            raise SettingsError(f"{file}: there is no setting {name!r}{did_you_mean(name, known)}")


def with_params(level: Level, warnings: list[str]) -> Level:
    """Add the fields of ``params`` to a level; the level's own options override them."""
    if "params" not in level:
        return level
    raw, origin, base = level["params"]
    try:
        fields = readers.mapping(raw, base)
    except ValueError as error:
        raise SettingsError(f"{origin}: params {error}") from None

    def origin_of(place: str) -> str:
        return f"{origin} ({place.removeprefix(f'{BENCHMARK}.')})"

    return {**_take(fields, BENCHMARK, origin_of, base, warnings), **level}


class ConfigFile(NamedTuple):
    """The YAML file of ``--pinchbench-config``."""

    name: str
    level: Level
    models: Mapping[str, Level]
    """The entries of ``models``, by name."""
    environment: Callable[[str], Layer | None]
    """The section of ``environments`` for a kind."""
    harnesses: Mapping[str, Given]
    """The sections of ``harnesses`` for other harnesses than OpenClaw's, by name."""

    @classmethod
    def read(cls, given: Given | None, warnings: list[str]) -> ConfigFile:
        """Read the file; without one, as an empty file. Raises ``SettingsError``."""
        if given is None:
            return cls("", {}, {}, lambda kind: None, {})
        from pytest_pinchbench.settings.recipes import layer_of
        from pytest_pinchbench.settings.yaml_document import YamlError, parse

        try:
            path = readers.path(given.raw, given.base)
            document = parse(path.read_text("utf-8"))
        except OSError as error:
            reason = error.strerror or error
            raise SettingsError(f"{given.origin}: cannot read {given.raw}: {reason}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{given.origin}: {given.raw} is not UTF-8 text") from None
        except YamlError as error:
            raise SettingsError(f"{given.raw}:{error.line}: {error.reason}") from None
        except ValueError as error:
            raise SettingsError(f"{given.origin}: config {error}") from None
        tree = dict(_mapping(document.value, str(given.raw)))

        def origin_of(place: str) -> str:
            return f"{path.name}:{document.line(*place.split('.'))} ({place})"

        models = dict(_models(tree.pop("models", None), path, document, warnings))
        environments = _mapping(tree.pop("environments", None), origin_of("environments"))
        _refuse_misspelt("environments", environments, origin_of)
        sections = dict(_mapping(tree.pop("harnesses", None), origin_of("harnesses")))
        _refuse_misspelt("harnesses", sections, origin_of)
        tree["harnesses"] = {"openclaw": sections.pop("openclaw", None)}

        def environment(kind: str) -> Layer | None:
            if environments.get(kind) is None:
                return None
            return layer_of(document, path.name, ("environments", kind))

        return cls(
            path.name,
            _take(tree, "", origin_of, path.parent, warnings),
            models,
            environment,
            {
                str(name): Given(section or {}, origin_of(f"harnesses.{name}"), path.parent)
                for name, section in sections.items()
            },
        )

    def model(self, wanted: Given | None) -> Level:
        """Return the entry of ``models`` that the model under test names, or the only one."""
        if wanted is None and len(self.models) == 1:
            return dict(next(iter(self.models.values())))
        if wanted is None:
            return {}
        for name, entry in self.models.items():
            if wanted.raw in (name, entry["model"].raw):
                return dict(entry)
        return {}

    def models_hint(self) -> str:
        return f"; {self.name} has: {', '.join(self.models)}" if self.models else ""


def _refuse_misspelt(
    wing: Wing, sections: Mapping[Any, Any], origin_of: Callable[[str], str]
) -> None:
    """Raise ``SettingsError`` for a section whose name is nearly that of an installed kind."""
    known = kinds(wing)
    for name in sections:
        # sections of kinds that are not installed are for others that share the file
        if name not in known and (hint := did_you_mean(name, known)):
            raise SettingsError(f"{origin_of(f'{wing}.{name}')}: unknown key {name!r}{hint}")


# What users of the reference have in their files, and what to tell them.
_WITHOUT_EFFECT = ("skill_dir", "skill_package_url", "skill_package_sha256", "sync_skill_dir")
_WITHOUT_EFFECT_WARNING = (
    f"{', '.join(_WITHOUT_EFFECT)} have no effect as parameters; what does have one:"
    " --pinchbench-skill-dir, the environment variable PINCHBENCH_SKILL_DIR,"
    " and skill_repo_url with skill_repo_tag"
)
_INSTEAD = {
    "verifier_timeout_multiplier": "is not a setting; set judge_timeout_seconds"
    " (--pinchbench-judge-timeout), the seconds for one request to the judge, instead",
    **dict.fromkeys(
        ("concurrency", "task_concurrency", "max_concurrency"),
        "is not a setting; pytest-xdist runs tasks side by side: pytest -n 4",
    ),
}


_PLACES = {place: option.name for option in OPTIONS for place in option.yaml}


def _take(
    tree: Mapping[Any, Any],
    prefix: str,
    origin_of: Callable[[str], str],
    base: Path,
    warnings: list[str],
) -> Level:
    """Return the level that a tree of settings at ``prefix`` gives. Raises ``SettingsError``.

    A key without a value (null, or an empty text as in a form to fill in) gives nothing.
    """
    level: Level = {}
    for key, raw in tree.items():
        place = f"{prefix}.{key}" if prefix else str(key)
        found: Level = {}
        if place in _PLACES:
            if raw not in (None, ""):
                found = {_PLACES[place]: Given(raw, origin_of(place), base)}
        elif _below(place):
            if place == f"{BENCHMARK}.judge_model" and isinstance(raw, str):
                raw = {"id": raw}  # the id alone
            found = _take(_mapping(raw, origin_of(place)), place, origin_of, base, warnings)
        else:
            _meet_unknown(place, origin_of, warnings)
        for name in found.keys() & level.keys():
            raise SettingsError(
                f"{found[name].origin}: that is given by {level[name].origin} already"
            )
        level |= found
    return level


def _below(place: str) -> set[str]:
    """Return the keys that are known below a place."""
    prefix = f"{place}." if place else ""
    keys = {
        known.removeprefix(prefix).partition(".")[0]
        for known in _PLACES
        if known.startswith(prefix)
    }
    return keys | {"environments"} if not place else keys


def _meet_unknown(place: str, origin_of: Callable[[str], str], warnings: list[str]) -> None:
    prefix, _, key = place.rpartition(".")
    if prefix == BENCHMARK and key in _WITHOUT_EFFECT:
        warnings.append(_WITHOUT_EFFECT_WARNING)
        return
    if key in _INSTEAD:
        raise SettingsError(f"{origin_of(place)}: {key} {_INSTEAD[key]}")
    known = sorted(_below(prefix))
    hint = did_you_mean(key, known)
    # a file may be shared with other benchmarks
    if hint or prefix != "benchmarks":
        hint = hint or f"; there are: {', '.join(known)}"
        raise SettingsError(f"{origin_of(place)}: unknown key {key!r}{hint}")


def _mapping(value: Any, origin: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{origin}: has to be a mapping (key: value)")
    return value


def _models(
    section: Any, path: Path, document: Document, warnings: list[str]
) -> Iterator[tuple[str, Level]]:
    """Yield the entries of ``models``: a mapping by name, or a list with an ``id`` in each."""
    if isinstance(section, list):
        entries: Iterable[tuple[Any, Any]] = enumerate(section)
    else:
        entries = _mapping(section, f"{path.name} (models)").items()
    for step, entry in entries:

        def origin_of(place: str, step: Any = step) -> str:
            below = place.split(".")[2:]
            line = document.line("models", step, *below)
            return f"{path.name}:{line} ({'.'.join(['models', str(step), *below])})"

        fields = dict(_mapping(entry, origin_of("models.*")))
        name = fields.pop("name", None)
        model_id = fields.pop("id", None) or name or step
        if isinstance(section, dict):
            name = step
        if not isinstance(model_id, str):
            raise SettingsError(f"{origin_of('models.*')}: the model has no id, or it is not text")
        level = _take(fields, "models.*", origin_of, path.parent, warnings)
        level["model"] = Given(model_id, origin_of("models.*.id"), path.parent)
        yield str(name or model_id), level
