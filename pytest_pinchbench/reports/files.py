"""The files at the top of a run directory that people open: written when a run has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    """Write ``summary.json``, ``summary.md`` and ``report.html``.

    A page that cannot be made is passed to ``say``, and fails alone: the run that it shows is
    paid for.
    """
    told = {**summary, "comparisons": [comparison.to_json() for comparison in comparisons]}
    write_json(directory.path / "summary.json", told)
    markdown = summary_markdown(summary, comparisons)
    if baselines:
        markdown += f"\n## Models\n\n{table_markdown([*baselines, summary])}"
    write_atomically(directory.path / "summary.md", markdown.encode("utf-8", "replace"))
    from pytest_pinchbench.reports.html import report_html

    try:
        page = report_html(directory, records, summary, comparisons)
    except Exception as error:
        say(f"report.html could not be made: {type(error).__name__}: {error}")
    else:
        write_atomically(directory.path / "report.html", page.encode("utf-8", "replace"))
