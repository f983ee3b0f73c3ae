"""What a run says on systems that cannot have its sandboxes, before anything is paid for."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.outcomes import assert_no_traceback

from pytest_pinchbench import environments
from pytest_pinchbench.environments import find_environment, process_identity


@pytest.mark.parametrize(
    ("platform", "kind", "words"),
    [
        (
            "darwin",
            "local",
            "cannot make local sandboxes on this system: *-env docker.",
        ),
        ("win32", "local", "cannot run tasks on Windows: *WSL 2*"),
        ("win32", "docker", "cannot run tasks on Windows: *WSL 2*"),
    ],
)
def test_a_system_without_such_sandboxes_is_one_error(
    pytester, project, monkeypatch, platform, kind, words
):
    project({"task_a": "true"})
    monkeypatch.setattr(environments, "sys", SimpleNamespace(platform=platform))
    options = ["--pinchbench", "--model", "x", "--pinchbench-env", kind]
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])
    assert_no_traceback(result)
    assert not (pytester.path / "pinchbench-results").exists()


def test_docker_is_there_on_macos(monkeypatch):
    monkeypatch.setattr(environments, "sys", SimpleNamespace(platform="darwin"))
    assert find_environment("docker").__name__ == "DockerEnvironment"


def test_a_session_begins_without_what_only_posix_has():
    """On Windows the error is reached: nothing before it needs fcntl or pwd."""
    code = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('fcntl', 'pwd', 'grp', 'termios', 'resource'))\n"
        "import pytest_pinchbench.session.hooks, pytest_pinchbench.session.commands\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_processes_are_told_apart_where_there_is_no_proc(monkeypatch):
    def missing(path, *_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(process_identity.Path, "read_text", missing)
    monkeypatch.setattr(process_identity.Path, "read_bytes", missing)
    monkeypatch.setattr(process_identity.os, "readlink", missing)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = process_identity.process_identity(process.pid)
        assert not process_identity.is_dead(identity)
    assert process_identity.is_dead(identity)
