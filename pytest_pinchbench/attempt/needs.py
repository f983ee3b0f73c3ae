"""What a task needs in its sandbox, looked for there before the agent is paid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import Issue
from pytest_pinchbench.suite.task_file import PREREQUISITES, Task

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Sandbox

_TIMEOUT_S = 120.0
# Runs in the sandbox; its last line is a JSON list of pairs: an issue's code, and a reason.
_LOOK = """
import importlib, json, os, platform, shutil, subprocess, sys
order = json.load(sys.stdin)
found = []
here = "Python %s of the sandbox" % platform.python_version()
try:
    compile(order["source"], "<automated checks>", "exec", dont_inherit=True)
except SyntaxError as error:
    found.append(("check_import", "its checks do not compile on %s: %s" % (here, error)))
for name in order["imports"]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        why = "its checks cannot import %s on %s: %s" % (name, here, error)
        found.append(("check_import", why))
for one in order["prerequisites"]:
    kind, _, name = one.partition(":")
    if kind == "cli":
        there = shutil.which(name)
    elif shutil.which("npm"):
        root = subprocess.run(["npm", "root", "-g"], stdout=subprocess.PIPE).stdout.decode()
        there = os.path.isdir(os.path.join(root.strip(), name))
    else:
        there = False
    if not there:
        found.append(("prerequisite", "its prerequisite %s is not in the sandbox" % one))
print()
print(json.dumps(found))
"""


def find_missing(sandbox: Sandbox, task: Task, *, agent_runs: bool) -> list[Issue]:
    """Look for what the task's checks import and, where an agent will run, its prerequisites.

    What is missing is FATAL: it is not the model's fault. Raises ``SandboxFailure``.
    """
    order = {
        "source": "" if task.grading_type == "llm_judge" else task.automated_checks,
        # PyYAML travels with the grader
        "imports": [name for name in task.imports if name.partition(".")[0] != "yaml"],
        "prerequisites": [
            one
            for one in (task.prerequisites if agent_runs else ())
            if one.partition(":")[0] in PREREQUISITES
        ],
    }
    if not any(order.values()):
        return []
    done = sandbox.exec(
        [sandbox.python, "-I", "-S", "-c", _LOOK],
        stdin=json.dumps(order).encode(),
        timeout=_TIMEOUT_S,
    )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stderr.decode(errors="replace").strip()[-300:]
        found = [("check_import", f"what its checks import cannot be tried in the sandbox: {said}")]
    without = f"Install it in the image, or leave the task out: -k 'not {task.id}'"
    return [Issue("FATAL", code, f"{task.id} cannot run: {why}. {without}") for code, why in found]
