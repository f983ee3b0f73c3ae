"""A source checkout works as it stands, whichever way it is installed."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("pytest_pinchbench", "grader", "recipes")
FILES = ("pyproject.toml", "README.md", "LICENSE")

CONFTEST = f"""
import sys

import pytest

sys.path.insert(0, {str(ROOT / "tests")!r})
from support.shell_agent import ShellAgent

@pytest.fixture(scope="session")
def pinchbench_harness():
    return ShellAgent({{"task_00_roll_call": "echo present"}})
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this checkout, with an agent that needs no OpenClaw."""
    folder = tmp_path / "checkout"
    for package in PACKAGES:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=without)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    (folder / "conftest.py").write_text(CONFTEST)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A virtual environment into which nothing is installed, but which sees this one's packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "others.pth").write_text("\n".join(others))
    return str(tmp_path / "venv" / "bin" / "python")


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["--editable"]], ids=["plain", "editable"])
def test_the_demo_runs_in_a_checkout(
    how: list[str], checkout: Path, python: str, tmp_path: Path
) -> None:
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    subprocess.run([python, "-m", "pip", "install", *offline, *how, checkout], check=True)
    demo = ("--pinchbench", "-p", "pytest_pinchbench.demo", "-p", "no:randomly")
    run = subprocess.run(
        [python, "-m", "pytest", *demo, "-k", "roll_call", f"--pinchbench-results-dir={tmp_path}"],
        cwd=checkout,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (record,) = tmp_path.glob("demo-scripted/*/*/*/result.json")
    assert json.loads(record.read_text())["metrics"]["score"] == 1.0


@pytest.mark.parametrize(
    "variable",
    [
        *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NPM_CONFIG_REGISTRY", "npm_config_cafile"),
        *("HTTPS_PROXY", "https_proxy", "NO_PROXY", "all_proxy", "PIP_INDEX_URL", "PIP_CERT"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    ],
)
def test_every_tox_environment_sees_where_registries_proxies_and_certificates_are(
    variable: str,
) -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    passed_on = {name: tox[name]["pass_env"] for name in tox.sections() if "pass_env" in tox[name]}
    assert "testenv" in passed_on
    for environment, patterns in passed_on.items():
        matches = [fnmatch.fnmatch(variable.upper(), line.upper()) for line in patterns.split()]
        assert any(matches), f"{environment} hides {variable}"
