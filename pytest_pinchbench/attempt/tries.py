"""The tries of an attempt: what is known of each, and what happens after a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_pinchbench.attempt.grading import Grade
from pytest_pinchbench.attempt.kept_work import KeptWork
from pytest_pinchbench.attempt.workspace import Workspace
from pytest_pinchbench.harnesses import AgentRun
from pytest_pinchbench.issues import Issue
from pytest_pinchbench.results.records import GradedIn, Retried, issue_record, usage_record

_PERMANENT = {"asset_missing", "check_import", "judge_missing", "judge_settings", "prerequisite"}


@dataclass
class Try:
    """What is known of a try so far, so that a failure at any stage still has a record."""

    started: float = field(default_factory=time.time)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each stage."""
    issues: list[Issue] = field(default_factory=list)
    workspace: Workspace | None = None
    run: AgentRun | None = None
    archive: bytes | None = None
    graded_in: GradedIn | None = None
    grade: Grade | None = None
    judge_retries: int = 0
    """How often the judge was asked again after it had failed."""
    is_graded: bool = False
    """The grade is final: its judge was asked as often as the retry budget allows."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @property
    def is_fatal(self) -> bool:
        return any(issue.severity == "FATAL" for issue in self.issues)

    @property
    def deserves_another(self) -> bool:
        """Return whether another try may end better."""
        return self.is_fatal and not self.is_graded and not is_permanent(self.issues)

    @property
    def work(self) -> KeptWork | None:
        """Return the agent's work where only its sandbox was lost before the grade."""
        if self.run is None or self.archive is None or self.workspace is None:
            return None
        if any(issue.severity == "FATAL" for issue in self.run.issues):
            return None
        return KeptWork(self.run, self.archive, self.workspace.relative)

    def before(self, last: Try) -> Retried:
        """Return this try as an entry of an attempt whose last try is ``last``."""
        # the usage of work that the last try graded is counted there
        run = self.run if self.run is not last.run else None
        judged = self.grade.judge_usage if self.grade else None
        return {
            "issues": [issue_record(issue) for issue in self.issues],
            "usage": usage_record(run.usage) if run else None,
            "judge_usage": usage_record(judged) if judged else None,
        }


def is_permanent(issues: Sequence[Issue]) -> bool:
    """Return whether another try is certain to fail in the same way."""
    return any(issue.code in _PERMANENT for issue in issues)


def backoff(tried: int, asked: float | None = None) -> float:
    """Return the seconds before the next try: what the endpoint asked for, or 1, 2, 4 ...; at
    most 60.
    """
    return min(asked if asked is not None else 2.0**tried, 60.0)
