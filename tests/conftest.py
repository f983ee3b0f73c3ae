"""Fixtures for all tests, and the rule that CI skips nothing it should have run."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

# Imported before pytester takes note of what is: a module that pytester throws out and that is
# then imported once more exists twice (and yaml's C part does not survive that).
import pytest_pinchbench.session  # noqa: F401

REQUIRED = frozenset(os.environ.get("PINCHBENCH_TESTS_REQUIRE", "").split(","))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """``PINCHBENCH_TESTS_REQUIRE=docker,openclaw``: a test with such a marker may not skip."""
    report = yield
    if report.skipped and any(item.get_closest_marker(name) for name in REQUIRED if name):
        report.outcome = "failed"
        report.longrepr = f"skipped, but required here: {report.longrepr}"
    return report


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


@pytest.fixture(scope="session")
def write_suite() -> Callable[..., Path]:
    """``write_suite(folder, task_a={...front matter}, ...)`` makes a skill checkout."""

    def write(folder: Path, **tasks: dict[str, Any]) -> Path:
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        (folder / "assets").mkdir(exist_ok=True)
        for task_id, front in tasks.items():
            text = task_text(task_id, **front)
            (folder / "tasks" / f"{task_id}.md").write_text(text, encoding="utf-8")
        return folder

    return write
