"""The numbers of a run in one document, and the same for people."""

from __future__ import annotations

import json
import re

import pytest
from runs import HOSTILE, quick_summary, summary_of, write_run
from support.records import make_grade, make_run, record

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.issues import Issue, PinchBenchError
from pytest_pinchbench.reports.markdown import (
    comparison_markdown,
    escape,
    summary_markdown,
    table_markdown,
)
from pytest_pinchbench.reports.terminal import summary_lines
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.statistics import mean_interval
from pytest_pinchbench.results.summary import read_summary, summarize

MISSING = float("nan")


def selected(*wanted):
    return {"selected": [{"task_id": task, "attempt": attempt} for task, attempt in wanted]}


def test_attempts_are_averaged_to_tasks_and_tasks_to_the_run():
    few = quick_summary({"task_a": [1.0, 0.0], "task_b": [0.8, 0.8]})
    assert few["score"]["mean"] == pytest.approx(0.65)
    assert few["score"]["interval"] is None
    summary = quick_summary(
        {"task_a": [1.0, 0.0], "task_b": [0.8, 0.8], **{f"task_{n}": [0.65] * 2 for n in "cdef"}}
    )
    assert summary["official"] is True
    assert summary["score"]["mean"] == pytest.approx(0.65)
    assert summary["score"]["pass_rate"] == pytest.approx(0.5 / 6)
    assert summary["score"]["tasks"] == 6
    assert summary["reference"] is None
    low, high = summary["score"]["interval"]
    assert 0 <= low < 0.65 < high <= 1


def test_the_interval_is_that_of_the_terminal():
    records = [record(f"task_{n}", n / 9) for n in range(10)]
    summary = summarize(records, {})
    assert tuple(summary["score"]["interval"]) == mean_interval([n / 9 for n in range(10)])
    low, high = summary["score"]["interval"]
    (line,) = (
        one.text for one in summary_lines(summary, "here") if one.text.startswith("Mean score")
    )
    assert line == f"Mean score  0.500  (95 % interval {low:.3f} to {high:.3f})"


def test_a_task_shows_how_its_attempts_spread():
    (task,) = quick_summary({"task_a": [1.0, 0.0, 0.5]})["tasks"]
    assert (task["mean"], task["min"], task["max"]) == (0.5, 0.0, 1.0)
    assert task["std"] == pytest.approx(0.5)
    assert [attempt["score"] for attempt in task["attempts"]] == [1.0, 0.0, 0.5]
    (single,) = quick_summary({"task_a": [1.0]})["tasks"]
    assert single["std"] is None


@pytest.mark.parametrize(
    ("attempts", "counts", "reference"),
    [
        ([1.0, None], {"selected": 2, "scored": 1, "invalid": 1, "missing": 0}, 0.5),
        ([1.0, MISSING], {"selected": 2, "scored": 1, "invalid": 0, "missing": 1}, 0.5),
    ],
)
def test_without_a_valid_result_of_every_attempt_there_is_no_official_mean(
    tmp_path, attempts, counts, reference
):
    summary = summary_of(tmp_path / "run", {"task_a": attempts, "task_b": [0.5]})
    assert summary["official"] is False
    assert summary["score"] is None
    assert summary["reference"]["mean"] == reference
    assert summary["attempts"] == {**counts, "selected": 3, "scored": 2}


def test_a_run_without_any_result_has_no_mean_at_all():
    summary = summarize([], selected(("task_a", 1)))
    assert (summary["official"], summary["score"], summary["reference"]) == (False, None, None)
    assert "No official mean" in summary_markdown(summary)


def test_tasks_are_in_the_order_of_the_run_and_others_are_left_out():
    records = [record(task, 1.0) for task in ("task_a", "task_b", "task_c")]
    summary = summarize(records, selected(("task_c", 1), ("task_a", 1)))
    assert [task["task_id"] for task in summary["tasks"]] == ["task_c", "task_a"]


def test_categories_have_numbers_of_their_own():
    records = [
        record("task_a", 1.0, category="writing"),
        record("task_b", 0.5, category="writing"),
        record("task_c", None, category="coding"),
    ]
    coding, writing = summarize(records, {})["categories"]
    assert (coding["category"], coding["official"], coding["score"]) == ("coding", False, None)
    assert (writing["official"], writing["score"]["mean"], writing["tasks"]) == (True, 0.75, 2)


def test_what_was_used_is_summed_and_the_judge_is_apart():
    judged = make_grade(0.5, judge_usage=Usage(total_tokens=9, cost_usd=0.5, request_count=1))
    records = [record("task_a", 0.5, grade=judged), record("task_b", 1.0)]
    summary = summarize(records, {})
    assert summary["usage"]["total_tokens"] == 240
    assert summary["usage"]["request_count"] == 4
    assert {name: part["usd"] for name, part in summary["cost"].items()} == {
        "agent": pytest.approx(0.02),
        "judge": 0.5,
        "total": pytest.approx(0.52),
    }
    assert summarize(records[1:], {})["judge_usage"] is None


def test_a_cost_that_is_known_in_part_says_so():
    free = make_run(usage=Usage(total_tokens=5))
    summary = summarize([record("task_a", 1.0), record("task_b", 1.0, run=free)], {})
    assert summary["cost"]["agent"] == {"usd": pytest.approx(0.01), "complete": False}
    assert summary["cost"]["total"] == {"usd": pytest.approx(0.01), "complete": False}
    assert "total \\>=\\$0.0100" in summary_markdown(summary)


def test_the_settings_digest_tells_what_was_asked_for_and_not_where_it_went():
    def digest(identity, *attempts, **settings):
        run = {**selected(*attempts), "identity": identity, "settings": settings}
        return summarize([], run)["settings_digest"]

    one = digest({"model": "m"}, ("task_a", 1), results_dir="a")
    assert one == digest({"model": "m"}, ("task_a", 1), results_dir="b")
    assert one != digest({"model": "n"}, ("task_a", 1))
    assert one != digest({"model": "m"}, ("task_a", 1), ("task_a", 2))


def test_a_run_is_read_from_its_directory_and_from_its_summary(tmp_path):
    directory = write_run(tmp_path / "run", {"task_a": [1.0], "task_b": [0.5]})
    summary = read_summary(directory.path)
    file = tmp_path / "anywhere.json"
    file.write_text(json.dumps(summary))
    assert read_summary(file) == summary


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "another file"])
def test_what_is_no_run_is_refused(tmp_path, what):
    path = tmp_path / "run"
    if what == "an empty folder":
        path.mkdir()
    elif what == "another file":
        path.write_text("{}")
    with pytest.raises(PinchBenchError, match=re.escape(str(path))):
        read_summary(path)


@pytest.mark.parametrize("name", ["run.json", "task_a/attempt-1/result.json"])
@pytest.mark.parametrize("content", ["{}", "[]", '{"task_id": "task_a", "attempt": 1}', "{"])
def test_a_damaged_file_of_a_run_is_named(tmp_path, name, content):
    path = write_run(tmp_path / "run", {"task_a": [1.0], "task_b": [0.5]}).path / name
    path.write_text(content)
    with pytest.raises(PinchBenchError, match=f"^{re.escape(str(path))} is damaged"):
        read_summary(tmp_path / "run")


@pytest.mark.parametrize("content", ["[]", '{"tasks": []}', '{"tasks": 5}'])
def test_a_damaged_summary_is_no_run(tmp_path, content):
    path = tmp_path / "summary.json"
    path.write_text(content)
    with pytest.raises(PinchBenchError, match="is neither a run directory nor the summary"):
        read_summary(path)


def test_the_page_of_a_run_has_its_numbers():
    records = [
        record("task_a", 1.0, category="writing"),
        record("task_b", 0.5, category="coding"),
    ]
    text = summary_markdown(summarize(records, {"model": "lab/m", **selected()}))
    assert text.startswith("# PinchBench: lab/m\n\n**Mean score 0.750**")
    assert "50.0% of 2 tasks with full score" in text
    assert "| writing | 1 | 1.000 | - | 100.0% |" in text
    assert "| `task_b` | coding | 0.500 | no | 120 | \\$0.0100 | 2.5s |" in text


def test_the_page_of_a_run_with_repeats_has_their_spread():
    text = summary_markdown(quick_summary({"task_a": [1.0, 0.0, None]}))
    # a task with an invalid attempt has no number, here as everywhere
    assert "| `task_a` | basic | 1 invalid of 3 | - | - |" in text
    assert "- `task_a` attempt 3: **FATAL** the sandbox was lost" in text
    text = summary_markdown(quick_summary({"task_a": [1.0, 0.0]}))
    assert "| `task_a` | basic | 0.500 | 0.000 to 1.000, 0.707 | 50.0% |" in text


def test_a_long_run_can_be_cut_short():
    summary = quick_summary({f"task_{n}": [1.0] for n in range(9)})
    assert "and 4 more tasks" in summary_markdown(summary, limit=5)
    assert "more tasks" not in summary_markdown(summary)


def test_no_text_of_a_model_or_task_becomes_markup():
    hostile = f"{HOSTILE}\n# heading [link](javascript:x) **bold** @someone"
    issues = (Issue("ERROR", "check", hostile),)
    summary = summarize([record("task_a", 0.5, category=hostile, issues=issues)], {})
    text = summary_markdown(summary)
    assert "<script" not in text.replace("\\<", "")
    assert not re.search(r"(?<!\\)\*\*bold", text)
    assert "@someone" not in text
    row = next(line for line in text.splitlines() if "`task_a`" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 8  # seven cells
    assert not any(line.startswith("# heading") for line in text.splitlines())


def test_escaped_text_is_one_line():
    assert escape("a\n\n| b") == "a \\| b"


def test_a_comparison_for_a_pull_request():
    old = quick_summary({"task_a": [1.0], "task_b": [0.5], "task_c": [1.0]}, model="old")
    new = quick_summary({"task_a": [0.0], "task_b": [0.5], "task_d": [1.0]}, model="new")
    text = comparison_markdown(compare(old, new))
    assert text.startswith("## Compared with old: no difference found\n\n0.750 -\\> 0.250, -0.500")
    assert "| `task_a` | 1.000 | 0.000 | -1.000 | lower |" in text
    assert "Only in the baseline: `task_c`" in text
    assert "Only in the new run: `task_d`" in text


def test_a_table_of_models_for_a_pull_request():
    runs = [
        quick_summary({"task_a": [0.2], "task_b": [0.2]}, model="low"),
        quick_summary({"task_a": [0.9], "task_b": [None]}, model="shaky"),
    ]
    lines = table_markdown(runs).splitlines()
    assert lines[2].startswith("| shaky | 0.900 \\* |")
    assert lines[3].startswith("| low | 0.200 | - |")
    assert lines[-1].startswith("\\* no official mean")
