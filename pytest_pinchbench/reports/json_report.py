"""What pytest-json-report gets: the run's scores at the top of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = (
    *("run_id", "model", "judge", "official", "partial", "selection", "score", "reference"),
    *("attempts", "usage", "judge_usage", "cost", "categories", "settings_digest"),
)


def add_scores(json_report: dict[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Put ``pinchbench`` first in the report: the summary's head, and the mean of each task; of
    several models, each by what it is called (``runs``: their summaries).

    Each test has its score among its ``user_properties`` already.
    """
    heads = {
        name: {
            **{field: summary[field] for field in _FIELDS},
            "task_scores": {task["task_id"]: task["mean"] for task in summary["tasks"]},
        }
        for name, summary in runs.items()
    }
    head = heads.get("", heads)
    others = dict(json_report)
    json_report.clear()
    json_report.update({"pinchbench": head, **others})
