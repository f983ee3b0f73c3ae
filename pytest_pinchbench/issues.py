"""What can go wrong, and how badly: issues on a result, and errors that end something.

The severities and what each means for a score are the table "When things go wrong" of
the scoring rules (docs/explanation/scores.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace by ``?`` what a terminal would act on, in text that others wrote."""
    return _CONTROLS.sub("?", text)


Severity = Literal["WARNING", "ERROR", "FATAL"]


@dataclass(frozen=True)
class Issue:
    """One thing that went wrong in an attempt.

    ``WARNING`` changes no score; ``ERROR`` is part of the score (a timeout is graded on what
    is there); ``FATAL`` means that the attempt has no score. ``code`` is a short stable word
    for programs (``agent_timeout``, ``model_endpoint``, ``judge``...), ``message`` a sentence
    for people. Neither contains a secret.
    """

    severity: Severity
    code: str
    message: str


class PinchBenchError(Exception):
    """Something a user can act on. The message is whole: what, which task, what to do next."""


class SettingsError(PinchBenchError):
    """An option, variable, ini value or YAML key that cannot be used."""


class SuiteError(PinchBenchError):
    """The suite cannot be had, or a selection names a task that is not in it."""


class TaskFileError(SuiteError):
    """A task file that cannot be used.

    ``str()`` is ``path:line: reason``; ``line`` counts from 1 in the file.
    """

    def __init__(self, path: object, line: int, reason: str) -> None:
        shown = printable(str(path)).replace("\n", "?").replace("::", "?")
        super().__init__(f"{shown}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class RunAborted(PinchBenchError):
    """What ends the whole run, because no attempt could work. Every subclass is made from its
    message alone: other processes of the run raise it again.
    """


class EnvironmentUnavailable(RunAborted):
    """No sandbox of this kind can be had at all: no daemon, no image, no credentials.

    Ends the run before the first task.
    """


class SandboxFailure(PinchBenchError):
    """One sandbox failed (could not be opened, was lost, disk full). FATAL for its attempt."""


class OutputTooLarge(SandboxFailure):
    """An agent left more than is taken out of a sandbox; the sandbox itself works."""


class HarnessUnavailable(RunAborted):
    """The agent cannot be run in this environment: not there, not installable.

    Ends the run: no attempt could work.
    """


class EndpointUnusable(RunAborted):
    """The model's or the judge's endpoint refused the one tiny request that tries it.

    Ends the run before any agent has cost anything.
    """


class ResultsUnwritable(RunAborted):
    """A result cannot be written (disk full): the next agent would be paid for nothing."""


class OtherExperiment(RunAborted):
    """The sandbox or the agent differs from the earlier sessions of the run."""


class SanityFailed(RunAborted):
    """The suite's sanity task scored nothing: what is wrong would cost every other task."""


class BudgetUsedUp(PinchBenchError):
    """The run's budget was used up in mid-attempt. The attempt counts as not run."""


class AttemptInvalid(Exception):
    """An attempt without a score: an error of its test, shown without a traceback.

    Not pytest's own failure, so that reports which tell a broken test from a failed one
    (Allure) call it broken.
    """

    __module__ = "builtins"  # in messages, as pytest's own outcomes


@contextmanager
def using_data_dir(kind: type[PinchBenchError]) -> Iterator[None]:
    """A data directory that cannot be used becomes a ``kind`` that says how to have another."""
    try:
        yield
    except OSError as error:
        raise kind(
            f"files in the data directory cannot be used: {error}; "
            "--pinchbench-data-dir names another directory"
        ) from error
