"""Reading a judge's answer. The rules stand in docs/explanation/scores.md.

An answer that breaks them is invalid: it is never repaired, rescaled or clamped, since a
guess would show up as a score of the model that is being judged.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

LONGEST_ANSWER = 1 << 18  # characters; the longest verdicts are a hundredth of it
_MOST_BROKEN = 200  # things in braces that are not JSON; prose and code have some
_MOST_READ = 8 * LONGEST_ANSWER  # characters, in the search for the ends of all of those
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_OPENING = re.compile(r'\{\s*"')
_ROUNDED = 0.01  # judges round their totals
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_CRITERION = re.compile(r"criterion[\s_-]?\d+", re.IGNORECASE | re.ASCII)


class InvalidAnswer(Exception):
    """The judge's answer has no score that can be used; the message says why."""


class Verdict(NamedTuple):
    total: float
    scores: Dict[str, float]
    notes: str
    parsed: Dict[str, Any]  # the object as the judge wrote it
    warnings: Tuple[str, ...] = ()


def parse(answer: str, *, cut_off: bool = False) -> Verdict:
    """The verdict in a judge's answer. Raises :class:`InvalidAnswer`.

    ``cut_off`` says that the endpoint stopped the judge in mid-answer: unless its last words
    were the verdict, the real one may have been still to come.
    """
    answer = _without_thinking(answer)
    if not answer.strip():
        raise InvalidAnswer("it has no text")
    if len(answer) > LONGEST_ANSWER:
        raise InvalidAnswer("it is longer than {} characters".format(LONGEST_ANSWER))
    try:
        objects, rest, listed = _objects(answer)
    except InvalidAnswer:
        if not cut_off:
            raise
        objects, rest, listed = [], "", False
    if cut_off and (not objects or rest.strip("` \n")):
        raise InvalidAnswer(
            "it was cut off before its verdict was complete, at its limit of tokens; give more "
            "with max_tokens among the judge's params"
        )
    if not objects:
        raise InvalidAnswer("it has no JSON object")
    best = max(reversed(objects), key=_likeness)  # max() gives the first among equals
    if listed and _likeness(best) <= 1:
        raise InvalidAnswer("it is a list of scores, and no total")
    try:
        return _verdict(best)
    except RecursionError:
        raise InvalidAnswer("its JSON object is nested too deeply") from None


def _without_thinking(answer: str) -> str:
    """The text after the reasoning that some servers leave in it, in <think> tags.

    What a judge tried out while thinking is not its verdict.
    """
    _, closed, rest = answer.rpartition("</think>")
    if closed and "{" in rest:
        return rest
    if not closed and answer.lstrip().startswith("<think>"):
        return ""
    return answer


def _objects(text: str) -> Tuple[List[Dict[str, Any]], str, bool]:
    """The outermost JSON objects, in order, the text after the last of them, and whether
    some follow each other as the elements of a list do.

    An object inside a broken one is not a verdict: it may be a single criterion's.
    """
    decoder = json.JSONDecoder(strict=False)  # raw line breaks in strings are JSON enough
    for whole in (text, _whole_fence(text)):
        try:
            value, end = decoder.raw_decode(whole.strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and end == len(whole.strip()):
            return [value], "", False
    found: List[Dict[str, Any]] = []
    rest = text
    broken = read = 0
    listed = False
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            listed = listed or (bool(found) and text[len(text) - len(rest) : start].strip() == ",")
            found.append(value)
            rest = text[end:]
        except (ValueError, RecursionError):
            broken += 1
            closing = _closing(text, start)
            if closing is None and _OPENING.match(text, start):
                raise InvalidAnswer("it ends in the middle of a JSON object") from None
            read += (closing or len(text)) - start
            if broken > _MOST_BROKEN or read > _MOST_READ:
                raise InvalidAnswer("it is full of braces that are not JSON") from None
            end = closing or start + 1
        start = text.find("{", end)
    return found, rest, listed


def _whole_fence(text: str) -> str:
    """The inside of an answer that is one fenced block, else nothing."""
    match = re.fullmatch(r"\s*(`{3,}|~{3,})[^\n]*\n(.*)\n\s*\1\s*", text, re.DOTALL)
    return match.group(2) if match else ""


def _closing(text: str, start: int) -> Optional[int]:
    """The end of what is opened by the brace at ``start``, JSON or not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    return None


def _likeness(value: Dict[str, Any]) -> int:
    """How much an object looks like a verdict: criteria and a total, a total, criteria, ..."""
    name, total = _total(value)
    if _criteria(value):
        return 4 if total is not None else 2
    if total is None:
        return 0
    return 1 if name == "score" else 3


def _criteria(value: Dict[str, Any]) -> Dict[str, Any]:
    """The criteria by name: numbers, or mappings with ``score`` or ``value``."""
    for key in ("scores", "criteria_scores", "criterion_scores"):
        given = value.get(key)
        if isinstance(given, dict) and given:
            return dict(given)
        if isinstance(given, list) and given:
            return {_name(item, place): item for place, item in enumerate(given, 1)}
    return {
        key: item
        for key, item in value.items()
        if _CRITERION.match(key) and isinstance(item, (dict, int, float, str))
    }


def _name(item: Any, place: int) -> str:
    named = item if isinstance(item, dict) else {}
    for key in ("criterion", "name", "id"):
        if isinstance(named.get(key), str) and named[key]:
            return "{}. {}".format(place, named[key])
    return "criterion {}".format(place)


def _given(item: Any) -> Any:
    """What stands where a criterion's score belongs."""
    if not isinstance(item, dict):
        return item
    return item["score"] if item.get("score") is not None else item.get("value")


def _verdict(value: Dict[str, Any]) -> Verdict:
    scores: Dict[str, float] = {}
    weights: List[float] = []
    unscored: List[str] = []
    for key, item in _criteria(value).items():
        score = _score(_given(item), key)
        if score is None:
            unscored.append(key)
            continue
        scores[key] = score
        weight = item.get("weight") if isinstance(item, dict) else None
        if isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0 <= weight < 1e9:
            weights.append(float(weight))
    given = _total(value)[1]
    mean = math.fsum(scores.values()) / len(scores) if scores else 0.0
    if given is None:
        if not scores:
            raise InvalidAnswer("it has no total and no scores")
        if unscored:  # a mean over the others would be a guess
            raise InvalidAnswer(
                "it has no total, and no score for " + ", ".join(map(_show, unscored[:5]))
            )
        if len(weights) == len(scores) and sum(weights) > 0:
            mean = math.fsum(s * w for s, w in zip(scores.values(), weights)) / sum(weights)  # noqa: B905
        return Verdict(mean, scores, _notes(value), value)
    if _is_sum(given, list(scores.values())) and not unscored:
        text = "the judge's total {} is the sum of its {} scores; their mean {:.3g} counts"
        warning = text.format(_show(given), len(scores), mean)
        return Verdict(mean, scores, _notes(value), value, (warning,))
    total = _score(given, "the total")
    if total is None:
        raise InvalidAnswer("its total is not a number: {}".format(_show(given)))
    warnings: Tuple[str, ...] = ()
    lowest, highest = min(scores.values(), default=0.0), max(scores.values(), default=1.0)
    if not lowest - _ROUNDED <= total <= highest + _ROUNDED:
        text = "the judge's total {:.3g} is outside the range of its scores, {:.3g} to {:.3g}"
        warnings = (text.format(total, lowest, highest),)
    return Verdict(total, scores, _notes(value), value, warnings)


def _is_sum(given: Any, scores: List[float]) -> bool:
    """Whether a total is the sum of two or more scores, and larger than each of them."""
    if isinstance(given, bool) or len(scores) < 2:
        return False
    try:
        total = float(given)
    except (TypeError, ValueError, OverflowError):
        return False
    return abs(total - math.fsum(scores)) < 1e-6 and total > max(scores) + 1e-6


def _total(value: Dict[str, Any]) -> Tuple[str, Any]:
    """The total and the field that it stands in; None where there is not one."""
    for key in ("total", "score", "overall_score", "total_score", "completionScore"):
        if value.get(key) is not None and not isinstance(value[key], dict):
            return key, value[key]
    for key, inner in (("overall", "score"), ("total", "score"), ("total", "value")):
        nested = value.get(key)
        if isinstance(nested, dict) and nested.get(inner) is not None:
            return key, nested[inner]
    odd = [key for key in ("total", "score") if value.get(key) is not None]
    return (odd[0], value[odd[0]]) if odd else ("", None)


def _score(value: Any, name: str) -> Optional[float]:
    """A score as a float; None when it is not a number. Raises InvalidAnswer."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
    elif isinstance(value, str) and value.strip().lower().lstrip("+-") in (
        "nan",
        "inf",
        "infinity",
    ):
        number = math.nan
    elif isinstance(value, bool):
        raise InvalidAnswer("{} is {}, not a number".format(_show(name), _show(value)))
    elif isinstance(value, int):
        number = float(value) if 0 <= value <= 1 else math.inf  # float(10**400) would raise
    elif isinstance(value, float):
        number = value
    else:
        return None
    if not 0 <= number <= 1:  # NaN, too
        raise InvalidAnswer("{} is {}, not a number from 0 to 1".format(_show(name), _show(value)))
    return number + 0.0  # -0.0 is 0.0


def _notes(value: Dict[str, Any]) -> str:
    overall = value.get("overall")
    candidates = [value.get(key) for key in ("notes", "justification", "reasoning")]
    candidates.append(overall.get("summary") if isinstance(overall, dict) else None)
    for notes in candidates:
        if notes:
            return notes if isinstance(notes, str) else json.dumps(notes, ensure_ascii=False)
    return ""


def _show(value: Any) -> str:
    if isinstance(value, str) and value == "the total":
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
