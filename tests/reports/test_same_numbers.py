"""Random runs: each number is the same string wherever it stands, and equals an independent
recomputation from the scores.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from runs import write_run

from pytest_pinchbench.reports import files
from pytest_pinchbench.reports.json_report import add_scores
from pytest_pinchbench.reports.junit import suite_properties
from pytest_pinchbench.reports.terminal import summary_lines
from pytest_pinchbench.reports.text import headline
from pytest_pinchbench.results.summary import read_summary


def shown(value: float) -> str:
    return f"{value:.3f}" if value in (0, 1) else f"{min(max(value, 0.001), 0.999):.3f}"


@pytest.mark.parametrize("seed", range(30))
def test_every_number_is_the_same_everywhere(tmp_path, seed):
    check_numbers(tmp_path, seed)


def check_numbers(folder: Path, seed: int) -> None:
    """Write a random run into the folder, and look for its numbers in all that is made of it."""
    generator = random.Random(seed)
    attempts = generator.choice([1, 3])
    values = [0.0, 1.0, 0.9996, 0.0004, generator.random(), generator.random()]
    bad = [None, float("nan")] if generator.random() < 0.5 else []
    scores = {
        f"task_{n:02}": [generator.choice([*values * 3, *bad]) for _ in range(attempts)]
        for n in range(generator.randint(1, 12))
    }
    cost = generator.choice([None, 0.0123, 7.5])
    categories = {task: generator.choice(["alpha", "beta"]) for task in scores}
    directory = write_run(folder / "run", scores, cost=cost, categories=categories)
    files.write_files(directory, directory.records(), read_summary(directory.path))
    summary = json.loads((directory.path / "summary.json").read_bytes())
    valid = {
        task: sum(some) / attempts
        for task, some in scores.items()
        if all(one is not None and one == one for one in some)
    }
    terminal = "\n".join(line.text for line in summary_lines(summary, "here"))
    markdown = (directory.path / "summary.md").read_text().replace("\\", "")
    page = (directory.path / "report.html").read_text()
    everywhere = {"terminal": terminal, "markdown": markdown, "page": page}
    assert summary["official"] == (len(valid) == len(scores))
    score = summary["score"] or summary["reference"]
    if valid:
        mean = sum(valid.values()) / len(valid)
        assert score["mean"] == pytest.approx(mean)
        assert score["tasks"] == len(valid)
        number = shown(score["mean"])
        interval = score["interval"] and " to ".join(map(shown, score["interval"]))
        if summary["official"]:
            spread = f"95 % interval {interval}" if interval else ""
            assert f"Mean score  {number}" + (f"  ({spread})" if spread else "\n") in terminal
            assert f"**Mean score {number}**" + (f" ({spread})" if spread else ",") in markdown
        else:
            for text in (terminal, markdown):
                tasks = f"{len(scores)} task{'s' * (len(scores) != 1)}"
                assert f"over the {len(valid)} valid of {tasks}: {number}, " in text
        assert f"<dd>{number}<small>" in page or f"<dd>{number}</dd>" in page
        assert f" {number}" + (f" [{interval}] " if interval else " ") in headline(summary)
    else:
        assert score is None
    for category in summary["categories"]:
        of = [task for task, name in categories.items() if name == category["category"]]
        good = [valid[task] for task in of if task in valid]
        counted = f"{len(of)}" if len(of) == len(good) else f"{len(good)} of {len(of)}"
        if good:
            assert category["score"]["mean"] == pytest.approx(sum(good) / len(good))
        number = shown(category["score"]["mean"]) if good else "none"
        name = category["category"]
        assert re.search(rf"^{name} +{counted} +{re.escape(number)} ", terminal, re.MULTILINE)
        cell = "-" if number == "none" else number
        assert f"| {name} | {counted} | {cell} | " in markdown
        assert re.search(rf"<tr><td>{name}</td>(?s:.)*?>{cell}<(?s:.)*?>{counted}</td>", page)
    paid = [
        0 if cost is None else cost * place
        for place, some in enumerate(scores.values(), 1)
        for one in some
        if one is None or one == one
    ]
    total = summary["cost"]["total"]
    assert (total["usd"] or 0) == pytest.approx(sum(paid))
    if paid:
        usd = sum(paid)
        words = "unknown" if cost is None else f"${usd:,.{2 if usd >= 10 else 4}f}"
        for where, text in everywhere.items():
            assert words in text, where
        assert f" · {'cost ' * (cost is None)}{words}" in headline(summary)
    properties = suite_properties(summary)
    prefix = "" if summary["official"] else "reference_"
    assert properties.get(f"{prefix}mean_score") == (score and score["mean"])
    assert properties.get("total_cost_usd") == total["usd"]
    report = {}
    add_scores(report, {"": summary})
    for name, value in report["pinchbench"].items():
        assert name == "task_scores" or value == summary[name]
    assert report["pinchbench"]["task_scores"] == {
        task: pytest.approx(valid[task]) if task in valid else None for task in scores
    }
