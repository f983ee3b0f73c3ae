"""What OpenClaw is told: its configuration file, its variables, its command line.

Releases refuse a configuration that has a key they do not know, so what is written depends on
the release. The borders below were found by trying 2026.3.22, 2026.5.2, 2026.7.1, 2026.8.2 and
2026.9.6; where a border is not known to the day, the older way is used up to the release that
was tried, since newer ones accept it too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pytest_pinchbench.settings import ModelSpec, Settings

AGENT = "pinchbench"
"""A constant: an id made from a model's would be changed or refused by OpenClaw (colons,
capitals, more than 64 characters), and two alike could be taken for each other."""
PROVIDER = "pinchbench"
KEY_VARIABLE = "PINCHBENCH_MODEL_API_KEY"
MAX_ARGUMENT = 128 * 1024 - 1
"""Bytes in one argument of a command; Linux's limit (MAX_ARG_STRLEN) without the final NUL."""

_APIS = {
    "openai-chat": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic-messages",
}
# The model may think for as long as the task's clock lets it; OpenClaw's own idle timeout
# (some 120 s) would end slow models long before.
_REQUEST_SECONDS = 24 * 3600

# As OpenClaw's plugins have them, where it is not the provider's name and _API_KEY alone.
_KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_HUB_TOKEN"),
    "kimi": ("KIMI_API_KEY", "KIMICODE_API_KEY"),
    "kimi-coding": ("KIMI_API_KEY", "KIMICODE_API_KEY"),
    "opencode": ("OPENCODE_API_KEY", "OPENCODE_ZEN_API_KEY"),
    "vercel-ai-gateway": ("AI_GATEWAY_API_KEY",),
    "zai": ("ZAI_API_KEY", "Z_AI_API_KEY"),
}
_BY_KEY_ONLY = {"anthropic", "google", "huggingface", "kimi", "kimi-coding", "opencode", "zai"}
_BY_KEY_ONLY |= {"openrouter", "openai", "mistral", "xai", "groq", "deepseek", "together"}
_BY_KEY_ONLY |= {"moonshot", "cerebras", "nvidia", "minimax"}

_WITH_MAX_TOKENS = ("z.ai", "mistral.ai", "chutes.ai", "moonshot.ai", "moonshot.cn", "together.xyz")
"""Hosts that OpenClaw sends ``max_tokens``, and not ``max_completion_tokens``."""

Version = tuple[int, ...]
_WITH_TIMEOUT: Version = (2026, 5, 2)
"""Releases before it break off requests that are silent for 120 s, whatever is configured."""
UNKNOWN: Version = (9999,)  # a development build: taken for newer than all others


def parse_version(text: str) -> Version:
    """``OpenClaw 2026.9.6 (eb377ac)`` -> ``(2026, 9, 6)``."""
    found = re.search(r"\b(\d{4})\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else UNKNOWN


def config_file(
    settings: Settings,
    version: Version,
    state: str,
    workspace: str,
    relayed_url: str | None = None,
    gateway: Mapping[str, Any] | None = None,
) -> bytes:
    """Return ``openclaw.json``. It names the variable that the key is in, never the key.

    ``relayed_url``: the endpoint behind the relay to which the model's base URL leads.
    ``gateway``: the section of that name.
    """
    model, base_url = settings.model, settings.model.base_url
    name = model.id if base_url is None else f"{PROVIDER}/{model.id}"
    about: dict[str, Any] = {"params": dict(model.params)} if model.params else {}
    called = name
    if base_url is not None and "@" in model.id:
        # "name@rest" would be taken for a model and a profile of credentials. Only then, since
        # the agent is told of aliases.
        called = about["alias"] = "model-under-test"
    config: dict[str, Any] = {
        "agents": {
            "defaults": {
                "model": {"primary": called},
                "models": {name: about},
                "workspace": workspace,
            },
            "list": [{"id": AGENT, "workspace": workspace, "model": called}],
        },
        # by default every attempt on a machine writes to one file below /tmp
        "logging": {"file": log_file(state)},
    }
    if settings.skip_bootstrap:
        config["agents"]["defaults"]["skipBootstrap"] = True
    if base_url is not None:
        provider = _provider(settings, base_url, version, relayed_url)
        config["models"] = {"mode": "merge", "providers": {PROVIDER: provider}}
        if _writes_substituted_keys(version):
            # A reference to a secret is first asked of a gateway: let it find none, and not
            # one that the user happens to run.
            config["gateway"] = {"port": 1}
    if gateway is not None:
        config["gateway"] = gateway
    # a path's bytes, which Python holds as surrogates where the locale is not UTF-8
    return json.dumps(config, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _provider(
    settings: Settings, base_url: str, version: Version, relayed_url: str | None
) -> dict[str, Any]:
    model = settings.model
    if model.api_protocol == "anthropic":  # this client adds /v1 by itself
        base_url = base_url.rstrip("/").removesuffix("/v1")
    provider: dict[str, Any] = {
        "baseUrl": base_url,
        "api": _APIS[model.api_protocol],
        "apiKey": f"${{{KEY_VARIABLE}}}",
        "models": [
            {
                "id": model.id,
                "name": model.id,
                "contextWindow": settings.context_window,
                "maxTokens": settings.max_tokens,
            }
        ],
    }
    compat = {name: value for name, value in model.compat.items() if name != "drop"}
    if relayed_url is not None and model.api_protocol == "openai-chat":
        compat = {**_compat(urlsplit(relayed_url).hostname or "", version), **compat}
    if settings.thinking not in (None, "off"):  # without these the level is not sent
        provider["models"][0]["reasoning"] = True
        compat = {"supportsReasoningEffort": True, **compat}
    if compat:
        provider["models"][0]["compat"] = compat
    if version >= _WITH_TIMEOUT:
        provider["timeoutSeconds"] = _REQUEST_SECONDS
    if _writes_substituted_keys(version):
        provider["apiKey"] = {"source": "env", "provider": "default", "id": KEY_VARIABLE}
    return provider


def _compat(host: str, version: Version) -> dict[str, Any]:
    """Return what OpenClaw derives from an endpoint's host, which it does not see behind the relay.

    Found by comparing the bodies that 2026.3.22 and 2026.9.6 send to ten hosts directly and through
    the relay. Releases before 2026.5.2 look for a host's name anywhere in the URL, and the relay's
    URL holds it; what they know by the host alone is written out for OpenAI.
    """
    if host == "api.openai.com":
        found = {"supportsUsageInStreaming": True, "supportsStrictMode": True}
        return found | ({"supportsStore": True} if version >= _WITH_TIMEOUT else {})
    if version < _WITH_TIMEOUT:
        return {}
    # a loopback URL is asked for usage, a host is not
    compat: dict[str, Any] = {"supportsUsageInStreaming": False}
    if any(host == one or host.endswith(f".{one}") for one in _WITH_MAX_TOKENS):
        compat["maxTokensField"] = "max_tokens"
    return compat


def _writes_substituted_keys(version: Version) -> bool:
    """2026.3.22 puts a key given as ``${VARIABLE}`` into a ``models.json``, in the open; a
    reference object it keeps as one."""
    return version < (2026, 5, 2)


def log_file(state: str) -> str:
    return f"{state}/openclaw.log"


def variables(settings: Settings, state: str) -> dict[str, str]:
    """What OpenClaw finds in its environment, beyond what the sandbox has."""
    model = settings.model
    found = {"OPENCLAW_STATE_DIR": state}
    if model.base_url is not None:
        # some servers want no key, but OpenClaw wants to send one
        found[KEY_VARIABLE] = model.api_key or "none"
    else:
        names = provider_key_variables(model)
        if model.api_key:
            found[names[0]] = model.api_key
        else:
            found |= {name: os.environ[name] for name in names if os.environ.get(name)}
    if settings.brave_api_key:
        found["BRAVE_API_KEY"] = settings.brave_api_key
    return found


def provider_key_variables(model: ModelSpec) -> tuple[str, ...]:
    """The variables in which OpenClaw looks for the key of a model that is named its own way."""
    provider = _provider_name(model)
    usual = re.sub(r"[^A-Z0-9]", "_", provider.upper()) + "_API_KEY"
    return _KEY_VARIABLES.get(provider, (usual,))


def missing_key(settings: Settings) -> str | None:
    """What to say where such a model has no key, or None where it has one."""
    names = provider_key_variables(settings.model)
    given = settings.model.api_key or any(
        os.environ.get(name) or settings.recipe.env.get(name) for name in names
    )
    if given or "/" not in settings.model.id:
        return None
    return (
        f"no key for {settings.model.id}: set {' or '.join(names)} (or MODEL_API_KEY); for an "
        "endpoint of your own, give --pinchbench-model-base-url"
    )


def works_by_key_only(model: ModelSpec) -> bool:
    """Whether a model that is named OpenClaw's own way can be reached in no other way."""
    return _provider_name(model) in _BY_KEY_ONLY


def _provider_name(model: ModelSpec) -> str:
    return model.id.partition("/")[0].lower()


def silence_limit(version: Version) -> float:
    """Return the seconds that a release waits for an answer's first byte, with a margin."""
    return _REQUEST_SECONDS if version >= _WITH_TIMEOUT else 90.0


def takes_message_file(version: Version) -> bool:
    """Whether a message can be given as a file, and so in any length and out of ``ps``."""
    return version >= (2026, 7, 1)


def turn_arguments(
    version: Version,
    session: str,
    prompt: str,
    timeout: float,
    thinking: str | None = None,
    local: bool = True,
) -> tuple[list[str], bytes]:
    """Arguments of ``openclaw`` for one turn, and what it gets on standard input."""
    arguments = ["agent", "--agent", AGENT, "--session-id", session]
    if local:
        arguments.append("--local")
    # Ours is the clock that counts; OpenClaw's is later than it in any case.
    arguments += ["--timeout", str(int(timeout) + 3600)]
    if thinking:
        arguments += ["--thinking", thinking]
    if takes_message_file(version):
        return [*arguments, "--message-file", "/dev/stdin"], prompt.encode()
    return [*arguments, f"--message={prompt}"], b""
