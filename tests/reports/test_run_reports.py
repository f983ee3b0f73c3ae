"""What one run leaves in the reports of pytest's ecosystem, in CI and in its directory."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from runs import HOSTILE, SCRIPTS, run_pinchbench, write_run

from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.summary import read_summary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def suite(finished):
    return ElementTree.parse(finished.folder / "junit.xml").getroot().find("testsuite")


@pytest.fixture(scope="module")
def cases(suite):
    return {case.get("name"): case for case in suite.findall("testcase")}


def properties(element):
    return {one.get("name"): one.get("value") for one in element.find("properties")}


def test_the_run_directory_has_a_summary_for_programs_and_one_for_people(finished):
    summary = json.loads((finished.directory / "summary.json").read_text())
    assert [(task["task_id"], task["mean"]) for task in summary["tasks"]] == [
        ("task_a", 1.0),
        ("task_b", 0.5),
        ("task_c", None),
    ]
    assert summary["official"] is False
    assert summary["reference"]["mean"] == 0.75
    assert summary["wall_seconds"] > 0
    (comparison,) = summary["comparisons"]
    assert [task["task_id"] for task in comparison["tasks"]] == ["task_b", "task_a"]
    text = (finished.directory / "summary.md").read_text()
    assert text.startswith("# PinchBench: lab/m\n\n**No official mean**: 1 invalid")
    assert "## Compared with lab/old: no difference found" in text
    assert "| lab/old | 0.750 |" in text


def test_the_run_directory_has_a_page_of_the_run(finished):
    page = (finished.directory / "report.html").read_text()
    assert "<title>PinchBench: lab/m</title>" in page
    assert "Compared with lab/old" in page


def test_the_terminal_shows_the_comparison_after_the_summary(finished):
    assert finished.output.index("Results ") < finished.output.index("Comparison  lab/m with")
    assert "task_b    1.000    0.500   -0.500  lower" in finished.output


def test_junit_has_the_run_in_the_properties_of_its_suite(suite):
    found = properties(suite)
    assert found["model"] == "lab/m"
    assert found["official"] == "False"
    assert found["reference_mean_score"] == "0.75"
    assert found["invalid_attempts"] == "1"
    assert float(found["agent_cost_usd"]) == float(found["total_cost_usd"]) == 20.0
    assert "mean_score" not in found


def test_junit_has_scores_shortfalls_and_the_conversation_of_a_test(cases):
    assert properties(cases["task_a"])["score"] == "1.0"
    assert cases["task_b"].find("failure").text.startswith("score 0.500, pass mark 1")
    assert "the agent ended with 3" in cases["task_c"].find("error").text
    said = cases["task_b"].find("system-out").text
    assert "--- user\nMake made.txt that says yes." in said
    assert HOSTILE in said


def test_junit_has_the_elements_of_a_test_in_the_order_of_the_format(cases):
    order = ["properties", "skipped", "error", "failure", "system-out", "system-err"]
    for case in cases.values():
        tags = [order.index(child.tag) for child in case]
        assert tags == sorted(set(tags))


def test_the_json_report_has_the_scores_at_the_top_and_per_test(finished):
    report = json.loads((finished.folder / "report.json").read_text())
    assert next(iter(report)) == "pinchbench"
    head = report["pinchbench"]
    assert head["reference"]["mean"] == 0.75
    assert head["score"] is None
    assert head["task_scores"] == {"task_a": 1.0, "task_b": 0.5, "task_c": None}
    scores = [
        value
        for test in report["tests"]
        for one in test["user_properties"]
        for name, value in one.items()
        if name == "score"
    ]
    assert sorted(scores) == [0.5, 1.0]


def test_the_pytest_html_report_shows_the_criteria_of_a_test_once(finished):
    page = (finished.folder / "page.html").read_text()
    blob = json.loads(html.unescape(re.search('data-jsonblob="([^"]*)"', page)[1]))
    tests = {name.rpartition("::")[2]: json.dumps(one) for name, one in blob["tests"].items()}
    assert "pb-breakdown" in tests["task_a"]
    assert "pb-breakdown" not in tests["task_b"]
    assert "right  0.000" in tests["task_b"]


def test_github_gets_annotations_on_lines_of_their_own(finished):
    found = [line for line in finished.output.splitlines() if line.startswith("::")]
    assert found[0].startswith("::error title=task_c is invalid::the agent ended with 3")
    assert found[1].startswith("::warning title=task_b (file_ops)::score 0.500, pass mark 1")
    assert found[2].startswith("::notice title=PinchBench::lab/m · no official mean")


def test_github_gets_the_run_as_the_page_of_the_step(finished):
    page = (finished.folder / "step.md").read_text()
    assert page.startswith("# PinchBench: lab/m")
    assert "## Compared with lab/old" in page


def test_reports_change_no_outcome(finished):
    assert finished.exit_code == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in finished.output


def test_a_significant_drop_fails_the_run_and_a_smaller_one_than_allowed_does_not(
    tmp_path, write_project
):
    project = tmp_path / "project"
    tasks = [f"task_{n}" for n in range(6)]
    write_project(project, dict.fromkeys(tasks, "echo no > made.txt"))
    write_run(project / "old", {task: [1.0] for task in tasks}, model="lab/old")
    options = ("-n", "2", "--pinchbench-pass-mark", "0.5", "--pinchbench-compare", "old")

    allowed = run_pinchbench(project, *options, "--pinchbench-compare-fail", "0.6")
    assert allowed.returncode == pytest.ExitCode.OK, allowed.stdout
    failed = run_pinchbench(project, *options, "--pinchbench-compare-fail", "0.4")
    assert failed.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Comparison  not met: the mean is significantly below that of lab/old" in failed.stdout
    assert "Comparison  met: no significant drop of more than 0.6" in allowed.stdout

    runs = sorted((project / "pinchbench-results" / "lab-m").iterdir())
    again = compare(read_summary(runs[0]), read_summary(runs[1] / "summary.json"))
    assert again.verdict == "no difference found"


def test_a_run_to_compare_with_that_is_not_there_ends_it_before_the_first_task(
    tmp_path, write_project
):
    project = tmp_path / "project"
    write_project(project, SCRIPTS)
    done = run_pinchbench(project, "--pinchbench-compare", "nowhere")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "nowhere is neither a run directory nor the summary.json" in done.stderr
