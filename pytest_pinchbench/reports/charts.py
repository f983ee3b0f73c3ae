"""The charts of ``report.html``: Vega-Lite, drawn to SVG by vl-convert, with no script left.

Colours are the page's own CSS variables, so that a chart follows it into the dark. Every
chart is drawn 360 units wide, which a phone shows as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.text import short
from pytest_pinchbench.results.comparison import Comparison

MOST_TASKS = 50  # of one chart; the table has all

_WIDTH = 360
_LABELS = 154  # of it, for the names at the left
_NAME = 22  # characters that fit there
_ROW = 20

_CONFIG: dict[str, Any] = {
    "font": "system-ui, sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--text)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "labelPadding": 5,
        "titleFontSize": 11,
    },
    "text": {"fontSize": 11, "color": "var(--text)"},
}
_SCORE = {
    "type": "quantitative",
    # room for the value behind the longest bar
    "scale": {"domain": [0, 1.3], "nice": False},
    "axis": {"values": [0, 0.5, 1], "title": None, "format": ".1f"},
}
_NAMES = {
    "field": "name",
    "type": "nominal",
    "sort": None,
    "axis": {
        "title": None,
        "ticks": False,
        "domain": False,
        "minExtent": _LABELS,
        "maxExtent": _LABELS,
        "labelLimit": _LABELS - 6,
    },
}
_TIP = {"field": "tip", "type": "nominal"}


def by_category(summary: Mapping[str, Any]) -> str | None:
    """A bar for each category's mean, with its interval."""
    rows = []
    for category in summary["categories"]:
        score = category["score"]
        name, tasks = category["category"], category["tasks"]
        if score is not None:
            low, high = score["interval"] or (None, None)
            value = formats.score(score["mean"])
            tip = f"{name}: {value}, {tasks} task{'s' * (tasks != 1)}"
            rows.append(_row(name, score["mean"], value, tip, low=low, high=high))
        else:
            rows.append(_row(name, 0, "invalid", f"{name}: no valid result"))
    interval = {
        "mark": {"type": "rule", "color": "var(--text)", "aria": False},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {"x": {"field": "low", **_SCORE}, "x2": {"field": "high"}},
    }
    return _bars(rows, [interval]) if rows else None


def by_task(summary: Mapping[str, Any]) -> str | None:
    """A bar for each task's mean, lowest first, and a tick for each of several attempts."""
    tasks = sorted(summary["tasks"], key=lambda task: (task["mean"] is not None, task["mean"] or 0))
    rows, attempts = [], []
    for task in tasks[:MOST_TASKS]:
        mean, name = task["mean"], task["task_id"]
        value = formats.score(mean) if mean is not None else task["attempts"][0]["status"]
        rows.append(_row(name, mean or 0, value, f"{name}: {value}"))
        if len(task["attempts"]) > 1:
            attempts += [
                {"name": short(name, _NAME), "score": one["score"]}
                for one in task["attempts"]
                if one["score"] is not None
            ]
    ticks = {
        "data": {"values": attempts},
        "mark": {"type": "tick", "color": "var(--text)", "aria": False, "height": 10},
        "encoding": {"x": {"field": "score", **_SCORE}},
    }
    return _bars(rows, [ticks] if attempts else []) if rows else None


def cost_against_score(summary: Mapping[str, Any]) -> str | None:
    """A point for each task: what it cost, in dollars or else in tokens, and what came out."""
    priced = summary["cost"]["total"]["usd"] is not None
    title, unit = "cost of the task in USD", "$.3~r"
    if not priced:
        title, unit = "tokens of the task (no price is known)", "~s"

    def cost(task: Mapping[str, Any]) -> Any:
        return task["cost"]["total"]["usd"] if priced else task["usage"]["total_tokens"]

    rows = [
        {
            "cost": cost(task),
            "score": task["mean"],
            "tip": f"{task['task_id']}: score {formats.score(task['mean'])}, "
            f"{formats.money(task['cost']['total'])}, "
            f"{formats.count(task['usage']['total_tokens'])} tokens",
        }
        for task in summary["tasks"]
        if task["mean"] is not None and cost(task) is not None
    ]
    if not rows:
        return None
    return _svg(
        {
            "width": _WIDTH - 60,
            "height": 240,
            "data": {"values": rows},
            "mark": {"type": "circle", "size": 60, "opacity": 0.65, "color": "var(--accent)"},
            "encoding": {
                "x": {
                    "field": "cost",
                    "type": "quantitative",
                    "axis": {"title": title, "tickCount": 4, "format": unit},
                },
                "y": {
                    "field": "score",
                    "type": "quantitative",
                    "scale": {"domain": [0, 1]},
                    "axis": {"title": "score", "tickCount": 5},
                },
                "description": _TIP,
            },
        }
    )


def changes(comparison: Comparison) -> str | None:
    """Each task that is not the same: a ring before, a dot after. None where all are."""
    moved = [task for task in comparison.tasks if task.verdict != "same"]
    # the largest changes, still regressions first
    kept = sorted(moved, key=lambda task: -abs(task.difference))[:MOST_TASKS]
    rows = [
        {
            "name": short(task.task_id, _NAME),
            "before": task.baseline,
            "after": task.new,
            "colour": "var(--bad)" if task.difference < 0 else "var(--good)",
            "tip": f"{task.task_id}: {formats.score(task.baseline)} before, "
            f"{formats.score(task.new)} after, {task.verdict}",
        }
        for task in moved
        if task in kept
    ]
    if not rows:
        return None
    colour = {"field": "colour", "type": "nominal", "scale": None}
    before, after = {"field": "before", **_SCORE}, {"field": "after", **_SCORE}
    dot = {"type": "point", "size": 70, "opacity": 1, "strokeWidth": 1.5}
    return _rows(
        rows,
        [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "aria": False},
                "encoding": {"x": before, "x2": {"field": "after"}, "color": colour},
            },
            {
                "mark": {**dot, "fill": "var(--card)"},
                "encoding": {"x": before, "stroke": colour, "description": _TIP},
            },
            {
                "mark": {**dot, "filled": True},
                "encoding": {"x": after, "color": colour, "description": _TIP},
            },
        ],
    )


def _row(name: str, score: float, value: str, tip: str, **more: Any) -> dict[str, Any]:
    return {"name": short(name, _NAME), "score": score, "value": value, "tip": tip, **more}


def _bars(rows: Sequence[Mapping[str, Any]], layers: Sequence[Mapping[str, Any]]) -> str:
    """Bars with their values written at the right edge."""
    score = {"field": "score", **_SCORE}
    bar = {
        "mark": {"type": "bar", "color": "var(--accent)", "opacity": 0.75, "height": 12},
        "encoding": {"x": score, "description": _TIP},
    }
    value = {
        "mark": {"type": "text", "align": "right", "aria": False},
        "encoding": {"x": {"value": _WIDTH - _LABELS - 12}, "text": {"field": "value"}},
    }
    return _rows(rows, [bar, *layers, value])


def _rows(rows: Sequence[Mapping[str, Any]], layers: Sequence[Mapping[str, Any]]) -> str:
    """One row a name; ``rows`` have distinct names or share a row."""
    return _svg(
        {
            "width": _WIDTH - _LABELS - 12,
            "height": {"step": _ROW},
            "data": {"values": list(rows)},
            "encoding": {"y": _NAMES},
            "layer": list(layers),
        }
    )


def _svg(spec: Mapping[str, Any]) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg({**spec, "config": _CONFIG}, allowed_base_urls=[])
    return svg
