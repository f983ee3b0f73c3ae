"""The shape of the house: which wing may import which, no circles, small files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]

LEVELS = (
    {"issues", "redaction", "spelling", "kinds", "readers", "grader", "zstd"},
    {"environments"},
    {"options"},
    {"settings"},
    {"suite"},
    {"harnesses", "relay"},
    {"results"},
    {"attempt", "reports"},
    {"session"},
    {"plugin", "demo", "__init__"},
)
"""From the ground up: a wing imports from lower levels only, and not from its neighbour."""

APART = {"recipes"}
"""Wings that import from no other wing, and from which no other wing imports."""

LIMIT = 400
NO_LIMIT = {"pytest_pinchbench/environments/inside/supervisor.py"}  # it travels alone


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted([*ROOT.glob("pytest_pinchbench/**/*.py"), *ROOT.glob("grader/**/*.py")])
MODULES = {module_name(path): path for path in FILES}


def wing(module: str) -> str:
    top, *rest = module.split(".")
    if top != "pytest_pinchbench":
        return top
    return rest[0] if rest else "__init__"


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = ".".join(path.relative_to(ROOT).parent.parts) if node.level else ""
            assert node.level <= 1, f"{path}:{node.lineno}: an import from two folders up"
            base = ".".join(part for part in (folder, node.module) if part)
            for name in node.names:
                full = f"{base}.{name.name}"
                yield full if full in MODULES else base


IMPORTS = {
    module: {name for name in imported(path) if name in MODULES and name != module}
    for module, path in MODULES.items()
}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach one another."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for follower in graph.get(waiting.pop(), ()):
                if follower not in seen:
                    seen.add(follower)
                    waiting.append(follower)
        return seen

    reach = {node: reached(node) for node in graph}
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach.get(other, ())))
        for node in graph
    }
    return [list(group) for group in sorted(groups) if group]


def test_that_this_test_sees_the_imports_of_functions_and_type_checkers() -> None:
    assert "pytest_pinchbench.session.commands" in IMPORTS["pytest_pinchbench.plugin"]
    assert "pytest_pinchbench.settings" in IMPORTS["pytest_pinchbench.harnesses"]
    assert "grader.judge" in IMPORTS["grader.main"]


def test_a_wing_imports_from_lower_wings_only() -> None:
    level = {name: number for number, names in enumerate(LEVELS) for name in names}
    wrong = []
    for module, found in IMPORTS.items():
        here = wing(module)
        assert here in level or here in APART, f"{here} has no place in LEVELS"
        for other in found:
            there = wing(other)
            if here == there or (there in LEVELS[0] and here in LEVELS[0]):
                continue
            if here in APART or there in APART or level[there] >= level[here]:
                wrong.append(f"{module} imports {other}")
    assert wrong == []


def test_modules_import_one_another_in_no_circle() -> None:
    assert circles(IMPORTS) == []


def test_wings_import_one_another_in_no_circle() -> None:
    wings: dict[str, set[str]] = {}
    for module, found in IMPORTS.items():
        here = wings.setdefault(wing(module), set())
        here |= {wing(other) for other in found} - {wing(module)}
    assert circles(wings) == []


def test_what_runs_in_a_sandbox_needs_the_standard_library_only() -> None:
    travels = ("grader", "pytest_pinchbench.environments.inside")
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if module.startswith(travels)
        for name in imported(path)
        if not name.startswith(travels) and name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_files_are_short() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
    }
    too_long = {
        name: length for name, length in lengths.items() if length > LIMIT and name not in NO_LIMIT
    }
    assert too_long == {}
    assert median(lengths.values()) <= 150


def test_the_tree_in_the_documentation_is_that_of_the_repository() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([\w./]+)` \|", text, re.MULTILINE))
    there = {
        path.relative_to(ROOT).as_posix() + "/" * path.is_dir()
        for path in [*ROOT.glob("pytest_pinchbench/*"), ROOT / "grader", ROOT / "recipes"]
    }
    assert named - there == set()
    wings = {name for name in there if name.endswith("/") and not name.startswith((".", "_"))}
    assert {name for name in wings if any((ROOT / name).glob("*.py"))} - named == set()


def test_files_named_in_the_documentation_exist() -> None:
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for name in re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", text):
            if name not in ("tasks/", "assets/"):  # of a suite
                found = [*ROOT.glob(name), *ROOT.glob(f"pytest_pinchbench/**/{name}")]
                assert found, f"{document} names {name}"


def test_help_errors_and_docstrings_say_is_not() -> None:
    """Finds "X is no Y", and not "there is no Y"."""
    wrong = re.compile(r"(?<![Tt]here )\b(is no|is none|are none|are no)\b(?! longer| more)")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if wrong.search(" ".join(node.value.split()))
    ]
    assert found == []
