"""What the terminal says at the end of a run."""

from __future__ import annotations

import re

import pytest
from support.records import make_grade, make_run, record

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.terminal import shortfall, summary_lines, why_invalid
from pytest_pinchbench.results.summary import summarize


def text(*some, selected=(), troubles=None, **run):
    """The section of a run with these records; ``selected`` are attempts without one."""
    keys = [(one["task_id"], one["attempt"]) for one in some]
    run["selected"] = [{"task_id": task, "attempt": k} for task, k in [*keys, *selected]]
    summary = summarize(some, run, wall_seconds=75.0, troubles=troubles)
    return "\n".join(line.text for line in summary_lines(summary, "pinchbench-results/m/1"))


def test_a_whole_run_has_an_official_mean_with_its_interval():
    shown = text(record("task_a", 1.0), record("task_b", 0.5, category="writing"))
    assert "Mean score  0.750\n" in shown  # two tasks have no interval
    assert "Pass rate   50.0% of 2 tasks" in shown
    assert "Tokens      200 in, 40 out in 4 requests" in shown
    assert "Cost        agent $0.0200, judge $0, total $0.0200" in shown
    assert "Wall time   75.0s" in shown
    assert "Results     pinchbench-results/m/1" in shown


def test_an_invalid_task_takes_the_official_mean_away():
    shown = text(record("task_a", 1.0), record("task_b", None))
    assert "Mean score  none: 1 invalid of 2 attempts" in shown
    assert "for reference only, over the 1 valid of 2 tasks: 1.000, 100.0% passed" in shown
    assert "FATAL: the sandbox was lost" in shown


def test_a_task_that_never_ran_takes_the_official_mean_away():
    shown = text(
        record("task_a", 1.0),
        selected=[("task_b", 1)],
        troubles={("task_b", 1): "worker crashed"},
    )
    assert "Mean score  none: 1 not run of 2 attempts" in shown
    assert "worker crashed" in shown


def test_where_nothing_ran_there_is_nothing_to_add_up():
    shown = text(selected=[("task_a", 1)])
    assert "Mean score  none: 1 not run of 1 attempt\n" in shown
    for word in ("category", "Tokens", "Cost"):
        assert word not in shown


def test_one_is_not_many():
    once = make_run(usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15, request_count=1))
    shown = text(record("task_a", 1.0, run=once))
    assert "Tokens      10 in, 5 out in 1 request\n" in shown
    assert "Pass rate   100.0% of 1 task\n" in shown


def test_no_line_is_wider_than_80_columns():
    long = Issue("ERROR", "x", "something went wrong with a very long explanation " * 20)
    shown = text(
        record("task_18_spreadsheet_summary_of_sales", 0.5, issues=(long,)),
        suite_tasks={"a suite with a name as long as this one, which nobody would want": 12_000},
    )
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_attempts_of_a_task_share_a_line():
    attempts = [0.79, 0.0, 0.789]
    some = [record("task_04", score, attempt=k) for k, score in enumerate(attempts, 1)]
    shown = text(*some, record("task_b", 0.9996), record("task_b", None, attempt=2))
    assert "task_04    0.526  ±0.456  0.79 0.00 0.79\n" in shown
    assert "task_b   invalid          0.99 inv\n" in shown


def test_more_attempts_than_fit_are_counted():
    some = [record(f"task_{'x' * 60}", 1.0, attempt=k) for k in range(1, 31)]
    row = next(line for line in text(*some).splitlines() if line.startswith("task_x"))
    assert len(row) <= 80
    assert row.endswith(f"1.00 +{30 - row.split('±')[1].count('1.00')}")


def test_the_same_failure_of_many_tasks_is_said_once():
    fatal = (Issue("FATAL", "judge", "the judge\ncannot be asked"),)
    some = [record(f"task_{n:02}", None, issues=fatal) for n in range(21)]
    shown = text(*some, record("task_99", None, issues=fatal, attempt=1))
    assert shown.count("FATAL: the judge cannot be asked") == 1
    where = "at task_00, task_01, task_02, task_03, task_04 and 17 more (22 times)"
    assert f"\n  {where}\n" in shown


def test_a_task_has_the_colour_of_its_score():
    scores = {"task_a": 1.0, "task_b": 0.5, "task_c": 0.0, "task_d": None}
    lines = summary_lines(summarize([record(*one) for one in scores.items()], {}), "here")
    colours = {line.text.partition(" ")[0]: line.colour for line in lines if line.colour}
    wanted = ("green", "yellow", "red", "purple")
    assert colours == dict(zip(scores, wanted, strict=True))


def test_an_unknown_cost_is_not_a_cost_of_nothing():
    run = make_run(usage=Usage(total_tokens=5, request_count=1))
    assert "Cost        agent unknown, judge $0, total unknown" in text(
        record("task_a", 1.0, run=run)
    )


def test_a_cost_has_three_parts_and_says_when_it_is_a_lower_bound():
    judged = make_grade(1.0, judge_usage=Usage(total_tokens=9, cost_usd=0.7, request_count=1))
    paid = make_run(usage=Usage(total_tokens=5, cost_usd=15.78, request_count=1))
    shown = text(record("task_a", 1.0, run=paid, grade=judged))
    assert "Cost        agent $15.78, judge $0.7000, total $16.48" in shown
    unpriced = make_run(usage=Usage(total_tokens=5, request_count=1))
    shown = text(record("task_a", 1.0, run=unpriced, grade=judged))
    assert "Cost        agent unknown, judge $0.7000, total >=$0.7000" in shown
    # of two tries of one attempt, the price of one is known
    tries = ({"issues": [], "usage": paid.usage, "judge_usage": None},)
    shown = text(record("task_a", 1.0, run=unpriced, earlier=tries))
    assert "Cost        agent >=$15.78, judge $0, total >=$15.78" in shown


def test_an_agent_that_never_ran_cost_nothing():
    never = make_run(usage=Usage())
    shown = text(record("task_a", 1.0), record("task_b", None, run=never))
    assert "agent $0.0100, judge $0, total $0.0100" in shown


def test_input_says_how_much_of_it_was_cached():
    run = make_run(usage=Usage(1000, 20, 700, 100, 1020, 0.01, 2))
    assert "Tokens      1,000 in (800 of it cached), 20 out" in text(record("task_a", run=run))


@pytest.mark.parametrize(
    ("suite_tasks", "shown"),
    [
        ({"v1.1.0": 23}, "Tasks       2 of the 23 tasks of v1.1.0: a partial run\n"),
        ({"skill": 2}, "Tasks       2 of the 2 tasks of skill\n"),
        ({"one": 1, "two": 7}, "Tasks       2 of the 8 tasks of one and two: a partial run\n"),
        ({}, "Tasks       2 tasks\n"),
    ],
)
def test_a_number_says_what_it_is_of(suite_tasks, shown):
    assert shown in text(record("task_a", 1.0), record("task_b", 1.0), suite_tasks=suite_tasks)


def starts(*seconds):
    records = [record(f"task_{n}", 1.0) for n in range(len(seconds))]
    for n, (one, startup) in enumerate(zip(records, seconds, strict=True)):
        one["started_at"] = f"2026-02-17T10:00:{n:02}.000+00:00"
        if startup is not None:
            one["seconds"]["startup"] = startup
    # not in the order in which they ran
    return text(*reversed(records))


def test_a_machine_that_starts_agents_ever_slower_is_said_to_be_overloaded():
    shown = starts(5.0, 16.0, 40.0, None, 15.1)
    assert "Note        the machine was overloaded: an agent took 15.6s to start" in shown
    assert "overloaded" not in starts(5.0, 15.0, 40.0, 15.0)
    assert "overloaded" not in starts(None, None)


def test_a_shortfall_that_rounds_up_to_the_mark_says_so():
    assert shortfall(record("task_a", 0.7996), 0.8).splitlines()[0] == (
        "score 0.800 (rounded up), pass mark 0.8"
    )
    assert shortfall(record("task_a", 0.9996), 0.9998).startswith("score 0.999, pass mark")


def test_no_two_numbers_of_an_interval_contradict_each_other():
    scores = [1.0] * 40 + [0.99]
    shown = text(*(record(f"task_{n}", score) for n, score in enumerate(scores)))
    assert "Mean score  0.999  (95 % interval 0.9" in shown
    assert re.search(r"0\.999  \(95 % interval 0\.9\d\d to 0\.999\)", shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.000"), (-0.25, "-0.250"), (0.0004, "+4e-04"), (-0.0004, "-4e-04"), (1.0, "+1.000")],
)
def test_only_no_difference_looks_like_none(value, shown):
    assert formats.difference(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "100.0%"), (0.9999, "99.9%"), (0.0, "0.0%"), (0.0001, "0.1%")]
)
def test_only_all_looks_like_all(value, shown):
    assert formats.percent(value) == shown


@pytest.mark.parametrize(
    ("score", "shown"),
    [(1.0, "1.000"), (0.99999, "0.999"), (0.0, "0.000"), (0.0001, "0.001"), (0.6666, "0.667")],
)
def test_only_a_full_score_looks_like_one(score, shown):
    assert formats.score(score) == shown


def test_a_shortfall_names_criteria_weights_and_notes():
    grade = make_grade(
        0.6,
        breakdown={"automated.file": 1.0, "llm_judge.style": 0.2},
        notes="dull prose",
        parts={
            "automated": {"score": 1.0, "weight": 0.25},
            "llm_judge": {"score": 0.2, "weight": 0.75},
        },
    )
    shown = shortfall(record("task_a", 0.6, grade=grade), 1.0)
    assert shown.splitlines()[0] == "score 0.600, pass mark 1"
    assert "automated.file   1.000" in shown
    assert "llm_judge.style  0.200" in shown
    assert "automated  1.000  weight 0.25" in shown
    assert "llm_judge  0.200  weight 0.75" in shown
    assert "notes: dull prose" in shown


def test_an_invalid_attempt_says_what_was_fatal_and_how_often_it_was_tried():
    failed = {"issues": [], "usage": None, "judge_usage": None}
    invalid = record(
        score=None,
        issues=(Issue("WARNING", "w", "beside the point"), Issue("FATAL", "x", "401 no such key")),
        earlier=(failed, failed),
    )
    assert why_invalid(invalid) == "invalid, no score after 3 tries: 401 no such key"


def test_nothing_a_model_says_is_a_command_to_the_ci_that_reads_the_log():
    criteria = {"tidy\n::error::as a name": 0.5}
    grade = make_grade(0.5, notes="x" * 70 + " ::error::gotcha", breakdown=criteria)
    issue = Issue("ERROR", "check_raised", "line one\n::stop-commands::x")
    shown = shortfall(record("task_a", 0.5, grade=grade, issues=(issue,)), 1.0)
    fatal = (Issue("FATAL", "x", "said\n  ##[error]gotcha"),)
    shown += "\n" + why_invalid(record("task_b", None, issues=fatal))
    assert "::error::gotcha" in shown
    assert not any(line.lstrip().startswith(("::", "##[")) for line in shown.splitlines())


def test_nothing_a_model_says_is_a_command_to_the_terminal():
    issue = Issue("ERROR", "check_raised", "\x1b]0;title\x07 \x1b[2J gone \ud83d")
    attempt = record("task_a", 0.5, issues=(issue,))
    shown = text(attempt) + shortfall(attempt, 1.0)
    assert not set(shown) & {"\x1b", "\x07", "\ud83d"}
    assert "gone" in shown


def test_a_task_with_a_name_as_long_as_a_line_can_be_not_run():
    name = "task_" + "x" * 90
    shown = text(selected=[(name, 1)], troubles={(name, 1): "the worker crashed"})
    assert "…xxxxxxxxxx" in shown
    assert "missing" in shown
    assert "NOT RUN: the worker crashed" in shown


def test_what_is_for_reference_only_leaves_out_a_task_with_an_invalid_attempt():
    shown = text(
        *(
            record("task_a", 1.0, category="kept"),
            record("task_a", None, attempt=2, category="kept"),
            record("task_b", 0.5, category="kept"),
            record("task_c", None, category="lost"),
        )
    )
    assert "for reference only, over the 1 valid of 3 tasks: 0.500" in shown
    assert "kept      1 of 2    0.500    0.0%" in shown
    assert "lost      0 of 1     none       -" in shown


def test_efficiency_is_the_score_by_tokens_and_by_known_dollars() -> None:
    def found(*costs: float | None) -> dict[str, float | None]:
        usages = [Usage(total_tokens=500, cost_usd=cost, request_count=1) for cost in costs]
        records = [
            record(f"task_{number}", 0.75, run=make_run(usage=usage))
            for number, usage in enumerate(usages)
        ]
        return summarize(records, {})["efficiency"]

    assert found(0.5, 0.25) == {"score_per_1000_tokens": 1.5, "score_per_usd": 2.0}
    assert found(0.5, None) == {"score_per_1000_tokens": 1.5, "score_per_usd": None}
