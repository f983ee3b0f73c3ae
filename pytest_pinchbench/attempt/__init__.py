"""One attempt at one task, start to end: prepare, run, collect, grade, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from pytest_pinchbench.attempt import grading
from pytest_pinchbench.attempt.context import AttemptContext
from pytest_pinchbench.attempt.grading_place import GradingPlace
from pytest_pinchbench.attempt.kept_work import KeptWork
from pytest_pinchbench.attempt.line import RelayedLine
from pytest_pinchbench.attempt.record import make_result
from pytest_pinchbench.attempt.tries import Try, backoff, is_permanent
from pytest_pinchbench.attempt.workspace import (
    AssetMissing,
    Workspace,
    archive_workspace,
    make_workspace,
    restore_workspace,
    task_files,
)
from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.harnesses import AgentRun, DirectLine, Line
from pytest_pinchbench.issues import BudgetUsedUp, Issue, PinchBenchError, SandboxFailure
from pytest_pinchbench.results.records import GradedIn, Retried, TaskResult
from pytest_pinchbench.suite.task_file import Task

AGAIN = GradedIn(sandbox="fresh", reason="work of an earlier try or run is graded")


def run_attempt(
    task: Task,
    attempt: int,
    context: AttemptContext,
    kept: KeptWork | None = None,
    earlier: Sequence[Retried] = (),
) -> TaskResult:
    """Make an attempt, trying again after a FATAL issue as often as the retry budget allows.

    A failed judge is asked again in the same sandbox; after any other FATAL issue there is a
    fresh sandbox, and an agent only where the work of an earlier try cannot be graded. With
    ``kept`` no agent runs: that work is graded again. ``earlier``: the tries of a run that is
    resumed (:func:`~pytest_pinchbench.attempt.kept_work.previous_attempts`). Raises only
    ``RunAborted``.
    """
    retries = context.settings.retries
    failed: list[Try] = []
    while True:
        last = _try(task, attempt, context, kept, retries)
        retries -= last.judge_retries
        if retries <= 0 or not last.deserves_another:
            break
        retries -= 1
        context.sleep(backoff(len(failed)))
        failed.append(last)
        kept = kept or last.work
    before = [*earlier, *(one.before(last) for one in failed)]
    keys = {"run_id": context.run_id, "model": context.model_id}
    return make_result(task, attempt, last, before, keys, context.redactor)


def _try(
    task: Task, attempt: int, context: AttemptContext, kept: KeptWork | None, retries: int
) -> Try:
    """Make one try: one sandbox, one agent, its grade."""
    this = Try()
    if kept is not None:  # what was paid for is in the record, whatever happens to the sandbox
        this.run, this.archive = kept.run, kept.archive
        this.workspace = Workspace(f"/{kept.workspace}")
        this.issues += kept.run.issues
    try:
        if kept is None:
            task_files(task)  # a missing file is to cost neither a sandbox nor an agent
        context.check_judge(task)
        with this.stage("open"):
            sandbox = context.open_sandbox(task)
        place = None
        try:
            context.before_agent(sandbox)
            this.issues += context.find_missing(sandbox, task, kept is None)
            if this.is_fatal:
                return this
            if kept is None:
                context.before_work(sandbox)
                place = GradingPlace(context, task, sandbox)
                with context.line(task, attempt, sandbox) as line:
                    workspace = _prepare(sandbox, task, line, context, this)
                    run = _run(sandbox, task, workspace, line, context, this)
                graded = _collect(sandbox, place, workspace, context, this)
            else:
                workspace, run = _restore(sandbox, kept, this)
                graded, this.graded_in = sandbox, AGAIN
            if not this.is_fatal:
                _grade(graded, task, workspace, run, context, this, retries)
                if place and this.grade and (left := place.left_behind(this.grade)):
                    this.issues.append(left)
        finally:
            with this.stage("close"):
                if place:
                    place.close()
                sandbox.close()
    except AssetMissing as error:
        this.issues.append(Issue("FATAL", "asset_missing", str(error)))
    except SandboxFailure as error:
        this.issues.append(Issue("FATAL", "sandbox", str(error)))
    return this


def _prepare(
    sandbox: Sandbox, task: Task, line: DirectLine | RelayedLine, context: AttemptContext, this: Try
) -> Workspace:
    """Make the workspace, with the task's and the harness's files."""
    with this.stage("prepare"):
        this.workspace = make_workspace(
            sandbox,
            task,
            lambda path: context.harness.files(sandbox, task, path, line),
            line.workspace,
        )
    return this.workspace


def _run(
    sandbox: Sandbox,
    task: Task,
    workspace: Workspace,
    line: Line,
    context: AttemptContext,
    this: Try,
) -> AgentRun:
    """Let the agent work in the workspace. Raises ``BudgetUsedUp``."""
    with this.stage("run"):
        run = context.harness.run(sandbox, task, workspace.path, line)
        this.run = line.close(run)
    if any(issue.code == "run_budget" for issue in this.run.issues):
        raise BudgetUsedUp(f"{task.id} is not run: the run's budget was used up in mid-attempt")
    this.issues += this.run.issues
    return this.run


def _collect(
    sandbox: Sandbox,
    place: GradingPlace,
    workspace: Workspace,
    context: AttemptContext,
    this: Try,
) -> Sandbox:
    """Keep the workspace as the agent left it, and return the sandbox in which to grade it."""
    this.graded_in = place.graded_in
    try:
        with this.stage("place"):
            graded = place.take()
    except PinchBenchError:
        _keep(sandbox, workspace, context, this)  # paid for, and graded at another time
        raise
    _keep(graded, workspace, context, this)
    return graded


def _keep(sandbox: Sandbox, workspace: Workspace, context: AttemptContext, this: Try) -> None:
    if context.settings.keep_workspace:
        with this.stage("keep"):
            this.archive, not_kept = archive_workspace(sandbox, workspace, context.redactor)
        this.issues += [not_kept] if not_kept else []


def _restore(sandbox: Sandbox, kept: KeptWork, this: Try) -> tuple[Workspace, AgentRun]:
    """Put the workspace of an earlier try into the sandbox, as its agent left it."""
    with this.stage("prepare"):
        this.workspace = restore_workspace(sandbox, kept.archive, kept.workspace)
    return this.workspace, kept.run


def _grade(
    sandbox: Sandbox,
    task: Task,
    workspace: Workspace,
    run: AgentRun,
    context: AttemptContext,
    this: Try,
    retries: int,
) -> None:
    """Grade, asking a failed judge again: the agent's work is paid for and stays as it is."""
    settings = context.settings
    deadline = settings.evaluation_timeout and time.monotonic() + settings.evaluation_timeout
    with this.stage("grade"), _judge(sandbox, task, context) as line:
        while True:
            this.grade = grade = grading.grade(
                sandbox,
                task,
                workspace.path,
                run.transcript,
                judge=line.model if line else None,
                judge_timeout=settings.judge_timeout,
                timeout=deadline and max(deadline - time.monotonic(), 0.001),
                check_timeout=settings.check_timeout,
                transcript_limit=settings.transcript_limit,
                judge_view=context.judge_view(task),
                new_session=task.rules.begins_sessions(settings.new_session)
                and any(prompt.new_session for prompt in task.prompts),
                previous=this.grade,
            )
            wait = backoff(this.judge_retries, grade.retry_after)
            late = deadline and time.monotonic() + wait >= deadline
            if grade.score is not None or late or this.judge_retries == retries:
                break
            if is_permanent(grade.issues):
                break
            context.sleep(wait)
            this.judge_retries += 1
        if isinstance(line, RelayedLine):
            this.run, this.grade = line.grade(run, grade)
    this.is_graded = True
    this.issues += grade.issues


def _judge(
    sandbox: Sandbox, task: Task, context: AttemptContext
) -> AbstractContextManager[DirectLine | RelayedLine | None]:
    """Connect the grader with the task's judge, if it has one."""
    if task.grading_type == "automated" or context.judge is None:
        return nullcontext(None)
    return context.reach("judge", context.judge, sandbox, context.settings.model_patience)
