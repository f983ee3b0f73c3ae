"""``--pinchbench-compare`` on finished runs alone: nothing is run, they are only compared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_pinchbench.issues import ResultsUnwritable, SettingsError
from pytest_pinchbench.reports import github, text
from pytest_pinchbench.reports.markdown import comparison_markdown, gate_markdown, table_markdown
from pytest_pinchbench.results.comparison import compare_with_last
from pytest_pinchbench.results.files import write_atomically, writing
from pytest_pinchbench.results.gates import comparison_gate
from pytest_pinchbench.results.summary import Summary


def compare_finished(
    runs: Sequence[Summary],
    *,
    compare_fail: float | None,
    results_dir: Path,
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[str], bool]:
    """The last of ``runs`` against each of the others, which are its baselines.

    Returns the lines to print, and whether ``compare_fail`` fails this. The same as Markdown,
    for a pull request, goes to ``comparison.md`` in ``results_dir``, and to the step's page in
    GitHub Actions. Raises ``PinchBenchError``.
    """
    if len(runs) < 2:
        raise SettingsError(
            "--pinchbench-compare alone compares finished runs, at least two: "
            "give it again for each, the new run last; or give --model to run one now"
        )
    comparisons = compare_with_last(runs)
    gate = None
    if compare_fail is not None:
        gate = text.gate_document(comparison_gate(comparisons, compare_fail))
    lines = []
    for comparison in comparisons:
        lines += [*text.comparison_lines(comparison), ""]
    lines += text.table_lines(runs)
    parts = [table_markdown(runs), *map(comparison_markdown, comparisons)]
    if gate is not None:
        lines += text.gate_lines(gate)
        parts.append(gate_markdown(gate))
    markdown = ("\n\n".join(parts) + "\n").encode("utf-8", "replace")
    path = results_dir / "comparison.md"
    try:
        with writing(path):
            results_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(path, markdown)
        lines.append(f"As Markdown {path}")
    except ResultsUnwritable as error:
        lines.append(str(error))
    lines += github.append_to_step_summary(markdown, environ)
    return lines, gate is not None and not gate["met"]
