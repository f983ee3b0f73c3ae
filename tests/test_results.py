"""Records and the directory that keeps them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any, cast

import pytest
from support.records import make_run, record, result

from pytest_pinchbench.attempt.kept_work import WorkMissing, kept_work, previous_attempts
from pytest_pinchbench.harnesses import Usage, sum_usage
from pytest_pinchbench.issues import (
    EndpointUnusable,
    Issue,
    PinchBenchError,
    ResultsUnwritable,
    SandboxFailure,
)
from pytest_pinchbench.results.files import safe_name, write_json
from pytest_pinchbench.results.records import RunDescription, user_properties
from pytest_pinchbench.results.run_directory import RunDirectory, read_record


def test_a_record_is_found_again_as_it_was_written(tmp_path):
    directory = RunDirectory.new(tmp_path, "lab/model:free")
    written = result("task_00_hello", 0.75)
    folder = directory.write(written)
    assert directory.path.parent == tmp_path / "lab-model-free"
    assert folder == directory.path / "task_00_hello" / "attempt-1"
    assert directory.read("task_00_hello", 1) == written.record
    assert directory.records() == [written.record]
    assert json.loads((folder / "transcript.jsonl").read_text())["type"] == "message"


def test_a_write_that_fails_in_the_middle_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from pytest_pinchbench.results.files import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # like a full disk\n"
        "write_atomically(Path(sys.argv[1]), bytes(10_000))\n"
    )
    failed = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert "File too large" in failed.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_runs_of_one_second_have_directories_of_their_own(tmp_path):
    assert RunDirectory.new(tmp_path, "m").path != RunDirectory.new(tmp_path, "m").path


def test_a_torn_record_is_no_record(tmp_path):
    path = tmp_path / "result.json"
    path.write_text('{"task_id": "task_')
    assert read_record(path) is None


@pytest.mark.parametrize("break_it", ["{}", "[]", "null", "usage", "issues", "meta"])
def test_a_damaged_record_is_no_record(tmp_path, break_it):
    directory = RunDirectory(tmp_path)
    folder = directory.write(result())
    path = folder / "result.json"
    if break_it in (whole := json.loads(path.read_text())):
        del whole[break_it]
        path.write_text(json.dumps(whole))
    else:
        path.write_text(break_it)
    assert directory.read("task_00_hello", 1) is None
    assert (directory.records(), directory.damaged()) == ([], [path])


@pytest.mark.parametrize("score", ["77", "-0.1", "true", "NaN", "1e999", '"1"', "[" * 200_000])
def test_a_record_with_a_score_that_cannot_be_one_is_damaged(tmp_path, score):
    directory = RunDirectory(tmp_path)
    path = directory.write(result(score=0.25)) / "result.json"
    assert directory.damaged() == []
    path.write_text(path.read_text().replace('"score": 0.25,', f'"score": {score},', 1))
    assert (directory.records(), directory.damaged()) == ([], [path])


def test_an_attempt_with_a_fatal_issue_has_no_score_whatever_its_grade():
    fatal = record(score=1.0, issues=(Issue("FATAL", "judge_http", "500"),))
    assert fatal["status"] == "invalid"
    assert fatal["metrics"] == {"score": None, "passed": None}


def test_a_secret_is_in_no_part_of_a_result():
    secret = 'sk-"quoted"-123'
    run = make_run(
        transcript=({"type": "message", "key": secret},),
        final_answer=f"my key is {secret}",
        stderr=f"Authorization: {secret}",
        trajectory={"steps": [secret]},
    )
    outcome = result(run=run, secrets=(secret,))
    everything = json.dumps(outcome.record).encode() + b"".join(outcome.files.values())
    assert b"123" not in everything
    assert b"[redacted]" in everything


def test_a_lone_surrogate_is_kept_as_its_escape(tmp_path):
    directory = RunDirectory.new(tmp_path, "m")
    directory.write(result(run=make_run(final_answer="half a \ud83d")))
    assert directory.read("task_00_hello", 1)["final_answer"] == "half a \\ud83d"


def test_every_try_is_paid_for():
    failed = {
        "issues": [Issue("FATAL", "sandbox", "lost")],
        "usage": Usage(total_tokens=30),
        "judge_usage": Usage(total_tokens=7),
    }
    outcome = record(earlier=(failed,))
    assert outcome["usage"]["total_tokens"] == 120 + 30
    assert outcome["judge_usage"]["total_tokens"] == 7
    assert outcome["retried"][0]["issues"][0]["message"] == "lost"


def test_a_cost_that_nobody_knows_stays_unknown():
    assert sum_usage([Usage(), Usage()]).cost_usd is None
    assert sum_usage([Usage(cost_usd=0.5), Usage()]).cost_usd == 0.5


def test_properties_leave_out_what_is_not_known():
    names = [name for name, _ in user_properties(record(score=None))]
    assert "score" not in names
    assert "passed" not in names
    assert "status" in names


def test_something_done_once_is_done_once_however_many_ask(tmp_path):
    directory = RunDirectory(tmp_path)
    done = []
    threads = [
        threading.Thread(target=directory.run_once, args=("x", lambda: done.append(1)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [1]


def test_what_ends_a_run_ends_it_for_everyone_who_asks(tmp_path):
    def fail():
        raise EndpointUnusable("401 wrong key")

    for directory in (RunDirectory(tmp_path), RunDirectory(tmp_path)):
        with pytest.raises(EndpointUnusable, match="401 wrong key"):
            directory.run_once("model", fail)


def test_a_sandbox_that_fails_during_a_check_leaves_the_check_to_the_next(tmp_path):
    directory = RunDirectory(tmp_path)

    def lose():
        raise SandboxFailure("gone")

    with pytest.raises(SandboxFailure):
        directory.run_once("model", lose)
    done = []
    directory.run_once("model", lambda: done.append(1))
    assert done == [1]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("openrouter/anthropic/claude-opus-4.5", "openrouter-anthropic-claude-opus-4.5"),
        ("x:free", "x-free"),
        ("../../etc", "etc"),
        ("///", "unnamed"),
    ],
)
def test_an_id_becomes_one_path_component(name, safe):
    assert safe_name(name) == safe


@pytest.mark.parametrize("word", ["task", "score", "judge", "passed", "benchmark", "scored"])
def test_a_key_that_is_a_word_of_ours_damages_no_record(tmp_path, word):
    outcome = result("task_a", 0.5, secrets=(word,), run=make_run(stdout=f"the {word}"))
    directory = RunDirectory.new(tmp_path, "m")
    directory.write(outcome)
    read = directory.read("task_a", 1)
    assert dict(user_properties(read))["score"] == 0.5
    assert (read["status"], read["task_id"]) == ("scored", "task_a")
    stdout = directory.attempt_dir("task_a", 1) / read["artifacts"]["harness_execution"]["stdout"]
    assert stdout.read_text() == "the [redacted]"


def test_whatever_an_agent_put_into_its_arguments_is_kept(tmp_path):
    deep: dict[str, Any] = {"x": 1}
    for _ in range(5000):
        deep = {"deep": deep}
    odd = {"nan": float("nan"), "infinite": float("-inf"), "huge": 10**5000, "deep": deep}
    run = make_run(transcript=({"type": "message", "arguments": odd},), trajectory={"steps": [odd]})
    directory = RunDirectory.new(tmp_path, "m")
    folder = directory.write(result("task_a", 1.0, run=run))
    for name in ("transcript.jsonl", "trajectory.json"):
        json.loads((folder / name).read_text(), parse_constant=pytest.fail)


def kept(tmp_path, **changes):
    """A run directory with one attempt, and its record."""
    directory = RunDirectory.new(tmp_path, "m")
    words = "one line \u2028 two \x85 three \u2029 four"
    run = make_run(transcript=({"said": words},), recording=({"request": words},))
    outcome = result("task_a", 0.5, run=run, **changes)
    outcome.record["artifacts"]["workspace_path"] = "/workspace/pinchbench/task_a/1"
    directory.write(outcome)
    return directory, outcome.record


def test_a_conversation_with_line_separators_in_it_is_read_back(tmp_path):
    directory, record = kept(tmp_path)
    work = kept_work(directory, record, reads_workspace=False)
    words = "one line \u2028 two \x85 three \u2029 four"
    assert work.run.transcript == ({"said": words},)
    assert work.run.recording == ({"request": words},)
    assert work.archive is None


def test_work_that_is_not_whole_says_what_is_missing(tmp_path):
    directory, record = kept(tmp_path)
    with pytest.raises(WorkMissing, match=r"the workspace of .*task_a.* was not kept"):
        kept_work(directory, record)
    directory, record = kept(tmp_path)
    (directory.attempt_dir("task_a", 1) / "transcript.jsonl").unlink()
    with pytest.raises(WorkMissing, match=r"task_a/attempt-1 is damaged: .*transcript\.jsonl"):
        kept_work(directory, record, reads_workspace=False)
    part: Any = {"task_id": "task_a", "attempt": 1, "grading_type": "automated"}
    with pytest.raises(WorkMissing, match="is damaged: KeyError: 'artifacts'"):
        kept_work(directory, part)


def test_the_tries_of_a_resumed_attempt_are_counted_once():
    failed = {"issues": [], "usage": Usage(total_tokens=30), "judge_usage": Usage(total_tokens=7)}
    invalid = record("task_a", None, earlier=(failed,))
    again = record("task_a", 1.0, earlier=tuple(previous_attempts(invalid, work_reused=False)))
    assert again["usage"]["total_tokens"] == 120 + 30 + 120
    assert again["judge_usage"]["total_tokens"] == 7
    assert len(again["retried"]) == 2
    run = make_run(usage=Usage(**invalid["usage"]))
    taken_up = record(
        "task_a", 1.0, run=run, earlier=tuple(previous_attempts(invalid, work_reused=True))
    )
    assert taken_up["usage"]["total_tokens"] == 120 + 30


def test_a_leftover_of_a_killed_process_of_the_same_number_is_in_nobodys_way(tmp_path):
    (tmp_path / f".x.json.{os.getpid()}.tmp").write_text("half of")
    write_json(tmp_path / "x.json", {"whole": True})
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_directory_belongs_to_one_running_run(tmp_path):
    first, second = RunDirectory(tmp_path), RunDirectory(tmp_path)
    first.lock()
    with pytest.raises(PinchBenchError, match="belongs to a run that is still going on"):
        second.lock()
    first.finish()
    second.lock()
    second.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_written_stops_the_run_and_is_not_lost(tmp_path, monkeypatch):
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spill))
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    (directory.path / "task_00_hello").write_text("a file where the folder belongs")
    with pytest.raises(ResultsUnwritable, match=r"cannot write .*copy what is in"):
        directory.write(result())
    (written,) = spill.rglob("result.json")
    (directory.path / "task_00_hello").unlink()
    shutil.copytree(written.parents[2], directory.path, dirs_exist_ok=True)
    assert directory.read("task_00_hello", 1)["metrics"]["score"] == 1.0


def test_nothing_else_of_a_run_that_cannot_be_written_ends_in_a_traceback(tmp_path):
    source = RunDirectory(tmp_path / "earlier")
    source.write(result())
    (tmp_path / "file").write_text("a file where a folder belongs")
    target = RunDirectory(tmp_path / "file")
    with pytest.raises(ResultsUnwritable, match=r"cannot write .*file/task_00_hello/attempt-1: "):
        target.copy_from(source, source.read("task_00_hello", 1))
    with pytest.raises(ResultsUnwritable, match=r"run\.json: .*--pinchbench-results-dir"):
        target.write_run(cast(RunDescription, {}))


@pytest.mark.slow
def test_reports_that_cannot_be_written_are_said_and_the_run_is_not_a_success(
    pytester, project, run
):
    runs = pytester.path / "pinchbench-results" / "*" / "*"
    project({"task_a": f"for run in {runs}; do mkdir $run/summary.json; done; echo yes > made.txt"})
    outcome = run()
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED
    outcome.stdout.fnmatch_lines(["*cannot write *summary.json: *", "Mean score  1.000*"])


@pytest.mark.slow
def test_a_run_json_that_cannot_be_written_is_one_line_before_anything_is_paid(
    pytester, project, run
):
    log = pytester.path / "ran.log"
    project({"task_a": f"echo x >> {log}"})
    (pytester.path / "skill" / "conftest.py").write_text(
        "import glob, shutil\n"
        "def pytest_collection_modifyitems():\n"
        "    [shutil.rmtree(one) for one in glob.glob('pinchbench-results/*/*')]\n"
    )
    outcome = run("--confcutdir=skill", "-c", "/dev/null", "skill/tasks")
    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    outcome.stderr.fnmatch_lines(["*ERROR: cannot write *run.json: *"])
    assert not log.exists()
