from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from harness_attempts import KEY

from pytest_pinchbench.harnesses.openclaw import config
from pytest_pinchbench.settings import Settings

BASE_URL = "http://model.example/v1"
NEW, OLD = (2026, 9, 6), (2026, 3, 22)


@pytest.fixture
def written(settings_for: Callable[..., Settings]) -> Callable[..., dict[str, Any]]:
    def write(
        *arguments: str, version: tuple[int, ...] = NEW, base_url: str | None = BASE_URL
    ) -> dict[str, Any]:
        settings = settings_for(*arguments)
        settings = replace(settings, model=replace(settings.model, base_url=base_url))
        content = config.config_file(settings, version, "/private/state", "/workspace/t")
        value: dict[str, Any] = json.loads(content)
        return value

    return write


def test_the_model_is_a_provider_of_ours(written: Callable[..., dict[str, Any]]) -> None:
    value = written(
        "--model=org/Some.Model:free",
        "--pinchbench-context-window=64000",
        "--pinchbench-max-tokens=4096",
        '--pinchbench-model-params={"temperature": 0.3}',
    )
    provider = value["models"]["providers"]["pinchbench"]
    assert provider["baseUrl"] == BASE_URL
    assert provider["models"] == [
        {
            "id": "org/Some.Model:free",
            "name": "org/Some.Model:free",
            "contextWindow": 64000,
            "maxTokens": 4096,
        }
    ]
    name = "pinchbench/org/Some.Model:free"
    agents = value["agents"]
    assert agents["defaults"]["model"] == {"primary": name}
    assert agents["defaults"]["models"] == {name: {"params": {"temperature": 0.3}}}
    assert agents["list"] == [{"id": "pinchbench", "workspace": "/workspace/t", "model": name}]


def test_a_name_that_openclaw_would_take_apart_is_called_by_an_alias(
    written: Callable[..., dict[str, Any]],
) -> None:
    agents = written("--model=claude@2024-v1")["agents"]
    alias = agents["defaults"]["models"]["pinchbench/claude@2024-v1"]["alias"]
    assert "@" not in alias
    assert agents["defaults"]["model"] == {"primary": alias}
    assert agents["list"][0]["model"] == alias


@pytest.mark.parametrize(
    ("protocol", "api"),
    [
        ("openai-chat", "openai-completions"),
        ("openai-responses", "openai-responses"),
        ("anthropic", "anthropic-messages"),
    ],
)
def test_protocols_have_openclaws_names(
    written: Callable[..., dict[str, Any]], protocol: str, api: str
) -> None:
    value = written(f"--pinchbench-model-api-protocol={protocol}")
    assert value["models"]["providers"]["pinchbench"]["api"] == api


@pytest.mark.parametrize(
    "url", ["http://host/proxy", "http://host/proxy/v1", "http://host/proxy/v1/"]
)
def test_an_anthropic_url_may_have_its_version_or_not(
    written: Callable[..., dict[str, Any]], url: str
) -> None:
    value = written("--pinchbench-model-api-protocol=anthropic", base_url=url)
    assert value["models"]["providers"]["pinchbench"]["baseUrl"] == "http://host/proxy"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_key_is_in_no_file(
    written: Callable[..., dict[str, Any]], version: tuple[int, ...]
) -> None:
    text = json.dumps(written(version=version))
    assert KEY not in text
    assert "PINCHBENCH_MODEL_API_KEY" in text


def test_a_key_that_an_older_release_would_write_down_is_a_reference(
    written: Callable[..., dict[str, Any]],
) -> None:
    older = written(version=OLD)["models"]["providers"]["pinchbench"]
    newer = written(version=(2026, 5, 2))["models"]["providers"]["pinchbench"]
    assert older["apiKey"]["source"] == "env"
    assert newer["apiKey"] == "${PINCHBENCH_MODEL_API_KEY}"


@pytest.mark.parametrize(
    ("version", "known"), [(OLD, False), ((2026, 5, 2), True), (NEW, True), (config.UNKNOWN, True)]
)
def test_a_slow_model_has_a_day_where_the_release_can_be_told(
    written: Callable[..., dict[str, Any]], version: tuple[int, ...], known: bool
) -> None:
    provider = written(version=version)["models"]["providers"]["pinchbench"]
    assert ("timeoutSeconds" in provider) is known


def test_without_a_url_the_model_is_openclaws_own(
    written: Callable[..., dict[str, Any]],
) -> None:
    value = written("--model=openrouter/anthropic/claude", base_url=None)
    assert "models" not in value
    assert value["agents"]["defaults"]["model"] == {"primary": "openrouter/anthropic/claude"}


def test_the_files_that_openclaw_seeds_can_be_left_out(
    written: Callable[..., dict[str, Any]],
) -> None:
    assert "skipBootstrap" not in written()["agents"]["defaults"]
    assert written("--pinchbench-skip-bootstrap")["agents"]["defaults"]["skipBootstrap"] is True


def test_the_log_is_the_attempts_own(written: Callable[..., dict[str, Any]]) -> None:
    assert written()["logging"]["file"].startswith("/private/state/")


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openrouter/anthropic/claude-x", "OPENROUTER_API_KEY"),
        ("anthropic/claude-x", "ANTHROPIC_API_KEY"),
        ("openai/gpt-x", "OPENAI_API_KEY"),
        ("google/gemini-x", "GEMINI_API_KEY"),
        ("some-provider/x", "SOME_PROVIDER_API_KEY"),
    ],
)
def test_the_key_goes_into_the_variable_that_the_provider_reads(
    settings_for: Callable[..., Settings], model: str, variable: str
) -> None:
    found = config.variables(settings_for(f"--model={model}"), "/state")
    assert found[variable] == KEY


def test_the_users_own_variable_is_passed_on_where_no_key_is_given(
    settings_for: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for("--model=openai/gpt-x")
    settings = replace(settings, model=replace(settings.model, api_key=None))
    monkeypatch.setenv("OPENAI_API_KEY", "the user's")
    assert config.variables(settings, "/state")["OPENAI_API_KEY"] == "the user's"


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("google/gemini-x", "GOOGLE_API_KEY"),
        ("anthropic/claude-x", "ANTHROPIC_OAUTH_TOKEN"),
        ("huggingface/x", "HUGGINGFACE_HUB_TOKEN"),
    ],
)
def test_the_other_variable_of_a_provider_is_passed_on_too(
    settings_for: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    variable: str,
) -> None:
    settings = settings_for(f"--model={model}")
    settings = replace(settings, model=replace(settings.model, api_key=None))
    monkeypatch.setenv(variable, "the user's")
    assert config.variables(settings, "/state")[variable] == "the user's"
    assert config.missing_key(settings) is None


def test_a_server_without_keys_gets_a_word_in_its_place(
    settings_for: Callable[..., Settings],
) -> None:
    settings = settings_for()
    settings = replace(settings, model=replace(settings.model, api_key=None, base_url=BASE_URL))
    assert config.variables(settings, "/state")["PINCHBENCH_MODEL_API_KEY"] == "none"


def test_the_search_key_is_passed_on(
    settings_for: Callable[..., Settings],
) -> None:
    settings = replace(settings_for(), brave_api_key="brave")
    assert config.variables(settings, "/state")["BRAVE_API_KEY"] == "brave"


@pytest.mark.parametrize(
    ("version", "host", "compat"),
    [
        (OLD, "api.mistral.ai", None),  # the relay's URL holds the host
        (OLD, "api.openai.com", {"supportsUsageInStreaming": True, "supportsStrictMode": True}),
        (NEW, "models.example.org", {"supportsUsageInStreaming": False}),
        (
            NEW,
            "api.mistral.ai",
            {"supportsUsageInStreaming": False, "maxTokensField": "max_tokens"},
        ),
    ],
)
def test_what_openclaw_derives_from_a_host_is_written_out_behind_the_relay(
    settings_for: Callable[..., Settings], version: tuple[int, ...], host: str, compat: Any
) -> None:
    settings = settings_for()
    here = replace(settings.model, base_url=f"http://127.0.0.1:1/{host}/v1")
    content = config.config_file(
        replace(settings, model=here), version, "/state", "/workspace", f"https://{host}/v1"
    )
    (model,) = json.loads(content)["models"]["providers"]["pinchbench"]["models"]
    assert model.get("compat") == compat


def test_compat_of_the_user_is_passed_on_but_for_what_is_the_relays(
    written: Callable[..., dict[str, Any]],
) -> None:
    given = '{"drop": ["store"], "supportsDeveloperRole": false}'
    value = written("--model=m", f"--pinchbench-model-compat={given}")
    (model,) = value["models"]["providers"]["pinchbench"]["models"]
    assert model["compat"] == {"supportsDeveloperRole": False}


def test_a_path_keeps_its_bytes_where_python_does_not_know_their_encoding(
    settings_for: Callable[..., Settings],
) -> None:
    """OpenClaw would work in a twin of the folder that is graded."""
    place = "/tmp/ünï".encode().decode("ascii", "surrogateescape")
    content = config.config_file(settings_for("--model=lab/m"), NEW, f"{place}/s", f"{place}/w")
    [agent] = json.loads(content.decode("utf-8"))["agents"]["list"]
    assert agent["workspace"] == "/tmp/ünï/w"
