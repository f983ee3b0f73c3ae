"""The one place that keeps secrets out of what is printed or saved."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

MASK = "[redacted]"
_SHORTEST = 4  # a shorter "secret" ("x", "no") would blank half of every text
_PLAIN_WORD = re.compile("[A-Za-z_]{1,15}")
_DEEPEST = 200  # levels of JSON that are kept; the arguments of a tool call may have many


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
                # also as JSON writes it inside a string, and as a URL holds it
                found |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
        # longest first: a secret that contains another one must not leave its tail
        self._secrets = sorted(found, key=len, reverse=True)
        # "task" and "score" are somebody's placeholder for a key, and fields of ours
        self._in_names = [s for s in self._secrets if not _PLAIN_WORD.fullmatch(s)]

    def text(self, text: str) -> str:
        return _masked(text, self._secrets)

    def found_in(self, data: bytes) -> bool:
        """Whether any secret stands in ``data`` as it is."""
        return any(secret.encode() in data for secret in self._secrets)

    def json(self, value: Any, depth: int = 0) -> Any:
        """The same JSON value, redacted, and such that any JSON writer can write it: what an
        agent wrote may hold NaN, huge integers, and nesting that ends in a RecursionError.

        Names in objects are redacted too, but for secrets that are plain words.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            return f"(an integer of {value.bit_length()} bits)"
        if isinstance(value, (dict, list, tuple)) and depth >= _DEEPEST:
            return "..."
        if isinstance(value, dict):
            return {
                _masked(str(key), self._in_names): self.json(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.json(item, depth + 1) for item in value]
        return value


def _masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return text
