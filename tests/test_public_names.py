"""What ``import pytest_pinchbench`` gives to conftest.py files and programs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.records import result

import pytest_pinchbench
from pytest_pinchbench.results.run_directory import RunDirectory


@pytest.mark.parametrize("name", pytest_pinchbench.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(pytest_pinchbench, name) is not None


def test_an_unknown_name_is_pythons_own_error():
    with pytest.raises(AttributeError, match="'pytest_pinchbench' has no attribute 'Tasks'"):
        pytest_pinchbench.Tasks  # noqa: B018


def test_the_package_imports_nothing_before_it_is_asked_for():
    program = (
        "import sys, pytest_pinchbench; "
        "print([name for name in sys.modules if name.startswith('pytest_pinchbench.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_a_finished_run_is_read_whole(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write(result("task_a", 1.0))
    directory.write(result("task_b", 0.5))
    run = pytest_pinchbench.read_run(str(tmp_path))
    assert [record["metrics"]["score"] for record in run.records] == [1.0, 0.5]
    assert run.summary["score"]["mean"] == 0.75


def test_a_directory_without_results_is_an_error(tmp_path):
    with pytest.raises(pytest_pinchbench.PinchBenchError, match="holds no results"):
        pytest_pinchbench.read_run(tmp_path)
