"""The one redactor: keeps secrets out of what leaves the grader, or is printed or saved."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from typing import Any, Iterable, List, Optional, Set
from urllib.parse import quote, quote_plus

MASK = "[redacted]"
_SHORTEST = 4  # a shorter "secret" ("x", "no") would blank half of every text
_SHORTEST_ENCODED = 8  # shorter ones would be found where they are not, and are hardly keys
_PLAIN_WORD = re.compile("[A-Za-z_]{1,15}")
_DEEPEST = 200  # levels of JSON that are kept; the arguments of a tool call may have many


class Redactor:
    """Replaces secrets in text and JSON values, in every spelling that programs write.

    Besides a secret as it is: as JSON, Python, HTML and URLs hold it, in hexadecimal, in
    base64 at any offset, and reversed.
    """

    def __init__(self, secrets: Iterable[Optional[str]]) -> None:
        found: Set[str] = set()
        for secret in secrets:
            for one in {secret or "", (secret or "").strip()}:  # a variable may end in a line break
                found |= _spellings(one)
        # longest first: a secret that contains another one must not leave its tail
        self._secrets: List[str] = sorted(found, key=len, reverse=True)
        # "task" and "score" are somebody's placeholder for a key, and fields of ours
        self._in_names = [s for s in self._secrets if not _PLAIN_WORD.fullmatch(s)]

    def text(self, text: str) -> str:
        return _masked(text, self._secrets)

    def found_in(self, data: bytes) -> bool:
        """Return whether ``data`` contains a secret in any spelling."""
        return any(secret.encode("utf-8", "surrogatepass") in data for secret in self._secrets)

    def json(self, value: Any, depth: int = 0) -> Any:
        """Return the JSON value, redacted, and such that any JSON writer can write it.

        What an agent or a judge wrote may hold NaN, huge integers, and nesting that ends in a
        RecursionError. Names in objects are redacted too, but for secrets that are plain words.
        """
        if isinstance(value, str):
            return self.text(value)
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


def _spellings(secret: str) -> Set[str]:
    if len(secret) < _SHORTEST:
        return set()
    data = secret.encode("utf-8", "surrogatepass")
    found = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr(secret + "'\"")[1:-4],  # within a text that holds both quotes
        html.escape(secret),
        html.escape(secret).replace("&#x27;", "&#39;"),
        html.escape(secret, quote=False),
    }
    for address in (quote(data, safe=""), quote(data), quote_plus(data)):
        found |= {address, re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), address)}
    if len(secret) >= _SHORTEST_ENCODED:
        found |= {secret[::-1], data.hex(), data.hex().upper()}
        for offset in range(3):
            # the first and the last character depend on the neighbours of the secret, too
            encoded = base64.b64encode(bytes(offset) + data)
            core = encoded[(0, 2, 3)[offset] : (offset + len(data)) * 8 // 6].decode("ascii")
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return found


def _masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    # lone surrogates, which a model's "\\ud800" makes, cannot be written as UTF-8
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def excerpt(text: str, length: int = 300) -> str:
    """Return the beginning of an (already redacted) text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length] + "..."
