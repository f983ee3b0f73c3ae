"""The demo's tasks: their checks give full marks for good work and none for no work."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_pinchbench.demo import SUITE
from pytest_pinchbench.demo.script import SCRIPT, load_script
from pytest_pinchbench.suite.task_file import Task, load_task

TASKS = {path.stem: load_task(path) for path in sorted((SUITE / "tasks").glob("task_*.md"))}

LEAP = """
import sys
if len(sys.argv) < 2:
    sys.exit(2)
for year in sys.argv[1:]:
    y = int(year)
    print(year, "leap" if y % 4 == 0 and (y % 100 or y % 400 == 0) else "common")
"""

GOOD_WORK: Mapping[str, Mapping[str, str]] = {
    "task_00_roll_call": {},
    "task_01_packing_list": {
        "packing.md": "## Clothes\n- Hat\n- Raincoat\n- Socks\n\n## Papers\n* Map\n* Passport\n"
        "* Tickets\n\n## Kitchen\n- Kettle\n- Mug\n- Spoon\n"
    },
    "task_02_bike_trips": {
        "totals.json": '{"total_km": 177, "longest_trip": "2025-04-12",'
        ' "km_by_bike": {"road": 142, "cargo": "27.5", "folding": 7.5}}'
    },
    "task_03_book_club": {
        "invitation.txt": "Thursday\n19:30\nThe Old Library\nI bring the cake\n",
    },
    "task_04_leap_years": {
        "leap.py": LEAP,
        "CHANGES.txt": "It took every century for a leap year.\n",
    },
    "task_06_release_note": {
        "RELEASE.md": "# 2.0\n\nCups now hold millilitres. No more drips; an empty kettle stops.\n"
    },
}


def transcript(task: Task, answer: str) -> list[dict[str, Any]]:
    """A conversation in which every prompt got the same answer."""
    return [
        {"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}}
        for prompt in task.prompts
        for role, text in (("user", prompt.text), ("assistant", answer))
    ]


def grade(task: Task, workspace: Path, answer: str) -> dict[str, float]:
    for file in task.workspace_files:
        if not (workspace / file.dest).exists():
            if file.source:
                shutil.copy(file.source, workspace / file.dest)
            else:
                (workspace / file.dest).write_text(file.content or "")
    namespace: dict[str, Any] = {}
    assert task.automated_checks is not None
    exec(task.automated_checks, namespace)
    scores: dict[str, float] = namespace["grade"](transcript(task, answer), str(workspace))
    return scores


@pytest.mark.parametrize("name", GOOD_WORK)
def test_good_work_gets_full_marks(name: str, tmp_path: Path) -> None:
    for path, content in GOOD_WORK[name].items():
        (tmp_path / path).write_text(content)
    scores = grade(TASKS[name], tmp_path, "I am present.")
    assert scores == dict.fromkeys(scores, 1.0)


@pytest.mark.parametrize("name", GOOD_WORK)
def test_no_work_gets_no_marks(name: str, tmp_path: Path) -> None:
    scores = grade(TASKS[name], tmp_path, "")
    assert scores == dict.fromkeys(scores, 0.0)


@pytest.mark.parametrize("name", GOOD_WORK)
def test_files_of_garbage_break_no_check(name: str, tmp_path: Path) -> None:
    for path in GOOD_WORK[name]:
        (tmp_path / path).write_bytes(b"\xff\xfe\x00 garbage \n[1, 2")
    scores = grade(TASKS[name], tmp_path, "").values()
    assert sum(scores) < len(scores)


def test_a_list_where_an_object_belongs_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "totals.json").write_text('{"total_km": [1], "km_by_bike": {"road": null}}')
    scores = grade(TASKS["task_02_bike_trips"], tmp_path, "")
    assert scores == {"valid_json": 1.0, "total_km": 0.0, "longest_trip": 0.0, "km_by_bike": 0.0}


def test_writing_too_early_is_seen(tmp_path: Path) -> None:
    task = TASKS["task_03_book_club"]
    assert task.automated_checks is not None
    (tmp_path / "invitation.txt").write_text("Thursday")
    events = transcript(task, "Noted.")
    events[1]["message"]["content"].append({"type": "toolCall", "name": "write", "arguments": {}})
    namespace: dict[str, Any] = {}
    exec(task.automated_checks, namespace)
    assert namespace["grade"](events, str(tmp_path))["waited"] == 0.0


def test_the_suite_shows_every_kind_of_task() -> None:
    kinds = {task.grading_type for task in TASKS.values()}
    assert kinds == {"automated", "llm_judge", "hybrid"}
    assert any(len(task.prompts) > 1 for task in TASKS.values())
    assert any(file.source for task in TASKS.values() for file in task.workspace_files)
    assert len({task.category for task in TASKS.values()}) == len(TASKS)


def test_the_script_knows_every_prompt_and_every_judged_task() -> None:
    script = load_script(SCRIPT)

    def known(text: str, whens: list[str]) -> int:
        return sum(when in " ".join(text.split()) for when in whens)

    for task in TASKS.values():
        for prompt in task.prompts:
            assert known(prompt.text, [turn.when for turn in script.turns]) == 1, prompt.text
        if task.grading_type != "automated":
            assert known(task.prompt, [verdict.when for verdict in script.judge]) == 1, task.id
