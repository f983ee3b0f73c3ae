"""Environments of other people's plugins, and runs in them: subprocesses, as a user's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from platformdirs import user_cache_path
from support import suites
from support.surroundings import foreign_variables

ROOT = Path(__file__).parents[2]

ENVIRONMENTS = {
    "everyday": (
        *("pytest-asyncio", "pytest-benchmark", "pytest-cov", "pytest-freezer", "pytest-html"),
        *("pytest-randomly", "pytest-rerunfailures", "pytest-socket", "pytest-split"),
        *("pytest-subprocess", "pytest-timeout", "pyfakefs", "requests-mock"),
    ),
    "reruns": (
        *("allure-pytest", "flaky", "pytest-github-actions-annotate-failures"),
        *("pytest-repeat", "pytest-sugar", "pytest-testmon"),
    ),
    "rich": ("pytest-rich",),
    "tldr": ("pytest-tldr",),
}
"""What is installed together: what takes the same place excludes each other."""

CONFTEST = """
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, {tests!r})
from support.shell_agent import ShellAgent

SCRIPTS = {scripts!r}

@pytest.fixture(scope="session")
def pinchbench_harness():
    return ShellAgent({{one: f"echo {{one}} >> {log}; {{SCRIPTS[one]}}" for one in SCRIPTS}})

@pytest.fixture
def pinchbench_task(pinchbench_task):
    with socket.socket():  # as the connection to a Docker Engine
        pass
    subprocess.run(["true"], check=True)
    assert time.time() > 1.7e9
    return pinchbench_task
"""

SCRIPTS = {
    "task_a": "echo yes > made.txt",
    "task_b": "sleep 0.5; echo no > made.txt",
    "task_c": "exit 3",
}


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    exit_code: int
    stdout: str
    stderr: str
    agents: dict[str, int]
    """How often each task's agent has run, in this and earlier runs of the project."""
    scores: dict[str, float | None]
    junit: dict[str, int]
    records: list[dict[str, Any]]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """``python(environment)``: its Python, and the folder of our distribution for its path.

    Environments are kept in the user's cache, without our distribution: another checkout may
    use them at the same time.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    ours = shared / "ours"
    with FileLock(f"{ours}.lock"):
        if not ours.exists():
            install(Path(sys.executable), "--no-deps", "--target", str(ours), str(ROOT))

    def make(name: str) -> tuple[Path, Path]:
        own = [one for one in requires("pytest-pinchbench") or () if "extra ==" not in one]
        wanted = sorted([*own, *ENVIRONMENTS[name]])
        key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
        folder = user_cache_path("pytest-pinchbench-tests") / "neighbours" / f"{name}-{key}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        found = folder / "bin" / "python"
        with FileLock(f"{folder}.lock"):
            if not (folder / "made").exists():
                subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
                install(found, *wanted)
                (folder / "made").touch()
        return found, ours

    return make


def install(python: Path, *what: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", *what], check=True)


@pytest.fixture
def start(python: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> Callable[..., Outcome]:
    """``start(environment, *options)`` runs three tasks in local sandboxes: the first scores 1,
    the second 0.5, the third is invalid.
    """

    def run(
        environment: str,
        *options: str,
        conftest: str = "",
        terminal: bool = False,
        **variables: str,
    ) -> Outcome:
        interpreter, ours = python(environment)
        log = tmp_path / "agents.log"
        suites.write_suite(tmp_path / "skill", **{task: {} for task in SCRIPTS})
        text = CONFTEST.format(tests=str(ROOT / "tests"), scripts=SCRIPTS, log=log)
        (tmp_path / "conftest.py").write_text(text + conftest)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        foreign = {*foreign_variables(), *(name for name in os.environ if "PYTEST" in name)}
        environ = {name: value for name, value in os.environ.items() if name not in foreign}
        environ |= {"PYTHONPATH": str(ours), "PINCHBENCH_SKILL_DIR": "skill", **variables}
        given = ["--pinchbench", "--model=lab/m", "--pinchbench-env=local", "--junitxml=junit.xml"]
        command = [str(interpreter), "-m", "pytest", *given, *options]
        code, stdout, stderr = call(command, tmp_path, environ, terminal)
        print(stdout, stderr, sep="\n")
        newest = max((tmp_path / "pinchbench-results").glob("*/*"), default=tmp_path / "none")
        found = [json.loads(path.read_text()) for path in newest.rglob("result.json")]
        return Outcome(
            code,
            stdout,
            stderr,
            Counter(log.read_text().split()) if log.exists() else {},
            {one["task_id"]: one["metrics"]["score"] for one in found},
            junit(tmp_path / "junit.xml"),
            found,
        )

    return run


def call(
    command: list[str], folder: Path, environ: dict[str, str], terminal: bool
) -> tuple[int, str, str]:
    """Run a command; with ``terminal`` its standard output is one."""
    if not terminal:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr
    main, side = os.openpty()
    written: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(main, 65536)
            except OSError:  # nobody has the other side open any more
                return
            written.append(data)

    reader = threading.Thread(target=read)
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=side, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(side)
        reader.start()
        _, stderr = process.communicate()
    reader.join()
    os.close(main)
    stdout = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(written).decode(errors="replace"))
    return process.returncode, stdout, stderr


def junit(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    (suite,) = ElementTree.parse(path).getroot().iter("testsuite")
    return {name: int(suite.get(name, "")) for name in ("tests", "failures", "errors", "skipped")}
