"""Where a run's agent work comes from, and where its results go: chosen once, from the options.

Without an option agents run, and the results go to a new directory (:class:`Fresh`).
``--pinchbench-resume`` goes on in an earlier run's directory (:class:`Resume`);
``--pinchbench-regrade`` grades an earlier run's work again (:class:`Regrade`). Together they
go on with a regrade (:class:`ResumedRegrade`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_pinchbench.attempt import run_attempt
from pytest_pinchbench.attempt.context import AttemptContext
from pytest_pinchbench.attempt.kept_work import (
    WorkMissing,
    kept_work,
    not_regraded,
    previous_attempts,
)
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results.earlier_runs import (
    as_before,
    find_run,
    read_run_json,
    refuse_damaged,
)
from pytest_pinchbench.results.group import find_group, read_group
from pytest_pinchbench.results.identity import check_same_experiment, regraded
from pytest_pinchbench.results.records import Record, RunDescription
from pytest_pinchbench.results.run_directory import RunDirectory
from pytest_pinchbench.results.summary import wall_seconds_of
from pytest_pinchbench.settings import ModelSpec, Settings
from pytest_pinchbench.suite.task_file import Task

Key = tuple[str, int]
"""(task id, attempt)."""


class Fresh:
    """Run agents, and write to a new run directory."""

    agent_runs = True

    def __init__(self, settings: Settings) -> None:
        self.earlier: Path | None = None
        """The run whose selection of tasks and attempts goes on."""

    def adjusted(self, settings: Settings) -> Settings:
        """Return the settings with what follows from the earlier run. Raises
        ``PinchBenchError``.
        """
        return as_before(settings, read_run_json(self.earlier)) if self.earlier else settings

    def run_id(self) -> str:
        return uuid.uuid4().hex[:12]

    def seconds_before(self) -> float:
        """Return the wall time of the run's earlier sessions."""
        return 0.0

    def directory(self, results_dir: Path, description: RunDescription) -> RunDirectory:
        """Return the directory of the run that ``description`` (its ``run.json``) describes.
        Raises ``PinchBenchError``.
        """
        return RunDirectory.new(results_dir, description["model"])

    def identity(self, today: dict[str, Any]) -> dict[str, Any]:
        """Return the run's identity, given that of today's settings."""
        return today

    def selected(self, now: Sequence[Key]) -> list[Key]:
        """Return the attempts of the run, given those of this session."""
        return list(dict.fromkeys(now))

    def wants(self, key: Key) -> bool:
        """Return whether the attempt is part of this run."""
        return True

    def attempts_before(self, attempts: int) -> list[Key] | None:
        """Return the attempts of the run that goes on, and further ones of its tasks up to
        ``attempts``; None where no run goes on.
        """
        return None

    def has_work_for(self, key: Key) -> bool:
        """Return whether the attempt can be made in this run."""
        return True

    def notes(self, selected: Sequence[Key], shown: Callable[[Path], str]) -> list[str]:
        """Return what the user should know before the first task."""
        return []

    def attempt(
        self, task: Task, attempt: int, directory: RunDirectory, context: AttemptContext
    ) -> Record:
        """Make an attempt and write its record. Raises ``RunAborted``.

        Where the attempt has an invalid record whose agent's work was kept (its judge failed,
        say), that work is graded, and not paid for again.
        """
        kept, earlier = None, []
        invalid = directory.read(task.id, attempt)
        if invalid is not None:
            with contextlib.suppress(WorkMissing):
                kept = kept_work(directory, invalid, context.reads_workspace(task))
            earlier = previous_attempts(invalid, work_reused=kept is not None)
        if kept is None:
            context.harness.prepare(context.environment)
        result = run_attempt(task, attempt, context, kept, earlier)
        directory.write(result)
        return result.record


class Regrade(Fresh):
    """Grade the work of an earlier run's agents, without running an agent."""

    agent_runs = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._source = RunDirectory(Path(settings.regrade or ""))
        self.earlier = self._source.path

    def adjusted(self, settings: Settings) -> Settings:
        refuse_damaged(self._source.path)
        settings = super().adjusted(settings)
        # the model whose work is scored
        model = read_run_json(self._source.path)["model"]
        return replace(settings, model=replace(settings.model, id=model))

    def identity(self, today: dict[str, Any]) -> dict[str, Any]:
        return regraded(read_run_json(self._source.path)["identity"], today)

    def wants(self, key: Key) -> bool:
        earlier = read_run_json(self._source.path)["selected"]
        return any(key == (one["task_id"], one["attempt"]) for one in earlier)

    def has_work_for(self, key: Key) -> bool:
        return self._source.read(*key) is not None

    def notes(self, selected: Sequence[Key], shown: Callable[[Path], str]) -> list[str]:
        where = shown(self._source.path)
        return [f"regrading {where}: the work of its agents is graded again, none runs"]

    def attempt(
        self, task: Task, attempt: int, directory: RunDirectory, context: AttemptContext
    ) -> Record:
        found = self._source.read(task.id, attempt)
        assert found is not None  # see has_work_for
        try:
            kept = kept_work(self._source, found, context.reads_workspace(task))
        except WorkMissing as error:
            found = not_regraded(found, str(error))
            kept = None
        if kept is None:
            # what its judge cost was paid for in the earlier run
            return directory.copy_from(self._source, {**found, "judge_usage": None})
        result = run_attempt(task, attempt, context, kept)
        directory.write(result)
        return result.record


class Resume(Fresh):
    """Go on in the directory of an earlier run."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._directory = RunDirectory(Path(settings.resume or ""))
        self.earlier = self._directory.path

    def run_id(self) -> str:
        return str(read_run_json(self._directory.path)["run_id"])

    def seconds_before(self) -> float:
        return wall_seconds_of(self._directory.path) or 0.0

    def directory(self, results_dir: Path, description: RunDescription) -> RunDirectory:
        path = self._directory.path
        hint = f"To grade the work of its agents like this: --pinchbench-regrade {path}"
        check_same_experiment(f"resume {path}", read_run_json(path), description, hint)
        return self._directory

    def attempts_before(self, attempts: int) -> list[Key] | None:
        earlier = read_run_json(self._directory.path)
        further = range(earlier["settings"]["attempts"] + 1, attempts + 1)
        before = self._selected_before()
        return [*before, *((task_id, attempt) for task_id, _ in before for attempt in further)]

    def selected(self, now: Sequence[Key]) -> list[Key]:
        return super().selected([*self._selected_before(), *now])

    def _selected_before(self) -> list[Key]:
        earlier = read_run_json(self._directory.path)["selected"]
        return [(one["task_id"], one["attempt"]) for one in earlier]

    def notes(self, selected: Sequence[Key], shown: Callable[[Path], str]) -> list[str]:
        records = [self._directory.read(*key) for key in selected]
        valid = sum(record is not None and record["status"] == "scored" for record in records)
        return [
            *super().notes(selected, shown),
            f"resuming {shown(self._directory.path)}: {valid} of "
            f"{formats.counted(len(selected), 'attempt')} "
            f"{'has' if len(selected) == 1 else 'have'} a valid result, which is kept",
            *(
                f"{path.relative_to(self._directory.path)} is damaged: that attempt is run again"
                for path in self._directory.damaged()
            ),
        ]


class ResumedRegrade(Resume, Regrade):
    """Go on with a regrade in its own directory."""


class Replay(Fresh):
    """Run agents against the recorded answers of an earlier run; not an official run."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.earlier = Path(str(settings.replay))

    def adjusted(self, settings: Settings) -> Settings:
        settings = super().adjusted(settings)
        assert self.earlier is not None
        was = read_run_json(self.earlier)["settings"]["model"]
        model = ModelSpec(
            was["id"],
            was["base_url"] or "http://replay.invalid/v1",
            api_protocol=was["api_protocol"],
            params=was["params"],
            compat=was.get("compat", {}),
        )
        return replace(settings, model=model, relay="yes", model_check=False)

    def notes(self, selected: Sequence[Key], shown: Callable[[Path], str]) -> list[str]:
        return [f"replaying {self.earlier}: answers come from its recording, none from a model"]


def find_earlier_runs(
    models: Mapping[str, Settings], start: Path
) -> tuple[dict[str, Settings], Path | None]:
    """Replace the names of the runs to go on from by their paths, in the settings of each model.

    Among several models an option names a group, and each model goes on from its own run in it;
    the group to resume is returned, too. Raises ``PinchBenchError``.
    """
    found: dict[str, Settings] = dict(models)
    group = None
    for option in ("regrade", "replay", "resume"):  # latest is not the run that is resumed
        first = next(iter(found.values()))
        named = getattr(first, option)
        if named is None:
            continue
        if len(found) > 1:
            group = find_group(named, list(found), start, first.results_dir)
            paths = {one.name: one.path for one in read_group(group)}
        else:
            paths = {name: find_run(named, first, start) for name in found}
        found = {
            name: replace(settings, **{option: str(paths[name])})  # type: ignore[arg-type]
            for name, settings in found.items()
        }
    return found, group if named is not None else None


def choose_mode(settings: Settings) -> Fresh:
    """Return the mode of a run, given settings that name earlier runs by their paths."""
    if settings.replay is not None:
        return Replay(settings)
    if settings.regrade is None:
        return Fresh(settings) if settings.resume is None else Resume(settings)
    return Regrade(settings) if settings.resume is None else ResumedRegrade(settings)
