"""Keeping the judge's key out of everything that leaves the grader."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Iterable, List, Optional
from urllib.parse import quote

MASK = "[redacted]"
_SHORTEST = 4  # a shorter "secret" would blank half of every text
_DEEPEST = 30  # levels of JSON that are kept
_PLAIN_WORD = re.compile("[A-Za-z_]{1,15}")


class Redactor:
    """Replaces secrets in text and JSON values, in the spellings that servers echo."""

    def __init__(self, secrets: Iterable[Optional[str]]) -> None:
        found = set()
        for secret in secrets:
            if secret and len(secret) >= _SHORTEST:
                # also as JSON writes it inside a string, and as a URL holds it
                found |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
        # longest first: a secret that contains another one must not leave its tail
        self._secrets: List[str] = sorted(found, key=len, reverse=True)
        # "task" and "score" are somebody's placeholder for a key, and fields of ours
        self._in_names = [s for s in self._secrets if not _PLAIN_WORD.fullmatch(s)]

    def text(self, text: str) -> str:
        return _masked(text, self._secrets)

    def json(self, value: Any, depth: int = 0) -> Any:
        """The same JSON value, redacted, and such that any JSON writer can write it.

        Names in objects are redacted too, but for secrets that are plain words.
        """
        if isinstance(value, str):
            return _masked(value, self._secrets)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            return "(an integer of {} bits)".format(value.bit_length())
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


def _masked(text: str, secrets: List[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    # lone surrogates, which a judge's "\\ud800" makes, cannot be written as UTF-8
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def excerpt(text: str, length: int = 300) -> str:
    """The beginning of an (already redacted) text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length] + "..."
