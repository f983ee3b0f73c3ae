"""What runs inside a sandbox, under every Python that may be there."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe import count, is_running, long_sleep, sh, timed_out_after
from support.pythons import VERSIONS, find_python
from support.waiting import wait_until

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, sandbox
from pytest_pinchbench.environments.local import PASSED_ON, LocalSandbox
from pytest_pinchbench.environments.sandbox import Exchange, ExecSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


class OtherPython(LocalSandbox):
    """On this machine, but with another Python, and with files moved as in a remote sandbox."""

    _transfer = ExecSandbox._transfer


@pytest.fixture
def open_with(tmp_path: Path) -> Iterator[Callable[[str], LocalSandbox]]:
    opened: list[LocalSandbox] = []

    def open_one(python: str) -> LocalSandbox:
        recipe = Recipe("r", "local", workspace_root=str(tmp_path / "root"))
        setup = EnvironmentSetup(recipe, "test", tmp_path / "data")
        folder = tmp_path / "sandbox"
        folder.mkdir()
        opened.append(OtherPython(folder, recipe.variables(*PASSED_ON), setup))
        opened[-1].python = python
        return opened[-1]

    yield open_one
    for box in opened:
        box.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_commands_run_under_every_python(
    open_with: Callable[[str], LocalSandbox], version: str
) -> None:
    box = open_with(find_python(version))
    sleep = long_sleep()

    result = box.exec(sh("cat; echo error >&2; exit 5"), stdin=b"x" * 3_000_000)
    slow = sh(f"(setsid {sleep} &); echo started; sleep 1000")

    assert (len(result.stdout), result.stderr, result.exit_code) == (3_000_000, b"error\n", 5)
    timed_out_after(b"started\n", lambda timeout: box.exec(slow, timeout=timeout))
    assert count(box, sleep) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_files_move_under_every_python(
    open_with: Callable[[str], LocalSandbox], tmp_path: Path, version: str
) -> None:
    box = open_with(find_python(version))
    root = box.workspace_root
    (tmp_path / "tree" / "empty").mkdir(parents=True)
    (tmp_path / "tree" / "ümläut").write_bytes(b"\0\xff")
    (tmp_path / "tree" / "link").symlink_to("ümläut")

    box.write({f"{root}/deep/file": b"content", f"{root}/folder": None})
    box.upload(tmp_path / "tree", f"{root}/tree")
    box.download(f"{root}/tree", tmp_path / "back")

    assert box.read(f"{root}/deep/file") == b"content"
    assert (tmp_path / "back" / "ümläut").read_bytes() == b"\0\xff"
    assert os.readlink(tmp_path / "back" / "link") == "ümläut"
    assert (tmp_path / "back" / "empty").is_dir()
    with pytest.raises(FileNotFoundError):
        box.read(f"{root}/missing")


@pytest.fixture
def no_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a Python that was built without libffi: no prctl, so no subreaper."""
    source = sandbox._source("supervisor.py")
    first = b"import contextlib\n"
    assert first in source
    without = source.replace(first, b"import sys; sys.modules['ctypes'] = None\n" + first, 1)
    monkeypatch.setattr(sandbox, "_source", lambda module: without)


def test_without_ctypes_a_timeout_still_kills_what_is_detached(
    open_with: Callable[[str], LocalSandbox], no_ctypes: None
) -> None:
    box = open_with(sys.executable)
    sleep = long_sleep()
    wait = f"until {is_running(sleep)}; do sleep 0.01; done"

    command = sh(f"(setsid sh -c '{sleep} & exit' &); {wait}; echo ready; sleep 1000")

    timed_out_after(b"ready\n", lambda timeout: box.exec(command, timeout=timeout))

    assert count(box, sleep) == 0


def test_without_ctypes_what_is_left_running_is_stopped(
    open_with: Callable[[str], LocalSandbox], no_ctypes: None
) -> None:
    box = open_with(sys.executable)
    sleep = long_sleep()
    box.exec(sh(f"(setsid {sleep} &)"))
    wait_until(lambda: count(box, sleep) == 1)

    box.stop_processes()

    assert count(box, sleep) == 0


def test_a_supervisor_whose_input_ends_kills_its_command(
    open_with: Callable[[str], LocalSandbox],
) -> None:
    box = open_with(sys.executable)
    sleep = long_sleep()
    header: dict[str, Any] = {"argv": sleep.split(), "cwd": None, "env": {}, "timeout": None}
    header |= {"cookie": "test", "watch": True, "stay": False}
    exchange = Exchange(sys.executable, header, io.BytesIO(), io.BytesIO(), patience=None)
    with subprocess.Popen(exchange.command, stdin=subprocess.PIPE) as supervisor:
        assert supervisor.stdin is not None
        supervisor.stdin.write(exchange.request(1 << 20) + exchange.request(1 << 20))
        supervisor.stdin.flush()
        wait_until(lambda: count(box, sleep) == 1)
        supervisor.stdin.close()

        assert supervisor.wait(120) == 0

    assert count(box, sleep) == 0
