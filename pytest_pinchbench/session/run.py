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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_pinchbench.attempt.kept_work import WorkMissing, kept_work, not_regraded, tries
from pytest_pinchbench.issues import (
    RUN_ENDERS,
    EndpointUnusable,
    SanityFailed,
    SuiteError,
    TaskFileError,
)
from pytest_pinchbench.options import only_looks
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.terminal import printable
from pytest_pinchbench.results.earlier_runs import (
    as_before,
    describe,
    find_run,
    refuse_damaged,
)
from pytest_pinchbench.results.files import safe_name
from pytest_pinchbench.results.identity import check_same_experiment, identity_of, regraded
from pytest_pinchbench.results.records import RUN_SCHEMA, Record, cost_of, iso_time, user_properties
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary, read_baselines, wall_seconds_of
from pytest_pinchbench.suite.load import (
    load_suite,
    resolve_skill_dir,
    select,
    suite_commit,
    suite_name,
)

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.harnesses import Harness
    from pytest_pinchbench.session.items import TaskItem
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task

_PR_SET_PDEATHSIG = 1
_NODE_ID = re.compile(r"::(?P<task>[^:\[]+)(?:\[(?P<attempt>\d+)\])?$")


class Suites:
    """The suites of a run, each loaded and selected from once in a process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._selected: dict[Path, tuple[tuple[Task, ...], tuple[TaskFileError, ...]]] = {}
        self.sizes: dict[Path, int] = {}
        """How many task files each suite has, chosen or not."""

    def selected(self, root: Path) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...]]:
        """The tasks to run from the checkout ``root``, in order, and the files that stand in
        the way. Raises ``SuiteError`` for an id that is unknown or there twice, in another
        suite of the run, too: a record is found by its task's id.
        """
        root = root.resolve()
        if root not in self._selected:
            suite = load_suite(root)
            self.sizes[root] = len(suite.tasks) + len(suite.broken)
            tasks, broken = select(suite, self._settings)
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
    baselines: list[Summary] = field(default_factory=list)
    """The earlier runs that this one is compared with, in the controller."""
    selected: list[tuple[str, int]] = field(default_factory=list)
    """(task id, attempt) of every item that was chosen, once collection is done."""
    to_run: int = 0
    """How many items this session runs: ``--lf`` and the like may leave chosen ones out."""
    troubles: dict[tuple[str, int], str] = field(default_factory=dict)

    _began: float = field(default_factory=time.monotonic)
    _seconds_before: float = 0.0

    def __post_init__(self) -> None:
        self.suites = Suites(self.settings)
        self.redactor = Redactor(self.settings.secrets())

    # -- how a run starts ---------------------------------------------------------------

    @classmethod
    def start(cls, config: pytest.Config, settings: Settings) -> Run:
        """In the controller. Raises ``PinchBenchError``."""
        here = config.invocation_params.dir
        results_dir = here / settings.results_dir

        if settings.regrade is not None:
            settings = replace(settings, regrade=str(find_run(settings.regrade, settings, here)))
            refuse_damaged(Path(str(settings.regrade)))
        if settings.resume is not None:
            settings = replace(settings, resume=str(find_run(settings.resume, settings, here)))
        earlier = settings.resume or settings.regrade
        if earlier is not None:
            settings = as_before(settings, describe(Path(earlier)))
        if settings.regrade is not None:
            # the model whose work is scored
            regraded = describe(Path(settings.regrade))["model"]
            settings = replace(settings, model=replace(settings.model, id=regraded))
        run = cls(config, settings, uuid.uuid4().hex[:12], None)
        run.check_kinds()
        run.find_arguments()
        if only_looks(config):
            return run
        run.baselines = read_baselines(settings, here)
        if settings.resume is not None:
            directory = RunDirectory(Path(settings.resume))
            run._go_on(directory)
        else:
            directory = RunDirectory.new(results_dir, run.model_id)
        directory.hold()
        run.directory = directory
        return run

    @classmethod
    def join(cls, config: pytest.Config, state: str) -> Run:
        """In an xdist worker, from what the controller's :meth:`for_worker` gave it."""
        from pytest_pinchbench.settings import Settings

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

    def _go_on(self, directory: RunDirectory) -> None:
        """Take up an earlier run. Raises ``PinchBenchError`` if it is another experiment."""
        earlier = describe(directory.path)
        check_same_experiment(
            f"resume {directory.path}",
            earlier,
            self.description(),
            f"To grade the work of its agents like this: --pinchbench-regrade {directory.path}",
        )
        self.run_id = earlier["run_id"]
        self._seconds_before = wall_seconds_of(directory.path) or 0.0

    def find_arguments(self) -> None:
        """Point pytest at the suite where the command line names no path, and at the file of
        a node id of the suite, wherever the suite lies. Raises ``PinchBenchError``.
        """
        from pytest_pinchbench.session.items import holds_task_files, is_suite_folder

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
        return self.settings.model.id

    @property
    def regraded(self) -> RunDirectory | None:
        """The earlier run whose work is graded again, or None."""
        given = self.settings.regrade
        return None if given is None else RunDirectory(Path(given))

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
                agent_runs=self.regraded is None,
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
        record = directory.read(task.id, item.attempt)
        if record is None or record["metrics"]["score"] is None:
            record = self._work_on(item, task, work)
        item.user_properties += user_properties(record)
        return record

    def _work_on(self, item: TaskItem, task: Task, work: Work) -> Record:
        assert self.directory is not None
        directory, session = self.directory, item.session
        end: Callable[[], Any]  # pytest's own, called where no exception of ours is its context
        sanity = _sanity_item(session) if not work.settings.keep_going else None
        try:
            directory.once("environment", work.environment.prepare)
            if sanity is not None:
                directory.once("sanity", lambda: work.sanity(sanity))
            record = directory.read(task.id, item.attempt)
            if record is None or record["metrics"]["score"] is None:
                self._mind_the_budget(session)
                record = work.attempt(task, item.attempt, record)
                self._mind_the_prices(record)
            return record
        except SanityFailed as error:
            session.shouldstop = why = self.redactor.text(str(error))
            record = directory.read(task.id, item.attempt)
            if record is not None:
                return record
            end = partial(pytest.skip, why)
        except RUN_ENDERS as error:
            session.shouldstop = "no task can run like this; see the error above"
            end = partial(pytest.fail, self.redactor.text(str(error)), pytrace=False)
        end()
        raise AssertionError("pytest has skipped or failed the item by now")

    def _mind_the_budget(self, session: pytest.Session) -> None:
        """Start nothing more once the measured cost is past ``--pinchbench-budget-usd``."""
        budget = self.settings.budget_usd
        if budget is None:
            return
        assert self.directory is not None
        agents = self.regraded is None
        spent = sum(cost_of(record, agent=agents) for record in self.directory.records())
        if spent >= budget:
            message = (
                f"the budget of ${formats.mark(budget)} is used up: {formats.usd(spent)} spent"
            )
            session.shouldstop = message
            pytest.skip(message)

    def _mind_the_prices(self, record: Record) -> None:
        """Say once that a budget without a price is no limit."""
        if self.settings.budget_usd is None:
            return
        assert self.directory is not None
        judge = self.settings.judge
        spent = [(self.model_id, record["usage"])]
        spent += [(judge.id, record["judge_usage"])] if judge and record["judge_usage"] else []
        for model_id, usage in spent:
            if usage["cost_usd"] is None and usage["request_count"]:
                message = (
                    f"no price is known for {model_id}: what it costs is not counted, and "
                    f"--pinchbench-budget-usd does not stop the run for it"
                )
                self.directory.once(f"price of {safe_name(model_id)}", partial(self.say, message))

    # -- how it ends --------------------------------------------------------------------

    def select(self, node_ids: Iterable[str]) -> None:
        """Note what is to run, once collection and deselection are done: from here on there
        is a run directory that another process can read.
        """
        now = [found for node_id in node_ids if (found := parse_node_id(node_id))]
        before = [(one["task_id"], one["attempt"]) for one in self._selected_before()]
        self.selected = list(dict.fromkeys([*before, *now]))
        if self.directory is not None and self.selected:
            self.directory.write_run(self.description())

    def _selected_before(self) -> list[Record]:
        """What an earlier session of a resumed run was to run."""
        if self.settings.resume is None or self.directory is None:
            return []
        before: list[Record] = describe(self.directory.path)["selected"]
        return before

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
            self.troubles[found] = text.removeprefix("Failed: ").partition("\n")[0]

    @cached_property
    def wall_seconds(self) -> float:
        """How long the run took, over all of its sessions; to be asked for when it has ended."""
        return round(self._seconds_before + time.monotonic() - self._began, 3)

    def hints(self) -> list[str]:
        """How to go on with a run that has no official mean."""
        assert self.directory is not None
        where = self.short(self.directory)
        lines = [f"To go on    the same command with --pinchbench-resume {where}"]
        if self.directory.has_ended("sanity"):
            lines.append(f"{'':12}--pinchbench-keep-going, or the sanity task stops it again")
        return lines

    # -- what is said -------------------------------------------------------------------

    def header(self) -> list[str]:
        settings = self.settings
        recipe = settings.recipe
        image = f", image {recipe.image}" if recipe.image else ""
        lines = [f"pinchbench: model {self.model_id}, environment {recipe.environment}{image}"]
        if settings.judge is not None:
            lines.append(f"pinchbench: judge {settings.judge.id}")
        if self.directory is not None:
            lines.append(f"pinchbench: results in {self.short(self.directory)}")
        return [self.redactor.text(line) for line in lines]

    def warnings(self) -> list[str]:
        """What should be known before the first task."""
        lines = list(self.settings.warnings)
        if self.regraded is not None:
            where = self.short(self.regraded)
            lines.append(f"regrading {where}: the work of its agents is graded again, none runs")
        if self.settings.resume is not None and self.directory is not None:
            records = [self.directory.read(*key) for key in self.selected]
            valid = sum(record is not None and record["status"] == "scored" for record in records)
            lines.append(
                f"resuming {self.short(self.directory)}: {valid} of "
                f"{formats.counted(len(self.selected), 'attempt')} "
                f"{'has' if len(self.selected) == 1 else 'have'} a valid result, which is kept"
            )
            lines += [
                f"{path.relative_to(self.directory.path)} is damaged: that attempt is run again"
                for path in self.directory.damaged()
            ]
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

    def short(self, directory: RunDirectory) -> str:
        """A run directory's path from where pytest was started."""
        path, start = directory.path, self.config.invocation_params.dir
        return str(path.relative_to(start) if path.is_relative_to(start) else path)

    def description(self) -> Record:
        """What ``run.json`` says of this run, without secrets."""
        from importlib.metadata import version

        tasks = self.suites.tasks()
        categories = {one["task_id"]: one.get("category") for one in self._selected_before()}
        return {
            "schema_version": RUN_SCHEMA,
            "run_id": self.run_id,
            "started_at": iso_time(time.time()),
            "model": self.model_id,
            "identity": self.redactor.json(self._identity()),
            "settings": self.redactor.json(self.settings.public()),
            "suites": {root.name: suite_commit(root) for root in self.suites.roots()},
            "suite_tasks": {suite_name(root): size for root, size in self.suites.sizes.items()},
            "selected": [
                {
                    "task_id": task,
                    "attempt": k,
                    "category": tasks[task].category if task in tasks else categories.get(task),
                }
                for task, k in self.selected
            ],
            "versions": {
                "pytest-pinchbench": version("pytest-pinchbench"),
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
        }

    def _identity(self) -> dict[str, Any]:
        """In a regrade, the work is that of the earlier run, and the grading today's."""
        today = identity_of(self.settings, self.suites.roots())
        if self.regraded is None:
            return today
        return regraded(describe(self.regraded.path)["identity"], today)

    def say(self, message: str) -> None:
        """A line for the user, now, past pytest's capturing and from any process."""
        line = printable(self.redactor.text(f"pinchbench: {message}"))
        manager = self.config.pluginmanager
        reporter = manager.get_plugin("terminalreporter")
        capture = manager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if reporter is None or hasattr(self.config, "workerinput"):
                # a worker's stderr is the controller's; there is no other way past xdist, nor
                # one to know whether the controller is in the middle of a line
                print(f"\n{line}", file=sys.stderr, flush=True)
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
                kept = kept_work(source, found)
            except WorkMissing as error:
                return directory.copy_from(source, not_regraded(found, str(error)))
            if kept is None:
                return directory.copy_from(source, found)
        else:
            kept = None
            if invalid is not None:
                with contextlib.suppress(WorkMissing):
                    kept = kept_work(directory, invalid)
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
        from pytest_pinchbench.attempt.grading import check_endpoint

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
    from pytest_pinchbench.session.items import TaskItem

    items = [item for item in session.items if isinstance(item, TaskItem)]
    alone = len(items) == 1  # and so nothing to keep from starting
    return next((item for item in items if item.is_sanity and not alone), None)


def _end_with_the_controller() -> None:
    """Have the kernel end this worker when its controller is killed: its agent would go on, and
    cost, for as long as execnet is patient (15 seconds), and beside a resumed run.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def needs_judge(items: Iterable[pytest.Item]) -> bool:
    from pytest_pinchbench.session.items import TaskItem

    tasks = (item.pinchbench_task for item in items if isinstance(item, TaskItem))
    return any(task.grading_type != "automated" for task in tasks)


def parse_node_id(node_id: str) -> tuple[str, int] | None:
    """(task id, attempt) of an item's node id."""
    match = _NODE_ID.search(node_id)
    return (match["task"], int(match["attempt"] or 1)) if match else None
