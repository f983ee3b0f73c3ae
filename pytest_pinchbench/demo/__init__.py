"""A small suite and a scripted model: the tool tried out without a key or an account.

``pytest --pinchbench -p pytest_pinchbench.demo`` runs it. What the command line leaves open is
then the demo's: its suite, its model, a ``bubblewrap`` sandbox (``local`` where that cannot be
made). Variables such as MODEL_NAME, the ini file and a YAML file do not count for these, so that
a demo among the settings of a real project shows the same numbers as anywhere, and costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("suite")

FAIL_UNDER = "0.7"
"""The scripted model does not pass every task, and a demo that goes well has to exit with 0."""


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Fill in what the command line leaves open, and keep the model going during the run.

    xdist's workers come by here too; they get their settings, and with them the address of
    the model, from the process that started them.
    """
    if not config.getoption("pinchbench", False) or hasattr(config, "workerinput"):
        return (yield)
    option = config.option
    if not option.pinchbench_recipe:
        _fill_in(config, env=_sandbox_here())
    _fill_in(config, skill_dir=str(SUITE))
    if option.pinchbench_model or option.pinchbench_model_base_url:
        # a model of the user's own is not judged by a script that has never seen its work
        return (yield)
    with _scripted_model(config):
        return (yield)


def _sandbox_here() -> str:
    """The safest kind of sandbox that needs nothing installed beyond this package."""
    from pytest_pinchbench.environments.bubblewrap import why_unusable

    reason = why_unusable()
    if reason:
        print(f"pinchbench: the demo has no safe sandbox here: {reason}", file=sys.stderr)
    return "local" if reason else "bubblewrap"


@contextmanager
def _scripted_model(config: pytest.Config) -> Iterator[None]:
    import secrets

    from pytest_pinchbench.demo.model import ScriptedModel
    from pytest_pinchbench.demo.script import SCRIPT, load_script

    key = secrets.token_urlsafe(24)
    with ScriptedModel(load_script(SCRIPT), api_key=key) as model:
        _fill_in(
            config,
            model="demo/scripted",
            model_base_url=model.url,
            model_api_key=key,
            model_api_protocol="openai-chat",
            fail_under=FAIL_UNDER,
        )
        if not config.option.pinchbench_judge_model:
            _fill_in(
                config,
                judge_model="demo/judge",
                judge_base_url=model.url,
                judge_api_key=key,
                judge_api_protocol="openai-chat",
            )
        yield


def _fill_in(config: pytest.Config, **values: str) -> None:
    for name, value in values.items():
        if getattr(config.option, f"pinchbench_{name}") is None:
            setattr(config.option, f"pinchbench_{name}", value)
