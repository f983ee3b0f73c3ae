"""``--pinchbench-export csv=FILE``."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest


def test_a_run_exports_a_row_for_each_attempt(
    project: Callable[..., Path], run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    project({"task_a": "echo yes >made.txt", "task_b": "false"}, cost=0.25)
    run("--pinchbench-attempts=2", "--pinchbench-export", "csv=out/attempts.csv")
    rows = list(csv.DictReader((pytester.path / "out" / "attempts.csv").open(encoding="utf-8")))
    found = [
        [row[name] for name in ("model", "task_id", "attempt", "status", "score", "agent_usd")]
        for row in rows
    ]
    assert [row[:4] for row in found] == [
        ["lab/m", "task_a", "1", "scored"],
        ["lab/m", "task_a", "2", "scored"],
        ["lab/m", "task_b", "1", "invalid"],
        ["lab/m", "task_b", "2", "invalid"],
    ]
    assert [row[4] for row in found] == ["1.0", "1.0", "", ""]
    assert {row["total_tokens"] for row in rows} == {"15"}


def test_another_kind_of_export_is_refused(run: Callable[..., pytest.RunResult]) -> None:
    result = run("--pinchbench-export=attempts.csv")
    result.stderr.fnmatch_lines(["*--pinchbench-export: export has to be csv=FILE*"])
