"""The hooks by which a run's results reach files, reports and GitHub; in the controller only."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.reports import junit
from pytest_pinchbench.reports.conversation import conversation
from pytest_pinchbench.reports.json_report import add_scores
from pytest_pinchbench.reports.run_report import Ended
from pytest_pinchbench.reports.terminal import Line
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary
from pytest_pinchbench.session import announce, neighbours
from pytest_pinchbench.session.node_ids import parse_node_id

if TYPE_CHECKING:
    from pytest_pinchbench.session.run import Run


def register(config: pytest.Config, run: Run) -> None:
    """To be called before the run's own hooks are registered: what is registered later is
    called earlier, and these lines stand below the run's summary.
    """
    hooks = ReportHooks(config, run)
    config.pluginmanager.register(hooks, "pinchbench-reports")
    config.pluginmanager.register(_StatsKept(), "pinchbench-stats")
    if run.directory is not None and getattr(config.option, "htmlpath", None):
        from pytest_pinchbench.reports.pytest_html import HtmlReportHooks

        decided = partial(decided_record, run.directory)
        html = HtmlReportHooks(run.directory, decided, hooks.summary)
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
    start of the session, and would have this worked out then.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def ended(self) -> Ended:
        run = self._run
        assert run.directory is not None
        description = json.loads((run.directory.path / "run.json").read_bytes())
        return Ended(
            run.directory,
            description,
            run.settings,
            run.baselines,
            run.wall_seconds,
            run.troubles,
        )


class ReportHooks:
    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config = config
        self._run = run
        self._results = _Results(run)
        self._shown = False
        self._exit_code = 0

    def summary(self) -> Summary:
        """That of the run, which has ended."""
        return self._results.ended.summary

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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        if not self._has_results():
            return (yield)
        ended = self._results.ended
        session.exitstatus = ended.exit_code(int(session.exitstatus))
        ended.write(self._run.say, self._run.results_dir)
        junit.add_suite_properties(self._config, ended.summary)
        result = yield
        # a plugin may have made a success of a session without tests (testmon)
        session.exitstatus = ended.exit_code(int(session.exitstatus))
        self._exit_code = int(session.exitstatus)
        if not self._shown:
            lines = [*self._section(), ended.last_line(self._exit_code)]
            print("\n".join(["", *(line.text for line in lines)]), file=sys.stderr, flush=True)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        if self._has_results():
            add_scores(json_report, self.summary())
        # it has captured output from a place of its own, and not from pytest's reports
        json_report.update(self._run.redactor.json(json_report))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The last line: the run, below pytest's own."""
        reporter = neighbours.terminal_reporter(config)
        if self._shown and reporter is not None:
            text, colour = self._results.ended.last_line(self._exit_code)
            reporter.write_line(self._run.redactor.text(text), bold=True, **{colour: True})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._has_results() and terminalreporter is neighbours.terminal_reporter(self._config):
            title, *lines = self._section()
            terminalreporter.ensure_newline()
            terminalreporter.section(title.text)
            for text, colour in lines:
                terminalreporter.write_line(text, **({colour: True} if colour else {}))
            self._shown = True
            for category, reports in terminalreporter.stats.items():
                others = [one for one in reports if not isinstance(one, pytest.TestReport)]
                terminalreporter.stats[category] = others

    def _section(self) -> list[Line]:
        """Return the title and the lines of the run's summary."""
        run = self._run
        assert run.directory is not None
        lines = self._results.ended.lines(
            run.short(run.directory),
            announce.hints(run),
            annotate_shortfalls=not neighbours.annotates_failures(self._config),
        )
        lines = [Line(f"PinchBench: {run.model_id}"), *lines]
        return [Line(run.redactor.text(line.text), line.colour) for line in lines]


class _StatsKept:
    """Give pytest's last line back the items that its short summary does not list."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, object, object]:
        every = dict(terminalreporter.stats)
        try:
            return (yield)
        finally:
            terminalreporter.stats.update(every)
