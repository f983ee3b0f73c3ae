"""The types of what a run leaves behind say what its schemas say."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, get_type_hints

import pytest

from pytest_pinchbench.results.records import Record, RunDescription


@pytest.mark.parametrize(
    ("typed", "schema"),
    [(Record, "pinchbench-result-1"), (RunDescription, "pinchbench-run-1")],
)
def test_types_and_schemas_name_the_same_fields(typed: type, schema: str) -> None:
    document = json.loads(files("pytest_pinchbench").joinpath(f"schemas/{schema}.json").read_text())
    _compare(typed, document, document.get("$defs", {}), schema)


def _compare(typed: Any, schema: dict[str, Any], shared: dict[str, Any], where: str) -> None:
    schema = _followed(schema, shared)
    hints = get_type_hints(typed)
    optional = {"resumed_at"}  # only resumed runs have it
    assert set(schema["properties"]) - optional == set(hints), where
    assert set(schema.get("required", ())) <= typed.__required_keys__, where
    for name, hint in hints.items():
        for part in [hint, *getattr(hint, "__args__", ())]:
            if hasattr(part, "__required_keys__"):
                inner = _followed(schema["properties"][name], shared)
                _compare(part, inner.get("items", inner), shared, f"{where}.{name}")


def _followed(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """A schema without references and without the null that it may also be."""
    for one in schema.get("anyOf", ()):
        if one != {"type": "null"}:
            return _followed(one, shared)
    if "$ref" in schema:
        return _followed(shared[schema["$ref"].rpartition("/")[2]], shared)
    return schema
