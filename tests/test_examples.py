"""The examples of an own harness and an own environment, installed and run as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import suites

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.slow  # each is built and installed


@pytest.fixture
def run_with(tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """``run_with(example, *options)``: a run in this folder with the example installed."""

    def run(example: str, *options: str) -> pytest.RunResult:
        source = tmp_path / "source"
        source.mkdir()
        for file in (EXAMPLES / example).iterdir():
            if file.is_file():
                (source / file.name).write_bytes(file.read_bytes())
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
        site = tmp_path / "site"
        subprocess.run([*pip, "--no-index", "--target", str(site), str(source)], check=True)
        monkeypatch.setenv("PYTHONPATH", str(site))
        return pytester.runpytest_subprocess("--pinchbench", "--model=lab/m", *options)

    return run


def test_the_own_harness_runs_any_program(run_with, pytester):
    suites.write_suite(pytester.path, task_a={}, task_b={"timeout_seconds": 1})
    (pytester.path / "mine.yaml").write_text(
        "harnesses:\n  command:\n    argv: [sh, -c, 'grep -c yes > made.txt; echo yes >> made.txt']"
    )
    result = run_with(
        "own_harness",
        f"--pinchbench-skill-dir={pytester.path}",
        "--pinchbench-env=local",
        "--pinchbench-harness=command",
        "--pinchbench-config=mine.yaml",
    )
    result.assert_outcomes(passed=2)
    (record,) = pytester.path.glob("pinchbench-results/*/*/task_a/*/transcript.jsonl")
    assert "Make made.txt that says yes." in record.read_text()


@pytest.mark.parametrize(("megabytes", "outcome"), [(4000, {"passed": 1}), (150, {"failed": 1})])
def test_the_own_environment_limits_memory(run_with, project, pytester, megabytes, outcome):
    take = "head -c 300000000 /dev/zero | tail -c 300000000 > /dev/null && echo yes > made.txt"
    project({"task_a": f"{take}; true"})
    (pytester.path / "small.yaml").write_text(
        f"environment: limited\noptions:\n  memory_mb: {megabytes}\n"
    )
    result = run_with("own_environment", "--pinchbench-recipe=small.yaml")
    result.assert_outcomes(**outcome)
