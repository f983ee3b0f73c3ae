"""What a run printed."""

from __future__ import annotations

import pytest


def assert_no_traceback(result: pytest.RunResult) -> None:
    """Neither Python's nor one of pytest's, in which that word does not occur."""
    for line in ("*Traceback*", "*INTERNALERROR*", "E   *", "*.py:[0-9]*: in *"):
        result.stdout.no_fnmatch_line(line)
