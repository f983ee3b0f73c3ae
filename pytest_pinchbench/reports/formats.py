"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "-"


def score(value: float | None) -> str:
    """Three decimals; what is not quite 1 is not shown as 1, nor what is not quite 0 as 0."""
    if value is None:
        return UNKNOWN
    if value < 1:
        value = min(value, 0.999)
    if value > 0:
        value = max(value, 0.001)
    return f"{value:.3f}"


def difference(value: float) -> str:
    """With its sign; what is not quite 0 is not shown as 0."""
    if value == 0:
        return "0.000"
    return f"{'-' if value < 0 else '+'}{score(abs(value))}"


def bounds(interval: list[float] | tuple[float, float] | None) -> str:
    return UNKNOWN if interval is None else f"{score(interval[0])} to {score(interval[1])}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


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


def commit(commit: str | None) -> str:
    """Short, and what was changed since it still says so."""
    if commit is None:
        return "in no git repository"
    digest, dash, changed = commit.partition("-")
    return f"{digest[:12]}{dash}{changed}"


def harness(summary: Mapping[str, Any]) -> str:
    """What the agent is called."""
    return str(summary["settings"].get("harness", "agent"))


def cost(usage: dict[str, float | None]) -> str:
    """The cost of a usage; ``>`` where a part of it has no known price."""
    usd = usage["cost_usd"]
    if usd is None:
        return UNKNOWN
    digits = 2 if usd >= 100 else 4
    return f"{'' if usage.get('cost_is_complete', True) else '>'}${usd:,.{digits}f}"


def bounds_of_difference(interval: tuple[float, float] | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(difference, interval))
