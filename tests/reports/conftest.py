"""One run with every report, shared by the tests that look at what came out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browser
from runs import HOSTILE, SCRIPTS, Run, run_pinchbench, write_run
from suites import write_suite

CONFTEST = '''
from dataclasses import replace

import pytest
from shell_agent import ShellAgent

from pytest_pinchbench.trajectory import to_actf


class Talker(ShellAgent):
    """An agent whose conversation is worth reading."""

    def run(self, sandbox, task, workspace, timeout):
        run = super().run(sandbox, task, workspace, timeout)
        return replace(run, trajectory=to_actf(run.transcript))


@pytest.fixture(scope="session")
def pinchbench_harness():
    return Talker({scripts!r}, cost=0.25)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_pinchbench.issues import PinchBenchError
    from pytest_pinchbench.items import RUN
    from pytest_pinchbench.reports import hooks

    controller = config.option.pinchbench and not hasattr(config, "workerinput")
    if controller and not config.pluginmanager.hasplugin("pinchbench-reports"):
        run = config.stash[RUN]
        ours = config.pluginmanager.unregister(name="pinchbench-controller")
        try:
            hooks.register(config, run)
        except PinchBenchError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(ours, "pinchbench-controller")
'''


@pytest.fixture(scope="session")
def write_project():
    def write(folder: Path, scripts: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST.replace("{scripts!r}", repr(scripts)))
        said = [{"path": "said.txt", "content": HOSTILE}]
        write_suite(folder / "skill", **{t: {"workspace_files": said} for t in scripts})

    return write


@pytest.fixture(scope="session")
def finished(tmp_path_factory, write_project) -> Run:
    folder = tmp_path_factory.mktemp("run") / "project"
    write_project(folder, SCRIPTS)
    write_run(folder / "old", {"task_a": [0.5], "task_b": [1.0]}, model="lab/old")
    done = run_pinchbench(
        folder,
        *("-n", "2", "--junit-xml", "junit.xml", "--pinchbench-compare", "old"),
        *("--json-report", "--json-report-file", "report.json"),
        *("--html", "page.html", "--self-contained-html"),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(folder / "step.md"),
    )
    return Run(done.returncode, done.stdout + done.stderr, folder)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
