"""A harness of one's own: any program of the sandbox that reads a prompt and prints an answer.

Install this folder (``pip install examples/own_harness``), name the program in a YAML file::

    harnesses:
      command:
        argv: [my-agent, --print]

and run ``pytest --pinchbench --pinchbench-config that.yaml --pinchbench-harness command``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pytest_pinchbench import AgentRun, Environment, Issue, Sandbox, Settings, Task, Usage


class CommandHarness:
    name = "command"

    def __init__(self, settings: Settings) -> None:
        self._argv = [str(word) for word in settings.harness_settings["argv"]]
        self._model = settings.model
        self.say: Callable[[str], None] = print

    def prepare(self, environment: Environment) -> None:
        """The program is in the image already."""

    def version(self, sandbox: Sandbox) -> str:
        return "1.0"

    def files(self, sandbox: Sandbox, task: Task, workspace: str) -> Mapping[str, bytes]:
        return {}

    def run(self, sandbox: Sandbox, task: Task, workspace: str, timeout: float) -> AgentRun:
        began = time.monotonic()
        env = {"MODEL_NAME": self._model.id, "MODEL_BASE_URL": self._model.base_url or ""}
        messages: list[dict[str, Any]] = []
        answer, errors, timed_out = "", "", False
        issues: list[Issue] = []
        for prompt in task.prompts:
            left = timeout - (time.monotonic() - began)
            done = sandbox.exec(
                self._argv, cwd=workspace, env=env, stdin=prompt.text.encode(), timeout=left
            )
            answer, timed_out = done.stdout.decode(errors="replace"), done.timed_out
            errors += done.stderr.decode(errors="replace")
            messages += [_message("user", prompt.text), _message("assistant", answer)]
            if done.timed_out:
                issues.append(Issue("ERROR", "agent_timeout", f"stopped after {timeout:g} s"))
            elif done.exit_code:
                # FATAL: there is nothing to grade
                issues.append(Issue("FATAL", "agent_exit", f"it ended with {done.exit_code}"))
            if issues:
                break
        sandbox.stop_processes()
        return AgentRun(
            transcript=tuple(messages),
            trajectory={"schema_version": "ACTF_v1.0", "steps": []},
            usage=Usage(request_count=len(messages) // 2),
            final_answer=answer,
            timed_out=timed_out,
            execution_time=time.monotonic() - began,
            stdout=answer,
            stderr=errors,
            version="1.0",
            issues=tuple(issues),
        )


def _message(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "message", "message": {"role": role, "content": content}}
