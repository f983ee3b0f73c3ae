"""Level-2 sections of a task file's Markdown.

The text is read as CommonMark reads it, so that a ``##`` line or a fence inside a fenced block
is text. Text is taken from the source lines as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from pytest_pinchbench.settings.yaml_document import LineError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SECTIONS = (
    "Prompt",
    "Expected Behavior",
    "Grading Criteria",
    "Automated Checks",
    "LLM Judge Rubric",
)
_PYTHON = ("python", "python3", "py")
_ALMOST = 0.85  # of 1.0, as difflib compares titles; "Additional Notes" is far from all of them


@dataclass(frozen=True)
class Section:
    """``line`` is the heading's, counted from 1 in the file."""

    line: int
    text: str
    python: str | None
    """The first fenced block tagged as Python, whole."""
    python_line: int
    """The line of the block's first line of code."""


def split_sections(body: str, first_line: int) -> dict[str, Section]:
    """Return the level-2 sections by title.

    A line that starts with ``##`` opens a section; text with dashes under it does not. Raises
    ``LineError`` for a known section that occurs twice, a title that nearly is a
    known one, and a fence without an end.
    """
    tokens = _block_parser().parse(body)
    # not splitlines(): a form feed or U+2028 ends no line in Markdown
    lines = body.split("\n")
    _check_fences(tokens, lines, first_line)
    known = {title.lower(): title for title in SECTIONS}
    starts = [index for index, token in enumerate(tokens) if _opens_section(token)]
    sections: dict[str, Section] = {}
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=False):
        heading_line, text_line = tokens[start].map or (0, 0)
        end_line = (tokens[end].map or (0, 0))[0] if end < len(tokens) else len(lines)
        written = tokens[start + 1].content
        title = known.get(written.lower(), written)
        line = first_line + heading_line
        if title not in SECTIONS and (
            near := get_close_matches(written.lower(), known, n=1, cutoff=_ALMOST)
        ):
            raise LineError(
                line, f"unknown section {written[:100]!r}, did you mean {known[near[0]]!r}?"
            )
        if title in sections:
            if title in SECTIONS:
                raise LineError(line, f"the section {title} is there twice")
            continue
        block = next((token for token in tokens[start:end] if _is_python(token)), None)
        sections[title] = Section(
            line,
            "\n".join(lines[text_line:end_line]).strip(),
            block.content if block else None,
            first_line + (block.map or [0])[0] + 1 if block else line,
        )
    return sections


def _check_fences(tokens: list[Token], lines: list[str], first_line: int) -> None:
    for token in tokens:
        if token.type != "fence" or token.map is None:
            continue
        start, end = token.map
        last = lines[end - 1].strip().lstrip("> \t") if end - 1 > start else ""
        marker = re.escape(token.markup[0])
        if not re.fullmatch(f"{marker}{{{len(token.markup)},}}", last):
            raise LineError(
                first_line + start, f"the fence {token.markup} is never closed: end it with one"
            )


def _is_python(token: Token) -> bool:
    return token.type == "fence" and "".join(token.info.split()[:1]).lower() in _PYTHON


@cache
def _block_parser() -> MarkdownIt:
    """CommonMark's blocks alone: what is inside a paragraph matters to nobody here."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline", "text_join"])


def _opens_section(token: Token) -> bool:
    # a heading by underline has the markup "-"
    return token.type == "heading_open" and token.markup == "##" and token.level == 0
