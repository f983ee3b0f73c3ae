"""A machine whose registry and model have a certificate that only this machine trusts.

npm is the real one, and so is Node; the package that it installs is a stand-in.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness_attempts import Attempt, make_task
from support.tls_server import private_authority, serve

from pytest_pinchbench.harnesses.openclaw import OpenClawHarness, node
from pytest_pinchbench.harnesses.openclaw.install import install_here
from pytest_pinchbench.issues import HarnessUnavailable

VERSION = "2026.9.6"
VARIABLES = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that does not say yet whom to trust; its npm's prefix."""
    for name in list(os.environ):
        if name.upper().startswith(("NODE_", "NPM_CONFIG_", "SSL_CERT_")):
            monkeypatch.delenv(name)
    prefix = tmp_path / "machine"
    for folder in ("home", "etc", "bin"):
        (prefix / folder).mkdir(parents=True)
    program = next(node.nodes())
    script = program.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    npm = prefix / "bin" / "npm"
    npm.write_text(f'#!/bin/sh\nPREFIX="{prefix}" exec "{program}" "{script}" "$@"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("HOME", str(prefix / "home"))
    monkeypatch.setenv("PATH", f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return prefix


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The file with the certificate of the registry's authority, alone in its folder."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    return folder / "authority.pem"


@pytest.fixture
def registry(machine: Path, authority: Path) -> Iterator[str]:
    """The URL of a registry with one small package by OpenClaw's name."""
    context = private_authority(authority)
    manifest = {"name": "openclaw", "version": VERSION, "engines": {"node": ">=18"}}
    tarball = _package({"package.json": json.dumps(manifest), "openclaw.mjs": "// a stand-in"})
    files = {f"/openclaw-{VERSION}.tgz": tarball}
    with serve(context, files) as url:
        digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        dist = {"tarball": f"{url}/openclaw-{VERSION}.tgz", "integrity": f"sha512-{digest}"}
        released = {VERSION: {**manifest, "dist": dist}}
        about = {"name": "openclaw", "dist-tags": {"latest": VERSION}, "versions": released}
        files["/openclaw"] = json.dumps(about).encode()
        yield url


def _package(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def _name(authority: Path, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = authority.parent if variable == "SSL_CERT_DIR" else authority
    monkeypatch.setenv(variable, str(named))


def _install(folder: Path) -> str:
    found = install_here(folder / "data", VERSION, again=False, say=lambda message: None)
    return found.entry.read_text()


@pytest.mark.parametrize("variable", VARIABLES)
def test_npm_trusts_the_authority_that_a_variable_names(
    variable: str, registry: str, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry)
    _name(authority, variable, monkeypatch)
    assert _install(tmp_path) == "// a stand-in"


def test_npm_is_configured_as_the_machines_own(
    registry: str, authority: Path, machine: Path, tmp_path: Path
) -> None:
    (machine / "etc" / "npmrc").write_text(f"registry={registry}\ncafile={authority}\n")
    assert _install(tmp_path) == "// a stand-in"


@pytest.mark.slow
def test_a_certificate_that_is_not_trusted_is_an_error_soon_that_names_the_variable(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry)
    started = time.monotonic()
    with pytest.raises(
        HarnessUnavailable,
        match=rf"cannot install openclaw@{VERSION}: npm does not trust the certificate of the "
        r"registry \([A-Z_]+\)\. Set NODE_EXTRA_CA_CERTS \(or SSL_CERT_FILE\)",
    ):
        _install(tmp_path)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_agents_node_trusts_what_the_machine_trusts(
    variable: str,
    registry: str,
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    attempt: Callable[..., Attempt],
    stand_in_harness: OpenClawHarness,
) -> None:
    _name(authority, variable, monkeypatch)
    ended = attempt(stand_in_harness, make_task("hello"))
    (call,) = ended.calls
    fetch = f"fetch('{registry}/openclaw').then(answer => console.log(answer.status))"
    program = next(node.nodes())
    asked = subprocess.run([program, "-e", fetch], env=call["env"], capture_output=True, text=True)
    assert asked.stdout == "200\n", asked.stderr


def test_the_machines_own_variables_for_node_stay() -> None:
    given = {"SSL_CERT_FILE": "a.pem", "NODE_EXTRA_CA_CERTS": "b.pem", "NODE_USE_SYSTEM_CA": "0"}
    assert node.trust(given) == {"NODE_EXTRA_CA_CERTS": "b.pem", "NODE_USE_SYSTEM_CA": "0"}
