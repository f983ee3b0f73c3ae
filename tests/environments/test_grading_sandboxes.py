"""A sandbox that shares another one's workspaces, and what agents do to their own sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from probe import count, long_sleep, sh
from support.waiting import wait_until

from pytest_pinchbench.environments import Environment, Sandbox
from pytest_pinchbench.environments import sandbox as sandbox_module

LABELS = {"run": "test", "task": "task"}
Open = Callable[..., Sandbox]


@pytest.fixture
def shares(environment: Environment) -> None:
    if not environment.grades_fresh:
        pytest.skip("this kind cannot")


@pytest.fixture
def beside(shares: None, environment: Environment, sandbox: Sandbox) -> Iterator[Sandbox]:
    other = environment.open("task", labels=LABELS, lifetime=300, beside=sandbox)
    yield other
    other.close()


def test_the_workspaces_are_the_same_to_the_last_bit(sandbox: Sandbox, beside: Sandbox) -> None:
    workspace = f"{sandbox.workspace_root}/pinchbench/task/1"
    sandbox.write({f"{workspace}/.git/config": b"[core]", f"{workspace}/tool": b"#!/bin/sh\n"})
    sandbox.exec(
        sh("chmod 4751 tool; ln -s /etc/passwd link; ln tool twin; touch -d @1000 tool; mkfifo f"),
        cwd=workspace,
    )
    described = 'stat -c "%n %a %u %g %Y %h %F %N" . tool link twin f .git .git/config'
    before = sandbox.exec(sh(described), cwd=workspace).stdout
    sandbox.freeze()

    assert beside.workspace_root == sandbox.workspace_root
    assert beside.exec(sh(described), cwd=workspace).stdout == before
    assert b"4751" in before
    assert beside.read(f"{workspace}/.git/config") == b"[core]"
    assert beside.exec(sh("echo graded > by"), cwd=workspace).exit_code == 0


def test_nothing_else_is_shared(
    environment: Environment, sandbox: Sandbox, beside: Sandbox
) -> None:
    clean = sandbox.changed_folders()
    mark = os.path.basename(sandbox.private_root) + beside.name
    places = ["/tmp", "$HOME", sandbox.private_root]
    if environment.kind == "local":  # which is one machine
        places = ["$TMPDIR", "$HOME"]
    for place in places:
        assert sandbox.exec(sh(f"echo > {place}/{mark}")).exit_code == 0
        assert beside.exec(sh(f"test -e {place}/{mark}")).exit_code == 1
    folders = sandbox.changed_folders()
    assert clean == []
    assert len(folders) >= 2
    assert sandbox.workspace_root not in folders
    if environment.kind != "local":
        assert "/tmp" in folders


def test_what_is_frozen_does_not_go_on_and_can_be_read(
    sandbox: Sandbox, beside: Sandbox, tmp_path: Path
) -> None:
    state, ticks = f"{sandbox.private_root}/state", f"{sandbox.workspace_root}/ticks"
    sandbox.write({f"{state}/s/one": b"1", f"{state}/s/two": b"2"})
    sandbox.exec(sh(f"(while :; do echo >> {ticks}; sleep 0.01; done) >/dev/null 2>&1 &"))
    wait_until(lambda: beside.exec(["test", "-s", ticks]).exit_code == 0)
    sandbox.freeze()
    sandbox.freeze()
    size = len(beside.read(ticks))

    sandbox.download(state, tmp_path / "some", only=["s/one", "s/three"])
    assert (tmp_path / "some" / "s" / "one").read_bytes() == b"1"
    sandbox.download(state, tmp_path / "all")
    assert (tmp_path / "all" / "s" / "two").read_bytes() == b"2"
    assert sandbox.read(f"{state}/s/two") == b"2"
    with pytest.raises(FileNotFoundError):
        sandbox.read(f"{state}/none")
    assert len(beside.read(ticks)) == size


def test_a_command_that_ends_everything_has_ended(
    shares: None, environment: Environment, sandbox: Sandbox
) -> None:
    if environment.kind == "local":
        pytest.skip("that would be every process of the user")
    sleep = long_sleep()

    done = sandbox.exec(sh(f"{sleep} & echo said; kill -9 -1; sleep 1000"), timeout=200)

    assert (done.exit_code, done.timed_out) == (-9, False)
    assert count(sandbox, sleep) == 0
    assert sandbox.exec(["echo", "fine"]).stdout == b"fine\n"


def test_a_command_whose_supervisor_is_stopped_can_be_interrupted(
    shares: None, sandbox: Sandbox
) -> None:
    ready = f"{sandbox.workspace_root}/ready"
    with ThreadPoolExecutor() as pool:
        command = sh(f"kill -STOP $PPID; echo > {ready}; sleep 1000")
        running = pool.submit(sandbox.exec, command, timeout=500)
        wait_until(lambda: sandbox.exec(["test", "-e", ready]).exit_code == 0)
        sandbox.interrupt()

        assert running.result(timeout=120).exit_code == -9


def test_a_command_that_stops_its_supervisor_runs_out_of_time(
    shares: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "GRACE", 1.0)
    sleep = long_sleep()

    done = sandbox.exec(sh(f"{sleep} & kill -STOP $PPID; sleep 1000"), timeout=1)

    assert done.timed_out
    monkeypatch.undo()
    assert count(sandbox, sleep) == 0
    assert sandbox.exec(["echo", "fine"]).stdout == b"fine\n"
