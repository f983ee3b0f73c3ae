"""``--pinchbench-compare`` on finished runs alone: nothing is run, they are only compared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.reports import github, text
from pytest_pinchbench.reports.markdown import comparison_markdown, gate_markdown, table_markdown
from pytest_pinchbench.results.comparison import compare_with_last
from pytest_pinchbench.results.gates import comparison_gate
from pytest_pinchbench.results.summary import Summary


def compare_finished(
    runs: Sequence[Summary],
    *,
    compare_fail: float | None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[str], bool]:
    """The last of ``runs`` against each of the others, which are its baselines.

    Returns the lines to print, and whether ``compare_fail`` fails this. The same as Markdown
    goes to the step's page in GitHub Actions. Raises ``PinchBenchError``.
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
    lines += github.append_to_step_summary(markdown, environ)
    return lines, gate is not None and not gate["met"]
