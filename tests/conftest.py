"""Fixtures for all tests, and the rule that CI skips nothing it should have run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import yaml  # noqa: F401
from support import other_protocols, suites  # noqa: F401
from support.surroundings import foreign_variables

# Imported before pytester takes note of what is: a module that pytester throws out and that is
# then imported once more exists twice, which parts written in C or Rust do not survive.
import pytest_pinchbench.session.hooks  # noqa: F401

with contextlib.suppress(ImportError):
    # its plugin imports this at the end of each run: two seconds for every run in this process
    import hypothesis.internal.observability  # noqa: F401

REQUIRED = frozenset(os.environ.get("PINCHBENCH_TESTS_REQUIRE", "").split(","))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """``PINCHBENCH_TESTS_REQUIRE=docker,openclaw``: a test with such a marker may not skip."""
    report = yield
    if report.skipped and any(item.get_closest_marker(name) for name in REQUIRED if name):
        report.outcome = "failed"
        report.longrepr = f"skipped, but required here: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _clean_surroundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    installs = request.node.get_closest_marker("openclaw")
    for name in list(foreign_variables()):
        if not (installs and name.lower().endswith("_proxy")):  # npm may need its proxy
            monkeypatch.delenv(name)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1,localhost", prepend=",")


@pytest.fixture
def write_suite() -> Callable[..., Path]:
    return suites.write_suite


CONFTEST = """
    import sys

    import pytest

    sys.path.insert(0, {here!r})
    from support.shell_agent import ShellAgent

    @pytest.fixture(scope="session")
    def pinchbench_harness():
        return ShellAgent({scripts!r}, cost={cost!r})
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``project({task id: script}, **front matter)``: a suite whose agent is a shell."""
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(pytester.path / "skill"))
    here = str(Path(__file__).parent)

    def make(scripts: dict[str, str], cost: float | None = None, **front: Any) -> Path:
        pytester.makeconftest(CONFTEST.format(here=here, scripts=scripts, cost=cost))
        tasks = {**{task: {} for task in scripts}, **front}
        return suites.write_suite(pytester.path / "skill", **tasks)

    return make


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """A run in local sandboxes."""

    def start(*options: str) -> pytest.RunResult:
        given = ["--pinchbench", "--model", "lab/m", "--pinchbench-env", "local", *options]
        if "--reruns" not in options:
            # its threads outlive a run in this process, and one of a run with workers never rests
            given += ["-p", "no:rerunfailures"]
        return pytester.runpytest(*given)

    return start
