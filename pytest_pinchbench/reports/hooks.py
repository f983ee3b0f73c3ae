"""The hooks by which a run's results reach files, reports and GitHub; in the controller only."""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.comparison import Comparison, compare_with_last
from pytest_pinchbench.reports import github, junit, text
from pytest_pinchbench.reports.conversation import conversation
from pytest_pinchbench.reports.files import write_files
from pytest_pinchbench.reports.json_report import add_scores
from pytest_pinchbench.reports.summarize import Summary, read_run, summarize
from pytest_pinchbench.results import Record, RunDirectory
from pytest_pinchbench.run import parse_node_id

if TYPE_CHECKING:
    from pytest_pinchbench.run import Run


def register(config: pytest.Config, run: Run) -> None:
    """To be called before the run's own hooks are registered: what is registered later is
    called earlier, and the comparison has its say on the exit code after the gate.

    Raises ``PinchBenchError`` for a run to compare with that cannot be read.
    """
    hooks = ReportHooks(config, run)
    config.pluginmanager.register(hooks, "pinchbench-reports")
    if run.directory is not None and getattr(config.option, "htmlpath", None):
        from pytest_pinchbench.reports.pytest_html import HtmlReportHooks

        html = HtmlReportHooks(run.directory, hooks.summary)
        config.pluginmanager.register(html, "pinchbench-pytest-html")


def decided_record(directory: RunDirectory, report: pytest.TestReport) -> Record | None:
    """The record of the test whose outcome this report decides; None for its other reports."""
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return None
    key = parse_node_id(report.nodeid)
    return directory.read(*key) if key else None


class _Results:
    """What the run came to, once it has ended.

    Not in the plugin itself: pytest looks at every attribute of a plugin for fixtures, at the
    start of the session, and would have these worked out then.
    """

    def __init__(self, run: Run, baselines: list[Summary]) -> None:
        self._run = run
        self._began = time.monotonic()
        self.baselines = baselines

    @cached_property
    def records(self) -> list[Record]:
        assert self._run.directory is not None
        return self._run.directory.records()

    @cached_property
    def summary(self) -> Summary:
        assert self._run.directory is not None
        description = json.loads((self._run.directory.path / "run.json").read_bytes())
        selected = [{"task_id": task, "attempt": k} for task, k in self._run.selected]
        seconds = round(time.monotonic() - self._began, 3)
        return summarize(self.records, {**description, "selected": selected}, wall_seconds=seconds)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        return compare_with_last([*self.baselines, self.summary])


class ReportHooks:
    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config = config
        self._run = run
        start = config.invocation_params.dir
        self._results = _Results(run, [read_run(start / path) for path in run.settings.compare])

    def summary(self) -> Summary:
        """That of the run, which has ended."""
        return self._results.summary

    def _has_results(self) -> bool:
        directory = self._run.directory
        return directory is not None and (directory.path / "run.json").exists()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        directory = self._run.directory
        if directory is not None and junit.is_written(self._config):
            record = decided_record(directory, report)
            if record is not None:
                entries = conversation(directory, record, junit.TAIL)
                junit.add_transcript(self._config, report, entries)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._has_results():
            return
        assert self._run.directory is not None
        results = self._results
        write_files(
            self._run.directory,
            results.records,
            results.summary,
            results.comparisons,
            baselines=results.baselines,
            say=self._run.say,
        )
        junit.add_suite_properties(self._config, results.summary)
        decided = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if session.exitstatus in decided and self._drops():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        if self._has_results():
            add_scores(json_report, self._results.summary)
        # it has captured output from a place of its own, and not from pytest's reports
        json_report.update(self._run.redactor.json(json_report))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._has_results():
            return
        summary, comparisons = self._results.summary, self._results.comparisons
        lines: list[str] = []
        for comparison in comparisons:
            lines += ["", *text.comparison_lines(comparison)]
        lines += [f"Comparison  fails the run: {drop}" for drop in self._drops()]
        if len(self._results.baselines) > 1:
            lines += ["", *text.table_lines([*self._results.baselines, summary])]
        if github.in_github_actions():
            mark = self._run.settings.pass_mark
            lines += github.annotation_lines(summary, comparisons, pass_mark=mark)
            github.write_step_summary(summary, comparisons)
        for line in lines:
            terminalreporter.write_line(self._run.redactor.text(line))

    def _drops(self) -> list[str]:
        """The comparisons that ``--pinchbench-compare-fail`` fails the run for."""
        limit = self._run.settings.compare_fail
        if limit is None:
            return []
        return [
            f"the mean is significantly below that of {comparison.baseline_name}, "
            f"by more than {limit:g}"
            for comparison in self._results.comparisons
            if comparison.worse_by_more_than(limit)
        ]
