"""Value readers: what is valid in an option, an ini value, a YAML file or a recipe.

A reader takes a value as its source has it (text, or a YAML or JSON value) and the folder that
relative paths start from, and returns the value that the project works with. Its ``ValueError``
completes a sentence that begins with the value's name: "limit has to be ...".

This module is imported by every pytest of a project that has the plugin installed: it imports
nothing that pytest does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Reader = Callable[[Any, Path], Any]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOWHERE = Path()


def text(raw: Any, base: Path = _NOWHERE) -> str:
    # the value is not quoted in the message: it may be a key
    if not isinstance(raw, str):
        raise ValueError("has to be text; in YAML, put it in quotes")
    if not raw.strip():
        raise ValueError("is empty")
    if not raw.strip().isprintable():
        raise ValueError("holds a line break or a control character")
    return raw.strip()


def text_or_number(raw: Any, base: Path = _NOWHERE) -> str:
    """Text, or a whole number that YAML has read as one: ``user: 1000``."""
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else text(raw)


def texts(raw: Any, base: Path = _NOWHERE) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise ValueError(f"has to be a list, not {raw!r}")
    return tuple(text_or_number(item) for item in raw)


def path(raw: Any, base: Path = _NOWHERE) -> Path:
    try:
        return Path(base, Path(text(raw)).expanduser())
    except RuntimeError:
        raise ValueError(f"names the home of an unknown user: {raw}") from None


def folder_or_yes(raw: Any, base: Path = _NOWHERE) -> str:
    """The path of a folder; ``yes`` where an option without a value stands for a folder."""
    return "yes" if raw == "yes" else str(path(raw, base))


def paths(raw: Any, base: Path = _NOWHERE) -> tuple[Path, ...]:
    # given as options, paths come as a list and may hold commas
    parts = raw if isinstance(raw, (list, tuple)) else words(raw)
    return tuple(path(part, base) for part in parts)


def run_directory(raw: Any, base: Path = _NOWHERE) -> str:
    """A path, as text; ``latest`` is the newest run in the results directory."""
    return raw if raw == "latest" else str(path(raw, base))


def run_directories(raw: Any, base: Path = _NOWHERE) -> tuple[str, ...]:
    parts = raw if isinstance(raw, (list, tuple)) else words(raw)
    return tuple(run_directory(part, base) for part in parts)


def sandbox_path(raw: Any, base: Path = _NOWHERE) -> str:
    if not isinstance(raw, str) or not raw.startswith("/") or ".." in raw.split("/"):
        raise ValueError(f"has to be an absolute path inside the sandbox, not {raw!r}")
    return raw.rstrip("/") or "/"


def url(raw: Any, base: Path = _NOWHERE) -> str:
    from urllib.parse import urlsplit

    address = text(raw)
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # not a number where the port should be
        usable = False
    if not usable or re.search(r"\s", address):
        raise ValueError("has to be a URL that begins with http:// or https://")
    return address.rstrip("/")


def model_url(raw: Any, base: Path = _NOWHERE) -> str:
    """A URL without the protocol's own path, which OpenClaw adds whatever the URL ends in."""
    from urllib.parse import urlsplit

    address = url(raw)
    parts = urlsplit(address)
    route = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/responses", "/messages"):
        if route.endswith(ending):
            host = parts.netloc.rpartition("@")[2]  # user, password and query may be keys
            right = f"{parts.scheme}://{host}{route.removesuffix(ending)}"
            raise ValueError(f"has to end before {ending}: {right}")
    return address


def yes_no(raw: Any, base: Path = _NOWHERE) -> bool:
    switches = {"yes": True, "true": True, "on": True, "1": True}
    switches |= {"no": False, "false": False, "off": False, "0": False}
    word = str(raw).lower()
    if word not in switches:
        raise ValueError(f"has to be yes or no, not {raw!r}; before a path, write =yes")
    return switches[word]


def whole_number(least: int) -> Reader:
    def read(raw: Any, base: Path = _NOWHERE) -> int:
        try:
            if isinstance(raw, (bool, float)):
                raise ValueError
            found = int(raw)
        except (TypeError, ValueError):
            raise ValueError(f"has to be a whole number, not {raw!r}") from None
        if found < least:
            raise ValueError(f"has to be {least} or more, not {found}")
        return found

    return read


def number(*, above: float | None = None, least: float = 0, most: float = math.inf) -> Reader:
    def read(raw: Any, base: Path = _NOWHERE) -> float:
        try:
            if isinstance(raw, bool):
                raise ValueError
            found = float(raw)
        except (TypeError, ValueError):
            raise ValueError(f"has to be a number, not {raw!r}") from None
        if not math.isfinite(found) or found < least or found > most:
            limits = f"from {least} to {most}" if math.isfinite(most) else f"of {least} or more"
            raise ValueError(f"has to be a finite number {limits}, not {raw!r}")
        if above is not None and found <= above:
            raise ValueError(f"has to be more than {above}, not {raw!r}")
        return found

    return read


def choice(*known: str) -> Reader:
    def read(raw: Any, base: Path = _NOWHERE) -> str:
        if raw in known:
            return str(raw)
        from pytest_pinchbench.spelling import did_you_mean

        hint = did_you_mean(raw, known)
        raise ValueError(f"has to be one of {', '.join(known)}, not {raw!r}{hint}")

    return read


def mapping(raw: Any, base: Path = _NOWHERE) -> dict[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError as error:
            raise ValueError(f"has to be a JSON object: {error}") from None
    if not isinstance(raw, dict) or not all(isinstance(name, str) for name in raw):
        raise ValueError("has to be a mapping (key: value; as JSON: an object)")
    try:
        json.dumps(raw, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"holds a value that JSON does not have: {error}") from None
    return dict(raw)


def csv_file(raw: Any, base: Path = _NOWHERE) -> Path:
    kind, _, name = str(raw).partition("=")
    if kind != "csv" or not name:
        raise ValueError(f"has to be csv=FILE, not {raw!r}")
    return path(name, base)


def words(raw: Any, base: Path = _NOWHERE) -> tuple[str, ...]:
    """Words in order: a list, or text with commas or line breaks between them."""
    parts = raw if isinstance(raw, (list, tuple)) else [raw]
    for part in parts:
        if not isinstance(part, str):
            raise ValueError(f"has to be text or a list of text, not {part!r}")
    found = [word.strip() for part in parts for word in re.split(r"[,\n]", part) if word.strip()]
    if not found:
        raise ValueError("is empty")
    return tuple(dict.fromkeys(found))


def suite(raw: Any, base: Path = _NOWHERE) -> str | tuple[str, ...]:
    """A list of exact task ids; or text, in which a word may also be a group of tasks."""
    found = words(raw)
    return ",".join(found) if isinstance(raw, str) else found


def version(raw: Any, base: Path = _NOWHERE) -> str:
    found = text(raw)
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+-]*", found):
        raise ValueError(f"has to be a version such as 2026.3.22, or latest, not {found!r}")
    return found


def word(raw: Any, base: Path = _NOWHERE) -> str:
    if not isinstance(raw, str) or not raw or re.search(r"\s", raw):
        raise ValueError(f"has to be text without spaces, not {raw!r}")
    return raw


def variables(raw: Any, base: Path = _NOWHERE) -> dict[str, str]:
    """Environment variables with their values."""
    if not isinstance(raw, dict):
        raise ValueError("has to be a mapping of variables")
    for name, value in raw.items():
        _check_variable(name)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"has a value of {name} that is not text; put it in quotes")
    return {name: str(value) for name, value in raw.items()}


def variable_names(raw: Any, base: Path = _NOWHERE) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise ValueError("has to be a list of names of variables")
    for name in raw:
        _check_variable(name)
    return tuple(raw)


def _check_variable(name: Any) -> None:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ValueError(f"holds {name!r}, which cannot be the name of a variable")
