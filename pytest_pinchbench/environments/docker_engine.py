"""The Docker Engine that the ``docker`` command would use, and its errors in plain words."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from docker import APIClient, errors, utils
from docker.context import ContextAPI

from pytest_pinchbench.environments import is_loopback
from pytest_pinchbench.issues import EnvironmentUnavailable, PinchBenchError, SandboxFailure

OTHER_WAY = (
    "--pinchbench-env bubblewrap makes sandboxes without Docker (local runs the agent as you)"
)
ANSWER_TIMEOUT = 120
"""Seconds for one answer of the daemon; a busy one takes its time to make a container."""
FAULTS = (
    errors.DockerException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)
"""All that the SDK raises."""


class Engine:
    """``DOCKER_HOST``, or else the current context of the ``docker`` command.

    Connects when it is first needed. May be used from several threads.
    """

    def __init__(self) -> None:
        self._connecting = threading.Lock()
        self._api: APIClient | None = None

    @property
    def api(self) -> APIClient:
        with self._connecting:
            if self._api is None:
                with self.translated("", EnvironmentUnavailable):
                    self._api = APIClient(
                        version="auto", timeout=ANSWER_TIMEOUT, max_pool_size=100, **_connection()
                    )
            return self._api

    @cached_property
    def address(self) -> str:
        try:
            return str(_connection().get("base_url") or "unix:///var/run/docker.sock")
        except errors.DockerException:
            return "the current context"

    @cached_property
    def is_here(self) -> bool:
        """Whether the engine runs on this machine, as far as its address tells."""
        parts = urlsplit(self.address)
        return parts.scheme in ("unix", "http+unix", "npipe") or is_loopback(parts.hostname or "")

    @cached_property
    def is_podman(self) -> bool:
        with self.translated("", EnvironmentUnavailable):
            version: dict[str, Any] = self.api.version()
        parts = version.get("Components") or []
        return any(part.get("Name", "").startswith("Podman") for part in parts)

    @contextlib.contextmanager
    def translated(
        self, doing: str, kind: type[PinchBenchError] = SandboxFailure
    ) -> Iterator[None]:
        """Everything that the SDK raises becomes a ``kind``: what was done, why it failed."""
        try:
            yield
        except FAULTS as error:
            raise kind(": ".join(filter(None, [doing, self.explain(error)]))) from error

    def explain(self, error: BaseException) -> str:
        if isinstance(error, errors.APIError):
            return str(error.explanation or error).strip()
        causes = list(_causes(error))
        if any(isinstance(cause, PermissionError) for cause in causes):
            return (
                f"no permission to use the Docker daemon at {self.address}: add yourself to the "
                f"group docker (sudo usermod -aG docker $USER) and log in again; {OTHER_WAY}"
            )
        # a fault of TLS is a ConnectionError to requests, though somebody answered
        tls = any(isinstance(cause, requests.exceptions.SSLError) for cause in causes)
        gone = (ConnectionError, FileNotFoundError, requests.ConnectionError)
        if not tls and any(isinstance(cause, gone) for cause in causes):
            return (
                f"no Docker daemon answers at {self.address}: start it, or point DOCKER_HOST at "
                f"one that runs; {OTHER_WAY}"
            )
        return f"the Docker daemon at {self.address}: {error}"

    def find_image(
        self, name: str, *, pull: str, platform: str | None, say: Callable[[str], None]
    ) -> str:
        """The id of an image; ``pull`` is ``missing``, ``always`` or ``never``.

        Raises ``EnvironmentUnavailable``.
        """
        if pull == "always":
            self._pull(name, platform, say)
        with self.translated(f"image {name}", EnvironmentUnavailable):
            try:
                return self._inspect(name)
            except errors.NotFound:
                if pull == "never":
                    raise EnvironmentUnavailable(
                        f"the Docker daemon at {self.address} has no image {name}, and the recipe "
                        "says `pull: never`: pull or build it, or name another one with "
                        f"--pinchbench-image; {OTHER_WAY}"
                    ) from None
        self._pull(name, platform, say)
        with self.translated(f"image {name}", EnvironmentUnavailable):
            return self._inspect(name)

    def image_digest(self, image: str) -> str:
        """Return the image's digest in a registry, or ``local ID`` without one."""
        with self.translated(f"image {image}", EnvironmentUnavailable):
            found: dict[str, Any] = self.api.inspect_image(image)  # type: ignore[no-untyped-call]
        digests = sorted(name.partition("@")[2] for name in found.get("RepoDigests") or ())
        return digests[0] if digests else f"local {found['Id']}"

    def _inspect(self, image: str) -> str:
        found: dict[str, Any] = self.api.inspect_image(image)  # type: ignore[no-untyped-call]
        return str(found["Id"])

    def _pull(self, name: str, platform: str | None, say: Callable[[str], None]) -> None:
        repository, tag = utils.parse_repository_tag(name)
        say(f"pulling the image {name}")
        fault = None
        try:
            events = self.api.pull(
                repository, tag=tag or "latest", stream=True, decode=True, platform=platform
            )
            for event in _report(events, f"pulling the image {name}", say):
                fault = event.get("error", fault)
        except FAULTS as error:
            fault = self.explain(error)
        if fault:
            raise EnvironmentUnavailable(
                f"the image {name} cannot be pulled ({fault}). Check its name "
                "(--pinchbench-image); log in with `docker login` if its registry is private; "
                f"{OTHER_WAY}"
            )


def _report(
    events: Iterator[dict[str, Any]], doing: str, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Pass a pull's events on, and say every ten seconds how far it is."""
    layers: dict[str, tuple[int, int]] = {}
    said = time.monotonic()
    for event in events:
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            layers[event["id"]] = (detail["current"], detail["total"])
        if layers and time.monotonic() > said + 10:
            said = time.monotonic()
            done, total = (sum(sizes) >> 20 for sizes in zip(*layers.values(), strict=True))
            say(f"{doing}: {done} of {total} MB")
        yield event


def _connection() -> dict[str, Any]:
    """``base_url`` and ``tls`` of the engine, as far as they are not the SDK's defaults."""
    if os.environ.get("DOCKER_HOST"):
        return dict(utils.kwargs_from_env())
    context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
    if context is None or not context.Host:
        return {}
    return {"base_url": context.Host, **({"tls": context.TLSConfig} if context.TLSConfig else {})}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, and the errors that libraries hide in arguments."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        yield from (argument for argument in cause.args if isinstance(argument, BaseException))
        cause = cause.__cause__ or cause.__context__
