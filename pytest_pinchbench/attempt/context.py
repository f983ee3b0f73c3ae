"""What every attempt of a run shares."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_pinchbench.environments import Environment, Sandbox
from pytest_pinchbench.harnesses import Harness
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.settings import ModelSpec, Settings
from pytest_pinchbench.suite.task_file import Task

_GRACE_S = 600.0  # a sandbox outlives its attempt's own deadlines by this, if we are killed


@dataclass(frozen=True)
class AttemptContext:
    """What every attempt of a run shares."""

    settings: Settings
    environment: Environment
    harness: Harness
    judge: ModelSpec | None
    redactor: Redactor
    run_id: str
    model_id: str
    before_agent: Callable[[Sandbox], None] = lambda sandbox: None
    """Called in each sandbox before its agent starts (the run's endpoint checks)."""
    sleep: Callable[[float], None] = time.sleep

    def agent_timeout(self, task: Task) -> float:
        """Return the seconds that the agent has for a task."""
        return task.timeout_seconds * self.settings.timeout_multiplier

    def judge_inside(self, task: Task) -> ModelSpec | None:
        """Return the task's judge with its URL as seen from a sandbox."""
        judge = self.judge
        if task.grading_type == "automated" or judge is None or judge.base_url is None:
            return judge
        return replace(judge, base_url=self.environment.url_inside(judge.base_url))

    def open_sandbox(self, task: Task) -> Sandbox:
        """Open a fresh sandbox that lives long enough for the task. Raises ``SandboxFailure``."""
        settings = self.settings
        judging = settings.evaluation_timeout or settings.judge_timeout * (settings.retries + 1)
        return self.environment.open(
            task.id,
            labels={"run": self.run_id, "task": task.id},
            lifetime=self.agent_timeout(task) + settings.check_timeout + judging + _GRACE_S,
        )
