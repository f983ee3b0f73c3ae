"""What an attempt of these tests is made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.harnesses import AgentRun
from pytest_pinchbench.suite.task_file import Prompt, Task

KEY = "sk-a-secret-of-this-test"


def make_task(*prompts: str | Prompt) -> Task:
    asked = tuple(Prompt(p) if isinstance(p, str) else p for p in prompts)
    return Task(
        id="task_of_a_test",
        name="",
        category="",
        grading_type="automated",
        timeout_seconds=60,
        prompts=asked,
        prompt="\n".join(p.text for p in asked),
        expected_behavior="",
        grading_criteria="",
        automated_checks=None,
        judge_rubric=None,
        grading_weights=None,
        workspace_files=(),
        path=Path("task.md"),
        front_matter={},
        sections={},
    )


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
