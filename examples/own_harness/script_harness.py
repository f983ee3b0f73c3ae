"""A harness of one request: the model answers with a shell script, which runs in the workspace.

``pip install ./examples/own_harness``, then ``pytest --pinchbench --pinchbench-harness script``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from pytest_pinchbench import AgentRun, Environment, Issue, Sandbox, Settings, Task, Usage

INSTRUCTION = "Answer with one shell script in a fenced block. It runs in the task's workspace."


class ScriptHarness:
    """See :class:`pytest_pinchbench.Harness`."""

    name = "script"

    def __init__(self, settings: Settings) -> None:
        self._model = settings.model
        self.say: Callable[[str], None] = print

    def prepare(self, environment: Environment) -> None:
        """Nothing is installed."""

    def files(self, sandbox: Sandbox, task: Task, workspace: str) -> Mapping[str, bytes]:
        return {}

    def run(self, sandbox: Sandbox, task: Task, workspace: str, timeout: float) -> AgentRun:
        started = time.monotonic()
        try:
            answer, usage = self._ask(task.prompt, timeout)
        except httpx.HTTPError as error:
            # FATAL: the model was never heard, so there is nothing to grade
            return _run(task, "", Usage(), started, Issue("FATAL", "model_endpoint", str(error)))
        script = re.search(r"```\w*\n(.*?)```", answer, re.DOTALL)
        left = timeout - (time.monotonic() - started)
        done = sandbox.exec(
            ["sh", "-c", script[1] if script else "true"], cwd=workspace, timeout=max(left, 0.001)
        )
        sandbox.stop_processes()  # nothing may write while the grader reads
        issues = [Issue("ERROR", "agent_timeout", "out of time")] if done.timed_out else []
        return _run(task, answer, usage, started, *issues)

    def _ask(self, prompt: str, timeout: float) -> tuple[str, Usage]:
        reply = httpx.post(
            f"{self._model.base_url}/chat/completions",
            headers={"Authorization": f"Bearer {self._model.api_key}"},
            json={
                "model": self._model.id,
                "messages": [
                    {"role": "system", "content": INSTRUCTION},
                    {"role": "user", "content": prompt},
                ],
            },
            timeout=timeout,
        )
        body: dict[str, Any] = reply.raise_for_status().json()
        used = body.get("usage") or {}
        usage = Usage(
            input_tokens=used.get("prompt_tokens", 0),
            output_tokens=used.get("completion_tokens", 0),
            total_tokens=used.get("total_tokens", 0),
            request_count=1,
        )
        return body["choices"][0]["message"]["content"] or "", usage


def _run(task: Task, answer: str, usage: Usage, started: float, *issues: Issue) -> AgentRun:
    said = [("user", task.prompt), *([("assistant", answer)] if answer else [])]
    return AgentRun(
        transcript=tuple(
            {"type": "message", "message": {"role": role, "content": [_text(text)]}}
            for role, text in said
        ),
        trajectory={"schema_version": "ACTF_v1.0", "steps": []},
        usage=usage,
        final_answer=answer,
        timed_out=any(issue.code == "agent_timeout" for issue in issues),
        execution_time=time.monotonic() - started,
        stdout=answer,
        stderr="",
        version="0.1",
        issues=issues,
    )


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
