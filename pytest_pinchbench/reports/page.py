"""Templates of the HTML reports, and what they share: one attempt, readable in place."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

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
    environment.filters.update(
        score=formats.score, seconds=formats.seconds, count=formats.count, heat=heat
    )
    return environment


def page(template: str, *scripts: str, **values: Any) -> str:
    """Render a whole page, with its style and scripts in it.

    The page's own policy forbids every request and every other script, so that even text of a
    model that escaped escaping could do nothing.
    """
    from markupsafe import Markup

    script = "\n".join(map(source, scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    style = "\n".join(map(source, ("colours.css", "page.css")))
    return (
        templates()
        .get_template(template)
        .render(policy=policy, style=Markup(style), script=Markup(script), **values)
    )


def heat(mean: float | None) -> str:
    """The style class of a cell that holds a score."""
    if mean is None:
        return "invalid"
    return "full" if mean >= 1 else "zero" if mean <= 0 else f"part{min(int(mean * 3), 2)}"


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
        .get_template("fragment.html.j2")
        .render(
            record=record,
            issues=record["issues"] if criteria else (),
            scoring=record["meta"]["benchmark"]["scoring"] if criteria else None,
            score="invalid, no score" if score is None else f"score {formats.score(score)}",
            facts=facts,
            conversation=conversation,
        )
    )
