"""What runs an agent in a sandbox: the protocol that OpenClaw's harness implements.

A harness is found by its name among the entry points ``pytest_pinchbench.harnesses``; what
the entry point names is called with the run's ``Settings`` and returns a :class:`Harness`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_pinchbench.environments import check_reachable
from pytest_pinchbench.kinds import load_kind

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.issues import Issue
    from pytest_pinchbench.settings import ModelSpec, Settings
    from pytest_pinchbench.suite.task_file import Task


@dataclass(frozen=True)
class Usage:
    """Tokens and money of one attempt, summed over its requests, as the agent recorded them.

    ``input_tokens`` includes cached ones; ``cost_usd`` is None where the agent knows no price,
    and a lower bound unless ``cost_is_complete``.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    request_count: int = 0
    cost_is_complete: bool = True


def sum_usage(spent: Sequence[Usage]) -> Usage:
    """The total; the cost is None where no summand has one, and a lower bound where one of
    several that made requests has none.
    """
    costs = [usage.cost_usd for usage in spent if usage.cost_usd is not None]
    total = {
        name: sum(getattr(usage, name) for usage in spent)
        for name in Usage.__dataclass_fields__
        if name not in ("cost_usd", "cost_is_complete")
    }
    return Usage(
        **total,
        cost_usd=sum(costs) if costs else None,
        cost_is_complete=all(
            usage.cost_is_complete
            and (usage.cost_usd is not None or not (usage.request_count or usage.total_tokens))
            for usage in spent
        ),
    )


@dataclass(frozen=True)
class Requests:
    """What the relay knows of an attempt's requests to its model."""

    heard: bool
    """A delta of content, reasoning or a tool call has come."""
    failure: str
    """The endpoint's words (status first) where the last answer was a failure."""
    ended: str
    """The limit that stopped the attempt: ``time``, ``agent_starved``, ``endpoint_waiting``,
    ``task_budget``, ``run_budget``, ``relay_lost``, ``tunnel_lost``; empty where none did."""


class Line(Protocol):
    """An attempt's connection with its model, and the attempt's clock."""

    model: ModelSpec  #: with the URL and the key as they are inside the sandbox
    is_relayed: bool

    def begin_turn(self, patience: float) -> float:
        """Return the seconds that a turn may take at most; 0 where the time is up.

        ``patience``: the seconds that the agent waits for the first byte of an answer.
        """

    def end_turn(self, seconds: float) -> Requests | None:
        """End a turn that took so long; None without a relay."""

    def close(self, run: AgentRun) -> AgentRun:
        """End the line. Return the run with the relay's requests, usage and timing."""


class DirectLine:
    """A line without a relay: one clock over all turns, which counts everything."""

    is_relayed = False
    workspace: str | None = None

    def __init__(self, model: ModelSpec, environment: Environment, timeout: float) -> None:
        if model.base_url is not None:
            check_reachable(environment, model.base_url)
        self.model = model
        self._left = timeout

    def begin_turn(self, patience: float) -> float:
        return max(self._left, 0.0)

    def end_turn(self, seconds: float) -> None:
        self._left -= seconds

    def close(self, run: AgentRun) -> AgentRun:
        return run


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
    startup_seconds: float | None = None
    """From starting the agent until it had its first prompt, where that is known."""
    requests: tuple[dict[str, Any], ...] | None = None
    """What passed the relay, one mapping a request; None without a relay."""
    recording: tuple[dict[str, Any], ...] | None = None
    """Every request and answer as they were, where they are kept."""
    timing: Mapping[str, float] | None = None
    """Seconds of ``startup``, ``waiting``, ``answering`` and the agent's ``own`` work."""


class Harness(Protocol):
    """Runs a task's prompts through an agent."""

    name: str
    say: Callable[[str], None]  #: set by the run: prints a line for the user

    def prepare(self, environment: Environment) -> None:
        """Once a process, before its first attempt, outside any sandbox: installs the agent
        where the environment needs that done. Raises ``HarnessUnavailable``.
        """

    def version(self, sandbox: Sandbox) -> str:
        """Return the agent's version in a sandbox, before it runs there. Raises
        ``SandboxFailure`` or ``HarnessUnavailable``.
        """

    def files(
        self, sandbox: Sandbox, task: Task, workspace: str, line: Line
    ) -> Mapping[str, bytes]:
        """Files that :meth:`run` needs in the sandbox, written together with the workspace."""

    def run(self, sandbox: Sandbox, task: Task, workspace: str, line: Line) -> AgentRun:
        """Send the task's prompts in order, in one session, for as long as ``line`` gives a
        turn time. When it returns, no process of the agent is left. Raises
        ``SandboxFailure`` or ``HarnessUnavailable``.
        """


def find_harness(name: str) -> Callable[[Settings], Harness]:
    """Return the factory of a harness. Raises ``SettingsError`` for an unknown name."""
    factory: Callable[[Settings], Harness] = load_kind("harnesses", name)
    return factory
