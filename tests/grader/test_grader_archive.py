"""The grader as it travels: one archive, standard library only, Python 3.8 and newer."""

from __future__ import annotations

import ast
import io
import json
import os
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from support.pythons import VERSIONS, find_python

from pytest_pinchbench.attempt.grading import archive

SOURCES = {
    source.name: source.read_text(encoding="utf-8")
    for source in files("pytest_pinchbench.grader").iterdir()
    if source.name.endswith(".py")
}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """(level, module) of each import, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((0, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


@pytest.mark.parametrize("name", SOURCES)
def test_only_the_standard_library_is_imported(name: str) -> None:
    for level, module in imported(SOURCES[name]):
        top = module.partition(".")[0]
        assert level == 1 or (level == 0 and top in sys.stdlib_module_names), module


@pytest.mark.parametrize("name", SOURCES)
def test_the_syntax_is_that_of_python_3_8(name: str) -> None:
    ast.parse(SOURCES[name], feature_version=(3, 8))


def test_the_archive_is_the_same_every_time() -> None:
    first = archive()
    archive.cache_clear()
    assert archive() == first


def test_the_archive_holds_the_grader_uncompressed() -> None:
    with zipfile.ZipFile(io.BytesIO(archive())) as pyz:
        names = {info.filename for info in pyz.infolist()}
        assert all(info.compress_type == zipfile.ZIP_STORED for info in pyz.infolist())
    assert names == {"__main__.py", *(f"grader/{name}" for name in SOURCES)}


def order(workspace: Path, checks: str, kind: str = "automated") -> bytes:
    return json.dumps(
        {
            "nonce": "the-nonce",
            "task": {
                "grading_type": kind,
                "grading_weights": None,
                "automated_checks": checks,
                "prompt": "p",
                "prompts": ["p"],
                "expected_behavior": "e",
                "grading_criteria": "c",
                "judge_rubric": None,
                "files": [],
                "one_conversation": False,
            },
            "workspace": str(workspace),
            "transcript": [],
            "transcript_limit": 1000,
            "judge_view": "full",
            # a port that nothing listens on
            "judge": {
                "id": "j",
                "base_url": "http://127.0.0.1:9",
                "api_key": None,
                "api_protocol": "openai-chat",
                "params": {},
            },
            "judge_timeout": 20,
            "check_timeout": 60,
            "timeout": None,
            "previous": None,
        }
    ).encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["automated", "hybrid"])
def test_it_runs_on_every_python(tmp_path: Path, version: str, kind: str) -> None:
    python = find_python(version)
    (tmp_path / "grader.pyz").write_bytes(archive())
    checks = "def grade(transcript, workspace_path): return {'a': 0.5}"
    done = subprocess.run(
        [python, "-I", "-S", str(tmp_path / "grader.pyz")],
        input=order(tmp_path, checks, kind),
        capture_output=True,
        env={"no_proxy": "*"},
        check=True,
    )
    nonce, _, result = done.stdout.decode().partition(" ")
    assert nonce == "the-nonce"
    assert done.stderr == b""
    found = json.loads(result)
    assert found["parts"]["automated"]["score"] == 0.5
    assert [issue["code"] for issue in found["issues"]] == (
        ["judge_connection", "judge_blind"] if kind == "hybrid" else []
    )


# What the agent's own program could try when a check runs it, as the grader's own user.
PRYING = """
import os, sys
ARCHIVE = sys.argv[1]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            if ARCHIVE not in file.read():
                continue
    except OSError:
        continue
    if pid == str(os.getpid()):
        continue
    for place, how in (("fd/1", os.O_WRONLY), ("mem", os.O_RDONLY)):
        try:
            os.open(f"/proc/{pid}/{place}", how)
            print("open", end=" ")
        except OSError:
            print("closed", end=" ")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a process")
def test_a_program_run_by_a_check_cannot_reach_into_the_grader() -> None:
    """As another user when these tests run as root: nothing is closed to root here."""
    root = os.getuid() == 0
    python = "/usr/bin/python3" if root else sys.executable
    if not os.access(python, os.X_OK):
        pytest.skip(f"no {python} here")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        pyz = f"grader-{secrets.token_hex(8)}.pyz"  # no other grader of this machine
        (folder / pyz).write_bytes(archive())
        (folder / "prying.py").write_text(PRYING)
        checks = (
            "def grade(transcript, workspace_path):\n"
            "    import subprocess, sys\n"
            f"    prying = [sys.executable, 'prying.py', {pyz!r}]\n"
            "    out = subprocess.check_output(prying, text=True)\n"
            "    return {word: 1.0 for word in out.split()}"
        )
        user = {"user": 65534, "group": 65534, "extra_groups": []} if root else {}
        done = subprocess.run(
            [python, "-I", "-S", str(folder / pyz)],
            input=order(folder, checks),
            capture_output=True,
            check=True,
            **user,  # type: ignore[call-overload]
        )
    assert json.loads(done.stdout.partition(b" ")[2])["breakdown"] == {"closed": 1.0}
