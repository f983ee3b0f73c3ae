"""What one part of a grade (the automated checks, the judge) gives."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

Issue = Dict[str, str]  # severity, code, message


class Part(NamedTuple):
    """``score`` is 0 to 1, None when there is none (one of the issues is FATAL then)."""

    score: Optional[float]
    breakdown: Dict[str, float]
    issues: List[Issue]
    debug: Dict[str, Any]
    seconds: float
    notes: str = ""
    usage: Optional[Dict[str, Any]] = None


def issue(severity: str, code: str, message: str) -> Issue:
    return {"severity": severity, "code": code, "message": message}
