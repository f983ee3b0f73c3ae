"""One attempt at one task, start to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.attempt import grading
from pytest_pinchbench.attempt.grading import Grade
from pytest_pinchbench.attempt.kept_work import KeptWork
from pytest_pinchbench.attempt.record import make_result
from pytest_pinchbench.attempt.workspace import (
    AssetMissing,
    Workspace,
    archive_workspace,
    make_workspace,
    restore_workspace,
    task_files,
)
from pytest_pinchbench.harnesses import AgentRun
from pytest_pinchbench.issues import Issue, SandboxFailure
from pytest_pinchbench.results.records import TaskResult

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.harnesses import Harness
    from pytest_pinchbench.redaction import Redactor
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task

_LASTING = {"asset_missing", "judge_missing", "judge_settings"}  # another try changes nothing
GRACE = 600.0  # seconds that a sandbox outlives its attempt's own deadlines, if we are killed


@dataclass(frozen=True)
class AttemptSetup:
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


@dataclass
class _Notes:
    """What is known of an attempt so far, so that a failure at any stage still has a record."""

    started: float = field(default_factory=time.time)
    seconds: dict[str, float] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    workspace: Workspace | None = None
    run: AgentRun | None = None
    archive: bytes | None = None
    grade: Grade | None = None
    asked_again: int = 0
    """How often the judge was asked after it had failed."""
    graded: bool = False
    """The grade is the last word: its judge has been asked as often as the budget allows."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @property
    def fatal(self) -> bool:
        return any(issue.severity == "FATAL" for issue in self.issues)


def run_attempt(
    task: Task,
    attempt: int,
    setup: AttemptSetup,
    kept: KeptWork | None = None,
    earlier: Sequence[Mapping[str, Any]] = (),
) -> TaskResult:
    """The attempt, tried again after a FATAL as often as the retry budget allows.

    A failed judge is asked again in the same sandbox; anything else that is FATAL gets a
    fresh sandbox, and an agent only where there is no work of an earlier try to grade. With
    ``kept`` no agent runs: that work is graded again. ``earlier``: what was tried in a run that
    is resumed (:func:`~pytest_pinchbench.attempt.kept_work.tries`). Raises only what ends
    the whole run (``RUN_ENDERS``).
    """
    budget = setup.settings.retries
    failed: list[_Notes] = []
    while True:
        notes = _Notes()
        _try_once(task, setup, notes, budget, kept)
        budget -= notes.asked_again
        if not notes.fatal or notes.graded or budget <= 0 or _hopeless(notes.issues):
            return _result(task, attempt, setup, notes, failed, earlier)
        budget -= 1
        setup.sleep(backoff(len(failed), None))
        failed.append(notes)
        kept = kept or _salvage(notes)


def _salvage(notes: _Notes) -> KeptWork | None:
    """The agent's work, where it was done and only its sandbox was lost before the grade."""
    if notes.run is None or notes.archive is None or notes.workspace is None:
        return None
    if any(issue.severity == "FATAL" for issue in notes.run.issues):
        return None
    return KeptWork(notes.run, notes.archive, notes.workspace.relative)


def _try_once(
    task: Task, setup: AttemptSetup, notes: _Notes, retries: int, kept: KeptWork | None
) -> None:
    """One sandbox, one agent, its grade; what comes of it is in ``notes``."""
    try:
        # what is missing is found before a sandbox or an agent is paid for
        if kept is None:
            task_files(task)
        judge = None
        if task.grading_type != "automated":
            judge = _inside(setup.environment, setup.judge)
        with notes.stage("open"):
            sandbox = _open(task, setup)
        try:
            setup.before_agent(sandbox)
            if kept is None:
                _work(sandbox, task, setup, notes)
            else:
                _take_up(sandbox, kept, notes)
            if not notes.fatal:
                with notes.stage("grade"):
                    _grade(sandbox, task, setup, judge, notes, retries)
        finally:
            with notes.stage("close"):
                sandbox.close()
    except AssetMissing as error:
        notes.issues.append(Issue("FATAL", "asset_missing", str(error)))
    except SandboxFailure as error:
        notes.issues.append(Issue("FATAL", "sandbox", str(error)))


def _work(sandbox: Sandbox, task: Task, setup: AttemptSetup, notes: _Notes) -> None:
    """Prepare the workspace, let the agent work in it, keep what it left."""
    with notes.stage("prepare"):
        notes.workspace = make_workspace(
            sandbox, task, lambda path: setup.harness.files(sandbox, task, path)
        )
    with notes.stage("run"):
        timeout = task.timeout_seconds * setup.settings.timeout_multiplier
        notes.run = setup.harness.run(sandbox, task, notes.workspace.path, timeout)
    notes.issues += notes.run.issues
    if setup.settings.keep_workspace:
        with notes.stage("keep"):
            archive, not_kept = archive_workspace(sandbox, notes.workspace, setup.redactor)
        notes.archive = archive
        notes.issues += [not_kept] if not_kept else []


def _take_up(sandbox: Sandbox, kept: KeptWork, notes: _Notes) -> None:
    """Put an earlier attempt's workspace into the sandbox, as its agent left it."""
    notes.run, notes.archive = kept.run, kept.archive
    notes.issues += kept.run.issues
    with notes.stage("prepare"):
        notes.workspace = restore_workspace(sandbox, kept.archive, kept.workspace)


def _grade(
    sandbox: Sandbox,
    task: Task,
    setup: AttemptSetup,
    judge: ModelSpec | None,
    notes: _Notes,
    retries: int,
) -> None:
    """Grade, asking a failed judge again: the agent's work is paid for and stays as it is."""
    assert notes.run is not None
    assert notes.workspace is not None
    settings = setup.settings
    deadline = settings.evaluation_timeout and time.monotonic() + settings.evaluation_timeout
    while True:
        notes.grade = grade = grading.grade(
            sandbox,
            task,
            notes.workspace.path,
            notes.run.transcript,
            judge=judge,
            judge_timeout=settings.judge_timeout,
            timeout=deadline and max(deadline - time.monotonic(), 0.001),
            check_timeout=settings.check_timeout,
            transcript_limit=settings.transcript_limit,
            previous=notes.grade,
        )
        wait = backoff(notes.asked_again, grade.retry_after)
        spent = notes.asked_again == retries or (deadline and time.monotonic() + wait >= deadline)
        if grade.score is not None or spent or _hopeless(grade.issues):
            break
        setup.sleep(wait)
        notes.asked_again += 1
    notes.graded = True
    notes.issues += grade.issues


def _open(task: Task, setup: AttemptSetup) -> Sandbox:
    settings = setup.settings
    work = task.timeout_seconds * settings.timeout_multiplier
    judging = settings.evaluation_timeout or settings.judge_timeout * (settings.retries + 1)
    return setup.environment.open(
        task.id,
        labels={"run": setup.run_id, "task": task.id},
        lifetime=work + settings.check_timeout + judging + GRACE,
    )


def _inside(environment: Environment, spec: ModelSpec | None) -> ModelSpec | None:
    if spec is None or spec.base_url is None:
        return spec
    return replace(spec, base_url=environment.url_inside(spec.base_url))


def _hopeless(issues: Sequence[Issue]) -> bool:
    """Whether another try is sure to fail in the same way."""
    return any(issue.code in _LASTING for issue in issues)


def backoff(tried: int, asked: float | None) -> float:
    """Seconds before the next try: what the endpoint asked for, or 1, 2, 4 ...; at most 60."""
    return min(asked if asked is not None else 2.0**tried, 60.0)


def _result(
    task: Task,
    attempt: int,
    setup: AttemptSetup,
    notes: _Notes,
    failed: list[_Notes],
    earlier: Sequence[Mapping[str, Any]],
) -> TaskResult:
    return make_result(
        task,
        attempt,
        run=notes.run,
        grade=notes.grade,
        issues=notes.issues,
        workspace=notes.workspace,
        archive=notes.archive,
        started=notes.started,
        seconds=notes.seconds,
        earlier=[
            *earlier,
            *(
                {
                    "issues": one.issues,
                    # work that a later try took up is counted there
                    "usage": one.run.usage if one.run and one.run is not notes.run else None,
                    "judge_usage": one.grade.judge_usage if one.grade else None,
                }
                for one in failed
            ),
        ],
        keys={"run_id": setup.run_id, "model": setup.model_id},
        redactor=setup.redactor,
    )
