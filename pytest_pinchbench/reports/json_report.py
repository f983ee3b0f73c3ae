"""What pytest-json-report gets: the run's scores at the top of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = (
    *("run_id", "model", "judge", "official", "partial", "selection", "score", "reference"),
    *("attempts", "usage", "judge_usage", "cost", "categories", "settings_digest"),
)


def add_scores(json_report: dict[str, Any], summary: Mapping[str, Any]) -> None:
    """Put ``pinchbench`` first in the report: the summary's head, and the mean of each task.

    Each test has its score among its ``user_properties`` already.
    """
    scores = {task["task_id"]: task["mean"] for task in summary["tasks"]}
    head = {**{name: summary[name] for name in _FIELDS}, "task_scores": scores}
    others = dict(json_report)
    json_report.clear()
    json_report.update({"pinchbench": head, **others})
