"""One pytest session that runs PinchBench: the state that its hooks and fixtures share.

A session has a :class:`Run` for each model, and all of them in its :class:`Runs`.
"""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from pytest_pinchbench.issues import SuiteError, TaskFileError
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.relay.client import RelayClient
from pytest_pinchbench.results.group import Member, write_group
from pytest_pinchbench.results.identity import identity_of
from pytest_pinchbench.results.records import RUN_SCHEMA, RunDescription, iso_time
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary
from pytest_pinchbench.session.mode import Fresh, Key, choose_mode
from pytest_pinchbench.session.node_ids import split_node_id
from pytest_pinchbench.session.say import say
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.suite.checkout import suite_commit, suite_name
from pytest_pinchbench.suite.load import load_suite, select
from pytest_pinchbench.suite.manifest import Rules
from pytest_pinchbench.suite.task_file import Task


class Suites:
    """The suites of a run, each loaded and selected from once in a process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._selected: dict[Path, tuple[tuple[Task, ...], tuple[TaskFileError, ...]]] = {}
        self.sizes: dict[Path, int] = {}
        """How many task files each suite has, chosen or not."""
        self.rules: dict[Path, Rules] = {}
        self.notes: list[str] = []

    def selected(self, root: Path) -> tuple[tuple[Task, ...], tuple[TaskFileError, ...]]:
        """The tasks to run from the checkout ``root``, in order, and the files that stand in
        the way. Raises ``SuiteError`` for an id that is unknown or there twice, in another
        suite of the run, too: a record is found by its task's id.
        """
        root = root.resolve()
        if root not in self._selected:
            suite = load_suite(root)
            self.sizes[root] = len(suite.tasks) + len(suite.broken)
            self.rules[root] = suite.manifest.rules
            if suite.left_out:
                names = ", ".join(path.name for path in suite.left_out)
                self.notes.append(f"left out, since the manifest does not name them: {names}")
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


@dataclass(eq=False)
class Run:
    """The run of one model as one process sees it: the controller, or an xdist worker."""

    config: pytest.Config
    settings: Settings
    mode: Fresh
    run_id: str
    name: str = ""
    """What the run's model is called in node ids, among several models; empty for one model."""
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
    troubles: dict[Key, str] = field(default_factory=dict)
    """Why an attempt has no record."""
    stopped: str = ""
    """Why this process begins no further attempt; the runs of other models go on."""
    relay: RelayClient | None = None
    _began: float = field(default_factory=time.monotonic)

    def __repr__(self) -> str:
        return self.name

    def __post_init__(self) -> None:
        self.suites = Suites(self.settings)
        self.redactor = Redactor(self.settings.secrets())
        self.say = partial(say, self.config, self.redactor)

    @classmethod
    def join(cls, config: pytest.Config, settings: Settings, **given: Any) -> Run:
        """Take part in a run as an xdist worker, given what :meth:`for_worker` returned."""
        path, relay = given.pop("path"), given.pop("relay")
        run = cls(config, settings, choose_mode(settings), **given)
        run.directory = path and RunDirectory(path)
        run.relay = relay and RelayClient(*relay)
        return run

    def for_worker(self) -> dict[str, Any]:
        """Return what a worker needs, secrets included."""
        return {
            "settings": self.settings,
            "run_id": self.run_id,
            "name": self.name,
            "only": self.only,
            "path": self.directory and self.directory.path,
            "relay": self.relay and (self.relay.port, self.relay.admin),
        }

    @property
    def model_id(self) -> str:
        """The model whose work is scored; in a regrade, the earlier run's."""
        return self.settings.model.id

    @property
    def is_recorded(self) -> bool:
        """Whether the run has a directory that another process can read."""
        return self.directory is not None and (self.directory.path / "run.json").exists()

    def suffix(self, attempt: int) -> str:
        """Return the end of an item's name: ``[2]``; among several models ``[a]``, ``[a-2]``."""
        parts = [self.name, str(attempt) if self.settings.attempts > 1 else ""]
        inside = "-".join(filter(None, parts))
        return f"[{inside}]" if inside else ""

    def wants(self, key: Key) -> bool:
        """Return whether the attempt is part of the run, as far as earlier runs decide."""
        return (self.only is None or key in self.only) and self.mode.wants(key)

    def select(self, keys: Iterable[Key]) -> None:
        """Note what is to run, once collection and deselection are done: from here on there
        is a run directory that another process can read.
        """
        self.selected = self.mode.selected(list(keys))
        if self.directory is not None and self.selected:
            self.directory.write_run(self.description())

    @cached_property
    def wall_seconds(self) -> float:
        """How long the run took, over all of its sessions; to be asked for when it has ended."""
        return round(self.seconds_before + time.monotonic() - self._began, 3)

    @property
    def results_dir(self) -> Path:
        return self.config.invocation_params.dir / self.settings.results_dir

    def short(self, path: Path) -> str:
        """Return a path from where pytest was started."""
        start = self.config.invocation_params.dir
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


class Runs:
    """The runs of a session, one for each model, in the order of the command line."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = runs
        self.first = first = runs[0]
        self.to_run = 0
        """How many attempts this session makes: ``--lf`` and the like leave chosen ones out."""
        self.group: Path | None = None
        """The directory of the group that several runs are, once something was selected."""
        for run in runs:
            run.suites, run.redactor, run.say = first.suites, first.redactor, first.say

    @classmethod
    def join(cls, config: pytest.Config, state: bytes) -> Runs:
        """Take part as an xdist worker, given what :meth:`for_worker` returned."""
        config.args, runs = pickle.loads(state)
        return cls([Run.join(config, **given) for given in runs])

    def for_worker(self) -> bytes:
        """Return what a worker needs; it travels through a pipe, and is never saved."""
        # xdist gives a worker only what the command line says
        return pickle.dumps((self.first.config.args, [run.for_worker() for run in self.all]))

    def find(self, node_id: str) -> tuple[Run, Key] | None:
        """Return the run and the key of an item, None for an item of another plugin's."""
        found = split_node_id(node_id)
        if found is None:
            return None
        task_id, suffix = found
        for run in self.all:
            for attempt in range(1, run.settings.attempts + 1):
                if suffix == run.suffix(attempt):
                    return run, (task_id, attempt)
        return None

    def select(self, node_ids: Iterable[str]) -> None:
        """Note what is to run, in each run and in the group."""
        found = [one for node_id in node_ids if (one := self.find(node_id))]
        for run in self.all:
            run.select(key for other, key in found if other is run)
        if len(self.all) > 1 and self.first.directory is not None:
            results_dir = self.first.config.invocation_params.dir / self.first.settings.results_dir
            members = [
                Member(run.name, run.model_id, run.directory.path)
                for run in self.all
                if run.is_recorded and run.directory
            ]
            if members:
                self.group = write_group(self.group, results_dir, members)

    def note_report(self, report: pytest.TestReport) -> None:
        """Keep why an item has no record (a crashed worker), for the summary."""
        found = self.find(report.nodeid)
        if report.failed and found and "task_id" not in dict(report.user_properties):
            run, key = found
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash else report.longrepr).strip()
            run.troubles[key] = text.removeprefix("AttemptInvalid: ").partition("\n")[0]


RUNS: pytest.StashKey[Runs] = pytest.StashKey()
