"""Which OpenClaw is in a sandbox: asked once an image, and then known."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import HarnessUnavailable

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox

_PATIENCE = 120.0  # seconds; an answer takes 0.1 to 0.5 s, on a crowded machine many times that


def image_version(
    sandbox: Sandbox, command: Sequence[str], environment: Environment, data_dir: Path
) -> str | None:
    """The version that ``command`` is, in every sandbox of this image; None: it is not there."""
    if environment.on_this_machine:  # where a program can change under a path at any time
        return sandbox_version(sandbox, command)
    from filelock import FileLock

    folder = data_dir / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "openclaw-versions.json"
    key = f"{environment.image_id()} {command[0]}"
    with FileLock(folder / "openclaw-versions.lock"):
        known = _load(file)
        if key not in known:
            version = sandbox_version(sandbox, command)
            if version is None:  # an image may be completed; ask again next time
                return None
            new = file.with_suffix(".new")
            new.write_text(json.dumps({**known, key: version}, indent=1))
            new.replace(file)
            return version
        return known[key]


def _load(file: Path) -> dict[str, str]:
    try:
        known = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def sandbox_version(sandbox: Sandbox, command: Sequence[str]) -> str | None:
    """Ask. None: there is no such program. Raises ``HarnessUnavailable`` when it does not run."""
    asked = sandbox.exec([*command, "--version"], timeout=_PATIENCE)
    if asked.exit_code in (126, 127):
        return None
    said = (asked.stdout + b"\n" + asked.stderr).decode(errors="replace").strip()
    if asked.exit_code or asked.timed_out:
        raise HarnessUnavailable(
            f"{' '.join(command)} is in {sandbox.name}, but does not run: {said[-1000:]}"
        )
    found = re.search(r"\d+\.\d+\.\d+[-+.\w]*", said)
    return found[0] if found else said[:80]
