"""Settings as a run would have them, from a real pytest configuration."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_pinchbench.settings import Settings
from pytest_pinchbench.settings.resolve import resolve


def settings_of(
    pytester: pytest.Pytester, *arguments: str, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings of ``pytest --pinchbench ARGUMENTS`` in the folder of ``pytester``."""
    config = pytester.parseconfig("--pinchbench", *arguments)
    return resolve(config, environ or {})
