"""``--pinchbench-list`` and ``--pinchbench-check``: what is said of a suite without an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

ALL_GIVEN = "def grade(transcript, workspace_path):\n    return {'kind': 1.0}\n"
RAISES = "def grade(transcript, workspace_path):\n    return {'x': float(open('gone').read())}\n"
OTHER_KEYS = """
def grade(transcript, workspace_path):
    import os
    return dict.fromkeys(['made', *os.listdir(workspace_path)], 0.0)
"""
FILE = [{"path": "given.txt", "content": "x"}]


@pytest.fixture
def report(
    pytester: pytest.Pytester,
    write_suite: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., pytest.RunResult]:
    """``report(*options, **tasks)``: what is said of a suite of these tasks; no model is named."""

    def report(*options: str, **tasks: dict[str, object]) -> pytest.RunResult:
        root = write_suite(pytester.path / "skill", **tasks)
        monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(root))
        return pytester.runpytest("--pinchbench", "--pinchbench-env=local", *options)

    return report


TASKS: dict[str, dict[str, object]] = {
    "task_a": {},
    "task_b": {"grading_type": "hybrid", "timeout_seconds": 90, "prerequisites": ["cli:gh"]},
    "task_c": {"category": "notes"},
}


def test_a_list_says_what_tasks_need(report: Callable[..., pytest.RunResult]) -> None:
    result = report("--pinchbench-list", **TASKS)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "id      category  grading    timeout  needs",
            "task_a  file_ops  automated  30 s",
            "task_b  file_ops  hybrid     90 s     judge, cli:gh",
            "task_c  notes     automated  30 s",
            "3 of 3 tasks of skill",
            "no manifest: judge view reference, new_session off",
        ]
    )


def test_a_list_as_json_is_of_the_selected_tasks(
    report: Callable[..., pytest.RunResult],
) -> None:
    result = report("--pinchbench-list=json", "--pinchbench-suite=task_b", **TASKS)
    found = json.loads(result.outlines[0])
    assert [(task["id"], task["needs"]) for task in found["tasks"]] == [
        ("task_b", ["judge", "cli:gh"])
    ]
    assert found["errors"] == []


@pytest.mark.parametrize(
    ("front", "warning"),
    [
        ({"check": ALL_GIVEN}, "*on an empty workspace the score of no work is 1.000: kind*"),
        ({"check": RAISES}, "*on an empty workspace: *FileNotFoundError*"),
        (
            {"check": OTHER_KEYS, "workspace_files": FILE},
            "*other keys on an empty workspace than on the assets alone: given.txt",
        ),
        ({"check": f"import no_such_module\n{RAISES}"}, "*cannot import no_such_module*"),
        ({"colour": "red"}, "*unknown key 'colour'*"),
    ],
)
def test_a_check_warns_of_what_its_author_would_want_to_know(
    report: Callable[..., pytest.RunResult], front: dict[str, object], warning: str
) -> None:
    result = report("--pinchbench-check", task_a=front)
    result.stdout.fnmatch_lines([f"warning: {warning}", "1 task checked: 0 errors, * warning*"])
    assert result.ret == 0


def test_a_sound_suite_has_nothing_to_warn_of(report: Callable[..., pytest.RunResult]) -> None:
    result = report("--pinchbench-check", **TASKS, task_d={"workspace_files": FILE})
    # cli:gh is for the agent
    result.stdout.fnmatch_lines(["4 tasks checked: 0 errors, 0 warnings"])
    assert result.ret == 0


@pytest.mark.parametrize("option", ["--pinchbench-check", "--pinchbench-list"])
def test_errors_of_a_suite_end_with_1(report: Callable[..., pytest.RunResult], option: str) -> None:
    result = report(option, task_a={}, task_b={"timeout_seconds": -1})
    result.stdout.fnmatch_lines(["error: *task_b.md:*: timeout_seconds has to be a number*"])
    assert result.ret == 1
    result = report(option, task_a={"id": "same"}, task_b={"id": "same"})
    result.stdout.fnmatch_lines(["error: the id same is there twice*"])
    assert result.ret == 1
