"""What MkDocs fills in: options and files, from the option table and the schemas."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from pytest_pinchbench.options import OPTIONS

SCHEMAS = Path(__file__).parents[1] / "pytest_pinchbench" / "schemas"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the markers of a page."""
    for marker, make in (("<!-- options -->", options_table), ("<!-- files -->", files_tables)):
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return markdown


def options_table() -> str:
    lines = []
    for group, options in itertools.groupby(OPTIONS, lambda option: option.group):
        lines += [f"\n## {group.capitalize()}\n"]
        lines += [
            "| `--pinchbench-...` | environment variable | in the YAML file | default | affects | |"
        ]
        lines += ["|---|---|---|---|---|---|"]
        for option in options:
            default = "" if option.default is None else f"`{option.default}`"
            names = [", ".join(f"`{name}`" for name in some) for some in (option.env, option.yaml)]
            cells = [f"`{option.name}`", *names, default, option.affects, _cell(option.help)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def files_tables() -> str:
    """Return a section for each schema: what the file is, and its fields."""
    lines = []
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_bytes())
        lines += [f"\n## {schema['title']}\n", schema["description"], ""]
        lines += ["| field | type | |", "|---|---|---|"]
        for name, field in schema["properties"].items():
            lines.append(f"| `{name}` | {_type(field)} | {_cell(field.get('description', ''))} |")
    return "\n".join(lines)


def _type(field: dict[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    kind = field.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else kind or "object"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
