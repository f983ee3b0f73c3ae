"""pytest's own selection, applied to tasks; what cannot be applied is an error."""

from __future__ import annotations

import pytest
from support.outcomes import assert_no_traceback

RUN = ("--pinchbench", "--model", "x", "--collect-only", "-q")


@pytest.fixture
def suite(pytester, write_suite, monkeypatch):
    """A checkout below the project, and one outside of it with the same tasks."""
    tasks = {"task_a": {}, "task_b": {}, "task_c": {}}
    write_suite(pytester.path.parent / f"{pytester.path.name}-skill", **tasks)
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", "skill")
    pytester.makeini("[pytest]")
    return write_suite(pytester.path / "skill", **tasks)


def ids(result):
    return [line.rpartition("::")[2] for line in result.outlines if "::" in line]


def add_to_conftest(pytester, text):
    conftest = pytester.path / "conftest.py"
    conftest.write_text((conftest.read_text() if conftest.exists() else "") + text)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--ignore=skill/tasks/task_a.md"], ["task_b", "task_c"]),
        (["--ignore={path}/skill/tasks/task_a.md", "skill"], ["task_b", "task_c"]),
        (["--ignore-glob=*/task_[ab].md"], ["task_c"]),
        (["--ignore-glob=*/task_[ab].md", "skill/tasks/task_a.md"], ["task_a"]),
        (["--ignore=tests"], ["task_a", "task_b", "task_c"]),
        (["--deselect", "tasks/task_a.md::task_a"], ["task_b", "task_c"]),
        (["--deselect", "skill/tasks/task_a.md::task_a"], ["task_b", "task_c"]),
        (["--deselect", "./skill/tasks/task_a.md"], ["task_b", "task_c"]),
        (["--deselect={path}/skill/tasks/task_a.md::task_a"], ["task_b", "task_c"]),
        (["--deselect", "skill/tasks/task_a.md::task_b"], ["task_a", "task_b", "task_c"]),
        (["--deselect", "tests/test_a.py::test_a"], ["task_a", "task_b", "task_c"]),
        (["--deselect", "skill"], []),
        (["skill/tasks/task_a.md", "skill/tasks/task_a.md"], ["task_a"]),
        (["--keep-duplicates", "skill", "skill"], ["task_a", "task_b", "task_c"]),
    ],
)
def test_ignored_and_deselected_files_are_left_out(pytester, suite, options, expected):
    given = [option.format(path=pytester.path) for option in options]
    assert ids(pytester.runpytest(*RUN, *given)) == expected


def test_an_attempt_is_deselected_by_its_real_path(pytester, suite):
    given = ["--pinchbench-attempts=2", "--deselect=skill/tasks/task_a.md::task_a[1]"]
    assert ids(pytester.runpytest(*RUN, *given, "-k", "task_a")) == ["task_a[2]"]


def test_an_id_as_printed_below_the_rootdir_is_an_id(pytester, suite, monkeypatch):
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", f"{pytester.path}-skill")
    monkeypatch.chdir(pytester.mkdir("below"))
    printed = "../tasks/task_a.md::task_a"
    assert ids(pytester.runpytest(*RUN, "--deselect", printed)) == ["task_b", "task_c"]
    assert ids(pytester.runpytest(*RUN, printed)) == ["task_a"]


@pytest.mark.parametrize(
    "conftest",
    ["collect_ignore = ['skill/tasks/task_a.md']", "collect_ignore_glob = ['*/task_a.md']"],
)
def test_a_conftest_ignores_files(pytester, suite, conftest):
    pytester.makeconftest(conftest)
    assert ids(pytester.runpytest(*RUN)) == ["task_b", "task_c"]


def test_a_broken_file_that_is_ignored_is_not_in_the_way(pytester, suite):
    (suite / "tasks" / "task_d.md").write_text("no front matter")
    result = pytester.runpytest(*RUN, "--ignore=skill/tasks/task_d.md")
    assert ids(result) == ["task_a", "task_b", "task_c"]


def test_a_task_has_a_module(pytester, suite):
    pytester.makeconftest(
        """
        def pytest_itemcollected(item):
            assert item.module.__file__ == str(item.path)
            print("module:", item.module.__name__, item.function.__name__)
        """
    )
    result = pytester.runpytest(*RUN, "-s")
    result.stdout.fnmatch_lines(["module: task_a check_pass_mark"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--setup-only"], "cannot run tasks with --setup-only: *--setup-plan*"),
        (["-n", "1", "--dist=each"], "cannot run tasks with --dist each: *"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_an_error(pytester, suite, options, words):
    result = pytester.runpytest("--pinchbench", "--model", "x", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])
    assert_no_traceback(result)


def test_a_model_on_the_command_line_takes_the_place_of_the_projects(pytester, suite):
    pytester.makeini("[pytest]\naddopts = --pinchbench-model=theirs")
    assert ids(pytester.runpytest(*RUN)) == ["task_a", "task_b", "task_c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "conftest",
    [
        "def pytest_generate_tests(metafunc):\n"
        "    metafunc.fixturenames.append('round')\n"
        "    metafunc.parametrize('round', [1, 2])\n",
        "import pytest\n"
        "@pytest.fixture(scope='session', params=['one'])\n"
        "def pinchbench_harness(request):\n"
        "    return None\n",
    ],
)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_parametrized_tasks_are_one_error(pytester, suite, conftest, workers):
    pytester.makeconftest(conftest)
    result = pytester.runpytest("--pinchbench", "--model", "x", "-n", workers)
    assert (
        result.ret == {"0": pytest.ExitCode.INTERRUPTED, "1": pytest.ExitCode.TESTS_FAILED}[workers]
    )
    lines = [line for line in result.outlines if line.startswith("cannot parametrize")]
    assert lines[0].startswith("cannot parametrize task_a: ")
    assert len(lines) == 1
    assert_no_traceback(result)


def test_parametrization_of_a_projects_own_tests_is_no_matter(pytester, suite):
    pytester.makeconftest(
        """
        import pytest

        def pytest_generate_tests(metafunc):
            if "animal" in metafunc.fixturenames:
                metafunc.parametrize("animal", ["cat", "dog"])

        @pytest.fixture(autouse=True, params=["asyncio", "trio"])
        def backend(request):
            return request.param
        """
    )
    assert ids(pytester.runpytest(*RUN)) == ["task_a", "task_b", "task_c"]


GOOD = "echo yes > made.txt"
HALF = "echo no > made.txt"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_failed_first_and_last_failed(pytester, project, run, workers):
    project({"task_a": GOOD, "task_b": HALF, "task_c": GOOD})
    assert run().ret == pytest.ExitCode.TESTS_FAILED
    result = run("--ff", "-v", *workers)
    ran = [line for line in result.outlines if "task_" in line and "%]" in line]
    assert ["task_b" in line for line in ran] == [True, False, False]
    result = run("--lf", *workers)
    result.assert_outcomes(failed=1)
    # what was chosen and did not run is missing from the score
    result.stdout.fnmatch_lines(["task_a *missing *", "Mean score  none: 2 not run of 3*"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_chosen_tasks_are_the_run(pytester, project, run, workers):
    project({"task_a": GOOD, "task_b": HALF, "task_c": GOOD})
    result = run("-k", "not task_c", "--deselect=skill/tasks/task_b.md::task_b", *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["task_a * 1.000 *", "Mean score  1.000*"])
    result.stdout.no_fnmatch_line("*not run*")


@pytest.mark.slow
@pytest.mark.parametrize(
    "conftest",
    [
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.skip(reason='not today'))\n",
        "def pytest_collection_modifyitems(items):\n    del items[1:]\n",
        "def pytest_ignore_collect(collection_path):\n"
        "    return collection_path.name == 'task_b.md' or None\n",
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    session.exitstatus = 0\n"
        "def pytest_collection_modifyitems(items):\n    del items[:]\n",
    ],
    ids=["skip", "drop", "ignore", "drop all"],
)
def test_chosen_tasks_without_a_result_are_a_failure(pytester, project, run, conftest):
    project({"task_a": GOOD, "task_b": GOOD})
    add_to_conftest(pytester, f"\n\n{conftest}")
    for options in ((), ("--pinchbench-fail-under=0.1",), ("-n", "1")):
        result = run(*options)
        assert result.ret != 0
        result.stdout.fnmatch_lines(["Mean score  none: * not run of 2 attempts"])


@pytest.mark.slow
def test_stepwise_goes_on_in_the_order_of_the_suite(pytester, project, run):
    pytest.importorskip("pytest_randomly")
    project({"task_a": GOOD, "task_b": HALF, "task_c": GOOD})
    for seed in range(3):
        result = run("--sw", "-p", "randomly", f"--randomly-seed={seed}")
        if seed:
            result.stdout.fnmatch_lines(["*skipping 1 already passed item*"])
        result.stdout.fnmatch_lines(["task_c *missing *"])
