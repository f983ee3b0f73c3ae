"""Task files as pytest sees them: a suite's folder, a file, its items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.scope import Scope  # pytest has no public name for it

from pytest_pinchbench.issues import SuiteError
from pytest_pinchbench.session import neighbours
from pytest_pinchbench.session.node_ids import file_id
from pytest_pinchbench.session.run import RUNS
from pytest_pinchbench.suite.load import suite_root

if TYPE_CHECKING:
    from pytest_pinchbench.results.records import Record
    from pytest_pinchbench.session.run import Run
    from pytest_pinchbench.suite.task_file import Task

# Markers that pytest or a common plugin acts on: a category of that name must not set them off.
_TAKEN = {"skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings"}
_TAKEN |= {"timeout", "flaky", "asyncio", "anyio", "trio", "order", "xdist_group", "forked"}
# And words of -m's own language.
_TAKEN |= {"and", "or", "not", "True", "False", "None"}


_ORDER = itertools.count()


class SuiteDirectory(pytest.Directory):
    """The ``tasks`` folder of a skill checkout, or a folder in it: its selected tasks."""

    def collect(self) -> Iterable[pytest.Collector]:
        run, root = self.config.stash[RUNS].first, suite_root(self.path)
        assert root is not None
        try:
            selected, broken = run.suites.selected(root)
        except SuiteError as error:
            raise self.CollectError(str(error)) from None
        files: list[tuple[Path, Task | SuiteError]] = [
            *((Path(str(problem.path)), problem) for problem in broken),
            *((task.path, task) for task in selected),
        ]
        folders = set()
        for path, task in files:
            if not path.is_relative_to(self.path) or self._is_left_out(path):
                continue
            below = path.relative_to(self.path).parts
            if len(below) > 1:
                if below[0] not in folders:
                    folders.add(below[0])
                    yield SuiteDirectory.from_parent(self, path=self.path / below[0])
                continue
            skill_dir = run.settings.skill_dir
            node_id = file_id(path, root, self.config.rootpath, skill_dir)
            if isinstance(task, SuiteError):
                yield BrokenTaskFile.from_parent(self, path=path, nodeid=node_id, problem=task)
                continue
            file = TaskFile.from_parent(self, path=path, nodeid=node_id, task=task)
            if file.is_parametrized():
                raise self.CollectError(
                    f"cannot parametrize {task.id}: pytest_generate_tests or a fixture with params "
                    "would run the task several times, as one. Use --pinchbench-attempts for "
                    "repeated attempts, and a run for each set of parameters."
                )
            yield file

    def _is_left_out(self, path: Path) -> bool:
        """Return whether ``--ignore``, ``--ignore-glob`` or a ``collect_ignore`` leaves a file
        out: as for any test file, not if the command line names it.
        """
        pytests_own = self.config.pluginmanager.get_plugin("main")
        assert pytests_own is not None
        return not self.session.isinitpath(path) and bool(
            pytests_own.pytest_ignore_collect(collection_path=path, config=self.config)
        )


class TaskFile(pytest.Module):
    """One task file; an item for each attempt of each model, side by side.

    A module, as conftest.py files and plugins expect of a test's file; the one function in it is
    the body of every item.
    """

    def __init__(self, *, task: Task, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pinchbench_task = task

    def _getobj(self) -> ModuleType:
        module = ModuleType(self.path.stem)
        module.__file__ = str(self.path)
        setattr(module, check_pass_mark.__name__, check_pass_mark)
        return module

    def is_parametrized(self) -> bool:
        """Return whether pytest would make several tests, or one with parameters, of the task."""
        name = check_pass_mark.__name__
        left_out = _leave_foreign_fixtures_out(pytest.Function.from_parent(self, name=name))
        return any(
            set(function.callspec.params) - left_out
            for function in self._genfunctions(name, check_pass_mark)
            if hasattr(function, "callspec")
        )

    def collect(self) -> list[TaskItem]:
        runs = self.config.stash[RUNS].all
        return [
            TaskItem.from_parent(
                self,
                name=f"{self.pinchbench_task.id}{run.suffix(attempt)}",
                callobj=check_pass_mark,
                task=self.pinchbench_task,
                attempt=attempt,
                run=run,
            )
            for attempt in range(1, max(run.settings.attempts for run in runs) + 1)
            for run in runs
            if attempt <= run.settings.attempts
        ]


class BrokenTaskFile(pytest.File):
    """A task file that cannot be used: a collection error that says where and why."""

    def __init__(self, *, problem: SuiteError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem

    def collect(self) -> Iterator[pytest.Item]:
        raise self.CollectError(str(self.problem))


class TaskItem(pytest.Function):
    """One attempt at one task.

    The attempt itself runs in the item's setup, in the fixture ``pinchbench_result``: so an
    invalid attempt is an error and a score below the pass mark a failure, in pytest's terms.
    """

    def __init__(self, *, task: Task, attempt: int, run: Run, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run
        if run.name:
            self.callspec: Any = _ModelParameter(run)
        if hasattr(pytest.Item, "id"):
            # pytest 9.2 compares ids (--lf, --sw) with those it has read back from its cache
            self._id: Any = type(self._id).parse(self.nodeid)
        _leave_foreign_fixtures_out(self)
        self.pinchbench_task = task
        self.attempt = attempt
        self.order = next(_ORDER)
        hook = self.session.gethookproxy(self.path.parent)
        self.is_ignored = not self.session.isinitpath(self.path) and bool(
            hook.pytest_ignore_collect(collection_path=self.path, config=self.config)
        )
        """Whether a plugin or a conftest.py leaves the task's file out."""
        marks = {task.category: "category", task.grading_type: "grading type"}
        marks |= {run.name: "model"} if run.name else {}
        for name, what in marks.items():
            marker = marker_name(name)
            self.config.addinivalue_line("markers", f"{marker}: a PinchBench {what}")
            self.add_marker(marker)
        neighbours.opt_out(self)

    @property
    def key(self) -> tuple[str, int]:
        """(task id, attempt), which is how records are found."""
        return self.pinchbench_task.id, self.attempt

    @property
    def is_sanity(self) -> bool:
        """Whether this is the first attempt at the suite's sanity task (by its id)."""
        return self.attempt == 1 and "sanity" in self.pinchbench_task.id.lower().split("_")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class _ModelParameter:
    """What pytest asks an item for about parameters, for the fixture ``pinchbench_run``.

    The same index in every item: pytest does not sort the items by their models.
    """

    def __init__(self, run: Run) -> None:
        self.id = run.name
        self.params = {"pinchbench_run": run}
        self.indices = {"pinchbench_run": 0}
        self._arg2scope = {"pinchbench_run": Scope.Session}


def _leave_foreign_fixtures_out(item: pytest.Function) -> set[str]:
    """Keep the fixtures called ``pinchbench_*`` and what these request; return the others.

    Autouse fixtures (and the ini file's ``usefixtures``) are meant for a project's own tests: a
    fake file system or a frozen clock would break every attempt, or bend its record.
    """
    definitions = item._fixtureinfo.name2fixturedefs
    wanted = [name for name in item.fixturenames if name.startswith("pinchbench_")]
    for name in wanted:  # grows meanwhile
        requested = [arg for one in definitions.get(name, ()) for arg in one.argnames]
        wanted += [arg for arg in requested if arg not in wanted]
    left_out = set(item.fixturenames).difference(wanted)
    item.fixturenames[:] = [name for name in item.fixturenames if name in wanted]
    return left_out


def marker_name(text: str) -> str:
    """A category as a marker that pytest takes, and ``-m`` understands: ``C++ (hard)`` is
    ``C_hard``.
    """
    name = re.sub(r"\W+", "_", text).strip("_")
    return f"pinchbench_{name}" if name in _TAKEN or not name else name


def check_pass_mark(pinchbench_result: Record, pinchbench_run: Run) -> None:
    """The body of every item: its score against the pass mark."""
    from pytest_pinchbench.reports.terminal import shortfall
    from pytest_pinchbench.results.gates import reaches

    pass_mark = pinchbench_run.settings.pass_mark
    score = pinchbench_result["metrics"]["score"]
    assert score is not None, "pinchbench_result has failed for an invalid attempt"
    if not reaches(score, pass_mark):
        pytest.fail(shortfall(pinchbench_result, pass_mark), pytrace=False)
