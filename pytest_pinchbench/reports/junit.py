"""What JUnit XML gets beyond pytest's own: properties of the suite, the agent's transcript.

The score and the rest of a test's properties are pytest user properties, and the shortfall
is the failure's text; both are there without this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.conversation import Entry, tail

TAIL = 8000  # characters of a transcript; GitLab cuts long reports, Jenkins long outputs


def is_written(config: pytest.Config) -> bool:
    """Whether this process writes JUnit XML."""
    return _xml(config) is not None


def add_suite_properties(config: pytest.Config, summary: Mapping[str, Any], of: str = "") -> None:
    """To be called before pytest writes the file, in the process that writes it.

    ``of``: what the model is called among several; it goes before the names.

    Where no JUnit XML is written this does nothing.
    """
    xml = _xml(config)
    if xml is not None:
        for name, value in suite_properties(summary).items():
            xml.add_global_property(f"{of}.{name}" if of else name, value)


def suite_properties(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The run in a few plain values; what is not known is left out."""
    score = formats.shown_score(summary) or {}
    low, high = score.get("interval") or (None, None)
    official = summary["official"]
    prefix = "" if official else "reference_"
    usage, judge, cost = summary["usage"], summary["judge_usage"] or {}, summary["cost"]
    properties = {
        "model": summary["model"],
        "judge": summary["judge"],
        "official": official,
        "partial": summary["partial"],
        f"{prefix}mean_score": score.get("mean"),
        f"{prefix}pass_rate": score.get("pass_rate"),
        f"{prefix}interval_low": low,
        f"{prefix}interval_high": high,
        "tasks": summary["selection"]["tasks"],
        "suite_tasks": summary["selection"]["suite_tasks"],
        "invalid_attempts": summary["attempts"]["invalid"],
        "missing_attempts": summary["attempts"]["missing"],
        "total_tokens": usage["total_tokens"],
        "request_count": usage["request_count"],
        "judge_tokens": judge.get("total_tokens"),
        **{f"{part}_cost_usd": cost[part]["usd"] for part in cost},
        "cost_is_complete": cost["total"]["complete"],
        "settings_digest": summary["settings_digest"],
    }
    return {name: value for name, value in properties.items() if value is not None}


def add_transcript(
    config: pytest.Config, report: pytest.TestReport, conversation: list[Entry]
) -> None:
    """Put the end of the conversation into the test case, as its ``system-out``.

    To be called after pytest's own handling of the report that decides the test's outcome:
    the order of elements is part of the format. pytest writes captured output only when it
    is asked to (``junit_logging``), so this does not go through the report's sections,
    which would also be printed in full for every failure.
    """
    from _pytest.junitxml import bin_xml_escape

    xml = _xml(config)
    if xml is not None and conversation:
        element = ElementTree.Element("system-out")
        element.text = bin_xml_escape(tail(conversation, TAIL))
        xml.node_reporter(report).append(element)


def _xml(config: pytest.Config) -> Any:
    # pytest's own fixtures for this (record_testsuite_property) do nothing under xdist; its
    # stash key is what they, and plugins that add to the file, look the writer up with
    from _pytest.junitxml import xml_key

    return config.stash.get(xml_key, None)
