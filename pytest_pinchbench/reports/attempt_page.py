"""``attempt.html``: an attempt's conversation beside the grade it got, and its files."""

from __future__ import annotations

import base64
import json
import shlex
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markdown_it import MarkdownIt

from pytest_pinchbench.reports import formats
from pytest_pinchbench.reports.conversation import Entry, steps, trajectory
from pytest_pinchbench.reports.page import page
from pytest_pinchbench.results.files import write_atomically
from pytest_pinchbench.results.records import Record, cost_parts
from pytest_pinchbench.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from markupsafe import Markup

NAME = "attempt.html"

_FILES = 200
_FILE = 20_000  # bytes of a text shown
_IMAGE = 300_000
_SHOWN = 2_000_000  # bytes of files, altogether
_IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}


def write_attempt_page(directory: RunDirectory, record: Record, run: Mapping[str, Any]) -> None:
    """Write the page beside the record. ``run`` is the run's summary."""
    folder = directory.attempt_dir(record["task_id"], record["attempt"])
    html = attempt_page(directory, record, run)
    write_atomically(folder / NAME, html.encode("utf-8", "replace"))


def attempt_page(directory: RunDirectory, record: Record, run: Mapping[str, Any]) -> str:
    folder = directory.attempt_dir(record["task_id"], record["attempt"])
    found = list(steps(trajectory(directory, record)))
    longest = max((step.seconds or 0 for step in found), default=0)
    graded = record["meta"]["benchmark"]["scoring"]
    scoring: Mapping[str, Any] = graded if graded else {}
    truth: Mapping[str, Any] = record["ground_truth"]
    texts = (
        *(("Prompt", text) for text in truth.get("prompts", ())),
        ("Expected behaviour", truth["expected_behavior"]),
        ("Grading criteria", truth["grading_criteria"]),
        ("Judge's rubric", truth.get("judge_rubric")),
    )
    cost = cost_parts([record])
    return page(
        "attempt.html.j2",
        "attempt.js",
        record=record,
        fell_short=record.get("fell_short", ()),
        facts=[
            ("time", formats.seconds(record["execution_time"])),
            ("tokens", formats.tokens(record["usage"])),
            ("requests", formats.count(record["usage"]["request_count"])),
            ("cost", formats.cost(cost)),
            ("tries", str(len(record["retried"]) + 1)),
        ],
        steps=[
            (
                step,
                100 * (step.seconds or 0) / longest if longest else 0,
                list(_shown(step.entries)),
            )
            for step in found
        ],
        scoring=scoring,
        formula=_formula(scoring),
        texts=[(title, _markdown(text)) for title, text in texts if text],
        checks=truth.get("automated_checks"),
        evidence=list(_evidence(record, scoring)),
        files=list(_workspace(folder, record)),
        raw=[(path.name, quote(path.name)) for path in sorted(folder.iterdir()) if _is_raw(path)],
        command=_command(record, run),
    )


def _is_raw(path: Path) -> bool:
    return path.is_file() and path.name != NAME and not path.name.startswith(".")


def _shown(entries: list[Entry]) -> Iterator[tuple[Entry, Markup | None, str | None]]:
    """Each entry, as Markdown where a person or the model wrote it, closed where it is long."""
    for entry in entries:
        html = _markdown(entry.text) if entry.kind in ("user", "assistant") else None
        lines = entry.text.strip().splitlines()
        closed = lines[0][:100] if lines and entry.kind in ("thinking", "result", "error") else None
        yield entry, html, closed


@cache
def _parser() -> MarkdownIt:
    """Without HTML, links and images: none of what a model writes leads anywhere."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return parser.disable(["link", "image", "autolink", "html_inline", "html_block"])


def _markdown(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(_parser().render(text))


def _formula(scoring: Mapping[str, Any]) -> str:
    """``0.25 x automated 1.000 + 0.75 x llm_judge 0.200``, where a score has parts."""
    parts = scoring.get("parts") or {}
    return " + ".join(
        f"{formats.mark(part['weight'])} x {name} {formats.score(part['score'])}"
        for name, part in parts.items()
        if "weight" in part
    )


def _evidence(record: Record, scoring: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the checks printed and the judge answered, and what else the grader noted."""
    debug = (scoring.get("raw") or {}).get("debug") or {}
    parts = debug if record["grading_type"] == "hybrid" else {record["grading_type"]: debug}
    for part, noted in parts.items():
        rest = dict(noted) if isinstance(noted, Mapping) else {"debug": noted}
        for name in ("raw_verdict", "prompt", "response", "stdout", "stderr"):
            if text := rest.pop(name, None):
                yield f"{part}: {name.replace('_', ' ')}", str(text)
        if rest:
            yield f"{part}: other", json.dumps(rest, indent=1, ensure_ascii=False)


def _workspace(folder: Path, record: Record) -> Iterator[tuple[str, int, str | None, str | None]]:
    """Each file: name, bytes, its text or its data as an image, where it can be shown."""
    name = record["artifacts"]["workspace"]
    room = _SHOWN
    try:
        with tarfile.open(folder / (name or ""), "r:gz") as archive:
            for count, info in enumerate(one for one in archive if _is_listed(one)):
                if count == _FILES:
                    yield "and more: see the archive", 0, None, None
                    return
                text = image = None
                kind = _IMAGES.get(info.name.rpartition(".")[2].lower())
                limit = _IMAGE if kind else _FILE
                if info.isfile() and info.size <= min(limit, room):
                    data = archive.extractfile(info).read()  # type: ignore[union-attr]
                    room -= len(data)
                    if kind:
                        image = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
                    elif b"\0" not in data:
                        text = data.decode("utf-8", "replace")
                yield info.name.removeprefix("./"), info.size, text, image
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return


def _is_listed(info: tarfile.TarInfo) -> bool:
    """Files, but for git's own."""
    return not info.isdir() and not info.name.removeprefix("./").startswith(".git/")


def _command(record: Record, run: Mapping[str, Any]) -> str:
    """What runs this task again, as far as ids go; keys and endpoints come from elsewhere."""
    settings = run["settings"]
    words = ["pytest", "--pinchbench", "--pinchbench-model", record["model"]]
    words += ["--pinchbench-suite", record["task_id"]]
    if environment := (settings.get("recipe") or {}).get("environment"):
        words += ["--pinchbench-env", environment]
    if judge := (settings.get("judge") or {}).get("id"):
        words += ["--pinchbench-judge-model", judge]
    return shlex.join(map(str, words))
