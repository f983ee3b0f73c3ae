"""The hooks by which a run's results reach files, reports and GitHub; in the controller only."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.issues import ResultsUnwritable
from pytest_pinchbench.reports import junit
from pytest_pinchbench.reports.conversation import conversation
from pytest_pinchbench.reports.files import write_pages
from pytest_pinchbench.reports.group import report_group
from pytest_pinchbench.reports.index_page import write_index
from pytest_pinchbench.reports.json_report import add_scores
from pytest_pinchbench.reports.run_report import Ended
from pytest_pinchbench.reports.terminal import Line
from pytest_pinchbench.results.records import Record
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary
from pytest_pinchbench.session import announce, neighbours

if TYPE_CHECKING:
    from pytest_pinchbench.session.run import Run, Runs


def register(config: pytest.Config, runs: Runs) -> None:
    """To be called before the run's own hooks are registered: what is registered later is
    called earlier, and these lines stand below the run's summary.
    """
    hooks = ReportHooks(config, runs)
    config.pluginmanager.register(hooks, "pinchbench-reports")
    config.pluginmanager.register(_StatsKept(), "pinchbench-stats")
    if runs.first.directory is not None and getattr(config.option, "htmlpath", None):
        from pytest_pinchbench.reports.pytest_html import HtmlReportHooks

        html = HtmlReportHooks(partial(decided_record, runs), hooks.summaries)
        config.pluginmanager.register(html, "pinchbench-pytest-html")


def decided_record(runs: Runs, report: pytest.TestReport) -> tuple[RunDirectory, Record] | None:
    """The record of the test whose outcome this report decides, and where it is; None for its
    other reports.
    """
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return None
    run, key = runs.find(report.nodeid) or (None, ("", 0))
    if run is None or run.directory is None:
        return None
    record = run.directory.read(*key)
    return (run.directory, record) if record else None


class _Results:
    """What the runs came to, once they have ended.

    Not in the plugin itself: pytest looks at every attribute of a plugin for fixtures, at the
    start of the session, and would have this worked out then.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    @cached_property
    def ended(self) -> list[tuple[Run, Ended]]:
        return [(run, _ended(run)) for run in self._runs.all if run.is_recorded]


def _ended(run: Run) -> Ended:
    assert run.directory is not None
    description = json.loads((run.directory.path / "run.json").read_bytes())
    return Ended(
        run.directory, description, run.settings, run.baselines, run.wall_seconds, run.troubles
    )


class ReportHooks:
    def __init__(self, config: pytest.Config, runs: Runs) -> None:
        self._config = config
        self._runs = runs
        self._redactor = runs.first.redactor
        self._results = _Results(runs)
        self._shown = False
        self._code = 0
        self._unwritten = False

    def summaries(self) -> dict[str, Summary]:
        """Return the summary of each run, which has ended, by what its model is called."""
        return {run.name: ended.summary for run, ended in self._results.ended}

    def _has_results(self) -> bool:
        return any(run.is_recorded for run in self._runs.all)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if junit.is_written(self._config) and (found := decided_record(self._runs, report)):
            entries = conversation(*found, junit.TAIL)
            junit.add_transcript(self._config, report, entries)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        if not self._has_results():
            return (yield)
        session.exitstatus = self._exit_code(int(session.exitstatus))
        for run, ended in self._results.ended:
            try:
                ended.write(run.say)
            except ResultsUnwritable as error:  # what was paid for is in the records
                run.say(str(error))
                self._unwritten = True
            junit.add_suite_properties(self._config, ended.summary, run.name)
        first = self._runs.first
        write_pages([("index.html", partial(write_index, first.results_dir))], first.say)
        result = yield
        # a plugin may have made a success of a session without tests (testmon)
        session.exitstatus = self._code = self._exit_code(int(session.exitstatus))
        if not self._shown:
            for title, lines in self._sections():
                print("\n".join(["", title, *(line.text for line in lines)]), file=sys.stderr)
            print("\n".join(line.text for line in self._last_lines()), file=sys.stderr, flush=True)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        if self._has_results():
            add_scores(json_report, self.summaries())
        # it has captured output from a place of its own, and not from pytest's reports
        json_report.update(self._redactor.json(json_report))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The last line of each run, below pytest's own."""
        reporter = neighbours.terminal_reporter(config)
        if self._shown and reporter is not None:
            for text, colour in self._last_lines():
                reporter.write_line(text, bold=True, **{colour: True})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._has_results() and terminalreporter is neighbours.terminal_reporter(self._config):
            for title, lines in self._sections():
                terminalreporter.ensure_newline()
                terminalreporter.section(title)
                for text, colour in lines:
                    terminalreporter.write_line(text, **({colour: True} if colour else {}))
            self._shown = True
            for category, reports in terminalreporter.stats.items():
                others = [one for one in reports if not isinstance(one, pytest.TestReport)]
                terminalreporter.stats[category] = others

    def _exit_code(self, code: int) -> int:
        """Return the worst exit code of the runs, given pytest's for all of them."""
        worst = max(ended.exit_code(code) for _, ended in self._results.ended)
        return max(worst, int(self._unwritten))

    def _last_lines(self) -> list[Line]:
        lines = []
        for run, ended in self._results.ended:
            text, colour = ended.last_line(self._code, run.name)
            lines.append(Line(self._redactor.text(text), colour))
        return lines

    def _sections(self) -> Iterator[tuple[str, list[Line]]]:
        """Yield the title and the lines of the summary of each run, and of the group."""
        where = self._runs.first.short(self._runs.group) if self._runs.group else None
        for run, ended in self._results.ended:
            assert run.directory is not None
            place = run.short(run.directory.path)
            lines = ended.lines(
                place,
                announce.hints(run, where or place),
                annotate_shortfalls=not neighbours.annotates_failures(self._config),
            )
            yield self._section(run.name or run.model_id, lines)
        if self._runs.group and where:
            summaries = self.summaries()
            found = map(Line, report_group(self._runs.group, where, summaries))
            yield self._section(f"{len(summaries)} models", found)

    def _section(self, title: str, lines: Iterable[Line]) -> tuple[str, list[Line]]:
        text = self._redactor.text
        return text(f"PinchBench: {title}"), [Line(text(one.text), one.colour) for one in lines]


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
