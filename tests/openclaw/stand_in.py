"""A program that can be run in OpenClaw's place, for what is about the harness alone.

It takes OpenClaw's arguments, writes down what it was given, and answers by the prompt:
``sleep``, ``leave`` (a process that goes on writing in the workspace), ``crash``, ``late`` (the
transcript comes a moment after the command has returned), ``mute`` (no transcript at all),
``refused`` (the endpoint refuses the request).
"""

from __future__ import annotations

from pathlib import Path

SOURCE = """\
#!{python}
import json, os, subprocess, sys, time

if "--version" in sys.argv:
    with open({asked!r}, "a") as file:
        file.write("asked\\n")
    print("OpenClaw {version} (0123abc)")
    raise SystemExit
state = os.environ["OPENCLAW_STATE_DIR"]
given = dict(zip(sys.argv, sys.argv[1:]))
inline = [a.partition("=")[2] for a in sys.argv if a.startswith("--message=")]
prompt = inline[0] if inline else open(given["--message-file"]).read()
with open(os.path.join(state, "calls.jsonl"), "a") as file:
    call = {{"argv": sys.argv[1:], "prompt": prompt, "cwd": os.getcwd(), "env": dict(os.environ)}}
    file.write(json.dumps(call) + "\\n")
if "sleep" in prompt:
    time.sleep(600)
if "leave" in prompt:
    writer = "import time\\nwhile 1: open('ticks', 'a').write('x'); time.sleep(0.02)"
    subprocess.Popen([sys.executable, "-c", writer], start_new_session=True)
    while not (os.path.exists("ticks") and os.path.getsize("ticks")):
        time.sleep(0.01)
if "crash" in prompt:
    sys.stderr.write("it broke\\n")
    raise SystemExit(7)
answer = {{"role": "assistant", "content": [{{"type": "text", "text": "ok: " + prompt}}],
          "stopReason": "stop"}}
if "refused" in prompt:
    answer.update(content=[], stopReason="error", errorMessage="413 too large")
question = {{"role": "user", "content": prompt}}
events = [{{"type": "message", "message": message}} for message in (question, answer)]
folder = os.path.join(state, "agents", given["--agent"], "sessions")
write = (
    "import os, sys, time; time.sleep(float(sys.argv[3])); "
    "os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True); "
    "open(sys.argv[1], 'a').write(sys.argv[2])"
)
file = os.path.join(folder, given["--session-id"] + ".jsonl")
lines = "".join(json.dumps(e) + "\\n" for e in events)
writer = [sys.executable, "-c", write, file, lines, "0.7" if "late" in prompt else "0"]
if "late" in prompt:
    subprocess.Popen(writer, start_new_session=True)
elif "mute" not in prompt:
    subprocess.run(writer)
"""


class StandIn:
    """The program at ``path``; ``times_asked`` counts how often its version was asked."""

    def __init__(self, folder: Path, python: str, version: str) -> None:
        self.path = folder / "openclaw-stand-in"
        self._asked = folder / "asked"
        self.path.write_text(SOURCE.format(python=python, version=version, asked=str(self._asked)))
        self.path.chmod(0o755)

    @property
    def times_asked(self) -> int:
        return len(self._asked.read_text().splitlines()) if self._asked.exists() else 0
