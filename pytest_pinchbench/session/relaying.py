"""The relay of a session: whether there is one, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_pinchbench.attempt.line import reaches_relay
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.relay.client import RelayProcess

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment
    from pytest_pinchbench.settings import ModelSpec, Settings


def start_relay(settings: Settings, environment: Environment, spent: float) -> RelayProcess | None:
    """Start the relay where the settings and the kind of sandbox want one.

    ``spent``: the dollars that the run has cost before. Raises ``SettingsError``.
    """
    if settings.relay == "no":
        return None
    if not reaches_relay(environment):
        if settings.relay == "auto":
            return None
        raise SettingsError(
            f"cannot use the relay: sandboxes of kind {environment.kind} carry no streams. "
            "--pinchbench-relay auto uses it where it can be"
        )
    endpoints = {}
    if settings.model.base_url is not None:
        endpoints["model"] = _endpoint(settings.model, settings.model.params)
    if settings.judge is not None and settings.judge.base_url is not None:
        # the grader puts the judge's params into its requests
        endpoints["judge"] = _endpoint(settings.judge, {})
    if not endpoints:
        return None
    return RelayProcess(
        endpoints,
        concurrency=settings.model_concurrency,
        budget=settings.budget_usd,
        spent=spent,
    )


def _endpoint(spec: ModelSpec, params: Any) -> dict[str, Any]:
    return {
        "base_url": spec.base_url,
        "api_key": spec.api_key,
        "protocol": spec.api_protocol,
        "params": dict(params),
        "drop": list(spec.compat.get("drop", ())),
        "price": dict(spec.price) or None,
    }
