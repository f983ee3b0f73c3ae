"""The published schemas hold for what is written, and for nothing else."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from runs import transcript, write_run
from support.records import make_grade, make_run, record, result

import pytest_pinchbench
from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.harnesses.openclaw import trajectory
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.reports.files import write_files
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.records import RESULT_SCHEMA, RUN_SCHEMA
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import SUMMARY_SCHEMA, read_summary, summarize

jsonschema = pytest.importorskip("jsonschema")

FOLDER = Path(pytest_pinchbench.__file__).parent / "schemas"
VERSIONS = [RESULT_SCHEMA, RUN_SCHEMA, SUMMARY_SCHEMA, trajectory.SCHEMA_VERSION]


def validator(version):
    schema = json.loads((FOLDER / f"{version}.json").read_text())
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def check(value):
    """Raises ``ValidationError``; the value names its own schema."""
    validator(value["schema_version"]).validate(value)


RECORDS = {
    "scored": record("task_a", 0.5, run=make_run(transcript=transcript())),
    "invalid": record("task_a", None),
    "graded and invalid": record("task_a", 0.5, issues=(Issue("FATAL", "judge", "no verdict"),)),
    "timed out": record(
        "task_a",
        0.0,
        run=make_run(timed_out=True, final_answer=""),
        issues=(Issue("ERROR", "agent_timeout", "stopped after 10 s"),),
    ),
    "judged": record(
        "task_a",
        0.5,
        grading_type="hybrid",
        grade=make_grade(
            0.5,
            judge_usage=Usage(total_tokens=9),
            parts={"automated": {"score": 0.5, "weight": 1.0}},
        ),
    ),
    "without a price": record("task_a", 1.0, run=make_run(usage=Usage())),
    "tried again": record(
        "task_a",
        1.0,
        earlier=tuple(
            {"issues": [Issue("FATAL", "sandbox", "lost")], "usage": usage, "judge_usage": usage}
            for usage in (Usage(), None)
        ),
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_has_a_schema_that_is_one(version):
    schema = json.loads((FOLDER / f"{version}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["const"] == version
    assert {path.stem for path in FOLDER.glob("*.json")} == set(VERSIONS)


@pytest.mark.parametrize("kind", RECORDS)
def test_records_of_every_kind_hold(kind):
    check(json.loads(json.dumps(RECORDS[kind])))


def test_a_record_of_an_agent_that_never_ran_holds():
    task = result("task_a", None)
    never: Any = copy.deepcopy(task.record)
    never.update(final_answer=None, execution_time=None, trajectory=None)
    never["artifacts"]["harness_execution"] = None
    check(never)


def test_every_field_of_a_record_is_documented():
    def documented(value, schema, root, path):
        schema = next(
            (one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"), schema
        )
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and "properties" in schema:
            for name, item in value.items():
                assert name in schema["properties"], f"{path}.{name}"
                documented(item, schema["properties"][name], root, f"{path}.{name}")
        if isinstance(value, list) and "items" in schema:
            for item in value:
                documented(item, schema["items"], root, f"{path}[]")

    summary = summarize(list(RECORDS.values()), {})
    for value in (*RECORDS.values(), summary, trajectory.to_actf(transcript())):
        schema = validator(value["schema_version"]).schema
        documented(value, schema, schema, value["schema_version"])


@pytest.mark.parametrize(
    "break_it",
    [
        lambda one: one.pop("metrics"),
        lambda one: one["metrics"].update(score=1.5),
        lambda one: one.update(status="fine"),
        lambda one: one["issues"].append({"severity": "BAD", "code": "x", "message": "y"}),
        lambda one: one["usage"].update(input_tokens="many"),
        lambda one: one.update(started_at=12.5),
        lambda one: one.update(task_id="../escape"),
    ],
)
def test_a_record_that_is_wrong_does_not_hold(break_it):
    wrong = copy.deepcopy(RECORDS["scored"])
    break_it(wrong)
    with pytest.raises(jsonschema.ValidationError):
        check(wrong)


def test_what_a_run_leaves_holds(tmp_path):
    old = read_summary(write_run(tmp_path / "old", {"task_a": [1.0], "task_b": [0.5]}).path)
    directory = write_run(tmp_path / "new", {"task_a": [0.5], "task_b": [None], "task_c": [0.1]})
    summary = read_summary(directory.path)
    write_files(directory, directory.records(), summary, [compare(old, summary)])
    names = ("run.json", "summary.json", "*/attempt-1/result.json", "*/attempt-1/trajectory.json")
    found = [path for name in names for path in directory.path.glob(name)]
    assert len(found) == 2 + 3 + 3
    for path in found:
        check(json.loads(path.read_text()))


@pytest.mark.slow
def test_what_a_real_run_leaves_holds(finished):
    names = ("run.json", "summary.json", "*/attempt-1/result.json", "*/attempt-1/trajectory.json")
    found = [path for name in names for path in finished.directory.glob(name)]
    assert len(found) == 2 + 3 + 3
    for path in found:
        check(json.loads(path.read_text()))


def test_what_a_later_version_adds_is_no_problem_to_a_reader_of_today(tmp_path):
    directory = write_run(tmp_path / "run", {"task_a": [1.0], "task_b": [0.5]})
    before = read_summary(directory.path)
    for path in directory.path.glob("**/*.json"):
        value = json.loads(path.read_text())
        value["new"] = {"deep": [1]}
        for inner in ("metrics", "usage", "artifacts", "meta", "settings"):
            value.get(inner, {})["new"] = True
        path.write_text(json.dumps(value))
        check(value)
    directory = RunDirectory(directory.path)
    after = read_summary(directory.path)
    assert after["score"] == before["score"]
    assert compare(before, after).verdict == "no difference found"
    write_files(directory, directory.records(), after)


def test_schemas_tell_what_types_cannot():
    for version in VERSIONS:
        schema = json.loads((FOLDER / f"{version}.json").read_text())
        assert re.match(r"(result|run|summary|trajectory)\.json: ", schema["description"])
