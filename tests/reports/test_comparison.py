"""Is one run better than another, or is it noise?"""

from __future__ import annotations

import random

import pytest
from runs import quick_summary

from pytest_pinchbench.reports.text import comparison_lines, gate_document, gate_lines, table_lines
from pytest_pinchbench.results.comparison import compare, compare_with_last, names
from pytest_pinchbench.results.gates import comparison_gate

TASKS = [f"task_{n:02}" for n in range(23)]


def verdicts(comparison):
    return {task.task_id: task.verdict for task in comparison.tasks}


def same_as(scores, **changes):
    return {**scores, **changes}


STEADY = {task: [1.0, 0.5, 0.0][n % 3 :][:1] for n, task in enumerate(TASKS)}


@pytest.mark.parametrize("attempts", [1, 3])
def test_two_models_that_differ_in_one_task_differ_in_that_task_alone(attempts):
    old = {task: scores * attempts for task, scores in STEADY.items()}
    new = same_as(old, task_07=[0.25] * attempts)
    comparison = compare(quick_summary(old), quick_summary(new))
    differing = {
        task: verdict for task, verdict in verdicts(comparison).items() if verdict != "same"
    }
    assert differing == {"task_07": "lower"}
    assert comparison.difference == pytest.approx(-0.25 / 23)
    assert comparison.verdict == "no difference found"


def flaky_model(seed, attempts):
    """Runs of one model: some tasks always the same, the others by chance."""
    chances = random.Random(1)
    generator = random.Random(seed)
    return {
        task: [
            generator.choice([0.0, 0.5, 1.0]) if chance < 0.4 else float(chance < 0.8)
            for _ in range(attempts)
        ]
        for task in TASKS
        if (chance := chances.random()) is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_model_against_itself_is_called_different_at_most_once_in_ten(attempts):
    calls = [
        compare(
            quick_summary(flaky_model(2 * seed, attempts)),
            quick_summary(flaky_model(2 * seed + 1, attempts)),
        ).verdict
        for seed in range(10)
    ]
    assert sum(verdict != "no difference found" for verdict in calls) <= 1


def test_few_flaky_tasks_that_fall_the_same_way_are_noise():
    ones = {task: [1.0] for task in TASKS}
    fallen = same_as(ones, **{task: [0.0] for task in TASKS[:4]})
    comparison = compare(quick_summary(ones), quick_summary(fallen))
    assert comparison.p_mean == pytest.approx(2 / 2**4, abs=0.01)  # all heads or all tails
    assert comparison.verdict == "no difference found"
    assert comparison.interval[0] < -4 / 23 < 0 <= comparison.interval[1]


@pytest.mark.parametrize(("change", "verdict"), [(-0.3, "mean worse"), (0.3, "mean better")])
def test_a_real_difference_is_found(change, verdict):
    generator = random.Random(5)
    old = {task: [generator.uniform(0.3, 0.7)] for task in TASKS}
    new = {task: [s + change + generator.uniform(-0.1, 0.1)] for task, (s,) in old.items()}
    comparison = compare(quick_summary(old), quick_summary(new))
    assert comparison.verdict == verdict
    low, high = comparison.interval
    assert low < change < high


def test_tasks_that_change_in_both_directions_are_found_where_the_mean_is_the_same():
    old = {task: [1.0, 1.0, 1.0] if n % 2 else [0.0, 0.0, 0.0] for n, task in enumerate(TASKS)}
    new = same_as(
        old,
        **{task: [0.0, 0.0, 0.0] for task in TASKS[1:11:2]},
        **{task: [1.0, 1.0, 1.0] for task in TASKS[0:10:2]},
    )
    comparison = compare(quick_summary(old), quick_summary(new))
    assert comparison.difference == pytest.approx(0.0)
    assert comparison.verdict == "tasks changed"
    assert comparison.tasks_changed
    assert comparison.interval[0] <= 0 <= comparison.interval[1]


def test_a_consistent_fall_in_a_few_tasks_shows_with_three_attempts():
    old = {task: [1.0] * 3 for task in TASKS[:7]}
    new = same_as(old, **{task: [0.0] * 3 for task in TASKS[:3]})
    comparison = compare(quick_summary(old), quick_summary(new))
    assert (comparison.verdict, comparison.tasks_changed) == ("mean worse", True)
    assert comparison.interval[1] < 0
    assert list(verdicts(comparison).values()) == ["lower"] * 3 + ["same"] * 4
    assert comparison.apart_by_chance == pytest.approx(3 * 2 / 20)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([1.0], [0.0], "lower"),
        ([1.0, 1.0], [0.0, 0.0], "lower"),
        ([1.0, 0.0], [0.5, 0.0], "within noise"),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 0.0], "within noise"),
        ([0.1, 0.2, 0.3, 0.4], [0.6, 0.9, 0.8, 0.7], "higher"),
        ([0.5] * 5, [0.1] * 6, "lower"),
        ([0.5] * 6, [0.1] * 6, "worse"),
        ([0.1] * 6, [0.5] * 6, "better"),
        ([0.1, 0.9] * 3, [0.5, 0.6] * 3, "within noise"),
        ([0.5, 0.5], [0.5, 0.5], "same"),
        ([0.4, 0.6], [0.5, 0.5], "same"),
    ],
)
def test_what_is_said_of_a_task_depends_on_its_attempts(old, new, verdict):
    comparison = compare(quick_summary({"task_a": old}), quick_summary({"task_a": new}))
    assert verdicts(comparison) == {"task_a": verdict}
    assert (comparison.tasks[0].p_value is None) == (min(len(old), len(new)) < 6)


def test_one_lucky_task_of_many_is_not_called_better():
    old = {task: [0.5, 0.4] * 3 for task in TASKS}
    # alone: p 2 / 924 * some, over 23 tasks nothing
    new = same_as(old, task_03=[0.5, 0.5, 0.5, 0.5, 0.5, 0.4])
    comparison = compare(quick_summary(old), quick_summary(new))
    assert verdicts(comparison)["task_03"] == "within noise"


def test_regressions_come_first():
    old = {"task_a": [0.5], "task_b": [0.5], "task_c": [0.5]}
    new = {"task_a": [0.6], "task_b": [0.5], "task_c": [0.1]}
    comparison = compare(quick_summary(old), quick_summary(new))
    assert list(verdicts(comparison)) == ["task_c", "task_b", "task_a"]


def test_tasks_of_one_run_only_and_invalid_ones_are_named_and_in_no_mean():
    old = {"task_a": [1.0], "task_b": [1.0], "task_gone": [0.0]}
    new: dict[str, list[float | None]] = {"task_a": [0.8], "task_b": [None], "task_new": [0.0]}
    comparison = compare(quick_summary(old), quick_summary(new))
    assert comparison.only_in_baseline == ("task_gone",)
    assert comparison.only_in_new == ("task_new",)
    assert comparison.not_valid == ("task_b",)
    assert (comparison.baseline, comparison.new) == (1.0, 0.8)
    assert "left out, with an invalid or missing attempt in the new run: task_b" in comparison.notes


def test_a_task_with_an_invalid_attempt_is_left_out_and_named():
    old = {"task_a": [1.0, 1.0]}
    new = {"task_a": [0.5, None]}
    comparison = compare(quick_summary(old), quick_summary(new))
    assert comparison.difference is None
    assert comparison.not_valid == ("task_a",)
    assert comparison.notes[-1].endswith("attempt in the new run: task_a")


def test_runs_without_a_common_task_are_not_compared():
    comparison = compare(quick_summary({"task_a": [1.0]}), quick_summary({"task_b": [1.0]}))
    assert comparison.difference is None
    assert "nothing to compare" in comparison.notes[0]
    assert not comparison.worse_by_more_than(0)
    assert not comparison.dropped_by_more_than(0)


def test_every_difference_between_the_identities_is_noted_but_the_model():
    def run(**identity):
        summary = quick_summary({"task_a": [1.0]})
        summary["identity"] = {
            "model": "a",
            "judge_params": {},
            "env": "docker",
            "suite": ["0123456789abcdef"],
            **identity,
        }
        summary["suites"] = {"skill": "abc"}
        return summary

    assert compare(run(), run(model="b")).notes == ()
    found = compare(
        run(),
        run(judge_params={"temperature": 1}, env="local", suite=["fedcba9876543210"], more=True),
    )
    assert found.notes == (
        'the runs differ in judge_params: {} and {"temperature": 1}',
        'the runs differ in env: "docker" and "local"',
        "the runs differ in suite: skill at abc (digest 0123456789ab) and skill at abc (digest "
        "fedcba987654)",
        "the runs differ in more: null and true",
    )
    long = compare(run(), run(openclaw_binary="x" * 999, env="y" * 999))
    assert all(len(note) < 150 for note in long.notes)


def test_settings_that_are_not_known_are_not_called_equal():
    unknown = {**quick_summary({"task_a": [1.0]}), "identity": None}
    (note,) = compare(unknown, quick_summary({"task_a": [1.0]})).notes
    assert note == "cannot compare the settings of the runs: one of them has no run.json"


def test_the_same_runs_compare_the_same_every_time_and_in_any_order_of_tasks():
    old, new = flaky_model(1, 3), flaky_model(2, 3)
    first = compare(quick_summary(old), quick_summary(new))
    again = compare(
        quick_summary(dict(reversed(old.items()))), quick_summary(dict(reversed(new.items())))
    )
    assert first == again


def test_a_drop_fails_only_when_it_is_larger_than_allowed_and_significant():
    old = {task: [0.9] for task in TASKS}
    down = {task: [0.8] for task in TASKS}
    comparison = compare(quick_summary(old), quick_summary(down))
    assert comparison.worse_by_more_than(0.05)
    assert not comparison.worse_by_more_than(0.1)
    one_down = compare(quick_summary(old), quick_summary(same_as(old, task_03=[0.0])))
    assert not one_down.worse_by_more_than(0.0)
    up = compare(quick_summary(down), quick_summary(old))
    assert not up.worse_by_more_than(0.0)


def test_broken_tasks_fail_the_gate_where_the_mean_alone_does_not_show_it():
    """Three of 23 tasks broken, with the noise of the others: the mean is not significant."""
    generator = random.Random(11)

    def run(means):
        return {task: [float(generator.random() < p) for _ in range(3)] for task, p in means}

    means = [(task, 0.8) for task in TASKS]
    found = []
    for _ in range(6):
        broken = [(task, 0.0 if n < 3 else p) for n, (task, p) in enumerate(means)]
        found.append(compare(quick_summary(run(means)), quick_summary(run(broken))))
    hidden = [one for one in found if one.verdict != "mean worse"]
    assert hidden
    assert sum(one.dropped_by_more_than(0.05) for one in hidden) >= len(hidden) / 2
    for one in hidden:
        assert not one.dropped_by_more_than(0.5)
        assert comparison_gate([one], 0.05).met == (not one.dropped_by_more_than(0.05))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            {"task_a": [1.0]},
            {"task_z": [1.0]},
            (
                "too little to go by against old: only in old: task_a",
                "too little to go by against old: only in this run: task_z",
                "nothing to compare with old",
            ),
        ),
        (
            {"task_a": [1.0], "task_b": [1.0]},
            {"task_a": [1.0], "task_b": [None]},
            ("too little to go by against old: with an invalid or missing attempt: task_b",),
        ),
        (
            {"task_a": [1.0], "task_b": [None]},
            {"task_a": [1.0], "task_b": [1.0]},
            ("too little to go by against old: with an invalid or missing attempt: task_b",),
        ),
        (
            {"task_a": [1.0], "task_b": [1.0]},
            {"task_a": [1.0]},
            ("too little to go by against old: only in old: task_b",),
        ),
        (
            {"task_a": [1.0]},
            {"task_a": [1.0], "task_b": [1.0]},
            ("too little to go by against old: only in this run: task_b",),
        ),
    ],
)
def test_a_gate_needs_the_same_tasks_with_valid_attempts_on_both_sides(old, new, why):
    comparison = compare(quick_summary(old, model="old"), quick_summary(new))
    gate = comparison_gate([comparison], 0.5)
    assert (gate.met, gate.reasons) == (False, why)


def test_a_gate_over_several_baselines_is_met_by_all_or_not_at_all():
    old, new = {task: [0.9] for task in TASKS}, {task: [0.5] for task in TASKS}
    runs = [quick_summary(new, model="even"), quick_summary(old, model="o" * 90)]
    comparisons = compare_with_last([*runs, quick_summary(new)])
    assert comparison_gate(comparisons[:1], 0.1).met
    gate = comparison_gate(comparisons, 0.1)
    assert not gate.met
    lines = gate_lines(gate_document(gate))
    assert lines[0].startswith("Comparison  not met: the mean is significantly below")
    assert max(map(len, lines)) <= 80


def test_two_runs_of_one_long_model_are_told_apart_in_the_heading():
    runs = [quick_summary({"task_a": [1.0]}, model="openrouter/lab/model") for _ in range(2)]
    for hour, run in enumerate(runs):
        run["started_at"] = f"2026-02-17T1{hour}:00:00.000+00:00"
    assert comparison_lines(compare(*runs))[:2] == [
        "Comparison  openrouter/lab/model of 2026-02-17 11:00:00",
        "            with openrouter/lab/model of 2026-02-17 10:00:00",
    ]


def test_the_last_run_is_compared_with_each_before_it():
    runs = [quick_summary({"task_a": [score]}, model=f"m{score}") for score in (0.1, 0.2, 0.4)]
    found = [(c.baseline_name, c.new_name, c.difference) for c in compare_with_last(runs)]
    assert found == [("m0.1", "m0.4", pytest.approx(0.3)), ("m0.2", "m0.4", pytest.approx(0.2))]


def test_runs_of_one_model_are_told_apart():
    runs = [quick_summary({"task_a": [1.0]}) for _ in range(3)]
    runs[0]["started_at"] = "2026-02-17T10:00:00.000+00:00"
    runs[1].update(started_at="2026-02-18T10:00:00.000+00:00", run_id="r2")
    runs[2].update(started_at="2026-02-18T10:00:00.000+00:00", run_id="r3")
    assert names(runs) == ["m of 2026-02-17 10:00:00", "m r2", "m r3"]


def test_the_terminal_shows_what_moved_in_eighty_columns():
    long = "task_with_a_name_that_is_much_longer_than_any_terminal_would_like_it_to_be"
    old = {"task_a": [1.0], "task_b": [0.5], long: [0.0]}
    new = {"task_a": [0.2], "task_b": [0.5], long: [0.5]}
    runs = [quick_summary(old, model="o" * 90), quick_summary(new, model="n" * 90)]
    lines = comparison_lines(compare(*runs))
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert "over 3 tasks: 1 lower, 1 same, 1 higher" in text
    assert "one attempt a task cannot say what a comparison would have missed" in text
    assert "look first at the 2 tasks called lower or higher (chance alone: about 2.0)" in text
    moved = [line.split() for line in lines if line.startswith("task_")]
    assert moved[0] == ["task_a", "1.000", "0.200", "-0.800", "lower"]
    assert moved[1][1:] == ["0.000", "0.500", "+0.500", "higher"]
    assert not any(line.startswith("task_b") for line in lines)


def test_a_table_of_models_has_the_best_first_and_marks_what_is_not_official():
    runs = [
        quick_summary({"task_a": [0.2], "task_b": [0.4]}, model="openrouter/" + "x" * 60),
        quick_summary({"task_a": [0.9], "task_b": [None]}, model="shaky"),
        quick_summary({"task_a": [None], "task_b": [None]}, model="dead"),
    ]
    lines = table_lines(runs)
    assert max(map(len, lines)) <= 80
    assert [line.split()[0][:5] for line in lines[1:4]] == ["shaky", "openr", "dead"]
    assert "0.900*" in lines[1]
    assert "0.300 " in lines[2]
    assert lines[-1].startswith("* no official mean")
