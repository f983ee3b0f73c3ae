"""The paths and node ids of the command line, pointed at suites."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from pytest_pinchbench.issues import SuiteError
from pytest_pinchbench.results.earlier_runs import read_run_json
from pytest_pinchbench.session.run import Run
from pytest_pinchbench.suite.checkout import resolve_skill_dir
from pytest_pinchbench.suite.load import holds_task_files, suite_root, what_lies_in


def find_arguments(run: Run) -> None:
    """Replace pytest's arguments by paths of task files, and load their suites.

    Without a path on the command line, the arguments are those of the run that goes on, else
    the ``tasks`` folder of the suite. A node id is looked for from the rootdir and from the
    suite, wherever the suite lies. Raises ``PinchBenchError``.
    """
    config = run.config
    earlier = read_run_json(run.mode.earlier).get("arguments", []) if run.mode.earlier else []
    if names_a_path(config):
        config.args = [_find_argument(argument, run) for argument in config.args]
        now = [str(config.invocation_params.dir / argument) for argument in config.args]
        run.arguments = list(dict.fromkeys([*earlier, *now]))
    elif earlier:
        config.args = run.arguments = earlier
    else:
        config.args = [str(_skill_dir(run) / "tasks")]
    for argument in config.args:
        for root in _suites_at(config.invocation_params.dir / argument.partition("::")[0]):
            run.suites.selected(root)


def names_a_path(config: pytest.Config) -> bool:
    """Return whether the command line does; a path in ``addopts`` names the project's tests."""
    given = config.invocation_params.args
    return config.args_source is pytest.Config.ArgsSource.ARGS and (
        any(argument in given for argument in config.args)
        or any(str(argument).startswith("@") for argument in given)  # a file of arguments
    )


def _find_argument(argument: str, run: Run) -> str:
    path, *rest = argument.split("::")
    here, rootdir = run.config.invocation_params.dir, run.config.rootpath
    if (here / path).exists():
        return argument
    # as it is printed: from the rootdir, or from wherever the suite lies; and below the rootdir
    # with the way up to it
    found = [rootdir / path]
    if not found[0].exists():
        found = [_skill_dir(run) / one for one in (path, os.path.relpath(here / path, rootdir))]
    return next(("::".join([str(one), *rest]) for one in found if one.exists()), argument)


def _skill_dir(run: Run) -> Path:
    return resolve_skill_dir(run.settings, run.say)


def _suites_at(path: Path) -> Iterator[Path]:
    """Yield the root of the suite that an argument's path leads to, if to any."""
    folder = path if path.is_dir() else path.parent
    tasks = folder / "tasks" if (folder / "tasks").is_dir() else folder
    root = suite_root(tasks)
    if root is None:
        if any(fnmatchcase(name, "task_*.md") for name in os.listdir(folder)):
            raise SuiteError(
                f"{folder} holds task files, but is not called tasks: a task is run from the "
                "folder tasks of a suite, with its files in assets beside that"
            )
    elif holds_task_files(tasks):
        yield root
    elif tasks.name == "tasks":
        raise SuiteError(f"{folder} holds no tasks: {what_lies_in(tasks)}")
