"""Installs on this machine, with a small stand-in for npm: the real one fetches 700 MB."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_pinchbench.harnesses.openclaw import install, node, npm
from pytest_pinchbench.harnesses.openclaw.install import install_here
from pytest_pinchbench.issues import HarnessUnavailable

NPM = """
import json, os, pathlib, sys, time
arguments = sys.argv[1:]
with open(os.environ["NPM_LOG"], "a") as log:
    log.write(json.dumps(arguments) + "\\n")
wanted = arguments[-1] if arguments[0] == "install" else arguments[1]
version = wanted.partition("@")[2]
if version == "2026.1.99":
    sys.exit("npm error code ETARGET\\nnpm error notarget No matching version found")
if version == "2026.1.98":
    sys.exit("npm error code ENOTFOUND\\nnpm error network getaddrinfo ENOTFOUND registry")
if arguments[0] == "view":
    print("2026.9.7")
    sys.exit()
package = pathlib.Path(arguments[arguments.index("--prefix") + 1], "node_modules/openclaw")
package.mkdir(parents=True)
(package / "half.txt").write_text("half of it")
time.sleep(float(os.environ.get("NPM_TAKES", "0.3")))
node = os.environ.get("NPM_NODE", ">=18")
(package / "package.json").write_text(json.dumps({"version": version, "engines": {"node": node}}))
(package / "openclaw.mjs").write_text("made at " + str(time.time_ns()))
if "NPM_PENDING" in os.environ:
    (package / ".openclaw-lifecycle-pending").touch()
"""


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of what npm was asked."""
    script = tmp_path / "npm.py"
    script.write_text(NPM)
    monkeypatch.setattr(npm, "_command", lambda: [sys.executable, str(script)])
    program = _node(tmp_path, "v24.19.0")
    monkeypatch.setattr(node, "nodes", lambda: iter([program]))
    monkeypatch.setenv("NPM_LOG", str(tmp_path / "npm.log"))
    return tmp_path / "npm.log"


def _node(folder: Path, version: str) -> Path:
    program = folder / "node"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return program


def _asked(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def _quiet(message: str) -> None:
    pass


def test_a_version_is_installed_once(tmp_path: Path, log: Path) -> None:
    first = install_here(tmp_path, "2026.9.1", again=False, say=_quiet)
    second = install_here(tmp_path, "2026.9.1", again=False, say=_quiet)
    assert first == second
    assert first.entry.is_file()
    assert first.folder == tmp_path / "openclaw" / "2026.9.1"
    (asked,) = _asked(log)
    assert asked[0] == "install"
    assert {"--ignore-scripts", "--no-audit", "--no-fund", "openclaw@2026.9.1"} <= set(asked)


@pytest.mark.slow
def test_each_version_has_a_place_of_its_own(tmp_path: Path) -> None:
    folders = {
        install_here(tmp_path, version, again=False, say=_quiet).folder.name
        for version in ("2026.9.1", "2026.3.22", None)
    }
    assert folders == {"2026.9.1", "2026.3.22", install.DEFAULT_VERSION}


def test_an_agent_can_call_openclaw_with_the_node_that_fits(tmp_path: Path) -> None:
    found = install_here(tmp_path, "2026.9.1", again=False, say=_quiet)
    asked = subprocess.run([found.programs / "openclaw"], capture_output=True, text=True)
    assert asked.stdout == "v24.19.0\n"  # what the stand-in for Node says


def test_it_says_what_it_does_before_and_after(tmp_path: Path) -> None:
    said: list[str] = []
    install_here(tmp_path, "2026.9.1", again=False, say=said.append)
    assert said[0].startswith("installing OpenClaw 2026.9.1 into ")
    assert said[1] == "installed OpenClaw 2026.9.1"


@pytest.mark.slow
def test_a_run_can_make_an_install_anew_and_does_so_once(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "an earlier run")
    first = install_here(tmp_path, "2026.9.1", again=False, say=_quiet).entry.read_text()
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "this run")
    second = install_here(tmp_path, "2026.9.1", again=True, say=_quiet).entry.read_text()
    third = install_here(tmp_path, "2026.9.1", again=True, say=_quiet).entry.read_text()
    assert first != second == third
    assert len(_asked(log)) == 2
    assert [path.name for path in (tmp_path / "openclaw").iterdir() if path.is_dir()] == [
        "2026.9.1"
    ]


def test_workers_that_start_at_once_install_once(tmp_path: Path, log: Path) -> None:
    workers = [_install_elsewhere(tmp_path) for _ in range(4)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0, 0]
    assert len(_asked(log)) == 1


def test_an_install_that_was_killed_is_not_taken_for_a_good_one(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_TAKES", "600")
    worker = _install_elsewhere(tmp_path)
    while not list(tmp_path.glob("openclaw/.2026.9.1-*/node_modules/openclaw/half.txt")):
        assert worker.poll() is None
        time.sleep(0.02)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()

    monkeypatch.setenv("NPM_TAKES", "0")
    found = install_here(tmp_path, "2026.9.1", again=False, say=_quiet)
    assert found.entry.is_file()
    assert not list(tmp_path.glob("openclaw/.2026*"))  # what was left of the first


INSTALL = """
import sys
from pathlib import Path
from pytest_pinchbench.harnesses.openclaw import install, node, npm
folder = Path(sys.argv[1])
npm._command = lambda: [sys.executable, str(folder / "npm.py")]
node.nodes = lambda: iter([folder / "node"])
install.install_here(folder, "2026.9.1", again=False, say=lambda message: None)
"""


def _install_elsewhere(folder: Path) -> subprocess.Popen[bytes]:
    """An install in a process and a process group of its own."""
    return subprocess.Popen([sys.executable, "-c", INSTALL, str(folder)], start_new_session=True)


def test_a_tag_is_the_version_that_it_names_now(tmp_path: Path) -> None:
    assert install_here(tmp_path, "latest", again=False, say=_quiet).version == "2026.9.7"


def test_a_release_that_does_not_exist_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(HarnessUnavailable, match=r"no such release.*--pinchbench-openclaw-version"):
        install_here(tmp_path, "2026.1.99", again=False, say=_quiet)
    assert not [path for path in (tmp_path / "openclaw").iterdir() if path.is_dir()]


@pytest.mark.parametrize("version", ["2026.9", "../../x", "2026.9.6 --evil", "git+ssh://host/x"])
def test_what_is_no_version_never_reaches_npm(tmp_path: Path, log: Path, version: str) -> None:
    with pytest.raises(HarnessUnavailable, match="not an OpenClaw version"):
        install_here(tmp_path, version, again=False, say=_quiet)
    assert not log.exists()


def test_what_npm_says_of_a_failure_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(HarnessUnavailable, match=r"ENOTFOUND registry.*NPM_CONFIG_REGISTRY"):
        install_here(tmp_path, "2026.1.98", again=False, say=_quiet)


def test_a_node_that_is_too_old_is_one_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_NODE", ">=24.16.0 <25 || >=26.1.0")
    program = _node(tmp_path, "v20.20.2")
    monkeypatch.setattr(node, "nodes", lambda: iter([program]))
    with pytest.raises(HarnessUnavailable) as caught:
        install_here(tmp_path, "2026.9.6", again=False, say=_quiet)
    message = str(caught.value)
    assert "OpenClaw 2026.9.6 needs Node >=24.16.0 <25 || >=26.1.0" in message
    assert "is v20.20.2" in message
    assert "pip install 'pytest-pinchbench[local]'" in message


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("v24.16.0", ">=24.16.0 <25 || >=26.1.0", True),
        ("v24.15.9", ">=24.16.0 <25 || >=26.1.0", False),
        ("v25.0.0", ">=24.16.0 <25 || >=26.1.0", False),
        ("v26.1.0", ">=24.16.0 <25 || >=26.1.0", True),
        ("v20.20.2", ">=22.16.0", False),
        ("v22.22.3", ">=22.22.3 <23 || >=24.15.0 <25", True),
        ("v100.0.0", ">=22.16.0", True),
        ("v18.1.0", "*", True),
        ("v24.3.0", "24", True),
        ("not a version", ">=22", False),
    ],
)
def test_ranges_of_node_versions(version: str, wanted: str, holds: bool) -> None:
    assert node.satisfies(version, wanted) is holds


def test_an_install_is_complete_before_a_read_only_sandbox_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_PENDING", "1")
    program = tmp_path / "node"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        '*.mjs) echo "$*" >> "$0.log"; rm "${1%/*}/.openclaw-lifecycle-pending";;\n'
        "*) echo v24.19.0;;\n"
        "esac\n"
    )
    data = tmp_path / "data"

    for _ in range(2):
        found = install_here(data, "2026.9.6", again=False, say=print)

    assert (tmp_path / "node.log").read_text() == f"{found.entry} --version\n"
