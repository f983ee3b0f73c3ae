"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]


def find_python(version: str) -> str:
    """Return the path of that Python itself (pyenv puts scripts on the path); skip without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = shutil.which(f"python{version}")
    candidates = [found, *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]
    for candidate in filter(None, candidates):
        where = [candidate, "-c", "import sys; print(sys.executable)"]
        ran = subprocess.run(where, capture_output=True, text=True)
        if ran.returncode == 0:
            return ran.stdout.strip()
    pytest.skip(f"no Python {version} here")
