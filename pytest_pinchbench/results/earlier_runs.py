"""Going on from earlier runs: which one is meant, whether it is the same experiment, merging."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import OtherExperiment, PinchBenchError
from pytest_pinchbench.results.files import has_shape, read_json, safe_name, write_json, writing
from pytest_pinchbench.results.identity import check_same_experiment
from pytest_pinchbench.results.records import Record, RunDescription, iso_time
from pytest_pinchbench.results.run_directory import RunDirectory, read_record

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings


_RUN_SHAPE = {
    **dict.fromkeys(("run_id", "started_at", "model"), str),
    "identity": {},
    "settings": {"suite": (str, list), "limit": int, "sample_ids": list, "attempts": int},
    "suites": {},
    "selected": [{"task_id": str, "attempt": int}],
    "versions": {},
}
"""What is read of ``run.json``."""


def find_run(named: str, settings: Settings, start: Path) -> Path:
    """The path of the run that an option names. ``latest`` is the newest that holds a result:
    of the model, or of any where none is named; the run that is resumed is not meant by it.

    Raises ``PinchBenchError``.
    """
    if named != "latest":
        return start / named
    results_dir, model_id = start / settings.results_dir, settings.model.id
    folder = safe_name(model_id) if model_id else "*"
    runs = [
        path.parent
        for path in results_dir.glob(f"{folder}/*/run.json")
        # what ended before its first result (a wrong key) is nothing to go on from
        if any(path.parent.glob("*/attempt-*/result.json")) and str(path.parent) != settings.resume
    ]
    if not runs:
        of_model = f" of {model_id}" if model_id else ""
        raise PinchBenchError(f"there is no run{of_model} with a result in {results_dir}")
    return max(runs, key=_last_start)


def _last_start(run: Path) -> str:
    """Return the time at which a run was started, resumed or merged last, as ISO 8601 in UTC.

    A damaged ``run.json`` counts as the newest: to pass over it would take another run for it.
    """
    description = read_json(run / "run.json")
    if not has_shape(description, {"started_at": str}):
        return "9999"
    times = [description["started_at"], *description.get("resumed_at", [])]
    return max(map(str, [*times, description.get("merged_at", "")]))


def as_before(settings: Settings, earlier: RunDescription) -> Settings:
    """The settings with the attempts and the selection of tasks that an earlier run had, where
    the command line gives none: to go on with a run is to go on with all of it.
    """
    was = earlier["settings"]
    given = {name for name, origin in settings.origins.items() if origin.startswith("--")}
    if "attempts" not in given:
        settings = replace(settings, attempts=was["attempts"])
    if not given & {"suite", "limit", "sample_ids"}:
        suite = was["suite"]
        settings = replace(
            settings,
            suite=suite if isinstance(suite, str) else tuple(suite),
            limit=was["limit"],
            sample_ids=tuple(was["sample_ids"]),
        )
    return settings


def read_run_json(path: Path) -> RunDescription:
    """The ``run.json`` of a run directory. Raises ``PinchBenchError`` where there is none."""
    file = path / "run.json"
    if not file.exists():
        raise PinchBenchError(f"{path} is not a run directory: it has no run.json")
    description: RunDescription = read_json(file)
    if not has_shape(description, _RUN_SHAPE):
        raise PinchBenchError(
            f"{file} is damaged: what was asked for in that run is not known any more; put a "
            f"whole copy of the file there, or run the tasks anew"
        )
    return description


def refuse_damaged(path: Path) -> None:
    """Raise ``PinchBenchError`` for a record that cannot be read: to leave it out would change
    what the run came to.
    """
    for file in RunDirectory(path).damaged():
        raise PinchBenchError(
            f"{file} is damaged; put a whole copy of it there, or run that attempt again with "
            f"--pinchbench-resume {path}"
        )


def note_sandbox(path: Path, facts: Mapping[str, str | None]) -> None:
    """Add a sandbox's facts to the identity in ``run.json``.

    Raises ``OtherExperiment`` where they differ from what an earlier session of the run found.
    """
    run = read_run_json(path)
    new: RunDescription = {**run, "identity": {**run["identity"], **facts}}
    try:
        check_same_experiment(f"go on with {path}", run, new)
    except PinchBenchError as error:
        raise OtherExperiment(str(error)) from None
    write_json(path / "run.json", new)


def merge_runs(paths: Sequence[Path], results_dir: Path) -> tuple[RunDirectory, list[Record]]:
    """Shards of one experiment, put together in a new run directory.

    Returns it and its records. Raises ``PinchBenchError`` when the runs are of different
    experiments, or an attempt has a valid result in more than one of them.
    """
    descriptions = [read_run_json(path) for path in paths]
    for path in paths:
        refuse_damaged(path)
    first = descriptions[0]
    for path, description in zip(paths[1:], descriptions[1:], strict=True):
        check_same_experiment(f"merge {path} with {paths[0]}", first, description)
    chosen: dict[tuple[str, int], tuple[Path, Record]] = {}
    for path in paths:
        for found in sorted(path.glob("*/attempt-*/result.json")):
            record = read_record(found)
            if record is None:
                continue
            key = (record["task_id"], record["attempt"])
            earlier = chosen.get(key)
            if earlier is None or earlier[1]["metrics"]["score"] is None:
                chosen[key] = (found.parent, record)
            elif record["metrics"]["score"] is not None:
                raise PinchBenchError(
                    f"attempt {key[1]} at {key[0]} has a result in {earlier[0].parent.parent} and "
                    f"in {path}: these are not shards of one run; which one counts is not for a "
                    f"merge to choose"
                )
    target = RunDirectory.new(results_dir, first["model"])
    for folder, record in chosen.values():
        destination = target.attempt_dir(record["task_id"], record["attempt"])
        with writing(destination):
            shutil.copytree(folder, destination)
    selected = {
        (one["task_id"], one["attempt"]): one for each in descriptions for one in each["selected"]
    }
    write_json(
        target.path / "run.json",
        {
            **first,
            "settings": {
                **first["settings"],
                # of all shards, for a run that goes on with this one
                "suite": list(dict.fromkeys(task_id for task_id, _ in selected)),
                "limit": 0,
                "sample_ids": [],
                "attempts": max((attempt for _, attempt in selected), default=1),
            },
            "started_at": min(each["started_at"] for each in descriptions),
            "merged_at": iso_time(time.time()),
            "arguments": list(
                dict.fromkeys(path for each in descriptions for path in each.get("arguments", ()))
            ),
            "merged_from": [str(path) for path in paths],
            "selected": list(selected.values()),
        },
    )
    return target, target.records()
