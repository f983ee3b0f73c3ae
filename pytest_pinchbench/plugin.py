"""The hooks by which pytest runs PinchBench.

Without ``--pinchbench`` only the options are registered, and nothing else happens.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from pytest_pinchbench import options as option_table


def pytest_addoption(parser: pytest.Parser) -> None:
    option_table.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, object, object]:
    """``--model`` is ours only in a run of ours, and only if the project has none itself."""
    result = yield
    if early_config.known_args_namespace.pinchbench:
        _, unknown = parser.parse_known_and_unknown_args(["--model", "x"])
        if unknown:
            option_table.add_model_option(parser)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if config.option.pinchbench_init:
        from pytest_pinchbench.session.init import write_config

        return write_config(config, os.environ)
    # an xdist worker has its settings from the controller, and may not be able to resolve any
    if _is_asked_for(config) and not hasattr(config, "workerinput"):
        from pytest_pinchbench.session.commands import answer

        return answer(config)
    return None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if _is_asked_for(config):
        from pytest_pinchbench.session.start import start

        start(config)


def _is_asked_for(config: pytest.Config) -> bool:
    return config.option.pinchbench and not option_table.only_asks(config)
