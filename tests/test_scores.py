"""The numbers of a run."""

from __future__ import annotations

import pytest
from records import record

from pytest_pinchbench.results import statistics as scores


def test_attempts_are_averaged_to_tasks_and_tasks_to_the_run():
    records = [
        record("task_a", 1.0, attempt=1),
        record("task_a", 0.0, attempt=2),
        record("task_b", 0.8, attempt=1),
    ]
    score = scores.overall(records)
    assert score is not None
    assert score.mean == pytest.approx((0.5 + 0.8) / 2)
    assert score.pass_rate == pytest.approx((0.5 + 0.0) / 2)
    assert score.tasks == 2


def test_an_invalid_attempt_is_in_no_mean():
    records = [record("task_a", 1.0), record("task_b", None)]
    assert scores.overall(records) == scores.Score(1.0, 1.0, 1)


def test_a_task_with_an_invalid_attempt_is_in_no_mean():
    records = [record("task_a", 1.0), record("task_b", 0.0), record("task_b", None, attempt=2)]
    assert scores.overall(records) == scores.Score(1.0, 1.0, 1)


def test_no_valid_record_gives_no_score():
    assert scores.overall([record("task_b", None)]) is None
    assert scores.overall([]) is None


def test_categories_have_scores_of_their_own():
    records = [
        record("task_a", 1.0, category="writing"),
        record("task_b", 0.5, category="writing"),
        record("task_c", 0.25, category="coding"),
    ]
    found = scores.by_category(records)
    assert {name: scores.overall(group) for name, group in found.items()} == {
        "coding": scores.Score(0.25, 0.0, 1),
        "writing": scores.Score(0.75, 0.5, 2),
    }


def test_the_interval_holds_the_mean_and_is_the_same_every_time():
    values = {f"task_{n:02}": [n / 22] for n in range(23)}
    low, high = scores.interval(values)
    assert low < 0.5 < high
    assert scores.interval(dict(reversed(values.items()))) == (low, high)


def test_the_interval_of_a_coin_is_that_of_the_binomial_distribution():
    # 100 tasks, half of them 1: standard error 0.05, so 95 % is about 0.5 +- 0.098
    low, high = scores.interval({f"t{n}": [float(n % 2)] for n in range(100)})
    assert low == pytest.approx(0.402, abs=0.015)
    assert high == pytest.approx(0.598, abs=0.015)


def test_attempts_that_differ_widen_the_interval():
    steady = scores.interval({f"t{n}": [0.5, 0.5] for n in range(10)})
    shaky = scores.interval({f"t{n}": [0.0, 1.0] for n in range(10)})
    assert steady == (0.5, 0.5)
    assert shaky[0] < 0.4
    assert shaky[1] > 0.6


def test_one_task_has_no_interval():
    assert scores.interval({"task_a": [1.0, 0.0]}) is None
