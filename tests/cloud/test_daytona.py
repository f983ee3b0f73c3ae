"""What is Daytona's own: its words for an order, and commands by request and file."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import wait_until

from pytest_pinchbench.environments import cloud as cloud_module
from pytest_pinchbench.environments import daytona as daytona_module
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure
from tests.cloud.conftest import Cloud, open_one

pytestmark = pytest.mark.slow

MB = 1 << 20


def test_an_order_names_image_size_network_and_the_end_of_its_life(daytona: Cloud) -> None:
    options = {"cpus": 2, "memory": 4, "disk": 10, "network_block_all": True, "target": "eu"}

    open_one(daytona.environment(options=options), lifetime=1000.0)

    [order] = daytona.server.created
    assert order["buildInfo"]["dockerfileContent"] == "FROM registry.example.com/image:1\n"
    assert (order["cpu"], order["memory"], order["disk"]) == (2, 4, 10)
    assert (order["networkBlockAll"], order["target"]) == (True, "eu")
    # 1000 s and the 10 minutes that a start may take; stopped is deleted
    assert order["ttlMinutes"] == order["autoStopInterval"] == 27
    assert order["autoDeleteInterval"] == 0


def test_a_snapshot_takes_the_place_of_image_and_size(daytona: Cloud) -> None:
    environment = daytona.environment(image=None, options={"snapshot": "with-openclaw"})

    open_one(environment)

    [order] = daytona.server.created
    assert order["snapshot"] == "with-openclaw"
    assert order.get("buildInfo") is None
    assert "with-openclaw" in environment.image_id()


def test_only_what_a_digest_names_is_the_same_in_another_run(daytona: Cloud) -> None:
    for image, same in (("image:1", False), (f"image@sha256:{'0' * 64}", True)):
        ids = {daytona.environment(image=image, run_id=run).image_id() for run in ("one", "two")}
        assert (len(ids) == 1) is same


def test_no_key_is_an_error_that_names_the_variable(
    daytona: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")

    with pytest.raises(EnvironmentUnavailable, match="DAYTONA_API_KEY"):
        daytona.environment().prepare()


def test_an_account_that_is_full_for_a_while_is_waited_for(daytona: Cloud) -> None:
    from tests.cloud.daytona_server import HTTPFault

    full = HTTPFault(403, "Total CPU limit exceeded. Maximum allowed: 10.")
    daytona.server.script.fail("create", full, full)

    daytona.open()

    assert daytona.count("create") == 3


def test_an_account_that_stays_full_fails_the_attempt_and_names_the_option(
    daytona: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cloud.daytona_server import HTTPFault

    monkeypatch.setattr(cloud_module, "PATIENCE", 0.5)
    full = HTTPFault(403, "Total CPU limit exceeded. Maximum allowed: 10.")
    daytona.server.script.fail("create", *[full] * 50)

    with pytest.raises(SandboxFailure, match="max_open"):
        daytona.open()


def test_a_command_outlives_the_requests_that_wait_for_it(
    daytona: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sandbox = daytona.open()
    monkeypatch.setattr(daytona_module, "LONG_POLL", 0.2)
    gate = tmp_path / "gate"
    wait = f"until test -e {gate}; do sleep 0.05; done; cat"
    before = daytona.count("run")

    with ThreadPoolExecutor() as pool:
        command = pool.submit(sandbox.exec, ["sh", "-c", wait], stdin=b"late")
        try:
            wait_until(lambda: daytona.count("run") - before > 2)
        finally:
            gate.touch()

    assert command.result().stdout == b"late"


def test_a_download_that_is_cut_off_is_repeated(daytona: Cloud) -> None:
    from tests.cloud.daytona_server import HTTPFault

    sandbox = daytona.open()
    daytona.server.script.fail("download body", HTTPFault())

    result = sandbox.exec(["head", "-c", str(3 * MB), "/dev/zero"])

    assert result.stdout == bytes(3 * MB)


def test_an_upload_that_is_refused_for_a_while_is_repeated(daytona: Cloud) -> None:
    from tests.cloud.daytona_server import HTTPFault

    sandbox = daytona.open()
    daytona.server.script.fail("upload", HTTPFault(502), HTTPFault(), HTTPFault(after=True))

    assert sandbox.exec(["cat"], stdin=b"whole").stdout == b"whole"


def test_no_secret_is_in_a_command(daytona: Cloud) -> None:
    from tests.cloud.daytona_server import HTTPFault

    sandbox = daytona.open()
    commands: list[bytes] = []
    # append is never true, so the fault never comes
    daytona.server.script.fail("execute", HTTPFault(), when=commands.append)

    sandbox.exec(["true"], env={"API_KEY": "sk-secret"}, stdin=b"sk-secret-too")

    assert commands
    assert not any(b"sk-secret" in command for command in commands)


def test_what_has_been_fetched_is_not_kept_in_the_sandbox(daytona: Cloud) -> None:
    sandbox = daytona.open()
    for _ in range(3):
        sandbox.exec(["head", "-c", str(MB), "/dev/zero"])

    assert len(list(Path(sandbox.private_root).glob("job-*"))) == 1


def test_opening_leaves_the_alarm_signal_to_others(daytona: Cloud) -> None:
    """pytest-timeout's clock is a SIGALRM; the SDK's timeouts in the main thread are, too."""

    def handler(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGALRM, handler)
    signal.alarm(3600)
    try:
        daytona.open().close()

        assert signal.getsignal(signal.SIGALRM) is handler
        assert signal.alarm(0) > 3000
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_what_hides_from_the_cookie_is_stopped_through_its_keeper(daytona: Cloud) -> None:
    sandbox = daytona.open()
    sleep = "setsid env -i sleep 1000 </dev/null >/dev/null 2>&1"
    pid = int(sandbox.exec(["sh", "-c", f"{sleep} & echo $!"]).stdout)
    assert is_alive(pid)

    sandbox.stop_processes()

    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # gone before it was opened, or after
        return False
