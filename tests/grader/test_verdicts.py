"""Reading a judge's answer: each shape that is accepted, and each that is not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pytest_pinchbench.grader.verdict import InvalidAnswer, parse

FULL = '{"scores": {"a": 0.5, "b": 1.0}, "total": 0.7, "notes": "Fair."}'
DRAFT = '{"scores": {"a": 0.1}, "total": 0.1, "notes": "A first look."}'

VALID: dict[str, tuple[str, float, dict[str, float], str]] = {
    "bare": (FULL, 0.7, {"a": 0.5, "b": 1.0}, "Fair."),
    "fenced": (f"```json\n{FULL}\n```", 0.7, {"a": 0.5, "b": 1.0}, "Fair."),
    "in prose": (f"Here it is: {FULL} I hope {{it}} helps.", 0.7, {"a": 0.5, "b": 1.0}, "Fair."),
    "in a list": (f"[{FULL}]", 0.7, {"a": 0.5, "b": 1.0}, "Fair."),
    "two equals: the last": (
        f"{DRAFT}\nOn reflection:\n{FULL}",
        0.7,
        {"a": 0.5, "b": 1.0},
        "Fair.",
    ),
    "a verdict, then something else": (
        FULL + ' {"confidence": 0.9}',
        0.7,
        {"a": 0.5, "b": 1.0},
        "Fair.",
    ),
    "a verdict, then a bare total": (FULL + '{"total": 0.2}', 0.7, {"a": 0.5, "b": 1.0}, "Fair."),
    "objects of one criterion, then a total": (
        '{"score": 0.1, "justification": "x"} {"total": 0.6} {"score": 0.2}',
        0.6,
        {},
        "",
    ),
    "a broken object, then a verdict": ('{"total": 0.1,} ' + '{"total": 0.6}', 0.6, {}, ""),
    "thinking in tags, then a verdict": (
        f"<think>{DRAFT}</think>{FULL}",
        0.7,
        {"a": 0.5, "b": 1.0},
        "Fair.",
    ),
    "thinking whose opening tag is in the template": (
        f"{DRAFT}\n</think>\n\n" + '{"total": 0.6}',
        0.6,
        {},
        "",
    ),
    "score": ('{"score": 0.6}', 0.6, {}, ""),
    "total.value": ('{"total": {"value": 0.5}}', 0.5, {}, ""),
    "scores as a list": (
        '{"scores": [0.5, 0.7]}',
        0.6,
        {"criterion 1": 0.5, "criterion 2": 0.7},
        "",
    ),
    "overall_score": ('{"overall_score": 0.6}', 0.6, {}, ""),
    "overall.score": (
        '{"overall": {"score": 0.6, "summary": "Good."}}',
        0.6,
        {},
        "Good.",
    ),
    "total before score": ('{"score": 0.1, "total": 0.6}', 0.6, {}, ""),
    "score before overall_score": ('{"overall_score": 0.1, "score": 0.6}', 0.6, {}, ""),
    "a total of null is none": ('{"total": null, "score": 0.6}', 0.6, {}, ""),
    "no total: the mean": ('{"scores": {"a": 0.5, "b": 1}}', 0.75, {"a": 0.5, "b": 1.0}, ""),
    "criteria_scores": ('{"criteria_scores": {"a": 0.5}}', 0.5, {"a": 0.5}, ""),
    "criteria_scores beside empty scores": (
        '{"scores": {}, "criteria_scores": {"a": 0.5}}',
        0.5,
        {"a": 0.5},
        "",
    ),
    "mappings with score": (
        '{"scores": {"a": {"score": 0.5, "weight": 9, "why": "x"}, "b": 0.7}}',
        0.6,
        {"a": 0.5, "b": 0.7},
        "",
    ),
    "numeric strings": (
        '{"scores": {"a": "0.5", "b": " 1.0 ", "c": {"score": ".25"}}, "total": "0.6"}',
        0.6,
        {"a": 0.5, "b": 1.0, "c": 0.25},
        "",
    ),
    "criterion1, criterion2": (
        '{"criterion1": {"score": 0.5}, "criterion2": {"score": 1.0}, "notes": "n"}',
        0.75,
        {"criterion1": 0.5, "criterion2": 1.0},
        "n",
    ),
    "justification": ('{"score": 0.6, "justification": "j"}', 0.6, {}, "j"),
    "reasoning": ('{"score": 0.6, "reasoning": "r"}', 0.6, {}, "r"),
    "notes before the others": ('{"score": 0.6, "reasoning": "r", "notes": "n"}', 0.6, {}, "n"),
    "notes that are a list": ('{"score": 0.6, "notes": ["a", "b"]}', 0.6, {}, '["a", "b"]'),
    "zero": ('{"total": 0}', 0.0, {}, ""),
    "minus zero": ('{"total": -0.0}', 0.0, {}, ""),
    "one": ('{"total": 1}', 1.0, {}, ""),
    "a criterion without a score beside a total": (
        '{"scores": {"a": 0.5, "b": null, "c": "good"}, "total": 0.5}',
        0.5,
        {"a": 0.5},
        "",
    ),
    "empty scores beside a total": ('{"scores": {}, "total": 0.5}', 0.5, {}, ""),
}


@pytest.mark.parametrize(("answer", "total", "scores", "notes"), VALID.values(), ids=VALID)
def test_accepted(answer: str, total: float, scores: dict[str, float], notes: str) -> None:
    verdict = parse(answer)
    assert (verdict.total, verdict.scores, verdict.notes) == (total, scores, notes)


INVALID = {
    "nothing": ("", "no text"),
    "blanks": (" \n", "no text"),
    "prose": ("Total: 0.72. Well done.", "no JSON object"),
    "a bare number": ("0.8", "no JSON object"),
    "a list of criteria": (
        '[{"criterion": "a", "score": 1.0},\n {"criterion": "b", "score": 0.2}]',
        "a list of scores, and no total",
    ),
    "only thinking": ("<think>maybe " + FULL, "no text"),
    "an unfinished object": ('{"total": 0.5', "ends in the middle of a JSON object"),
    "python, not JSON": ("{'total': 0.5}", "no JSON object"),
    "an object without scores": ('{"verdict": "good"}', "no total and no scores"),
    "empty": ("{}", "no total and no scores"),
    "total null and no scores": ('{"total": null, "scores": {}}', "no total and no scores"),
    "no total, and a criterion without score": (
        '{"scores": {"a": 0.5, "b": null}}',
        'no total, and no score for "b"',
    ),
    "no total, and a criterion in words": (
        '{"scores": {"a": 0.5, "b": "good"}}',
        'no total, and no score for "b"',
    ),
    "a total in words": ('{"total": "good"}', 'its total is not a number: "good"'),
    "a percentage": ('{"total": "85%"}', 'its total is not a number: "85%"'),
    "a fraction": ('{"total": "8/10"}', 'its total is not a number: "8/10"'),
    "a comma": ('{"total": "0,8"}', "its total is not a number"),
    "an object as total": ('{"total": {"points": 0.5}}', "its total is not a number"),
    "true": ('{"total": true}', "the total is true, not a number"),
    "false": ('{"scores": {"a": false}, "total": 0.5}', '"a" is false, not a number'),
    "a nested boolean": ('{"scores": {"a": {"score": true}}}', '"a" is true, not a number'),
    "NaN": ('{"total": NaN}', "the total is NaN, not a number from 0 to 1"),
    "NaN as text": ('{"total": "NaN"}', 'the total is "NaN", not a number from 0 to 1'),
    "infinity": ('{"total": Infinity}', "the total is Infinity"),
    "minus infinity": ('{"scores": {"a": -Infinity}, "total": 1}', '"a" is -Infinity'),
    "beyond all floats": ('{"total": 1e999}', "the total is Infinity"),
    "an int beyond all floats": ('{"total": 1' + "0" * 400 + "}", "not a number from 0 to 1"),
    "of a hundred": ('{"total": 85}', "the total is 85, not a number from 0 to 1"),
    "of ten, in a criterion": ('{"scores": {"a": 8}, "total": 0.8}', '"a" is 8, not a number'),
    "of ten, as text": ('{"scores": {"a": "8"}}', '"a" is "8", not a number from 0 to 1'),
    "just above 1": ('{"total": 1.0000001}', "the total is 1.0000001"),
    "negative": ('{"total": -0.1}', "the total is -0.1"),
    "valid total after an invalid one": ('{"total": 85, "score": 0.85}', "the total is 85"),
    "the last of equals is invalid": (FULL + FULL.replace("0.7", "70"), "the total is 70"),
    "very long": ("x" * 300_000 + FULL, "longer than 262144 characters"),
    "nested too deeply": ('{"total": ' * 20_000 + "1" + "}" * 20_000, "no JSON object"),
    "a criterion inside a broken object": (
        '{"scores": {"a": {"score": 0.9}}, "total": 0.5 and a bit}',
        "no JSON object",
    ),
    "a criterion inside an unfinished object": (
        '{"scores": {"a": {"score": 0.9}}, "total": 0.',
        "ends in the middle of a JSON object",
    ),
    "a draft, then an unfinished object": (
        DRAFT + " Better: " + FULL[:-5],
        "ends in the middle of a JSON object",
    ),
    "nothing but braces": ("{" * 200_000, "full of braces"),
}


@pytest.mark.parametrize(("answer", "words"), INVALID.values(), ids=INVALID)
def test_not_accepted(answer: str, words: str) -> None:
    with pytest.raises(InvalidAnswer, match=re.escape(words)):
        parse(answer)


@pytest.mark.parametrize("answer", [FULL, f"```json\n{FULL}\n```", f"Well: {FULL}"])
def test_a_cut_off_answer_that_ends_with_its_verdict_counts(answer: str) -> None:
    assert parse(answer, cut_off=True).total == 0.7


@pytest.mark.parametrize("answer", [DRAFT + " But on second", "I think that"])
def test_a_cut_off_answer_whose_verdict_was_still_to_come_does_not(answer: str) -> None:
    with pytest.raises(InvalidAnswer, match="cut off before its verdict was complete"):
        parse(answer, cut_off=True)


KEYS = (
    *("scores", "criteria_scores", "total", "score", "overall", "overall_score"),
    *("criterion1", "criterion-2", "notes", "summary", "a", "b"),
)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.floats(0, 1)
    | st.text(max_size=5)
    | st.sampled_from(["0.5", "1", "NaN", "50%", "-1", "1e5", "inf", "\uff10.\uff15"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(anything | st.text(), max_size=4), st.booleans())
@example([{"total": 0.5}, '{"total":'], True)
def test_fuzzed_answers_give_a_score_within_0_and_1_or_are_invalid(
    pieces: list[Any], cut_off: bool
) -> None:
    answer = " ".join(piece if isinstance(piece, str) else json.dumps(piece) for piece in pieces)
    try:
        verdict = parse(answer, cut_off=cut_off)
    except InvalidAnswer:
        return
    assert 0.0 <= verdict.total <= 1.0
    assert all(0.0 <= score <= 1.0 for score in verdict.scores.values())
    assert isinstance(verdict.notes, str)
