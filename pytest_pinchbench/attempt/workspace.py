"""An attempt's working directory: made, kept as an archive, put back."""

from __future__ import annotations

import gzip
import os
import posixpath
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import Issue, SandboxFailure

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox
    from pytest_pinchbench.redaction import Redactor
    from pytest_pinchbench.suite.task_file import Task

ARCHIVE_LIMIT = 50_000_000  # bytes of files; a larger workspace is not kept


@dataclass(frozen=True)
class Workspace:
    """``<root>/pinchbench/<task id>/<random>`` in the sandbox, absolute."""

    path: str

    @property
    def relative(self) -> str:
        """The path below the sandbox's workspace root."""
        return posixpath.join(*self.path.rsplit("/", 3)[1:])


class AssetMissing(SandboxFailure):
    """A file that a task needs is not in the checkout. FATAL for that task only."""


def make_workspace(
    sandbox: Sandbox,
    task: Task,
    also: Callable[[str], Mapping[str, bytes]],
    relative: str | None = None,
) -> Workspace:
    """A fresh workspace with the task's files in it, at a random path or at ``relative``.

    What ``also`` gives for the workspace's path (files elsewhere in the sandbox, by absolute
    path) is written in the same step. Raises ``AssetMissing``, ``SandboxFailure``.
    """
    relative = relative or posixpath.join("pinchbench", task.id, secrets.token_hex(8))
    path = posixpath.join(sandbox.workspace_root, relative)
    files: dict[str, bytes | None] = {path: None}
    files.update({posixpath.join(path, dest): data for dest, data in task_files(task).items()})
    sandbox.write({**files, **also(path)})
    programs = [
        posixpath.join(path, file.dest)
        for file in task.workspace_files
        if file.source and os.access(file.source, os.X_OK)
    ]
    if programs:
        sandbox.exec(["chmod", "u+x", *programs], timeout=60)
    return Workspace(path)


def task_files(task: Task) -> dict[str, bytes]:
    """What the workspace starts with, by relative path. Raises ``AssetMissing``."""
    files: dict[str, bytes] = {}
    for file in task.workspace_files:
        if file.source is None:
            files[file.dest] = (file.content or "").encode()
            continue
        try:
            files[file.dest] = file.source.read_bytes()
        except OSError as error:
            raise AssetMissing(
                f"{task.id} needs {file.source}, which cannot be read ({error.strerror}); "
                f"complete the checkout, or leave the task out with --pinchbench-suite"
            ) from None
    return files


# Runs in the sandbox. A link is kept as a link; left out is what may not be read, and what is
# neither file nor folder.
_ARCHIVE = """
import gzip, os, sys, tarfile
root, limit = sys.argv[1], int(sys.argv[2])
total = entries = 0
for folder, folders, names in os.walk(root):
    entries += len(folders) + len(names)
    if entries > 200000:
        sys.exit(4)
    for name in names:
        info = os.lstat(os.path.join(folder, name))
        total += info.st_size
        if total > limit:
            sys.exit(3)
def plain(info):
    mode = os.R_OK | os.X_OK if info.isdir() else os.R_OK
    readable = info.issym() or os.access(os.path.join(root, info.name), mode)
    kind = info.isfile() or info.isdir() or info.issym() or info.islnk()
    return info if readable and kind else None
with gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=1, mtime=0) as stream:
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(root, arcname=".", filter=plain)
"""

_RESTORE = """
import os, sys, tarfile, zlib
root = sys.argv[1]
os.makedirs(root, exist_ok=True)
try:
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", lambda member, path: member)
        for member in archive:
            member.uid, member.gid = os.getuid(), os.getgid()
            member.uname = member.gname = ""
            archive.extract(member, root)
except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
    sys.exit(str(error))
"""


def archive_workspace(
    sandbox: Sandbox, workspace: Workspace, redactor: Redactor
) -> tuple[bytes | None, Issue | None]:
    """The workspace as a gzipped tar, or why there is none.

    Never raises: a lost archive costs a later regrade, not the score. A workspace with a
    secret of the run in it is not kept.
    """
    argv = [sandbox.python, "-I", "-S", "-c", _ARCHIVE, workspace.path, str(ARCHIVE_LIMIT)]
    try:
        done = sandbox.exec(argv, timeout=120, output_limit=2 * ARCHIVE_LIMIT)
    except SandboxFailure as error:
        return None, _not_kept(str(error))
    if done.exit_code == 3:
        return None, _not_kept(f"it holds more than {ARCHIVE_LIMIT // 1_000_000} MB")
    if done.exit_code == 4:
        return None, _not_kept("it holds more than 200,000 files and folders")
    if done.exit_code != 0 or done.timed_out:
        return None, _not_kept(done.stderr.decode(errors="replace").strip()[-300:] or "timed out")
    if redactor.found_in(gzip.decompress(done.stdout)):
        return None, _not_kept("the agent wrote an API key into it")
    return done.stdout, None


def restore_workspace(sandbox: Sandbox, archive: bytes | None, relative: str) -> Workspace:
    """Unpack an archive below the sandbox's workspace root; without one, an empty workspace.

    Raises ``SandboxFailure``.
    """
    workspace = Workspace(posixpath.join(sandbox.workspace_root, relative))
    if archive is None:
        sandbox.write({workspace.path: None})
        return workspace
    argv = [sandbox.python, "-I", "-S", "-c", _RESTORE, workspace.path]
    done = sandbox.exec(argv, stdin=archive, timeout=120)
    if done.exit_code != 0 or done.timed_out:
        why = done.stderr.decode(errors="replace").strip()[-300:] or "timed out"
        raise SandboxFailure(f"the kept workspace cannot be put into a sandbox: {why}")
    return workspace


def _not_kept(why: str) -> Issue:
    return Issue("WARNING", "workspace_not_kept", f"the workspace is not kept: {why}")
