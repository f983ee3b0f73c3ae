"""Intervals and permutation tests. Known values are from tables, long simulations stand in
``benchmarks/``.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_pinchbench.results.statistics import (
    Permutations,
    benjamini_hochberg,
    difference_interval,
    findable_drop,
    mean_interval,
    t_quantile,
)

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # from the tables of any textbook
    [
        *((1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (8, 2.3060)),
        *((22, 2.0739), (60, 2.0003), (123, 1.9794), (1000, 1.9623)),
    ],
)
def test_students_quantile_is_that_of_the_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_students_quantile_for_another_confidence():
    assert t_quantile(10, 0.99) == pytest.approx(3.1693, abs=5e-5)


def test_the_interval_of_ones_and_zeros_is_wilsons_with_students_t():
    # n 20, m 0.9: s2 = n m (1 - m) / (n - 1), so the effective n is n - 1; t of 19 is 2.0930
    low, high = mean_interval([1.0] * 18 + [0.0] * 2)
    n, z = 19, 2.093024
    middle = (0.9 + z * z / 2 / n) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (0.09 / n + z * z / 4 / n / n) ** 0.5
    assert (low, high) == (pytest.approx(middle - half), pytest.approx(middle + half))


def test_a_clean_sweep_of_few_tasks_proves_little():
    low, high = mean_interval([1.0] * 5)
    assert high == 1.0
    assert low == pytest.approx(5 / (5 + 2.776445**2))


def test_near_equal_scores_count_as_four_times_their_number_at_most():
    low, high = mean_interval([0.5, 0.5, 0.5, 0.5, 0.51])
    n, z = 20, 2.776445
    m = 0.502
    middle = (m + z * z / 2 / n) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (m * (1 - m) / n + z * z / 4 / n / n) ** 0.5
    assert (low, high) == (pytest.approx(middle - half), pytest.approx(middle + half))


def test_below_five_tasks_no_interval_is_given():
    assert mean_interval([1.0, 0.5, 0.0, 1.0]) is None
    assert difference_interval([0.1, 0.2, 0.0, 0.3]) is None


@given(st.lists(st.floats(0, 1), min_size=5, max_size=40))
def test_the_interval_lies_in_0_to_1_and_holds_the_mean(means):
    low, high = mean_interval(means)
    assert 0 <= low <= sum(means) / len(means) + 1e-12
    assert sum(means) / len(means) - 1e-12 <= high <= 1


def test_the_interval_of_a_difference_is_students():
    low, high = difference_interval([-0.1, 0.0, 0.1, 0.2, 0.3])
    half = 2.776445 * 0.158113883 / 5**0.5
    assert (low, high) == (pytest.approx(0.1 - half), pytest.approx(0.1 + half))
    assert difference_interval([0.2] * 9) is None


@pytest.mark.parametrize("size", [5, 23])
@pytest.mark.parametrize("population", ["0 or 1, p = .9", ".95 with p = .95, else 0"])
def test_the_interval_holds_the_true_mean(population, size):
    from intervals import coverage

    assert coverage(population, size, 400) >= 0.93


# -- permutations -----------------------------------------------------------------------------


def compared(pairs, seed=1, draws=None):
    return Permutations(pairs, random.Random(seed), draws).tests()


def test_with_one_attempt_fewer_than_six_changed_tasks_are_never_significant():
    same = [([1.0], [1.0])] * 17
    five = compared([*same, *[([1.0], [0.0])] * 5])
    assert five.p_mean == pytest.approx(2 / 2**5, abs=0.01)
    assert not five.mean_differs
    assert not five.any_differs
    assert not five.tasks_dropped
    six = compared([*same, *[([1.0], [0.0])] * 6])
    assert six.p_mean == pytest.approx(2 / 2**6, abs=0.01)
    assert six.mean_differs


def test_few_permutations_are_all_looked_at():
    # three flips of a sign: two of eight are as extreme
    assert compared([([0.0], [1.0])] * 3).p_mean == 2 / 8
    # three attempts each: two of twenty splits
    assert compared([([0.0, 0.1, 0.2], [1.0, 0.9, 0.8])]).p_mean == 2 / 20


def test_a_p_value_equals_a_count_over_all_permutations():
    pairs = [([0.1, 0.4], [0.9, 0.3]), ([0.5, 0.2], [0.6, 0.7]), ([1.0], [0.3])]
    splits = []
    for old, new in pairs:
        both = [*old, *new]
        splits.append(
            [
                sum(part) / len(new) - (sum(both) - sum(part)) / len(old)
                for part in itertools.combinations(both, len(new))
            ]
        )
    observed = [sum(new) / len(new) - sum(old) / len(old) for old, new in pairs]
    everything = list(itertools.product(*splits))

    def share(statistic):
        at_least = [statistic(one) >= statistic(observed) - 1e-9 for one in everything]
        return sum(at_least) / len(everything)

    def drops(one):
        return sum(min(value, 0) ** 2 for value in one)

    def rises(one):
        return sum(max(value, 0) ** 2 for value in one)

    tests = compared(pairs)
    assert tests.p_mean == pytest.approx(share(lambda one: abs(sum(one))))
    assert tests.p_drops == pytest.approx(share(drops))
    assert tests.p_any == pytest.approx(share(lambda one: max(drops(one), rises(one))))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda k: st.lists(
            st.tuples(
                st.lists(SCORES, min_size=k, max_size=k), st.lists(SCORES, min_size=k, max_size=k)
            ),
            min_size=1,
            max_size=9,
        )
    )
)
def test_the_interval_never_contradicts_the_test(pairs):
    tests = compared(pairs, draws=499)
    low, high = tests.interval
    difference = sum(sum(new) / len(new) - sum(old) / len(old) for old, new in pairs) / len(pairs)
    assert low - 1e-9 <= difference <= high + 1e-9
    assert tests.mean_differs == (low > 0 or high < 0)
    assert tests.confidence in (0.95, 0.975)


def test_the_interval_is_where_a_shifted_run_is_not_told_apart():
    """Inverting the test: a run whose scores are moved by a value within the interval is not
    significantly different from the baseline, one that is moved beyond it is.
    """
    generator = random.Random(4)
    pairs = [([generator.random()] * 1, [generator.random()] * 1) for _ in range(12)]
    tests = compared(pairs)
    for bound, outwards in zip(tests.interval, (-0.01, 0.01), strict=True):
        for shift, differs in ((bound + outwards, True), (bound - outwards, False)):
            moved = [(old, [value - shift for value in new]) for old, new in pairs]
            assert compared(moved).mean_differs == differs


def test_holm_asks_more_of_the_mean_while_no_task_changed():
    # the same p of the mean is enough only where it is the only test, or the other one is sure
    pairs = [([1.0], [0.0])] * 6 + [([1.0], [1.0])] * 5
    alone = compared(pairs)
    assert alone.p_any is None
    assert alone.confidence == 0.95
    noisy = compared([([1.0, 0.0], [0.0, 0.0])] * 4 + [([0.0, 1.0], [1.0, 0.0])] * 4)
    assert noisy.confidence == 0.975


@pytest.mark.slow
def test_a_model_against_itself_is_seldom_called_different():
    from comparisons import alarms

    found = alarms("beta(.5, .5)", 3, 100, random.Random(2))
    assert found["different"] <= 0.06
    assert found["held"] >= 0.93


def test_three_broken_tasks_of_23_are_found_with_three_attempts():
    from comparisons import power

    found = power("all .9", 3, 40, random.Random(2))
    assert found["any"] >= 0.75
    assert found["dropped"] >= 0.75
    assert found["held"] >= 0.93


def test_chance_alone_sets_tasks_apart():
    pairs = [([0.1, 0.2, 0.3], [0.7, 0.8, 0.9]), ([1.0] * 3, [1.0] * 3), ([0.5], [0.6])]
    chances = Permutations(pairs, random.Random(1)).task_chances()
    assert [one.apart for one in chances] == [2 / 20, 0.0, 1.0]
    assert [one.p_value for one in chances] == [2 / 20, 1.0, 1.0]


def test_benjamini_hochberg():
    assert benjamini_hochberg([0.001, 0.02, 0.04, 0.9]) == [True, True, False, False]
    # a later one within its limit takes the earlier ones along
    assert benjamini_hochberg([0.03, 0.03, 0.03]) == [True] * 3
    assert benjamini_hochberg([0.2, 0.5]) == [False, False]


def test_what_would_have_been_found():
    pairs = [([0.0, 1.0, 1.0], [1.0, 1.0, 1.0]), ([0.5, 0.5, 0.5], [0.4, 0.6, 0.5])]
    # variances 1/3 and 0.01, over three attempts each
    assert findable_drop(pairs) == pytest.approx(2.8 * ((1 / 3 + 0.01) / 3) ** 0.5 / 2)
    assert findable_drop([([0.0, 1.0], [1.0, 0.0])]) is None
    assert findable_drop([([1.0] * 3, [1.0] * 3)]) is None
