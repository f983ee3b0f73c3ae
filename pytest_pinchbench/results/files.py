"""JSON files of a run directory: read leniently, written atomically."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_pinchbench.issues import ResultsUnwritable

# a lone surrogate, which a model can produce, has no UTF-8: it stays the escape JSON has
LENIENT = ("utf-8", "backslashreplace")


def safe_name(text: str) -> str:
    """A model or task id as one path component: ``openrouter/x:free`` is ``openrouter-x-free``."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip(".-") or "unnamed"


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None without a file, or where it does not hold JSON."""
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def has_shape(value: Any, shape: Any) -> bool:
    """Return whether a JSON value holds what will be read of it.

    A shape is a type or several, a test of the value, a mapping of required names to shapes,
    or a list with the shape of every item. A boolean is not a number, nor is infinity.
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            name in value and has_shape(value[name], part) for name, part in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    if not isinstance(shape, (type, tuple)):
        return bool(shape(value))
    if isinstance(value, bool):
        return shape is bool or (isinstance(shape, tuple) and bool in shape)
    return isinstance(value, shape) and not (isinstance(value, float) and math.isinf(value))


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode(*LENIENT) + b"\n"


def json_lines(values: Sequence[Any]) -> bytes:
    lines = (json.dumps(value, ensure_ascii=False) for value in values)
    return "".join(f"{line}\n" for line in lines).encode(*LENIENT)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into ``ResultsUnwritable``, which names the file or folder."""
    try:
        yield
    except OSError as error:
        raise ResultsUnwritable(
            f"cannot write {path}: {error.strerror or error}. Make room there, or name another "
            "folder with --pinchbench-results-dir."
        ) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file of which a reader sees the old content or the new one.

    A killed process leaves no torn file. Raises ``ResultsUnwritable``.
    """
    with writing(path), _temporary(path) as temporary:
        with open(temporary, "wb") as stream:  # a killed process of this number may have left one
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
