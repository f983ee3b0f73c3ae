"""What every attempt of a run shares."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_pinchbench.attempt.kept_work import read_recording
from pytest_pinchbench.attempt.line import RelayedLine
from pytest_pinchbench.attempt.needs import find_missing
from pytest_pinchbench.environments import Environment, Sandbox, check_reachable
from pytest_pinchbench.harnesses import DirectLine, Harness
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.relay.client import STARTUP_LIMIT, WAITING_LIMIT, RelayClient
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.settings import JudgeView, ModelSpec, Settings
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
    relay: RelayClient | None = None
    replay: RunDirectory | None = None
    """The recorded run that answers in the model's place."""
    before_agent: Callable[[Sandbox], None] = lambda sandbox: None
    """Called in each sandbox before its agent starts (the run's endpoint checks)."""
    before_work: Callable[[Sandbox], None] = lambda sandbox: None
    """Called in each sandbox in which an agent will work (is it the run's sandbox and agent?)."""
    sleep: Callable[[float], None] = time.sleep
    _has_all: set[str] = field(default_factory=set)
    """Tasks whose sandbox has what they need."""

    def agent_timeout(self, task: Task) -> float:
        """Return the seconds that the agent has for a task."""
        return task.timeout_seconds * self.settings.timeout_multiplier

    def judge_view(self, task: Task) -> JudgeView:
        """Return what a judge is shown of the work on a task."""
        return self.settings.judge_view or task.rules.judge_view

    def reads_workspace(self, task: Task) -> bool:
        """Return whether the grade of a task depends on files."""
        return task.grading_type != "llm_judge" or self.judge_view(task) == "full"

    def find_missing(self, sandbox: Sandbox, task: Task, agent_runs: bool) -> list[Issue]:
        """Look once for what a task needs in its sandboxes, which are all alike. See
        :func:`pytest_pinchbench.attempt.needs.find_missing`.
        """
        if task.id in self._has_all:
            return []
        found = find_missing(sandbox, task, agent_runs=agent_runs)
        if not found:
            self._has_all.add(task.id)
        return found

    def check_judge(self, task: Task) -> None:
        """Raise ``EnvironmentUnavailable`` where no sandbox can reach the task's judge."""
        if task.grading_type != "automated" and self.judge and self.relay is None:
            check_reachable(self.environment, self.judge.base_url or "")

    @contextmanager
    def line(
        self, task: Task, attempt: int, sandbox: Sandbox
    ) -> Iterator[DirectLine | RelayedLine]:
        """Connect an attempt's agent with its model. Raises ``SandboxFailure``."""
        settings, timeout = self.settings, self.agent_timeout(task)
        if self.relay is None or settings.model.base_url is None:
            yield DirectLine(settings.model, self.environment, timeout)
            return
        work = self.replay and read_recording(self.replay, task.id, attempt)
        paths = {}
        if work:
            now = posixpath.join(sandbox.workspace_root, work.relative)
            paths = {work.path: now} if work.path != now else {}
        grant = self.relay.open(
            f"{task.id}/{attempt}",
            "model",
            seconds=timeout,
            startup=STARTUP_LIMIT * settings.timeout_multiplier,
            patience=settings.model_patience,
            max_requests=settings.task_max_requests,
            record=settings.record,
            replay=work.exchanges if work else None,
            paths=paths,
        )
        relative = work.relative if work else None
        with RelayedLine(sandbox, self.environment, settings.model, grant, relative) as line:
            yield line

    @contextmanager
    def reach(
        self,
        role: str,
        spec: ModelSpec,
        sandbox: Sandbox,
        patience: float,
        connect_patience: float = 3600.0,
    ) -> Iterator[DirectLine | RelayedLine]:
        """Connect a sandbox with an endpoint, for other requests than the agent's.

        ``role`` is ``model`` or ``judge``; patiences: see :meth:`RelayClient.open`. Raises
        ``SandboxFailure``, ``EnvironmentUnavailable``.
        """
        if spec.base_url is None or self.relay is None:
            yield DirectLine(spec, self.environment, 0.0)
        else:
            grant = self.relay.open(
                sandbox.name,
                role,
                seconds=86_400.0,
                patience=patience,
                connect_patience=connect_patience,
                record=self.settings.record,
            )
            with RelayedLine(sandbox, self.environment, spec, grant) as line:
                yield line

    def open_sandbox(self, task: Task, beside: Sandbox | None = None) -> Sandbox:
        """Open a fresh sandbox that lives long enough for the task, perhaps with the workspaces of
        another one. Raises ``SandboxFailure``."""
        settings = self.settings
        work = self.agent_timeout(task)
        if self.relay is not None:  # of which an attempt's own clock knows nothing
            startup = STARTUP_LIMIT * settings.timeout_multiplier
            work += startup * len(task.prompts) + WAITING_LIMIT
        judging = settings.evaluation_timeout or settings.judge_timeout * (settings.retries + 1)
        also = {"beside": beside} if beside else {}
        return self.environment.open(
            f"{task.id}-grading" if beside else task.id,
            labels={"run": self.run_id, "task": task.id},
            lifetime=work + settings.check_timeout + judging + _GRACE_S,
            **also,
        )
