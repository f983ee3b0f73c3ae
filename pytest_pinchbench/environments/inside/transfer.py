"""Moving files in and out of a sandbox: the part that touches the file system.

The same functions run at both ends: here, and, sent as text, in the sandbox's Python
(3.8 and up, standard library only). Each takes its own arguments, then what it reads from
and what it writes to. Folders and single files travel as a tar stream with one top entry.

What comes out of a sandbox was made by an agent: nothing in it is followed or trusted to
lead anywhere but below the target.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

CHUNK = 1 << 18


def set_up(workspace_root: str, private_root: str, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Make a sandbox's two folders, as root if need be for the user that process 1 runs as.

    Writes the absolute path of the Python that runs this.
    """
    user = os.stat("/proc/1")
    make_folder(workspace_root, 0o755)
    make_folder(private_root, 0o755)
    os.chmod(private_root, 0o700)
    if os.geteuid() == 0 and user.st_uid != 0:
        _give(private_root, user)
        now = os.stat(workspace_root)
        if now.st_uid == 0 and not now.st_mode & stat.S_IWOTH:
            _give(workspace_root, user)
    writer.write(os.fsencode(sys.executable))


def _give(path: str, user: os.stat_result) -> None:
    try:
        os.chown(path, user.st_uid, user.st_gid)
    except PermissionError:  # a root without capabilities
        os.chmod(path, 0o1777)


def write_files(reader: IO[bytes], writer: IO[bytes]) -> None:
    """Write the files whose paths and sizes the first line lists, and make the folders, which
    it lists with null. New files are 0600, new folders 0700."""
    for path, size in json.loads(reader.readline()):
        if size is None:
            make_folder(path.rstrip("/"), 0o700)
        else:
            make_folder(os.path.dirname(path), 0o700)
            write_file(path, reader, size, 0o600)


def read_file(path: str, reader: IO[bytes], writer: IO[bytes]) -> None:
    # without O_NONBLOCK, a FIFO in its place would hold us for ever
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(2, "not a regular file", path)
    with open(descriptor, "rb") as file:
        while data := file.read(CHUNK):
            writer.write(data)


def pack(path: str, only: str, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Write what is at ``path`` as a tar stream. Links are packed as links, FIFOs, sockets and
    devices left out; so is what may not be read, or goes while we look. ``only``: a JSON list
    of the names below ``path`` that are wanted; an empty one means everything."""
    os.lstat(path)  # nothing there: FileNotFoundError
    with tarfile.open(
        fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8"
    ) as tar:
        for name in json.loads(only):
            folders = name.split("/")[:-1]
            steps = [os.path.join(path, *folders[: n + 1]) for n in range(len(folders))]
            if not any(os.path.islink(step) for step in steps):
                _pack(tar, os.path.join(path, name), "top/" + name)
        if only == "[]":
            _pack(tar, path, "top")


def _pack(tar: tarfile.TarFile, path: str, name: str) -> None:
    entry = tarfile.TarInfo(name)
    try:
        status = os.lstat(path)
        entry.mode = stat.S_IMODE(status.st_mode)
        entry.mtime = status.st_mtime
        if stat.S_ISLNK(status.st_mode):
            entry.type = tarfile.SYMTYPE
            entry.linkname = os.readlink(path)
            tar.addfile(entry)
        elif stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(path))
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
            for inner in names:
                _pack(tar, os.path.join(path, inner), name + "/" + inner)
        elif stat.S_ISREG(status.st_mode):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            with open(os.open(path, flags), "rb") as file:
                entry.size = os.fstat(file.fileno()).st_size
                tar.addfile(entry, _Padded(file))
    except (FileNotFoundError, PermissionError):
        pass


class _Padded:
    """A file that somebody cuts short while it is packed reads as zeros from there on."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        return self.file.read(size).ljust(size, b"\0")


def unpack(path: str, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Make ``path`` from a tar stream of :func:`pack`.

    Links are made last, so that no entry can be written through one; setuid bits and owners
    are dropped, and folders stay usable by their owner.
    """
    make_folder(os.path.dirname(path), 0o700)
    folders = []
    links = []
    with tarfile.open(fileobj=reader, mode="r|", encoding="utf-8") as tar:
        for entry in tar:
            parts = entry.name.split("/")[1:]
            if "" in parts or "." in parts or ".." in parts:
                raise OSError(22, "an entry that leads elsewhere", entry.name)
            target = os.path.join(path, *parts)
            for depth in range(len(parts)):
                _own_folder(os.path.join(path, *parts[:depth]))
            if entry.isdir():
                _own_folder(target)
                folders.append((target, entry.mode & 0o777 | 0o700))
            elif entry.issym():
                links.append((target, entry.linkname))
            elif entry.isreg():
                content = tar.extractfile(entry)
                assert content is not None  # it is None for what is not a file
                write_file(target, content, entry.size, entry.mode & 0o777)
                os.chmod(target, entry.mode & 0o777)
                os.utime(target, (entry.mtime, entry.mtime))
    for target, destination in links:
        if os.path.lexists(target) and not os.path.isdir(target):
            os.unlink(target)
        os.symlink(destination, target)
    for target, mode in reversed(folders):
        os.chmod(target, mode)


def _own_folder(path: str) -> None:
    """A real folder at ``path``; what else is there, a link above all, makes way."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)


def write_file(path: str, reader: IO[bytes], size: int, mode: int) -> None:
    """``size`` bytes of ``reader`` into ``path``, which, if it is a link, is replaced."""
    if os.path.islink(path):
        os.unlink(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags, mode), "wb") as file:
        while size > 0:
            data = reader.read(min(CHUNK, size))
            if not data:
                raise OSError(5, "the content is cut off", path)
            file.write(data)
            size -= len(data)


def make_folder(path: str, mode: int) -> None:
    """Make a folder and those above it, as far as they are missing, all with ``mode``."""
    if path and not os.path.isdir(path):
        make_folder(os.path.dirname(path), mode)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
