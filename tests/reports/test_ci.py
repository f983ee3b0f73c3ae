"""What CI gets that no run is needed to see: annotations, finished runs, broken reports."""

from __future__ import annotations

import json

import pytest
from runs import quick_summary, summary_of, write_run
from support.records import record

from pytest_pinchbench.issues import Issue, PinchBenchError
from pytest_pinchbench.reports import files, html
from pytest_pinchbench.reports.finished import compare_finished
from pytest_pinchbench.reports.github import annotation_lines, command, write_step_summary
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.summary import read_summary, summarize


def test_a_command_is_one_line_whatever_it_says():
    assert command("error", "a: b, 100%", "first\r\nsecond: 5%\n::stop") == (
        "::error title=a%3A b%2C 100%25::first%0D%0Asecond: 5%25%0A::stop"
    )


def test_errors_come_first_and_a_score_at_the_pass_mark_is_no_warning():
    issues = (Issue("ERROR", "agent_timeout", "stopped after 10 s"),)
    records = [
        record("task_a", 0.2, issues=issues),
        record("task_b", None),
        record("task_c", 0.5),
        record("task_d", 1.0),
    ]
    lines = annotation_lines(summarize(records, {"model": "m"}), pass_mark=0.5)
    assert [line.partition("::")[2].partition("::")[0] for line in lines] == [
        "error title=task_b is invalid",
        "warning title=task_a (basic)",
        "notice title=PinchBench",
    ]
    assert lines[1].endswith("score 0.200, pass mark 0.5%0AERROR: stopped after 10 s")


def test_more_than_github_shows_are_told_together():
    summary = quick_summary({f"task_{n:02}": [None] for n in range(14)})
    errors = [line for line in annotation_lines(summary) if line.startswith("::error")]
    assert len(errors) == 10
    assert errors[-1].startswith("::error title=PinchBench%3A 5 more::task_09 is invalid: ")


def test_attempts_that_never_ran_and_a_worse_run_are_errors(tmp_path):
    tasks = [f"task_{n:02}" for n in range(10)]
    old = quick_summary({task: [1.0] for task in tasks}, model="old")
    lost = {**{task: [0.2] for task in tasks}, "task_lost": [float("nan")]}
    new = summary_of(tmp_path / "run", lost)
    errors = [line for line in annotation_lines(new, [compare(old, new)]) if "::error" in line]
    assert errors[0].startswith("::error title=task_lost was not run::")
    assert errors[1].startswith("::error title=worse than old::1.000 -> 0.200")


@pytest.mark.slow
def test_the_page_of_a_step_grows_and_stays_below_what_github_takes(tmp_path):
    page = tmp_path / "step.md"
    page.write_text("before\n")
    issue = (Issue("ERROR", "check", "x" * 3000),)
    many = summarize([record(f"task_{n:04}", 0.0, issues=issue) for n in range(3000)], {})
    write_step_summary(many, environ={"GITHUB_STEP_SUMMARY": str(page)})
    text = page.read_text()
    assert text.startswith("before\n# PinchBench")
    assert len(text) < 2**20
    assert "and 2500 more tasks" in text
    write_step_summary(many, environ={})
    nowhere = tmp_path / "no folder" / "step.md"
    (said,) = write_step_summary(many, environ={"GITHUB_STEP_SUMMARY": str(nowhere)})
    assert said.startswith("cannot write GITHUB_STEP_SUMMARY: ")
    assert "no folder" in said


def test_finished_runs_are_compared_the_last_with_those_before_it(tmp_path):
    tasks = [f"task_{n}" for n in range(8)]
    for name, score in (("old", 0.9), ("older", 0.5), ("new", 0.6)):
        write_run(tmp_path / name, {task: [score] for task in tasks}, model=name)
    (tmp_path / "old.json").write_text(json.dumps(read_summary(tmp_path / "old")))
    runs = [read_summary(tmp_path / name) for name in ("older", "old.json", "new")]
    page = tmp_path / "step.md"
    lines, failed = compare_finished(
        runs,
        compare_fail=0.2,
        environ={"GITHUB_STEP_SUMMARY": str(page)},
    )
    assert failed
    assert lines[0] == "Comparison  new with older"
    assert any("0.900 -> 0.600, -0.300: mean worse" in line for line in lines)
    verdict = "Comparison  not met: the mean is significantly below that of old, by more than"
    assert verdict in lines
    assert lines[lines.index(verdict) + 1].startswith("            allowed; tasks dropped")
    assert lines[lines.index(verdict) + 2].endswith("(allowed: 0.2)")
    nowhere = {"GITHUB_STEP_SUMMARY": str(tmp_path / "no folder" / "step.md")}
    *lines, last = compare_finished(runs, compare_fail=0.2, environ=nowhere)[0]
    assert last.startswith("cannot write GITHUB_STEP_SUMMARY: ")
    markdown = page.read_text()
    assert markdown.startswith("| model | mean |")
    assert "**Comparison not met**: the mean is significantly below" in markdown

    _, failed = compare_finished(runs, compare_fail=0.4, environ={})
    assert not failed
    _, failed = compare_finished(runs, compare_fail=None, environ={})
    assert not failed


def test_finished_runs_with_nothing_to_compare_meet_no_gate(tmp_path):
    runs = [
        summary_of(tmp_path / "old", {"task_a": [1.0]}, model="old"),
        summary_of(tmp_path / "new", {"task_b": [1.0]}, model="new"),
    ]
    lines, failed = compare_finished(runs, compare_fail=0.5, environ={})
    assert failed
    words = " ".join(" ".join(lines).split())
    assert "Comparison not met: too little to go by against old: only in old: task_a;" in words
    assert "nothing to compare with old" in words


def test_a_gate_that_is_not_met_is_the_first_error():
    gates = [
        {"name": "Gate", "met": False, "why": "mean 0.5000, required 0.7"},
        {"name": "Comparison", "met": True, "why": "no significant drop of more than 0.1"},
    ]
    summary = {**quick_summary({"task_a": [0.5], "task_b": [None]}), "gates": gates}
    errors = [line for line in annotation_lines(summary) if line.startswith("::error")]
    assert errors[0] == "::error title=PinchBench gate::not met: mean 0.5000, required 0.7"
    assert len(errors) == 2


def test_one_finished_run_is_nothing_to_compare(tmp_path):
    old = summary_of(tmp_path / "old", {"task_a": [1.0]})
    with pytest.raises(PinchBenchError, match="at least two"):
        compare_finished([old], compare_fail=None)


@pytest.mark.parametrize(
    ("commit", "shown"),
    [
        ("0123456789abcdef-dirty", "skill 0123456789ab-dirty"),
        ("0123456789abcdef", "skill 0123456789ab"),
        (None, "skill in no git repository"),
    ],
)
def test_reports_name_the_state_of_the_suite_the_agent_and_the_gates(tmp_path, commit, shown):
    directory = write_run(
        tmp_path / "run",
        {"task_a": [1.0]},
        description={
            "suites": {"skill": commit},
            "settings": {
                "suite": "all",
                "limit": 0,
                "sample_ids": [],
                "attempts": 1,
                "harness": "openclaw",
            },
        },
    )
    gate = {"name": "Gate", "met": False, "why": "mean 0.1000, required 0.7"}
    summary = {**read_summary(directory.path), "gates": [gate]}
    files.write_files(directory, directory.records(), summary)
    page = (directory.path / "report.html").read_text()
    assert f"<dd>{shown}</dd>" in page
    assert "<dt>openclaw</dt><dd>2026.9.6</dd>" in page
    assert "<b>Gate not met:</b> mean 0.1000, required 0.7" in page
    markdown = (directory.path / "summary.md").read_text()
    assert "| Agent | openclaw 2026.9.6 |" in markdown
    assert "**Gate not met**: mean 0.1000, required 0.7" in markdown


def test_a_page_that_cannot_be_made_costs_no_number(tmp_path, monkeypatch):
    directory = write_run(tmp_path / "run", {"task_a": [1.0]})
    records, summary = directory.records(), read_summary(directory.path)
    monkeypatch.setattr(html, "_category", lambda category: 1 / 0)
    said = []
    files.write_files(directory, records, summary, say=said.append)
    assert said == ["report.html could not be made: ZeroDivisionError: division by zero"]
    assert json.loads((directory.path / "summary.json").read_text())["score"]["mean"] == 1.0
    assert not (directory.path / "report.html").exists()


def test_half_a_character_from_a_model_stops_no_report(tmp_path):
    directory = write_run(
        tmp_path / "run", {"task_a": [0.5], "task_b": [None]}, text="half \ud83d \x1b[31m \x00"
    )
    said = []
    records, summary = directory.records(), read_summary(directory.path)
    files.write_files(directory, records, summary, say=said.append)
    assert said == []
    assert "half" in (directory.path / "task_a/attempt-1/attempt.html").read_text("utf-8")
    write_step_summary(summary, environ={"GITHUB_STEP_SUMMARY": str(tmp_path / "step.md")})
    (directory.path / "summary.md").read_text(encoding="utf-8")
    json.loads((directory.path / "summary.json").read_text(encoding="utf-8"))
