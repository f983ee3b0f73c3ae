"""What of the surroundings of these tests must not reach a run that they make."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pytest_pinchbench.options import OPTIONS

_OF_OPTIONS = {name for option in OPTIONS for name in option.env}


def foreign_variables() -> Iterator[str]:
    """Settings of a developer's own runs, the CI job that runs the tests, proxies."""
    for name in os.environ:
        # CI and BUILD_NUMBER: with them pytest cuts no line
        of_a_job = name in ("BUILD_NUMBER", "CI", "PYTEST_ADDOPTS") or name.startswith("GITHUB_")
        if of_a_job or name in _OF_OPTIONS or name.lower().endswith("_proxy"):
            yield name
