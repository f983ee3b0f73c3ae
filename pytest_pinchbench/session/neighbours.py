"""What other plugins do to a project's own tests, and must not do to its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter  # pytest 8.0 has no public name for it

_MARKERS: dict[str, Callable[[], pytest.MarkDecorator]] = {
    # by the name of the plugin that acts on it; a limit or a rerun is not meant for an attempt
    "timeout": lambda: pytest.mark.timeout(0),
    "rerunfailures": lambda: pytest.mark.flaky(reruns=0),
    "socket": lambda: pytest.mark.enable_socket,
}


def keep_away(config: pytest.Config) -> None:
    """Switch off, for this session, what is meant for the project's own tests.

    flaky would run an invalid attempt again, unasked and unseen; pytest-cov's threshold
    (``--cov-fail-under``, in a project's addopts) would decide the exit code of a run that
    executes none of the project's code.
    """
    plugins = config.pluginmanager
    if plugins.hasplugin("flaky"):
        plugins.unregister(name="flaky")
    coverage: Any = plugins.get_plugin("_cov")
    if coverage is not None:
        coverage.options.cov_fail_under = 0  # None would be read from coverage's configuration


def opt_out(item: pytest.Item) -> None:
    """Give a task the markers by which plugins leave a test alone."""
    for plugin, marker in _MARKERS.items():
        if item.config.pluginmanager.hasplugin(plugin):
            item.add_marker(marker())


def annotates_failures(config: pytest.Config) -> bool:
    """Return whether a plugin shows GitHub each failed test already."""
    return config.pluginmanager.hasplugin("pytest_github_actions_annotate_failures")


def terminal_reporter(config: pytest.Config) -> TerminalReporter | None:
    """Return pytest's reporter, or None where another reporter, of unknown abilities, has taken
    its place (pytest-tldr, pytest-rich) or there is none.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter if isinstance(reporter, TerminalReporter) else None
