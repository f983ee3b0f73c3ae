"""What OpenClaw sends to ten hosts directly is what leaves the relay.

The hosts' names lead to a scripted model on loopback, by a file that Node loads first.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from harness_attempts import KEY

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import parse_script
from pytest_pinchbench.harnesses.openclaw import config, install
from pytest_pinchbench.relay.client import RelayClient, RelayProcess
from pytest_pinchbench.session.relaying import endpoint_of
from pytest_pinchbench.settings import ModelSpec, Settings

pytestmark = pytest.mark.openclaw

HOSTS = (
    *("api.deepseek.com", "api.x.ai", "api.z.ai", "openrouter.ai", "api.cerebras.ai"),
    *("api.groq.com", "api.mistral.ai", "api.openai.com", "api.anthropic.com"),
    "models.example.org",
)
DATA_DIR = Path(platformdirs.user_data_dir("pytest-pinchbench", appauthor=False))
SCRIPT = parse_script("turns: [{when: Say ok, steps: [ok]}]")
NAMES_LEAD_HERE = """
const dns = require("dns"), at = {address: "127.0.0.1", family: 4};
dns.lookup = (name, how, done) =>
  (done || how)(null, ...((done && how.all) ? [[at]] : [at.address, at.family]));
dns.promises.lookup = async (name, how) => (how && how.all ? [at] : at);
"""


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT, api_key=KEY) as served:
        yield served


@pytest.fixture(scope="module", params=["2026.3.22", "2026.9.6"])
def openclaw(request: pytest.FixtureRequest) -> install.HostInstall:
    return install.install_here(DATA_DIR, request.param, again=False, say=print)


def ask(
    openclaw: install.HostInstall, settings: Settings, folder: Path, relayed_url: str | None
) -> None:
    """Have OpenClaw ask its model once."""
    version, state, workspace = config.parse_version(openclaw.version), folder / "s", folder / "w"
    content = config.config_file(settings, version, str(state), str(workspace), relayed_url)
    written = json.loads(content)
    if version > (2026, 5, 2):
        provider = written["models"]["providers"]["pinchbench"]
        provider["request"] = {"allowPrivateNetwork": True}
    for made in (state, workspace):
        made.mkdir(parents=True)
    (state / "openclaw.json").write_text(json.dumps(written))
    (folder / "names.cjs").write_text(NAMES_LEAD_HERE)
    arguments, stdin = config.turn_arguments(
        version, "11111111-2222-3333-4444-555555555555", "Say ok.", 240
    )
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "NODE_COMPILE_CACHE": str(openclaw.compile_cache),
        "NODE_OPTIONS": f"--require={folder / 'names.cjs'}",
        **config.variables(settings, str(state)),
    }
    command = [str(openclaw.node), str(openclaw.entry), *arguments]
    subprocess.run(
        command, cwd=workspace, env=variables, input=stdin, capture_output=True, timeout=300
    )


def compared(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without what differs from run to run, and the usage the relay asks for."""
    roles = [message["role"] for message in body["messages"]]
    return {**body, "messages": roles, "stream_options": None}


@pytest.mark.parametrize("host", HOSTS)
def test_a_body_that_leaves_the_relay_is_the_direct_one(
    openclaw: install.HostInstall,
    model: ScriptedModel,
    settings_for: Callable[..., Settings],
    tmp_path: Path,
    host: str,
) -> None:
    settings = settings_for("--pinchbench-skip-bootstrap=yes")
    port = model.url.rpartition(":")[2]
    spec = ModelSpec("some-model", f"http://{host}:{port}", KEY, params={"temperature": 0.3})
    direct = replace(settings, model=spec)
    behind = endpoint_of("model", replace(spec, base_url=f"https://{host}/v1"), spec.params)
    relay = RelayProcess({"model": {**behind, "base_url": model.url}})
    try:
        grant = RelayClient(relay.port, relay.admin).open("task", "model", seconds=300.0)
        grant.begin_turn(300.0)
        url = f"http://127.0.0.1:{relay.port}/{host}/v1"
        relayed = replace(settings, model=replace(spec, base_url=url, api_key=grant.token))
        with ThreadPoolExecutor() as pool:
            runs = [
                pool.submit(ask, openclaw, direct, tmp_path / "direct", None),
                pool.submit(ask, openclaw, relayed, tmp_path / "relayed", f"https://{host}/v1"),
            ]
            for one in runs:
                one.result()
        assert len(grant.close()["exchanges"]) == 1
    finally:
        relay.close()
    sent, passed_on = (compared(request.body) for request in model.requests)
    assert sent == passed_on
