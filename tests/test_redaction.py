"""Secrets stay out of text and JSON."""

from __future__ import annotations

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
