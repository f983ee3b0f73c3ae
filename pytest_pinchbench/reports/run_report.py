"""What a run came to, once it has ended; of runs that were merged, the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.issues import printable
from pytest_pinchbench.reports import github, text
from pytest_pinchbench.reports.csv_file import csv_text
from pytest_pinchbench.reports.files import write_files
from pytest_pinchbench.reports.terminal import Line, summary_lines
from pytest_pinchbench.results.comparison import compare_with_last
from pytest_pinchbench.results.files import write_atomically
from pytest_pinchbench.results.gates import gates
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary, summarize

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings


class Ended:
    """``run`` is the ``run.json`` of the directory, ``baselines`` are what it is compared with."""

    def __init__(
        self,
        directory: RunDirectory,
        run: Mapping[str, Any],
        settings: Settings,
        baselines: Sequence[Summary],
        wall_seconds: float | None = None,
        troubles: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._baselines = baselines
        self.records = directory.records()
        self.summary = summarize(self.records, run, wall_seconds=wall_seconds, troubles=troubles)
        self.comparisons = compare_with_last([*baselines, self.summary])
        self.gates = [
            text.gate_document(gate, self.summary)
            for gate in gates(
                self.summary,
                self.comparisons,
                fail_under=settings.fail_under,
                compare_fail=settings.compare_fail,
            )
        ]
        self.summary["gates"] = self.gates

    def write(self, say: Callable[[str], None]) -> None:
        """The files that people open: of the run and of its attempts."""
        write_files(
            self._directory,
            self.records,
            self.summary,
            self.comparisons,
            baselines=self._baselines,
            say=say,
        )
        if self._settings.export is not None:
            content = csv_text(self.summary).encode("utf-8", "replace")
            try:
                self._settings.export.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._settings.export, content)
            except OSError as error:
                say(f"cannot write {self._settings.export}: {error.strerror}")

    def lines(
        self, where: str, hints: Sequence[str] = (), *, annotate_shortfalls: bool = True
    ) -> list[Line]:
        """For the terminal: the summary, gates, comparisons, annotations for GitHub. ``hints``
        stand where there is no official mean: how to go on.
        """
        more = [] if self.summary["official"] else [*hints]
        for gate in self.gates:
            more += text.gate_lines(gate)
        for comparison in self.comparisons:
            more += ["", *text.comparison_lines(comparison)]
        if len(self._baselines) > 1:
            more += ["", *text.table_lines([*self._baselines, self.summary])]
        if github.in_github_actions():
            more += github.annotation_lines(
                self.summary,
                self.comparisons,
                pass_mark=self._settings.pass_mark,
                shortfalls=annotate_shortfalls,
            )
            more += github.write_step_summary(self.summary, self.comparisons)
        return [*summary_lines(self.summary, where), *map(Line, more)]

    def last_line(self, code: int, name: str = "") -> Line:
        """The run in one line, with the address of its page; ``code`` is the exit code, ``name``
        what its model is called among several.
        """
        page = (self._directory.path / "report.html").resolve().as_uri()
        verdict = text.verdict_line(self.summary)
        line = " ".join(filter(None, ["PinchBench", name, f"{verdict} · report: {page}"]))
        return Line(printable(line), "green" if code == pytest.ExitCode.OK else "red")

    def exit_code(self, code: int) -> int:
        """``code`` is pytest's. Between 0 and 1 ``--pinchbench-fail-under`` decides in the place
        of the items, and a gate that is not met is a failure.

        A run is not a success while any attempt that was asked for has no valid result: skipped
        by a conftest.py, left out by ``--lf``, of an earlier session that is resumed.
        """
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return code
        passed = code == pytest.ExitCode.OK or self._settings.fail_under is not None
        passed = passed and self.summary["official"] and all(gate["met"] for gate in self.gates)
        return int(pytest.ExitCode.OK if passed else pytest.ExitCode.TESTS_FAILED)
