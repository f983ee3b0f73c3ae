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
from tls_server import private_authority, serve

from pytest_pinchbench.harnesses.openclaw import OpenClawHarness, node
from pytest_pinchbench.harnesses.openclaw.install import install_here
from pytest_pinchbench.issues import HarnessUnavailable

VERSION = "2026.9.6"


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on this machine says whom to trust, or where the registry is."""
    for name in list(os.environ):
        if name.upper().startswith(("NODE_", "NPM_CONFIG_", "SSL_CERT_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def authority(bare_machine: None, tmp_path: Path) -> Path:
    return tmp_path / "authority.pem"


@pytest.fixture
def registry(authority: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a registry with one small package by OpenClaw's name."""
    context, _ = private_authority(tmp_path)
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


def _install(folder: Path) -> str:
    found = install_here(folder / "data", VERSION, again=False, say=lambda message: None)
    return found.entry.read_text()


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"])
def test_npm_trusts_the_authority_that_a_variable_names(
    variable: str, registry: str, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry)
    monkeypatch.setenv(variable, str(authority))
    assert _install(tmp_path) == "// a stand-in"


def test_npm_is_configured_as_the_machines_own(
    registry: str, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = _npm_with_a_prefix_of_its_own(tmp_path / "machine")
    (machine / "etc" / "npmrc").write_text(f"registry={registry}\ncafile={authority}\n")
    monkeypatch.setenv("PATH", f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert _install(tmp_path) == "// a stand-in"


def _npm_with_a_prefix_of_its_own(prefix: Path) -> Path:
    """Make an npm whose global configuration is ``prefix/etc/npmrc``."""
    program = next(node.nodes())
    script = program.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    (prefix / "etc").mkdir(parents=True)
    (prefix / "bin").mkdir()
    npm = prefix / "bin" / "npm"
    npm.write_text(f'#!/bin/sh\nPREFIX="{prefix}" exec "{program}" "{script}" "$@"\n')
    npm.chmod(0o755)
    return prefix


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


def test_a_registry_that_is_not_there_is_an_error_that_names_its_variables(
    bare_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/")
    with pytest.raises(HarnessUnavailable, match=r"ECONNREFUSED.* NPM_CONFIG_REGISTRY"):
        _install(tmp_path)


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"])
def test_the_agents_node_trusts_what_the_machine_trusts(
    variable: str,
    registry: str,
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    attempt: Callable[..., Attempt],
    stand_in_harness: OpenClawHarness,
) -> None:
    monkeypatch.setenv(variable, str(authority))
    ended = attempt(stand_in_harness, make_task("hello"))
    (call,) = ended.calls
    fetch = f"fetch('{registry}/openclaw').then(answer => console.log(answer.status))"
    program = next(node.nodes())
    asked = subprocess.run([program, "-e", fetch], env=call["env"], capture_output=True, text=True)
    assert asked.stdout == "200\n", asked.stderr


def test_the_machines_own_variables_for_node_stay() -> None:
    given = {"SSL_CERT_FILE": "a.pem", "NODE_EXTRA_CA_CERTS": "b.pem", "NODE_USE_SYSTEM_CA": "0"}
    assert node.trust(given) == {"NODE_EXTRA_CA_CERTS": "b.pem", "NODE_USE_SYSTEM_CA": "0"}
