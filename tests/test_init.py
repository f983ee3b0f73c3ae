"""``--pinchbench-init``: a settings file that runs as it is."""

from __future__ import annotations

import pytest
import yaml

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import SCRIPT, load_script

RIGHT = 'test "$MODEL_KEY" = key-of-the-model && echo yes > made.txt'


def test_the_file_that_it_writes_runs_as_it_is(project, pytester, monkeypatch):
    project({"task_00_sanity": RIGHT, "task_01_a": RIGHT})
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("MODEL_API_KEY", "key-of-the-model")
    with ScriptedModel(load_script(SCRIPT), "127.0.0.1", api_key="key-of-the-model") as model:
        with monkeypatch.context() as shell:
            shell.setenv("MODEL_NAME", "lab/m")
            shell.setenv("MODEL_BASE_URL", model.url)
            shell.setenv("DOCKER_HOST", "")
            (pytester.path / "below").mkdir()
            shell.chdir(pytester.path / "below")
            assert pytester.runpytest("--pinchbench-init").ret == 0
        result = pytester.runpytest(
            "--pinchbench", "--pinchbench-env=local", "--pinchbench-relay=no"
        )
    result.assert_outcomes(passed=2)
    header = [
        "pinchbench: model lab/m, environment local",
        "pinchbench: settings in pinchbench.yaml",
    ]
    result.stdout.fnmatch_lines(header)


@pytest.mark.parametrize(
    ("variables", "models"),
    [
        ({}, {"mine": "my-model"}),
        ({"OPENROUTER_API_KEY": "k" * 9}, {"openrouter": "anthropic/claude-opus-4.5"}),
        (
            {"ANTHROPIC_API_KEY": "k" * 9, "OPENAI_API_KEY": "k" * 9},
            {"anthropic": "claude-opus-4-5"},
        ),
        ({"OLLAMA_HOST": "127.0.0.1:11434"}, {"ollama": "qwen3:8b"}),
        ({"MODEL_NAME": "a: b #c", "OPENAI_API_KEY": "k" * 9}, {"default": "a: b #c"}),
    ],
)
def test_the_environment_suggests_the_model(pytester, monkeypatch, variables, models):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert pytester.runpytest("--pinchbench-init").ret == 0
    text = (pytester.path / "pinchbench.yaml").read_text("utf-8")
    document = yaml.safe_load(text)
    assert {name: entry["id"] for name, entry in document["models"].items()} == models
    assert "k" * 9 not in text
    # with every commented entry taken in, the file is still one that can be read
    whole = "\n".join(
        line.replace("# ", "", 1) if ":" in line and line.lstrip().startswith("# ") else line
        for line in text.splitlines()[4:]
        if "--model" not in line and "The judge of" not in line
    )
    assert "mine" in yaml.safe_load(whole)["models"]


def test_a_judge_is_taken_over_without_its_key(pytester, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_NAME", "judge")
    monkeypatch.setenv("JUDGE_MODEL_BASE_URL", "https://judge.example.com/v1")
    monkeypatch.setenv("JUDGE_MODEL_API_KEY", "key-of-the-judge")
    assert pytester.runpytest("--pinchbench-init").ret == 0
    document = yaml.safe_load((pytester.path / "pinchbench.yaml").read_text("utf-8"))
    assert document["benchmarks"]["pinchbench"] == {
        "suite": "all",
        "judge_model": {
            "id": "judge",
            "base_url": "https://judge.example.com/v1",
            "api_key_env": "JUDGE_MODEL_API_KEY",
        },
    }


def test_a_file_that_exists_is_kept(pytester):
    (pytester.path / "pinchbench.yaml").write_text("execution: {}\n")
    result = pytester.runpytest("--pinchbench-init")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*cannot write */pinchbench.yaml: it exists. Remove it*"])
    assert (pytester.path / "pinchbench.yaml").read_text() == "execution: {}\n"
