"""What can be known of a task's automated checks before an agent is paid."""

from __future__ import annotations

import ast
import platform
import re
import symtable
import warnings

from pytest_pinchbench.settings.yaml_document import LineError


def inspect_checks(source: str) -> tuple[str, ...]:
    """Return the modules that automated checks import at their top, in order.

    These are the leading imports of the source and of ``grade`` itself: what stands in a
    ``try``, or follows other statements, may be meant to fail, or to find the agent's files.
    Raises ``LineError`` for checks that do not compile or define no ``grade``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            compile(source, "<automated checks>", "exec", dont_inherit=True)
            names = symtable.symtable(source, "<automated checks>", "exec")
    except SyntaxError as error:
        python = f"Python {platform.python_version()}"
        raise LineError(
            error.lineno or 1, f"the automated checks do not compile: {error.msg} ({python})"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise LineError(1, f"the automated checks do not compile: {error}") from None
    if not _defines_grade(names, source):
        raise LineError(1, "the automated checks define no function called grade")
    grades = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "grade"
    ]
    bodies = [tree.body, *(grade.body for grade in grades[-1:])]
    return tuple(dict.fromkeys(name for body in bodies for name in _leading_imports(body)))


def _defines_grade(names: symtable.SymbolTable, source: str) -> bool:
    if re.search(r"import\s*\*|\bexec\b|\bglobals\b|\bsetattr\b", source):
        return True  # it may come to be in ways that only a run shows
    try:
        symbol = names.lookup("grade")
    except KeyError:
        return False
    return symbol.is_assigned() or symbol.is_imported()


def _leading_imports(body: list[ast.stmt]) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
        elif not _is_harmless(node):
            break
    return [name for name in found if name != "__future__"]


def _is_harmless(node: ast.stmt) -> bool:
    """Whether no statement of this kind changes what a later import finds."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
