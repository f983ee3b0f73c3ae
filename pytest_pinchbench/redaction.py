"""The one place that keeps secrets out of what is printed or saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MASK = "[redacted]"
_SHORTEST = 4  # a shorter "secret" ("x", "no") would blank half of every text


class Redactor:
    """Replaces every secret value of a run in text and JSON values.

    Made once from the settings; everything that leaves the process (records, reports,
    messages, live output) goes through it.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        import json

        found: set[str] = set()
        for secret in secrets:
            if secret and len(secret) >= _SHORTEST:
                # also as JSON writes it inside a string, which is how it reaches most files
                found |= {secret, json.dumps(secret)[1:-1]}
        # longest first: a secret that contains another one must not leave its tail
        self._secrets = sorted(found, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def found_in(self, data: bytes) -> bool:
        """Whether any secret stands in ``data`` as it is."""
        return any(secret.encode() in data for secret in self._secrets)

    def json(self, value: Any) -> Any:
        """The same JSON value with every string, keys too, redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.json(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(item) for item in value]
        return value
