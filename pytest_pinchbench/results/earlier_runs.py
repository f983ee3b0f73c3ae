"""Going on from earlier runs: which one is meant, whether it is the same experiment, merging."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.results.files import has_shape, read_json, safe_name, write_json
from pytest_pinchbench.results.records import Record, iso_time
from pytest_pinchbench.results.run_directory import RunDirectory, read_record
from pytest_pinchbench.suite.load import suite_digest

if TYPE_CHECKING:
    from pytest_pinchbench.settings import ModelSpec, Settings


_RUN_SHAPE = {
    **dict.fromkeys(("run_id", "started_at", "model"), str),
    "identity": {},
    "settings": {"suite": (str, list), "limit": int, "sample_ids": list, "attempts": int},
    "suites": {},
    "selected": [{"task_id": str, "attempt": int}],
    "versions": {},
}
"""What is read of ``run.json``."""


GRADING = (
    *("suite", "judge", "judge_timeout", "transcript_limit"),
    *("check_timeout", "evaluation_timeout"),
)
"""What in an identity a grade depends on; the rest is what the agent's work depends on."""


def identity(settings: Settings, suite_roots: Sequence[Path]) -> dict[str, Any]:
    """What must agree for two results to be of one experiment: everything that a score can
    depend on. Where a model is reached, retries and the number of workers do not matter.
    """

    def spec(model: ModelSpec | None) -> dict[str, Any] | None:
        if model is None:
            return None
        return {"id": model.id, "api_protocol": model.api_protocol, "params": model.params}

    value = {
        "model": spec(settings.model),
        "judge": spec(settings.judge),
        "suite": sorted(suite_digest(root) for root in suite_roots),
        "harness": settings.harness,
        "environment": settings.recipe.environment,
        "image": settings.recipe.image,
        **{
            name: getattr(settings, name)
            for name in (
                *("context_window", "max_tokens", "openclaw_version", "openclaw_install"),
                *("openclaw_binary", "skip_bootstrap", "new_session", "timeout_multiplier"),
                *("judge_timeout", "transcript_limit", "check_timeout"),
                "evaluation_timeout",
            )
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain


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
    return max(runs, key=lambda run: (run / "run.json").stat().st_mtime)


def as_before(settings: Settings, earlier: Record) -> Settings:
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


def describe(path: Path) -> Record:
    """The ``run.json`` of a run directory. Raises ``PinchBenchError`` where there is none."""
    file = path / "run.json"
    if not file.exists():
        raise PinchBenchError(f"{path} is no run directory: it has no run.json")
    description: Record = read_json(file)
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


def refuse_differences(what: str, was: Record, now: Record, regraded: str = "") -> None:
    """Raise ``PinchBenchError`` that shows each difference, if the identities of two runs, given
    as their ``run.json``, have any. ``regraded`` says how else to go on where only the grading
    differs.
    """
    old, new = was["identity"], now["identity"]
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        shown = "".join(
            f"\n  {name}: {_shown(name, was)} there, {_shown(name, now)} here" for name in names
        )
        hint = f"\n{regraded}" if regraded and set(names) <= set(GRADING) else ""
        raise PinchBenchError(f"{what} is another experiment; what differs:{shown}{hint}")


def _shown(name: str, run: Record) -> str:
    value = run["identity"].get(name)
    if name != "suite":
        return json.dumps(value)
    commits = ", ".join(f"{suite} at {commit}" for suite, commit in run["suites"].items())
    digests = ", ".join(digest[:12] for digest in value or ())
    return f"{commits.replace(' at None', ' in no git repository')} (digest {digests})"


def merge_runs(paths: Sequence[Path], results_dir: Path) -> tuple[RunDirectory, list[Record]]:
    """Shards of one experiment, put together in a new run directory.

    Returns it and its records. Raises ``PinchBenchError`` when the runs are of different
    experiments, or an attempt has a valid result in more than one of them.
    """
    descriptions = [describe(path) for path in paths]
    for path in paths:
        refuse_damaged(path)
    first = descriptions[0]
    for path, description in zip(paths[1:], descriptions[1:], strict=True):
        refuse_differences(f"{path}, beside {paths[0]},", description, first)
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
            "merged_from": [str(path) for path in paths],
            "selected": list(selected.values()),
        },
    )
    return target, target.records()
