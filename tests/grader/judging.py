"""A judge's server, and tasks to grade."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pytest_pinchbench.grader.judge import ask_judge
from pytest_pinchbench.grader.part import Part
from support import records

from pytest_pinchbench.settings import ModelSpec
from pytest_pinchbench.suite.task_file import Prompt, Task

CALL = {"type": "toolCall", "name": "write", "arguments": {"path": "poem.txt"}}
KEY = "sk-judge-4f9a2c71d0"
VERDICT = {"scores": {"quality": 0.5, "style": 1.0}, "total": 0.7, "notes": "Fair."}


@dataclass
class Reply:
    """What the server answers; ``body`` as JSON unless it is bytes."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[BaseHTTPRequestHandler], None] | None = None
    """Instead of all that: speaks on the connection itself."""


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any


class JudgeServer:
    """A real HTTP server on loopback; replies in order, the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[Reply] = [Reply(chat(json.dumps(VERDICT)))]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(Request(self.path, headers, json.loads(body)))
                place = min(len(outer.requests), len(outer.replies)) - 1
                reply = outer.replies[place]
                if reply.write:
                    reply.write(self)
                    return
                data = reply.body
                if not isinstance(data, bytes):
                    data = json.dumps(data).encode()
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.scheme = "http"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}"

    def spec(self, protocol: str = "openai-chat", **changes: Any) -> ModelSpec:
        given: dict[str, Any] = {
            "id": "judge-model",
            "base_url": self.address + ("" if protocol == "anthropic" else "/v1"),
            "api_key": KEY,
            "api_protocol": protocol,
            **changes,
        }
        return ModelSpec(**given)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def chat(content: Any, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """An openai-chat response."""
    return {
        "id": "r1",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def ask(
    server: JudgeServer, protocol: str = "openai-chat", *, timeout: float = 120.0, **changes: Any
) -> Part:
    """The judge's part of a grade, from this process."""
    spec = server.spec(protocol, **changes)
    return ask_judge(
        {
            "prompt": "Write a poem.",
            "prompts": ["Write a poem."],
            "one_conversation": False,
            "expected_behavior": "A poem.",
            "judge_rubric": "Quality and style.",
            "grading_criteria": "",
        },
        [{"type": "message", "message": {"role": "assistant", "content": [CALL]}}],
        {
            "id": spec.id,
            "base_url": spec.base_url,
            "api_key": spec.api_key,
            "api_protocol": spec.api_protocol,
            "params": dict(spec.params),
        },
        timeout=timeout,
        transcript_limit=10_000,
    )


def make_task(checks: str | None = None, **changes: Any) -> Task:
    """A task of the type that fits what is given: automated, unless it says otherwise."""
    given: dict[str, Any] = {
        "prompts": (Prompt("Write a poem."),),
        "prompt": "Write a poem.",
        "expected_behavior": "A poem is written.",
        "grading_criteria": "- [ ] there is a poem",
        "automated_checks": checks,
        "judge_rubric": "Quality and style.",
    }
    return records.make_task("task_x", **{**given, **changes})


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content, **more}}
