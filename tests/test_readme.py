"""The README is short, and shows what the demo prints. What it links to: test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_demo import SCORES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


@pytest.mark.parametrize(
    "page", [README, ROOT / "docs" / "tutorial.md"], ids=lambda page: page.name
)
def test_the_summary_that_a_page_shows_has_the_demos_scores(page):
    text = page.read_text("utf-8")
    shown = dict(re.findall(r"^(task_\w+) +(\d\.\d{3})  +[\d.]+s", text, re.MULTILINE))
    assert shown == {task: f"{score:.3f}" for task, score in SCORES.items()}


def test_the_readme_is_short_and_begins_with_the_two_commands():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 150
    first, second = re.findall(r"^## .*?```console\n(.*?)```", text, re.DOTALL | re.MULTILINE)[:2]
    assert first.endswith("$ python -m pip install tox && python -m tox -e demo\n")
    assert second == "$ python -m tox\n"
