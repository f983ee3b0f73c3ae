"""One pytest session that runs PinchBench: what its hooks and fixtures share."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.earlier_runs import describe, find_run, identity, refuse_differences
from pytest_pinchbench.issues import (
    RUN_ENDERS,
    EndpointUnusable,
    SanityFailed,
    SuiteError,
    TaskFileError,
)
from pytest_pinchbench.option_table import only_looks
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.reports.github import command, in_github_actions
from pytest_pinchbench.results import (
    RUN_SCHEMA,
    Record,
    RunDirectory,
    WorkMissing,
    cost_of,
    iso_time,
    not_regraded,
    tries,
    user_properties,
)
from pytest_pinchbench.scores import TOLERANCE
from pytest_pinchbench.suite import load_suite, resolve_skill_dir, select, suite_commit
from pytest_pinchbench.summary import Outcome, official_score, printable, summary_lines

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.harnesses import Harness
    from pytest_pinchbench.items import TaskItem
    from pytest_pinchbench.options import ModelSpec, Settings
    from pytest_pinchbench.tasks import Task

_PR_SET_PDEATHSIG = 1
_NODE_ID = re.compile(r"::(?P<task>[^:\[]+)(?:\[(?P<attempt>\d+)\])?$")


class Suites:
    """The suites of a run, each loaded and selected from once in a process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._selected: dict[Path, tuple[tuple[Task, ...], tuple[TaskFileError, ...]]] = {}

    def selected(self, root: Path) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...]]:
        """The tasks to run from the checkout ``root``, in order, and the files that stand in
        the way. Raises ``SuiteError`` for an id that is unknown or there twice, in another
        suite of the run, too: a record is found by its task's id.
        """
        root = root.resolve()
        if root not in self._selected:
            tasks, broken = select(load_suite(root), self._settings)
            known = self.tasks()
            for task in tasks:
                if task.id in known:
                    raise SuiteError(
                        f"the id {task.id} is there twice: in {known[task.id].path} and in "
                        f"{task.path}; run the two suites one after the other"
                    )
            self._selected[root] = tasks, broken
        return self._selected[root]

    def roots(self) -> list[Path]:
        return list(self._selected)

    def tasks(self) -> dict[str, Task]:
        """Every selected task so far, by id."""
        return {task.id: task for tasks, _ in self._selected.values() for task in tasks}


@dataclass
class Run:
    """The run as one process sees it: the controller, or an xdist worker."""

    config: pytest.Config
    settings: Settings
    run_id: str
    directory: RunDirectory | None
    """None: nothing is run (``--collect-only``)."""
    suites: Suites = field(init=False)
    redactor: Redactor = field(init=False)
    selected: list[tuple[str, int]] = field(default_factory=list)
    """(task id, attempt) of every item that is to run, once collection is done."""
    _troubles: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.suites = Suites(self.settings)
        self.redactor = Redactor(self.settings.secrets())

    # -- how a run starts ---------------------------------------------------------------

    @classmethod
    def start(cls, config: pytest.Config, settings: Settings) -> Run:
        """In the controller. Raises ``PinchBenchError``."""
        here = config.invocation_params.dir
        results_dir = here / settings.results_dir
        run = cls(config, settings, uuid.uuid4().hex[:12], None)
        run.check_kinds()
        run.find_arguments()
        if only_looks(config):
            return run
        if settings.resume is not None:
            run.directory = find_run(settings.resume, results_dir, settings.model.id, here)
            earlier = describe(run.directory.path)
            wanted = run.redactor.json(identity(settings, run.suites.roots()))
            refuse_differences(str(run.directory.path), earlier["identity"], wanted)
            run.run_id = earlier["run_id"]
            run.directory.finish()  # what a killed run left of itself
        else:
            run.directory = RunDirectory.new(results_dir, run.model_id)
        return run

    @classmethod
    def join(cls, config: pytest.Config, state: str) -> Run:
        """In an xdist worker, from what the controller's :meth:`for_worker` gave it."""
        from pytest_pinchbench.options import Settings

        _end_with_the_controller()
        given = json.loads(state)
        config.args = given["arguments"]
        directory = RunDirectory(Path(given["directory"])) if given["directory"] else None
        return cls(config, Settings.from_json(given["settings"]), given["run_id"], directory)

    def for_worker(self) -> str:
        """What a worker needs; it travels through a pipe and is never saved."""
        return json.dumps(
            {
                "settings": self.settings.to_json(),
                "run_id": self.run_id,
                "directory": str(self.directory.path) if self.directory else None,
                # xdist gives a worker only what the command line says
                "arguments": self.config.args,
            }
        )

    def find_arguments(self) -> None:
        """Point pytest at the suite where the command line names no path, and at the file of
        a node id of the suite, wherever the suite lies. Raises ``PinchBenchError``.
        """
        from pytest_pinchbench.items import holds_task_files, is_suite_folder

        config = self.config
        if self._names_a_path():
            config.args = [self._find_argument(argument) for argument in config.args]
        else:
            config.args = [str(self._skill_dir() / "tasks")]
        for argument in config.args:
            path = config.invocation_params.dir / argument.partition("::")[0]
            folder = path if path.is_dir() else path.parent
            suites = [one for one in (folder, folder / "tasks") if is_suite_folder(one)]
            if not suites and holds_task_files(folder):
                raise SuiteError(
                    f"{folder} holds task files, but is not called tasks: a task is run from the "
                    "folder tasks of a suite, with its files in assets beside that"
                )
            for suite in suites:
                self.suites.selected(suite.parent)

    def _names_a_path(self) -> bool:
        """Whether the command line does; a path in ``addopts`` is that of the project's tests."""
        given = self.config.invocation_params.args
        return self.config.args_source is pytest.Config.ArgsSource.ARGS and (
            any(argument in given for argument in self.config.args)
            or any(str(argument).startswith("@") for argument in given)  # a file of arguments
        )

    def _find_argument(self, argument: str) -> str:
        path, *rest = argument.split("::")
        if (self.config.invocation_params.dir / path).exists():
            return argument
        # as it is printed: from the rootdir, or from wherever the suite lies
        found = self.config.rootpath / path
        if not found.exists():
            found = self._skill_dir() / path
        return "::".join([str(found), *rest]) if found.exists() else argument

    def _skill_dir(self) -> Path:
        return resolve_skill_dir(self.settings, self.say)

    @property
    def model_id(self) -> str:
        """The model whose work is scored; in a regrade, that of the earlier run."""
        source = self.regraded
        return self.settings.model.id if source is None else describe(source.path)["model"]

    @property
    def regraded(self) -> RunDirectory | None:
        """The earlier run whose work is graded again, or None."""
        given = self.settings.regrade
        return None if given is None else RunDirectory(self.config.invocation_params.dir / given)

    # -- what fixtures ask for ----------------------------------------------------------

    def check_kinds(self) -> None:
        """What makes no environment or no harness of these settings is one error, now, and not
        one a task; neither is needed where the project has a fixture of its own for it. Raises
        ``PinchBenchError``.
        """
        for fixture, make in (
            ("pinchbench_environment", self.make_environment),
            ("pinchbench_harness", self.make_harness),
        ):
            plugins = self.config.pluginmanager.get_plugins()
            if not any(hasattr(plugin, fixture) for plugin in plugins):
                make(self.settings)

    def make_environment(self, settings: Settings) -> Environment:
        from pytest_pinchbench.environments import EnvironmentSetup, find_environment

        recipe = settings.recipe
        return find_environment(recipe.environment)(
            EnvironmentSetup(
                recipe=recipe,
                run_id=self.run_id,
                data_dir=settings.data_dir,
                keep=settings.keep_environment,
                say=self.say,
            )
        )

    def make_harness(self, settings: Settings) -> Harness:
        from pytest_pinchbench.harnesses import find_harness

        harness = find_harness(settings.harness)(settings)
        harness.say = self.say
        return harness

    def attempt(
        self,
        item: TaskItem,
        task: Task,
        settings: Settings,
        environment: Environment,
        harness: Harness,
        judge: ModelSpec | None,
    ) -> Record:
        """Run an item's attempt, unless it has a valid record already, and give its record.

        What no attempt could survive (no daemon, no agent, a wrong key) stops the session.
        """
        assert self.directory is not None
        directory = self.directory
        work = Work(self, item.session, settings, environment, harness, judge)
        why = ""
        sanity = _sanity_item(item.session) if settings.sanity_stop else None
        try:
            directory.once("environment", environment.prepare)
            if sanity is not None:
                first = sanity
                directory.once("sanity", lambda: work.sanity(first))
            record = directory.read(task.id, item.attempt)
            if record is None or record["metrics"]["score"] is None:
                self._mind_the_budget(item.session)
                record = work.attempt(task, item.attempt, record)
        except RUN_ENDERS as error:
            why = self.redactor.text(str(error))
            insane = isinstance(error, SanityFailed)
            item.session.shouldfail = (
                why if insane else "no task can run like this; see the error above"
            )
            record = directory.read(task.id, item.attempt) if insane else None
        if record is None:
            pytest.fail(why, pytrace=False)
        item.user_properties += user_properties(record)
        return record

    def _mind_the_budget(self, session: pytest.Session) -> None:
        """Start nothing more once the measured cost is past ``--pinchbench-budget-usd``."""
        budget = self.settings.budget_usd
        if budget is None:
            return
        assert self.directory is not None
        spent = sum(cost_of(record) for record in self.directory.records())
        if spent > budget:
            message = f"the budget of ${budget:g} is used up: ${spent:.4f} spent"
            session.shouldstop = message
            pytest.skip(message)

    # -- how it ends --------------------------------------------------------------------

    def select(self, node_ids: Iterable[str]) -> None:
        """Note what is to run, once collection and deselection are done: from here on there
        is a run directory that another process can read.
        """
        now = [found for node_id in node_ids if (found := parse_node_id(node_id))]
        before: list[tuple[str, int]] = []
        if self.settings.resume is not None and self.directory is not None:
            before = [
                (one["task_id"], one["attempt"])
                for one in describe(self.directory.path)["selected"]
            ]
        self.selected = list(dict.fromkeys([*before, *now]))
        if self.directory is not None:
            self.directory.write_run(self.description())

    def note_report(self, report: pytest.TestReport) -> None:
        """Keep why an item has no record (a crashed worker), for the summary."""
        found = parse_node_id(report.nodeid)
        if (
            report.failed
            and found
            and not any(key == "task_id" for key, _ in report.user_properties)
        ):
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash else report.longrepr).strip()
            self._troubles[found] = text.removeprefix("Failed: ").partition("\n")[0]

    def outcomes(self) -> list[Outcome]:
        """Every attempt that was to run, with the record it has by now."""
        assert self.directory is not None
        return [
            Outcome(
                task_id,
                attempt,
                self.directory.read(task_id, attempt),
                self._troubles.get((task_id, attempt), "not run"),
            )
            for task_id, attempt in self.selected
        ]

    def summary(self, seconds: float) -> list[str]:
        assert self.directory is not None
        where = _short_path(self.directory.path, self.config.invocation_params.dir)
        outcomes = self.outcomes()
        lines = summary_lines(outcomes, seconds=seconds, where=where)
        if official_score(outcomes) is None:
            lines.append(f"To go on    the same command with --pinchbench-resume {where}")
        if self.settings.fail_under is not None:
            met, line = self._gate()
            lines.append(line)
            if not met and in_github_actions():
                lines.append(command("error", "PinchBench gate", line))
        return [self.redactor.text(line) for line in lines]

    def exit_code(self, code: int) -> int:
        """pytest's own exit code, unless ``--pinchbench-fail-under`` decides between 0 and 1."""
        decided = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if self.settings.fail_under is None or self.directory is None or code not in decided:
            return code
        return int(pytest.ExitCode.OK if self._gate()[0] else pytest.ExitCode.TESTS_FAILED)

    def _gate(self) -> tuple[bool, str]:
        mark = self.settings.fail_under
        assert mark is not None
        score = official_score(self.outcomes())
        if score is None:
            return False, f"Gate        not met: no official mean to hold against {mark:g}"
        met = score.mean >= mark - TOLERANCE
        verdict = "met" if met else "not met"
        return met, f"Gate        {verdict}: mean {score.mean:.4f}, required {mark:g}"

    # -- what is said -------------------------------------------------------------------

    def header(self) -> list[str]:
        settings = self.settings
        recipe = settings.recipe
        image = f", image {recipe.image}" if recipe.image else ""
        lines = [f"pinchbench: model {self.model_id}, environment {recipe.environment}{image}"]
        if settings.judge is not None:
            lines.append(f"pinchbench: judge {settings.judge.id}")
        if self.directory is not None:
            where = _short_path(self.directory.path, self.config.invocation_params.dir)
            lines.append(f"pinchbench: results in {where}")
        return [self.redactor.text(line) for line in lines]

    def warnings(self) -> list[str]:
        """What should be known before the first task."""
        lines = list(self.settings.warnings)
        if self.settings.resume is not None and self.directory is not None:
            records = [self.directory.read(*key) for key in self.selected]
            valid = sum(record is not None and record["status"] == "scored" for record in records)
            lines.append(
                f"resuming {self.directory.path}: {valid} of {len(self.selected)} attempts have "
                f"a valid result, which is kept"
            )
        tasks = self.suites.tasks()
        judged = {
            task
            for task, _ in self.selected
            if task in tasks and tasks[task].grading_type != "automated"
        }
        judge = self.settings.judge
        if judged and (judge is None or judge.base_url is None):
            lines.append(
                f"{len(judged)} of {len({task for task, _ in self.selected})} tasks need a judge, "
                f"and no judge endpoint is configured: they will be invalid, and the run will have "
                f"no official mean. Set --pinchbench-judge-model and --pinchbench-judge-base-url "
                f"(or JUDGE_MODEL_NAME and JUDGE_MODEL_BASE_URL), or choose "
                f"--pinchbench-suite automated-only."
            )
        return [self.redactor.text(line) for line in lines]

    def description(self) -> Record:
        """What ``run.json`` says of this run, without secrets."""
        from importlib.metadata import version

        return {
            "schema_version": RUN_SCHEMA,
            "run_id": self.run_id,
            "started_at": iso_time(time.time()),
            "model": self.model_id,
            "identity": self.redactor.json(identity(self.settings, self.suites.roots())),
            "settings": self.redactor.json(self.settings.public()),
            "suites": {root.name: suite_commit(root) for root in self.suites.roots()},
            "selected": [{"task_id": task, "attempt": k} for task, k in self.selected],
            "versions": {
                "pytest-pinchbench": version("pytest-pinchbench"),
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
        }

    def say(self, message: str) -> None:
        """A line for the user, now, past pytest's capturing and from any process."""
        line = printable(self.redactor.text(f"pinchbench: {message}"))
        manager = self.config.pluginmanager
        reporter = manager.get_plugin("terminalreporter")
        capture = manager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if reporter is None or hasattr(self.config, "workerinput"):
                # a worker's stderr is the controller's; there is no other way past xdist
                print(line, file=sys.stderr, flush=True)
            else:
                reporter.ensure_newline()
                reporter.write_line(line)
                reporter.flush()


@dataclass(frozen=True)
class Work:
    """Attempts with all that they share, in one process."""

    run: Run
    session: pytest.Session
    settings: Settings
    environment: Environment
    harness: Harness
    judge: ModelSpec | None

    def attempt(self, task: Task, attempt: int, invalid: Record | None) -> Record:
        """Run one attempt and write its record as soon as it exists. Raises ``RUN_ENDERS``.

        ``invalid``: the record that it has so far. Where its agent's work is there, and only
        the judge failed, say, that work is graded, and not paid for again.
        """
        from pytest_pinchbench.attempt import AttemptSetup, run_attempt

        directory, source = self.run.directory, self.run.regraded
        assert directory is not None
        earlier: list[dict[str, Any]] = []
        if source is not None:
            found = source.read(task.id, attempt)
            assert found is not None  # or the item would have been deselected
            try:
                kept = source.kept_work(found)
            except WorkMissing as error:
                return directory.copy_from(source, not_regraded(found, str(error)))
            if kept is None:
                return directory.copy_from(source, found)
        else:
            kept = None
            if invalid is not None:
                with contextlib.suppress(WorkMissing):
                    kept = directory.kept_work(invalid)
                earlier = tries(invalid, taken_up=kept is not None)
            if kept is None:
                self.harness.prepare(self.environment)
        setup = AttemptSetup(
            self.settings,
            self.environment,
            self.harness,
            self.judge,
            self.run.redactor,
            self.run.run_id,
            self.run.model_id,
            before_agent=self._check_endpoints,
        )
        result = run_attempt(task, attempt, setup, kept, earlier)
        directory.write(result)
        return result.record

    def sanity(self, item: TaskItem) -> None:
        """Run the sanity task before any other; raises ``SanityFailed`` if it scores nothing."""
        assert self.run.directory is not None
        task = item.pinchbench_task
        record = self.run.directory.read(task.id, item.attempt)
        if record is None or record["metrics"]["score"] is None:
            record = self.attempt(task, item.attempt, record)
        if not record["metrics"]["score"]:
            outcome = "scored 0" if record["status"] == "scored" else "is invalid"
            raise SanityFailed(
                f"the sanity task {task.id} {outcome}: nothing else is started "
                f"(--pinchbench-keep-going runs the rest all the same)"
            )

    def _check_endpoints(self, sandbox: Sandbox) -> None:
        """One tiny request to each endpoint, from inside the first sandbox of the run."""
        assert self.run.directory is not None
        once = self.run.directory.once
        if self.settings.model_check and self.run.regraded is None:
            model = replace(self.settings.model, params={})  # they are for OpenClaw
            once("model", lambda: self._check_endpoint("model", sandbox, model))
        judge = self.judge
        if self.settings.judge_check and judge is not None and needs_judge(self.session.items):
            once("judge", lambda: self._check_endpoint("judge", sandbox, judge))

    def _check_endpoint(self, what: str, sandbox: Sandbox, spec: ModelSpec) -> None:
        """Raises ``EndpointUnusable``, where it is only busy after the retries."""
        from pytest_pinchbench.attempt import backoff
        from pytest_pinchbench.grading import check_endpoint

        if spec.base_url is None:
            return
        inside = replace(spec, base_url=self.environment.url_inside(spec.base_url))
        problem = check_endpoint(sandbox, inside)
        for tried in range(self.settings.retries):
            if problem is None or not problem.passing:
                break
            time.sleep(backoff(tried, problem.retry_after))
            problem = check_endpoint(sandbox, inside)
        if problem is None:
            return
        raise EndpointUnusable(
            self.run.redactor.text(
                f"the {what} {spec.id} at {spec.base_url} cannot be used: {problem.words}\n"
                f"No agent has run. --pinchbench-{what}-check=no starts without this request."
            )
        )


def _sanity_item(session: pytest.Session) -> TaskItem | None:
    from pytest_pinchbench.items import TaskItem

    items = (item for item in session.items if isinstance(item, TaskItem))
    return next((item for item in items if item.is_sanity), None)


def _short_path(path: Path, start: Path) -> str:
    try:
        return str(path.relative_to(start))
    except ValueError:
        return str(path)


def _end_with_the_controller() -> None:
    """Have the kernel end this worker when its controller is killed: its agent would go on, and
    cost, for as long as execnet is patient (15 seconds), and beside a resumed run.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def needs_judge(items: Iterable[pytest.Item]) -> bool:
    from pytest_pinchbench.items import TaskItem

    tasks = (item.pinchbench_task for item in items if isinstance(item, TaskItem))
    return any(task.grading_type != "automated" for task in tasks)


def parse_node_id(node_id: str) -> tuple[str, int] | None:
    """(task id, attempt) of an item's node id."""
    match = _NODE_ID.search(node_id)
    return (match["task"], int(match["attempt"] or 1)) if match else None
