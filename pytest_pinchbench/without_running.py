"""What ``pytest --pinchbench`` answers without running a task: a recipe, a merge, a comparison."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_pinchbench import options
from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.options import Settings


def answer(config: pytest.Config) -> int | None:
    """Print what was asked for and give the exit code; None when tasks are to be run."""
    start = config.invocation_params.dir
    try:
        settings = options.resolve(config, os.environ)
        if settings.show_recipe:
            from pytest_pinchbench.environments.recipes import describe_recipe
            from pytest_pinchbench.run import Run

            Run(config, settings, run_id="", directory=None).check_kinds()
            print(describe_recipe(settings.recipe))
            return 0
        if settings.merge:
            return _merge(settings, start)
        if _only_compares(settings):
            return _compare(settings, start)
    except PinchBenchError as error:
        raise pytest.UsageError(str(error)) from None
    return None


def _only_compares(settings: Settings) -> bool:
    """Two finished runs or more, and no model asked for by name: a MODEL_NAME that happens to
    be set does not start a run that costs money.
    """
    asked = settings.origins["model"].startswith("--")
    return (
        bool(settings.compare)
        and not asked
        and (len(settings.compare) > 1 or not settings.model.id)
    )


def _merge(settings: Settings, start: Path) -> int:
    from pytest_pinchbench.earlier_runs import describe, merge_runs
    from pytest_pinchbench.reports.files import write_files
    from pytest_pinchbench.reports.summarize import summarize
    from pytest_pinchbench.summary import Outcome, summary_lines

    paths = [start / path for path in settings.merge]
    directory, records = merge_runs(paths, start / settings.results_dir)
    description = describe(directory.path)
    found = {(record["task_id"], record["attempt"]): record for record in records}
    selected = [(one["task_id"], one["attempt"]) for one in description["selected"]]
    outcomes = [Outcome(*key, found.get(key)) for key in selected]
    write_files(directory, records, summarize(records, description), say=print)
    print("\n".join(summary_lines(outcomes, seconds=None, where=str(directory.path))))
    return 0


def _compare(settings: Settings, start: Path) -> int:
    from pytest_pinchbench.reports.finished import compare_finished

    lines, failed = compare_finished(
        [start / path for path in settings.compare],
        compare_fail=settings.compare_fail,
        results_dir=start / settings.results_dir,
    )
    print("\n".join(lines))
    return int(failed)
