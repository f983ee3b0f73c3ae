"""Real OpenClaw, one release of each era, against the scripted model endpoint.

The releases are installed on first use, into the folder where a user's runs keep them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
from harness_attempts import KEY, Attempt, make_task

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import Action, Fault, parse_script
from pytest_pinchbench.harnesses.openclaw import OpenClawHarness
from pytest_pinchbench.issues import HarnessUnavailable
from pytest_pinchbench.settings import Settings

pytestmark = pytest.mark.openclaw

RELEASES = ("2026.3.22", "2026.9.6")
DATA_DIR = Path(platformdirs.user_data_dir("pytest-pinchbench", appauthor=False))
PATIENCE = 300.0  # seconds; a turn takes 4 to 14 on a machine with nothing else to do

SCRIPT = parse_script(
    """
    turns:
      - when: pack the bag
        steps:
          - write: {path: bag.txt, content: "socks\\nhat\\n"}
          - edit: {path: bag.txt, oldText: hat, newText: cap}
          - read: {path: bag.txt}
          - exec: {command: "cp bag.txt copy.txt; echo copied"}
          - The bag is packed.
      - when: what did you pack
        steps:
          - Socks and a cap.
      - when: start a clock
        steps:
          - write: {path: clock.sh, content: "while :; do echo x >> ticks; sleep 0.05; done\n"}
          - exec: {command: "nohup setsid sh clock.sh > /dev/null 2>&1 &"}
          - exec: {command: "until [ -s ticks ]; do sleep 0.05; done"}
          - The clock is running.
    """
)
BAG = "pack the bag"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT, api_key=KEY) as served:
        yield served


@pytest.fixture
def harness(
    settings_for: Callable[..., Settings], model: ScriptedModel, release: str
) -> OpenClawHarness:
    return OpenClawHarness(
        settings_for(
            f"--pinchbench-data-dir={DATA_DIR}",
            f"--pinchbench-openclaw-version={release}",
            f"--pinchbench-model-base-url={model.url}",
            "--model=org/Some.Model-1:free",
        )
    )


@pytest.fixture
def run(attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    def run(harness: OpenClawHarness, *prompts: str, timeout: float = PATIENCE) -> Attempt:
        try:
            return attempt(harness, make_task(*prompts), timeout)
        except HarnessUnavailable as error:
            pytest.skip(str(error))

    return run


RunReal = Callable[..., Attempt]


def with_model(harness: OpenClawHarness, **changes: object) -> OpenClawHarness:
    model = replace(harness.settings.model, **changes)  # type: ignore[arg-type]
    return OpenClawHarness(replace(harness.settings, model=model))


def test_two_prompts_are_one_conversation(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel, release: str
) -> None:
    done = run(harness, BAG, "what did you pack?")

    assert done.run.issues == ()
    assert done.run.version == release
    assert (done.workspace / "copy.txt").read_text() == "socks\ncap\n"
    assert done.run.final_answer == "Socks and a cap."
    assert done.run.usage.request_count == len(model.requests) == 6
    assert (done.run.usage.input_tokens, done.run.usage.output_tokens) == (600, 120)
    assert done.run.usage.cost_usd is None

    # what both eras have to agree in, to the letter
    steps = done.run.trajectory["steps"]
    assert [step["user_content"].split("\n")[-1] for step in steps if step["user_content"]] == [
        f"{BAG}",
        "what did you pack?",
    ]
    calls = [call["function"] for s in steps for call in s["assistant_content"]["tool_calls"]]
    assert calls == [
        {"name": "write", "arguments": {"path": "bag.txt", "content": "socks\nhat\n"}},
        {"name": "edit", "arguments": {"path": "bag.txt", "oldText": "hat", "newText": "cap"}},
        {"name": "read", "arguments": {"path": "bag.txt"}},
        {"name": "exec", "arguments": {"command": "cp bag.txt copy.txt; echo copied"}},
    ]
    assert [seen["content"] for seen in steps[2]["observation"]] == ["socks\ncap\n"]
    assert steps[-1]["metric"]["stop_reason"] == "stop"
    assert all(step["metric"]["llm_infer_ms"] >= 0 for step in steps)
    assert all(
        isinstance(e["message"]["content"], list) for e in done.run.transcript if "message" in e
    )

    private = Path(done.sandbox.private_root)
    files = [path for path in private.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_what_the_agent_left_running_is_stopped(harness: OpenClawHarness, run: RunReal) -> None:
    done = run(harness, "start a clock")
    assert done.run.issues == ()
    before = (done.workspace / "ticks").stat().st_size
    time.sleep(0.5)  # ten times the clock's pace
    assert (done.workspace / "ticks").stat().st_size == before > 0


def test_a_silent_model_is_stopped_on_time(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel
) -> None:
    """2026.3.22 writes no prompt before the first answer: silence looks like a slow start."""
    model.faults = [Fault(action="silence")]
    writes_prompts = harness.settings.openclaw_version != "2026.3.22"
    timeout = 80.0 if writes_prompts else 15.0  # a start is to take less than half of it
    done = run(harness, BAG, timeout=timeout)
    assert done.run.execution_time < timeout + 45
    assert done.run.timed_out
    expected = ["agent_timeout", "model_silent"] if writes_prompts else ["agent_starved"]
    assert done.codes == expected


def test_a_wrong_key_is_no_score(harness: OpenClawHarness, run: RunReal) -> None:
    done = run(with_model(harness, api_key="sk-not-the-key"), BAG)
    (issue,) = done.run.issues
    assert (issue.severity, issue.code) == ("FATAL", "model_endpoint")
    assert "never heard" in issue.message
    assert "401" in issue.message


@pytest.mark.parametrize("action", ["refuse", "status"])
def test_an_endpoint_that_fails_in_mid_task_is_no_score(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel, action: Action
) -> None:
    model.faults = [Fault(action=action, first=3, status=500)]
    done = run(harness, BAG)
    (issue,) = done.run.issues
    assert (issue.severity, issue.code) == ("FATAL", "model_endpoint")
    assert "in mid-task" in issue.message


def test_a_request_refused_for_its_content_is_graded(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel
) -> None:
    words = "This model's maximum context length is 8192 tokens."
    model.faults = [Fault(action="status", first=3, status=400, message=words)]
    done = run(harness, BAG)
    (issue,) = done.run.issues
    assert (issue.severity, issue.code) == ("ERROR", "request_refused")
    assert words in issue.message
    assert (done.workspace / "bag.txt").read_text() == "socks\ncap\n"


@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic"])
def test_the_other_protocols_are_spoken(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel, protocol: str
) -> None:
    done = run(with_model(harness, api_protocol=protocol), BAG)
    assert done.run.issues == ()
    assert done.run.final_answer == "The bag is packed."
    assert done.run.usage.output_tokens == 100


def test_a_model_may_be_called_anything(
    harness: OpenClawHarness, run: RunReal, model: ScriptedModel
) -> None:
    name = "Org/" + "Very.Long-" * 12 + "Name@2024-v1:Q4_K_M"
    params = {"temperature": 0.25}
    done = run(with_model(harness, id=name, params=params), BAG)
    assert done.run.issues == ()
    assert {request.body["model"] for request in model.requests} == {name}
    assert {request.body.get("temperature") for request in model.requests} == {0.25}
