"""Files that are in a workspace before the agent starts, as the front matter lists them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_pinchbench.settings.yaml_document import shown
from pytest_pinchbench.spelling import did_you_mean

if TYPE_CHECKING:
    from pytest_pinchbench.settings.yaml_document import Document

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What would move a terminal's cursor, start a new line, or turn the direction of text."""
ASSETS = ("assets", "tasks/assets")
"""Folders of a checkout that ``source`` is looked for in, in this order."""
_KEY = "workspace_files"
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class WorkspaceFile:
    """A file that is in the workspace before the agent starts.

    ``dest`` is a relative POSIX path inside the workspace. Exactly one of ``content`` (text,
    written as UTF-8) and ``source`` (a file inside the suite's assets folder) is given.
    """

    dest: str
    content: str | None = None
    source: Path | None = None


class WorkspaceFiles:
    """Reads the key ``workspace_files`` of a task in the checkout ``root``."""

    def __init__(self, front: Document, root: Path) -> None:
        self._wrong = front.error
        self._entries = front.value.get(_KEY)
        self._root = root

    def read(self) -> tuple[WorkspaceFile, ...]:
        """Return the files. Raises ``YamlError`` for an entry that cannot be used."""
        if self._entries is None:
            return ()
        if not isinstance(self._entries, list):
            raise self._wrong("workspace_files has to be a list", _KEY)
        files: dict[str, WorkspaceFile] = {}
        folders: set[str] = set()
        for index, entry in enumerate(self._entries):
            file = self._file(entry, index)
            above = {str(parent) for parent in PurePosixPath(file.dest).parents}
            if file.dest in files:
                reason = f"{file.dest!r} is there twice"
            elif file.dest in folders or not above.isdisjoint(files):
                reason = f"{file.dest!r} cannot be both a file and a folder"
            else:
                files[file.dest] = file
                folders |= above
                continue
            raise self._wrong(reason, _KEY, index)
        return tuple(files.values())

    def _file(self, entry: Any, index: int) -> WorkspaceFile:
        place = (_KEY, index)
        known = ("path", "content", "source", "dest")
        if not isinstance(entry, dict):
            raise self._wrong("an entry has to be {path, content} or {source, dest}", *place)
        for key in entry:
            if key not in known:
                raise self._wrong(
                    f"unknown key {shown(key)}{did_you_mean(key, known)}", *place, key
                )
        keys = frozenset(entry)
        if keys == {"path", "content"}:
            if not isinstance(entry["content"], str):
                reason = f"content has to be text, not {shown(entry['content'])}"
                raise self._wrong(reason, *place, "content")
            return WorkspaceFile(self._inside(entry, "path", place), content=entry["content"])
        if keys == {"source", "dest"}:
            dest, source = (self._inside(entry, key, place) for key in ("dest", "source"))
            return WorkspaceFile(dest, source=self._asset(source, place))
        raise self._wrong(
            f"an entry has to be {{path, content}} or {{source, dest}}, not {sorted(keys)}", *place
        )

    def _inside(self, entry: dict[str, Any], key: str, place: tuple[Any, ...]) -> str:
        """Return the value as a plain relative path that names something below its folder."""
        value = entry[key]
        if not isinstance(value, str):
            raise self._wrong(f"{key} has to be text, not {shown(value)}", *place, key)
        reason = _why_unsafe(value)
        if reason:
            raise self._wrong(f"{key} {shown(value)} {reason}", *place, key)
        return str(PurePosixPath(value))

    def _asset(self, source: str, place: tuple[Any, ...]) -> Path:
        """``source`` is meant from the assets folder; ``assets/x`` is understood, too."""

        def wrong(reason: str) -> Exception:
            return self._wrong(f"source {source!r} {reason}", *place, "source")

        below = source.removeprefix("assets/")
        places = [(self._root / one, name) for one in ASSETS for name in (source, below)]
        folder, name = next((one for one in places if (one[0] / one[1]).exists()), places[-1])
        found = folder / name
        if not is_inside(folder, self._root):
            raise wrong(f"cannot be copied: {folder} is a link out of the checkout")
        if not is_inside(found, folder):
            raise wrong(f"is a link out of {folder}")
        if not found.exists():
            raise wrong(
                "cannot be copied: there is no such file in assets or tasks/assets; complete the "
                "checkout, or name the other tasks with --pinchbench-suite"
            )
        if not found.is_file():
            raise wrong("is not a file")
        try:
            with found.open("rb") as file:
                pointer = file.read(len(_LFS)) == _LFS
        except OSError as error:
            raise wrong(f"cannot be read: {error.strerror}") from None
        if pointer:
            raise wrong(
                "cannot be copied: only its Git LFS pointer is in the checkout; fetch the file "
                "with `git lfs pull`"
            )
        return found


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path is below ``root`` once all links are followed."""
    # not resolve(): it raises on links that go round in a circle, before Python 3.13
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _why_unsafe(path: str) -> str | None:
    parts = path.split("/")
    if not path.strip() or str(PurePosixPath(path)) == "." or path.endswith("/"):
        return "names no file"
    if CONTROL.search(path):
        return "holds a control character"
    if "\\" in path or re.match(r"[A-Za-z]:", path):
        return "is a Windows path; write it with '/' and without a drive"
    if path.startswith("/"):
        return "is absolute; it has to be relative"
    if path.startswith("~"):
        return "begins with '~', which is not expanded"
    if ".." in parts:
        return "holds '..', which would leave its folder"
    return None
