"""Real OpenClaw of both eras, through the relay, against the scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import Fault, parse_script

pytestmark = pytest.mark.openclaw

KEY = "sk-a-secret-of-this-test"
DATA_DIR = platformdirs.user_data_dir("pytest-pinchbench", appauthor=False)
SCRIPT = parse_script(
    """
    turns:
      - when: Make made.txt
        steps:
          - exec: {command: "echo yes > made.txt; env > env.txt; cat $OPENCLAW_STATE_DIR/*.json >> env.txt"}
          - It is made.
    """  # noqa: E501
)

Relayed = Callable[..., dict[str, Any]]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT, api_key=KEY) as served:
        yield served


@pytest.fixture(params=["2026.3.22", "2026.9.6"])
def relayed(
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    write_suite: Callable[..., Path],
    run: Callable[..., pytest.RunResult],
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> Relayed:
    """``relayed(option, ...)``: the record of a run of one task."""
    monkeypatch.setenv("MODEL_API_KEY", KEY)
    suite = write_suite(pytester.path / "skill", task_a={"timeout_seconds": 240})
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(suite))

    def start(*options: str, results: str = "first") -> dict[str, Any]:
        given = [f"--pinchbench-openclaw-version={request.param}", "--pinchbench-relay=yes"]
        given += [f"--pinchbench-data-dir={DATA_DIR}", f"--pinchbench-results-dir={results}"]
        if not any("replay" in option for option in options):
            given.append(f"--pinchbench-model-base-url={model.url}")
        run(*given, "--pinchbench-model-check=no", *options)
        (path,) = (pytester.path / results).rglob("result.json")
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    return start


def test_a_run_is_scored_counted_and_replayed(
    relayed: Relayed, model: ScriptedModel, pytester: pytest.Pytester
) -> None:
    found = relayed("--pinchbench-record", '--pinchbench-model-params={"top_p": 0.5}')
    assert (found["metrics"]["score"], found["issues"]) == (1.0, [])
    assert found["usage"]["request_count"] == len(model.requests) == 2
    assert found["usage"]["input_tokens"] > 0  # though not every release asks for its usage
    assert [request.body["top_p"] for request in model.requests] == [0.5, 0.5]
    (recorded,) = (pytester.path / "first").glob("*/*/run.json")
    model.close()
    again = relayed(f"--pinchbench-replay={recorded.parent}", results="again")
    assert (again["metrics"], again["usage"]["cost_usd"]) == (found["metrics"], 0)


def test_an_outage_in_mid_task_is_waited_for(relayed: Relayed, model: ScriptedModel) -> None:
    model.faults = (Fault(first=2, last=3, status=429, headers={"retry-after": "1"}),)
    found = relayed()
    assert (found["metrics"]["score"], found["issues"]) == (1.0, [])
    assert found["timing"]["waiting"] >= 2


def test_the_sandbox_holds_no_key(
    relayed: Relayed, model: ScriptedModel, pytester: pytest.Pytester
) -> None:
    relayed(
        "--pinchbench-keep-environment", f"--pinchbench-workspace-root={pytester.path / 'kept'}"
    )
    (told,) = (pytester.path / "kept").rglob("env.txt")
    assert "PINCHBENCH_MODEL_API_KEY=pinchbench-" in told.read_text()
    for path in (pytester.path / "kept").rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
