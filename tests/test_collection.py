"""What `pytest --pinchbench` collects, and in which order."""

from __future__ import annotations

import os

import pytest
from support.outcomes import assert_no_traceback

RUN = ("--pinchbench", "--model", "x", "--collect-only", "-q")


@pytest.fixture
def suite(pytester, write_suite, monkeypatch):
    """A checkout outside the project, as a cache would be."""
    root = write_suite(
        pytester.path.parent / f"{pytester.path.name}-skill",
        task_a={"category": "writing"},
        task_b={"category": "memory", "grading_type": "llm_judge"},
        task_c={"category": "writing"},
    )
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(root))
    return root


def ids(result):
    return [line.rpartition("::")[2] for line in result.outlines if "::" in line]


def test_with_no_path_the_suite_is_collected_and_the_projects_tests_are_not(pytester, suite):
    pytester.makepyfile("def test_of_the_project(): pass")
    result = pytester.runpytest(*RUN)
    assert [line for line in result.outlines if "::" in line] == [
        "tasks/task_a.md::task_a",
        "tasks/task_b.md::task_b",
        "tasks/task_c.md::task_c",
    ]


def test_without_the_option_no_task_is_collected(pytester, suite):
    pytester.makepyfile("def test_of_the_project(): pass")
    result = pytester.runpytest("--collect-only", "-q")
    assert ids(result) == ["test_of_the_project"]


def test_a_list_of_ids_keeps_its_order_and_drops_doubles(pytester, suite):
    result = pytester.runpytest(*RUN, "--pinchbench-suite", "task_c,task_a,task_c")
    assert ids(result) == ["task_c", "task_a"]


def test_a_plugin_that_shuffles_tests_does_not_change_the_order(pytester, suite):
    pytest.importorskip("pytest_randomly")
    for seed in range(3):
        result = pytester.runpytest(*RUN, f"--randomly-seed={seed}")
        assert ids(result) == ["task_a", "task_b", "task_c"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-k", "task_b"], ["task_b"]),
        (["-m", "writing"], ["task_a", "task_c"]),
        (["-m", "automated and not writing"], []),
        (["-m", "llm_judge"], ["task_b"]),
        (["--deselect", "tasks/task_a.md::task_a"], ["task_b", "task_c"]),
        (["tasks/task_b.md::task_b"], ["task_b"]),
        (["tasks/task_c.md", "tasks/task_a.md"], ["task_c", "task_a"]),
        (["--pinchbench-suite", "automated-only"], ["task_a", "task_c"]),
        (["--pinchbench-limit", "2"], ["task_a", "task_b"]),
        (["--pinchbench-sample-ids", "task_b"], ["task_b"]),
    ],
)
def test_selecting(pytester, suite, options, expected):
    assert ids(pytester.runpytest(*RUN, "--strict-markers", *options)) == expected


def test_a_path_selects_the_task_files_there(pytester, suite, write_suite):
    write_suite(pytester.path / "evals", task_own={})
    pytester.makepyfile(**{"evals/test_something": "def test_of_the_project(): pass"})
    result = pytester.runpytest(*RUN, "evals")
    assert result.outlines[0] == "evals/tasks/task_own.md::task_own"
    assert ids(result) == ["task_own"]


def test_node_ids_are_the_same_wherever_the_suite_lies(pytester, write_suite, monkeypatch):
    write_suite(pytester.path / "deep" / "skill", task_a={})
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", "deep/skill")
    for argument in ([], ["deep/skill/tasks"], ["tasks/task_a.md::task_a"]):
        result = pytester.runpytest(*RUN, *argument)
        assert "tasks/task_a.md::task_a" in result.outlines


def test_attempts_are_items_of_their_own(pytester, suite):
    result = pytester.runpytest(*RUN, "--pinchbench-attempts", "2", "tasks/task_a.md")
    assert ids(result) == ["task_a[1]", "task_a[2]"]
    result = pytester.runpytest(*RUN, "--pinchbench-attempts", "2", "tasks/task_a.md::task_a[2]")
    assert ids(result) == ["task_a[2]"]


def test_an_unknown_id_fails_at_once_and_names_the_nearest(pytester, suite):
    result = pytester.runpytest(*RUN, "--pinchbench-suite", "task_bb")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: not in the suite *: task_bb*task_b*"])


def test_a_broken_file_is_an_error_with_file_and_line_before_anything_runs(pytester, suite):
    broken = suite / "tasks" / "task_d.md"
    broken.write_text("---\nid: task_d\nname: [\n---\n")
    result = pytester.runpytest("--pinchbench", "--model", "x")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*{broken}:*"])
    assert_no_traceback(result)


def test_a_broken_file_does_not_stand_in_the_way_of_other_tasks(pytester, suite):
    (suite / "tasks" / "task_d.md").write_text("no front matter")
    result = pytester.runpytest(*RUN, "--pinchbench-suite", "task_a")
    assert ids(result) == ["task_a"]


def test_an_id_twice_names_both_files(pytester, suite, write_suite):
    text = (suite / "tasks" / "task_a.md").read_text()
    (suite / "tasks" / "task_z.md").write_text(text)
    result = pytester.runpytest(*RUN)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*task_a.md*task_z.md*"])


def test_without_a_model_the_error_says_how_to_name_one(pytester, suite, monkeypatch):
    monkeypatch.delenv("MODEL_NAME", raising=False)
    result = pytester.runpytest("--pinchbench")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--model*"])


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--help", "*--pinchbench-suite=SUITE*"),
        ("--markers", "@pytest.mark.parametrize*"),
        ("--cache-show", "cachedir: *"),
        ("--fixtures", "pinchbench_task*"),
        ("--fixtures-per-test", "pinchbench_result*"),
        ("--setup-plan", "*SETUP    F pinchbench_result*"),
    ],
)
def test_what_runs_no_task_needs_no_model(pytester, suite, monkeypatch, option, line):
    monkeypatch.delenv("MODEL_NAME", raising=False)
    result = pytester.runpytest("--pinchbench", option)
    assert result.ret == 0
    result.stdout.fnmatch_lines([line])
    assert not (pytester.path / "pinchbench-results").exists()


def test_a_category_named_like_a_marker_of_pytest_sets_nothing_off(pytester, suite, write_suite):
    write_suite(suite, task_e={"category": "skip"})
    result = pytester.runpytest(*RUN, "-m", "pinchbench_skip")
    assert ids(result) == ["task_e"]


@pytest.mark.parametrize(
    ("category", "marker"),
    [
        ("_private", "private"),
        ("a:b", "a_b"),
        ("C++ (hard)", "C_hard"),
        ("!", "pinchbench_"),
        ("not", "pinchbench_not"),
    ],
)
def test_a_category_that_is_no_name_has_a_marker_all_the_same(
    pytester, suite, write_suite, category, marker
):
    write_suite(suite, task_e={"category": category})
    result = pytester.runpytest(*RUN, "--strict-markers", "-m", marker)
    assert ids(result) == ["task_e"]


def test_a_folder_that_cannot_be_read_beside_the_suite_is_no_matter(
    pytester, write_suite, monkeypatch
):
    write_suite(pytester.path / "skill", task_a={})
    locked = str(pytester.mkdir("locked"))
    listdir, scandir = os.listdir, os.scandir

    def refuse(call):
        def listing(path="."):
            if str(path) == locked:
                raise PermissionError(13, "Permission denied", locked)
            return call(path)

        return listing

    monkeypatch.setattr(os, "listdir", refuse(listdir))
    monkeypatch.setattr(os, "scandir", refuse(scandir))
    assert ids(pytester.runpytest_inprocess(*RUN, "skill/tasks")) == ["task_a"]


@pytest.mark.parametrize("path", ["drafts", "drafts/task_b.md", "drafts/task_b.md::task_b"])
def test_task_files_of_another_folder_than_tasks_are_refused(pytester, write_suite, path):
    root = write_suite(pytester.path / "repo", task_a={}, task_b={})
    (root / "drafts").mkdir()
    (root / "tasks" / "task_b.md").rename(root / "drafts" / "task_b.md")
    result = pytester.runpytest(*RUN, f"repo/{path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *drafts holds task files, but is not called tasks*"])
    assert ids(pytester.runpytest(*RUN, "repo")) == ["task_a"]


def test_what_others_make_of_files_is_no_part_of_a_run(pytester, write_suite):
    write_suite(pytester.path / "skill", task_a={})
    pytester.maketxtfile(**{"skill/README": ">>> 1 + 1\n2\n"})
    assert ids(pytester.runpytest("--collect-only", "-q", "--doctest-glob=*.txt")) == ["README.txt"]
    result = pytester.runpytest(*RUN, "--doctest-glob=*.txt", "skill")
    assert ids(result) == ["task_a"]


def test_a_path_in_addopts_is_not_one_to_run(pytester, suite):
    pytester.makeini("[pytest]\naddopts = -ra tests")
    pytester.mkdir("tests")
    assert ids(pytester.runpytest(*RUN)) == ["task_a", "task_b", "task_c"]
    assert ids(pytester.runpytest(*RUN, "tasks/task_b.md")) == ["task_b"]


def test_a_node_id_is_an_argument_below_the_rootdir_too(pytester, write_suite, monkeypatch):
    write_suite(pytester.path / "evals", task_a={}, task_b={})
    pytester.makeini("[pytest]")
    monkeypatch.chdir(pytester.mkdir("below"))
    result = pytester.runpytest(*RUN, "evals/tasks/task_b.md::task_b")
    assert "evals/tasks/task_b.md::task_b" in result.outlines
    assert ids(result) == ["task_b"]


def test_a_projects_own_model_option_goes_on_working(pytester, suite):
    pytester.makeconftest(
        "def pytest_addoption(parser):\n    parser.addoption('--model', default='theirs')\n"
    )
    pytester.makepyfile(
        "def test_theirs(request): assert request.config.getoption('--model') == 'mine'"
    )
    pytester.runpytest("--model", "mine").assert_outcomes(passed=1)
    result = pytester.runpytest("--pinchbench", "--pinchbench-model", "x", "--collect-only", "-q")
    assert ids(result) == ["task_a", "task_b", "task_c"]


def test_collecting_leaves_nothing_behind(pytester, suite):
    pytester.runpytest(*RUN)
    assert not (pytester.path / "pinchbench-results").exists()


def test_hostile_file_names_are_printed_without_effect(pytester, project, run):
    suite = project({"task_a": "echo yes > made.txt"})
    text = (suite / "tasks" / "task_a.md").read_text()
    for name in ("task_\x1b[31m.md", "task_x\n::error::boom.md", "task_\u202eb.md"):
        (suite / "tasks" / name).write_text(text)
    (suite / "tasks" / b"task_\xff.md".decode(errors="surrogateescape")).write_text(text)
    result = run("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    shown = result.stdout.str() + result.stderr.str()
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert not any(line.startswith("::error") for line in shown.splitlines())
    assert shown.count("its name holds a control character, or '::'") == 4
    run("--collect-only", "-q", "--pinchbench-suite", "task_a").assert_outcomes()


def test_an_unknown_key_is_said_once_before_the_run(pytester, project, run):
    project({"task_a": "echo yes > made.txt"}, task_a={"time_out_seconds": 5})
    result = run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["pinchbench: *task_a.md:*: *time_out_seconds*, did you mean *timeout_seconds*"]
    )
