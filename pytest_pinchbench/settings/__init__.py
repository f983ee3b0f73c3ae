"""Every option: where its value comes from, and the one frozen Settings.

A value is taken from the command line, else from the environment, the ini file, the YAML file
of ``--pinchbench-config``, or is the default that the table of options has for it.
"""

from __future__ import annotations

import dataclasses
import json
import warnings as python_warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_pinchbench.environments import Recipe
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.options import (
    BENCHMARK,
    OPTIONS,
    Option,
    only_looks,
    read_mapping,
    read_path,
    read_text,
)
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.spelling import nearest

if TYPE_CHECKING:
    import pytest

    from pytest_pinchbench.settings.recipes import Layer
    from pytest_pinchbench.settings.yaml_document import Document

__all__ = ["ModelSpec", "Protocol", "Settings", "resolve"]

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
    # grading
    check_timeout: float = 120.0
    """Seconds for the automated checks of one task."""
    judge_transcript_limit: int = 60_000
    """Characters of the transcript summary that the judge is shown."""
    regrade: str | None = None
    # what comes out
    keep_workspace: bool = True
    merge: tuple[Path, ...] = ()
    compare_fail: float | None = None
    # when to stop
    budget_usd: float | None = None
    sanity_stop: bool = True
    # about these settings
    show_recipe: bool = False
    warnings: tuple[str, ...] = ()
    """What the user should be told once, though nothing is wrong."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where each value comes from, by ini name without its prefix: ``model_base_url``."""
    environment_secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of the user's own environment variables that look like secrets by their names."""

    def secrets(self) -> tuple[str, ...]:
        """Every value that must never be printed or saved; for the ``Redactor``."""
        from pytest_pinchbench.settings.recipes import SECRET_NAME

        models = [self.model, *([self.judge] if self.judge else [])]
        urls = [self.skill_repo_url, *(model.base_url for model in models if model.base_url)]
        found = [
            self.brave_api_key,
            *(model.api_key for model in models),
            *(secret for url in urls for secret in _url_secrets(url)),
            *(secret for model in models for secret in _params_secrets(model.params)),
            *(text for name, text in self.recipe.env.items() if SECRET_NAME.search(name)),
            *self.environment_secrets,
        ]
        return tuple(dict.fromkeys(secret for secret in found if secret))

    def public(self) -> dict[str, Any]:
        """The settings as a JSON value without secrets, for the run's record."""
        value = self.to_json()
        for name in ("brave_api_key", "environment_secrets", "warnings", "origins"):
            del value[name]
        for model in (value["model"], value["judge"] or {}):
            model.pop("api_key", None)
            if model.get("base_url"):
                model["base_url"] = _public_url(model["base_url"])
        value["skill_repo_url"] = _public_url(self.skill_repo_url)
        value["recipe"]["env"] = sorted(self.recipe.env)
        del value["recipe"]["origins"]
        public: dict[str, Any] = Redactor(self.secrets()).json(value)
        return public

    def to_json(self) -> dict[str, Any]:
        """A JSON value **with secrets**, for :meth:`from_json` in an xdist worker."""
        value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Settings:
        given: dict[str, Any] = {
            key: tuple(item) if isinstance(item, list) else item for key, item in value.items()
        }
        recipe = given["recipe"]
        given |= {
            "model": ModelSpec(**given["model"]),
            "judge": ModelSpec(**given["judge"]) if given["judge"] else None,
            "recipe": Recipe(**{**recipe, "pass_env": tuple(recipe["pass_env"])}),
            "merge": tuple(Path(path) for path in given["merge"]),
        }
        for name in ("skill_dir", "data_dir", "results_dir"):
            given[name] = Path(given[name]) if given[name] else None
        return cls(**given)


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


class _Given(NamedTuple):
    """A value as its source has it."""

    raw: Any
    origin: str
    base: Path
    """What a relative path is meant from."""


_Level = dict[str, _Given]
"""All that one source gives, by the option's name."""


def resolve(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """The run's settings, validated. Raises ``SettingsError``.

    ``environ`` is the user's environment (``os.environ``).
    """
    from pytest_pinchbench.settings.recipes import SECRET_NAME

    warnings: list[str] = []
    levels = [
        _with_params(_from_command_line(config), warnings),
        _from_environment(config, environ),
        _with_params(_from_ini(config), warnings),
    ]
    file = _ConfigFile.read(_merge(levels).get("config"), warnings)
    levels += [file.model(_merge(levels).get("model")), file.level]
    given = _merge(levels)
    if "model" in given and "model" in levels[3]:
        given["model"] = levels[3]["model"]  # the entry's id, where its name was given
    if "data-dir" not in given:
        given["data-dir"] = _Given(_user_data_dir(), "default", Path())
    values = {option.key: _value(option, given, config) for option in OPTIONS}
    if not values["model"] and not _needs_no_model(config, values):
        # a project's own --model is none of ours
        option = "--pinchbench-model" if hasattr(config.option, "model") else "--model"
        raise SettingsError(
            f"no model to measure; give {option} ID or set MODEL_NAME"
            " (and --pinchbench-model-base-url and MODEL_API_KEY for an endpoint of your own)"
            + file.models_hint()
        )
    _refuse_contradictions(values, given)
    spec = ModelSpec(
        id=values["model"] or "",
        base_url=values["model_base_url"],
        api_key=values["model_api_key"],
        api_protocol=values["model_api_protocol"],
        params=values["model_params"] or {},
    )
    nowhere = spec.base_url is None and "/" not in spec.id and "model" not in levels[3]
    if nowhere and (hint := nearest(spec.id, file.models)):
        raise SettingsError(
            f"{given['model'].origin}: there is no model {spec.id!r} in {file.name}{hint}"
        )
    evaluation_timeout = values["evaluation_timeout"]
    if evaluation_timeout is not None:
        evaluation_timeout *= values["evaluation_timeout_multiplier"]
    plain = {
        name: values[name]
        for name in (entry.name for entry in dataclasses.fields(Settings))
        if name in values
    }
    special = {
        "sample_ids": values["sample_ids"] or (),
        "model": spec,
        "judge": _judge(spec, values, given, warnings),
        "recipe": _recipe(levels, file),
        "evaluation_timeout": evaluation_timeout,
        "compare": values["compare"] or (),
        "judge_transcript_limit": values["transcript_limit"],
        "merge": values["merge"] or (),
        "sanity_stop": not values["keep_going"],
        "warnings": tuple(dict.fromkeys(warnings)),
        "origins": {
            option.key: given[option.name].origin if option.name in given else "default"
            for option in OPTIONS
        },
        "environment_secrets": tuple(
            text
            for name, text in environ.items()
            # a short value is a switch (USE_TOKEN=true) rather than a secret
            if SECRET_NAME.search(name) and len(text) >= 8
        ),
    }
    return Settings(**{**plain, **special})


def _merge(levels: Iterable[_Level]) -> _Level:
    """What counts, given the levels from the strongest to the weakest."""
    merged: _Level = {}
    for level in levels:
        merged = {**level, **merged}
    return merged


def _value(option: Option, given: _Level, config: pytest.Config) -> Any:
    found = given.get(option.name)
    if found is None:
        if option.default is None:
            return None
        found = _Given(option.default, "default", config.invocation_params.dir)
    try:
        return option.read(found.raw, found.base)
    except ValueError as error:
        raise SettingsError(f"{found.origin}: {option.key} {error}") from None


def _user_data_dir() -> str:
    from platformdirs import user_data_dir

    return user_data_dir("pytest-pinchbench", appauthor=False)


def _needs_no_model(config: pytest.Config, values: Mapping[str, Any]) -> bool:
    reports = ("compare", "merge", "regrade", "show_recipe")
    return only_looks(config) or any(values[name] for name in reports)


def _refuse_contradictions(values: Mapping[str, Any], given: _Level) -> None:
    """Raises ``SettingsError`` for options that together mean nothing."""
    for name in ("regrade", "resume"):
        if values["merge"] and values[name]:
            raise SettingsError(
                f"--pinchbench-merge and --pinchbench-{name} are two different things to do;"
                " give one of them"
            )
    # as a standing setting it waits for a comparison
    origin = given["compare-fail"].origin if "compare-fail" in given else ""
    if origin.startswith("--") and not values["compare"]:
        raise SettingsError(
            f"{origin} has nothing to compare with; name the earlier run with --pinchbench-compare"
        )


def _judge(
    model: ModelSpec, values: Mapping[str, Any], given: _Level, warnings: list[str]
) -> ModelSpec | None:
    """The judge; its connection fields that are left out are those of the model under test."""
    fields = ("base_url", "api_key", "api_protocol", "params")
    if not values["judge_model"]:
        for name in fields:
            if values[f"judge_{name}"]:
                origin = given[f"judge-{name.replace('_', '-')}"].origin
                raise SettingsError(
                    f"{origin}: there is a judge {name} but no judge; give its id with"
                    " --pinchbench-judge-model, JUDGE_MODEL_NAME, or as id of judge_model"
                )
        return None
    judge = ModelSpec(
        id=values["judge_model"],
        base_url=values["judge_base_url"] or model.base_url,
        api_key=values["judge_api_key"] or model.api_key,
        api_protocol=values["judge_api_protocol"] or model.api_protocol,
        params=values["judge_params"] or {},
    )
    lent = judge.api_key and not values["judge_api_key"]
    if lent and judge.base_url and _host(judge.base_url) != _host(model.base_url or ""):
        warnings.append(
            f"the judge at {_host(judge.base_url)} is sent the API key of the model under test,"
            " since it has none of its own (JUDGE_MODEL_API_KEY)"
        )
    return judge


# The sources, from the strongest to the weakest.


def _from_command_line(config: pytest.Config) -> _Level:
    base = config.invocation_params.dir
    level: _Level = {}
    for option in OPTIONS:
        raw = config.getoption(f"pinchbench_{option.key}")
        if raw is not None:
            level[option.name] = _Given(raw, f"--pinchbench-{option.name}", base)
    return level


def _from_environment(config: pytest.Config, environ: Mapping[str, str]) -> _Level:
    level: _Level = {}
    for option in OPTIONS:
        for name in option.env:
            if environ.get(name, "").strip():
                origin = f"environment variable {name}"
                level[option.name] = _Given(environ[name], origin, config.invocation_params.dir)
                break
    return level


def _from_ini(config: pytest.Config) -> _Level:
    base = config.inipath.parent if config.inipath else config.invocation_params.dir
    file = config.inipath.name if config.inipath else "ini"
    _refuse_unknown_ini(config, file)
    level: _Level = {}
    for option in OPTIONS:
        raw = config.getini(f"pinchbench_{option.key}")
        if raw not in (None, ""):
            level[option.name] = _Given(raw, f"{file} (pinchbench_{option.key})", base)
    return level


def _refuse_unknown_ini(config: pytest.Config, file: str) -> None:
    """pytest itself only warns, at the end of a run that was another one than was meant."""
    with python_warnings.catch_warnings():
        python_warnings.simplefilter(
            "ignore"
        )  # newer pytests want no one to look, and have no other way
        names = [name for name in getattr(config, "inicfg", ()) if name.startswith("pinchbench_")]
    known = [f"pinchbench_{option.key}" for option in OPTIONS]
    for name in names:
        if name not in known:
            raise SettingsError(f"{file}: there is no setting {name!r}{nearest(name, known)}")


def _with_params(level: _Level, warnings: list[str]) -> _Level:
    """The level with the fields of its ``params``, over which its own options count."""
    if "params" not in level:
        return level
    raw, origin, base = level["params"]
    try:
        fields = read_mapping(raw, base)
    except ValueError as error:
        raise SettingsError(f"{origin}: params {error}") from None

    def origin_of(place: str) -> str:
        return f"{origin} ({place.removeprefix(f'{BENCHMARK}.')})"

    return {**_take(fields, BENCHMARK, origin_of, base, warnings), **level}


class _ConfigFile(NamedTuple):
    """The YAML file of ``--pinchbench-config``."""

    name: str
    level: _Level
    models: Mapping[str, _Level]
    """The entries of ``models``, by name."""
    environment: Callable[[str], Layer | None]
    """The section of ``environments`` for a kind."""

    @classmethod
    def read(cls, given: _Given | None, warnings: list[str]) -> _ConfigFile:
        """Raises ``SettingsError``. No file is as good as an empty one."""
        if given is None:
            return cls("", {}, {}, lambda kind: None)
        from pytest_pinchbench.settings.recipes import layer_of, recipe_names
        from pytest_pinchbench.settings.yaml_document import YamlError, parse

        try:
            path = read_path(given.raw, given.base)
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
        kinds = _mapping(tree.pop("environments", None), origin_of("environments"))
        for kind in kinds:
            if kind not in recipe_names() and (hint := nearest(kind, recipe_names())):
                raise SettingsError(f"{origin_of(f'environments.{kind}')}: unknown kind{hint}")

        def environment(kind: str) -> Layer | None:
            if kinds.get(kind) is None:
                return None
            return layer_of(document, path.name, ("environments", kind))

        level = _take(tree, "", origin_of, path.parent, warnings)
        return cls(path.name, level, models, environment)

    def model(self, wanted: _Given | None) -> _Level:
        """The entry of ``models`` for the model under test: the one it names, or the only one."""
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


def _recipe(levels: list[_Level], file: _ConfigFile) -> Recipe:
    """The recipe of the strongest source that names a recipe or a kind of environment."""
    from pytest_pinchbench.settings.recipes import Layer, load_recipe

    default: _Level = {"env": _Given("docker", "default", Path())}
    level = next((level for level in levels if "recipe" in level or "env" in level), default)
    named = level.get("recipe") or level["env"]
    try:
        source = read_text(named.raw, named.base)
    except ValueError as error:
        raise SettingsError(f"{named.origin}: the name of the sandbox {error}") from None
    given = _merge(levels)
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


# Trees of settings, from YAML or JSON.

_PLACES = {place: option.name for option in OPTIONS for place in option.yaml}


def _take(
    tree: Mapping[Any, Any],
    prefix: str,
    origin_of: Callable[[str], str],
    base: Path,
    warnings: list[str],
) -> _Level:
    """What the tree below the place ``prefix`` gives. Raises ``SettingsError``.

    A key without a value (null, or an empty text as in a form to fill in) gives nothing.
    """
    level: _Level = {}
    for key, raw in tree.items():
        place = f"{prefix}.{key}" if prefix else str(key)
        found: _Level = {}
        if place in _PLACES:
            if raw not in (None, ""):
                found = {_PLACES[place]: _Given(raw, origin_of(place), base)}
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
    """The keys that are known below a place."""
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
    hint = nearest(key, known)
    # other benchmarks and agents in a shared file are none of our business
    if hint or prefix not in ("benchmarks", "harnesses"):
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
) -> Iterator[tuple[str, _Level]]:
    """The entries of ``models``: a mapping by name, or a list with an ``id`` in each."""
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
            raise SettingsError(f"{origin_of('models.*')}: the model has no id, or it is no text")
        level = _take(fields, "models.*", origin_of, path.parent, warnings)
        level["model"] = _Given(model_id, origin_of("models.*.id"), path.parent)
        yield str(name or model_id), level


# Secrets that hide in other values.


def _url_secrets(url: str) -> list[str]:
    from urllib.parse import parse_qsl, urlsplit

    from pytest_pinchbench.settings.recipes import SECRET_NAME

    parts = urlsplit(url)
    found = [text for name, text in parse_qsl(parts.query) if SECRET_NAME.search(name)]
    if parts.password:
        found.append(parts.password)
    elif parts.username and parts.scheme.startswith("http"):
        found.append(parts.username)  # https://TOKEN@host/
    return found


def _public_url(url: str) -> str:
    """The URL without user, password and query."""
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).netloc.rpartition("@")[2]


def _params_secrets(params: Any, name: str = "") -> Iterator[str]:
    """Texts below a name that is one of a secret: ``{"headers": {"Authorization": ...}}``."""
    from pytest_pinchbench.settings.recipes import SECRET_NAME

    if isinstance(params, Mapping):
        for key, value in params.items():
            yield from _params_secrets(value, str(key))
    elif isinstance(params, list):
        for value in params:
            yield from _params_secrets(value, name)
    elif isinstance(params, str) and SECRET_NAME.search(name):
        yield params.split()[-1] if params.split() else ""  # "Bearer KEY" is about the KEY
