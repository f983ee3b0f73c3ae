"""An attempt's connection with its model or judge: through the relay, or direct."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_pinchbench.harnesses import AgentRun, Requests, Usage, sum_usage
from pytest_pinchbench.issues import Issue, SandboxFailure
from pytest_pinchbench.relay.client import GrantClient, RelayLost
from pytest_pinchbench.relay.tunnel import Tunnel

if TYPE_CHECKING:
    from pytest_pinchbench.attempt.grading import Grade
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.settings import ModelSpec

_HARD_MARGIN = 60.0
"""Seconds beyond every limit of the relay, after which a turn is stopped without it."""


def reaches_relay(environment: Environment) -> bool:
    """Return whether sandboxes of this kind can be connected with the relay."""
    return environment.on_this_machine or getattr(environment, "has_streams", False)


class RelayedLine:
    """See :class:`~pytest_pinchbench.harnesses.Line`. A context manager: at its end the token
    is worthless, and the tunnel is closed. Raises ``SandboxFailure``.
    """

    is_relayed = True

    def __init__(
        self,
        sandbox: Sandbox,
        environment: Environment,
        spec: ModelSpec,
        grant: GrantClient,
        workspace: str | None = None,
    ) -> None:
        self.workspace = workspace
        """The path below the workspace root that a replay needs; None: any."""
        self._sandbox = sandbox
        self._grant = grant
        self._ended = ""
        self._watched = False
        self._last: Requests | None = None
        try:
            self._tunnel = None if environment.shares_loopback else Tunnel(sandbox, grant.port)
        except BaseException:
            grant.close()
            raise
        port = self._tunnel.port if self._tunnel else grant.port
        # OpenClaw derives what an endpoint can do from host names in its URL
        host = urlsplit(spec.base_url or "").hostname
        url = f"http://127.0.0.1:{port}/{host}/v1"
        self.model = replace(spec, base_url=url, api_key=grant.token)

    def __enter__(self) -> RelayedLine:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RelayLost):
            self._grant.close()
        if self._tunnel:
            self._tunnel.close()

    def begin_turn(self, patience: float) -> float:
        if self._ended:
            return 0.0
        self._grant.begin_turn(patience)
        if not self._watched:
            self._watched = True
            self._grant.when_ended(self._stop)
            if self._tunnel:
                self._tunnel.when_ended(lambda: self._stop("tunnel_lost"))
        return self._grant.hard_limit + _HARD_MARGIN

    def end_turn(self, seconds: float) -> Requests:
        try:
            state = self._grant.end_turn()
        except RelayLost:
            self._ended = self._ended or "relay_lost"
            state = {"heard": False, "failure": "", "ended": ""}
        # a limit that was met on the way counts, though the agent was faster
        ended = self._ended or state["ended"]
        self._last = Requests(state["heard"], state["failure"], ended)
        return self._last

    def _stop(self, reason: str) -> None:
        """End the attempt, in a thread of the relay's."""
        self._ended = self._ended or reason
        with contextlib.suppress(SandboxFailure):
            self._sandbox.interrupt()

    def grade(self, run: AgentRun, grade: Grade) -> tuple[AgentRun, Grade]:
        """End a judge's line. Return its usage in the grade, its requests in the recording."""
        try:
            state = self._grant.close()
        except RelayLost:
            return run, grade
        if state["exchanges"]:
            grade = replace(grade, judge_usage=usage_of(tuple(state["exchanges"])))
        if state["recording"] and run.recording is not None:
            judged = ({**line, "is_judge": True} for line in state["recording"])
            run = replace(run, recording=(*run.recording, *judged))
        return run, grade

    def close(self, run: AgentRun) -> AgentRun:
        try:
            state = self._grant.close()
        except RelayLost:
            return run
        exchanges = tuple(state["exchanges"])
        recording = None if state["recording"] is None else tuple(state["recording"])
        run = replace(run, requests=exchanges, timing=state["seconds"], recording=recording)
        if unwitnessed := unwitnessed_calls(run.trajectory, exchanges):
            message = (
                f"{len(unwitnessed)} tool calls of the transcript are in no answer of the model; "
                f"the first: {unwitnessed[0][:300]}"
            )
            forged = Issue("WARNING", "transcript_unwitnessed", message)
            run = replace(run, issues=(*run.issues, forged))
        if state["divergences"]:
            message = (
                f"{state['divergences']} of {len(exchanges)} requests differ from the recording; "
                f"the first: {state['first_divergence']}"
            )
            diverged = Issue("WARNING", "replay_divergence", message)
            run = replace(run, issues=(*run.issues, diverged))
        if exchanges:
            run = replace(run, usage=usage_of(exchanges))
        if self._last is not None and self._last.ended:
            stopped = stopped_issue(self._last, run.execution_time)
            if stopped.severity == "FATAL" or all(one.severity != "FATAL" for one in run.issues):
                run = replace(run, issues=(stopped,), timed_out=self._last.ended == "time")
        return run


def stopped_issue(requests: Requests, seconds: float) -> Issue:
    """Say which limit ended the attempt, and what that means for its score."""
    after = f"after {seconds:.0f} s"
    if requests.heard:
        error = {
            "time": ("agent_timeout", f"the agent ran out of time {after}"),
            "tunnel_lost": ("tunnel_lost", "the agent ended the relay's forwarder in its sandbox"),
            "task_budget": (
                "task_budget",
                "the attempt's requests are used up (--pinchbench-task-max-requests)",
            ),
        }.get(requests.ended)
        if error:
            return Issue("ERROR", *error)
    words = f": {requests.failure}" if requests.failure else ""
    fatal = {
        "time": ("model_silent", f"the model had not begun an answer {after}{words}"),
        "agent_starved": (
            "agent_starved",
            f"the agent had not asked the model {after}: a busy machine, or an agent that hangs",
        ),
        "endpoint_waiting": (
            "model_endpoint",
            f"the model's endpoint was out of order for too long{words}",
        ),
        "run_budget": ("run_budget", "the run's budget was used up in mid-attempt"),
        "tunnel_lost": ("sandbox", "the relay's forwarder in the sandbox has ended"),
    }
    return Issue("FATAL", *fatal.get(requests.ended, ("relay", "the relay has ended")))


def unwitnessed_calls(
    trajectory: Mapping[str, Any], exchanges: tuple[dict[str, Any], ...]
) -> list[str]:
    """Return the tool calls of a trajectory that no answer held: an agent can edit its transcript.

    Compared are names, and arguments as JSON values; arguments that are not JSON witness any.
    """
    answered: set[tuple[str, str | None]] = set()
    for exchange in exchanges:
        for name, arguments in exchange["tool_calls"]:
            answered.add((name, _canonical(arguments)))
    found = []
    for step in trajectory.get("steps", ()):
        for call in step["assistant_content"]["tool_calls"]:
            function = call["function"]
            name, arguments = function["name"], _canonical(function["arguments"])
            if not answered & {(name, arguments), (name, None)}:
                found.append(f"{name} {arguments}")
    return found


def _canonical(arguments: Any) -> str | None:
    try:
        value = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return None


def usage_of(exchanges: tuple[dict[str, Any], ...]) -> Usage:
    """Add up what the endpoint counted. An answer without a count leaves the cost incomplete."""
    names = Usage.__dataclass_fields__
    spent = []
    for one in exchanges:
        if one["usage"]:
            counts = {name: value for name, value in one["usage"].items() if name in names}
            spent.append(Usage(**counts, request_count=int(one["is_answer"])))
        elif one["is_answer"]:
            failed = one["status"] is not None and one["status"] >= 400
            spent.append(Usage(cost_is_complete=failed))
    answers = sum(one["is_answer"] for one in exchanges)
    return replace(sum_usage(spent), request_count=answers)
