"""The relay of a session: whether there is one, and what it is told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_pinchbench.attempt.line import reaches_relay
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.relay.client import RelayClient, RelayLost, RelayProcess
from pytest_pinchbench.results.records import cost_of
from pytest_pinchbench.session.fixtures import make_environment
from pytest_pinchbench.session.run import Run
from pytest_pinchbench.settings import ModelSpec

_SPENT = "spent.json"
_TELL_COST = ("openrouter.ai",)
"""Hosts whose answers say what they cost."""


def start_relay(run: Run) -> None:
    """Start the relay where the settings and the kind of sandbox want one, in the controller.

    It ends with pytest. Raises ``SettingsError``.
    """
    settings = run.settings
    if settings.relay == "no":
        return
    endpoints = {}
    if settings.model.base_url is not None and run.mode.agent_runs:
        endpoints["model"] = endpoint_of("model", settings.model, settings.model.params)
    if settings.judge is not None and settings.judge.base_url is not None:
        # the grader puts the judge's params into its requests
        endpoints["judge"] = endpoint_of("judge", settings.judge, {})
    if not endpoints:
        return
    environment = make_environment(run, settings)
    if not reaches_relay(environment):
        if settings.relay == "auto":
            run.say(
                f"without the model relay: sandboxes of kind {environment.kind} carry no streams"
            )
            return
        raise SettingsError(
            f"cannot use the relay: sandboxes of kind {environment.kind} carry no streams. "
            "--pinchbench-relay auto uses it where it can be"
        )
    if settings.budget_usd is not None and "model" in endpoints:
        _check_price(settings.model)
    assert run.directory is not None
    agent = run.mode.agent_runs
    of_records = sum(cost_of(record, agent=agent) for record in run.directory.records())
    process = RelayProcess(
        endpoints,
        concurrency=settings.model_concurrency,
        budget=settings.budget_usd,
        spent=max(of_records, _spent_before(run.directory.path / _SPENT)) if agent else of_records,
    )
    run.relay = RelayClient(process.port, process.admin)
    run.config.add_cleanup(partial(_end, process, run.relay, run.directory.path / _SPENT))


def _end(process: RelayProcess, relay: RelayClient, path: Path) -> None:
    """End the relay. Keep what was spent: an attempt that the budget cut has no record."""
    with contextlib.suppress(RelayLost, OSError):
        if (spent := relay.spent()) and path.parent.is_dir():
            path.write_text(json.dumps(spent), "utf-8")
    process.close()


def _spent_before(path: Path) -> float:
    try:
        return float(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return 0.0


def endpoint_of(role: str, spec: ModelSpec, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the relay is told of an endpoint."""
    drop = list(spec.compat.get("drop", ()))
    host = urlsplit(spec.base_url or "").hostname
    if (role, host, spec.api_protocol) == ("model", "api.openai.com", "openai-chat"):
        # what OpenClaw leaves out or adds when a URL is not the host's own: its ``compat`` has
        # no say in that
        params = {"store": False, **params}
        drop.append("tool_choice")
    return {
        "base_url": spec.base_url,
        "api_key": spec.api_key,
        "protocol": spec.api_protocol,
        "params": dict(params),
        "drop": drop,
        "price": dict(spec.price) or None,
    }


def _check_price(model: ModelSpec) -> None:
    """Raise ``SettingsError`` for a model whose requests a budget cannot count."""
    host = urlsplit(model.base_url or "").hostname
    if not model.price and host not in _TELL_COST:
        raise SettingsError(
            f"cannot keep --pinchbench-budget-usd: what {model.id} costs at {host} is not known. "
            "Give --pinchbench-model-price (`price` of the model in the YAML)"
        )
