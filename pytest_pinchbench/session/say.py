"""Lines for the user while a run is under way."""

from __future__ import annotations

import contextlib
import sys

import pytest

from pytest_pinchbench.issues import printable
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.session.neighbours import terminal_reporter


def say(config: pytest.Config, redactor: Redactor, message: str) -> None:
    """Print a line for the user at once, past pytest's capturing and from any process."""
    line = printable(redactor.text(f"pinchbench: {message}"))
    reporter = terminal_reporter(config)
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        if reporter is None or hasattr(config, "workerinput"):
            # a worker's stderr is the controller's; there is no other way past xdist, nor
            # one to know whether the controller is in the middle of a line
            print(f"\n{line}", file=sys.stderr, flush=True)
        else:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()
