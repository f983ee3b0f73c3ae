"""Manifests: order, categories and membership of a suite's tasks, and the rules of its runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.settings_of import settings_of

from pytest_pinchbench.issues import SuiteError, TaskFileError
from pytest_pinchbench.suite.load import load_suite, select, suite_digest

FLAT = "tasks: [task_c, task_a]\n"
CATEGORIES = """\
run_first: [task_d]
core: [task_c, task_d]
categories:
  Writing:
  - task_b
  - task_d
  coding:
  - task_c
  empty:
"""

Suite = Callable[[str], Path]


@pytest.fixture
def suite(tmp_path: Path, write_suite: Callable[..., Path]) -> Suite:
    """``suite(manifest)`` writes a checkout of four tasks; without text, without a manifest."""

    def suite(manifest: str) -> Path:
        prompts = ["first", {"prompt": "second", "new_session": True}]
        root = write_suite(
            tmp_path / "skill",
            task_a={"category": "Research", "sessions": prompts},
            task_b={"category": "research"},
            task_c={"category": "notes"},
            task_d={},
        )
        if manifest:
            (root / "tasks" / "manifest.yaml").write_text(manifest)
        return root

    return suite


def test_a_flat_manifest_decides_order_and_membership(suite: Suite) -> None:
    found = load_suite(suite(FLAT))
    assert [(task.id, task.category) for task in found.tasks] == [
        ("task_c", "notes"),
        ("task_a", "Research"),
    ]
    assert [path.name for path in found.left_out] == ["task_b.md", "task_d.md"]


def test_categories_are_those_of_the_manifest_and_run_first_goes_first(suite: Suite) -> None:
    found = load_suite(suite(CATEGORIES))
    assert [(task.id, task.category) for task in found.tasks] == [
        ("task_d", "Writing"),
        ("task_b", "Writing"),
        ("task_c", "coding"),
    ]


def test_a_category_in_two_spellings_is_one(suite: Suite) -> None:
    categories = [task.category for task in load_suite(suite("")).tasks]
    assert categories == ["Research", "Research", "notes", "file_ops"]


@pytest.mark.parametrize(
    ("manifest", "view", "new_session"),
    [("", "reference", False), (FLAT, "full", False), (CATEGORIES, "full", True)],
)
def test_the_form_of_the_manifest_decides_the_rules(
    suite: Suite, manifest: str, view: str, new_session: bool
) -> None:
    for task in load_suite(suite(manifest)).tasks:
        assert (task.rules.judge_view, task.rules.new_session) == (view, new_session)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("coding", "c"),
        ("coding+Writing", "dbc"),
        ("coding, writing", "dbc"),
        ("core", "dc"),
        ("core+Writing", "dbc"),
        ("task_c,task_b", "cb"),
        ("task_c+Writing", "cdb"),
        ("all", "dbc"),
    ],
)
def test_categories_and_core_select(
    pytester: pytest.Pytester, suite: Suite, asked: str, expected: str
) -> None:
    settings = settings_of(pytester, "--pinchbench-model=x", f"--pinchbench-suite={asked}")
    tasks, in_the_way = select(load_suite(suite(CATEGORIES)), settings)
    assert "".join(task.id[-1] for task in tasks) == expected
    assert in_the_way == ()


@pytest.mark.parametrize(
    "option",
    [
        "--pinchbench-suite=Wirting",
        "--pinchbench-suite=task_a",
        '--pinchbench-params={"suite": ["Writing"]}',
    ],
)
def test_a_list_names_exact_ids_and_a_text_known_words(
    pytester: pytest.Pytester, suite: Suite, option: str
) -> None:
    settings = settings_of(pytester, "--pinchbench-model=x", option)
    with pytest.raises(SuiteError, match="not in the suite"):
        select(load_suite(suite(CATEGORIES)), settings)


def test_a_broken_file_is_in_the_way_of_its_category_only(
    pytester: pytest.Pytester, suite: Suite
) -> None:
    root = suite(CATEGORIES)
    (root / "tasks" / "task_c.md").write_text("broken")
    found = load_suite(root)
    for asked, count in (("coding", 1), ("core", 1), ("Writing", 0)):
        settings = settings_of(pytester, "--pinchbench-model=x", f"--pinchbench-suite={asked}")
        assert len(select(found, settings)[1]) == count


def test_a_name_without_a_file_is_an_error_of_the_manifest(suite: Suite) -> None:
    (error,) = load_suite(suite("tasks:\n- task_a\n- task_x\n")).broken
    assert str(error).endswith("manifest.yaml:3: there is no file tasks/task_x.md")


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ("[task_a]", "1: the manifest has to have either categories: or tasks:"),
        (FLAT + CATEGORIES, "1: the manifest has to have either categories: or tasks:"),
        ("tasks: task_a", "1: tasks has to be a list of tasks"),
        ("tasks:\n- 7", "2: 7 cannot be the name of a task"),
        ("categories: [a]", "1: categories has to be a mapping of lists"),
        ("categories:\n a: [task_a]\n b: [task_a]", "3: task_a is in two categories: a and b"),
        ("categories: {a: [task_a]}\ncore: [task_b]", "2: core names task_b, which is in none of"),
        ("tasks: [", "2: not valid YAML"),
    ],
)
def test_a_manifest_that_cannot_be_used_names_its_line(
    suite: Suite, manifest: str, expected: str
) -> None:
    with pytest.raises(TaskFileError) as caught:
        load_suite(suite(manifest))
    assert f"manifest.yaml:{expected}" in str(caught.value)


def test_the_digest_covers_the_manifest_and_nested_files(suite: Suite) -> None:
    digests = {suite_digest(suite("")), suite_digest(suite(FLAT)), suite_digest(suite(CATEGORIES))}
    assert len(digests) == 3
    assets = suite("") / "tasks" / "assets"
    assets.mkdir()
    (assets / "x").touch()
    assert suite_digest(suite("")) not in digests


def collected(pytester: pytest.Pytester, *options: str) -> list[str]:
    result = pytester.runpytest("--pinchbench", "--model=x", "--collect-only", "-q", *options)
    return [line for line in result.outlines if "::" in line]


def test_nested_task_files_are_collected(
    pytester: pytest.Pytester,
    write_suite: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = write_suite(pytester.path.parent / "nested", task_a={}, task_b={}, task_c={}, task_z={})
    tasks = root / "tasks"
    for folder, name in (("x", "task_c.md"), ("x/y", "task_b.md"), ("x", "task_z.md")):
        (tasks / folder).mkdir(exist_ok=True)
        (tasks / name).rename(tasks / folder / name)
    monkeypatch.setenv("PINCHBENCH_SKILL_DIR", str(root))
    everything = [
        "tasks/task_a.md::task_a",
        "tasks/x/task_c.md::task_c",
        "tasks/x/task_z.md::task_z",
        "tasks/x/y/task_b.md::task_b",
    ]
    assert sorted(collected(pytester)) == everything
    assert sorted(collected(pytester, str(tasks / "x"))) == everything[1:]
    assert collected(pytester, str(tasks / "x" / "y" / "task_b.md")) == everything[3:]
    assert collected(pytester, everything[3]) == everything[3:]
    assert collected(pytester, "--deselect", everything[3]) == sorted(collected(pytester))[:3]


def test_a_suite_without_tasks_says_what_it_looked_for(pytester: pytest.Pytester) -> None:
    (pytester.path / "my" / "tasks").mkdir(parents=True)
    (pytester.path / "my" / "tasks" / "hello.md").touch()
    for path in ("my", "my/tasks"):
        result = pytester.runpytest("--pinchbench", "--model=x", "--collect-only", path)
        result.stderr.fnmatch_lines([f"*{path} holds no tasks: there is no*task_[*].md*: hello.md"])
        assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_run_says_its_rules_and_what_it_leaves_out(
    project: Callable[..., Path], run: Callable[..., pytest.RunResult]
) -> None:
    root = project({"task_a": "echo yes >made.txt", "task_b": "true"})
    (root / "tasks" / "manifest.yaml").write_text("tasks: [task_a]\n")
    result = run()
    result.stdout.fnmatch_lines(
        [
            "pinchbench: suite skill, flat manifest: judge view full, new_session off",
            "pinchbench: left out, since the manifest does not name them: task_b.md",
            "*1 of the 1 task of skill",
        ]
    )


def test_a_warning_about_many_files_is_said_once(
    project: Callable[..., Path], run: Callable[..., pytest.RunResult]
) -> None:
    odd = {"colour": "red"}
    project({"task_a": "true", "task_b": "true", "task_c": "true"}, task_a=odd, task_b=odd)
    found = [line for line in run().outlines if "colour" in line]
    assert len(found) == 1
    assert found[0].endswith("it is not acted on (and in 1 more task files)")
