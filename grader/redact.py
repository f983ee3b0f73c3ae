"""Keeping the judge's key out of everything that leaves the grader."""

from __future__ import annotations

import json
import math
from typing import Any, Iterable, List, Optional
from urllib.parse import quote

MASK = "[redacted]"
_SHORTEST = 4  # a shorter "secret" would blank half of every text
_DEEPEST = 30  # levels of JSON that are kept


class Redactor:
    """Replaces secrets in text and JSON values, in the spellings that servers echo."""

    def __init__(self, secrets: Iterable[Optional[str]]) -> None:
        found = set()
        for secret in secrets:
            if secret and len(secret) >= _SHORTEST:
                found |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
        # longest first: a secret that contains another one must not leave its tail
        self._secrets: List[str] = sorted(found, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def json(self, value: Any, depth: int = 0) -> Any:
        """The same JSON value, redacted, and such that any JSON writer can write it."""
        if isinstance(value, str):
            # lone surrogates, which a judge's "\\ud800" makes, cannot be written as UTF-8
            return self.text(value).encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            return "(an integer of {} bits)".format(value.bit_length())
        if isinstance(value, (dict, list)) and depth >= _DEEPEST:
            return "..."
        if isinstance(value, dict):
            return {self.json(str(key)): self.json(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(item, depth + 1) for item in value]
        return value


def excerpt(text: str, length: int = 300) -> str:
    """The beginning of an (already redacted) text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length] + "..."
