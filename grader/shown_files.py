"""The text files of a workspace, as a judge who sees all of the work is shown them."""

from __future__ import annotations

import codecs
import os
import stat
from typing import Any, Collection, Dict, Iterator, List, Optional, Tuple

MOST = 60  # files that are shown
LENGTH = 3_000  # characters of one file
TOTAL = 60_000  # characters of all files
_NAMED = 100  # names of files that are not shown, for each reason
_SEEDED = {
    *("AGENTS.md", "BOOTSTRAP.md", "HEARTBEAT.md", "IDENTITY.md"),
    *("SOUL.md", "TOOLS.md", "USER.md"),
}
"""What OpenClaw itself puts at the top of a workspace."""
_FOLDERS = {"node_modules", "skills"}


def shown_files(workspace: str, given: Collection[str]) -> List[Dict[str, Any]]:
    """The files as entries of the evidence; ``given`` are the names that the task began with."""
    entries: List[Dict[str, Any]] = []
    left_out: Dict[str, List[str]] = {}
    room = TOTAL
    for name, aside in _names(workspace, given):
        if aside:
            left_out.setdefault(aside, []).append(name)
            continue
        if len(entries) == MOST or room <= 0:
            why = "more than {} files, or {:,} characters".format(MOST, TOTAL)
            left_out.setdefault(why, []).append(name)
            continue
        text, size, why_not = _read(os.path.join(workspace, name), min(LENGTH, room))
        if text is None:
            left_out.setdefault(why_not, []).append(name)
            continue
        entry: Dict[str, Any] = {"file": name, "text": text}
        if name in given:
            entry["given"] = True
        read = len(text.encode("utf-8"))
        if read < size:
            entry["left_out"] = {"bytes": size - read}
        room -= len(text)
        entries.append(entry)
    for why, names in left_out.items():
        more = {"more": len(names) - _NAMED} if len(names) > _NAMED else {}
        entries.append({"not_shown": names[:_NAMED], **more, "because": why})
    return entries


def _names(workspace: str, given: Collection[str]) -> Iterator[Tuple[str, str]]:
    """Every file (a folder with a slash at its end), and why it is left aside."""
    for folder, folders, names in os.walk(workspace):
        below = os.path.relpath(folder, workspace)
        prefix = "" if below == "." else below + "/"
        kept = []
        for name in sorted(folders):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                yield prefix + name, "a link"
            elif name.startswith(".") or name in _FOLDERS:
                yield prefix + name + "/", "a folder of tools or settings"
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            seeded = not prefix and name in _SEEDED and name not in given
            yield prefix + name, "a file that the agent's program keeps for itself" * seeded


def _read(path: str, length: int) -> Tuple[Optional[str], int, str]:
    """The beginning of a text file and its size in bytes; or None, and why not."""
    try:
        # a link would lead out of the workspace, a pipe would keep us for ever
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None, 0, "not a file"
            data = file.read(4 * length)
    except OSError:
        return None, 0, "a link, or not readable"
    try:
        whole = len(data) >= about.st_size
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return None, 0, "not text"
    if "\0" in text:
        return None, 0, "not text"
    return text[:length], about.st_size, ""
