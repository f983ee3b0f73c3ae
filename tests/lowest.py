"""Install the lowest versions that pyproject.toml declares of each dependency.

``python tests/lowest.py EXTRA...`` in an environment that has pytest-pinchbench.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires

from packaging.requirements import Requirement


def lowest(extras: list[str]) -> Iterator[str]:
    """Return a pin for each dependency, and for those of the extras.

    Raises ``ValueError`` where a dependency has not exactly one lower bound.
    """
    for line in requires("pytest-pinchbench") or ():
        wanted = Requirement(line)
        environments = [{"extra": extra} for extra in ("", *extras)]
        if wanted.marker is None or any(map(wanted.marker.evaluate, environments)):
            (bound,) = (part.version for part in wanted.specifier if part.operator == ">=")
            yield f"{wanted.name}=={bound}"


if __name__ == "__main__":
    pins = list(lowest(sys.argv[1:]))
    print(*pins)
    raise SystemExit(subprocess.call([sys.executable, "-m", "pip", "install", "-q", *pins]))
