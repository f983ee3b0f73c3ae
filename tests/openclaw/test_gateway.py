"""Real OpenClaw behind its gateway: subagents work, and nothing is left running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest
from harness_attempts import KEY, Attempt, make_task

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import parse_script
from pytest_pinchbench.harnesses.openclaw import OpenClawHarness
from pytest_pinchbench.issues import HarnessUnavailable
from pytest_pinchbench.settings import Settings

pytestmark = [pytest.mark.openclaw, pytest.mark.slow]

DATA_DIR = Path(platformdirs.user_data_dir("pytest-pinchbench", appauthor=False))
SPAWN = '{sessions_spawn: {task: "scribble the note", runTimeoutSeconds: 60}}'
SEARCHED = """
          {tool_call: {id: sessions_spawn, args: {task: scribble the note, runTimeoutSeconds: 60}}}
"""
SCRIPT = """
    turns:
      - when: let a helper write
        steps:
          - SPAWN
          - exec: {command: "for i in $(seq 300); do [ -s note.txt ] && break; sleep 0.1; done"}
          - The helper has been asked.
      - when: scribble the note
        steps:
          - write: {path: note.txt, content: "yes\\n"}
          - The note is written.
      - when: again
        steps:
          - Still here.
"""


@pytest.mark.parametrize("release", ["2026.3.22", "2026.9.6"])
@pytest.mark.parametrize("mode", ["local", "gateway"])
def test_a_subagent_works_behind_a_gateway_only(
    settings_for: Callable[..., Settings],
    attempt: Callable[..., Attempt],
    release: str,
    mode: str,
) -> None:
    # newer releases keep most tools behind a search
    spawn = SPAWN if release == "2026.3.22" else SEARCHED.strip()
    script = parse_script(SCRIPT.replace("SPAWN", spawn))
    with ScriptedModel(script, api_key=KEY) as model:
        settings = settings_for(
            f"--pinchbench-data-dir={DATA_DIR}",
            f"--pinchbench-openclaw-version={release}",
            f"--pinchbench-model-base-url={model.url}",
            f"--pinchbench-openclaw-mode={mode}",
        )
        try:
            done = attempt(
                OpenClawHarness(settings), make_task("let a helper write", "again"), 300.0
            )
        except HarnessUnavailable as error:
            pytest.skip(str(error))
    assert done.run.issues == ()
    assert (done.workspace / "note.txt").exists() == (mode == "gateway")
    assert done.run.final_answer == "Still here."
    assert done.run.transcript[-1]["message"]["role"] == "assistant"
    asked = done.run.usage.request_count
    assert asked == len(model.requests)
