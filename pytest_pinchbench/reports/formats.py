"""Numbers as people read them."""

from __future__ import annotations

from pytest_pinchbench.summary import format_score

UNKNOWN = "-"


def score(value: float | None) -> str:
    return UNKNOWN if value is None else format_score(value)


def difference(value: float) -> str:
    """With its sign; what is not quite 0 is not shown as 0."""
    if value == 0:
        return "0.000"
    return f"{'-' if value < 0 else '+'}{format_score(abs(value))}"


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


def cost(usage: dict[str, float | None]) -> str:
    """The cost of a usage; ``>`` where a part of it has no known price."""
    usd = usage["cost_usd"]
    if usd is None:
        return UNKNOWN
    digits = 2 if usd >= 100 else 4
    return f"{'' if usage.get('cost_is_complete', True) else '>'}${usd:,.{digits}f}"


def bounds_of_difference(interval: tuple[float, float] | None) -> str:
    return UNKNOWN if interval is None else " to ".join(map(difference, interval))
