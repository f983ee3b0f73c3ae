"""Several models in one session: which runs belong together, and how they compare.

``<results dir>/groups/<time>/`` holds ``group.json`` (the members), ``summary.json`` and
``summary.md``. Each member is a run like any other, in a directory of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.results.comparison import Comparison, compare
from pytest_pinchbench.results.files import has_shape, read_json, write_json
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import Summary

GROUP_SCHEMA = "pinchbench-group-v1"
_FIELDS = ("run_id", "official", "partial", "selection", "score", "reference", "cost", "gates")


class Member(NamedTuple):
    """A run of a group; ``name`` is what its model is called in node ids."""

    name: str
    model: str
    path: Path


def write_group(path: Path | None, results_dir: Path, members: Sequence[Member]) -> Path:
    """Write ``group.json`` and return its directory: ``path``, or a new one."""
    path = path or RunDirectory.new(results_dir, "groups").path
    # relative, so that the results can be moved
    runs = [{**one._asdict(), "path": os.path.relpath(one.path, path)} for one in members]
    write_json(path / "group.json", {"schema_version": GROUP_SCHEMA, "runs": runs})
    return path


def read_group(path: Path) -> list[Member]:
    """Return the members of the group in a directory. Raises ``PinchBenchError``."""
    group = read_json(path / "group.json")
    if not has_shape(group, {"runs": [{"name": str, "model": str, "path": str}]}):
        raise PinchBenchError(
            f"{path} is not the directory of a group: it has no readable group.json. A run of "
            "several models goes on from a group; a single run with its one --model"
        )
    return [
        Member(one["name"], one["model"], Path(os.path.normpath(path / one["path"])))
        for one in group["runs"]
    ]


def find_group(named: str, names: Sequence[str], start: Path, results_dir: Path) -> Path:
    """Return the directory of the group that an option names; ``latest`` is the newest one of
    these models. Raises ``PinchBenchError``.
    """
    groups = [start / named]
    if named == "latest":
        found = (start / results_dir).glob("groups/*/group.json")
        groups = sorted(file.parent for file in found)
    for path in reversed(groups):
        members = [one.name for one in read_group(path)]
        if set(members) == set(names):
            return path
        if named != "latest":
            raise PinchBenchError(
                f"{path} is a group of {', '.join(members)}, not of {', '.join(names)}"
            )
    raise PinchBenchError(f"there is no group of {', '.join(names)} in {start / results_dir}")


def compare_all(summaries: Sequence[Summary]) -> list[Comparison]:
    """Compare each run with each run before it."""
    return [compare(one, other) for one, other in itertools.combinations(summaries, 2)]


def group_document(
    members: Mapping[str, Summary], comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """Return the group's ``summary.json``: its gate is the worst of its runs'."""
    return {
        "schema_version": GROUP_SCHEMA,
        "models": {
            name: {"model": summary["model"], **{field: summary[field] for field in _FIELDS}}
            for name, summary in members.items()
        },
        "comparisons": [one.to_json() for one in comparisons],
        "gates_met": all(gate["met"] for one in members.values() for gate in one["gates"]),
    }
