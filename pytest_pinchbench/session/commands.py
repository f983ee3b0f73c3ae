"""What ``pytest --pinchbench`` answers without an agent: reports on recipes, suites and runs."""

from __future__ import annotations

import os
import webbrowser
from functools import partial
from pathlib import Path

import pytest

from pytest_pinchbench.issues import PinchBenchError, SettingsError, SuiteError
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.settings.resolve import resolve_each


def answer(config: pytest.Config) -> int | None:
    """Print what was asked for and give the exit code; None when tasks are to be run."""
    start = config.invocation_params.dir
    try:
        settings, *_ = resolve_each(config, os.environ).values()
        if settings.show_recipe:
            from pytest_pinchbench.session.fixtures import check_kinds
            from pytest_pinchbench.session.mode import choose_mode
            from pytest_pinchbench.session.run import Run
            from pytest_pinchbench.settings.recipes import describe_recipe

            check_kinds(Run(config, settings, choose_mode(settings), run_id=""))
            print(describe_recipe(settings.recipe))
            return 0
        if settings.list or settings.check:
            return _report(config, settings)
        if settings.view:
            return _view(
                start / (settings.results_dir if settings.view == "yes" else settings.view)
            )
        if settings.merge:
            return _merge(config, settings, start)
        if _only_compares(settings):
            return _compare(settings, start)
    except PinchBenchError as error:
        raise pytest.UsageError(str(error)) from None
    return None


def _view(results_dir: Path) -> int:
    """Write the page of all runs, and show it where there is a browser."""
    from pytest_pinchbench.reports.index_page import write_index

    if not results_dir.is_dir():
        raise PinchBenchError(f"cannot show the runs in {results_dir}: there is no such folder")
    page = write_index(results_dir).resolve().as_uri()
    print(page)
    webbrowser.open(page)
    return 0


def _report(config: pytest.Config, settings: Settings) -> int:
    from pytest_pinchbench.session.arguments import find_arguments
    from pytest_pinchbench.session.mode import choose_mode
    from pytest_pinchbench.session.run import Run
    from pytest_pinchbench.session.suite_report import check_suite, list_suite

    run = Run(config, settings, choose_mode(settings), run_id="check")
    try:
        find_arguments(run)
    except SuiteError as error:
        print(f"error: {run.redactor.text(str(error))}")
        return 1
    return list_suite(run, settings.list) if settings.list else check_suite(run)


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


def _merge(config: pytest.Config, settings: Settings, start: Path) -> int:
    from pytest_pinchbench.reports.files import write_pages
    from pytest_pinchbench.reports.index_page import write_index
    from pytest_pinchbench.reports.run_report import Ended
    from pytest_pinchbench.results.earlier_runs import merge_runs, read_run_json
    from pytest_pinchbench.results.gates import reaches
    from pytest_pinchbench.results.summary import read_baselines

    if config.args_source is pytest.Config.ArgsSource.ARGS:
        raise SettingsError(
            f"{config.args[0]} beside --pinchbench-merge: a merge runs nothing; give "
            f"--pinchbench-merge again for each run directory"
        )
    baselines = read_baselines(settings, start)
    paths = [start / path for path in settings.merge]
    directory, _ = merge_runs(paths, start / settings.results_dir)
    ended = Ended(directory, read_run_json(directory.path), settings, baselines)
    ended.write(print)
    index = partial(write_index, start / settings.results_dir)
    write_pages([("index.html", index)], print)
    # as of one run of all these tasks
    scores = [one["score"] for task in ended.summary["tasks"] for one in task["attempts"]]
    short = any(score is None or not reaches(score, settings.pass_mark) for score in scores)
    code = ended.exit_code(pytest.ExitCode.TESTS_FAILED if short else pytest.ExitCode.OK)
    for line in [*ended.lines(str(directory.path)), ended.last_line(code)]:
        print(line.text)
    return code


def _compare(settings: Settings, start: Path) -> int:
    from pytest_pinchbench.reports.finished import compare_finished
    from pytest_pinchbench.results.summary import read_baselines

    lines, failed = compare_finished(
        read_baselines(settings, start),
        compare_fail=settings.compare_fail,
    )
    print("\n".join(lines))
    return int(failed)
