"""Workspaces: made, kept, put back; in a real local sandbox."""

from __future__ import annotations

import io
import secrets
import tarfile
from pathlib import PurePosixPath

import pytest
from support.records import make_task

from pytest_pinchbench.attempt.workspace import (
    AssetMissing,
    archive_workspace,
    make_workspace,
    restore_workspace,
    task_files,
)
from pytest_pinchbench.environments import EnvironmentSetup, Recipe, find_environment
from pytest_pinchbench.issues import SandboxFailure
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.suite.task_file import WorkspaceFile


@pytest.fixture
def sandbox(tmp_path):
    setup = EnvironmentSetup(Recipe("local", "local"), "run1", tmp_path / "data")
    opened = find_environment("local")(setup).open("task_a", labels={}, lifetime=60)
    yield opened
    opened.close()


def nothing(path):
    return {}


def names(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(member.name for member in tar)


def test_a_workspace_starts_with_the_tasks_files(sandbox, tmp_path):
    (tmp_path / "data.csv").write_bytes(b"\x00\xff")
    task = make_task(
        workspace_files=(
            WorkspaceFile("inbox/über.txt", content="Grüße"),
            WorkspaceFile("data.csv", source=tmp_path / "data.csv"),
        )
    )
    workspace = make_workspace(sandbox, task, lambda path: {f"{path}/also": b"x"})
    assert sandbox.read(f"{workspace.path}/inbox/über.txt") == "Grüße".encode()
    assert sandbox.read(f"{workspace.path}/data.csv") == b"\x00\xff"
    assert sandbox.read(f"{workspace.path}/also") == b"x"
    root, folder, task_id, _ = workspace.path.rsplit("/", 3)
    assert (root, folder, task_id) == (sandbox.workspace_root, "pinchbench", task.id)


def test_an_asset_that_its_owner_can_run_can_be_run_by_the_agent(sandbox, tmp_path):
    files = []
    for name, mode in {"tool.sh": 0o755, "data.txt": 0o644}.items():
        (tmp_path / name).write_text("#!/bin/sh\necho ran")
        (tmp_path / name).chmod(mode)
        files.append(WorkspaceFile(f"in/{name}", source=tmp_path / name))
    workspace = make_workspace(sandbox, make_task(workspace_files=tuple(files)), nothing)
    done = sandbox.exec(["sh", "-c", "in/tool.sh; test ! -x in/data.txt"], cwd=workspace.path)
    assert (done.exit_code, done.stdout) == (0, b"ran\n")


def test_an_empty_workspace_is_there_and_no_two_are_the_same(sandbox):
    first = make_workspace(sandbox, make_task(), nothing)
    second = make_workspace(sandbox, make_task(), nothing)
    assert first != second
    assert sandbox.exec(["ls", first.path]).exit_code == 0


def test_a_missing_asset_names_task_and_file(tmp_path):
    task = make_task(workspace_files=(WorkspaceFile("a.pdf", source=tmp_path / "big.pdf"),))
    with pytest.raises(AssetMissing, match=r"task_00_hello needs .*big\.pdf"):
        task_files(task)


def test_a_kept_workspace_comes_back_as_it_was(sandbox):
    workspace = make_workspace(sandbox, make_task(), nothing)
    sandbox.write({f"{workspace.path}/deep/er/file": b"\x00" * 5000})
    sandbox.exec(["ln", "-s", "/etc/passwd", f"{workspace.path}/link"])
    sandbox.exec(["ln", f"{workspace.path}/deep/er/file", f"{workspace.path}/second name"])
    sandbox.exec(["mkfifo", f"{workspace.path}/fifo"])
    archive, issue = archive_workspace(sandbox, workspace, Redactor([]))
    assert issue is None
    assert {"./deep/er/file", "./link"} <= set(names(archive))
    restored = restore_workspace(sandbox, archive, "pinchbench/again/1")
    assert PurePosixPath(restored.path).name == "1"
    assert sandbox.read(f"{restored.path}/deep/er/file") == b"\x00" * 5000
    assert sandbox.read(f"{restored.path}/second name") == b"\x00" * 5000
    assert sandbox.exec(["readlink", f"{restored.path}/link"]).stdout == b"/etc/passwd\n"


def test_a_workspace_that_is_too_large_is_not_kept(sandbox, monkeypatch):
    monkeypatch.setattr("pytest_pinchbench.attempt.workspace.ARCHIVE_LIMIT", 1000)
    workspace = make_workspace(sandbox, make_task(), nothing)
    sandbox.write({f"{workspace.path}/big": b"x" * 2000})
    archive, issue = archive_workspace(sandbox, workspace, Redactor([]))
    assert archive is None
    assert issue.severity == "WARNING"


def test_a_workspace_with_a_key_in_it_is_not_kept(sandbox):
    workspace = make_workspace(sandbox, make_task(), nothing)
    sandbox.write({f"{workspace.path}/notes.txt": b"the key is sk-secret-1"})
    archive, issue = archive_workspace(sandbox, workspace, Redactor(["sk-secret-1"]))
    assert archive is None
    assert "API key" in issue.message


def test_an_archive_that_is_damaged_is_one_clear_sentence(sandbox):
    workspace = make_workspace(sandbox, make_task(), nothing)
    sandbox.write({f"{workspace.path}/file": secrets.token_bytes(50_000)})
    archive, _ = archive_workspace(sandbox, workspace, Redactor([]))
    for damaged in (archive[:20_000], b"no archive"):
        with pytest.raises(SandboxFailure, match="cannot be put into a sandbox") as raised:
            restore_workspace(sandbox, damaged, "pinchbench/again/1")
        assert "Traceback" not in str(raised.value)


def test_without_an_archive_the_workspace_is_there_and_empty(sandbox):
    restored = restore_workspace(sandbox, None, "pinchbench/again/1")
    assert sandbox.exec(["ls", "-A", restored.path]).stdout == b""
