"""Node ids of tasks: ``tasks/task_01_calendar.md::task_01_calendar``, ``[2]`` for attempt 2.

With several models ``[a]`` for model a, ``[a-2]`` for its second attempt.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_pinchbench.issues import printable

_NODE_ID = re.compile(r"::(?P<task>[^:\[]+)(?P<suffix>\[.*\])?$")


def split_node_id(node_id: str) -> tuple[str, str] | None:
    """Return the task id and the ``[...]`` behind it, None for an id of another shape."""
    match = _NODE_ID.search(node_id)
    return (match["task"], match["suffix"] or "") if match else None


def file_id(task_file: Path, root: Path, rootdir: Path, skill_dir: Path | None) -> str:
    """Return the node id of a task file of the suite ``root``, the same on every machine.

    ``tasks/...`` in the run's own suite and in a suite outside the rootdir; below the rootdir
    the path from there, as for any test file.
    """
    task_file = task_file.with_name(printable(task_file.name).replace("\n", "?").replace("::", "?"))
    own = skill_dir is not None and skill_dir.resolve() == root.resolve()
    base = rootdir if not own and task_file.is_relative_to(rootdir) else root
    return task_file.relative_to(base).as_posix()
