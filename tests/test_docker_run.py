"""A run whose sandboxes are containers, with every layer between pytest and the daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import runner_image

pytestmark = pytest.mark.docker


def test_tasks_run_and_are_graded_in_containers(
    project: Callable[..., Path], pytester: pytest.Pytester
) -> None:
    try:
        image = runner_image.base()
    except runner_image.Missing as missing:
        pytest.skip(str(missing))
    in_container = "[ -e /.dockerenv ] && echo yes > made.txt"
    project({"task_a": in_container, "task_b": "echo no > made.txt"})
    result = pytester.runpytest_subprocess(
        *("--pinchbench", "--model", "lab/m", "-p", "no:randomly"),
        *("--pinchbench-env", "docker", "--pinchbench-image", image),
    )
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    (summary,) = pytester.path.glob("pinchbench-results/lab-m/*/summary.json")
    tasks = json.loads(summary.read_text())["tasks"]
    assert {task["task_id"]: task["mean"] for task in tasks} == {"task_a": 1.0, "task_b": 0.5}
