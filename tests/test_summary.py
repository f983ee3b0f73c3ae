"""What the terminal says at the end of a run."""

from __future__ import annotations

import pytest
from records import make_grade, make_run, record

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.terminal import (
    Outcome,
    official_score,
    shortfall,
    summary_lines,
    why_invalid,
)


def outcomes(*records):
    return [Outcome(one["task_id"], one["attempt"], one) for one in records]


def text(*some, **kwargs):
    return "\n".join(summary_lines(some, seconds=75.0, where="pinchbench-results/m/1", **kwargs))


def test_a_whole_run_has_an_official_mean_with_its_interval():
    shown = text(*outcomes(record("task_a", 1.0), record("task_b", 0.5, category="writing")))
    assert "Mean score  0.750  (95 % interval 0.500 to 1.000)" in shown
    assert "Pass rate   50.0% of 2 tasks" in shown
    assert "Tokens      200 in, 40 out in 4 requests" in shown
    assert "Cost        $0.0200" in shown
    assert "Wall time   75.0s" in shown
    assert "Results     pinchbench-results/m/1" in shown


def test_an_invalid_task_takes_the_official_mean_away():
    some = outcomes(record("task_a", 1.0), record("task_b", None))
    shown = text(*some)
    assert official_score(some) is None
    assert "Mean score  none: 1 invalid of 2 attempts" in shown
    assert "for reference only, over the 1 valid of 2 tasks: 1.000, 100.0% passed" in shown
    assert "FATAL: the sandbox was lost" in shown


def test_a_task_that_never_ran_takes_the_official_mean_away():
    shown = text(*outcomes(record("task_a", 1.0)), Outcome("task_b", 1, None, "worker crashed"))
    assert "Mean score  none: 1 not run of 2 attempts" in shown
    assert "worker crashed" in shown


def test_where_nothing_ran_there_is_nothing_to_add_up():
    shown = text(Outcome("task_a", 1, None))
    assert "Mean score  none: 1 not run of 1 attempt\n" in shown
    for word in ("category", "Tokens", "Cost"):
        assert word not in shown


def test_one_is_not_many():
    once = make_run(usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15, request_count=1))
    shown = text(*outcomes(record("task_a", 1.0, run=once)))
    assert "Tokens      10 in, 5 out in 1 request\n" in shown
    assert "Pass rate   100.0% of 1 task\n" in shown


def test_no_line_is_wider_than_80_columns():
    long = Issue("ERROR", "x", "something went wrong with a very long explanation " * 20)
    some = outcomes(record("task_18_spreadsheet_summary_of_sales", 0.5, issues=(long,)))
    assert all(len(line) <= 80 for line in summary_lines(some, seconds=1, where="r"))


def test_attempts_are_told_apart():
    shown = text(*outcomes(record("task_a", 1.0), record("task_a", 0.0, attempt=2)))
    assert "task_a[1]" in shown
    assert "task_a[2]" in shown


def test_an_unknown_cost_is_not_a_cost_of_nothing():
    run = make_run(usage=Usage(total_tokens=5))
    assert "Cost        unknown" in text(*outcomes(record("task_a", 1.0, run=run)))


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
    attempts = outcomes(record("task_a", 0.5, issues=(issue,)))
    shown = text(*attempts) + shortfall(attempts[0].record, 1.0)
    assert not set(shown) & {"\x1b", "\x07", "\ud83d"}
    assert "gone" in shown


def test_a_task_with_a_name_as_long_as_a_line_can_be_not_run():
    name = "task_" + "x" * 90
    shown = text(Outcome(name, 1, None, "the worker crashed"))
    assert f"{name}        -  the worker crashed" in shown


def test_what_is_for_reference_only_leaves_out_a_task_with_an_invalid_attempt():
    shown = text(
        *outcomes(
            record("task_a", 1.0, category="kept"),
            record("task_a", None, attempt=2, category="kept"),
            record("task_b", 0.5, category="kept"),
            record("task_c", None, category="lost"),
        )
    )
    assert "for reference only, over the 1 valid of 3 tasks: 0.500" in shown
    assert "kept      1 of 2    0.500      0%" in shown
    assert "lost      0 of 1     none       -" in shown
