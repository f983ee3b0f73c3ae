"""Sending a task to the grader in its sandbox, and reading what it says.

How grading works is the grader's own affair (top-level ``grader/``). It is sent only after
the agent has stopped, to a path the agent could not know, and runs isolated from everything
the agent can have written; its result is taken only with a nonce that travelled on its
standard input, as did the judge's key.
"""

from __future__ import annotations

import io
import json
import secrets
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.harnesses import Usage, sum_usage
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.redaction import Redactor

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox
    from pytest_pinchbench.settings import JudgeView, ModelSpec
    from pytest_pinchbench.suite.task_file import Task

TRANSCRIPT_LIMIT = 60_000  # characters of the transcript that a judge is shown
_MARGIN = 30.0  # seconds beyond the grader's own deadlines: its start, and a slow machine
_MAX_SCORE = 1.0


@dataclass(frozen=True)
class Grade:
    """What grading one attempt gave.

    ``score`` is 0 to ``max_score``, None when an issue is FATAL. ``parts`` holds what each of
    ``automated`` and ``llm_judge`` gave alone, and its weight; ``debug`` the evidence (the
    judge's raw and parsed verdict, the checks' output), under the name of its part for a
    hybrid task. ``judge_usage`` covers all the requests that this attempt's judging took,
    those of ``previous`` included. ``seconds`` is wall time, without ``previous``.
    """

    score: float | None
    max_score: float
    breakdown: Mapping[str, float]
    notes: str
    issues: tuple[Issue, ...]
    debug: Mapping[str, Any]
    parts: Mapping[str, Any]
    judge_usage: Usage | None
    seconds: float

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= self.max_score

    @property
    def retry_after(self) -> float | None:
        """Seconds that the judge's endpoint asked to wait before it is asked again."""
        judged = self.parts.get("llm_judge") or {}
        seconds: float | None = judged.get("debug", {}).get("retry_after")
        return seconds


def grade(
    sandbox: Sandbox,
    task: Task,
    workspace: str,
    transcript: Iterable[Mapping[str, Any]],
    *,
    judge: ModelSpec | None,
    judge_timeout: float,
    timeout: float | None = None,
    check_timeout: float = 120.0,
    transcript_limit: int = TRANSCRIPT_LIMIT,
    judge_view: JudgeView = "reference",
    new_session: bool = False,
    previous: Grade | None = None,
) -> Grade:
    """Grade one attempt in its sandbox, after its agent has stopped.

    ``judge.base_url`` is the URL as seen from inside. ``judge_timeout`` bounds the judge's
    request, ``check_timeout`` the automated checks, ``timeout`` all of it together (seconds).
    ``new_session``: a prompt began a new session. ``previous``: a grade whose judge
    failed; only the judge is asked again. Raises ``SandboxFailure``; everything else that goes
    wrong is an issue of the grade.
    """
    order = {
        "task": {
            "grading_type": task.grading_type,
            "grading_weights": task.grading_weights and dict(task.grading_weights),
            "automated_checks": task.automated_checks,
            "prompt": task.prompt,
            "prompts": [prompt.text for prompt in task.prompts],
            "expected_behavior": task.expected_behavior,
            "grading_criteria": task.grading_criteria,
            "judge_rubric": task.judge_rubric,
            "one_conversation": len(task.prompts) > 1 and not new_session,
            "files": [file.dest for file in task.workspace_files],
        },
        "workspace": workspace,
        "transcript": list(transcript),
        "transcript_limit": transcript_limit,
        "judge_view": judge_view,
        "judge": judge and _spec(judge),
        "judge_timeout": judge_timeout,
        "check_timeout": check_timeout,
        "timeout": timeout,
        "previous": previous and previous.parts,
    }
    longest = check_timeout + judge_timeout
    started = time.perf_counter()
    result, problem = _ask_grader(
        sandbox, order, judge, longest if timeout is None else min(timeout, longest)
    )
    seconds = time.perf_counter() - started
    if result is None:
        issue = Issue("FATAL", "grader", problem)
        return Grade(None, _MAX_SCORE, {}, "", (issue,), {}, {}, None, seconds)
    spent = [previous.judge_usage] if previous and previous.judge_usage else []
    if result["judge_usage"]:
        spent.append(Usage(**result["judge_usage"]))
    return Grade(
        score=result["score"],
        max_score=_MAX_SCORE,
        breakdown=result["breakdown"],
        notes=result["notes"],
        issues=tuple(Issue(**issue) for issue in result["issues"]),
        debug=result["debug"],
        parts=result["parts"],
        judge_usage=sum_usage(spent) if spent else None,
        seconds=seconds,
    )


@dataclass(frozen=True)
class EndpointProblem:
    """Why an endpoint did not answer, in its own words, and what to check."""

    words: str
    transient: bool = False
    """The endpoint may answer soon (429, 5xx), after ``retry_after`` seconds if it said so."""
    retry_after: float | None = None


def check_endpoint(
    sandbox: Sandbox, spec: ModelSpec, *, timeout: float = 30.0
) -> EndpointProblem | None:
    """One tiny request from inside the sandbox, before any agent has run; None when the
    endpoint answers within ``timeout`` seconds. ``spec.params`` go along as with a judge.
    """
    order = {"check_endpoint": _spec(spec), "timeout": timeout}
    result, problem = _ask_grader(sandbox, order, spec, timeout)
    if result is None:
        return EndpointProblem(problem)
    if result["problem"] is None:
        return None
    return EndpointProblem(result["problem"], result["passing"], result["retry_after"])


def _spec(spec: ModelSpec) -> dict[str, Any]:
    return {
        "id": spec.id,
        "base_url": spec.base_url,
        "api_key": spec.api_key,
        "api_protocol": spec.api_protocol,
        "params": dict(spec.params),
    }


def _ask_grader(
    sandbox: Sandbox, order: Mapping[str, Any], spec: ModelSpec | None, timeout: float
) -> tuple[dict[str, Any] | None, str]:
    """The grader's result, or None and why there is none."""
    nonce = secrets.token_hex(16)
    path = f"{sandbox.private_root}/{secrets.token_hex(16)}.pyz"
    checks = order.get("task", {}).get("automated_checks") or ""
    sandbox.write({path: archive(with_yaml="yaml" in checks)})
    done = sandbox.exec(
        [sandbox.python, "-I", "-S", path],
        stdin=json.dumps({"nonce": nonce, **order}).encode(),
        timeout=timeout + _MARGIN,
    )
    for line in done.stdout.splitlines():
        if line.startswith(nonce.encode() + b" ") and line.endswith(b"}"):
            result: dict[str, Any] = json.loads(line[len(nonce) + 1 :])
            return result, ""
    if done.timed_out:
        return None, f"the grader did not end within {timeout + _MARGIN:g} s and was stopped"
    said = Redactor([spec.api_key if spec else None]).text(done.stderr.decode(errors="replace"))
    return None, (
        f"the grader gave no result: {sandbox.python} ended with exit code {done.exit_code}"
        + (f"; it says: {said.strip()[-1000:]}" if said.strip() else "")
    )


@cache
def archive(with_yaml: bool = False) -> bytes:
    """The grader as one zip file that Python runs, the same bytes every time.

    ``with_yaml``: for checks that read YAML, PyYAML's pure-Python part is in its folder
    ``checks``. Stored, not compressed: the sandbox's Python need not have zlib.
    """
    contents = {"__main__.py": b"from grader.main import main\n\nmain()\n"}
    folders = {"grader": "pytest_pinchbench.grader"}
    folders |= {"checks/yaml": "yaml"} if with_yaml else {}
    for folder, package in folders.items():
        for source in files(package).iterdir():
            if source.name.endswith(".py"):
                contents[f"{folder}/{source.name}"] = source.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pyz:
        for name, data in sorted(contents.items()):
            pyz.writestr(zipfile.ZipInfo(name), data)  # ZipInfo's date is 1980, not today
    return buffer.getvalue()
