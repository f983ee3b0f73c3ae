"""The start of a session that runs PinchBench: settings, run directory, suite, hooks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

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
from pytest_pinchbench.session.run import RUN, Run
from pytest_pinchbench.session.selection import SelectionHooks, check_can_be_honoured
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.settings.resolve import resolve

_PR_SET_PDEATHSIG = 1


def start(config: pytest.Config) -> None:
    """Set the session up, in the controller or in an xdist worker. Raises
    ``pytest.UsageError``.
    """
    worker_input = getattr(config, "workerinput", None)
    try:
        if worker_input is not None:
            _end_with_the_controller()
            run = Run.join(config, worker_input["pinchbench"])
        else:
            from pytest_pinchbench.session import report_hooks

            check_can_be_honoured(config)
            run = start_run(config, resolve(config, os.environ))
            # before our own: what is registered later is called earlier
            report_hooks.register(config, run)
    except PinchBenchError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[RUN] = run
    keep_away(config)
    _stop_on_sigterm(config)
    config.pluginmanager.register(fixtures, "pinchbench-fixtures")
    config.pluginmanager.register(CollectionHooks(run), "pinchbench-collection")
    config.pluginmanager.register(SelectionHooks(run), "pinchbench-selection")
    if worker_input is None:
        config.pluginmanager.register(ControllerHooks(run), "pinchbench-controller")
        # not "dsession": which of the two plugins is configured first is anyone's guess
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(XdistHooks(run), "pinchbench-xdist")
            if config.option.maxschedchunk is None:
                # tasks are few and long: hand them out one by one
                config.option.maxschedchunk = 1


def start_run(config: pytest.Config, settings: Settings) -> Run:
    """Begin a run, in the controller. Raises ``PinchBenchError``."""
    here = config.invocation_params.dir
    settings = find_earlier_runs(settings, here)
    mode = choose_mode(settings)
    run = Run(config, mode.adjusted(settings), mode, mode.run_id(), mode.seconds_before())
    fixtures.check_kinds(run)
    find_arguments(run)
    if not _chooses(config, settings):
        run.only = mode.attempts_before(run.settings.attempts)
    if not only_looks(config):
        run.baselines = read_baselines(run.settings, here)
        directory = mode.directory(here / settings.results_dir, run.description())
        directory.lock()
        run.directory = directory
        start_relay(run)
    return run


def _chooses(config: pytest.Config, settings: Settings) -> bool:
    """Return whether the command line chooses tasks: by settings, ``-k``, ``-m`` or a path."""
    given = {name for name, origin in settings.origins.items() if origin.startswith("--")}
    return (
        bool(given & {"suite", "limit", "sample_ids"})
        or any(config.getoption(name, "") for name in ("keyword", "markexpr"))
        or names_a_path(config)
    )


def _stop_on_sigterm(config: pytest.Config) -> None:
    """Have SIGTERM, by which CI ends a job, act like Ctrl-C: sandboxes are closed, the summary
    is printed.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        config.add_cleanup(_restore_sigterm)


def _restore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_the_controller() -> None:
    """Have the kernel end this worker when its controller is killed: its agent would go on, and
    cost, for as long as execnet is patient (15 seconds), and beside a resumed run.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
