"""What every kind of environment has to do. Runs unchanged against each of them."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from probe import count, is_running, long_sleep, python, sh, timed_out_after
from support.waiting import wait_until

from pytest_pinchbench.environments import (
    OUTPUT_LIMIT,
    Environment,
    ExecResult,
    Sandbox,
    check_reachable,
)
from pytest_pinchbench.issues import OutputTooLarge, SandboxFailure

MB = 1 << 20
EVERY_BYTE = bytes(range(256))
ODD_NAME = "with space, ümläut, 日本, 'quote' and\nnewline"


# commands: what goes in, what comes out


def test_stdout_stderr_and_exit_code_come_apart(sandbox: Sandbox) -> None:
    result = sandbox.exec(sh("echo out; echo err >&2; exit 3"))

    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    assert not result.timed_out


@pytest.mark.parametrize("code", [0, 1, 127, 255])
def test_an_exit_code_is_the_commands_own(sandbox: Sandbox, code: int) -> None:
    assert sandbox.exec(sh(f"exit {code}")).exit_code == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_command_that_a_signal_ends_has_its_negative_number(
    sandbox: Sandbox, number: signal.Signals
) -> None:
    assert sandbox.exec(sh(f"kill -{number.value} $$")).exit_code == -number


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/command"])
def test_a_command_that_is_not_there_is_127_and_named(sandbox: Sandbox, command: str) -> None:
    result = sandbox.exec([command, "argument"])

    assert result.exit_code == 127
    assert command.encode() in result.stderr


@pytest.mark.parametrize("command", ["/etc/passwd", "/etc"])
def test_a_command_that_may_not_be_run_is_126_and_named(sandbox: Sandbox, command: str) -> None:
    result = sandbox.exec([command])

    assert result.exit_code == 126
    assert command.encode() in result.stderr


def test_a_missing_working_directory_is_126_and_named(sandbox: Sandbox) -> None:
    result = sandbox.exec(["true"], cwd="/no/such/folder")

    assert result.exit_code == 126
    assert b"/no/such/folder" in result.stderr


def test_a_command_runs_in_its_working_directory(sandbox: Sandbox) -> None:
    folder = f"{sandbox.workspace_root}/{ODD_NAME}"
    sandbox.write({folder: None})

    result = sandbox.exec(python(sandbox, "import os; print(os.getcwd(), end='')"), cwd=folder)

    assert result.stdout.decode() == folder


def test_arguments_arrive_unchanged(sandbox: Sandbox) -> None:
    words = ["", " two  spaces ", "new\nline", "'\"\\$HOME", "*", "--help", "日本 ü", "a" * 100_000]
    program = "import os, sys; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))"

    result = sandbox.exec([*python(sandbox, program), *words])

    assert result.stdout.decode().split("|") == words


def test_variables_are_added_to_those_of_the_sandbox(sandbox: Sandbox) -> None:
    value = "two words\nand a line, 日本"

    result = sandbox.exec(sh('printf %s "$GIVEN"; test -n "$PATH"'), env={"GIVEN": value})

    assert (result.stdout.decode(), result.exit_code) == (value, 0)
    assert sandbox.exec(sh('printf %s "$GIVEN"')).stdout == b""


def test_a_secret_variable_is_in_no_argument_list(sandbox: Sandbox) -> None:
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"

    key = secrets.token_hex(16)  # of no other test that runs beside this one
    result = sandbox.exec(sh(look), env={"API_KEY": key}, stdin=key.encode())

    assert b"cat" in result.stdout
    assert key.encode() not in result.stdout


def test_every_byte_comes_out_on_both_streams(sandbox: Sandbox) -> None:
    program = "import sys; d = bytes(range(256)); sys.stdout.buffer.write(d); "
    program += "sys.stderr.buffer.write(d[::-1])"

    result = sandbox.exec(python(sandbox, program))

    assert (result.stdout, result.stderr) == (EVERY_BYTE, EVERY_BYTE[::-1])


def test_standard_input_of_10_mb_arrives_whole(sandbox: Sandbox) -> None:
    stdin = os.urandom(10 * MB)

    result = sandbox.exec(["sha256sum"], stdin=stdin)

    assert result.stdout.split()[0].decode() == hashlib.sha256(stdin).hexdigest()


def test_standard_input_ends_where_none_is_given(sandbox: Sandbox) -> None:
    assert sandbox.exec(["cat"], timeout=120).exit_code == 0


def test_a_command_that_does_not_read_its_input_is_not_held_up(sandbox: Sandbox) -> None:
    result = sandbox.exec(sh("exec <&-; echo done"), stdin=bytes(10 * MB), timeout=120)

    assert (result.stdout, result.exit_code) == (b"done\n", 0)


def test_of_100_mb_of_output_the_end_is_kept_and_the_cut_said(sandbox: Sandbox) -> None:
    program = (
        "import sys\n"
        "for i in range(100):\n"
        "  sys.stdout.buffer.write(bytes([i]) * 1048576)\n"
        "  sys.stderr.buffer.write(bytes([i]) * 1048576)\n"
    )

    result = sandbox.exec(python(sandbox, program))

    whole = b"".join(bytes([i]) * MB for i in range(100))
    note = f"[{100 * MB - OUTPUT_LIMIT} bytes left out]\n".encode()
    assert result.stdout == note + whole[-OUTPUT_LIMIT:]
    assert result.stderr == note + whole[-OUTPUT_LIMIT:]
    assert result.exit_code == 0


def test_output_and_input_at_once_do_not_block_each_other(sandbox: Sandbox) -> None:
    stdin = os.urandom(10 * MB)

    result = sandbox.exec(
        sh(f"head -c {30 * MB} /dev/zero; cat; head -c {5 * MB} /dev/zero >&2"),
        stdin=stdin,
        timeout=120,
        output_limit=64 * MB,
    )

    assert not result.timed_out
    assert result.stdout == bytes(30 * MB) + stdin
    assert result.stderr == bytes(5 * MB)


def test_what_looks_like_the_end_of_a_command_is_output(sandbox: Sandbox) -> None:
    forged = '00000000000000000000000000000000 {"exit_code": 0, "stdout": 0, "stderr": 0}\n'

    result = sandbox.exec(sh('cat >&2; echo "after" >&2; exit 7'), stdin=forged.encode())

    assert result.exit_code == 7
    assert result.stderr.decode() == forged + "after\n"


def test_a_broken_pipe_ends_a_command_as_it_does_everywhere(sandbox: Sandbox) -> None:
    result = sandbox.exec(sh("yes | head -1; trap - INT; kill -INT $$"), timeout=120)

    assert result.stdout == b"y\n"
    assert result.exit_code == -signal.SIGINT


# the clock


def test_a_timeout_ends_a_command_on_time_and_keeps_what_it_said(sandbox: Sandbox) -> None:
    command = sh("echo apart >&2; echo early; sleep 1000; echo late")
    began = time.monotonic()

    result = timed_out_after(b"early\n", lambda timeout: sandbox.exec(command, timeout=timeout))

    assert result.stderr == b"apart\n"
    assert time.monotonic() - began < 500


def test_a_command_that_ends_before_its_timeout_has_not_timed_out(sandbox: Sandbox) -> None:
    result = sandbox.exec(["sleep", "0.2"], timeout=60)

    assert not result.timed_out
    assert 0.2 <= result.seconds < 60


DETACHED = {
    "a child": "{} &",
    "a new session": "setsid {} &",
    "nohup": "nohup {} >/dev/null 2>&1 &",
    "a daemon": "(setsid sh -c '{} & exit' >/dev/null 2>&1 </dev/null &)",
    "deaf to TERM": "sh -c 'trap \"\" TERM HUP INT; {}; true' &",
    "stopped": "{} & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!",
    "without variables": "(env -i $(command -v setsid) {} &)",
}
"""Ways in which a command can start something that is to outlive it."""


def detached_sleeps() -> tuple[dict[str, str], str]:
    """A command for each way, and a script that starts them all and waits until they run."""
    sleeps = {way: long_sleep() for way in DETACHED}
    script = [template.format(sleeps[way]) for way, template in DETACHED.items()]
    for sleep in sleeps.values():
        script.append(f"until {is_running(sleep)}; do sleep 0.01; done")
    return sleeps, "\n".join([*script, "echo ready"])


def test_a_timeout_kills_everything_that_the_command_started(sandbox: Sandbox) -> None:
    sleeps, script = detached_sleeps()

    command = sh(f"{script}; sleep 1000")

    timed_out_after(b"ready\n", lambda timeout: sandbox.exec(command, timeout=timeout))

    assert {way: count(sandbox, sleep) for way, sleep in sleeps.items()} == dict.fromkeys(sleeps, 0)


def test_a_timeout_kills_what_changes_its_identity_all_the_time(sandbox: Sandbox) -> None:
    runner = """
import os
print("running", flush=True)
for name in (1, 2):
    os.close(name)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    marker = long_sleep().split()[1]
    command = sh(f'{sandbox.python} -c "$RUNNER" {marker}; sleep 1000')

    def run(timeout: float) -> ExecResult:
        return sandbox.exec(command, env={"RUNNER": runner}, timeout=timeout)

    timed_out_after(b"running\n", run)

    assert sandbox.exec(sh(is_running(marker))).exit_code != 0


@pytest.mark.slow
def test_a_timeout_leaves_other_commands_alone(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor() as pool:
        other = pool.submit(sandbox.exec, sh("sleep 3; echo finished"))
        late = sandbox.exec(sh("sleep 1000"), timeout=0.5)

        assert late.timed_out
        assert other.result().stdout == b"finished\n"


# what a command leaves running


def test_a_process_that_holds_the_output_open_does_not_hold_up_the_result(
    sandbox: Sandbox,
) -> None:
    result = sandbox.exec(sh(f"{long_sleep()} & echo done"), timeout=60)

    assert (result.stdout, result.timed_out) == (b"done\n", False)
    assert result.seconds < 60


def test_a_process_that_writes_without_end_does_not_hold_up_the_result(sandbox: Sandbox) -> None:
    # not `yes`, which in a moment writes more than a busy machine can hold
    result = sandbox.exec(sh("while :; do echo yes; done & echo done; sleep 0.2"), timeout=60)

    assert b"done\n" in result.stdout
    assert not result.timed_out


def test_a_process_left_behind_goes_on_until_it_is_stopped(sandbox: Sandbox) -> None:
    beats = f"{sandbox.workspace_root}/beats"
    # it writes to the command's stdout, too, which must not kill it
    clock = f"while true; do echo b; echo b >> {beats}; sleep 0.02; done"
    sandbox.exec(sh(f"({clock}) & until test -s {beats}; do sleep 0.01; done"))
    before = sandbox.read(beats)
    wait_until(lambda: len(sandbox.read(beats)) > len(before))

    sandbox.stop_processes()

    after = sandbox.read(beats)
    sandbox.exec(["sleep", "0.2"])
    assert sandbox.read(beats) == after


@pytest.mark.slow
def test_stop_processes_kills_everything_that_commands_left_running(sandbox: Sandbox) -> None:
    sleeps, script = detached_sleeps()
    sandbox.exec(sh(script))
    # some are seen while they are still the `setsid` or `nohup` before the sleep
    wait_until(lambda: all(count(sandbox, sleep) == 1 for sleep in sleeps.values()))

    sandbox.stop_processes()

    assert {way: count(sandbox, sleep) for way, sleep in sleeps.items()} == dict.fromkeys(sleeps, 0)


def test_stop_processes_has_nothing_to_do_and_does_it_twice(sandbox: Sandbox) -> None:
    sandbox.stop_processes()
    sandbox.stop_processes()

    assert sandbox.exec(["true"]).exit_code == 0


def test_the_dead_are_buried(sandbox: Sandbox) -> None:
    said = f"{sandbox.workspace_root}/said"
    orphan = f"(setsid sh -c 'echo /proc/$$ >> {said}; sleep 0.1' &)"
    until_all = f"until [ $(cat {said} | wc -l) = 3 ]; do sleep 0.01; done"
    sandbox.exec(sh(f"touch {said}; {orphan}; {orphan}; {orphan}; {until_all}"))
    folders = sandbox.read(said).split()

    assert len(folders) == 3
    wait_until(lambda: sandbox.exec(["ls", "-d", *map(bytes.decode, folders)]).stdout == b"")


# several at once


def test_commands_from_several_threads_each_get_their_own_result(sandbox: Sandbox) -> None:
    def run(number: int) -> tuple[bytes, bytes, int]:
        stdin = bytes([number]) * MB
        result = sandbox.exec(sh(f"cat; echo {number} >&2; exit {number}"), stdin=stdin)
        return result.stdout[:MB], result.stderr, result.exit_code

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(16)))

    assert results == [(bytes([n]) * MB, f"{n}\n".encode(), n) for n in range(16)]


def test_sandboxes_do_not_share_files(open_sandbox: Callable[[], Sandbox]) -> None:
    one, other = open_sandbox(), open_sandbox()
    one.write({f"{one.workspace_root}/mine": b"mine"})

    assert one.name != other.name
    assert one.private_root != other.private_root
    with pytest.raises(FileNotFoundError):
        other.read(f"{other.workspace_root}/mine")


# files


def test_a_file_is_read_as_it_was_written(sandbox: Sandbox) -> None:
    path = f"{sandbox.workspace_root}/new/folders/{ODD_NAME}"

    sandbox.write({path: EVERY_BYTE, f"{sandbox.workspace_root}/empty": b""})

    assert sandbox.read(path) == EVERY_BYTE
    assert sandbox.read(f"{sandbox.workspace_root}/empty") == b""


def test_a_big_file_is_read_as_it_was_written(sandbox: Sandbox) -> None:
    content = os.urandom(30 * MB)
    sandbox.write({f"{sandbox.workspace_root}/big": content})

    assert sandbox.read(f"{sandbox.workspace_root}/big") == content


def test_what_is_written_is_its_owners_alone(sandbox: Sandbox) -> None:
    root = sandbox.workspace_root
    sandbox.write({f"{root}/folder/file": b"x", f"{root}/bare": None})

    result = sandbox.exec(["stat", "-c", "%a", "folder", "folder/file", "bare"], cwd=root)

    assert result.stdout == b"700\n600\n700\n"


def test_writing_again_replaces_the_content_and_keeps_the_mode(sandbox: Sandbox) -> None:
    path = f"{sandbox.workspace_root}/file"
    sandbox.write({path: b"long content"})
    sandbox.exec(["chmod", "755", path])

    sandbox.write({path: b"short"})

    assert sandbox.read(path) == b"short"
    assert sandbox.exec(["stat", "-c", "%a", path]).stdout == b"755\n"


def test_writing_onto_a_link_replaces_the_link(sandbox: Sandbox) -> None:
    root = sandbox.workspace_root
    sandbox.write({f"{root}/target": b"old"})
    sandbox.exec(["ln", "-s", f"{root}/target", f"{root}/link"])

    sandbox.write({f"{root}/link": b"new"})

    assert sandbox.read(f"{root}/target") == b"old"
    assert sandbox.read(f"{root}/link") == b"new"


def test_writing_where_it_cannot_be_is_a_failure_that_names_the_file(sandbox: Sandbox) -> None:
    sandbox.write({f"{sandbox.workspace_root}/file": b""})

    with pytest.raises(SandboxFailure, match="file/below"):
        sandbox.write({f"{sandbox.workspace_root}/file/below": b"x"})


@pytest.mark.parametrize("script", ["true", "mkfifo it", "mkdir it", "ln -s nowhere it"])
def test_what_is_no_file_cannot_be_read(sandbox: Sandbox, script: str) -> None:
    sandbox.exec(sh(script), cwd=sandbox.workspace_root)

    with pytest.raises(FileNotFoundError, match="it"):
        sandbox.read(f"{sandbox.workspace_root}/it")


def make_tree(root: Path) -> Path:
    (root / "empty").mkdir(parents=True)
    (root / "deep" / ODD_NAME).mkdir(parents=True)
    (root / "deep" / ODD_NAME / "binary").write_bytes(EVERY_BYTE)
    (root / "program").write_text("#!/bin/sh\necho ran\n")
    (root / "program").chmod(0o755)
    (root / "secret").write_bytes(b"x")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("program")
    (root / "dangling").symlink_to("/no/such/place")
    (root / "deep").chmod(0o750)
    return root


def describe(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            found[str(path.relative_to(root))] = os.readlink(path)
        else:
            content = path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(root))] = (oct(mode), content)
    return found


def test_a_folder_goes_in_and_comes_out_as_it_was(sandbox: Sandbox, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    remote = f"{sandbox.workspace_root}/some/where/tree"

    sandbox.upload(tree, remote)
    sandbox.download(remote, tmp_path / "back" / "tree")

    assert sandbox.exec([f"{remote}/link"]).stdout == b"ran\n"
    assert describe(tmp_path / "back" / "tree") == describe(tree)


def test_a_single_file_goes_to_exactly_that_path(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(EVERY_BYTE)
    remote = f"{sandbox.workspace_root}/{ODD_NAME}"

    sandbox.upload(tmp_path / "file", remote)
    sandbox.download(remote, tmp_path / "other name")

    assert sandbox.read(remote) == EVERY_BYTE
    assert (tmp_path / "other name").read_bytes() == EVERY_BYTE


def test_a_big_folder_goes_in_and_comes_out(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(3):
        (tmp_path / "tree" / str(number)).write_bytes(os.urandom(15 * MB))

    sandbox.upload(tmp_path / "tree", f"{sandbox.workspace_root}/tree")
    sandbox.download(f"{sandbox.workspace_root}/tree", tmp_path / "back")

    assert describe(tmp_path / "back") == describe(tmp_path / "tree")


def test_a_folder_goes_over_what_is_there(sandbox: Sandbox, tmp_path: Path) -> None:
    root = sandbox.workspace_root
    sandbox.write({f"{root}/tree/kept": b"kept", f"{root}/tree/file": b"old and long"})
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"new")

    sandbox.upload(tmp_path / "tree", f"{root}/tree")

    assert sandbox.read(f"{root}/tree/kept") == b"kept"
    assert sandbox.read(f"{root}/tree/file") == b"new"


def test_links_come_out_as_links_and_are_not_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    script = "ln -s /etc/passwd file; ln -s /etc folder; ln -s ../.. up"
    sandbox.exec(sh(f"mkdir tree; cd tree; {script}"), cwd=sandbox.workspace_root)

    sandbox.download(f"{sandbox.workspace_root}/tree", tmp_path / "out")

    links = {path.name: os.readlink(path) for path in (tmp_path / "out").iterdir()}
    assert links == {"file": "/etc/passwd", "folder": "/etc", "up": "../.."}


def test_a_link_that_is_asked_for_by_name_comes_out_as_a_link(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.exec(["ln", "-s", "/etc", f"{sandbox.workspace_root}/link"])

    sandbox.download(f"{sandbox.workspace_root}/link", tmp_path / "out")

    assert os.readlink(tmp_path / "out") == "/etc"


def test_downloading_over_an_older_link_does_not_write_through_it(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "outside")
    sandbox.write({f"{sandbox.workspace_root}/tree/folder/file": b"x"})

    sandbox.download(f"{sandbox.workspace_root}/tree", tmp_path / "out")

    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "out" / "folder" / "file").read_bytes() == b"x"


def test_what_is_no_file_is_left_out_of_a_download(sandbox: Sandbox, tmp_path: Path) -> None:
    program = (
        "import os, socket; os.mkfifo('fifo'); socket.socket(1).bind('socket'); open('f', 'w')"
    )
    sandbox.write({f"{sandbox.workspace_root}/tree": None})
    sandbox.exec(python(sandbox, program), cwd=f"{sandbox.workspace_root}/tree")

    sandbox.download(f"{sandbox.workspace_root}/tree", tmp_path / "out")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["f"]


def test_nothing_there_to_download_is_file_not_found(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        sandbox.download(f"{sandbox.workspace_root}/nothing-here", tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_only_what_is_named_is_copied_out(sandbox: Sandbox, tmp_path: Path) -> None:
    root = f"{sandbox.workspace_root}/tree"
    sandbox.write({f"{root}/a/one": b"1", f"{root}/a/two": b"2", f"{root}/three": b"3"})
    sandbox.exec(["ln", "-s", "a", f"{root}/link"])

    only = ["a/one", "three", "not-there", "link/two"]
    sandbox.download(root, tmp_path / "out", only=only)

    found = [path for path in (tmp_path / "out").rglob("*") if not path.is_dir()]
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in found) == ["a/one", "three"]


def test_more_than_the_limit_is_not_copied_out(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file takes no room in the sandbox, and would take all of it here."""
    path = f"{sandbox.workspace_root}/sparse"
    sandbox.exec(["truncate", "-s", "100M", path])

    with pytest.raises(OutputTooLarge, match="more than 5 MB"):
        sandbox.download(path, tmp_path / "out", limit=5_000_000)
    monkeypatch.setattr("pytest_pinchbench.environments.sandbox.READ_LIMIT", 4_000_000)
    with pytest.raises(OutputTooLarge, match="more than 4 MB"):
        sandbox.read(path)

    assert not (tmp_path / "out").exists()
    assert sandbox.exec(["echo", "still there"]).stdout == b"still there\n"


# the sandbox itself


def test_a_fresh_sandbox_has_its_folders_and_its_python(sandbox: Sandbox) -> None:
    ask = "import sys; print(sys.executable, sys.version_info >= (3, 8))"
    listing = sandbox.exec(["ls", "-A", sandbox.workspace_root, sandbox.private_root])

    assert sandbox.exec(python(sandbox, ask)).stdout.decode() == f"{sandbox.python} True\n"
    assert sandbox.python.startswith("/")
    assert listing.exit_code == 0
    assert sandbox.exec(sh("echo > here && rm here"), cwd=sandbox.workspace_root).exit_code == 0


def test_the_private_folder_is_outside_the_workspaces_and_closed_to_others(
    sandbox: Sandbox,
) -> None:
    mode = sandbox.exec(["stat", "-c", "%a", sandbox.private_root]).stdout

    assert mode == b"700\n"
    assert not sandbox.private_root.startswith(sandbox.workspace_root)
    assert sandbox.exec(sh("echo > here && rm here"), cwd=sandbox.private_root).exit_code == 0


def test_the_image_id_is_stable(environment: Environment) -> None:
    assert environment.image_id()
    assert environment.image_id() == environment.image_id()


def test_a_url_elsewhere_is_taken_for_reachable(environment: Environment) -> None:
    check_reachable(environment, "https://user:pass@models.example.com:8443/v1?x=1")


def test_an_agent_that_kills_python_by_name_loses_neither_result_nor_sandbox(
    sandbox: Sandbox,
) -> None:
    script = "for number in TERM INT HUP QUIT; do kill -$number $PPID; done; echo alive"

    assert sandbox.exec(sh(script)).stdout == b"alive\n"


def test_a_command_that_kills_its_supervisor_is_not_a_result_of_it(
    environment: Environment, sandbox: Sandbox
) -> None:
    sleep = long_sleep()
    command = sh(f"setsid {sleep} & kill -KILL $PPID; sleep 1000")
    if environment.grades_fresh:  # the sandbox itself is known to live
        assert sandbox.exec(command, timeout=60).exit_code == -9
    else:
        with pytest.raises(SandboxFailure, match=sandbox.name):
            sandbox.exec(command, timeout=60)
        sandbox.stop_processes()

    assert count(sandbox, sleep) == 0


@pytest.mark.parametrize("file", ["mem", "fd/2", "environ"])
def test_a_command_cannot_reach_into_its_supervisor(sandbox: Sandbox, file: str) -> None:
    program = f"import os; open(f'/proc/{{os.getppid()}}/{file}', 'rb')"
    if os.geteuid() == 0 and sandbox.exec(["id", "-u"]).stdout == b"0\n":
        capabilities = sandbox.exec(["grep", "CapEff", "/proc/self/status"]).stdout.split()[1]
        if int(capabilities, 16) >> 19 & 1:
            pytest.skip("root with CAP_SYS_PTRACE may reach into anything")

    assert b"PermissionError" in sandbox.exec(python(sandbox, program)).stderr


def test_planted_modules_and_variables_are_not_loaded(sandbox: Sandbox) -> None:
    root = sandbox.workspace_root
    planted = b"raise SystemExit('planted')"
    names = ("json", "sitecustomize", "usercustomize", "tarfile", "signal", "os")
    sandbox.write({f"{root}/{name}.py": planted for name in names})

    result = sandbox.exec(["echo", "fine"], cwd=root, env={"PYTHONPATH": root})
    sandbox.write({f"{root}/more": b"x"})

    assert (result.stdout, result.stderr) == (b"fine\n", b"")
    assert sandbox.read(f"{root}/more") == b"x"


def test_a_closed_sandbox_fails_in_every_method(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = f"{sandbox.workspace_root}/file"
    sandbox.close()

    for use in (
        lambda: sandbox.exec(["true"]),
        lambda: sandbox.stop_processes(),
        lambda: sandbox.write({path: b""}),
        lambda: sandbox.read(path),
        lambda: sandbox.upload(tmp_path / "file", path),
        lambda: sandbox.download(path, tmp_path / "out"),
    ):
        with pytest.raises(SandboxFailure, match="closed"):
            use()


def test_closing_twice_is_closing_once(sandbox: Sandbox) -> None:
    sandbox.close()
    sandbox.close()


def test_closing_ends_a_command_that_runs(sandbox: Sandbox) -> None:
    running = f"{sandbox.workspace_root}/running"
    with ThreadPoolExecutor() as pool:
        command = pool.submit(sandbox.exec, sh(f"echo > {running}; sleep 1000"))
        wait_until(lambda: sandbox.exec(["test", "-e", running]).exit_code == 0)
        sandbox.close()

        with pytest.raises(SandboxFailure):
            command.result(timeout=120)


def test_an_environment_prepares_and_can_be_used_from_several_threads(
    environment: Environment,
) -> None:
    environment.prepare()
    results: list[bytes] = []

    def attempt(number: int) -> None:
        sandbox = environment.open(f"task_{number}", labels={"task": "t"}, lifetime=300)
        try:
            results.append(sandbox.exec(["echo", str(number)]).stdout)
        finally:
            sandbox.close()

    threads = [threading.Thread(target=attempt, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == [b"0\n", b"1\n", b"2\n"]
