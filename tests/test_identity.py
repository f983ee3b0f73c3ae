"""A run's identity: what a score depends on, and what two runs must agree in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.records import result
from support.settings_of import settings_of
from support.suites import write_suite

from pytest_pinchbench import options
from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.options import OPTIONS, Option
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.earlier_runs import merge_runs
from pytest_pinchbench.results.identity import GRADING, check_same_experiment, identity_of, regraded
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import read_summary
from pytest_pinchbench.settings import Settings

pytest_plugins = ("pytester",)

BASE = {
    "model": "m",
    "model-base-url": "http://model/v1",
    "judge-model": "j",
    "judge-base-url": "http://judge/v1",
    "judge-api-protocol": "openai-chat",
    "evaluation-timeout": "100",
}

OTHER = {
    "suite": "task_a",
    "limit": "1",
    "sample-ids": "task_a",
    "skill-dir": "elsewhere",
    "skill-repo-url": "https://example.com/other.git",
    "skill-repo-tag": "v9",
    "list": "json",
    "thinking": "high",
    "openclaw-mode": "gateway",
    "skills": "elsewhere",
    "export": "csv=attempts.csv",
    "check": "yes",
    "view": "elsewhere",
    "data-dir": "elsewhere",
    "params": '{"timeout_multiplier": 2}',
    "config": "other.yaml",
    "model": "other",
    "model-base-url": "http://other/v1",
    "model-api-key": "other-key",
    "model-api-key-env": "OTHER_KEY",
    "model-api-protocol": "anthropic",
    "model-params": '{"temperature": 1}',
    "model-compat": '{"drop": ["store"]}',
    "model-price": '{"input": 1}',
    "relay": "no",
    "model-patience": "7",
    "model-concurrency": "7",
    "task-max-requests": "7",
    "record": "yes",
    "replay": "elsewhere",
    "context-window": "1000",
    "max-tokens": "77",
    "judge-model": "other",
    "judge-base-url": "http://other/v1",
    "judge-api-key": "other-key",
    "judge-api-key-env": "OTHER_KEY",
    "judge-api-protocol": "anthropic",
    "judge-params": '{"temperature": 1}',
    "judge-timeout": "7",
    "grade-in": "same",
    "transcript-limit": "7000",
    "judge-view": "full",
    "env": "local",
    "recipe": "other-recipe.yaml",
    "image": "other",
    "workspace-root": "/other",
    "keep-environment": "yes",
    "show-recipe": "yes",
    "harness": "other",
    "openclaw-version": "2026.9.6",
    "openclaw-install": "upload",
    "openclaw-binary": "/other/openclaw",
    "skip-bootstrap": "yes",
    "new-session": "yes",
    "brave-api-key": "other-key",
    "attempts": "3",
    "retries": "3",
    "timeout-multiplier": "2",
    "evaluation-timeout": "7",
    "evaluation-timeout-multiplier": "2",
    "check-timeout": "7",
    "model-check": "no",
    "judge-check": "no",
    "keep-going": "yes",
    "budget-usd": "7",
    "results-dir": "elsewhere",
    "keep-workspace": "no",
    "resume": "elsewhere",
    "regrade": "elsewhere",
    "merge": "elsewhere",
    "compare": "elsewhere",
    "compare-fail": "0.5",
    "fail-under": "0.5",
    "pass-mark": "0.5",
}
"""For every option a value that is not its default."""

SHOWN = {
    "env": {"env", "image"},
    "recipe": {"recipe.options.shm_size"},
    "params": {"timeout_multiplier"},
    "config": {"max_tokens"},
    "evaluation-timeout-multiplier": {"evaluation_timeout"},
}
"""What an option changes where that is more or other than the value of its own name."""

by_name = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


@pytest.fixture
def settings_with(pytester: pytest.Pytester) -> Callable[..., Settings]:
    (pytester.path / "other.yaml").write_text(
        "execution: {}\nharnesses: {openclaw: {max_tokens: 7}}"
    )
    recipe = (Path(__file__).parents[1] / "recipes" / "docker.yaml").read_text(encoding="utf-8")
    (pytester.path / "other-recipe.yaml").write_text(f"{recipe}\n  shm_size: 1g\n  max_open: 2\n")

    def settings(**changes: str) -> Settings:
        given = {**BASE, **changes}
        if "compare-fail" in given:
            given["compare"] = "elsewhere"
        options = (f"--pinchbench-{key}={value}" for key, value in given.items())
        return settings_of(pytester, *options, environ={"OTHER_KEY": "other-key"})

    return settings


@pytest.fixture
def identity_with(
    settings_with: Callable[..., Settings], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    suite = write_suite(tmp_path / "skill", task_a={})

    def identity(**changes: str) -> dict[str, Any]:
        return identity_of(settings_with(**changes), [suite])

    return identity


def run_json(identity: dict[str, Any]) -> Any:
    return {
        "run_id": "r",
        "started_at": "2026-02-17T10:00:00.000+00:00",
        "model": "m",
        "identity": identity,
        "settings": {"suite": "all", "limit": 0, "sample_ids": [], "attempts": 1},
        "suites": {"skill": None},
        "selected": [{"task_id": "task_a", "attempt": 1}],
        "versions": {},
    }


def write_run(folder: Path, identity: dict[str, Any], task_id: str) -> Path:
    directory = RunDirectory(folder)
    directory.write(result(task_id))
    directory.write_run(run_json(identity))
    return folder


def changed(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in {**one, **other} if one.get(name) != other.get(name)}


def test_every_option_has_another_value_here() -> None:
    assert set(OTHER) == {option.name for option in OPTIONS}


def test_an_option_cannot_be_made_without_a_decision_on_what_it_affects() -> None:
    with pytest.raises(TypeError, match="affects"):
        Option("new", read=options.readers.text, help="x")  # type: ignore[call-arg]
    assert {option.affects for option in OPTIONS} == {"agent", "grading", ""}


@by_name
def test_an_option_is_part_of_the_identity_by_what_it_affects(
    option: Option, identity_with: Callable[..., dict[str, Any]]
) -> None:
    found = changed(identity_with(), identity_with(**{option.name: OTHER[option.name]}))
    if option.name == "env":  # what its own recipe says
        found = {name for name in found if not name.startswith("recipe.")}
    assert found == SHOWN.get(option.name, {option.key} if option.affects else set())
    if option.affects:
        assert (found <= set(GRADING)) == (option.affects == "grading")


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.affects], ids=lambda option: option.name
)
def test_resume_and_merge_refuse_what_differs_and_a_comparison_notes_it(
    option: Option, identity_with: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    old, new = identity_with(), identity_with(**{option.name: OTHER[option.name]})
    names = changed(old, new)
    assert names
    with pytest.raises(PinchBenchError, match="cannot resume R: settings differ:") as refused:
        check_same_experiment("resume R", run_json(old), run_json(new))
    paths = [write_run(tmp_path / "1", old, "task_a"), write_run(tmp_path / "2", new, "task_b")]
    with pytest.raises(PinchBenchError, match=r"cannot merge .*: settings differ:") as unmerged:
        merge_runs(paths, tmp_path / "merged")
    notes = "\n".join(compare(*map(read_summary, paths)).notes)
    for name in names:
        for message in (str(refused.value), str(unmerged.value)):
            assert f"\n  {name}: {json.dumps(old.get(name))} there, " in message
        assert name == "model" or f"the runs differ in {name}: " in notes


def test_runs_with_the_same_settings_are_merged_and_compared_without_a_note(
    identity_with: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    paths = [write_run(tmp_path / name, identity_with(), f"task_{name}") for name in "ab"]
    _, records = merge_runs(paths, tmp_path / "merged")
    assert [record["task_id"] for record in records] == ["task_a", "task_b"]
    again = write_run(tmp_path / "again", identity_with(), "task_a")
    assert compare(read_summary(paths[0]), read_summary(again)).notes == ()


def test_a_recipes_contents_count_and_not_its_name_or_its_limits_of_this_machine(
    identity_with: Callable[..., dict[str, Any]], pytester: pytest.Pytester
) -> None:
    text = (pytester.path / "other-recipe.yaml").read_text()
    for number, changes in enumerate(("", "\n  max_open: 9", "\n  pull: always")):
        copy = text.replace("\n  max_open: 2", changes)
        (pytester.path / f"copy-{number}.yaml").write_text(copy)
    found = [identity_with(recipe=f"copy-{number}.yaml") for number in range(3)]
    assert found[0] == found[1] == found[2]
    variables = text.replace("env: {}", "env: {LEVEL: 1, API_KEY: sekrit-1}")
    (pytester.path / "variables.yaml").write_text(variables)
    with_variables = identity_with(recipe="variables.yaml")
    assert with_variables["recipe.variables"] == ["API_KEY", "LEVEL"]
    assert "sekrit" not in json.dumps(with_variables)


def test_the_suites_contents_the_grader_and_this_projects_version_count(
    identity_with: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    first = identity_with()
    (tmp_path / "skill" / "assets" / "more.txt").write_text("x")
    second = identity_with()
    assert changed(first, second) == {"suite"}
    assert len(first["grader"]) == 64
    assert first["pytest-pinchbench"].count(".") == 1


def test_a_regrade_has_the_earlier_work_and_todays_grading(
    identity_with: Callable[..., dict[str, Any]],
) -> None:
    earlier, today = identity_with(), identity_with(**{"judge-model": "k", "max-tokens": "7"})
    found = regraded(earlier, today)
    assert (found["judge_model"], found["max_tokens"]) == ("k", 8192)
    check_same_experiment("resume R", run_json(found), run_json(regraded(found, found)))
    with pytest.raises(PinchBenchError, match="\nregrade it"):
        check_same_experiment("resume R", run_json(earlier), run_json(found), "regrade it")
    with pytest.raises(PinchBenchError) as refused:
        check_same_experiment("resume R", run_json(earlier), run_json(today), "regrade it")
    assert "regrade it" not in str(refused.value)


def test_what_another_harness_is_given_counts(
    identity_with: Callable[..., dict[str, Any]], pytester: pytest.Pytester
) -> None:
    def identity(level: int) -> dict[str, Any]:
        (pytester.path / "other.yaml").write_text(f"harnesses: {{mine: {{level: {level}}}}}")
        return identity_with(config="other.yaml", harness="mine")

    assert changed(identity(1), identity(2)) == {"harness_settings.level"}


FACTS = {
    "sandbox.agent": "2026.9.6",
    "sandbox.image": "sha256:1",
    "sandbox.python": "3.11.7",
    "sandbox.user": "root",
}


@pytest.mark.parametrize(
    ("old", "new", "refused", "noted"),
    [
        ({}, {}, None, None),
        ({}, {"sandbox.agent": "2026.3.22"}, "sandbox.agent", "sandbox.agent"),
        ({}, {"sandbox.python": "3.8.1"}, "sandbox.python", "sandbox.python"),
        ({}, {"sandbox.user": "user"}, "sandbox.user", "sandbox.user"),
        ({}, {"sandbox.image": "sha256:2"}, "sandbox.image", "sandbox.image"),
        ({}, {"sandbox.image": "local sha256:3"}, "sandbox.image", "sandbox.image"),
        # images that two jobs of a CI system have built
        (
            {"sandbox.image": "local sha256:3"},
            {"sandbox.image": "local sha256:4"},
            None,
            "sandbox.image",
        ),
        (
            {"sandbox.image": "local sha256:3", "sandbox.python": "3.8.1"},
            {"sandbox.image": "local sha256:4"},
            "sandbox.python",
            "sandbox.python",
        ),
        # another name of the same image
        ({"image": "pb:1"}, {"image": "mirror/pb:1"}, None, None),
        ({"image": "pb:1", "sandbox.image": None}, {"image": "pb:2"}, "image", "image"),
        # a run that ended before its first sandbox
        ({}, dict.fromkeys(FACTS), None, None),
    ],
)
def test_what_is_known_in_the_sandbox_only_counts_once_it_is_known(
    old: dict[str, Any], new: dict[str, Any], refused: str | None, noted: str | None, tmp_path: Path
) -> None:
    runs = [{"model": "m", **FACTS, **old}, {"model": "m", **FACTS, **new}]
    try:
        check_same_experiment("resume R", *map(run_json, runs))
        message = ""
    except PinchBenchError as error:
        message = str(error)
    assert (f"\n  {refused}: " in message) if refused else not message
    paths = [write_run(tmp_path / str(n), run, "task_a") for n, run in enumerate(runs)]
    notes = "\n".join(compare(*map(read_summary, paths)).notes)
    assert (f"the runs differ in {noted}: " in notes) if noted else not notes


def test_skills_are_part_of_the_identity_by_their_contents(
    identity_with: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    skills = [tmp_path / name / "x" / "SKILL.md" for name in ("a", "b", "c")]
    for path in skills:
        path.parent.mkdir(parents=True)
        path.write_text("same")
    skills[2].write_text("another")
    one, same, other = (identity_with(skills=str(path.parent.parent)) for path in skills)
    assert changed(one, same) == set()
    assert changed(one, other) == {"skills"}
