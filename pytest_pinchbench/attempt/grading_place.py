"""Where an attempt is graded: in a fresh sandbox that shares its workspaces, or in the agent's own.

An agent can replace what a grader runs on (Python, its libraries, the shell), and that forges a
score. In a fresh sandbox nothing is the agent's but the workspace. Rules: scoring, "Where grading
happens".
"""

from __future__ import annotations

import ast
import contextlib
import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pytest_pinchbench.issues import Issue, PinchBenchError, SandboxFailure
from pytest_pinchbench.results.records import GradedIn

if TYPE_CHECKING:
    from pytest_pinchbench.attempt.context import AttemptContext
    from pytest_pinchbench.attempt.grading import Grade
    from pytest_pinchbench.environments import Sandbox
    from pytest_pinchbench.suite.task_file import Task

_MODULES = re.compile(r"(subprocess|pty)(\..*)?")
_NAMES = re.compile(
    r"os\.(system|popen|startfile|exec\w+|spawn\w+|posix_spawnp?)"
    r"|sys\.(executable|prefix|base_prefix)|.*\.(expanduser|home)|expanduser"
)
_PATHS = re.compile(
    r"/(bin|boot|dev|etc|home|lib\w*|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)(/\S*)?"
    r"|~/\S*|~|HOME"
)
# OpenClaw's own traces; checks that look into /tmp say so, and are graded in the agent's sandbox
_USUAL = re.compile(r"openclaw|^/tmp(/|$)|/\.(cache|npm)(/|$)")


def looks_outside(checks: str) -> str:
    """Return what in the checks runs programs or names a place outside the workspace, or ""."""
    for node in ast.walk(ast.parse(checks)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _PATHS.fullmatch(node.value):
                return repr(node.value)
            continue
        else:
            continue
        for name in names:
            if _MODULES.fullmatch(name) or _NAMES.fullmatch(name):
                return name
    return ""


def choose_place(context: AttemptContext, task: Task) -> GradedIn:
    """Decide where a task is graded, and say why."""
    wanted = context.settings.grade_in
    able = getattr(context.environment, "grades_fresh", "")
    by_task = task.front_matter.get("grade_in")
    if wanted != "auto":
        return GradedIn(sandbox=wanted, reason=f"--pinchbench-grade-in {wanted}")
    if not able:
        kind = context.environment.kind
        return GradedIn(sandbox="same", reason=f"{kind} sandboxes do not share workspaces")
    if by_task in ("fresh", "same"):
        return GradedIn(sandbox=by_task, reason=f"the task says grade_in: {by_task}")
    if able == "asked":
        return GradedIn(sandbox="same", reason="the agent was this user, outside its sandbox, too")
    if task.automated_checks and (what := looks_outside(task.automated_checks)):
        return GradedIn(sandbox="same", reason=f"the task's checks use {what}")
    return GradedIn(sandbox="fresh", reason="the task's checks look at nothing but the workspace")


class GradingPlace:
    """The sandbox in which a task is graded. A fresh one opens while the agent works."""

    def __init__(self, context: AttemptContext, task: Task, sandbox: Sandbox) -> None:
        self.graded_in = choose_place(context, task)
        self._agents = sandbox
        self._opening: Future[Sandbox] | None = None
        if self.graded_in["sandbox"] == "fresh":
            opener = ThreadPoolExecutor(1)
            self._opening = opener.submit(context.open_sandbox, task, beside=sandbox)
            opener.shutdown(wait=False)

    def take(self) -> Sandbox:
        """Return the sandbox to grade in; nothing of the agent's runs from now on.

        Raises ``SandboxFailure``, ``EnvironmentUnavailable``.
        """
        if self._opening is None:
            return self._agents
        self._agents.freeze()
        return self._opening.result()

    def left_behind(self, grade: Grade) -> Issue | None:
        """Warn of a bad grade where the agent's work may lie outside its workspace."""
        automated = grade.parts.get("automated")
        if self._opening is None or automated is None:
            return None
        if automated["score"] and all(one["severity"] != "ERROR" for one in automated["issues"]):
            return None
        try:
            folders = self._agents.changed_folders()
        except SandboxFailure as failure:
            return Issue("WARNING", "left_behind", str(failure))
        folders = [folder for folder in folders if not _USUAL.search(folder)]
        if not folders:
            return None
        shown = ", ".join(folders[:10]) + (" ..." if len(folders) > 10 else "")
        return Issue(
            "WARNING",
            "left_behind",
            f"the fresh sandbox in which this was graded lacks what the agent changed in {shown}; "
            "where a task needs that, its front matter says grade_in: same",
        )

    def close(self) -> None:
        """Close a fresh sandbox. Idempotent; never raises a ``PinchBenchError``."""
        if self._opening is not None:
            with contextlib.suppress(PinchBenchError):
                self._opening.result().close()
