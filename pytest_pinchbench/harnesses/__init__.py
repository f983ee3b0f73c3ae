"""What runs an agent in a sandbox: the protocol that OpenClaw's harness implements.

A harness is found by its name among the entry points ``pytest_pinchbench.harnesses``; what
the entry point names is called with the run's ``Settings`` and returns a :class:`Harness`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.issues import Issue
    from pytest_pinchbench.settings import Settings
    from pytest_pinchbench.suite.task_file import Task


@dataclass(frozen=True)
class Usage:
    """Tokens and money of one attempt, summed over its requests, as the agent recorded them.

    ``input_tokens`` includes cached ones; ``cost_usd`` is None where the agent knows no price.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    request_count: int = 0


def sum_usage(spent: Sequence[Usage]) -> Usage:
    """The total; the cost is None where no summand has one."""
    costs = [usage.cost_usd for usage in spent if usage.cost_usd is not None]
    total = {
        name: sum(getattr(usage, name) for usage in spent)
        for name in Usage.__dataclass_fields__
        if name != "cost_usd"
    }
    return Usage(**total, cost_usd=sum(costs) if costs else None)


@dataclass(frozen=True)
class AgentRun:
    """What an agent did in one attempt.

    ``transcript`` is the conversation as the agent wrote it (one mapping an event), except
    that a message's ``content`` is always a list; ``trajectory`` the same in ACTF_v1.0;
    ``execution_time`` wall seconds of the agent's turns. An issue of severity FATAL means
    that there is nothing to grade (the model was never heard, the agent crashed).
    """

    transcript: tuple[dict[str, Any], ...]
    trajectory: Mapping[str, Any]
    usage: Usage
    final_answer: str
    timed_out: bool
    execution_time: float
    stdout: str
    stderr: str
    version: str
    issues: tuple[Issue, ...] = ()


class Harness(Protocol):
    """Runs a task's prompts through an agent."""

    name: str
    say: Callable[[str], None]  #: set by the run: prints a line for the user

    def prepare(self, environment: Environment) -> None:
        """Once a process, before its first attempt, outside any sandbox: installs the agent
        where the environment needs that done. Raises ``HarnessUnavailable``.
        """

    def files(self, sandbox: Sandbox, task: Task, workspace: str) -> Mapping[str, bytes]:
        """Files that :meth:`run` needs in the sandbox, written together with the workspace."""

    def run(self, sandbox: Sandbox, task: Task, workspace: str, timeout: float) -> AgentRun:
        """Send the task's prompts in order, in one session, within ``timeout`` seconds over
        all of them. When it returns, no process of the agent is left. Raises
        ``SandboxFailure`` or ``HarnessUnavailable``.
        """


def find_harness(name: str) -> Callable[[Settings], Harness]:
    """The factory of a harness, by entry point. Raises ``SettingsError``."""
    from importlib.metadata import entry_points

    from pytest_pinchbench.issues import SettingsError
    from pytest_pinchbench.spelling import did_you_mean

    found = {point.name: point for point in entry_points(group="pytest_pinchbench.harnesses")}
    if name not in found:
        hint = did_you_mean(name, found) or f"; there are: {', '.join(sorted(found))}"
        raise SettingsError(f"no harness called {name!r}{hint}")
    factory: Callable[[Settings], Harness] = found[name].load()
    return factory
