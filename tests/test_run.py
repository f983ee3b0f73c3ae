"""A run from pytest's side: outcomes, properties, reports, exit codes. The agent is a shell
script; sandboxes, grader, pytest and xdist are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support.outcomes import assert_no_traceback
from support.suites import task_text
from support.waiting import wait_until

GOOD = "echo yes > made.txt; echo done"
HALF = "echo no > made.txt; echo done"


def records(pytester):
    found = sorted((pytester.path / "pinchbench-results").rglob("result.json"))
    return {json.loads(path.read_text())["task_id"]: json.loads(path.read_text()) for path in found}


def test_a_full_score_passes_a_shortfall_fails_and_a_crash_is_an_error(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF, "task_c": "exit 3"})
    result = run("-v")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["=* PinchBench: lab/m =*", "task *score*"], consecutive=True)
    result.stdout.fnmatch_lines(
        [
            "*::task_a PASSED 1.000*",
            "*::task_b FAILED 0.500*",
            "*::task_c ERROR invalid*",
            "invalid, no score: the agent ended with 3",
            "score 0.500, pass mark 1",
            "  made   1.000",
            "  right  0.000",
            "task_a * 1.000 *",
            "task_b * 0.500 *",
            "task_c * invalid *",
            "FATAL: the agent ended with 3",
            "Mean score  none: 1 invalid of 3 attempts",
            "To go on    the same command with --pinchbench-resume pinchbench-results/lab-m/*",
        ]
    )
    assert_no_traceback(result)
    assert {task: one["metrics"]["score"] for task, one in records(pytester).items()} == {
        "task_a": 1.0,
        "task_b": 0.5,
        "task_c": None,
    }


@pytest.mark.slow
def test_workers_give_the_same_results(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF, "task_c": "exit 3"})
    result = run("-n", "2")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["task_a * 1.000 *", "task_b * 0.500 *", "task_c * invalid *"])
    assert len(records(pytester)) == 3
    (run_json,) = (pytester.path / "pinchbench-results").rglob("run.json")
    assert len(json.loads(run_json.read_text())["selected"]) == 3


def test_a_task_id_in_two_suites_of_one_run_is_an_error(pytester, project, run, write_suite):
    project({"task_a": GOOD})
    one = write_suite(pytester.path / "one", task_a={}, task_b={})
    two = write_suite(pytester.path / "two", task_c={}, task_b={})
    result = run(str(one), str(two))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in result.errlines if "is there twice" in line)
    assert "the id task_b is there twice" in line
    assert "one/tasks/task_b.md and in" in line
    assert "two/tasks/task_b.md" in line


@pytest.mark.slow
def test_workers_find_a_suite_that_lies_elsewhere(
    pytester, project, run, write_suite, tmp_path_factory
):
    project({"task_a": GOOD})
    suite = write_suite(tmp_path_factory.mktemp("cache") / "skill", task_a={})
    result = run("-n", "1", f"--pinchbench-skill-dir={suite}")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_lost_worker_loses_its_item_and_not_the_run(pytester, project, run):
    project({"task_a": GOOD, "task_b": "kill -9 $PINCHBENCH_TEST_VICTIM", "task_c": GOOD})
    pytester.makeconftest(
        (pytester.path / "conftest.py").read_text()
        + "\n\nimport os\n"
        + "@pytest.fixture\n"
        + "def pinchbench_task(pinchbench_task):\n"
        + "    if pinchbench_task.id == 'task_b': os.kill(os.getpid(), 9)\n"
        + "    return pinchbench_task\n"
    )
    result = run("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "task_a * 1.000 *",
            "task_b  missing *",
            "task_c * 1.000 *",
            "NOT RUN: worker 'gw?' crashed*",
            "Mean score  none: 1 not run of 3 attempts",
        ]
    )


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_no_sandbox(pytester, project, run):
    pid = pytester.path / "pid"
    project({"task_a": GOOD, "task_b": f"kill -9 $(cat {pid}); sleep 60"})
    pytester.makeconftest(
        (pytester.path / "conftest.py").read_text()
        + "\n\nimport os, pathlib\n"
        + "@pytest.fixture\n"
        + "def pinchbench_task(pinchbench_task):\n"
        + "    if pinchbench_task.id == 'task_b':\n"
        + f"        pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
        + "    return pinchbench_task\n"
    )
    sandboxes = pytester.path / "sandboxes"
    result = run("-n", "1", f"--pinchbench-workspace-root={sandboxes}")
    result.stdout.fnmatch_lines(["task_a * 1.000 *", "task_b  missing *"])
    assert list(sandboxes.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_session_leaves_a_summary_and_no_sandbox(pytester, project, number):
    log = pytester.path / "ran.log"
    project({"task_a": GOOD, "task_b": f"echo x >> {log}; sleep 60"})
    options = ["--pinchbench", "--model", "lab/m", "--pinchbench-env", "local"]
    options.append(f"--pinchbench-workspace-root={pytester.path / 'sandboxes'}")
    process = pytester.popen([sys.executable, "-m", "pytest", *options])
    try:
        wait_until(log.exists)
        process.send_signal(number)
        assert process.wait(timeout=60) == pytest.ExitCode.INTERRUPTED
    finally:
        process.kill()
        process.wait()
    [summary] = pytester.path.rglob("summary.json")
    assert json.loads(summary.read_text())["attempts"] == {
        "selected": 2,
        "scored": 1,
        "invalid": 0,
        "missing": 1,
    }
    assert list((pytester.path / "sandboxes").iterdir()) == []


@pytest.mark.slow
def test_reports_of_the_ecosystem_have_the_scores(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF})
    run("--junitxml=junit.xml", "--json-report", "--json-report-file=report.json", "-n", "1")
    cases = ElementTree.parse(pytester.path / "junit.xml").getroot().iter("testcase")
    found = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in cases
    }
    assert found["task_b"]["score"] == "0.5"
    assert found["task_b"]["passed"] == "False"
    assert json.loads(found["task_b"]["breakdown"]) == {"made": 1.0, "right": 0.0}
    report = json.loads((pytester.path / "report.json").read_text())
    properties = {}
    for one in report["tests"][0]["user_properties"]:
        properties.update(one)
    assert properties["score"] == 1.0
    assert properties["task_id"] == "task_a"
    assert properties["category"] == "file_ops"
    assert properties["total_tokens"] == 15
    assert "cost_usd" not in properties


def test_a_run_needs_no_pytest_json_report(project, run):
    """Scores, records and the pages come from a run whose pytest-json-report is switched off."""
    project({"task_a": GOOD, "task_b": HALF})
    result = run("-p", "no:pytest_jsonreport")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Mean score  0.750*"])


def test_an_agent_out_of_time_is_graded_on_what_is_there(pytester, project, run):
    for seconds in (1, 10, 100):  # so many that it gets to its sleep
        project({"task_a": f"{GOOD}; sleep 600"}, task_a={"timeout_seconds": seconds})
        result = run()
        record = records(pytester)["task_a"]
        if record["final_answer"]:
            break
    line = f"ERROR: stopped after {seconds} s"
    result.stdout.fnmatch_lines(["task_a * 1.000 *", line])
    assert record["timed_out"] is True
    assert record["seconds"]["run"] < 500


@pytest.mark.slow
def test_the_time_an_agent_has_is_the_tasks_by_the_multiplier(project, run):
    project({"task_a": "sleep 600"}, task_a={"timeout_seconds": 10})
    result = run("--pinchbench-timeout-multiplier", "0.05")
    result.stdout.fnmatch_lines(["ERROR: stopped after 0.5 s"])


@pytest.mark.slow
def test_a_background_writer_is_gone_when_grading_starts(pytester, project, run):
    writer = "until test -e graded; do sleep 0.05; done; echo yes > made.txt"
    project({"task_a": f"setsid sh -c '{writer}' & {HALF}"})
    check = (
        "def grade(transcript, workspace_path):\n"
        "    import time, pathlib\n"
        "    pathlib.Path('graded').touch()\n"
        "    time.sleep(1)\n"
        "    return {'no': float(pathlib.Path('made.txt').read_text() == 'no\\n')}\n"
    )
    (pytester.path / "skill" / "tasks" / "task_a.md").write_text(task_text("task_a", check=check))
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("scripts", "options", "code", "line"),
    [
        ({"task_a": GOOD, "task_b": HALF}, (), 1, "Mean score  0.750*"),
        ({"task_a": GOOD, "task_b": HALF}, ("--pinchbench-fail-under", "0.75"), 0, "*met: mean*"),
        ({"task_a": GOOD, "task_b": HALF}, ("--pinchbench-fail-under", "0.76"), 1, "*not met*"),
        ({"task_a": GOOD, "task_b": HALF}, ("--pinchbench-pass-mark", "0.5"), 0, "Pass rate   50*"),
        ({"task_a": GOOD, "task_b": "exit 1"}, ("--pinchbench-fail-under", "0.1"), 1, "*not met*"),
        ({"task_a": GOOD}, (), 0, "Mean score  1.000"),
        # nothing else is there that it could keep from starting
        ({"task_sanity": "true"}, (), 1, "Mean score  0.000"),
    ],
)
def test_exit_codes(project, run, scripts, options, code, line):
    project(scripts)
    result = run(*options)
    assert result.ret == code
    result.stdout.fnmatch_lines([line])


@pytest.mark.slow
def test_a_retry_gets_a_fresh_sandbox_and_every_try_is_counted(pytester, project, run, tmp_path):
    marker = tmp_path / "tried"
    project({"task_a": f"ls; test -e {marker} || {{ touch {marker} left.txt; exit 1; }}; {GOOD}"})
    result = run("--pinchbench-retries", "1")
    result.assert_outcomes(passed=1)
    record = records(pytester)["task_a"]
    assert record["final_answer"] == "done\n"
    assert record["usage"]["total_tokens"] == 30
    assert record["retried"][0]["issues"][0]["code"] == "agent_exit"


def test_a_missing_asset_is_known_before_anything_is_paid(pytester, project, run):
    project(
        {"task_a": GOOD, "task_b": GOOD},
        task_b={"workspace_files": [{"source": "big.pdf", "dest": "big.pdf"}]},
    )
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*task_b.md:*: source 'big.pdf' cannot be copied: *"])
    assert records(pytester) == {}
    run("--pinchbench-suite", "task_a").assert_outcomes(passed=1)


@pytest.mark.slow
def test_judged_tasks_without_a_judge_are_invalid_and_the_run_says_so_first(project, run):
    project({"task_a": GOOD, "task_b": GOOD}, task_b={"grading_type": "hybrid"})
    result = run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["pinchbench: 1 of 2 tasks need a judge*", "*task_b*", "*--pinchbench-judge-model*"]
    )


@pytest.mark.parametrize("plugin", ["timeout", "rerunfailures", "cov", "randomly"])
def test_plugins_of_the_project_neither_break_nor_bend_a_run(pytester, project, run, plugin):
    module = {"cov": "pytest_cov", "rerunfailures": "pytest_rerunfailures"}
    pytest.importorskip(module.get(plugin, f"pytest_{plugin}"))
    options = {
        "timeout": ["--timeout", "1"],
        "rerunfailures": ["--reruns", "3"],
        "cov": ["--cov", "."],
    }
    project({"task_a": f"sleep 2; echo x >> {pytester.path}/runs; {HALF}"})
    result = run(*options.get(plugin, []))
    result.assert_outcomes(failed=1)
    assert (pytester.path / "runs").read_text() == "x\n"
    assert records(pytester)["task_a"]["metrics"]["score"] == 0.5


def test_a_fixture_of_the_project_can_change_a_task(pytester, project, run):
    project({"task_a": "cat extra.txt > made.txt"})
    conftest = pytester.path / "conftest.py"
    conftest.write_text(
        conftest.read_text() + "\n\n@pytest.fixture\n"
        "def pinchbench_task(pinchbench_task):\n"
        "    import dataclasses\n"
        "    from pytest_pinchbench.suite.task_file import WorkspaceFile\n"
        "    extra = WorkspaceFile('extra.txt', content='yes')\n"
        "    return dataclasses.replace(pinchbench_task, workspace_files=(extra,))\n"
    )
    run().assert_outcomes(passed=1)


def test_autouse_fixtures_of_the_project_are_for_its_own_tests(pytester, project, run):
    project({"task_a": GOOD})
    pytester.makeini("[pytest]\nusefixtures = broken")
    add_to_conftest(
        pytester,
        """
        @pytest.fixture(autouse=True, scope="session")
        def broken():
            raise RuntimeError("a fake file system, say")

        @pytest.fixture(scope="session")
        def server(tmp_path_factory):
            return tmp_path_factory.mktemp("server")

        @pytest.fixture(scope="session")
        def pinchbench_settings(pinchbench_settings, server):
            print(f"\\nrequested: {server.name}")
            return pinchbench_settings

        @pytest.fixture(autouse=True, scope="module")
        def pinchbench_once_a_file(request, server):
            print(f"autouse: {request.module.__name__}")
        """,
    )
    result = run("-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["requested: server0", "autouse: task_a"])


@pytest.mark.slow
def test_xfail_and_skip_are_pytests_own_words(pytester, project, run):
    project({"task_a": HALF, "task_b": GOOD, "task_c": HALF})
    add_to_conftest(
        pytester,
        """
        def pytest_collection_modifyitems(items):
            for item in items:
                if item.name != "task_c":
                    item.add_marker(pytest.mark.xfail)
        """,
    )
    run("-v").assert_outcomes(xfailed=1, xpassed=1, failed=1)


@pytest.mark.slow
def test_a_run_may_be_started_in_a_thread(pytester, project):
    project({"task_a": GOOD})
    options = ["--pinchbench", "--model", "lab/m", "--pinchbench-env", "local"]
    code = (
        "import pytest, threading\n"
        "codes = []\n"
        f"run = threading.Thread(target=lambda: codes.append(pytest.main({options})))\n"
        "run.start(); run.join()\n"
        "raise SystemExit(codes[0])\n"
    )
    assert pytester.run(sys.executable, "-c", code).ret == 0


@pytest.mark.slow
def test_last_failed_runs_what_failed(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF})
    run()
    result = run("--lf")
    result.assert_outcomes(failed=1)


def test_the_key_is_nowhere(pytester, project, run, monkeypatch):
    monkeypatch.setenv("MODEL_API_KEY", "sk-top-secret")
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", "sk-judge-secret")
    project({"task_a": "env; echo sk-top-secret > made.txt; echo sk-top-secret"})
    result = run("--junitxml=junit.xml", "--json-report", "-vv", "--showlocals")
    assert "secret" not in result.stdout.str()
    for path in pytester.path.rglob("*"):
        ours = path.name.startswith("conftest") or "skill" in path.parts  # the agent's script
        if path.is_file() and not ours:
            assert b"sk-top-secret" not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_key_is_not_in_an_unexpected_error(pytester, project, run, monkeypatch, workers):
    monkeypatch.setenv("MODEL_API_KEY", "sk-top-secret")
    project({"task_a": GOOD})
    add_to_conftest(
        pytester,
        """
        @pytest.fixture
        def pinchbench_task(pinchbench_task, pinchbench_settings):
            key = pinchbench_settings.model.api_key
            cut_in_its_middle = "x" * 112 + key + "x" * 200
            print(key)
            raise ZeroDivisionError(f"sent {key}")
        """,
    )
    options = ["-n", workers, "--junitxml=junit.xml", "--json-report"]
    result = run(*options, "-vv", "--showlocals", "-rA")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "E *ZeroDivisionError: sent [[]redacted]",
            "NOT RUN: *ZeroDivisionError: sent [[]redacted]*",
        ]
    )
    assert "sk-top" not in result.stdout.str()
    for name in ("junit.xml", ".report.json"):
        assert "sk-top" not in (pytester.path / name).read_text()
        assert "ZeroDivisionError" in (pytester.path / name).read_text()


def add_to_conftest(pytester, text):
    conftest = pytester.path / "conftest.py"
    conftest.write_text(f"{conftest.read_text()}\n\n{textwrap.dedent(text)}")


@pytest.mark.slow
def test_resuming_runs_only_what_has_no_valid_result(pytester, project, run):
    log = pytester.path / "ran.log"
    note = f"basename $(dirname $PWD) >> {log}; "
    broken = f"{note} test -e {pytester.path}/mended || exit 1; {GOOD}"
    project({"task_a": note + GOOD, "task_b": broken, "task_c": note + HALF})
    run().assert_outcomes(passed=1, failed=1, errors=1)
    (pytester.path / "mended").touch()
    result = run("--pinchbench-resume", "latest", "-n", "1")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*2 of 3 attempts have a valid result*", "Mean score  0.833*"])
    result = run("--pinchbench-resume", "latest")
    assert "the agent acts on this machine" not in result.stdout.str()  # there is none
    assert sorted(log.read_text().split()) == ["task_a", "task_b", "task_b", "task_c"]
    assert len(list((pytester.path / "pinchbench-results").glob("*/*"))) == 1


@pytest.mark.slow
def test_a_bare_resume_goes_on_with_every_attempt_and_task_that_was_selected(
    pytester, project, run
):
    mended = f"test -e {pytester.path}/mended || exit 1; {GOOD}"
    project({"task_a": GOOD, "task_b": mended, "task_c": GOOD})
    run("--pinchbench-attempts", "2", "--pinchbench-limit", "2")
    (pytester.path / "mended").touch()
    result = run("--pinchbench-resume", "latest")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["task_b * 1.00 1.00", "Mean score  1.000*"])
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [("-k", "task_b"), ("-m", "odd"), ("{suite}/tasks/task_b.md",), ("elsewhere",)]
)
@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_resume_goes_on_with_the_tasks_that_were_chosen(pytester, project, run, chosen, workers):
    mended = f"test -e {pytester.path}/mended || exit 1; {GOOD}"
    suite = project(dict.fromkeys(("task_a", "task_b"), mended), task_b={"category": "odd"})
    if chosen == ("elsewhere",):
        shutil.copytree(suite, pytester.path / "elsewhere")
        (pytester.path / "elsewhere" / "tasks" / "task_a.md").unlink()
        chosen = ("elsewhere/tasks",)
    run(*(part.format(suite=suite) for part in chosen), *workers).assert_outcomes(
        errors=1, deselected=int(chosen[0].startswith("-") and not workers)
    )
    (pytester.path / "mended").touch()
    resumed = ("--pinchbench-resume=latest", *workers)
    result = run(*resumed)
    assert result.parseoutcomes().get("passed") == 1
    result.stdout.fnmatch_lines(["task_b *1.000*", "Mean score  1.000*"])
    assert "task_a" not in result.stdout.str()
    result = run(*resumed, "--pinchbench-attempts=2")
    assert result.parseoutcomes().get("passed") == 2
    result = run(*resumed, "--pinchbench-suite=all", str(suite))
    if chosen == ("elsewhere/tasks",):
        result.stderr.fnmatch_lines(["*cannot resume *: settings differ:", "  suite: *"])
    else:
        result.stdout.fnmatch_lines(["task_a* 1.000*"])


@pytest.mark.slow
def test_a_resume_that_leaves_an_attempt_without_result_is_no_success(pytester, project, run):
    broken = f"test -e {pytester.path}/mended || exit 1; {GOOD}"
    project({"task_a": broken, "task_b": broken})
    run()
    (pytester.path / "mended").touch()
    result = run("--pinchbench-resume", "latest", "-k", "task_a")
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["Mean score  none: 1 invalid of 2 attempts"])


@pytest.mark.slow
def test_latest_is_the_newest_run_that_has_a_result(pytester, project, run):
    project({"task_a": GOOD})
    run()
    (whole,) = (pytester.path / "pinchbench-results").glob("*/*")
    empty = whole.with_name("ended-before-its-first-result")
    empty.mkdir()
    (empty / "run.json").write_bytes((whole / "run.json").read_bytes())
    result = run("--pinchbench-resume", "latest")
    result.stdout.fnmatch_lines([f"*resuming *{whole.name}: 1 of 1 attempt has a valid*"])
    result = run("--pinchbench-regrade", "latest", "--pinchbench-compare", "latest")
    result.stdout.fnmatch_lines(["Comparison  *", "* 1.000 -> 1.000, 0.000: no difference found*"])


@pytest.mark.slow
def test_latest_goes_by_the_time_in_run_json_and_not_by_the_files_time(pytester, project, run):
    project({"task_a": GOOD})
    runs = []
    for _ in range(2):
        run()
        runs += set((pytester.path / "pinchbench-results").glob("*/*")) - set(runs)
    os.utime(runs[0] / "run.json")  # as a copy or a checkout does
    run("--pinchbench-resume=latest").stdout.fnmatch_lines([f"*resuming *{runs[1].name}: *"])
    run(f"--pinchbench-resume={runs[0]}")
    run("--pinchbench-resume=latest").stdout.fnmatch_lines([f"*resuming *{runs[0].name}: *"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("-k", "nothing"), pytest.ExitCode.NO_TESTS_COLLECTED),
        (("-k", "nothing", "-n", "1"), pytest.ExitCode.NO_TESTS_COLLECTED),
        (("tasks/task_z.md",), pytest.ExitCode.USAGE_ERROR),
        (("--pinchbench-compare", "nowhere"), pytest.ExitCode.USAGE_ERROR),
        (("--pinchbench-resume", "latest"), pytest.ExitCode.USAGE_ERROR),
    ],
)
def test_a_command_that_selects_nothing_leaves_no_folder(pytester, project, run, options, code):
    project({"task_a": GOOD})
    assert run(*options).ret == code
    assert not (pytester.path / "pinchbench-results").exists()


@pytest.mark.slow
def test_the_wall_time_of_a_run_is_that_of_all_its_sessions(pytester, project, run):
    project({"task_a": GOOD})
    run()
    (path,) = pytester.path.rglob("summary.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "wall_seconds": 7200.0}))
    result = run("--pinchbench-resume", "latest")
    result.stdout.fnmatch_lines(["Wall time   2h00m"])
    assert 7200 < json.loads(path.read_text())["wall_seconds"] < 7260


@pytest.mark.slow
def test_a_damaged_record_is_run_again_and_is_no_part_of_anything_else(pytester, project, run):
    project({"task_a": GOOD, "task_b": GOOD})
    run()
    (old,) = (pytester.path / "pinchbench-results").glob("*/*")
    path = old / "task_a" / "attempt-1" / "result.json"
    path.write_text("{}")
    for option in ("merge", "regrade"):
        result = pytester.runpytest("--pinchbench", f"--pinchbench-{option}", str(old))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{path} is damaged; *--pinchbench-resume {old}"])
    result = run("--pinchbench-resume", "latest")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*task_a/attempt-1/result.json is damaged: *is run again"])
    (old / "run.json").write_text("[]")
    result = run("--pinchbench-resume", str(old))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{old}/run.json is damaged: *"])


def test_another_experiment_is_not_resumed_and_the_difference_is_shown(pytester, project, run):
    root = project({"task_a": GOOD})
    run()
    result = run("--pinchbench-resume", "latest", "--pinchbench-max-tokens", "77")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*cannot resume *: settings differ:", "  max_tokens: 8192 there, 77 here"]
    )
    task = root / "tasks" / "task_a.md"
    task.write_text(task.read_text().replace("Make made.txt", "Create made.txt"))
    result = run("--pinchbench-resume", "latest")
    result.stderr.fnmatch_lines(["*suite: skill in no git repository (digest *) there, skill *"])


def test_a_resume_with_another_recipe_or_a_search_key_is_refused(pytester, project, run):
    project({"task_a": GOOD})
    run()
    (pytester.path / "mine.yaml").write_text("environment: local\nenv: {LEVEL: high}\n")
    result = run("--pinchbench-resume=latest", "--pinchbench-recipe=mine.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['  recipe.variables: [[]] there, [[]"LEVEL"] here'])
    result = run("--pinchbench-resume=latest", "--pinchbench-brave-api-key=sekrit-key")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["  brave_api_key: false there, true here"])


@pytest.mark.slow
def test_a_resume_with_another_release_of_the_agent_is_refused_before_it_is_paid(
    pytester, project, run
):
    log = pytester.path / "ran.log"
    project({"task_a": GOOD, "task_b": f"echo x >> {log}; exit 1"})
    run()
    (path,) = pytester.path.rglob("run.json")
    facts = json.loads(path.read_text())["identity"]
    assert (facts["sandbox.agent"], facts["sandbox.image"]) == ("1.0", None)
    assert facts["sandbox.python"] == platform.python_version()
    conftest = pytester.path / "conftest.py"
    other = conftest.read_text().replace("return ShellAgent", "return OtherRelease")
    conftest.write_text(
        f"{other}\n\nclass OtherRelease(ShellAgent):\n"
        "    def version(self, sandbox):\n        return '2.0'\n"
    )
    for workers in ((), ("-n", "1")):
        result = run("--pinchbench-resume=latest", *workers)
        result.stdout.fnmatch_lines(
            ["*cannot go on with *: settings differ:*", '*sandbox.agent: "1.0" there, "2.0" here*']
        )
        assert log.read_text() == "x\n"


@pytest.mark.slow
def test_a_regrade_grades_kept_work_with_todays_checks_and_runs_no_agent(pytester, project, run):
    log = pytester.path / "ran.log"
    root = project({"task_a": f"echo x >> {log}; {HALF}", "task_b": f"{GOOD}; exit 1"})
    run().assert_outcomes(failed=1, errors=1)
    (old,) = (pytester.path / "pinchbench-results").glob("*/*")
    task = root / "tasks" / "task_a.md"
    task.write_text(task.read_text().replace('"yes" in', '"no" in'))
    result = pytester.runpytest(
        "--pinchbench", "--pinchbench-env", "local", "--pinchbench-regrade", str(old)
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            f"*regrading pinchbench-results/lab-m/{old.name}: the work of its agents is graded *",
            "*PinchBench: lab/m*",
            "*the agent ended with 1*",
        ]
    )
    assert "the agent acts on this machine" not in result.stdout.str()
    assert log.read_text() == "x\n"


@pytest.mark.slow
def test_a_regrade_is_of_the_earlier_runs_model_and_can_be_resumed(pytester, project, run):
    root = project({"task_a": GOOD, "task_b": f"test -e {pytester.path}/mended || exit 1; {GOOD}"})
    run("--pinchbench-max-tokens", "77")
    task = root / "tasks" / "task_a.md"
    task.write_text(task.read_text().replace('"yes" in', '"no" in'))
    options = ("--pinchbench", "--pinchbench-env", "local")
    pytester.runpytest(*options, "--pinchbench-regrade", "latest")
    new = max((pytester.path / "pinchbench-results").glob("*/*"))
    assert json.loads((new / "run.json").read_text())["identity"]["model"] == "lab/m"
    (pytester.path / "mended").touch()
    result = run("--pinchbench-max-tokens", "77", "--pinchbench-resume", str(new))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*1 of 2 attempts have a valid result*"])


@pytest.mark.slow
def test_a_resume_with_another_grading_is_shown_the_way_to_a_regrade(pytester, project, run):
    project({"task_a": GOOD})
    run()
    judge = ("--pinchbench-judge-model=j", "--pinchbench-judge-base-url=http://127.0.0.1:1")
    result = run("--pinchbench-resume", "latest", *judge)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["  judge_model: null there, *", "To grade *--pinchbench-regrade *lab-m*"]
    )
    result = run("--pinchbench-resume", "latest", *judge, "--pinchbench-max-tokens", "77")
    assert "--pinchbench-regrade" not in result.stderr.str()


@pytest.mark.slow
def test_shards_are_merged_to_one_run(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF})
    run("--pinchbench-suite", "task_a")
    run("--pinchbench-suite", "task_b")
    shards = sorted((pytester.path / "pinchbench-results").glob("*/*"))
    merge = [f"--pinchbench-merge={shard}" for shard in shards]
    result = pytester.runpytest("--pinchbench", *merge)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # as of one run: task_b fell short
    result.stdout.fnmatch_lines(["task_a *", "task_b *", "Mean score  0.750*"])
    again = pytester.runpytest("--pinchbench", merge[0], merge[0])
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*has a result in*"])
    stray = pytester.runpytest("--pinchbench", merge[0], str(shards[1]))
    assert stray.ret == pytest.ExitCode.USAGE_ERROR
    stray.stderr.fnmatch_lines([f"*{shards[1]} beside --pinchbench-merge: *again for each*"])


@pytest.mark.slow
def test_a_merge_is_gated_as_one_run(pytester, project, run):
    project({"task_a": GOOD, "task_b": HALF, "task_c": "exit 1"})
    for tasks in ("task_a", "task_b", "task_c"):
        run("--pinchbench-suite", tasks)
    whole, half, broken = sorted((pytester.path / "pinchbench-results").glob("*/*"))

    def merged(*options):
        return pytester.runpytest("--pinchbench", *options)

    two = (f"--pinchbench-merge={whole}", f"--pinchbench-merge={half}")
    result = merged(*two, "--pinchbench-fail-under=0.75")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["Gate        met: mean 0.750 of 2 of the 3 tasks of skill, required 0.75"]
    )
    assert merged(*two, "--pinchbench-fail-under=0.76").ret == pytest.ExitCode.TESTS_FAILED
    result = merged(*two, f"--pinchbench-merge={broken}", "--pinchbench-fail-under=0.1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["Gate        not met: no official mean to hold against 0.1"])
    drop = (f"--pinchbench-compare={whole}", "--pinchbench-compare-fail=0.5")
    result = merged(f"--pinchbench-merge={half}", "--pinchbench-fail-under=0", *drop)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["Comparison  not met: too little to go by against lab/m*"])
    result = run("--pinchbench-resume", "latest", "--pinchbench-env", "local")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_sanity_task_that_scores_nothing_stops_the_run(pytester, project, run, workers):
    project({"task_a": GOOD, "task_b": GOOD, "task_z_sanity": "true"})
    result = run("-n", workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*During handling*")
    result.stdout.fnmatch_lines(
        [
            "To go on * --pinchbench-resume *",
            "            --pinchbench-keep-going, or the sanity task stops it again",
            "!*Interrupted: the sanity task task_z_sanity scored 0*",
        ]
    )
    assert result.parseoutcomes()["failed"] == 1
    assert "error" not in result.parseoutcomes()
    assert "errors" not in result.parseoutcomes()
    assert {task: one["metrics"]["score"] for task, one in records(pytester).items()} == {
        "task_z_sanity": 0.0
    }
    result = run("-n", workers, "--pinchbench-keep-going")
    result.assert_outcomes(passed=2, failed=1)


@pytest.mark.slow
def test_past_the_budget_nothing_more_is_started(pytester, project, run):
    project({"task_a": GOOD, "task_b": GOOD, "task_c": GOOD}, cost=0.3)
    result = run("--pinchbench-budget-usd", "0.5")
    result.stdout.fnmatch_lines(
        [
            "task_c * missing *",
            "To go on    the same command with --pinchbench-resume *",
            "            --pinchbench-budget-usd above $0.6000: it is used up",
            "*the budget of $0.5 is used up: $0.6000 spent*",
        ]
    )
    assert set(records(pytester)) == {"task_a", "task_b"}
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result = run("--pinchbench-resume=latest", "--pinchbench-budget-usd=1")
    result.stdout.fnmatch_lines(["Mean score  1.000*"])
    assert set(records(pytester)) == {"task_a", "task_b", "task_c"}


@pytest.mark.slow
def test_a_regrade_does_not_charge_the_agents_work_to_its_budget(project, run):
    project({"task_a": GOOD, "task_b": GOOD, "task_c": GOOD}, cost=0.3)
    run().assert_outcomes(passed=3)
    result = run("--pinchbench-regrade", "latest", "--pinchbench-budget-usd", "0.1")
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize("cost", [None, 0.3])
def test_a_budget_that_no_price_is_known_for_is_said_once(project, run, cost):
    project({"task_a": GOOD, "task_b": GOOD}, cost=cost)
    result = run("--pinchbench-budget-usd", "9")
    result.assert_outcomes(passed=2)
    said = "no price is known for lab/m: what it costs is not counted, and --pinchbench-budget-usd"
    assert result.stdout.str().count(said) == (1 if cost is None else 0)


@pytest.mark.slow
def test_attempts_are_averaged(pytester, project, run):
    flag = pytester.path / "flag"
    project({"task_a": f"if test -e {flag}; then {HALF}; else touch {flag}; {GOOD}; fi"})
    result = run("--pinchbench-attempts", "2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["task_a *0.750  ±0.354  1.00 0.50", "Mean score  0.750*"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_no_docker_is_one_clear_error_for_the_whole_run(project, run, monkeypatch, workers):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    project({"task_a": GOOD, "task_b": GOOD})
    result = run("--pinchbench-env", "docker", "-n", workers)
    result.stdout.fnmatch_lines(["*--pinchbench-env bubblewrap*"])
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*During handling*")
    assert_no_traceback(result)


def test_the_recipe_is_shown_without_running_anything(pytester):
    result = pytester.runpytest("--pinchbench", "--pinchbench-show-recipe")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*ailabdocker/ac-openclaw:pinchbench-v1*"])


@pytest.mark.parametrize(
    ("recipe", "options", "line"),
    [
        ("docker, options: {cpu: 2}", [], "*mine.yaml:1: *no option 'cpu', did you mean 'cpus'?*"),
        ("local, options: {cpus: 2}", [], "*mine.yaml:1: the local environment has no option*"),
        ("dokcer", [], "ERROR: no environment called 'dokcer', did you mean 'docker'?"),
        ("local", ["--pinchbench-harness", "openclav"], "*did you mean 'openclaw'?"),
    ],
)
@pytest.mark.parametrize("how", ["run", "--collect-only", "--pinchbench-show-recipe"])
def test_a_recipe_that_cannot_be_used_is_one_error(pytester, project, recipe, options, line, how):
    project({"task_a": GOOD})
    pytester.makeconftest("")
    (pytester.path / "mine.yaml").write_text(f"{{environment: {recipe}}}")
    options = ["--pinchbench-recipe", "mine.yaml", *options, *([] if how == "run" else [how])]
    result = pytester.runpytest("--pinchbench", "--model", "lab/m", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])
    assert not (pytester.path / "pinchbench-results").exists()


def test_a_project_with_a_harness_of_its_own_may_call_it_what_it_likes(project, run):
    project({"task_a": GOOD})
    run("--pinchbench-harness", "mine").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_run_killed_in_the_middle_is_resumed_and_ends_as_if_it_had_not_been(
    pytester, project, run
):
    log, gate = pytester.path / "ran.log", pytester.path / "gate"
    wait = f"until test -e {gate}; do sleep 0.05; done"
    project({"task_a": f"echo a >> {log}; {GOOD}", "task_b": f"echo b >> {log}; {wait}; {HALF}"})
    options = ["--pinchbench", "--model", "lab/m", "--pinchbench-env", "local"]
    options += ["--pinchbench-attempts", "2"]
    process = pytester.popen([sys.executable, "-m", "pytest", *options, "-n", "2"])
    try:
        wait_until(lambda: log.exists() and sorted(log.read_text().split()) == ["a", "a", "b"])
        wait_until(lambda: len(list(pytester.path.rglob("result.json"))) == 2)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not running_in(pytester.path))
    gate.touch()
    done = [path.parent.parent.name for path in pytester.path.rglob("result.json")]
    assert done == ["task_a", "task_a"]
    result = run("--pinchbench-attempts", "2", "--pinchbench-resume", "latest")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*2 of 4 attempts have a valid result*", "Mean score  0.750*"])
    assert log.read_text().count("a") == 2


IN_A_WORKER = """
def pytest_collection_finish(session):
    if hasattr(session.config, "workerinput"):
        import ctypes, pathlib
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
        pathlib.Path("ends-with").write_text(str(number.value))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do that")
def test_a_worker_ends_with_its_controller(pytester, project, run):
    project({"task_a": GOOD})
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write(IN_A_WORKER)
    run("-n", "1").assert_outcomes(passed=1)
    assert (pytester.path / "ends-with").read_text() == str(int(signal.SIGTERM))


@pytest.mark.slow
@pytest.mark.parametrize(("given", "chunk"), [([], 1), (["--maxschedchunk=3"], 3)])
def test_workers_get_tasks_one_by_one_unless_they_are_asked_for_otherwise(
    pytester, project, given, chunk
):
    class Spy:
        def pytest_sessionfinish(self, session):
            self.chunk = session.config.option.maxschedchunk

    project({"task_a": GOOD})
    spy = Spy()
    options = ["--pinchbench", "--model=lab/m", "--pinchbench-env=local", "-n1", *given]
    pytester.inline_run(*options, plugins=[spy])
    assert spy.chunk == chunk


def running_in(folder):
    """Other processes whose working directory is below ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (process / "cwd").readlink().is_relative_to(folder)
            if inside and process.name != str(os.getpid()):
                found.append(process.name)
    return found


def test_the_page_of_all_runs_is_written_anew_and_opened(pytester, project, run, monkeypatch):
    opened = pytester.path / "opened"
    browser = pytester.path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {opened}\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    project({"task_a": GOOD})
    assert run().ret == 0
    page = pytester.path / "pinchbench-results" / "index.html"
    assert "lab/m" in page.read_text()
    for where in ((), ("pinchbench-results",)):
        page.unlink()
        opened.unlink(missing_ok=True)
        result = run("--pinchbench-view", *where)
        assert result.ret == 0
        assert result.outlines == [page.as_uri()]
        assert opened.read_text().strip() == page.as_uri()
        assert "lab/m" in page.read_text()
    result = run("--pinchbench-view", "nowhere")
    result.stderr.fnmatch_lines(
        ["ERROR: cannot show the runs in *nowhere: there is no such folder"]
    )
