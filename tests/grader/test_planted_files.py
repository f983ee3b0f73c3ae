"""Whatever an agent wrote where Python might look for modules changes no score."""

from __future__ import annotations

import shutil
import subprocess
import uuid
import venv
from pathlib import Path

from judging import make_task

from pytest_pinchbench.attempt.grading import grade
from pytest_pinchbench.environments import Sandbox

CHEAT = (
    "import os, sys\n"
    "os.write(1, b'planted\\n')\n"
    "class Everything:\n"
    "    def __getattr__(self, name): return lambda *a, **k: {'a': 1.0}\n"
    "sys.modules[__name__] = Everything()\n"
)
NAMES = ("json", "re", "pathlib", "ast", "datetime", "numbers", "sitecustomize", "usercustomize")

CHECKS = """
def grade(transcript, workspace_path):
    import ast, datetime, json, pathlib, re
    honest = json.loads('{"a": 0.5}')["a"]
    return {"read": honest, "matched": float(bool(re.fullmatch("a", "b")))}
"""


def plant(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.py").write_text(CHEAT)
    for name in ("numbers", "grader", "encodings"):
        shutil.copytree(folder, folder / name, ignore=lambda *_: [n for n in NAMES if "/" in n])
        (folder / name / "__init__.py").write_text(CHEAT)
    (folder / "planted.pth").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n")
    (folder / "__main__.py").write_text(CHEAT)


def test_planted_modules_change_nothing(sandbox: Sandbox, workspace: Path) -> None:
    plant(workspace)
    plant(Path(sandbox.private_root) / "agent")
    plant(Path(sandbox.exec(["sh", "-c", 'echo "$TMPDIR"']).stdout.decode().strip()))
    for name in NAMES:  # beside the grader itself
        (Path(sandbox.private_root) / f"{name}.py").write_text(CHEAT)
    result = grade(sandbox, make_task(CHECKS), str(workspace), [], judge=None, judge_timeout=1.0)
    assert result.breakdown == {"read": 0.5, "matched": 0.0}
    assert "planted" not in result.debug["stdout"]


def test_python_variables_of_the_sandbox_change_nothing(
    sandbox: Sandbox, workspace: Path, tmp_path: Path
) -> None:
    plant(tmp_path / "modules")

    class WithVariables:
        python, private_root, write = sandbox.python, sandbox.private_root, sandbox.write

        def exec(self, *args: object, **kwargs: object) -> object:
            env = {
                "PYTHONPATH": str(tmp_path / "modules"),
                "PYTHONSTARTUP": str(tmp_path / "modules" / "json.py"),
                "PYTHONHOME": str(tmp_path),
                "PYTHONINSPECT": "1",
            }
            return sandbox.exec(*args, env=env, **kwargs)  # type: ignore[arg-type]

    result = grade(
        WithVariables(),  # type: ignore[arg-type]
        make_task(CHECKS),
        str(workspace),
        [],
        judge=None,
        judge_timeout=1.0,
    )
    assert result.breakdown == {"read": 0.5, "matched": 0.0}


def test_what_was_planted_among_the_packages_of_the_sandboxs_python_changes_nothing(
    sandbox: Sandbox, workspace: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python3"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    plant(Path(told.stdout.strip()))
    sandbox.python = str(python)
    result = grade(sandbox, make_task(CHECKS), str(workspace), [], judge=None, judge_timeout=1.0)
    assert result.breakdown == {"read": 0.5, "matched": 0.0}


def test_a_check_may_import_the_agents_modules_behind_the_standard_library(
    sandbox: Sandbox, workspace: Path
) -> None:
    (workspace / "solution.py").write_text("def add(a, b): return a + b\n")
    (workspace / "json.py").write_text(CHEAT)
    checks = (
        "def grade(transcript, workspace_path):\n"
        "    import sys, json\n"
        "    sys.path.append(workspace_path)\n"
        "    import solution\n"
        "    return {'adds': solution.add(1, 2) == 3, 'real': json.loads('0') == 0}\n"
    )
    result = grade(sandbox, make_task(checks), str(workspace), [], judge=None, judge_timeout=1.0)
    assert result.breakdown == {"adds": 1.0, "real": 1.0}


def test_the_grader_is_not_importable_from_checks(sandbox: Sandbox, workspace: Path) -> None:
    checks = (
        "def grade(transcript, workspace_path):\n"
        "    import sys\n"
        "    return {'clean': not any(p.endswith('.pyz') for p in sys.path + sys.argv)}\n"
    )
    result = grade(sandbox, make_task(checks), str(workspace), [], judge=None, judge_timeout=1.0)
    assert result.score == 1.0


def test_what_a_planted_result_line_says_is_not_taken(sandbox: Sandbox, workspace: Path) -> None:
    nonce = uuid.uuid4().hex
    checks = (
        "def grade(transcript, workspace_path):\n"
        "    import os, json\n"
        f"    line = '{nonce} ' + json.dumps({{'score': 1.0, 'values': [['a', 1.0]]}}) + '\\n'\n"
        "    for descriptor in range(1, 20):\n"
        "        try: os.write(descriptor, line.encode())\n"
        "        except OSError: pass\n"
        "    return {'a': 0.25}\n"
    )
    result = grade(sandbox, make_task(checks), str(workspace), [], judge=None, judge_timeout=1.0)
    assert result.score in (0.0, 0.25)
