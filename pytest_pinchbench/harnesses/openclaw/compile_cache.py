"""What Node compiles of OpenClaw, made once an image and given read-only to its containers.

Node compiles all of OpenClaw anew in a fresh container: 1 to 6 seconds of a first turn. In the
first sandbox of an image, before any agent has run there, one turn with a model of a few lines
fills a folder for ``NODE_COMPILE_CACHE``. Later sandboxes only read it: a folder that they
could write would let one task's agent change the next task's OpenClaw.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_pinchbench.harnesses.openclaw import config
from pytest_pinchbench.issues import SandboxFailure

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, Sandbox
    from pytest_pinchbench.settings import Settings

NAME = "node-compile-cache-{version}"
_PATIENCE = 120.0  # seconds for the turn

# Runs in the sandbox: serves one model, puts its port into the configuration, runs the command.
_TURN = """
import http.server, json, subprocess, sys, threading
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "finish_reason": "stop"}
        choice["delta"] = {"role": "assistant", "content": "ok"}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        chunk["choices"] = [choice]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\ndata: [DONE]\\n\\n")
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
path = sys.argv[1]
with open(path) as file:
    text = file.read()
with open(path, "w") as file:
    file.write(text.replace("127.0.0.1:1/", "127.0.0.1:%d/" % server.server_port))
sys.exit(subprocess.call(sys.argv[2:]))
"""


def compile_cache(
    sandbox: Sandbox,
    environment: Environment,
    settings: Settings,
    command: Sequence[str],
    version: str,
) -> dict[str, str]:
    """The variables that give OpenClaw the image's compile cache; none where there is none.

    Fills it first where that has not been done and no other process is at it. What fails here
    costs time, and nothing else.
    """
    shared = environment.shared_folder(NAME.format(version=version))
    if shared is None:
        return {}
    if not shared.here.is_dir():
        from filelock import FileLock, Timeout

        try:
            with FileLock(f"{shared.here}.lock", timeout=0):
                _fill(sandbox, settings, command, version, shared.here)
        except (Timeout, OSError, SandboxFailure):
            return {}
    return {"NODE_COMPILE_CACHE": shared.inside}


def _fill(
    sandbox: Sandbox, settings: Settings, command: Sequence[str], version: str, target: Path
) -> None:
    if target.is_dir():  # by now
        return
    folder = f"{sandbox.private_root}/warm-up"
    state, workspace, cache = f"{folder}/state", f"{folder}/workspace", f"{folder}/cache"
    model = replace(
        settings.model,
        id="warm-up",
        base_url="http://127.0.0.1:1/v1",
        api_key=None,
        api_protocol="openai-chat",
        params={},
        compat={},
    )
    plain = replace(settings, model=model, brave_api_key=None)
    parsed = config.parse_version(version)
    path = f"{state}/openclaw.json"
    sandbox.write({path: config.config_file(plain, parsed, state, workspace), workspace: None})
    arguments, stdin = config.turn_arguments(parsed, "warm-up", "Say ok.", _PATIENCE)
    done = sandbox.exec(
        [sandbox.python, "-I", "-S", "-c", _TURN, path, *command, *arguments],
        cwd=workspace,
        env={**config.variables(plain, state), "NODE_COMPILE_CACHE": cache},
        stdin=stdin,
        timeout=_PATIENCE,
    )
    sandbox.interrupt()  # what is left of it; an attempt's own streams go on
    if done.timed_out or done.exit_code:
        raise SandboxFailure("the turn that fills the compile cache failed")
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        copy = Path(temporary, target.name)
        sandbox.download(cache, copy)
        for parent, _, names in os.walk(copy):  # for the user in the container, whoever that is
            os.chmod(parent, 0o755)
            for name in names:
                os.chmod(Path(parent, name), 0o644)
        shutil.move(copy, target)
