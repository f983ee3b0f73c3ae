"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]


def find_python(version: str) -> str:
    """Return a Python that runs (pyenv puts some on the path that do not); skip without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = shutil.which(f"python{version}")
    candidates = [found, *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    pytest.skip(f"no Python {version} here")
