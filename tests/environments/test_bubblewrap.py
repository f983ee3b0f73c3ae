"""What a bubblewrap sandbox shows an agent of the machine, and what it keeps from it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe import long_sleep, python, sh
from support.waiting import wait_until

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments import bubblewrap as module
from pytest_pinchbench.environments.bubblewrap import BubblewrapEnvironment, why_unusable
from pytest_pinchbench.issues import EnvironmentUnavailable

pytestmark = pytest.mark.skipif(bool(why_unusable()), reason=str(why_unusable()))

Open = Callable[..., Sandbox]


@pytest.fixture
def open_one(tmp_path: Path) -> Iterator[Open]:
    opened: list[Sandbox] = []

    def one(**recipe: Any) -> Sandbox:
        setup = EnvironmentSetup(
            Recipe("bubblewrap", "bubblewrap", **recipe), "run", tmp_path / "data"
        )
        environment = BubblewrapEnvironment(setup)
        environment.prepare()
        opened.append(environment.open("task", labels={}, lifetime=60))
        return opened[-1]

    yield one
    for sandbox in opened:
        sandbox.close()


def output(sandbox: Sandbox, script: str) -> str:
    done = sandbox.exec(sh(script))
    return (done.stdout + done.stderr).decode()


def test_the_users_files_are_not_there(
    open_one: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "diary").write_text("private")
    sandbox = open_one()

    assert "No such file" in output(sandbox, f"cat {tmp_path}/diary")
    assert output(sandbox, "echo $HOME; ls -A $HOME") == "/home/agent\n"
    assert "No such file" in output(sandbox, f"ls {Path.home()}/.ssh")
    # sockets of daemons (Docker's would be the whole machine) lie there
    assert output(sandbox, "ls -A /run") == "pinchbench\n"
    assert "No such file" in output(sandbox, "ls /var/run/docker.sock")


def test_a_python_that_was_started_by_a_path_with_dots_runs_inside(
    open_one: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_in = tmp_path / "not-shown"
    started_in.mkdir()
    there = os.path.relpath(sys.executable, started_in)
    monkeypatch.setattr(sys, "executable", str(started_in / there))
    sandbox = open_one()

    assert sandbox.exec([sandbox.python, "-c", "print('runs')"]).stdout == b"runs\n"


def test_the_users_variables_are_not_there(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "secret")
    monkeypatch.setenv("WANTED", "yes")
    sandbox = open_one(pass_env=("WANTED",), env={"SET": "too"})

    assert output(sandbox, "echo $CLOUD_TOKEN/$WANTED/$SET/$USER") == "/yes/too/agent\n"
    assert "secret" not in output(sandbox, "cat /proc/1/environ /proc/*/environ | tr '\\0' ' '")


def test_the_system_can_be_read_and_not_written(open_one: Open) -> None:
    sandbox = open_one()

    assert "root" in output(sandbox, "cat /etc/passwd")
    for path in ("/usr/bin/x", "/etc/x", "/x", "/run/x", f"{sys.prefix}/x", "/proc/sys/kernel/x"):
        assert sandbox.exec(sh(f"echo > {path}")).exit_code != 0
    for path in ("/tmp/x", "$HOME/x", "/var/tmp/x", "/dev/shm/x", f"{sandbox.private_root}/x"):
        assert output(sandbox, f"echo hi > {path}; cat {path}") == "hi\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could read them")
def test_what_only_root_can_read_is_not_the_agents(open_one: Open) -> None:
    assert Path("/etc/shadow").read_text()
    assert output(open_one(), "cat /etc/shadow") == "cat: /etc/shadow: Permission denied\n"


def test_an_agent_has_no_privileges_and_cannot_get_any(open_one: Open) -> None:
    status = output(open_one(), "cat /proc/self/status; id -u")

    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert status.endswith("\n1000\n")


def test_other_processes_of_the_machine_are_not_seen(open_one: Open) -> None:
    words = long_sleep().split()
    with subprocess.Popen(words) as mine:
        try:
            assert words[-1] not in output(open_one(), "cat /proc/*/cmdline | tr '\\0' ' '")
        finally:
            mine.kill()


def test_process_1_cannot_be_ended_stopped_or_written_to(open_one: Open) -> None:
    sandbox = open_one()
    program = "open('/proc/1/mem', 'r+b')"

    assert sandbox.exec(python(sandbox, program)).exit_code != 0
    output(sandbox, "kill -STOP 1; kill -TERM 1; kill -KILL 1; kill -HUP 1")

    assert output(sandbox, "echo still there") == "still there\n"


def test_an_agent_that_kills_everything_can_be_graded_all_the_same(open_one: Open) -> None:
    sandbox = open_one()
    sandbox.write({f"{sandbox.workspace_root}/answer": b"42"})

    assert sandbox.exec(sh("kill -9 -1; sleep 60"), timeout=30).exit_code == -9
    assert sandbox.read(f"{sandbox.workspace_root}/answer") == b"42"


def test_what_escapes_its_session_ends_with_the_namespace(open_one: Open) -> None:
    sandbox, sleep = open_one(), long_sleep()
    sandbox.exec(sh(f"setsid setsid {sleep} & sleep 0"))
    found = ["pgrep", "-f", f"^{sleep}"]
    wait_until(lambda: subprocess.run(found, capture_output=True).returncode == 0)

    sandbox.stop_processes()

    assert subprocess.run(found, capture_output=True).returncode == 1


def test_a_sandbox_ends_with_a_killed_controller(tmp_path: Path) -> None:
    sleep = long_sleep()
    program = f"""
from pathlib import Path
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.bubblewrap import BubblewrapEnvironment
setup = EnvironmentSetup(Recipe("b", "bubblewrap"), "run", Path({str(tmp_path)!r}))
sandbox = BubblewrapEnvironment(setup).open("task", labels={{}}, lifetime=60)
sandbox.exec({sleep.split()!r})
"""
    found = ["pgrep", "-f", f"^{sleep}"]
    with subprocess.Popen([sys.executable, "-c", program]) as controller:
        wait_until(lambda: subprocess.run(found, capture_output=True).returncode == 0)
        controller.send_signal(signal.SIGKILL)

    wait_until(lambda: subprocess.run(found, capture_output=True).returncode == 1)


def test_a_closed_network_reaches_nothing(open_one: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        closed, opened = open_one(options={"network": "none"}), open_one()

        assert opened.exec(python(opened, program)).exit_code == 0
        assert b"refused" in closed.exec(python(closed, program)).stderr


def test_a_folder_of_the_recipe_is_shown_read_only(open_one: Open, tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "data").write_text("rows")
    sandbox = open_one(options={"read_only": [str(tmp_path / "shown")]})

    assert output(sandbox, f"cat {tmp_path}/shown/data") == "rows"
    assert "Read-only" in output(sandbox, f"echo > {tmp_path}/shown/data")


def test_a_path_that_is_not_there_is_refused_with_its_place(open_one: Open) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"cannot show /no/such .*options\.read_only"):
        open_one(options={"read_only": ["/no/such"]})


def test_a_machine_that_cannot_do_it_is_told_what_else_there_is(
    open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "why_unusable", lambda: "this machine forbids user namespaces")

    with pytest.raises(EnvironmentUnavailable, match=r"forbids user namespaces.*--pinchbench-env"):
        open_one()
