"""The files at the top of a run directory that people open: written when a run has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pytest_pinchbench.reports.attempt_page import write_attempt_page
from pytest_pinchbench.reports.html import report_html
from pytest_pinchbench.reports.markdown import summary_markdown, table_markdown
from pytest_pinchbench.results.comparison import Comparison
from pytest_pinchbench.results.files import write_atomically, write_json
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory


def write_files(
    directory: RunDirectory,
    records: Sequence[Record],
    summary: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
    *,
    baselines: Sequence[Mapping[str, Any]] = (),
    say: Callable[[str], None] = lambda message: None,
) -> None:
    """Write ``summary.json``, ``summary.md``, ``report.html`` and the page of each attempt.

    A page that cannot be made is passed to ``say``, and fails alone: the run that it shows is
    paid for.
    """
    told = {**summary, "comparisons": [comparison.to_json() for comparison in comparisons]}
    write_json(directory.path / "summary.json", told)
    markdown = summary_markdown(summary, comparisons)
    if baselines:
        markdown += f"\n## Models\n\n{table_markdown([*baselines, summary])}"
    write_atomically(directory.path / "summary.md", markdown.encode("utf-8", "replace"))
    pages: list[tuple[str, Callable[[], object]]] = [
        ("report.html", lambda: _write_report(directory, summary, comparisons)),
        *(
            (
                f"the page of {record['task_id']}",
                partial(write_attempt_page, directory, record, summary),
            )
            for record in records
        ),
    ]
    write_pages(pages, say)


def write_pages(
    pages: Iterable[tuple[str, Callable[[], object]]], say: Callable[[str], None]
) -> None:
    """Call what writes each page, by its name. A page that cannot be made fails alone."""
    for name, write in pages:
        try:
            write()
        except Exception as error:
            say(f"{name} could not be made: {type(error).__name__}: {error}")


def _write_report(
    directory: RunDirectory, summary: Mapping[str, Any], comparisons: Sequence[Comparison]
) -> None:
    page = report_html(summary, comparisons)
    write_atomically(directory.path / "report.html", page.encode("utf-8", "replace"))
