"""What is the local environment's alone: the user's own things, and what is left of dead runs."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe import count, long_sleep, sh
from support.waiting import wait_until

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.environments.run_folders import remove
from pytest_pinchbench.issues import EnvironmentUnavailable, SettingsError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

Make = Callable[..., LocalEnvironment]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_environment(
        *, keep: bool = False, said: list[str] | None = None, **recipe: Any
    ) -> LocalEnvironment:
        given = {"name": "r", "workspace_root": str(tmp_path / "root"), **recipe}
        return LocalEnvironment(
            EnvironmentSetup(
                recipe=Recipe(environment="local", **given),
                run_id="test",
                data_dir=tmp_path / "data",
                keep=keep,
                say=print if said is None else said.append,
            )
        )

    return make_environment


def open_one(environment: LocalEnvironment) -> Sandbox:
    return environment.open("task_local", labels={}, lifetime=300)


def test_home_and_temporary_folder_are_the_attempts_own(make: Make) -> None:
    sandbox = open_one(make())

    said = sandbox.exec(sh('cd "$HOME" && cd "$TMPDIR" && echo "$HOME" && echo "$TMPDIR"'))
    sandbox.close()

    home, temporary = said.stdout.decode().splitlines()
    assert home != temporary
    assert Path(home).is_relative_to(sandbox.private_root)
    assert Path(temporary).is_relative_to(sandbox.private_root)


def test_the_users_variables_stay_with_the_user(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONPATH", "/planted")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("NAMED_KEY", "passed on")
    sandbox = open_one(make(env={"SET": "in the recipe"}, pass_env=("NAMED_KEY",)))

    seen = dict(line.split("=", 1) for line in sandbox.exec(["env"]).stdout.decode().splitlines())
    sandbox.close()

    assert not {"SOME_API_KEY", "PYTHONPATH"} & seen.keys()
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["https_proxy"] == "http://proxy.test:3128"
    assert (seen["NAMED_KEY"], seen["SET"]) == ("passed on", "in the recipe")


def test_preparing_says_that_the_agent_acts_on_this_machine(make: Make) -> None:
    said: list[str] = []

    make(said=said).prepare()

    assert len(said) == 1
    assert "the agent acts on this machine" in said[0]


def test_a_path_is_the_same_file_on_this_machine(make: Make) -> None:
    environment = make()
    sandbox = open_one(environment)
    sandbox.write({f"{sandbox.workspace_root}/file": b"x"})

    assert environment.on_this_machine
    assert Path(sandbox.workspace_root, "file").read_bytes() == b"x"
    sandbox.close()


@pytest.mark.parametrize("script", ["mkdir -p a/b && chmod 000 a/b a", "ln -s / root", "true"])
def test_closing_removes_the_folder_whatever_is_in_it(
    make: Make, tmp_path: Path, script: str
) -> None:
    sandbox = open_one(make())
    sandbox.exec(sh(script), cwd=sandbox.workspace_root)

    sandbox.close()

    assert not Path(sandbox.workspace_root).parent.exists()


def test_removing_changes_nothing_that_a_link_in_the_folder_leads_to() -> None:
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        outside, folder = shared / "outside", shared / "folder"
        (folder / "closed" / "inner").mkdir(parents=True)
        outside.mkdir(mode=0o755)
        (folder / "closed" / "link").symlink_to(outside)
        (folder / "closed").chmod(0o500)
        child = os.fork()
        if child == 0:  # a user whom modes stop
            try:
                if os.geteuid() == 0:
                    for path in (shared, outside, *folder.rglob("*"), folder):
                        os.chown(path, 65534, 65534, follow_symlinks=False)
                    os.setuid(65534)
                remove(folder)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

        assert not folder.exists()
        assert outside.stat().st_mode & 0o777 == 0o755


def test_a_kept_sandbox_stays_without_processes_and_says_where(make: Make) -> None:
    said: list[str] = []
    sleep = long_sleep()
    sandbox = open_one(make(keep=True, said=said))
    sandbox.write({f"{sandbox.workspace_root}/file": b"kept"})
    sandbox.exec(sh(f"setsid {sleep} &"))

    sandbox.close()
    make().prepare()

    folder = Path(sandbox.workspace_root).parent
    assert (folder / "workspace" / "file").read_bytes() == b"kept"
    assert not folder.parent.with_suffix(".lock").exists()  # so it is nobody's to clean up
    assert f"rm -rf {folder}" in said[-1]
    observer = open_one(make())
    assert count(observer, sleep) == 0
    observer.close()


def test_options_are_refused(make: Make) -> None:
    with pytest.raises(SettingsError, match=re.escape("no option 'cpus'")):
        make(options={"cpus": 2})


def test_an_image_is_refused_unless_it_is_the_ini_files_for_other_runs(make: Make) -> None:
    with pytest.raises(SettingsError, match="--pinchbench-image: the local environment has no"):
        make(image="foo", origins={"image": "--pinchbench-image"})
    make(image="foo", origins={"image": "pytest.ini (pinchbench_image)"})


def test_without_a_workspace_root_a_temporary_folder_of_the_user_is_used(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    sandbox = open_one(make(workspace_root=None))

    (base,) = (tmp_path / "tmp").iterdir()
    assert Path(sandbox.workspace_root).is_relative_to(base)
    assert base.stat().st_mode & 0o777 == 0o700
    sandbox.close()


def test_a_temporary_folder_that_somebody_else_made_is_not_used(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"pinchbench-{os.getuid()}").symlink_to("/etc")

    with pytest.raises(EnvironmentUnavailable, match="belongs to somebody else"):
        make(workspace_root=None).prepare()


def test_a_run_that_ends_leaves_nothing(make: Make, tmp_path: Path) -> None:
    environment = make()
    open_one(environment).close()

    del environment
    gc.collect()

    assert list((tmp_path / "root").iterdir()) == []


RUN = """
import sys
from pathlib import Path
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.environments.run_folders import remove
recipe = Recipe("r", "local", workspace_root=sys.argv[1])
environment = LocalEnvironment(EnvironmentSetup(recipe, "killed", Path(sys.argv[1], "data")))
sandbox = environment.open("task_killed", labels={}, lifetime=300)
sandbox.exec(["sh", "-c", f"(setsid {sys.argv[2]} &) ; exit 0"])
print(sandbox.workspace_root, flush=True)
sandbox.exec(["sh", "-c", f"(setsid {sys.argv[3]} &) ; echo > running; sleep 1000"])
"""


@pytest.fixture
def other_run(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], Path]]]:
    """Starts another run, in mid-command: its process and its workspace root."""
    started: list[subprocess.Popen[str]] = []

    def start(*sleeps: str) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", RUN, str(tmp_path / "root"), *sleeps]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        root = Path(process.stdout.readline().strip())
        wait_until((root / "running").exists)
        return process, root

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_every_process_of_a_killed_run_ends_at_once(
    make: Make, other_run: Callable[..., tuple[subprocess.Popen[str], Path]]
) -> None:
    left_running, running = long_sleep(), long_sleep()
    process, _ = other_run(left_running, running)
    observer = open_one(make())
    wait_until(lambda: count(observer, left_running) == count(observer, running) == 1)

    process.send_signal(signal.SIGKILL)

    wait_until(lambda: count(observer, left_running) + count(observer, running) == 0)
    observer.close()


def test_the_next_run_removes_the_folders_of_dead_runs_and_no_others(
    make: Make, tmp_path: Path, other_run: Callable[..., tuple[subprocess.Popen[str], Path]]
) -> None:
    dead, dead_root = other_run(long_sleep(), long_sleep())
    _, living_root = other_run(long_sleep(), long_sleep())
    dead.kill()
    dead.wait()

    make().prepare()

    assert not dead_root.exists()
    assert living_root.exists()
    assert len(list((tmp_path / "root").glob("*.lock"))) == 1
