"""Secrets stay out of text and JSON."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest

from pytest_pinchbench.redaction import MASK, Redactor


def test_a_secret_is_masked_wherever_it_stands():
    redactor = Redactor(["sk-secret", None, ""])
    assert redactor.text("key sk-secret!") == f"key {MASK}!"
    assert redactor.json({"a": ["sk-secret", 1, None], "sk-secret": True}) == {
        "a": [MASK, 1, None],
        MASK: True,
    }


def test_a_secret_within_a_secret_leaves_no_tail():
    assert Redactor(["sk-1234", "sk-1234-5678"]).text("sk-1234-5678") == MASK


def test_a_secret_is_known_in_its_json_form_too():
    assert "quo" not in Redactor(['sk-"quo"']).text('{"key": "sk-\\"quo\\""}')


def test_a_word_too_short_to_be_a_secret_blanks_nothing():
    assert Redactor(["no"]).text("no, none") == "no, none"


KEY = "sk-proj-ünder/+<&'x>9f3A7qZ"
"""Every spelling of it differs from every other one."""

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda key: json.dumps(key, ensure_ascii=False),
    "Python": repr,
    "Python, in double quotes": lambda key: repr(f'"{key}"'),
    "HTML": html.escape,
    "HTML text": lambda key: html.escape(key, quote=False),
    "HTML of old browsers": lambda key: html.escape(key).replace("&#x27;", "&#39;"),
    "URL": lambda key: quote(key, safe=""),
    "path of a URL": quote,
    "URL with small letters": lambda key: re.sub(
        "%..", lambda code: code[0].lower(), quote(key, safe="")
    ),
    "hexadecimal": lambda key: key.encode().hex(),
    "HEXADECIMAL": lambda key: key.encode().hex().upper(),
    "reversed": lambda key: key[::-1],
    **{
        f"base64 after {offset} bytes": lambda key, offset=offset: base64.b64encode(  # type: ignore[misc]
            b"k=:"[:offset] + key.encode() + b"\n"
        ).decode()
        for offset in range(4)
    },
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(b"u:" + key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_masked_in_every_spelling(spelling: str) -> None:
    written = SPELLINGS[spelling](KEY)
    redactor = Redactor([KEY])
    masked = redactor.text(f"before {written} after")
    left = masked.removeprefix("before ").removesuffix(" after")
    assert MASK in left
    # at most two characters at each side, which the neighbours share
    assert len(left) <= len(MASK) + 8
    assert redactor.found_in(b"x" + written.encode() + b"y")


def test_other_text_in_these_encodings_is_left_alone() -> None:
    redactor = Redactor([KEY])
    for write in SPELLINGS.values():
        other = write("The quick brown fox jumps, and 'nothing' is <secret> & odd.")
        assert redactor.text(other) == other


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_a_secret_with_a_line_break_at_its_end_is_known_without_it(end: str) -> None:
    assert Redactor([f"sk-12345678{end}"]).text("(sk-12345678)") == f"({MASK})"


def test_a_short_secret_is_masked_as_it_is_only() -> None:
    assert Redactor(["abcd"]).text("abcd dcba 61626364") == f"{MASK} dcba 61626364"
