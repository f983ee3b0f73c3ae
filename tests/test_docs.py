"""The documentation tells what is true: commands run, settings are read, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import suites
from support.settings_of import settings_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RIGHT = "echo yes > made.txt"
TASKS = ("task_00_sanity", "task_01_calendar", "task_02_stock", "task_03_blog", "task_04_email")


def blocks(language: str) -> Iterator[pytest.ParameterSet]:
    """Yield what each block needs (empty: nothing beyond a test) and its text."""
    fence = re.compile(rf"(?:<!-- needs: (.*) -->\n)?```{language}\n(.*?)```", re.DOTALL)
    for page in PAGES:
        for number, match in enumerate(fence.finditer(page.read_text("utf-8")), 1):
            name = f"{page.relative_to(ROOT)}:{number}"
            yield pytest.param(match[1] or "", match[2], id=name)


def commands(block: str) -> list[list[str]]:
    text = block.replace("\\\n", " ")
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("needs", "block"), [*blocks("console")])
def test_a_block_of_commands_runs(needs, block, project, pytester, monkeypatch):
    if needs:
        for name, *arguments in commands(block):
            if name == "pytest":  # as far as that goes: its options are known, and can be read
                settings_of(pytester, *arguments, "--collect-only")
        return
    project(dict.fromkeys((*TASKS, "task_07_mine"), RIGHT), task_04_email={"category": "research"})
    (pytester.path / "skill" / "tasks" / "task_07_mine.md").unlink()
    suites.write_suite(pytester.path / "my-skill", task_07_mine={})
    monkeypatch.setenv("MODEL_NAME", "lab/m")
    places = dict(placeholders(block, pytester, commands(block)))
    for name, *arguments in commands(block):
        if name == "export":
            for one in arguments:
                monkeypatch.setenv(*one.split("=", 1))
            continue
        assert name == "pytest", "mark the block: <!-- needs: ... -->"
        given = [places.get(argument, argument) for argument in arguments]
        assert run(pytester, *given) == 0


def run(pytester, *arguments: str) -> int:
    if "-n" in arguments:
        arguments = tuple("2" if one == "4" else one for one in arguments)
    options = ("--pinchbench-env=local", "--pinchbench-model-check=no", "-pno:rerunfailures")
    return int(pytester.runpytest(*arguments, *options).ret)


def placeholders(block: str, pytester, several: list[list[str]]) -> Iterator[tuple[str, str]]:
    """Make the earlier runs that a block goes on from, and yield what stands for them."""
    suite = "--pinchbench-suite"
    parts = {"RUN_DIR_1": TASKS[:2], "RUN_DIR_2": TASKS[2:4]}
    wanted = re.findall(r"\b(RUN_DIR(?:_\d)?|OLD_RUN|OLD|NEW)\b", block)
    for name in dict.fromkeys(wanted):
        tasks = parts.get(name, TASKS)
        results = f"--pinchbench-results-dir={name.lower()}"
        assert run(pytester, "--pinchbench", suite, ",".join(tasks), results) == 0
        (path,) = pytester.path.glob(f"{name.lower()}/*/*")
        yield name, str(path)
    if "latest" in block:
        models = [one for one in several[0] if one.startswith("lab/")]
        given = [part for model in models for part in ("--model", model)]
        assert run(pytester, "--pinchbench", *given) == 0


@pytest.mark.parametrize(("needs", "block"), [*blocks("yaml")])
def test_a_block_of_settings_is_read(needs, block, pytester, monkeypatch):
    document = yaml.safe_load(block)
    if "jobs" in document:
        assert document["jobs"]  # a workflow
        return
    (pytester.path / "pinchbench.yaml").write_text(block, encoding="utf-8")
    settings_of(pytester, "--collect-only")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        assert target.is_file(), link
        assert not heading or heading in headings(target), link


def headings(page: Path) -> set[str]:
    lines = page.read_text("utf-8").splitlines()
    titles = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def test_the_site_is_built_without_a_warning(tmp_path):
    mkdocs = pytest.importorskip("mkdocs.commands.build")
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path / "site"))
    mkdocs.build(config)
    page = (tmp_path / "site" / "reference" / "options" / "index.html").read_text("utf-8")
    assert "<code>task-max-requests</code>" in page
    files = (tmp_path / "site" / "reference" / "files" / "index.html").read_text("utf-8")
    assert "<code>wall_seconds</code>" in files
