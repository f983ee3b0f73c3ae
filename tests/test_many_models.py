"""Several models in one session: items, directories, verdicts, gates, what stops one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

RIGHT = "echo yes > made.txt"
# does the work as the model "good" would, and half of it as any other
BY_MODEL = 'test "$MODEL_KEY" = key-of-good && echo yes > made.txt || echo no > made.txt'

MODELS = """
models:
  good: {id: lab/large, base_url: "http://127.0.0.1:9/v1", api_key_env: KEY_OF_GOOD}
  poor: {id: lab/small, base_url: "http://127.0.0.1:9/v1", api_key: key-of-poor}
"""


@pytest.fixture
def several(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """A run of the models ``good`` and ``poor``, whose endpoints are not checked."""
    monkeypatch.setenv("KEY_OF_GOOD", "key-of-good")
    (pytester.path / "models.yaml").write_text(MODELS, encoding="utf-8")

    def start(*options: str) -> pytest.RunResult:
        return pytester.runpytest(*ARGUMENTS, *options)

    return start


ARGUMENTS = (
    *("--pinchbench", "--model", "good", "--model", "poor", "--pinchbench-env", "local"),
    *("--pinchbench-config=models.yaml", "--pinchbench-model-check=no", "--pinchbench-relay=no"),
    *("-p", "no:rerunfailures"),
)


def records(folder: Path) -> dict[str, list[float | None]]:
    """The scores of every run below ``folder``, by the model's id."""
    found: dict[str, list[float | None]] = {}
    for file in sorted(folder.glob("*/*/*/*/result.json")):
        model = json.loads((file.parents[2] / "run.json").read_bytes())["model"]
        found.setdefault(model, []).append(json.loads(file.read_bytes())["metrics"]["score"])
    return found


def group_of(folder: Path) -> tuple[Path, dict[str, Any]]:
    (path,) = folder.glob("pinchbench-results/groups/*/summary.json")
    return path.parent, json.loads(path.read_bytes())


def test_each_task_is_an_item_for_each_model(project, several, pytester):
    project({"task_00_sanity": RIGHT, "task_01_b": RIGHT})
    result = several("--collect-only", "-q", "--pinchbench-attempts=2")
    names = [line.partition("::")[2] for line in result.outlines if "::" in line]
    assert names == [
        "task_00_sanity[good-1]",
        "task_00_sanity[poor-1]",
        "task_00_sanity[good-2]",
        "task_00_sanity[poor-2]",
        "task_01_b[good-1]",
        "task_01_b[poor-1]",
        "task_01_b[good-2]",
        "task_01_b[poor-2]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["one process", "xdist"])
def test_each_model_has_a_run_and_all_have_a_group(project, several, pytester, workers):
    project({f"task_0{n}_a": BY_MODEL for n in range(1, 6)})
    result = several("--junitxml=junit.xml", "--json-report", "--html=all.html", *workers)
    result.assert_outcomes(passed=5, failed=5)
    assert result.ret == 1
    assert records(pytester.path / "pinchbench-results") == {
        "lab/large": [1.0] * 5,
        "lab/small": [0.5] * 5,
    }
    group, summary = group_of(pytester.path)
    assert list(summary["models"]) == ["good", "poor"]
    assert summary["models"]["poor"]["score"]["mean"] == 0.5
    (comparison,) = summary["comparisons"]
    assert (comparison["baseline_name"], comparison["new_name"]) == ("good", "poor")
    assert comparison["difference"] == -0.5
    assert "| good |" in (group / "summary.md").read_text("utf-8")
    result.stdout.fnmatch_lines(
        [
            "*PinchBench: good*",
            "*PinchBench: poor*",
            "*PinchBench: 2 models*",
            "good * 1.000 *",
            "poor * 0.500 *",
            "poor against good",
            f"Results *{group.relative_to(pytester.path)}",
            "Page *file:///*/pinchbench-results/index.html#run=*%40*&run=*%40*",
            "PinchBench good *1.000*",
            "PinchBench poor *0.500*",
        ]
    )
    junit = (pytester.path / "junit.xml").read_text("utf-8")
    assert '<property name="good.mean_score" value="1.0"' in junit
    page = (pytester.path / "all.html").read_text("utf-8")
    assert page.count("<p>lab/") == 2
    report = json.loads((pytester.path / ".report.json").read_bytes())
    assert report["pinchbench"]["poor"]["score"]["mean"] == 0.5
    everything = b"".join(
        file.read_bytes() for file in pytester.path.glob("pinchbench-results/**/*.json")
    )
    assert b"key-of-" not in everything


def test_pytests_selection_holds_for_models(project, several, pytester):
    project({"task_01_a": BY_MODEL, "task_02_b": BY_MODEL})
    several("-m", "poor").assert_outcomes(failed=2)
    assert list(records(pytester.path / "pinchbench-results")) == ["lab/small"]
    several("-k", "task_02", "--deselect", "tasks/task_02_b.md::task_02_b[poor]").assert_outcomes(
        passed=1
    )
    several().assert_outcomes(passed=2, failed=2)
    again = several("--lf")
    again.assert_outcomes(failed=2)
    assert again.ret == 1


@pytest.mark.parametrize(("mark", "code"), [("0.4", 0), ("0.6", 1)])
def test_a_gate_is_the_worst_of_the_models(project, several, mark, code):
    project({"task_01_a": BY_MODEL})
    assert several(f"--pinchbench-fail-under={mark}").ret == code


def test_an_endpoint_that_is_dead_leaves_the_other_models_running(project, several, pytester):
    # the model "poor" has an endpoint on which nothing listens, "good" is not asked before
    project({f"task_0{n}_a": RIGHT for n in range(1, 4)})
    models = MODELS.replace('base_url: "http://127.0.0.1:9/v1", api_key_env', "api_key_env")
    (pytester.path / "models.yaml").write_text(models, encoding="utf-8")
    result = several("--pinchbench-model-check=yes")
    result.assert_outcomes(passed=3, errors=1, skipped=2)
    assert result.ret == 1
    assert records(pytester.path / "pinchbench-results") == {"lab/large": [1.0] * 3}
    assert "cannot be used" in result.stdout.str()


def test_a_sanity_task_is_of_its_model(project, several, pytester):
    project({"task_00_sanity": BY_MODEL.replace("echo no > made.txt", "true"), "task_01_b": RIGHT})
    result = several()
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    assert records(pytester.path / "pinchbench-results")["lab/large"] == [1.0, 1.0]


def test_a_key_goes_only_to_the_endpoint_it_was_given_for(project, several, pytester, monkeypatch):
    project({"task_01_a": 'printf "$MODEL_KEY"; echo yes > made.txt'})
    monkeypatch.setenv("MODEL_API_KEY", "key-of-neither")
    (pytester.path / "models.yaml").write_text(MODELS.replace(", api_key: key-of-poor", ""))
    several().assert_outcomes(passed=2)
    said = {
        json.loads((file.parents[2] / "run.json").read_bytes())["model"]: file.read_text("utf-8")
        for file in pytester.path.glob("pinchbench-results/lab*/*/*/*/transcript.jsonl")
    }
    assert "[redacted]" in said["lab/large"]  # its own
    assert "[redacted]" not in said["lab/small"]


def test_a_variable_without_a_key_is_an_error(project, several, monkeypatch):
    project({"task_01_a": RIGHT})
    monkeypatch.delenv("KEY_OF_GOOD")
    result = several()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*environment variable KEY_OF_GOOD: it is not set*"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["one process", "xdist"])
def test_a_killed_group_goes_on(project, several, pytester, workers):
    gate = pytester.path / "go-on"
    slow = f"while ! test -e {gate}; do sleep 0.05; done; {BY_MODEL}"
    project({"task_01_a": BY_MODEL, "task_02_b": slow})
    results = pytester.path / "pinchbench-results"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *ARGUMENTS, *workers],
        cwd=pytester.path,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    try:
        wait_until(lambda: len(list(results.glob("*/*/task_01_a/*/result.json"))) == 2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = {file: file.stat().st_mtime_ns for file in results.glob("*/*/*/*/result.json")}
    gate.touch()
    result = several("--pinchbench-resume=latest", *workers)
    result.assert_outcomes(passed=2, failed=2)
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())
    assert records(results) == {"lab/large": [1.0, 1.0], "lab/small": [0.5, 0.5]}
    _, summary = group_of(pytester.path)
    assert [one["official"] for one in summary["models"].values()] == [True, True]
    regraded = several(f"--pinchbench-regrade={group_of(pytester.path)[0]}")
    regraded.assert_outcomes(passed=2, failed=2)


def test_a_group_of_other_models_is_not_resumed(project, several, pytester):
    project({"task_01_a": RIGHT})
    several().assert_outcomes(passed=2)
    group, _ = group_of(pytester.path)
    result = several("--model", "lab/third", f"--pinchbench-resume={group}")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*is a group of good, poor, not of good, poor, lab/third"])


def test_models_of_addopts_are_a_default(project, several, pytester):
    project({"task_01_a": RIGHT})
    pytester.makeini("[pytest]\naddopts = --pinchbench-model lab/third")
    result = several("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::task_01_a[[]good]", "*::task_01_a[[]poor]"])
    result.stdout.no_fnmatch_line("*lab/third*")
