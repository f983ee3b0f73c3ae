"""Suites for tests: skill checkouts of a few small tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CHECK_FILE = """
def grade(transcript, workspace_path):
    from pathlib import Path
    made = Path(workspace_path, "made.txt")
    right = made.exists() and "yes" in made.read_text()
    return {"made": float(made.exists()), "right": float(right)}
"""


def task_text(task_id: str, *, check: str = CHECK_FILE, **front: Any) -> str:
    """A task file: automated, unless ``front`` says otherwise."""
    matter = {
        "id": task_id,
        "name": task_id.replace("_", " "),
        "category": "file_ops",
        "grading_type": "automated",
        "timeout_seconds": 30,
        "workspace_files": [],
        **front,
    }
    return (
        f"---\n{yaml.safe_dump(matter)}---\n\n"
        "## Prompt\n\nMake made.txt that says yes.\n\n"
        "## Expected Behavior\n\nThe agent makes the file.\n\n"
        "## Grading Criteria\n\n- [ ] made.txt is there\n- [ ] it says yes\n\n"
        f"## Automated Checks\n\n```python\n{check.strip()}\n```\n"
    )


def write_suite(folder: Path, **tasks: dict[str, Any]) -> Path:
    """``write_suite(folder, task_a={...front matter}, ...)`` makes a skill checkout."""
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    (folder / "assets").mkdir(exist_ok=True)
    for task_id, front in tasks.items():
        text = task_text(task_id, **front)
        (folder / "tasks" / f"{task_id}.md").write_text(text, encoding="utf-8")
    return folder
