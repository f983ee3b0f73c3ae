"""The start of a session that runs PinchBench: settings, run directory, suite, hooks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial

import pytest

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.options import only_looks
from pytest_pinchbench.results.summary import read_baselines
from pytest_pinchbench.session import fixtures
from pytest_pinchbench.session.arguments import find_arguments, names_a_path
from pytest_pinchbench.session.hooks import CollectionHooks, ControllerHooks, XdistHooks
from pytest_pinchbench.session.mode import choose_mode, find_earlier_runs
from pytest_pinchbench.session.neighbours import keep_away
from pytest_pinchbench.session.relaying import start_relay
from pytest_pinchbench.session.run import RUNS, Run, Runs
from pytest_pinchbench.session.selection import SelectionHooks, check_can_be_honoured
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.settings.resolve import resolve_each

_PR_SET_PDEATHSIG = 1


def start(config: pytest.Config) -> None:
    """Set the session up, in the controller or in an xdist worker. Raises
    ``pytest.UsageError``.
    """
    worker_input = getattr(config, "workerinput", None)
    try:
        if worker_input is not None:
            _end_with_the_controller()
            runs = Runs.join(config, worker_input["pinchbench"])
        else:
            from pytest_pinchbench.session import report_hooks

            check_can_be_honoured(config)
            runs = start_runs(config, resolve_each(config, os.environ))
            # before our own: what is registered later is called earlier
            report_hooks.register(config, runs)
    except PinchBenchError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[RUNS] = runs
    keep_away(config)
    _stop_on_signals(config)
    config.pluginmanager.register(fixtures, "pinchbench-fixtures")
    config.pluginmanager.register(CollectionHooks(runs), "pinchbench-collection")
    config.pluginmanager.register(SelectionHooks(runs), "pinchbench-selection")
    if worker_input is None:
        config.pluginmanager.register(ControllerHooks(runs), "pinchbench-controller")
        # not "dsession": which of the two plugins is configured first is anyone's guess
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(XdistHooks(runs), "pinchbench-xdist")
            if config.option.maxschedchunk is None:
                # tasks are few and long: hand them out one by one
                config.option.maxschedchunk = 1


def start_runs(config: pytest.Config, models: Mapping[str, Settings]) -> Runs:
    """Begin a run for each model, in the controller, given the settings of each.

    Raises ``PinchBenchError``.
    """
    here = config.invocation_params.dir
    found, group = find_earlier_runs(models, here)
    runs = Runs([_run(config, name, settings) for name, settings in found.items()])
    runs.group = group
    find_arguments(runs.first)
    for run in runs.all:
        run.arguments = runs.first.arguments
        fixtures.check_kinds(run)
        if not _chooses(config, run.settings):
            run.only = run.mode.attempts_before(run.settings.attempts)
        if not only_looks(config):
            run.baselines = read_baselines(run.settings, here)
            results_dir = here / run.settings.results_dir
            directory = run.mode.directory(results_dir, run.description())
            directory.lock()
            run.directory = directory
            start_relay(run)
    return runs


def _run(config: pytest.Config, name: str, settings: Settings) -> Run:
    mode = choose_mode(settings)
    return Run(config, mode.adjusted(settings), mode, mode.run_id(), name, mode.seconds_before())


def _chooses(config: pytest.Config, settings: Settings) -> bool:
    """Return whether the command line chooses tasks: by settings, ``-k``, ``-m`` or a path."""
    given = {name for name, origin in settings.origins.items() if origin.startswith("--")}
    return (
        bool(given & {"suite", "limit", "sample_ids"})
        or any(config.getoption(name, "") for name in ("keyword", "markexpr"))
        or names_a_path(config)
    )


def _stop_on_signals(config: pytest.Config) -> None:
    """Have SIGTERM, by which CI ends a job, and SIGHUP, by which a terminal ends, act like Ctrl-C:
    sandboxes are closed, the summary is written.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)
            config.add_cleanup(partial(_restore, number))


def _restore(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)


def _end_with_the_controller() -> None:
    """Have the kernel end this worker when its controller is killed: its agent would go on, and
    cost, for as long as execnet is patient (15 seconds), and beside a resumed run.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
