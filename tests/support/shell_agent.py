"""An agent that is a shell script: tests of everything around an agent need no model.

A script that asks one finds its URL and key in ``$MODEL_URL`` and ``$MODEL_KEY``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_pinchbench.harnesses import AgentRun, Usage
from pytest_pinchbench.issues import Issue


class ShellAgent:
    """A harness that runs ``scripts[task id]`` with ``sh`` in the workspace, for each prompt."""

    name = "shell"

    def __init__(self, scripts: Mapping[str, str] | None = None, cost: float | None = None) -> None:
        self.scripts = scripts or {}
        self.cost = cost
        self.say: Callable[[str], None] = print

    def prepare(self, environment: Any) -> None:
        pass

    def version(self, sandbox: Any) -> str:
        return "1.0"

    def files(self, sandbox: Any, task: Any, workspace: str, line: Any) -> dict[str, bytes]:
        return {}

    def run(self, sandbox: Any, task: Any, workspace: str, line: Any) -> AgentRun:
        script = self.scripts.get(task.id, "true")
        timeout = line.begin_turn(3600.0)
        environ = {"MODEL_URL": line.model.base_url or "", "MODEL_KEY": line.model.api_key or ""}
        done = sandbox.exec(["sh", "-c", script], cwd=workspace, env=environ, timeout=timeout)
        requests = line.end_turn(done.seconds)
        sandbox.stop_processes()
        issues: tuple[Issue, ...] = ()
        if done.timed_out:
            issues = (Issue("ERROR", "agent_timeout", f"stopped after {timeout:g} s"),)
        elif done.exit_code < 0:
            issues = (Issue("ERROR", "agent_ended", "the agent ended its own command"),)
        elif done.exit_code and not (requests and requests.ended):
            issues = (Issue("FATAL", "agent_exit", f"the agent ended with {done.exit_code}"),)
        said = done.stdout[-10_000:].decode(errors="replace")
        return AgentRun(
            transcript=(
                message("user", task.prompt),
                message("assistant", said),
            ),
            trajectory={"schema_version": "ACTF_v1.0", "steps": []},
            usage=Usage(10, 5, 0, 0, 15, self.cost, 1),
            final_answer=said,
            timed_out=done.timed_out,
            execution_time=done.seconds,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            version="1",
            issues=issues,
        )


def message(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "message", "message": {"role": role, "content": content}}
