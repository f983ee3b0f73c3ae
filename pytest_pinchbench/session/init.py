"""``pytest --pinchbench-init``: write a settings file from what the environment suggests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_pinchbench.settings.sources import CONFIG_FILE, config_folder


class _Model(NamedTuple):
    """An entry of ``models``."""

    name: str
    id: str
    base_url: str | None
    variable: str
    """The environment variable that holds the key."""
    protocol: str = "openai-chat"


# what the key variables of providers suggest to begin with
_PROVIDERS = (
    _Model(
        *("openrouter", "anthropic/claude-opus-4.5", "https://openrouter.ai/api/v1"),
        "OPENROUTER_API_KEY",
    ),
    _Model(
        *("anthropic", "claude-opus-4-5", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        "anthropic",
    ),
    _Model("openai", "gpt-5", "https://api.openai.com/v1", "OPENAI_API_KEY"),
)

_TEMPLATE = """\
# Settings of pytest --pinchbench, found beside the ini file. Keys are not in here: each model
# names the environment variable that holds its key. The command line and environment variables
# come before this file.

models:
  # The only entry is the default; among several, choose: --model NAME, or --model A --model B
  # to measure them side by side.
{models}
    # params: {{temperature: 0}}
    # price: {{input: 0.5, output: 1.5}}        # dollars a million tokens

benchmarks:
  pinchbench:
    suite: {suite}
    # The judge of llm_judge and hybrid tasks: always the same one for scores to be compared.
{judge}

execution:
  environment: {environment}
  # attempts: 3                               # three for a comparison, or a gate
  # retries: 2
  # budget_usd: 5
  # fail_under: 0.7
"""


def write_config(config: pytest.Config, environ: Mapping[str, str]) -> int:
    """Write the file beside the ini file, print its path, and return the exit code.

    Raises ``pytest.UsageError`` where there is such a file, or it cannot be written.
    """
    path = config_folder(config) / CONFIG_FILE
    models = [_entry(one, environ) for one in _models(environ)]
    judge = environ.get("JUDGE_MODEL_NAME")
    text = _TEMPLATE.format(
        models="\n".join([models[0], *(_commented(entry) for entry in models[1:])]),
        suite="all" if judge else "automated-only                     # all needs a judge",
        judge=_judge(environ) if judge else _commented(_judge({"JUDGE_MODEL_NAME": "judge-id"})),
        environment=_kind(environ),
    )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise pytest.UsageError(
            f"cannot write {path}: it exists. Remove it to begin anew"
        ) from None
    except OSError as error:
        raise pytest.UsageError(f"cannot write {path}: {error.strerror}") from None
    print(f"wrote {path}; next: pytest --pinchbench -k sanity")
    return 0


def _models(environ: Mapping[str, str]) -> Iterator[_Model]:
    if model := environ.get("MODEL_NAME"):
        yield _Model("default", model, environ.get("MODEL_BASE_URL"), "MODEL_API_KEY")
    yield from (one for one in _PROVIDERS if environ.get(one.variable))
    if host := environ.get("OLLAMA_HOST"):
        url = host if "://" in host else f"http://{host}"
        yield _Model("ollama", "qwen3:8b", f"{url.rstrip('/')}/v1", "OLLAMA_API_KEY")
    yield _Model("mine", "my-model", "http://localhost:8000/v1", "MODEL_API_KEY")


def _entry(model: _Model, environ: Mapping[str, str]) -> str:
    lines = [f"  {model.name}:", f"    id: {json.dumps(model.id)}"]
    if model.base_url:
        lines.append(f"    base_url: {json.dumps(model.base_url)}")
    lines.append(f"    {'' if environ.get(model.variable) else '# '}api_key_env: {model.variable}")
    if model.protocol != "openai-chat":
        lines.append(f"    api_protocol: {model.protocol}")
    return "\n".join(lines)


def _judge(environ: Mapping[str, str]) -> str:
    url = environ.get("JUDGE_MODEL_BASE_URL")
    lines = ["    judge_model:", f"      id: {json.dumps(environ['JUDGE_MODEL_NAME'])}"]
    lines.append(f"      {'' if url else '# '}base_url: {json.dumps(url or 'https://...')}")
    key = "" if environ.get("JUDGE_MODEL_API_KEY") else "# "
    return "\n".join([*lines, f"      {key}api_key_env: JUDGE_MODEL_API_KEY"])


def _commented(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return "\n".join(f"{line[:indent]}# {line[indent:]}" for line in text.splitlines())


def _kind(environ: Mapping[str, str]) -> str:
    """Return the safest kind of sandbox that this machine, or an account, offers."""
    if environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists():
        return "docker"
    for variable, kind in (("DAYTONA_API_KEY", "daytona"), ("MODAL_TOKEN_ID", "modal")):
        if environ.get(variable):
            return kind
    if sys.platform == "linux":
        from pytest_pinchbench.environments.bubblewrap import why_unusable

        return "local" if why_unusable() else "bubblewrap"
    return "docker"
