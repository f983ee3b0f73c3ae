"""``index.html``: all runs of a results folder, models against tasks, and what pairs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.reports import formats, text
from pytest_pinchbench.reports.page import heat, page
from pytest_pinchbench.results.comparison import compare, names
from pytest_pinchbench.results.files import has_shape, read_json, write_atomically, write_json
from pytest_pinchbench.results.summary import SUMMARY_SHAPE, Summary, read_summary

NAME = "index.html"
_PAIRS = ".pairs.json"
_PAIRED = 8
"""Newest runs of which all pairs are compared; a comparison takes up to a second."""
_COLUMNS = (
    *(("model", ""), ("date", ""), ("suite", ""), ("mean", "n"), ("95 % interval", "n")),
    *(("full", "n"), ("invalid", "n"), ("cost", "n"), ("judge", ""), ("agent", "")),
    ("wall time", "n"),
)
_MEAN = 2  # its place after the model's


def address(results_dir: Path, runs: Sequence[Summary]) -> str:
    """Return the address at which the page compares these runs."""
    ticked = urlencode([("run", run_key(run)) for run in runs])
    return f"{(results_dir / NAME).resolve().as_uri()}#{ticked}"


def write_index(results_dir: Path) -> Path:
    """Write the page of all finished runs below a results folder, the newest first."""
    found, broken = [], 0
    for path in sorted(results_dir.glob("*/*/run.json")):
        summary = read_json(path.parent / "summary.json")
        try:
            if not has_shape(summary, SUMMARY_SHAPE):
                summary = read_summary(path.parent)
        except PinchBenchError:
            broken += 1
        else:
            found.append((path.parent, summary))
    found.sort(key=lambda one: str(one[1]["started_at"]), reverse=True)
    notes = [f"{formats.counted(broken, 'run')} without a result"] if broken else []
    html = index_page(found, results_dir, _pairs([one for _, one in found], results_dir), notes)
    target = results_dir / NAME
    write_atomically(target, html.encode("utf-8", "replace"))
    return target


def index_page(
    runs: Sequence[tuple[Path, Summary]],
    results_dir: Path,
    pairs: Mapping[str, Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    summaries = [summary for _, summary in runs]
    named = list(zip(runs, names(summaries), strict=True))
    rows = [_row(path, run, name, results_dir) for (path, run), name in named]
    tasks = sorted({task["task_id"] for run in summaries for task in run["tasks"]})
    data = {
        "tasks": tasks,
        "pairs": pairs,
        "runs": {
            run_key(run): {
                **_matrix_row(run, tasks),
                "name": name,
                "key": run_key(run),
                "place": place,
                "path": path.as_posix(),
            }
            for place, ((path, run), name) in enumerate(named)
        },
    }
    return page(
        "index.html.j2",
        "list.js",
        "index.js",
        rows=rows,
        columns=_COLUMNS,
        mean=_MEAN,
        notes=notes,
        data=data,
        choices={
            name: sorted({row[name] for row in rows if row[name]})
            for name in ("model", "judge", "suite")
        },
    )


def run_key(run: Summary) -> str:
    """What a run's numbers are known by: it changes with them."""
    return f"{run['run_id']}@{run.get('finished_at')}"


def _star(run: Summary) -> str:
    """Mark a mean that is for reference only."""
    return "*" if run["reference"] else ""


def _row(path: Path, run: Summary, name: str, results_dir: Path) -> Mapping[str, Any]:
    score = formats.shown_score(run) or {"mean": None, "interval": None, "pass_rate": None}
    total, star = run["cost"]["total"], _star(run)
    suite = run["selection"].get("suite") or ", ".join(run["suites"])
    size = f" ({run['selection']['tasks']} of {run['selection']['suite_tasks']})"
    agent = ", ".join(run["versions"].get("agent") or ())
    invalid = run["attempts"]["invalid"] if "attempts" in run else 0

    def number(value: float | None) -> float:
        return -1 if value is None else value

    return {
        "key": run_key(run),
        "name": name,
        "model": str(run["model"]),
        "judge": str(run["judge"] or ""),
        "suite": suite,
        "mean": score["mean"],
        "link": quote(f"{path.relative_to(results_dir).as_posix()}/report.html"),
        "cells": [
            (str(run["started_at"])[:16].replace("T", " "), None),
            (suite + (size if run["partial"] else ""), None),
            (formats.score(score["mean"]) + star, number(score["mean"])),
            (formats.bounds(score["interval"]), number((score["interval"] or [None])[0])),
            (formats.percent(score["pass_rate"]), number(score["pass_rate"])),
            (formats.count(invalid), invalid),
            (formats.money(total), number(total["usd"])),
            (str(run["judge"] or formats.UNKNOWN), None),
            (agent, None),
            (formats.seconds(run.get("wall_seconds")), number(run.get("wall_seconds"))),
        ],
    }


def _matrix_row(run: Summary, tasks: Sequence[str]) -> Mapping[str, Any]:
    """A run's line of the matrix: a score and its style for each task that it has."""
    score = formats.shown_score(run) or {"mean": None, "interval": None}
    means = {task["task_id"]: task["mean"] for task in run["tasks"]}
    cells = [
        (formats.score(means[task]) if means[task] is not None else "inv", heat(means[task]))
        if task in means
        else None
        for task in tasks
    ]
    return {
        "mean": formats.score(score["mean"]) + _star(run),
        "heat": heat(score["mean"]),
        "interval": formats.bounds(score["interval"]),
        "scores": cells,
    }


def _pairs(runs: Sequence[Summary], results_dir: Path) -> Mapping[str, list[str]]:
    """The verdict on each pair of the newest runs, by their keys, the older first.

    A pair is compared once: what is known of it is kept beside the page.
    """
    known = read_json(results_dir / _PAIRS)
    known = known if has_shape(known, {}) else {}
    pairs = {}
    for new, old in combinations(runs[:_PAIRED], 2):
        name = f"{run_key(old)} {run_key(new)}"
        pairs[name] = known.get(name) or _verdict(old, new)
    write_json(results_dir / _PAIRS, pairs)
    return pairs


def _verdict(old: Summary, new: Summary) -> list[str]:
    comparison = compare(old, new)
    return [text.verdict(comparison), text.mean_line(comparison)]
