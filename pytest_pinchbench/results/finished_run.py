"""A finished run, for programs that read its results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary, read_summary


@dataclass(frozen=True)
class FinishedRun:
    """What a run directory holds."""

    summary: Summary
    """The document of ``summary.json``, computed from the records."""
    records: tuple[Record, ...]
    """The record of each attempt, in order of task id and attempt."""


def read_run(path: str | Path) -> FinishedRun:
    """Read a run directory. Raises ``PinchBenchError`` for one that is damaged or empty."""
    directory = Path(path)
    summary = read_summary(directory)
    return FinishedRun(summary, tuple(RunDirectory(directory).records()))
