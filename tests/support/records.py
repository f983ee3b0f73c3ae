"""Records for tests, made by the code that makes real ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_pinchbench.attempt.grading import Grade
from pytest_pinchbench.attempt.record import make_result
from pytest_pinchbench.attempt.tries import Try
from pytest_pinchbench.harnesses import AgentRun, Usage
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.results.records import Record, TaskResult
from pytest_pinchbench.suite.task_file import Prompt, Task


def make_task(task_id: str = "task_00_hello", **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": task_id,
        "name": "Hello",
        "category": "basic",
        "grading_type": "automated",
        "timeout_seconds": 60.0,
        "prompts": (Prompt("Say hello."),),
        "prompt": "Say hello.",
        "expected_behavior": "The agent says hello.",
        "grading_criteria": "- [ ] says hello",
        "automated_checks": "def grade(transcript, workspace_path):\n    return {'said': 1.0}\n",
        "judge_rubric": None,
        "grading_weights": None,
        "workspace_files": (),
        "path": Path("tasks") / f"{task_id}.md",
        "front_matter": {},
        "sections": {},
    }
    return Task(**{**values, **changes})


def make_grade(score: float | None, **changes: Any) -> Grade:
    values: dict[str, Any] = {
        "score": score,
        "max_score": 1.0,
        "breakdown": {} if score is None else {"said": score},
        "notes": "",
        "issues": (),
        "debug": {},
        "parts": {},
        "judge_usage": None,
        "seconds": 0.1,
    }
    return Grade(**{**values, **changes})


def make_run(**changes: Any) -> AgentRun:
    values: dict[str, Any] = {
        "transcript": (
            {"type": "message", "message": {"role": "user", "content": [{"type": "text"}]}},
        ),
        "trajectory": {"schema_version": "ACTF_v1.0", "steps": []},
        "usage": Usage(100, 20, 0, 0, 120, 0.01, 2),
        "final_answer": "Hello!",
        "timed_out": False,
        "execution_time": 2.5,
        "stdout": "",
        "stderr": "",
        "version": "2026.9.6",
    }
    return AgentRun(**{**values, **changes})


def result(
    task_id: str = "task_00_hello",
    score: float | None = 1.0,
    *,
    attempt: int = 1,
    issues: tuple[Issue, ...] = (),
    secrets: tuple[str, ...] = (),
    run: AgentRun | None = None,
    earlier: tuple[Any, ...] = (),
    grade: Grade | None = None,
    **task: Any,
) -> TaskResult:
    """An attempt's outcome; ``score`` None is an invalid one."""
    if score is None and not issues:
        issues = (Issue("FATAL", "sandbox", "the sandbox was lost"),)
    last = Try(
        graded_in={"sandbox": "same", "reason": "told so"},
        started=1_790_000_000.0,
        seconds={"run": 2.5},
        issues=list(issues),
        run=run or make_run(),
        grade=grade or (None if score is None else make_grade(score)),
    )
    keys = {"run_id": "r1", "model": "m"}
    before: Any = json.loads(json.dumps(earlier, default=asdict))
    return make_result(make_task(task_id, **task), attempt, last, before, keys, Redactor(secrets))


def record(*args: Any, **kwargs: Any) -> Record:
    return result(*args, **kwargs).record
