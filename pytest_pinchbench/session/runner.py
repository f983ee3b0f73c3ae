"""Running items' attempts: once a run the checks, before each attempt the budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest

from pytest_pinchbench.attempt.context import AttemptContext
from pytest_pinchbench.attempt.grading import check_endpoint
from pytest_pinchbench.attempt.tries import backoff
from pytest_pinchbench.environments import Sandbox
from pytest_pinchbench.issues import (
    AttemptInvalid,
    BudgetUsedUp,
    EndpointUnusable,
    RunAborted,
    SanityFailed,
)
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results.earlier_runs import note_sandbox
from pytest_pinchbench.results.files import safe_name
from pytest_pinchbench.results.identity import sandbox_facts
from pytest_pinchbench.results.records import Record, cost_of, user_properties
from pytest_pinchbench.session.items import TaskItem
from pytest_pinchbench.session.run import RUNS, Run
from pytest_pinchbench.settings import ModelSpec
from pytest_pinchbench.suite.task_file import Task

_CHECK_S = 30.0
_LOADING_S = 600.0
_CONNECT_S = 5.0


class Runner:
    """Runs attempts with what all attempts of the run share, in one process."""

    def __init__(self, run: Run, session: pytest.Session, context: AttemptContext) -> None:
        assert run.directory is not None
        self._run = run
        self._items = [
            item for item in session.items if isinstance(item, TaskItem) and item.run is run
        ]
        self._directory = run.directory
        self._session = session
        self._context = replace(
            context, before_agent=self._check_endpoints, before_work=self._check_sandbox
        )

    def record(self, item: TaskItem, task: Task) -> Record:
        """Return the record of an item's attempt, which is made unless there is a valid one.

        An error that no attempt could survive (no daemon, no agent, a wrong key) stops the
        run, and fails or skips the item.
        """
        record = self._valid_record(*item.key) or self._attempt_after_checks(item, task)
        item.user_properties += user_properties(record)
        return record

    def _valid_record(self, task_id: str, attempt: int) -> Record | None:
        record = self._directory.read(task_id, attempt)
        return None if record is None or record["metrics"]["score"] is None else record

    def _attempt_after_checks(self, item: TaskItem, task: Task) -> Record:
        runs = self._session.config.stash[RUNS]
        if self._run.stopped:
            raise pytest.skip.Exception(self._run.stopped)
        try:
            first = runs.first.directory
            assert first is not None
            first.run_once("environment", self._context.environment.prepare)
            self._check_sanity()
            record = self._valid_record(*item.key)
            if record is None:
                self._enforce_budget()
                record = self._attempt(task, item.attempt)
                self._warn_without_price(record)
            return record
        except SanityFailed as error:
            why = self._stop(str(error))
            record = self._directory.read(*item.key)
            if record is not None:
                return record
            raise pytest.skip.Exception(why) from None
        except BudgetUsedUp as error:
            raise pytest.skip.Exception(self._stop(str(error))) from None
        except RunAborted as error:
            self._stop("no task can run like this; see the error above")
            raise AttemptInvalid(self._run.redactor.text(str(error))) from None

    def _stop(self, why: str) -> str:
        """Begin no further attempt of this run, and end the session with the last run."""
        self._run.stopped = why = self._run.redactor.text(why)
        if all(run.stopped for run in self._session.config.stash[RUNS].all):
            self._session.shouldstop = why
        return why

    def _attempt(self, task: Task, attempt: int) -> Record:
        return self._run.mode.attempt(task, attempt, self._directory, self._context)

    # -- the sanity task ----------------------------------------------------------------

    def _check_sanity(self) -> None:
        sanity = next((item for item in self._items if item.is_sanity), None)
        alone = len(self._items) == 1  # and so nothing to keep from starting
        if sanity is not None and not alone and not self._context.settings.keep_going:
            self._directory.run_once("sanity", partial(self._run_sanity, sanity))

    def _run_sanity(self, item: TaskItem) -> None:
        """Run the sanity task. Raises ``SanityFailed`` if it scores nothing."""
        task = item.pinchbench_task
        record = self._valid_record(*item.key) or self._attempt(task, item.attempt)
        if not record["metrics"]["score"]:
            outcome = "scored 0" if record["status"] == "scored" else "is invalid"
            raise SanityFailed(
                f"the sanity task {task.id} {outcome}: nothing else is started "
                f"(--pinchbench-keep-going runs the rest all the same)"
            )

    # -- the budget ---------------------------------------------------------------------

    def _enforce_budget(self) -> None:
        """Skip the item, and stop the session, once the cost reaches the budget."""
        budget = self._run.settings.budget_usd
        if budget is None:
            return
        agent = self._run.mode.agent_runs
        spent = sum(cost_of(record, agent=agent) for record in self._directory.records())
        if self._run.relay is not None:  # which knows of attempts without a record, too
            spent = max(spent, self._run.relay.spent())
        if spent >= budget:
            message = (
                f"the budget of ${formats.mark(budget)} is used up: {formats.usd(spent)} spent"
            )
            pytest.skip(self._stop(message))

    def _warn_without_price(self, record: Record) -> None:
        """Say once that a budget without a price is not a limit."""
        run = self._run
        if run.settings.budget_usd is None:
            return
        judge = run.settings.judge
        spent = [(run.model_id, record["usage"])]
        spent += [(judge.id, record["judge_usage"])] if judge and record["judge_usage"] else []
        for model_id, usage in spent:
            if usage["cost_usd"] is None and usage["request_count"]:
                message = (
                    f"no price is known for {model_id}: what it costs is not counted, and "
                    f"--pinchbench-budget-usd does not stop the run for it"
                )
                name = f"price of {safe_name(model_id)}"
                self._directory.run_once(name, partial(run.say, message))

    # -- the endpoints ------------------------------------------------------------------

    def _check_sandbox(self, sandbox: Sandbox) -> None:
        """Note what is in the first sandbox of the run. Raises ``OtherExperiment`` where an
        earlier session of the run found something else.
        """
        if self._run.mode.agent_runs:
            context = self._context
            self._directory.run_once(
                "sandbox",
                lambda: note_sandbox(
                    self._directory.path,
                    sandbox_facts(sandbox, context.environment, context.harness),
                ),
            )

    def _check_endpoints(self, sandbox: Sandbox) -> None:
        """Send one tiny request to each endpoint, from inside the first sandbox of the run."""
        settings, judge = self._context.settings, self._context.judge
        if settings.model_check and self._run.mode.agent_runs:
            model = replace(settings.model, params={})  # they are for OpenClaw
            self._directory.run_once("model", lambda: self._check("model", sandbox, model))
        if settings.judge_check and judge is not None and needs_judge(self._items):
            self._directory.run_once("judge", lambda: self._check("judge", sandbox, judge))

    def _check(self, role: str, sandbox: Sandbox, spec: ModelSpec) -> None:
        """Raise ``EndpointUnusable`` for an endpoint that fails, a busy one after the retries."""
        if spec.base_url is None:
            return
        # a model may load on its first request; behind the relay that is waited for
        patience = _LOADING_S if self._context.relay else _CHECK_S
        if role == "judge":  # which may take as long as for its work
            patience = max(patience, self._context.settings.judge_timeout)
        loading = threading.Timer(10, self._run.say, [f"waiting for the {role} to answer"])
        loading.start()
        try:
            with self._context.reach(role, spec, sandbox, patience, _CONNECT_S) as line:
                problem = check_endpoint(sandbox, line.model, timeout=patience)
                for tried in range(self._context.settings.retries):
                    if problem is None or not problem.transient:
                        break
                    time.sleep(backoff(tried, problem.retry_after))
                    problem = check_endpoint(sandbox, line.model, timeout=patience)
        finally:
            loading.cancel()
        if problem is None:
            return
        raise EndpointUnusable(
            self._run.redactor.text(
                f"the {role} {spec.id} at {spec.base_url} cannot be used: {problem.words}\n"
                f"No agent has run. --pinchbench-{role}-check=no starts without this request."
            )
        )


def needs_judge(items: Iterable[TaskItem]) -> bool:
    return any(item.pinchbench_task.grading_type != "automated" for item in items)
