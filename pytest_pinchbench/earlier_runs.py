"""Going on from earlier runs: which one is meant, whether it is the same experiment, merging."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.results import (
    Record,
    RunDirectory,
    iso_time,
    read_record,
    safe_name,
    write_json,
)
from pytest_pinchbench.suite import suite_digest

if TYPE_CHECKING:
    from pytest_pinchbench.options import ModelSpec, Settings


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
                *("judge_timeout", "judge_transcript_limit", "check_timeout"),
                "evaluation_timeout",
            )
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain


def find_run(named: str, results_dir: Path, model_id: str, start: Path) -> RunDirectory:
    """The run directory that ``--pinchbench-resume`` names; ``latest`` is the model's newest.

    Raises ``PinchBenchError``.
    """
    if named != "latest":
        path = start / named
    else:
        folder = results_dir / safe_name(model_id)
        runs = [path.parent for path in folder.glob("*/run.json")]
        if not runs:
            raise PinchBenchError(f"there is no run of {model_id} in {results_dir} to resume")
        path = max(runs, key=lambda run: (run / "run.json").stat().st_mtime)
    describe(path)
    return RunDirectory(path)


def describe(path: Path) -> Record:
    """The ``run.json`` of a run directory. Raises ``PinchBenchError`` where there is none."""
    try:
        description: Record = json.loads((path / "run.json").read_bytes())
    except (OSError, ValueError):
        raise PinchBenchError(f"{path} is no run directory: it has no whole run.json") from None
    return description


def refuse_differences(what: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ``PinchBenchError`` that shows each difference, if the two identities have any."""
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    if names:
        shown = "".join(
            f"\n  {name}: {json.dumps(was.get(name))} there, {json.dumps(now.get(name))} here"
            for name in names
        )
        raise PinchBenchError(f"{what} is another experiment; what differs:{shown}")


def merge_runs(paths: Sequence[Path], results_dir: Path) -> tuple[RunDirectory, list[Record]]:
    """Shards of one experiment, put together in a new run directory.

    Returns it and its records. Raises ``PinchBenchError`` when the runs are of different
    experiments, or an attempt has a valid result in more than one of them.
    """
    descriptions = [describe(path) for path in paths]
    first = descriptions[0]
    for path, description in zip(paths[1:], descriptions[1:], strict=True):
        refuse_differences(
            f"{path}, beside {paths[0]},", description["identity"], first["identity"]
        )
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
            "started_at": min(each["started_at"] for each in descriptions),
            "merged_at": iso_time(time.time()),
            "merged_from": [str(path) for path in paths],
            "selected": list(selected.values()),
        },
    )
    return target, target.records()
