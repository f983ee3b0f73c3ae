"""One run with every report, shared by the tests that look at what came out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browser
from runs import HOSTILE, SCRIPTS, Run, run_pinchbench, write_run
from support.suites import write_suite

CONFTEST = '''
from dataclasses import replace

import pytest
from support.shell_agent import ShellAgent

from pytest_pinchbench.harnesses.openclaw.trajectory import to_actf


class Talker(ShellAgent):
    """An agent whose conversation is worth reading."""

    def run(self, sandbox, task, workspace, line):
        run = super().run(sandbox, task, workspace, line)
        usage = replace(run.usage, cost_usd=COSTS.get(task.id))
        return replace(run, trajectory=to_actf(run.transcript), usage=usage)


COSTS = {"task_a": 10.0, "task_b": 9.5, "task_c": 0.5}


@pytest.fixture(scope="session")
def pinchbench_harness():
    return Talker({scripts!r})
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
