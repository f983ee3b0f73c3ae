"""``--pinchbench-export csv=FILE``: a row for each attempt of a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

_TASK = ("task_id", "category")
_ATTEMPT = ("attempt", "status", "score", "passed", "timed_out", "execution_time")
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "total_tokens", "request_count")


def csv_text(summary: Mapping[str, Any]) -> str:
    """Return the attempts of a summary; a cell is empty where a value is not known."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    costs = ("agent_usd", "judge_usd", "total_usd")
    writer.writerow(["run_id", "model", *_TASK, *_ATTEMPT, *_USAGE, *costs])
    for task in summary["tasks"]:
        for attempt in task["attempts"]:
            cost = attempt.get("cost") or {}
            writer.writerow(
                [
                    *(summary["run_id"], summary["model"]),
                    *(task[name] for name in _TASK),
                    *(attempt.get(name) for name in _ATTEMPT),
                    *((attempt.get("usage") or {}).get(name) for name in _USAGE),
                    *((cost.get(name) or {}).get("usd") for name in ("agent", "judge", "total")),
                ]
            )
    return file.getvalue()
