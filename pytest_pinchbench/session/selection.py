"""pytest's own selection, applied to tasks; and what of pytest cannot be applied to them."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_pinchbench.issues import ResultsUnwritable, SettingsError
from pytest_pinchbench.options import only_looks
from pytest_pinchbench.session.items import TaskFile, TaskItem
from pytest_pinchbench.session.run import Runs
from pytest_pinchbench.suite.load import suite_root


def check_can_be_honoured(config: pytest.Config) -> None:
    """Raise ``SettingsError`` for an option that would be ignored, or pay for an agent in vain."""
    if only_looks(config):
        return
    if config.getoption("setuponly"):
        raise SettingsError(
            "cannot run tasks with --setup-only: the agent's attempt is part of the setup, and "
            "would be paid for. --setup-plan shows the fixtures without an attempt."
        )
    if config.getoption("dist", "no") == "each":
        raise SettingsError(
            "cannot run tasks with --dist each: every worker would run, and pay for, every task. "
            "Use -n N (--dist load)."
        )
    if config.pluginmanager.hasplugin("repeat") and config.getoption("count", 1) > 1:
        raise SettingsError(
            "cannot run tasks with --count: repeated tests do not become attempts. Use "
            "--pinchbench-attempts N (and --count 1 where the project's addopts say otherwise)."
        )


class SelectionHooks:
    """In every process: which tasks run, in which order, and which of them were chosen."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._collected: list[TaskItem] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Collect a task file whole where ``--lf`` skips it: what it deselects later is seen."""
        report = yield
        if isinstance(collector, TaskFile) and report.passed:
            whole = collector.collect()
            if len(report.result) < len(whole):
                report.result[:] = whole
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep the order asked for, whatever a plugin that shuffles does; a sanity task goes
        first. Plugins inside this hook (``--sw``, pytest-split) see that order; ``--ff`` and
        ``--nf`` change it afterwards.

        A regrade is of what the earlier run was to run, and leaves out what it has no result of.
        Every run leaves out what others make of files (doctests in a README): it is not part of
        a score.
        """
        config.option.randomly_reorganize = False  # pytest-randomly 3 shuffles inside, before --sw
        ours = {
            item.nodeid: item  # a file named twice is run, and paid for, once
            for item in items
            if isinstance(item, TaskItem) and item.run.wants(item.key)
        }
        self._collected = sorted(ours.values(), key=_rank)
        _spell_deselected_ids(config, self._collected)
        kept = [
            item
            for item in self._collected
            if not item.is_ignored and item.run.mode.has_work_for(item.key)
        ]
        if gone := [item for item in items if item not in kept]:
            config.hook.pytest_deselected(items=gone)
        items[:] = kept
        result = yield
        items.sort(key=_rank)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        chosen = [item.nodeid for item in self._chosen(session)]
        if not hasattr(session.config, "workerinput"):
            try:
                self._runs.select(chosen)
            except ResultsUnwritable as error:
                raise pytest.UsageError(str(error)) from None
            self._runs.to_run = len(session.items)
        elif (directory := self._runs.first.directory) is not None:
            # xdist tells the controller what is to run, and not what was chosen
            directory.share("chosen", chosen)

    def _chosen(self, session: pytest.Session) -> Sequence[pytest.Item]:
        """Return the tasks to run, and those that pytest's ``-k``, ``-m`` and ``--deselect`` keep.

        Whatever else leaves a task out (``--lf``, ``--sw``, testmon, pytest-split, a conftest.py)
        does not change what was asked for: the task then has no result.
        """
        left_out = [item for item in self._collected if item not in session.items]
        for name in ("mark", "main"):
            pytests_own: Any = session.config.pluginmanager.get_plugin(name)
            pytests_own.pytest_collection_modifyitems(
                items=left_out, config=_QuietConfig(session.config)
            )
        return [item for item in self._collected if item in session.items or item in left_out]


class _QuietConfig:
    """A config whose ``pytest_deselected`` counts nothing."""

    hook = SimpleNamespace(pytest_deselected=lambda items: None)

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def _rank(item: pytest.Item) -> tuple[bool, int]:
    return (not item.is_sanity, item.order) if isinstance(item, TaskItem) else (True, 0)


def _spell_deselected_ids(config: pytest.Config, items: Sequence[TaskItem]) -> None:
    """Add the node ids that ``--deselect`` names in another spelling, for pytest to act on."""
    entries = config.getoption("deselect") or []
    found = [
        item.nodeid for item in items for entry in entries if _is_spelling_of(entry, item, config)
    ]
    if found:
        config.option.deselect = [*entries, *found]


def _is_spelling_of(entry: str, item: TaskItem, config: pytest.Config) -> bool:
    """Return whether ``PATH`` or ``PATH::NAME`` means the item: its real path, from the rootdir
    or from where pytest was started, or the id as printed, which starts below its suite.
    """
    path, _, name = entry.partition("::")
    here, root = config.invocation_params.dir, suite_root(item.path) or item.path
    printed = os.path.relpath(here / path, config.rootpath)
    real = item.path.resolve()
    return item.name.startswith(name) and (
        any((base / path).resolve() in (real, *real.parents) for base in (here, config.rootpath))
        or any((root / one).resolve() == real for one in (path, printed))
    )
