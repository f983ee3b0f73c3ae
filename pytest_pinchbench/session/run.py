"""One pytest session that runs PinchBench: the state that its hooks and fixtures share."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pytest

from pytest_pinchbench.issues import SuiteError, TaskFileError
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.relay.client import RelayClient
from pytest_pinchbench.results.identity import identity_of
from pytest_pinchbench.results.records import RUN_SCHEMA, RunDescription, iso_time
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary
from pytest_pinchbench.session.mode import Fresh, Key, choose_mode
from pytest_pinchbench.session.node_ids import parse_node_id
from pytest_pinchbench.session.say import say
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.suite.checkout import suite_commit, suite_name
from pytest_pinchbench.suite.load import load_suite, select
from pytest_pinchbench.suite.task_file import Task


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
    mode: Fresh
    run_id: str
    seconds_before: float = 0.0
    """Wall time of the run's earlier sessions."""
    directory: RunDirectory | None = None
    """None: nothing is run (``--collect-only``)."""
    suites: Suites = field(init=False)
    redactor: Redactor = field(init=False)
    say: Callable[[str], None] = field(init=False)
    """Prints a line for the user."""
    arguments: list[str] = field(default_factory=list)
    """The paths and node ids of the run, chosen in this session or before; empty without any."""
    only: list[Key] | None = None
    """The attempts of the run that goes on, where this session chooses no others."""
    baselines: list[Summary] = field(default_factory=list)
    """The earlier runs that this one is compared with, in the controller."""
    selected: list[Key] = field(default_factory=list)
    """Every attempt that was chosen, once collection is done."""
    to_run: int = 0
    """How many attempts this session makes: ``--lf`` and the like leave chosen ones out."""
    troubles: dict[Key, str] = field(default_factory=dict)
    """Why an attempt has no record."""
    relay: RelayClient | None = None
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.suites = Suites(self.settings)
        self.redactor = Redactor(self.settings.secrets())
        self.say = partial(say, self.config, self.redactor)

    @classmethod
    def join(cls, config: pytest.Config, state: str) -> Run:
        """Take part in a run as an xdist worker, given what :meth:`for_worker` returned."""
        given = json.loads(state)
        config.args = given["arguments"]
        settings = Settings.from_json(given["settings"])
        run = cls(config, settings, choose_mode(settings), given["run_id"])
        run.directory = RunDirectory(Path(given["directory"])) if given["directory"] else None
        run.relay = RelayClient(*given["relay"]) if given["relay"] else None
        run.only = given["only"] and [(task_id, attempt) for task_id, attempt in given["only"]]
        return run

    def for_worker(self) -> str:
        """What a worker needs; it travels through a pipe and is never saved."""
        return json.dumps(
            {
                "settings": self.settings.to_json(),
                "run_id": self.run_id,
                "directory": str(self.directory.path) if self.directory else None,
                # xdist gives a worker only what the command line says
                "arguments": self.config.args,
                "only": self.only,
                "relay": self.relay and (self.relay.port, self.relay.admin),
            }
        )

    @property
    def model_id(self) -> str:
        """The model whose work is scored; in a regrade, the earlier run's."""
        return self.settings.model.id

    def wants(self, key: Key) -> bool:
        """Return whether the attempt is part of the run, as far as earlier runs decide."""
        return (self.only is None or key in self.only) and self.mode.wants(key)

    def select(self, node_ids: Iterable[str]) -> None:
        """Note what is to run, once collection and deselection are done: from here on there
        is a run directory that another process can read.
        """
        self.selected = self.mode.selected(
            [key for node_id in node_ids if (key := parse_node_id(node_id))]
        )
        if self.directory is not None and self.selected:
            self.directory.write_run(self.description())

    def note_report(self, report: pytest.TestReport) -> None:
        """Keep why an item has no record (a crashed worker), for the summary."""
        key = parse_node_id(report.nodeid)
        if (
            report.failed
            and key
            and not any(name == "task_id" for name, _ in report.user_properties)
        ):
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash else report.longrepr).strip()
            self.troubles[key] = text.removeprefix("AttemptInvalid: ").partition("\n")[0]

    @cached_property
    def wall_seconds(self) -> float:
        """How long the run took, over all of its sessions; to be asked for when it has ended."""
        return round(self.seconds_before + time.monotonic() - self._began, 3)

    @property
    def results_dir(self) -> Path:
        return self.config.invocation_params.dir / self.settings.results_dir

    def short(self, directory: RunDirectory) -> str:
        """Return a run directory's path from where pytest was started."""
        path, start = directory.path, self.config.invocation_params.dir
        return str(path.relative_to(start) if path.is_relative_to(start) else path)

    def description(self) -> RunDescription:
        """What ``run.json`` says of this run, without secrets."""
        from importlib.metadata import version

        tasks = self.suites.tasks()
        today = identity_of(self.settings, self.suites.roots())
        return {
            "schema_version": RUN_SCHEMA,
            "run_id": self.run_id,
            "started_at": iso_time(time.time()),
            "model": self.model_id,
            "identity": self.redactor.json(self.mode.identity(today)),
            "settings": self.redactor.json(self.settings.public()),
            "suites": {root.name: suite_commit(root) for root in self.suites.roots()},
            "arguments": self.redactor.json(self.arguments),
            "suite_tasks": {suite_name(root): size for root, size in self.suites.sizes.items()},
            "selected": [
                {
                    "task_id": task,
                    "attempt": k,
                    "category": tasks[task].category if task in tasks else None,
                }
                for task, k in self.selected
            ],
            "versions": {
                "pytest-pinchbench": version("pytest-pinchbench"),
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
        }


RUN: pytest.StashKey[Run] = pytest.StashKey()
