"""Settings: where a value comes from, what is valid, and what an error says."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.settings_of import settings_of

from pytest_pinchbench import options as option_table
from pytest_pinchbench import settings as options
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.options import OPTIONS
from pytest_pinchbench.settings import ModelSpec, Settings
from pytest_pinchbench.settings.recipes import INSTALL_STRATEGIES

pytest_plugins = ("pytester",)

Resolve = Callable[..., Settings]


@pytest.fixture
def bare(pytester: pytest.Pytester) -> Resolve:
    """``bare(*options, environ)``: settings of a run that gives nothing by itself."""

    def bare(*arguments: str, environ: Mapping[str, str] | None = None) -> Settings:
        return settings_of(pytester, *arguments, environ=environ)

    return bare


@pytest.fixture
def resolve(bare: Resolve) -> Resolve:
    """``resolve(*options, environ)``: settings of a run that names the model m."""

    def resolve(*arguments: str, environ: Mapping[str, str] | None = None) -> Settings:
        return bare("--model=m", *arguments, environ=environ)

    return resolve


@pytest.fixture
def config_file(pytester: pytest.Pytester) -> Callable[[str], str]:
    """``config_file(text)``: the option that names a YAML file of that text."""

    def write(text: str) -> str:
        (pytester.path / "pb.yaml").write_text(text)
        return "--pinchbench-config=pb.yaml"

    return write


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SettingsError) as caught:
        call()
    return str(caught.value)


# -- the table --------------------------------------------------------------------------------


def test_every_option_of_the_table_is_in_the_help_with_its_default(
    pytester: pytest.Pytester,
) -> None:
    text = " ".join(pytester.runpytest("--help").stdout.str().split())
    for option in OPTIONS:
        assert f"--pinchbench-{option.name}" in text
        assert f"pinchbench_{option.key}" in text
    assert "run only the first N tasks (0: all) (default: 0)" in text
    assert "modal, a plugin's (default: docker)" in text


def test_the_options_people_are_promised_are_there() -> None:
    promised = """
        suite limit sample-ids skill-dir skill-repo-url skill-repo-tag data-dir params config
        list check
        model model-base-url model-api-key model-api-protocol model-params context-window
        max-tokens judge-model judge-base-url judge-api-key judge-api-protocol judge-params
        judge-timeout env recipe image workspace-root keep-environment openclaw-version
        openclaw-install openclaw-binary skip-bootstrap new-session attempts retries
        timeout-multiplier evaluation-timeout model-check judge-check results-dir resume compare
        fail-under pass-mark regrade keep-workspace transcript-limit judge-view check-timeout
        show-recipe merge compare-fail budget-usd keep-going
    """
    assert set(promised.split()) <= {option.name for option in OPTIONS}


def test_names_and_places_of_the_table_are_unique() -> None:
    names = [option.name for option in OPTIONS]
    places = [place for option in OPTIONS for place in option.yaml]
    assert len(set(names)) == len(names)
    assert len(set(places)) == len(places)


def test_every_default_of_the_table_is_valid() -> None:
    for option in OPTIONS:
        if option.default is not None:
            option.read(option.default, Path())


def test_the_choices_are_those_of_the_types() -> None:
    for protocol in typing.get_args(options.Protocol):
        option_table._PROTOCOL(protocol, Path())
    for strategy in INSTALL_STRATEGIES:
        option_table._INSTALL(strategy, Path())


def test_registering_the_options_loads_nothing_heavy() -> None:
    """Every pytest of a project that has the plugin installed imports this module."""
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import pytest_pinchbench.options\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "pytest_pinchbench",
        "pytest_pinchbench.options",
        "pytest_pinchbench.readers",
    ]


# -- defaults ---------------------------------------------------------------------------------


def test_defaults(resolve: Resolve, pytester: pytest.Pytester) -> None:
    settings = resolve()
    assert settings.model == ModelSpec("m")
    assert settings.suite == "all"
    assert (settings.limit, settings.sample_ids, settings.skill_dir) == (0, (), None)
    assert settings.skill_repo_url == "https://github.com/pinchbench/skill.git"
    assert settings.skill_repo_tag == "v1.1.0"
    assert settings.data_dir.name == "pytest-pinchbench"
    assert (settings.context_window, settings.max_tokens) == (250_000, 8192)
    assert (settings.judge, settings.judge_timeout) == (None, 360.0)
    assert settings.recipe.environment == "docker"
    assert settings.recipe.image == "ailabdocker/ac-openclaw:pinchbench-v1"
    assert (settings.harness, settings.openclaw_install) == ("openclaw", "auto")
    assert (settings.openclaw_version, settings.openclaw_binary) == (None, None)
    assert (settings.skip_bootstrap, settings.new_session) == (False, None)
    assert (settings.attempts, settings.retries, settings.timeout_multiplier) == (1, 0, 1.0)
    assert settings.evaluation_timeout is None
    assert (settings.model_check, settings.judge_check, settings.keep_going) == (True, True, False)
    assert settings.results_dir == pytester.path / "pinchbench-results"
    assert (settings.resume, settings.compare, settings.merge) == (None, (), ())
    assert (settings.regrade, settings.keep_workspace) == (None, True)
    assert (settings.fail_under, settings.pass_mark, settings.compare_fail) == (None, 1.0, None)
    assert (settings.check_timeout, settings.transcript_limit) == (120.0, 60_000)
    assert (settings.budget_usd, settings.keep_environment, settings.show_recipe) == (
        None,
        False,
        False,
    )
    assert settings.warnings == ()


# -- one value, five sources ------------------------------------------------------------------

FILE = "execution: {attempts: 4}\nbenchmarks: {pinchbench: {suite: from-file}}\n"
INI = "[pytest]\npinchbench_attempts = 3\npinchbench_suite = from-ini\n"


def test_command_line_then_environment_then_ini_then_file_then_default(
    resolve: Resolve, pytester: pytest.Pytester, config_file: Callable[[str], str]
) -> None:
    file = config_file(FILE)
    assert resolve(file).attempts == 4
    assert resolve(file).suite == "from-file"
    pytester.makeini(INI)
    assert resolve(file).attempts == 3
    assert resolve(file).suite == "from-ini"
    assert resolve(file, "--pinchbench-attempts=2").attempts == 2
    assert resolve(file, '--pinchbench-params={"suite": "from-params"}').suite == "from-params"
    both = resolve(
        file, '--pinchbench-params={"suite": "from-params"}', "--pinchbench-suite=from-option"
    )
    assert both.suite == "from-option"


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="native TOML came with pytest 9")
def test_native_toml_has_typed_values(resolve: Resolve, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        """
        [tool.pytest]
        pinchbench_limit = 1
        pinchbench_pass_mark = 0.5
        pinchbench_keep_workspace = false
        pinchbench_sample_ids = ["task_b", "task_a"]
        pinchbench_model_params = { temperature = 0.5 }
        pinchbench_skill_repo_tag = "v2"
        """
    )
    settings = resolve()
    assert (settings.limit, settings.pass_mark, settings.keep_workspace) == (1, 0.5, False)
    assert settings.sample_ids == ("task_b", "task_a")
    assert settings.model.params == {"temperature": 0.5}
    assert settings.skill_repo_tag == "v2"
    assert resolve("-o", "pinchbench_limit=3").limit == 3
    pytester.makepyprojecttoml("[tool.pytest]\npinchbench_limit = true\n")
    assert "limit has to be a whole number, not True" in refused(resolve)


def test_a_misspelt_ini_value_is_an_error(resolve: Resolve, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npinchbench_suit = all\n")
    message = refused(resolve)
    assert message.endswith("no setting 'pinchbench_suit', did you mean 'pinchbench_suite'?")


def test_an_environment_variable_counts_more_than_ini_and_less_than_an_option(
    bare: Resolve, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\npinchbench_model_base_url = http://ini\n")
    environ = {"MODEL_NAME": "from-env", "MODEL_BASE_URL": "http://env"}
    assert bare(environ=environ).model == ModelSpec("from-env", "http://env")
    options = ("--model=option", "--pinchbench-model-base-url=http://option")
    assert bare(*options, environ=environ).model == ModelSpec("option", "http://option")
    environ = {"MODEL_NAME": "from-env", "MODEL_BASE_URL": " "}
    assert bare(environ=environ).model == ModelSpec("from-env", "http://ini")


def test_params_in_the_ini_file_count_as_the_ini_file(
    resolve: Resolve, pytester: pytest.Pytester, config_file: Callable[[str], str]
) -> None:
    pytester.makeini('[pytest]\npinchbench_params = {"suite": "a", "limit": 5}\n')
    settings = resolve(config_file(FILE), "--pinchbench-limit=7")
    assert (settings.suite, settings.limit) == ("a", 7)


def test_the_bare_model_option_is_the_same_as_the_long_one(bare: Resolve) -> None:
    assert bare("--model", "a/b").model.id == "a/b"
    assert bare("--pinchbench-model", "a/b").model.id == "a/b"


def test_each_value_knows_its_source(
    bare: Resolve, pytester: pytest.Pytester, config_file: Callable[[str], str]
) -> None:
    pytester.makeini("[pytest]\npinchbench_retries = 1\n")
    origins = bare(
        config_file("\nexecution:\n  attempts: 2\n"),
        "--pinchbench-limit=1",
        '--pinchbench-params={"judge_model": {"id": "j"}}',
        environ={"MODEL_NAME": "m"},
    ).origins
    assert origins["limit"] == "--pinchbench-limit"
    assert origins["judge_model"] == "--pinchbench-params (judge_model.id)"
    assert origins["model"] == "environment variable MODEL_NAME"
    assert origins["retries"] == "tox.ini (pinchbench_retries)"
    assert origins["attempts"] == "pb.yaml:3 (execution.attempts)"
    assert origins["pass_mark"] == "default"


def test_paths_are_meant_from_where_they_are_written(
    resolve: Resolve,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    config_file: Callable[[str], str],
) -> None:
    pytester.makeini("[pytest]\npinchbench_data_dir = cache\n")
    config_file("execution: {results_dir: out}\n")
    below = pytester.mkdir("below")
    monkeypatch.chdir(below)
    monkeypatch.setenv("HOME", "/home/x")
    settings = resolve(
        "--pinchbench-config=../pb.yaml",
        "--pinchbench-regrade=runs/1",
        "--pinchbench-compare=~/a,b",
        "--pinchbench-compare=c",
    )
    assert settings.data_dir == pytester.path / "cache"
    assert settings.results_dir.resolve() == pytester.path / "out"
    assert settings.regrade == str(below / "runs/1")
    assert settings.compare == ("/home/x/a,b", str(below / "c"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("compare-fail=0.1",), "--pinchbench-compare-fail has nothing to compare with"),
        (
            ("merge=a", "resume=b"),
            "--pinchbench-merge and --pinchbench-resume contradict each other",
        ),
        (("merge=a", "regrade=b"), "--pinchbench-merge and --pinchbench-regrade contradict"),
    ],
)
def test_options_that_mean_nothing_together(
    resolve: Resolve, options: tuple[str, ...], message: str
) -> None:
    given = [f"--pinchbench-{option}" for option in options]
    assert message in refused(lambda: resolve(*given))


def test_a_standing_limit_on_a_drop_waits_for_a_comparison(
    resolve: Resolve, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\npinchbench_compare_fail = 0.1\n")
    assert resolve().compare_fail == 0.1


# -- what is valid ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("limit=-1", "--pinchbench-limit: limit has to be 0 or more, not -1"),
        ("limit=ten", "limit has to be a whole number, not 'ten'"),
        ("limit=1.5", "limit has to be a whole number, not '1.5'"),
        ("attempts=0", "attempts has to be 1 or more, not 0"),
        ("retries=-1", "retries has to be 0 or more, not -1"),
        ("context-window=0", "context_window has to be 1 or more, not 0"),
        ("max-tokens=0", "max_tokens has to be 1 or more, not 0"),
        ("transcript-limit=10", "transcript_limit has to be 1000 or more, not 10"),
        ("timeout-multiplier=0", "timeout_multiplier has to be more than 0, not '0'"),
        ("timeout-multiplier=nan", "has to be a finite number of 0 or more, not 'nan'"),
        ("judge-timeout=inf", "judge_timeout has to be a finite number of 0 or more, not 'inf'"),
        ("judge-timeout=soon", "judge_timeout has to be a number, not 'soon'"),
        ("check-timeout=0", "check_timeout has to be more than 0"),
        ("evaluation-timeout=-1", "evaluation_timeout has to be a finite number of 0 or more"),
        ("budget-usd=0", "budget_usd has to be more than 0"),
        ("fail-under=80", "fail_under has to be a finite number from 0 to 1, not '80'"),
        ("pass-mark=-0.1", "pass_mark has to be a finite number from 0 to 1"),
        ("compare-fail=2", "compare_fail has to be a finite number from 0 to 1"),
        ("model-check=maybe", "model_check has to be yes or no, not 'maybe'; before a path"),
        ("model-base-url=localhost:8000", "model_base_url has to be a URL that begins with http"),
        ("model-base-url=http://", "model_base_url has to be a URL"),
        ("model-base-url=http://h:port/v1", "model_base_url has to be a URL"),
        ("model-base-url=http://h/a b", "model_base_url has to be a URL"),
        (
            "model-base-url=http://u:p@h/v1/chat/completions/?key=k",
            "model_base_url has to end before /chat/completions: http://h/v1",
        ),
        ("model-base-url=http://h/v1/responses", "has to end before /responses: http://h/v1"),
        ("model-base-url=http://h/v1/messages", "has to end before /messages: http://h/v1"),
        ("model-api-protocol=openai", "has to be one of openai-chat, openai-responses, anthropic"),
        ("judge-api-protocol=antropic", "not 'antropic', did you mean 'anthropic'?"),
        ("openclaw-install=preinstall", "not 'preinstall', did you mean 'preinstalled'?"),
        ("openclaw-version=1; rm -rf", "openclaw_version has to be a version such as 2026.3.22"),
        ("openclaw-version=--registry=x", "openclaw_version has to be a version"),
        ("model-params=[1]", "model_params has to be a mapping"),
        ("model-params={", "model_params has to be a JSON object: "),
        ('model-params={"a": NaN}', "model_params holds a value that JSON does not have"),
        ("suite=,", "suite is empty"),
        ("image=", "--pinchbench-image: image is empty"),
        ("image=a b", "--pinchbench-image: image has to be text without spaces, not 'a b'"),
        ("workspace-root=work", "workspace_root has to be an absolute path inside the sandbox"),
        ("workspace-root=/a/../b", "workspace_root has to be an absolute path"),
        ("params=[]", "--pinchbench-params: params has to be a mapping"),
        ('params={"limit": -1}', "--pinchbench-params (limit): limit has to be 0 or more, not -1"),
        ("config=none.yaml", "--pinchbench-config: cannot read none.yaml: No such file"),
        ("results-dir=~nosuchuser/x", "results_dir names the home of an unknown user"),
        ("recipe=~nosuchuser/x", "recipe ~nosuchuser/x: names the home of an unknown user"),
        ("recipe=dokcer", "no recipe or environment called 'dokcer', did you mean 'docker'?"),
        (
            "env=vm",
            "no recipe or environment called 'vm'; there are: bubblewrap, daytona, docker, ",
        ),
    ],
)
def test_invalid_values_are_refused_with_a_reason(
    resolve: Resolve, option: str, message: str
) -> None:
    assert message in refused(lambda: resolve(f"--pinchbench-{option}"))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *((word, True) for word in ("yes", "true", "on", "1", "YES")),
        *((word, False) for word in ("no", "false", "off", "0", "No")),
    ],
)
def test_yes_and_no_have_many_names(resolve: Resolve, word: str, value: bool) -> None:
    assert resolve(f"--pinchbench-skip-bootstrap={word}").skip_bootstrap is value


def test_a_bare_switch_means_yes(resolve: Resolve) -> None:
    settings = resolve("--pinchbench-keep-environment", "--pinchbench-keep-going")
    assert settings.keep_environment
    assert settings.keep_going


def test_a_path_after_a_bare_switch_is_not_swallowed_silently(resolve: Resolve) -> None:
    message = refused(lambda: resolve("--pinchbench-keep-environment", "tasks/task_a.md"))
    assert "not 'tasks/task_a.md'; before a path, write =yes" in message


def test_a_trailing_slash_of_a_base_url_is_dropped(resolve: Resolve) -> None:
    assert resolve("--pinchbench-model-base-url=http://h/v1/").model.base_url == "http://h/v1"


def test_an_error_about_a_key_does_not_show_it(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    assert "sekrit" not in refused(lambda: resolve("--pinchbench-model-api-key=sekrit\nx"))
    file = config_file("harnesses: {openclaw: {brave_api_key: 123456}}\n")
    message = refused(lambda: resolve(file))
    assert message.endswith("brave_api_key has to be text; in YAML, put it in quotes")


def test_an_evaluation_deadline_is_multiplied_and_a_multiplier_alone_makes_none(
    resolve: Resolve,
) -> None:
    multiplier = "--pinchbench-evaluation-timeout-multiplier=1.5"
    assert resolve(multiplier).evaluation_timeout is None
    assert resolve(multiplier, "--pinchbench-evaluation-timeout=100").evaluation_timeout == 150.0


# -- the model --------------------------------------------------------------------------------


def test_no_model_says_how_to_give_one(bare: Resolve, config_file: Callable[[str], str]) -> None:
    message = refused(bare)
    assert message.startswith("no model to measure; give --model ID or set MODEL_NAME")
    file = config_file("models: {one: {}, two: {}}\n")
    assert refused(lambda: bare(file)).endswith("; pb.yaml has: one, two")


def test_where_the_project_has_a_model_option_the_long_one_is_named(
    bare: Resolve, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--model')")
    assert refused(bare).startswith("no model to measure; give --pinchbench-model ID")


@pytest.mark.parametrize(
    "option",
    ["--collect-only", "--pinchbench-merge=a", "--pinchbench-compare=a", "--pinchbench-regrade=a"],
)
def test_where_nothing_is_sent_to_a_model_none_is_needed(bare: Resolve, option: str) -> None:
    assert bare(option).model.id == ""


MODELS = """
models:
  fast:
    id: vendor/fast-1
    base_url: http://fast/v1
    api_key: fast-key
    params: {temperature: 0}
    context_window: 1000
  slow:
    api_protocol: anthropic
harnesses:
  openclaw: {context_window: 2000, max_tokens: 3000}
"""


@pytest.mark.parametrize("name", ["fast", "vendor/fast-1"])
def test_a_model_is_picked_from_the_file_by_name_or_id(
    bare: Resolve, config_file: Callable[[str], str], name: str
) -> None:
    settings = bare(config_file(MODELS), f"--model={name}")
    assert settings.model == ModelSpec(
        "vendor/fast-1", "http://fast/v1", "fast-key", "openai-chat", {"temperature": 0}
    )
    assert (settings.context_window, settings.max_tokens) == (1000, 3000)


def test_the_entry_is_the_file_so_that_anything_else_counts_more(
    bare: Resolve, config_file: Callable[[str], str]
) -> None:
    environ = {"MODEL_NAME": "fast", "MODEL_API_KEY": "env-key"}
    model = bare(config_file(MODELS), environ=environ).model
    assert (model.id, model.base_url, model.api_key) == (
        "vendor/fast-1",
        "http://fast/v1",
        "env-key",
    )


def test_a_model_that_is_not_in_the_file_is_taken_as_it_is(
    bare: Resolve, config_file: Callable[[str], str]
) -> None:
    settings = bare(config_file(MODELS), "--model=openrouter/x")
    assert (settings.model, settings.context_window) == (ModelSpec("openrouter/x"), 2000)


def test_a_misspelt_name_of_a_model_is_answered_with_the_nearest(
    bare: Resolve, config_file: Callable[[str], str]
) -> None:
    message = refused(lambda: bare(config_file(MODELS), "--model=fats"))
    assert "--pinchbench-model: there is no model 'fats' in pb.yaml, did you mean 'fast'" in message
    bare(config_file(MODELS), "--model=fats", "--pinchbench-model-base-url=http://fats/v1")


def test_models_may_be_a_list_and_the_only_one_needs_no_naming(
    bare: Resolve, config_file: Callable[[str], str]
) -> None:
    file = config_file("models:\n- id: only\n  base_url: http://h\n")
    assert bare(file).model == ModelSpec("only", "http://h")
    file = config_file("models:\n- {name: a, id: x}\n- {name: b, id: y}\n")
    assert bare(file, "--model=b").model == ModelSpec("y")


def test_a_model_entry_with_an_unknown_key_names_line_and_nearest(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    file = config_file("models:\n  fast:\n    base_ulr: http://h\n")
    message = refused(lambda: resolve(file))
    assert message == (
        "pb.yaml:3 (models.fast.base_ulr): unknown key 'base_ulr', did you mean 'base_url'?"
    )


# -- the judge --------------------------------------------------------------------------------

MODEL = {
    "MODEL_NAME": "m",
    "MODEL_BASE_URL": "http://model/v1",
    "MODEL_API_KEY": "model-key",
}


def test_the_judges_connection_is_that_of_the_model_field_by_field(bare: Resolve) -> None:
    protocol = "--pinchbench-model-api-protocol=anthropic"
    judge = bare("--pinchbench-judge-model=j", protocol, environ=MODEL).judge
    assert judge == ModelSpec("j", "http://model/v1", "model-key", "anthropic")
    judge = bare(
        "--pinchbench-judge-model=j",
        protocol,
        "--pinchbench-judge-base-url=http://judge",
        "--pinchbench-judge-api-protocol=openai-responses",
        '--pinchbench-judge-params={"temperature": 0}',
        environ={**MODEL, "JUDGE_MODEL_API_KEY": "judge-key"},
    ).judge
    assert judge == ModelSpec(
        "j", "http://judge", "judge-key", "openai-responses", {"temperature": 0}
    )


def test_the_models_params_are_not_the_judges(bare: Resolve) -> None:
    params = '--pinchbench-model-params={"temperature": 0}'
    judge = bare("--pinchbench-judge-model=j", params, environ=MODEL).judge
    assert judge is not None
    assert judge.params == {}


def test_the_models_key_goes_to_the_models_own_endpoint_only(bare: Resolve) -> None:
    def key(url: str) -> str | None:
        options = ("--pinchbench-judge-model=j", f"--pinchbench-judge-base-url={url}")
        judge = bare(*options, environ=MODEL).judge
        assert judge is not None
        return judge.api_key

    assert key("http://judge/v1") is None
    assert key(MODEL["MODEL_BASE_URL"]) == MODEL["MODEL_API_KEY"]


@pytest.mark.parametrize(
    "field", ['"base_url": "http://h"', '"api_key": "k"', '"api_protocol": "anthropic"']
)
def test_a_judge_without_an_id_is_refused(resolve: Resolve, field: str) -> None:
    message = refused(lambda: resolve(f'--pinchbench-params={{"judge_model": {{{field}}}}}'))
    assert "but no judge; give its id with --pinchbench-judge-model, JUDGE_MODEL_NAME" in message
    assert message.startswith("--pinchbench-params (judge_model.")


@pytest.mark.parametrize("empty", ["null", "{}", '""', '{"id": null, "api_key": ""}'])
def test_an_empty_judge_is_none(resolve: Resolve, empty: str) -> None:
    settings = resolve(
        f'--pinchbench-params={{"judge_model": {empty}}}',
        environ={"JUDGE_MODEL_NAME": "", "JUDGE_MODEL_API_KEY": ""},
    )
    assert settings.judge is None


@pytest.mark.parametrize("spelling", ['"j"', '{"id": "j"}'])
def test_a_judge_may_be_given_by_its_id_alone(resolve: Resolve, spelling: str) -> None:
    judge = resolve(f'--pinchbench-params={{"judge_model": {spelling}}}').judge
    assert judge == ModelSpec("j")


# -- the YAML file ----------------------------------------------------------------------------


def test_every_section_of_the_file_is_read(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    settings = resolve(
        config_file("""
            benchmarks:
              pinchbench:
                suite: [b, a]
                limit: 2
                sample_ids: [a]
                skill_repo_url: https://example.com/skill.git
                skill_repo_tag: v9
                judge_model: {id: j, base_url: "http://judge", api_key: key,
                              api_protocol: anthropic, params: {top_p: 1}}
                judge_timeout_seconds: 10
                transcript_limit: 2000
            harnesses:
              openclaw:
                version: 2026.9.6
                install_strategy: install_always
                binary: /opt/openclaw
                brave_api_key: brave
                context_window: 1000
                max_tokens: 100
                skip_bootstrap: true
                new_session: true
            environments:
              local:
                workspace_root: /var/tmp/pb
                env: {A: 1}
                pass_env: [B]
            execution:
              environment: local
              attempts: 2
              max_retries: 3
              timeout_multiplier: 2
              evaluation_timeout_seconds: 60
              evaluation_timeout_multiplier: 2
              keep_environment: yes
              model_check: no
              judge_check: no
              pass_mark: 0.5
        """)
    )
    assert settings.suite == ("b", "a")
    assert (settings.limit, settings.sample_ids) == (2, ("a",))
    assert settings.skill_repo_url == "https://example.com/skill.git"
    assert settings.skill_repo_tag == "v9"
    assert settings.judge == ModelSpec("j", "http://judge", "key", "anthropic", {"top_p": 1})
    assert (settings.judge_timeout, settings.transcript_limit) == (10, 2000)
    assert (settings.openclaw_version, settings.openclaw_install) == ("2026.9.6", "install_always")
    assert (settings.openclaw_binary, settings.brave_api_key) == ("/opt/openclaw", "brave")
    assert (settings.context_window, settings.max_tokens) == (1000, 100)
    assert (settings.skip_bootstrap, settings.new_session) == (True, True)
    assert settings.recipe.environment == "local"
    assert settings.recipe.workspace_root == "/var/tmp/pb"
    assert (settings.recipe.env, settings.recipe.pass_env) == ({"A": "1"}, ("B",))
    assert (settings.attempts, settings.retries) == (2, 3)
    assert (settings.timeout_multiplier, settings.evaluation_timeout) == (2, 120)
    assert (settings.keep_environment, settings.model_check, settings.judge_check) == (
        True,
        False,
        False,
    )
    assert settings.pass_mark == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("benchmark: {}", "pb.yaml:1 (benchmark): unknown key 'benchmark', did you mean 'benchm"),
        ("x: {}", "unknown key 'x'; there are: benchmarks, environments, execution, harnesses"),
        ("benchmarks:\n  pinchbnech: {}", "pb.yaml:2 (benchmarks.pinchbnech): unknown key"),
        ("benchmarks: {pinchbench: {limits: 1}}", "unknown key 'limits', did you mean 'limit'?"),
        ("harnesses: {opneclaw: {}}", "unknown key 'opneclaw', did you mean 'openclaw'?"),
        ("harnesses: {openclaw: {skip-bootstrap: 1}}", "did you mean 'skip_bootstrap'?"),
        ("environments: {dokcer: {}}", "pb.yaml:1 (environments.dokcer): unknown key 'dokcer'"),
        ("environments:\n  docker:\n    imgae: x", "pb.yaml:3: unknown key 'imgae', did you mean"),
        ("environments: {docker: [x]}", "pb.yaml:1: has to be a mapping"),
        ("execution: {atempts: 1}", "unknown key 'atempts', did you mean 'attempts'?"),
        ("execution: {task_concurrency: 4}", "pytest-xdist runs tasks side by side: pytest -n 4"),
        ("execution: [1]", "pb.yaml:1 (execution): has to be a mapping"),
        ("execution: {attempts: 2.5}", "pb.yaml:1 (execution.attempts): attempts has to be a whol"),
        ("execution: {attempts: yes}", "attempts has to be a whole number, not True"),
        ("- x", "pb.yaml: has to be a mapping"),
        ("a: [}", "pb.yaml:1: not valid YAML"),
        ("execution: {}\nexecution: {}", "pb.yaml:2: the key 'execution' is there twice"),
        ("models: {1: {}}", "pb.yaml:1 (models.1): the model has no id, or it is not text"),
        ("models: x", "pb.yaml (models): has to be a mapping"),
        (
            "execution: {timeout_multiplier: 1}\nbenchmarks: {pinchbench: {timeout_multiplier: 2}}",
            "pb.yaml:2 (benchmarks.pinchbench.timeout_multiplier): that is given by pb.yaml:1",
        ),
        (
            "benchmarks: {pinchbench: {judge_model: {id: j, key: x}}}",
            "unknown key 'key', did you mean 'api_key'?",
        ),
    ],
)
def test_mistakes_in_the_file_name_place_and_nearest(
    resolve: Resolve, config_file: Callable[[str], str], text: str, message: str
) -> None:
    file = config_file(text)
    assert message in refused(lambda: resolve(file))


def test_what_is_for_other_programs_in_a_shared_file_is_left_alone(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    resolve(
        config_file(
            "benchmarks: {gaia: {level: 1}}\nharnesses: {qwen: {x: 1}}\n"
            "environments: {host_process: {any: 1}}\nexecution:\n"
        )
    )


def test_another_harness_gets_the_section_under_its_own_name(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    file = config_file(
        "harnesses:\n  openclaw: {max_tokens: 7}\n"
        "  mine: {level: [1, 2], api_key: sekrit-of-mine}\n  none:\n"
    )
    settings = resolve(file, "--pinchbench-harness=mine")
    assert settings.harness_settings == {"level": [1, 2], "api_key": "sekrit-of-mine"}
    assert "sekrit-of-mine" in settings.secrets()
    assert "sekrit" not in json.dumps(settings.public())
    assert resolve(file).harness_settings == {}
    assert resolve(file, "--pinchbench-harness=none").harness_settings == {}
    wrong = config_file("\nharnesses: {mine: 2026-01-01}")
    message = refused(lambda: resolve(wrong, "--pinchbench-harness=mine"))
    assert message.startswith("pb.yaml:2 (harnesses.mine): has to be a mapping")


@pytest.mark.parametrize(
    "place",
    [
        '--pinchbench-params={"verifier_timeout_multiplier": 2}',
        "benchmarks: {pinchbench: {verifier_timeout_multiplier: 2}}",
        "execution: {verifier_timeout_multiplier: 2}",
    ],
)
def test_the_verifier_timeout_multiplier_says_what_to_set_instead(
    resolve: Resolve, config_file: Callable[[str], str], place: str
) -> None:
    option = place if place.startswith("--") else config_file(place)
    message = refused(lambda: resolve(option))
    assert "verifier_timeout_multiplier is not a setting; set judge_timeout_seconds" in message


def test_skill_parameters_do_nothing_and_say_once_what_does(
    resolve: Resolve, config_file: Callable[[str], str]
) -> None:
    settings = resolve(
        config_file("benchmarks: {pinchbench: {skill_dir: /x, sync_skill_dir: true}}"),
        '--pinchbench-params={"skill_package_url": "x", "skill_package_sha256": "y"}',
    )
    assert settings.skill_dir is None
    (warning,) = settings.warnings
    assert "have no effect as parameters; what does have one: --pinchbench-skill-dir" in warning
    assert "skill_repo_url with skill_repo_tag" in warning


@pytest.mark.parametrize("key", ["unknown", "judge_timeout", "models"])
def test_params_know_only_the_fields_of_the_benchmark(resolve: Resolve, key: str) -> None:
    message = refused(lambda: resolve(f'--pinchbench-params={{"{key}": 1}}'))
    assert message.startswith(f"--pinchbench-params ({key}): unknown key '{key}'")


# -- the sandbox ------------------------------------------------------------------------------


def test_the_strongest_source_that_names_a_sandbox_picks_it(
    resolve: Resolve, pytester: pytest.Pytester, config_file: Callable[[str], str]
) -> None:
    file = config_file("execution: {environment: daytona}\n")
    assert resolve(file).recipe.name == "daytona"
    pytester.makeini("[pytest]\npinchbench_recipe = modal\n")
    assert resolve(file).recipe.name == "modal"
    assert resolve(file, "--pinchbench-env=local").recipe.name == "local"


def test_a_sandbox_and_a_recipe_that_disagree_are_refused(resolve: Resolve) -> None:
    message = refused(lambda: resolve("--pinchbench-env=local", "--pinchbench-recipe=docker"))
    assert message == (
        "--pinchbench-env asks for local, but --pinchbench-recipe names the recipe docker,"
        " which is for docker; give only one of them"
    )
    resolve("--pinchbench-env=docker", "--pinchbench-recipe=docker")


def test_the_users_image_counts_more_than_recipe_and_file(
    resolve: Resolve, pytester: pytest.Pytester, config_file: Callable[[str], str]
) -> None:
    (pytester.path / "mine.yaml").write_text("environment: docker\nimage: from-recipe\n")
    recipe = "--pinchbench-recipe=mine.yaml"
    assert resolve(recipe).recipe.image == "from-recipe"
    file = config_file("environments: {docker: {image: from-file}}\n")
    assert resolve(recipe, file).recipe.image == "from-file"
    options = ("--pinchbench-image=mine", "--pinchbench-workspace-root=/w/")
    own = resolve(recipe, file, *options).recipe
    assert (own.image, own.workspace_root) == ("mine", "/w")
    assert own.origins["image"] == "--pinchbench-image"


# -- secrets, and the way to workers and records ----------------------------------------------

KEYS = {
    "MODEL_API_KEY": "sekrit-model",
    "JUDGE_MODEL_API_KEY": "sekrit-judge",
    "BRAVE_API_KEY": "sekrit-brave",
    "OPENROUTER_API_KEY": "sekrit-router",
    "GH_TOKEN": "sekrit-token",
}


@pytest.fixture
def loaded(resolve: Resolve, config_file: Callable[[str], str]) -> Settings:
    """Settings with a secret in every place that can hold one."""
    return resolve(
        config_file("environments: {docker: {env: {DB_PASSWORD: sekrit-env, PLAIN: plain}}}\n"),
        "--pinchbench-judge-model=j",
        "--pinchbench-model-base-url=http://user:sekrit-url@host/v1?key=sekrit-query&v=2",
        "--pinchbench-skill-repo-url=https://sekrit-user@host/skill.git",
        '--pinchbench-model-params={"headers": {"Authorization": "Bearer sekrit-header"}}',
        "--pinchbench-suite=b,a",
        "--pinchbench-compare=x",
        "--pinchbench-merge=x",
        environ={**KEYS, "USE_TOKEN": "true", "MONKEY": "banana-banana"},
    )


def test_every_secret_is_known(loaded: Settings) -> None:
    words = ["model", "judge", "brave", "router", "token", "env", "url", "query", "user", "header"]
    assert set(loaded.secrets()) == {f"sekrit-{word}" for word in words}


def test_what_is_saved_holds_no_secret(loaded: Settings) -> None:
    public = loaded.public()
    assert "sekrit" not in json.dumps(public)
    assert public["model"]["base_url"] == "http://host/v1"
    assert public["skill_repo_url"] == "https://host/skill.git"
    assert public["recipe"]["env"] == ["DB_PASSWORD", "PLAIN"]
    assert public["suite"] == "b,a"


def test_settings_print_no_api_key(loaded: Settings) -> None:
    for secret in KEYS.values():
        assert secret not in repr(loaded)


def test_a_worker_gets_the_same_settings(loaded: Settings) -> None:
    assert pickle.loads(pickle.dumps(loaded)) == loaded
