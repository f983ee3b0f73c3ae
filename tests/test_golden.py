"""The whole output of one fixed run, compared with what is in ``golden/``.

``PINCHBENCH_TESTS_UPDATE=golden`` writes the files anew; read the diff before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).with_name("golden")
UPDATE = "golden" in os.environ.get("PINCHBENCH_TESTS_UPDATE", "").split(",")

RIGHT = "echo yes > made.txt; echo I made it."
HALF = "echo no > made.txt"
CRASH = "echo gone >&2; exit 3"

RUNS = {
    "official": {"task_01_right": RIGHT, "task_02_half": HALF, "task_03_idle": "true"},
    "invalid": {"task_01_right": RIGHT, "task_02_crash": CRASH},
}

SECONDS = "wall_seconds|task_seconds|execution_time|open|prepare|run|grade|keep|close"
DURATION = r"-?[0-9]+(\.[0-9]+)?(e-[0-9]+)?"
REPLACEMENTS = {
    # times
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?": "TIME",
    r"\d{8}-\d{6}(-\d+)?": "STAMP",
    r" +\d+(\.\d+)?s\b": " Ns",
    r"=+( .* in Ns) =+": r"==\1 ==",
    rf'("({SECONDS})": ){DURATION}': r"\1N",
    rf'( time=|name="execution_time" value=)"{DURATION}"': r'\1"N"',
    # ids
    r'("run_id": ")[0-9a-f]{12}': r"\1ID",
    r"(sha256:)[0-9a-f]{12,64}": r"\1DIGEST",
    r'"[0-9a-f]{64}"': '"DIGEST"',
    # this machine and its versions
    r' hostname="[^"]*"': ' hostname="HOST"',
    r'("(pytest-pinchbench|pytest|python|sandbox.python|sandbox.user)": ")[^"]*': r"\1VERSION",
    r"(\| Versions \|).*": r"\1 VERSIONS |",
    r"-+ (generated xml file: ).* -+": r"-- \1FILE --",
}


def normalized(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER")
    for pattern, replacement in REPLACEMENTS.items():
        text = re.sub(pattern, replacement, text)
    return text


def terminal(result: pytest.RunResult) -> str:
    """Without pytest's own header, which names plugins and versions."""
    lines = [line.rstrip() for line in result.outlines]
    ours = [line for line in lines if line.startswith("pinchbench:")]
    return "\n".join([*ours, *lines[lines.index(next(filter(is_collected, lines))) :], ""])


def is_collected(line: str) -> bool:
    return line.startswith("collected ")


def json_text(path: Path) -> str:
    value: Any = json.loads(path.read_bytes())
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.slow  # and another pytest writes another JUnit file
@pytest.mark.parametrize("name", RUNS)
def test_the_output_of_a_fixed_run_is_the_golden_one(
    name: str,
    project: Callable[..., Path],
    run: Callable[..., pytest.RunResult],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    project(RUNS[name], cost=0.0125, **{list(RUNS[name])[1]: {"category": "research"}})
    options = [f"-pno:{plugin}" for plugin in ("randomly", "cacheprovider", "warnings")]
    result = run("--junitxml=junit.xml", "-ra", *options)
    (directory,) = pytester.path.glob("pinchbench-results/*/*/")
    produced = {
        "terminal.txt": terminal(result),
        "junit.xml": (pytester.path / "junit.xml").read_text("utf-8").replace("><", ">\n<") + "\n",
        "summary.md": (directory / "summary.md").read_text("utf-8"),
        "summary.json": json_text(directory / "summary.json"),
        "run.json": json_text(directory / "run.json"),
    }
    produced = {file: normalized(text, pytester.path) for file, text in produced.items()}
    if UPDATE:
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for file, text in produced.items():
            (GOLDEN / name / file).write_text(text, encoding="utf-8")
    for file, text in produced.items():
        assert text == (GOLDEN / name / file).read_text(encoding="utf-8"), file
