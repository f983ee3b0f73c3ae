"""What a pytest-html report gets: columns, the run's mean, each task readable in place.

Registered only where pytest-html writes a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import pytest

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.conversation import conversation
from pytest_pinchbench.reports.page import attempt_html, source
from pytest_pinchbench.reports.text import headline
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory

# pytest-html keeps everything in memory and in one attribute of one page
CONVERSATION = 30_000  # characters an attempt

_AFTER = 2  # columns that come before ours: result, test
_COLUMNS = ("score", "category", "tokens", "cost")


class HtmlReportHooks:
    """Fill a pytest-html report.

    ``decided_record`` gives the run directory and the record of the attempt whose outcome a report
    decides, or None; ``summaries`` the summary of each run once it has ended.
    """

    def __init__(
        self,
        decided_record: Callable[[pytest.TestReport], tuple[RunDirectory, Record] | None],
        summaries: Callable[[], Mapping[str, Mapping[str, Any]]],
    ) -> None:
        self._decided_record = decided_record
        self._summaries = summaries

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if found := self._decided_record(report):
            from pytest_html import extras

            directory, record = found
            html = attempt_html(
                record,
                conversation(directory, record, CONVERSATION),
                # the text of a failure shows them
                criteria=not (report.when == "call" and report.failed),
            )
            own = extras.html(html)
            setattr(report, "extras", [*getattr(report, "extras", []), own])  # noqa: B010

    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        sheets = ("colours.css", "fragment.css", "pytest_html.css")
        styles = "\n".join(map(source, sheets))
        prefix += [
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{styles}</style>",
            *(f"<p>{escape(headline(one))}</p>" for one in self._summaries().values()),
        ]

    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        cells[_AFTER:_AFTER] = [
            f'<th class="sortable" data-column-type="{name}">{name.capitalize()}</th>'
            for name in _COLUMNS
        ]

    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        values: dict[str, Any] = dict(report.user_properties)
        score, tokens, cost = (values.get(n) for n in ("score", "total_tokens", "total_cost_usd"))
        amount = {"usd": cost, "complete": values.get("cost_is_complete", True)}
        cells[_AFTER:_AFTER] = [
            _cell("score", formats.score(score), _sortable(score)),
            _cell("category", str(values.get("category", ""))),
            _cell("tokens", formats.count(tokens), _sortable(tokens)),
            _cell("cost", formats.money(amount), _sortable(cost)),
        ]


def _cell(name: str, text: str, key: str = "") -> str:
    """pytest-html sorts by what is in the cell, as text: so a number has its sortable form in
    front, where it is not seen.
    """
    return f'<td class="col-{name}"><span hidden>{key}</span>{escape(text)}</td>'


def _sortable(number: float | None) -> str:
    """What is not known sorts below every number."""
    return "-" if number is None else f"{number:020.6f}"
