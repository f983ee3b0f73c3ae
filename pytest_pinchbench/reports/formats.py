"""Numbers as people read them. Every number of a run that is shown passes one of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_pinchbench.results.gates import reaches

UNKNOWN = "-"


def score(value: float | None) -> str:
    """Three decimals; what is not quite 1 is not shown as 1, nor what is not quite 0 as 0."""
    return UNKNOWN if value is None else f"{_inner(value):.3f}"


def _inner(value: float) -> float:
    return max(0.001, min(value, 0.999)) if 0 < value < 1 else value


def short_score(value: float | None) -> str:
    """Two decimals, for many scores in a row; rounded as in :func:`score`."""
    if value is None:
        return UNKNOWN
    return f"{max(0.01, min(value, 0.99)) if 0 < value < 1 else value:.2f}"


def against(value: float, mark: float) -> str:
    """A score beside the mark it is held against, where rounding would show the other result."""
    shown = score(value)
    if reaches(float(shown), mark) == reaches(value, mark):
        return shown
    return f"{shown} (rounded {'up' if float(shown) > value else 'down'})"


def mark(value: float) -> str:
    """The value of an option, as it would be typed."""
    return f"{value:g}"


def difference(value: float) -> str:
    """With its sign; what is not quite 0 is not shown as 0."""
    if value == 0:
        return "0.000"
    return f"{value:+.3f}" if abs(value) >= 0.0005 else f"{value:+.0e}"


def bounds(interval: Sequence[float] | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(score, interval))


def bounds_of_difference(interval: Sequence[float] | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(difference, interval))


def spread(value: float | None) -> str:
    """A standard deviation."""
    return UNKNOWN if value is None else f"{value:.3f}"


def p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def percent(value: float | None) -> str:
    """One decimal; what is not quite all is not shown as all, nor what is not quite none."""
    return UNKNOWN if value is None else f"{_inner(value):.1%}"


def seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 100:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def count(value: float | None) -> str:
    """At most seven characters up to a billion."""
    if value is None:
        return UNKNOWN
    if value < 10_000:
        return f"{value:,.0f}"
    return f"{value / 1e3:,.1f}k" if value < 1e6 else f"{value / 1e6:,.1f}M"


def counted(number: int, what: str) -> str:
    """``1 request``, ``1,200 requests``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def tokens(usage: Mapping[str, Any]) -> str:
    """``19.2k in (12.0k of it cached), 1,280 out``."""
    cached = usage["cache_read_tokens"] + usage["cache_write_tokens"]
    part = f" ({count(cached)} of it cached)" if cached else ""
    return f"{count(usage['input_tokens'])} in{part}, {count(usage['output_tokens'])} out"


def usd(value: float) -> str:
    """Dollars, to a hundredth of a cent below ten of them."""
    return "$0" if value == 0 else f"${value:,.{2 if value >= 10 else 4}f}"


def money(amount: Mapping[str, Any]) -> str:
    """One of the three parts of a cost: ``unknown``, or with ``>=`` where it is a lower bound."""
    if amount["usd"] is None:
        return "unknown"
    return f"{'' if amount['complete'] else '>='}{usd(amount['usd'])}"


def cost(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """``agent $15.78, judge $0.7000, total $16.48``."""
    return ", ".join(f"{name} {money(parts[name])}" for name in ("agent", "judge", "total"))


def efficiency(summary: Mapping[str, Any]) -> str:
    """``score 0.412 per 1,000 tokens, 37.1 per dollar``; empty where neither is known."""
    found = summary.get("efficiency") or {}
    names = {"score_per_1000_tokens": "1,000 tokens", "score_per_usd": "dollar"}
    values = [
        f"{found[name]:.3g} per {what}"
        for name, what in names.items()
        if found.get(name) is not None
    ]
    return f"score {', '.join(values)}" if values else ""


def commit(commit: str | None) -> str:
    """Short, and what was changed since it still says so."""
    if commit is None:
        return "in no git repository"
    digest, dash, changed = commit.partition("-")
    return f"{digest[:12]}{dash}{changed}"


def harness(summary: Mapping[str, Any]) -> str:
    """What the agent is called."""
    return str(summary["settings"].get("harness", "agent"))


def selection(summary: Mapping[str, Any]) -> str:
    """``2 of the 23 tasks of v1.1.0``."""
    chosen = summary["selection"]
    if chosen["suite_tasks"] is None:
        return counted(chosen["tasks"], "task")
    of = counted(chosen["suite_tasks"], "task")
    return f"{chosen['tasks']:,} of the {of} of {chosen['suite']}"


def short(text: str, width: int) -> str:
    """At most ``width`` characters, cut in the middle: ids differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[head + 1 - width :]}"


def shown_score(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The official score, or else the one over the valid tasks (``official`` says which)."""
    score: Mapping[str, Any] | None = summary["score"] or summary["reference"]
    return score
