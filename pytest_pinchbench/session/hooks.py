"""The hooks of a session that runs PinchBench, registered only then."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pytest_pinchbench.issues import AttemptInvalid, PinchBenchError
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.reports import formats
from pytest_pinchbench.session import announce, neighbours
from pytest_pinchbench.session.fixtures import make_environment
from pytest_pinchbench.session.items import SuiteDirectory, TaskItem
from pytest_pinchbench.session.progress import Progress
from pytest_pinchbench.session.run import Runs
from pytest_pinchbench.suite.load import holds_task_files, suite_root

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


class CollectionHooks:
    """In every process: task files become items, and nothing else does."""

    def __init__(self, runs: Runs) -> None:
        self._redactor = runs.first.redactor

    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        is_ours = suite_root(path) is not None and holds_task_files(path)
        return SuiteDirectory.from_parent(parent, path=path) if is_ours else None

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A project's own tests are not part of a run."""
        return True if collection_path.suffix == ".py" else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if not isinstance(item, TaskItem):
            return report
        if call.excinfo is not None and isinstance(call.excinfo.value, AttemptInvalid):
            report.longrepr = call.excinfo.getrepr(style="value")
        return _without_secrets(report, self._redactor)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return _without_secrets((yield), self._redactor)

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        _redacted(excrepr, self._redactor)


def _without_secrets(report: _Report, redactor: Redactor) -> _Report:
    """The report without a key in its text.

    The arguments and locals of frames go altogether: pytest cuts them to a width, and a key
    cut in its middle is not found.
    """
    longrepr: Any = report.longrepr
    for traceback, *_ in getattr(longrepr, "chain", ()):
        for entry in traceback.reprentries:
            entry.reprfuncargs = entry.reprlocals = None
    report.longrepr = _redacted(longrepr, redactor)
    report.sections = _redacted(report.sections, redactor)
    return report


def _redacted(value: Any, redactor: Redactor) -> Any:
    """Texts within what pytest builds a report of: lists, tuples and dataclasses."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_redacted(item, redactor) for item in value)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            setattr(value, field.name, _redacted(getattr(value, field.name), redactor))
    return value


class ControllerHooks:
    """In the process that talks to the user: what is said."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._is_run = runs.first.directory is not None
        self._progress: Progress | None = None

    def pytest_report_header(self) -> list[str]:
        return announce.header(self._runs)

    def pytest_report_collectionfinish(self) -> list[str]:
        notes = announce.notes(self._runs) if self._is_run else []
        return [f"pinchbench: {note}" for note in notes]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        reporter = neighbours.terminal_reporter(session.config)
        if not self._is_run:
            return (yield)
        if reporter is not None:
            self._progress = Progress(reporter, total=lambda: self._runs.to_run)
            self._progress.start()
        try:
            return (yield)
        finally:
            if self._progress is not None:
                self._progress.stop()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._progress is not None:
            self._progress.started(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._progress is not None:
            self._progress.finished(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.user_properties[:] = [
            (name, _JsonMapping(value) if isinstance(value, dict) else value)
            for name, value in report.user_properties
        ]
        self._runs.note_report(report)
        if self._progress is not None and report.when == "setup":
            properties: dict[str, Any] = dict(report.user_properties)
            self._progress.scored(properties.get("score"), properties.get("total_cost_usd"))

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
        """The outcome with the score beside it, for ``-v``."""
        properties = dict(getattr(report, "user_properties", ()))
        if "task_id" not in properties or report.skipped or hasattr(report, "wasxfail"):
            return None
        if report.when == "setup" and report.failed:
            return "error", "E", "ERROR invalid"
        if report.when != "call":
            return None
        word = "PASSED" if report.passed else "FAILED"
        letter = "." if report.passed else "F"
        return report.outcome, letter, f"{word} {formats.score(properties['score'])}"

    def pytest_unconfigure(self) -> None:
        for run in self._runs.all:
            if run.directory is not None:
                run.directory.finish()
                run.directory.remove_if_empty()


class XdistHooks:
    """In the controller of a run with ``-n``: what workers are given and what they found."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

        self._lost_a_worker = False

    def pytest_testnodedown(self, error: object) -> None:
        self._lost_a_worker = self._lost_a_worker or error is not None

    def pytest_unconfigure(self) -> None:
        """Remove the sandboxes of workers that were killed; they cost memory, or money."""
        if self._lost_a_worker:
            for run in self._runs.all:
                with contextlib.suppress(PinchBenchError):
                    make_environment(run, run.settings).prepare()

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["pinchbench"] = self._runs.for_worker()

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._runs.to_run = len(ids)
        first = self._runs.first
        if not any(run.selected for run in self._runs.all) and first.directory is not None:
            self._runs.select(first.directory.shared("chosen"))
            for note in announce.notes(self._runs):
                first.say(note)


class _JsonMapping(dict[str, Any]):
    """A mapping whose ``str`` is JSON, which is what JUnit XML writes of a property."""

    def __str__(self) -> str:
        return json.dumps(self)
