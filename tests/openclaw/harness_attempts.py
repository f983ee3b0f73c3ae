"""What an attempt of these tests is made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import records

from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.harnesses import AgentRun
from pytest_pinchbench.suite.task_file import Prompt, Task

KEY = "sk-a-secret-of-this-test"


def make_task(*prompts: str | Prompt) -> Task:
    asked = tuple(Prompt(p) if isinstance(p, str) else p for p in prompts)
    text = "\n".join(p.text for p in asked)
    return records.make_task("task_of_a_test", prompts=asked, prompt=text, automated_checks=None)


@dataclass
class Attempt:
    run: AgentRun
    sandbox: Sandbox
    workspace: Path
    state: Path

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What the stand-in was given."""
        calls = self.state / "calls.jsonl"
        return (
            [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        )

    @property
    def codes(self) -> list[str]:
        return [issue.code for issue in self.run.issues]
