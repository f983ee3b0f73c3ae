"""Templates of the HTML reports, and what they share: one attempt, readable in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.conversation import Entry
from pytest_pinchbench.results.records import Record, cost_parts

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates() -> Environment:
    """Every value is escaped, whatever the template's name."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pytest_pinchbench.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["score"] = formats.score
    return environment


def source(name: str) -> str:
    """A style sheet or script of ours, as it stands."""
    return (files("pytest_pinchbench.reports") / "templates" / name).read_text(encoding="utf-8")


def attempt_html(record: Record, conversation: Sequence[Entry], *, criteria: bool = True) -> str:
    """An attempt as a fragment: verdict, issues, criteria, notes, conversation.

    Without ``criteria`` issues and notes are left out, too: where a failure's text has them.
    """
    usage, judge = record["usage"], record["judge_usage"]
    parts = cost_parts([record])
    cost = [(f"{name} cost", formats.money(parts[name])) for name in ("agent", "judge", "total")]
    facts = [
        ("time", formats.seconds(record["execution_time"])),
        ("tokens", formats.count(usage["total_tokens"])),
        ("requests", formats.count(usage["request_count"])),
        *cost,
    ]
    if judge:
        facts.append(("judge's tokens", formats.count(judge["total_tokens"])))
    if record["retried"]:
        facts.append(("tries", str(len(record["retried"]) + 1)))
    score = record["metrics"]["score"]
    return (
        templates()
        .get_template("attempt.html.j2")
        .render(
            record=record,
            issues=record["issues"] if criteria else (),
            scoring=record["meta"]["benchmark"]["scoring"] if criteria else None,
            score="invalid, no score" if score is None else f"score {formats.score(score)}",
            facts=facts,
            conversation=conversation,
        )
    )
