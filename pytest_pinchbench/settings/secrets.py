"""Secrets that hide in other values: user and query of a URL, headers among parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

SECRET_NAME = re.compile(
    r"(^|[_-]|API)KEY$|(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE
)
"""Names (of variables, headers, query fields) whose values are taken for secrets."""


def url_secrets(url: str) -> list[str]:
    parts = urlsplit(url)
    found = [text for name, text in parse_qsl(parts.query) if SECRET_NAME.search(name)]
    if parts.password:
        found.append(parts.password)
    elif parts.username and parts.scheme.startswith("http"):
        found.append(parts.username)  # https://TOKEN@host/
    return found


def public_url(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def params_secrets(params: Any, name: str = "") -> Iterator[str]:
    """Texts below a name that is one of a secret: ``{"headers": {"Authorization": ...}}``."""
    if isinstance(params, Mapping):
        for key, value in params.items():
            yield from params_secrets(value, str(key))
    elif isinstance(params, list):
        for value in params:
            yield from params_secrets(value, name)
    elif isinstance(params, str) and SECRET_NAME.search(name):
        yield params.split()[-1] if params.split() else ""  # "Bearer KEY" is about the KEY


def environment_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that their names say are secrets."""
    return tuple(
        text
        for name, text in environ.items()
        # a short value is a switch (USE_TOKEN=true) rather than a secret
        if SECRET_NAME.search(name) and len(text) >= 8
    )
