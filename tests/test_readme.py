"""The README tells what is true."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from test_demo import SCORES

from pytest_pinchbench.options import OPTIONS

README = Path(__file__).parent.parent / "README.md"


def options_table() -> str:
    """The options as the README shows them, from the table that they are made from."""
    lines = ["| `--pinchbench-...` | environment variable | default | affects | |"]
    lines.append("|---|---|---|---|---|")
    for group, options in itertools.groupby(OPTIONS, lambda option: option.group):
        lines.append(f"| **{group}** | | | | |")
        for option in options:
            variables = ", ".join(f"`{name}`" for name in option.env)
            default = "" if option.default is None else f"`{option.default}`"
            cells = [f"`{option.name}`", variables, default, option.affects, option.help]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_every_option_stands_in_the_readme_as_it_is():
    assert options_table() in README.read_text(encoding="utf-8")


def test_the_summary_that_it_shows_has_the_demos_scores():
    text = README.read_text(encoding="utf-8")
    shown = dict(re.findall(r"^(task_\w+) +(\d\.\d{3})  +[\d.]+s", text, re.MULTILINE))
    assert shown == {task: f"{score:.3f}" for task, score in SCORES.items()}


def test_every_link_leads_somewhere_from_any_page_that_shows_the_readme():
    text = README.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    links = re.findall(r"\]\(([^)]+)\)", text)
    relative = {link for link in links if "://" not in link}
    assert relative <= {f"#{heading}" for heading in headings}
