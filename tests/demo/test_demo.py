"""``pytest --pinchbench -p pytest_pinchbench.demo``: what it settles, and a run of it."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from pytest_pinchbench.demo import SUITE
from pytest_pinchbench.environments.bubblewrap import why_unusable
from pytest_pinchbench.harnesses.openclaw.install import install_here
from pytest_pinchbench.issues import HarnessUnavailable
from pytest_pinchbench.session.run import RUNS
from pytest_pinchbench.settings import Settings

SANDBOX = "local" if why_unusable() else "bubblewrap"
DEMO = ("--pinchbench", "-p", "pytest_pinchbench.demo")

SCORES = {
    "task_00_roll_call": 1.0,
    "task_01_packing_list": 0.75,
    "task_02_bike_trips": 1.0,
    "task_03_book_club": 1.0,
    "task_04_leap_years": 0.0,
    "task_05_lost_umbrella": 0.85,
    "task_06_release_note": 0.4 * 0.5 + 0.6 * 0.6,
}

# found before pytester moves HOME, so that OpenClaw is installed once and not once a test
DATA_DIR = platformdirs.user_data_path("pytest-pinchbench", appauthor=False)


@dataclass(eq=False)  # pytest 8.0 wants plugins that can be hashed
class Spy:
    """A plugin that notes what a run was asked for, and tries its endpoint."""

    found: Settings | None = None
    status: int = 0
    status_without_key: int = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = session.config.stash[RUNS].first.settings
        if (self.found.model.base_url or "").startswith("http://127.0.0.1"):
            self.status = models(self.found.model.base_url, self.found.model.api_key)
            self.status_without_key = models(self.found.model.base_url, "another key")


@pytest.fixture
def collect(pytester: pytest.Pytester) -> Callable[..., Spy]:
    """``collect(ARGUMENTS)`` collects the demo in this process, with a spy."""

    def run(*arguments: str) -> Spy:
        spy = Spy()
        pytester.inline_run(*DEMO, "--collect-only", *arguments, plugins=[spy])
        return spy

    return run


@pytest.fixture
def settings(collect: Callable[..., Spy]) -> Callable[..., Settings]:
    def settle(*arguments: str) -> Settings:
        found = collect(*arguments).found
        assert found is not None
        return found

    return settle


def models(url: str | None, key: str | None) -> int:
    """The status of a request for the list of models."""
    # not by httpx: what it imports late, pytester would throw out, to be there twice afterwards
    request = urllib.request.Request(f"{url}/models", headers={"x-api-key": str(key)})
    try:
        with urllib.request.urlopen(request) as response:
            status: int = response.status
    except urllib.error.HTTPError as error:
        return error.code
    return status


def test_what_the_command_line_leaves_open_is_the_demos(settings: Callable[..., Settings]) -> None:
    found = settings()
    assert found.skill_dir == SUITE
    assert found.recipe.environment == SANDBOX
    assert found.model.id == "demo/scripted"
    assert found.judge is not None
    assert (found.judge.base_url, found.judge.api_key) == (
        found.model.base_url,
        found.model.api_key,
    )


def test_settings_of_a_real_project_do_not_count(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    settings: Callable[..., Settings],
) -> None:
    pytester.makeini("[pytest]\npinchbench_env = docker\npinchbench_judge_model = dear-judge")
    monkeypatch.setenv("MODEL_NAME", "dear-model")
    monkeypatch.setenv("MODEL_API_KEY", "sk-dear")
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(pytester.path))
    found = settings()
    assert (found.model.id, found.recipe.environment) == ("demo/scripted", SANDBOX)
    assert found.judge is not None
    assert found.judge.id == "demo/judge"
    assert found.model.api_key != "sk-dear"
    assert found.skill_dir == SUITE


def test_where_namespaces_are_forbidden_it_says_so_and_is_local(
    settings: Callable[..., Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    forbidden = tmp_path / "bwrap"
    forbidden.write_text("#!/bin/sh\necho 'bwrap: No permissions to do that' >&2; exit 1\n")
    forbidden.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    why_unusable.cache_clear()
    try:
        assert settings().recipe.environment == "local"
    finally:
        why_unusable.cache_clear()
    assert "forbids user namespaces (bwrap: No permissions" in capfd.readouterr().err


def test_a_model_of_ones_own_is_not_judged_by_the_script(settings: Callable[..., Settings]) -> None:
    found = settings("--model", "openrouter/some/model")
    assert found.model.id == "openrouter/some/model"
    assert (found.model.base_url, found.judge, found.fail_under) == (None, None, None)
    assert found.skill_dir == SUITE


def test_a_suite_of_ones_own_is_taken(
    tmp_path: Path, write_suite: Callable[..., Path], settings: Callable[..., Settings]
) -> None:
    own = write_suite(tmp_path / "own", task_a={})
    assert settings("--pinchbench-skill-dir", str(own)).skill_dir == own


def test_without_the_option_the_demo_does_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_of_the_project(pytestconfig): pass")
    pytester.runpytest(*DEMO[1:]).assert_outcomes(passed=1)


def test_the_endpoint_answers_the_run_and_nobody_else(collect: Callable[..., Spy]) -> None:
    spy = collect()
    assert (spy.status, spy.status_without_key) == (200, 401)


def test_the_endpoint_ends_with_the_run(settings: Callable[..., Settings]) -> None:
    model = settings().model
    with contextlib.suppress(OSError):  # refused; or by now the port is another program's
        assert models(model.base_url, model.api_key) != 200


@pytest.fixture
def openclaw() -> None:
    try:
        install_here(DATA_DIR, None, again=False, say=print)
    except HarnessUnavailable as error:
        pytest.skip(str(error))


def scores(results: Path) -> dict[str, Any]:
    records = [json.loads(path.read_text()) for path in results.glob("*/*/*/*/result.json")]
    return {record["task_id"]: record["metrics"]["score"] for record in records}


@pytest.mark.openclaw
@pytest.mark.usefixtures("openclaw")
def test_a_run_gives_the_scores_that_the_script_deserves(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        *DEMO, "-n", "2", f"--pinchbench-data-dir={DATA_DIR}", "--pinchbench-results-dir=out"
    )
    assert scores(pytester.path / "out") == pytest.approx(SCORES)
    assert len(list(pytester.path.glob("out/*/*/report.html"))) == 1
    mean = sum(SCORES.values()) / len(SCORES)
    result.stdout.re_match_lines([rf"Mean score +{mean:.3f}.*"])
    assert result.ret == 0
