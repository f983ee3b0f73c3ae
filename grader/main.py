"""The grader's entry: an order on standard input, the result on standard output.

The result is one line, ``<nonce> <JSON>``; the nonce came with the order. Whoever reads it
takes nothing else for a result.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import guard
from .part import Issue, Part, issue
from .redact import Redactor


def main() -> None:
    if sys.argv[1:] == ["check"]:
        from .check import main as check

        check()
        return
    guard.close_to_neighbours()
    order = json.loads(sys.stdin.buffer.read())
    if "check_endpoint" in order:
        from .judge import check_endpoint

        wanted = order["check_endpoint"]
        result: Dict[str, Any] = check_endpoint(wanted, order["timeout"])
    else:
        # What checks print or raise may hold what no file can, too: lone surrogates, say.
        key = (order["judge"] or {}).get("api_key")
        result = Redactor([key]).json(grade(order))
    data = "{} {}\n".format(order["nonce"], json.dumps(result)).encode("ascii")
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)  # a request that was given up on may still hold a thread


def grade(order: Mapping[str, Any]) -> Dict[str, Any]:
    """Grade one attempt; the order's fields are those that ``grading.py`` writes."""
    task = order["task"]
    kind = task["grading_type"]
    deadline = time.monotonic() + order["timeout"] if order["timeout"] else math.inf

    def within(seconds: float) -> float:
        return max(0.0, min(seconds, deadline - time.monotonic()))

    # All imports before the checks run: code of the agent's may run then, and must not be
    # able to put something else where a later import would find it.
    from .automated import run_checks

    if kind != "automated":
        from .judge import ask_judge
        from .shown_files import shown_files
    sys.path[:] = [path for path in sys.path if path != sys.argv[0]]

    files = None
    if kind != "automated" and order["judge_view"] == "full":  # before a check can write any
        files = shown_files(order["workspace"], task["files"])
    parts: Dict[str, Part] = {}
    if kind != "llm_judge":
        earlier = (order["previous"] or {}).get("automated")
        parts["automated"] = (
            _part(earlier)
            if earlier
            else run_checks(
                task["automated_checks"],
                order["transcript"],
                order["workspace"],
                within(order["check_timeout"]),
            )
        )
    if kind != "automated":
        parts["llm_judge"] = ask_judge(
            task,
            order["transcript"],
            order["judge"],
            timeout=within(order["judge_timeout"]),
            transcript_limit=order["transcript_limit"],
            files=files,
        )
    if kind == "hybrid":
        return _hybrid(parts, task["grading_weights"])
    part = parts[kind]
    return _result(part.score, part.breakdown, part.issues, part.debug, parts, {kind: 1.0})


def _hybrid(parts: Dict[str, Part], given: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """The weighted mean of both parts; without the judge's there is no score."""
    weights, issues = _weights(given)
    total = sum(weights.values())
    scores = {name: part.score for name, part in parts.items() if part.score is not None}
    score = None
    if len(scores) == len(parts):
        score = sum(scores[name] * weights[name] for name in scores) / total
    breakdown = {
        "{}.{}".format(name, key): value
        for name, part in parts.items()
        for key, value in part.breakdown.items()
    }
    for part in parts.values():
        issues += part.issues
    debug = {name: part.debug for name, part in parts.items()}
    return _result(score, breakdown, issues, debug, parts, weights)


def _weights(given: Optional[Mapping[str, Any]]) -> Tuple[Dict[str, float], List[Issue]]:
    """The weights to use: half and half where none are given or they add up to nothing.

    One that is left out is 0.5, as in the reference.
    """
    half = {"automated": 0.5, "llm_judge": 0.5}
    if not given:
        return half, []
    try:
        weights = {name: float(given.get(name, 0.5)) for name in half}
        usable = min(weights.values()) >= 0 and sum(weights.values()) < math.inf
    except (TypeError, ValueError, OverflowError):
        usable = False
    if not usable:
        text = "grading_weights {} cannot be used; both parts count half".format(dict(given))
        return half, [issue("WARNING", "grading_weights", text)]
    return (weights if sum(weights.values()) > 0 else half), []


def _result(
    score: Optional[float],
    breakdown: Dict[str, float],
    issues: List[Issue],
    debug: Dict[str, Any],
    parts: Dict[str, Part],
    weights: Dict[str, float],
) -> Dict[str, Any]:
    judged = parts.get("llm_judge")
    return {
        "score": None if score is None else min(max(score, 0.0), 1.0),
        "breakdown": breakdown,
        "notes": judged.notes if judged else "",
        "issues": issues,
        "debug": debug,
        "parts": {
            name: {"weight": weights[name], **part._asdict()} for name, part in parts.items()
        },
        "judge_usage": judged.usage if judged else None,
    }


def _part(earlier: Mapping[str, Any]) -> Part:
    return Part(**{field: earlier[field] for field in Part._fields})
