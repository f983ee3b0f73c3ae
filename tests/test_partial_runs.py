"""What a number is of: chosen tasks make a partial run, chosen tasks without a result take the
official mean away.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_pinchbench.session.announce import too_small

GOOD = "echo yes > made.txt"
HALF = "echo no > made.txt"
TASKS = {"task_a": GOOD, "task_b": HALF, "task_c": GOOD}


def newest(pytester) -> Path:
    return max((pytester.path / "pinchbench-results" / "lab-m").iterdir())


def summary(pytester):
    return json.loads((newest(pytester) / "summary.json").read_text())


def flags(pytester):
    """official, partial, N of M, and the gate if there is one."""
    found = summary(pytester)
    chosen = found["selection"]
    gates = [gate["met"] for gate in found.get("gates", ())]
    return found["official"], found["partial"], chosen["tasks"], chosen["suite_tasks"], *gates


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_a_whole_run_is_official_and_not_partial(pytester, project, run, workers):
    project(TASKS)
    result = run("--pinchbench-fail-under=0.8", *workers)
    assert result.ret == 0
    assert flags(pytester) == (True, False, 3, 3, True)
    result.stdout.fnmatch_lines(
        [
            "Tasks       3 of the 3 tasks of skill",
            "Gate        met: mean 0.833 of 3 of the 3 tasks of skill, required 0.8",
            "=* 1 failed, 2 passed*",
            "PinchBench 0.833 · 66.7% full · 3 tasks · * · gate met · report: file:///*/report.html",
        ]
    )
    assert result.outlines[-1].startswith("PinchBench 0.833")


def test_a_run_whose_gate_is_met_ends_green_and_lists_its_tasks_once(project, run):
    project(TASKS)
    options = ("-ra", "--color=yes", "--pinchbench-fail-under")
    missed, met = run(*options, "0.9"), run(*options, "0.8")
    assert missed.outlines[-1].startswith("\x1b[1m\x1b[31mPinchBench 0.833")
    assert met.outlines[-1].startswith("\x1b[1m\x1b[32mPinchBench 0.833")
    assert not [line for line in met.outlines if "short test summary" in line]
    assert [line for line in met.outlines if "1 failed" in line and "2 passed" in line]
    assert [line for line in met.outlines if line.startswith("\x1b[33mtask_b ")]


@pytest.mark.parametrize(
    "options",
    [
        ("-k", "task_a or task_b"),
        ("-m", "not research"),
        ("--deselect", "tasks/task_c.md::task_c"),
        ("--ignore", "skill/tasks/task_c.md"),
        ("skill/tasks/task_a.md", "skill/tasks/task_b.md"),
        ("tasks/task_a.md::task_a", "tasks/task_b.md::task_b"),
        ("--pinchbench-suite=task_a,task_b",),
        ("--pinchbench-limit=2",),
        ("--pinchbench-sample-ids=task_a,task_b",),
    ],
    ids=lambda options: options[0].partition("=")[0],
)
def test_choosing_makes_a_partial_run_that_is_judged_as_such(pytester, project, run, options):
    project(TASKS, task_c={"category": "research"})
    result = run("--pinchbench-fail-under=0.7", *options)
    assert result.ret == 0
    assert flags(pytester) == (True, True, 2, 3, True)
    result.stdout.fnmatch_lines(
        [
            "Mean score  0.750",
            "Tasks       2 of the 3 tasks of skill: a partial run",
            "Gate        met: mean 0.750 of 2 of the 3 tasks of skill, required 0.7",
            "PinchBench 0.750 * 2 of 3 tasks (partial) * gate met *",
        ]
    )
    assert run("--pinchbench-fail-under=0.8", *options).ret == pytest.ExitCode.TESTS_FAILED


def is_not_official(pytester, result, ran):
    """All three tasks were chosen, ``ran`` of them have a result."""
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert flags(pytester) == (False, False, 3, 3, False)
    assert summary(pytester)["attempts"]["missing"] == 3 - ran
    missing = f"{3 - ran} not run of 3 attempts"
    result.stdout.fnmatch_lines(
        [
            f"Mean score  none: {missing}",
            "Tasks       3 of the 3 tasks of skill",
            "Gate        not met: no official mean to hold against 0.1",
            f"PinchBench no official mean: {missing} * gate not met *",
        ]
    )
    # a task that never ran is counted in its category
    categories = {one["category"]: one for one in summary(pytester)["categories"]}
    assert sum(one["tasks"] for one in categories.values()) == 3
    assert not all(one["official"] for one in categories.values())


@pytest.mark.parametrize("place", ["skill", "."], ids=["suite elsewhere", "suite in the rootdir"])
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_last_failed_leaves_chosen_tasks_without_a_result(
    pytester, project, run, monkeypatch, workers, place
):
    """In a rootdir that is the suite, pytest skips the other files before they are collected."""
    project(TASKS)
    if place == ".":
        shutil.move(pytester.path / "skill" / "tasks", pytester.path / "tasks")
        monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(pytester.path))
    assert run().ret == pytest.ExitCode.TESTS_FAILED
    result = run("--lf", "--pinchbench-fail-under=0.1", *workers)
    result.assert_outcomes(failed=1)
    assert flags(pytester) == (False, False, 3, 3, False)
    assert summary(pytester)["attempts"]["missing"] == 2


def test_last_failed_leaves_chosen_attempts_without_a_result(pytester, project, run, monkeypatch):
    """Of a file with a failure pytest collects only what failed."""
    once = f"mkdir {pytester.path}/done && echo yes > made.txt; true"
    project({"task_a": GOOD, "task_b": once})
    shutil.move(pytester.path / "skill" / "tasks", pytester.path / "tasks")
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(pytester.path))
    run("--pinchbench-attempts=2", "-p", "no:randomly")
    run("--lf", "--pinchbench-attempts=2")
    counts = summary(pytester)["attempts"]
    assert (counts["selected"], counts["missing"]) == (4, 3)


def test_stopping_at_the_first_failure_is_not_official(pytester, project, run):
    project(TASKS)
    is_not_official(pytester, run("-x", "--pinchbench-fail-under=0.1", "-p", "no:randomly"), 2)


def test_stepwise_is_not_official(pytester, project, run):
    project(TASKS)
    run("--sw")
    result = run("--sw", "--pinchbench-fail-under=0.1")
    assert result.ret != 0
    assert flags(pytester) == (False, False, 3, 3, False)


def test_a_used_up_budget_is_not_official(pytester, project, run):
    project(TASKS, cost=0.25)
    result = run("--pinchbench-budget-usd=0.25", "--pinchbench-fail-under=0.1")
    assert result.ret != 0
    assert flags(pytester) == (False, False, 3, 3, False)
    # it stops once it has cost this much, and not only beyond
    assert summary(pytester)["attempts"] == {"selected": 3, "scored": 1, "invalid": 0, "missing": 2}


def test_testmon_leaves_chosen_tasks_without_a_result(pytester, project, run):
    pytest.importorskip("testmon")
    project(TASKS)
    run("--testmon")
    result = run("--testmon", "--pinchbench-fail-under=0.1")
    assert result.ret != 0
    official, partial, tasks, size, met = flags(pytester)
    assert (partial, tasks, size) == (False, 3, 3)
    assert official == met == (summary(pytester)["attempts"]["missing"] == 0)


def test_parts_of_pytest_split_are_whole_again_when_they_are_merged(pytester, project, run):
    pytest.importorskip("pytest_split")
    project(TASKS)
    parts = []
    for group, ran in (("1", 2), ("2", 1)):
        options = ("--splits=2", f"--group={group}", "--splitting-algorithm=duration_based_chunks")
        result = run(*options, "--pinchbench-fail-under=0.1")
        is_not_official(pytester, result, ran)
        parts.append(newest(pytester))
    result = pytester.runpytest(
        "--pinchbench",
        *(f"--pinchbench-merge={part}" for part in parts),
        "--pinchbench-fail-under=0.8",
    )
    assert result.ret == 0
    assert flags(pytester) == (True, False, 3, 3, True)
    result.stdout.fnmatch_lines(["Tasks       3 of the 3 tasks of skill"])


def test_merged_parts_that_were_chosen_are_whole_again(pytester, project, run):
    project(TASKS)
    parts = []
    for ids in ("task_a", "task_b"):
        run(f"--pinchbench-suite={ids}")
        assert flags(pytester) == (True, True, 1, 3)
        parts.append(f"--pinchbench-merge={newest(pytester)}")
    pytester.runpytest("--pinchbench", *parts)
    assert flags(pytester) == (True, True, 2, 3)
    run("--pinchbench-suite=task_c")
    pytester.runpytest("--pinchbench", *parts, f"--pinchbench-merge={newest(pytester)}")
    assert flags(pytester) == (True, False, 3, 3)


def test_a_resume_makes_a_run_whole(pytester, project, run):
    project(TASKS)
    run("-x", "-p", "no:randomly")
    assert flags(pytester) == (False, False, 3, 3)
    result = run("--pinchbench-resume=latest", "--pinchbench-fail-under=0.8")
    assert result.ret == 0
    assert flags(pytester) == (True, False, 3, 3, True)


def test_a_regrade_of_a_run_that_is_not_whole_is_not_official(pytester, project, run):
    project(TASKS)
    run("-x", "-p", "no:randomly")
    result = run("--pinchbench-regrade=latest", "--pinchbench-fail-under=0.1")
    is_not_official(pytester, result, 2)


def test_a_regrade_of_chosen_tasks_is_partial(pytester, project, run):
    project(TASKS)
    run("-k", "task_a")
    result = run("--pinchbench-regrade=latest", "--pinchbench-fail-under=0.9")
    assert result.ret == 0
    assert flags(pytester) == (True, True, 1, 3, True)


def test_a_machine_that_is_too_small_for_the_workers_is_said(pytester, project, run):
    project({"task_a": GOOD})
    result = run("-n", "999", "--maxprocesses=1")
    result.stdout.no_fnmatch_line("*more than this machine can start*")
    assert too_small(4, 4, 4.1) == []
    (cores,) = too_small(4, 2, 99.0)
    assert cores.startswith("-n 4 is more than this machine can start at a time (2 cores, 99 GB;")
    (memory,) = too_small(4, 8, 2.0)
    assert "(8 cores, 2 GB;" in memory
