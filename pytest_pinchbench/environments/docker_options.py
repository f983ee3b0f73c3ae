"""The options of a docker recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_pinchbench.environments.recipe_options import LIMITS
from pytest_pinchbench.readers import (
    Reader,
    choice,
    number,
    text,
    text_or_number,
    texts,
    whole_number,
    yes_no,
)


def _size(value: Any, base: Path) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?([kmgt]?b)?|\d+[kmgt]", str(value), re.IGNORECASE):
        raise ValueError(f"has to be a size like 512m or 4g, not {value!r}")
    return str(value)


def _hosts(value: Any, base: Path) -> dict[str, str]:
    """A mapping, or a list of ``name:address`` as ``docker run --add-host`` has it."""
    pairs = value.items() if isinstance(value, dict) else [v.split(":", 1) for v in texts(value)]
    try:
        return {text(name): text_or_number(address) for name, address in pairs}
    except ValueError:
        raise ValueError("has to map names to addresses, or list name:address") from None


def _volumes(value: Any, base: Path) -> tuple[str, ...]:
    volumes = texts(value)
    if not all(re.fullmatch("[^:]+:/[^:]*(:[^:]+)?", volume) for volume in volumes):
        raise ValueError("has to list HOST_PATH_OR_VOLUME:/PATH, or that with :ro")
    return volumes


@dataclass(frozen=True)
class DockerOptions:
    """The ``options`` of a docker recipe; each means what ``docker run`` means by it."""

    cpus: float | None = None
    memory: str | None = None
    pids_limit: int | None = None
    network: str = "bridge"
    """``bridge``, ``host``, ``none``, a network's name, ``container:NAME``, or ``internal``: no
    way out but the model relay."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    platform: str | None = None
    pull: str = "missing"
    user: str | None = None
    """None: the image's own."""
    read_only: bool = False
    """The workspace root stays writable; so do the private root and ``/tmp``, in memory."""
    tmpfs: tuple[str, ...] = ()
    """``PATH`` or ``PATH:OPTIONS``."""
    volumes: tuple[str, ...] = ()
    """``HOST_PATH_OR_VOLUME:PATH[:ro]``."""
    shm_size: str | None = None
    runtime: str | None = None
    cap_drop: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    max_open: int | None = None
    opens_per_second: float | None = None


READERS: Mapping[str, Reader] = {
    **LIMITS,
    "cpus": number(above=0),
    "memory": _size,
    "pids_limit": whole_number(1),
    "network": text_or_number,
    "extra_hosts": _hosts,
    "platform": text_or_number,
    "pull": choice("missing", "always", "never"),
    "user": text_or_number,
    "read_only": yes_no,
    "tmpfs": texts,
    "volumes": _volumes,
    "shm_size": _size,
    "runtime": text_or_number,
    "cap_drop": texts,
    "security_opt": texts,
}
