"""What Daytona and Modal have in common: orders, faults, and that nothing stays behind.

The SDKs are the real ones, over the wire to servers of our own. How a sandbox behaves is the
conformance suite's matter (``tests/environments``).
"""

from __future__ import annotations

import sys
import threading

import pytest
from support.waiting import wait_until

from pytest_pinchbench.environments import check_reachable
from pytest_pinchbench.environments import cloud as cloud_module
from pytest_pinchbench.environments.cloud import CloudSandbox
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure, SettingsError
from tests.cloud.conftest import Cloud, open_one

pytestmark = pytest.mark.slow


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


# what is ordered


def test_a_sandbox_is_labelled_with_project_run_and_task(cloud: Cloud) -> None:
    cloud.open()

    [machine] = cloud.server.open()
    assert machine.labels.items() >= {
        ("project", "pytest-pinchbench"),
        ("run", "run-7"),
        ("task", "task_00_sanity"),
    }
    assert "task_00_sanity" in machine.name


def test_a_sandbox_has_the_recipes_variables_and_the_passed_ones(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "from this machine")
    environment = cloud.environment(env={"SET": "by the recipe"}, pass_env=("PASSED_ON", "UNSET"))

    sandbox = cloud.open(environment)

    result = sandbox.exec(sh('echo "$SET, $PASSED_ON, ${UNSET-unset}"'))
    assert result.stdout == b"by the recipe, from this machine, unset\n"


def test_a_closed_sandbox_is_gone_at_once_with_its_processes(cloud: Cloud) -> None:
    sandbox = cloud.open()
    sandbox.exec(sh("setsid sleep 1000 >/dev/null 2>&1 &"))
    [machine] = cloud.server.open()

    sandbox.close()
    sandbox.close()

    assert cloud.server.open() == []
    assert machine.processes() == []
    assert cloud.count("end") == 1


def test_a_kept_sandbox_stays_for_a_day_and_is_told_how_to_be_got_at(cloud: Cloud) -> None:
    sandbox = cloud.open(cloud.environment(keep=True))
    sandbox.write({f"{sandbox.workspace_root}/work": b"to look at"})

    sandbox.close()

    assert [machine.name for machine in cloud.server.open()] == [sandbox.name]
    assert (cloud.folder / "workspace" / "work").read_bytes() == b"to look at"
    assert f"{sandbox.name}: kept" in cloud.said[-1]
    assert "to get in: " in cloud.said[-1]
    assert "to remove it: " in cloud.said[-1]
    with pytest.raises(SandboxFailure, match="closed"):
        sandbox.exec(["true"])


def test_an_image_without_python_is_an_error_that_says_so_and_leaves_nothing(
    cloud: Cloud,
) -> None:
    (cloud.folder / "bin").mkdir()
    for tool in ("sh", "mktemp"):
        (cloud.folder / "bin" / tool).symlink_to(f"/bin/{tool}")

    with pytest.raises(EnvironmentUnavailable, match=r"image:1 has no python3"):
        cloud.open(cloud.environment(env={"PATH": str(cloud.folder / "bin")}))

    assert cloud.server.open() == []


def test_a_workspace_root_that_cannot_be_made_is_an_error_that_says_what_to_do(
    cloud: Cloud,
) -> None:
    with pytest.raises(EnvironmentUnavailable, match="--pinchbench-workspace-root"):
        cloud.open(cloud.environment(workspace_root="/proc/workspace"))

    assert cloud.server.open() == []


def test_a_recipe_without_an_image_is_an_error_that_names_the_option(cloud: Cloud) -> None:
    with pytest.raises(EnvironmentUnavailable, match="--pinchbench-image"):
        cloud.environment(image=None).prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"cpu": 2}, "did you mean 'cpus'"), ({"memory": "4g"}, "whole number")],
)
def test_an_option_that_cannot_be_used_is_an_error_at_once(
    cloud: Cloud, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        cloud.environment(options=options)


# what has to be there first


def test_a_missing_sdk_is_an_error_with_the_install_line(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, cloud.name, None)

    with pytest.raises(EnvironmentUnavailable) as caught:
        cloud.environment().prepare()

    assert f"pip install 'pytest-pinchbench[{cloud.name}]'" in str(caught.value)


def test_the_sdk_is_not_imported_before_it_is_used(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, cloud.name, None)

    assert cloud.environment().kind == cloud.name


KEY = r"DAYTONA_API_KEY|MODAL_TOKEN_SECRET"


def test_a_refused_key_is_an_error_before_the_first_task_and_asked_for_once(
    cloud: Cloud,
) -> None:
    cloud.fail("ask", "refused")

    with pytest.raises(EnvironmentUnavailable, match=KEY):
        cloud.environment().prepare()

    assert cloud.count("ask") == 1


def test_a_key_that_is_refused_later_ends_the_run_too(cloud: Cloud) -> None:
    cloud.fail("create", "refused")

    with pytest.raises(EnvironmentUnavailable, match=KEY):
        cloud.open()

    assert cloud.count("create") == 1


def test_an_order_that_cannot_be_met_ends_the_run_in_the_clouds_own_words(cloud: Cloud) -> None:
    cloud.fail("create", "impossible")

    with pytest.raises(EnvironmentUnavailable, match="CPU request 64 exceeds the maximum"):
        cloud.open()

    assert cloud.count("create") == 1


# what passes


def test_an_order_that_is_refused_for_a_second_is_repeated_after_it(cloud: Cloud) -> None:
    cloud.fail("create", "busy")

    cloud.open()

    [refused, accepted] = cloud.server.script.times(cloud.operations["create"])
    assert accepted - refused >= 1.0
    assert len(cloud.server.created) == 1


@pytest.mark.parametrize("fault", ["broken", "cut"])
def test_an_order_is_repeated_after_a_passing_fault(cloud: Cloud, fault: str) -> None:
    cloud.fail("create", *[fault] * (cloud.sdk_tries + 1))

    assert cloud.open().exec(["true"]).exit_code == 0
    assert len(cloud.server.created) == 1


def test_an_order_whose_answer_was_lost_makes_one_sandbox(cloud: Cloud) -> None:
    cloud.fail("create", "lost")

    sandbox = cloud.open()

    assert [machine.name for machine in cloud.server.open()] == [sandbox.name]


@pytest.mark.parametrize("fault", ["busy", "broken"])
def test_a_command_is_repeated_when_it_was_refused_for_a_while(cloud: Cloud, fault: str) -> None:
    sandbox = cloud.open()
    cloud.fail("run", fault)

    result = sandbox.exec(sh(f"echo once >> {sandbox.workspace_root}/log; echo ran"))

    assert result.stdout == b"ran\n"
    assert sandbox.read(f"{sandbox.workspace_root}/log") == b"once\n"


@pytest.mark.parametrize("fault", ["cut", "lost"])
def test_a_command_runs_once_however_its_request_is_cut_off(cloud: Cloud, fault: str) -> None:
    sandbox = cloud.open()
    cloud.fail("run", fault)

    result = sandbox.exec(
        sh(f"cat >> {sandbox.workspace_root}/log; echo out; echo err >&2; exit 3"), stdin=b"once\n"
    )

    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert sandbox.read(f"{sandbox.workspace_root}/log") == b"once\n"


def test_removal_is_repeated_after_a_passing_fault(cloud: Cloud) -> None:
    sandbox = cloud.open()
    cloud.fail("end", "broken", "cut")

    sandbox.close()

    assert cloud.server.open() == []


# what stays broken


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_module, "PATIENCE", 1.0)


@pytest.mark.usefixtures("impatient")
def test_a_cloud_that_stays_broken_fails_the_attempt_in_its_own_words(cloud: Cloud) -> None:
    cloud.fail("create", *["broken"] * 100)

    with pytest.raises(SandboxFailure, match="no upstream"):
        cloud.open()

    assert cloud.server.open() == []


@pytest.mark.usefixtures("impatient")
def test_a_cloud_that_stays_broken_ends_the_run_before_it_begins(cloud: Cloud) -> None:
    cloud.fail("ask", *["broken"] * 100)

    with pytest.raises(EnvironmentUnavailable, match="no upstream"):
        cloud.environment().prepare()


@pytest.mark.usefixtures("impatient")
def test_a_sandbox_that_cannot_be_removed_is_told_and_does_not_raise(cloud: Cloud) -> None:
    sandbox = cloud.open()
    cloud.fail("end", *["broken"] * 100)

    sandbox.close()

    assert f"{sandbox.name}: " in cloud.said[-1]
    assert "did not remove it" in cloud.said[-1]


def test_a_sandbox_that_dies_under_a_command_fails_that_attempt_only(cloud: Cloud) -> None:
    environment = cloud.environment()
    doomed, other = open_one(environment), open_one(environment)
    caught: list[SandboxFailure] = []

    def run(sandbox: CloudSandbox) -> None:
        try:
            sandbox.exec(sh(f"echo > {sandbox.private_root}/running; sleep 1000"))
        except SandboxFailure as failure:
            caught.append(failure)

    thread = threading.Thread(target=run, args=[doomed])
    thread.start()
    running = ["test", "-e", f"{doomed.private_root}/running"]
    wait_until(lambda: doomed.exec(running).exit_code == 0)
    [machine] = [machine for machine in cloud.server.open() if machine.name == doomed.name]
    cloud.server.remove(machine)
    thread.join(120)

    assert doomed.name in str(caught[0])
    assert other.exec(["echo", "fine"]).stdout == b"fine\n"
    with pytest.raises(SandboxFailure):
        doomed.exec(["true"])
    doomed.close()


# the way back to this machine


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8000/v1", "http://127.0.0.1/v1", "http://[::1]:80", "http://0.0.0.0:80"],
)
def test_this_machines_own_urls_are_out_of_reach_of_a_cloud(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    environment = cloud.environment()
    check_reachable(environment, url)  # this cloud is on this machine

    for variable in ("DAYTONA_API_URL", "DAYTONA_SERVER_URL", "MODAL_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)

    with pytest.raises(EnvironmentUnavailable, match="cannot reach"):
        check_reachable(environment, url)
    check_reachable(environment, "https://example.com/v1")
