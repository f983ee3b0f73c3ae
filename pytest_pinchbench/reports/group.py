"""A group of runs, one a model: the table of models, and a verdict for each pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_pinchbench.reports import github, index_page, text
from pytest_pinchbench.reports.markdown import comparison_markdown, table_markdown
from pytest_pinchbench.results.files import write_atomically, write_json
from pytest_pinchbench.results.group import compare_all, group_document
from pytest_pinchbench.results.summary import Summary


def report_group(path: Path, shown: str, members: Mapping[str, Summary]) -> Iterator[str]:
    """Write ``summary.json`` and ``summary.md`` of the group in ``path``; yield the lines for
    the terminal, where the path is ``shown``.
    """
    summaries = [{**summary, "model": name} for name, summary in members.items()]
    comparisons = compare_all(summaries)
    write_json(path / "summary.json", group_document(members, comparisons))
    parts = ["# PinchBench: " + ", ".join(members), table_markdown(summaries)]
    parts += map(comparison_markdown, comparisons)
    markdown = ("\n\n".join(parts) + "\n").encode("utf-8", "replace")
    write_atomically(path / "summary.md", markdown)
    yield from text.table_lines(summaries)
    for comparison in comparisons:
        yield ""
        yield f"{comparison.new_name} against {comparison.baseline_name}"
        for finding in text.findings(comparison):
            yield f"  {finding}"
    yield ""
    yield f"Results     {shown}"
    yield f"Page        {index_page.address(path.parents[1], list(members.values()))}"
    if github.in_github_actions():
        yield from github.append_to_step_summary(markdown)
