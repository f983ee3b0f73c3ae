"""YAML as people write it by hand: a key twice is an error, and every value has a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import MarkedYAMLError, Node

Place = tuple[Any, ...]
"""Keys and list indices that lead to a value: ``("workspace_files", 0, "dest")``."""


LARGEST_VALUE = 8 << 20
"""Characters that a document may come to when its aliases are written out."""
_LONGEST_NUMBER = 400
"""Characters; beyond them, reading a number takes time by the square of its length."""


class LineError(ValueError):
    """``line`` counts from 1 in the file, ``reason`` is one line for people."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class YamlError(LineError):
    """A YAML document, or a value in it, that cannot be used."""


@dataclass(frozen=True)
class Document:
    """``value`` is what the YAML says; None for an empty document."""

    value: Any
    lines: Mapping[Place, int]
    first_line: int

    def line(self, *place: Any) -> int:
        """The line of the value at ``place``, or of the nearest thing around it."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return self.first_line

    def error(self, reason: str, *place: Any) -> YamlError:
        """Return the error for the value at ``place``."""
        return YamlError(self.line(*place), reason)


def shown(value: Any) -> str:
    """Return a value as error messages show it: its ``repr``, at most 100 characters."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def parse(text: str, first_line: int = 1) -> Document:
    """Read one YAML document that starts on ``first_line`` of its file.

    Raises :class:`YamlError`.
    """
    import yaml

    # the C parser is ten times as fast; PyYAML is built without it on some platforms
    c_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _parse(c_loader, text, first_line)
    except yaml.scanner.ScannerError as error:
        # half of a surrogate pair, as JSON writes an emoji: only the other parser reads it
        if "Unicode character escape" not in str(error.problem):
            raise _marked(error, first_line) from None
    except yaml.MarkedYAMLError as error:
        raise _marked(error, first_line) from None
    except yaml.reader.ReaderError as error:
        # the one YAML error without a mark; its position counts bytes
        line = first_line + text.encode()[: error.position].count(b"\n")
        raise YamlError(line, f"not valid YAML: {error.reason}") from None
    try:
        return _parse(yaml.SafeLoader, text, first_line)
    except yaml.MarkedYAMLError as error:
        raise _marked(error, first_line) from None
    except ValueError as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError(first_line, f"not valid YAML: {error}") from None


def _marked(error: MarkedYAMLError, first_line: int) -> YamlError:
    mark = error.problem_mark or error.context_mark
    line = first_line + mark.line if mark else first_line
    return YamlError(line, f"not valid YAML: {error.problem or error.context}")


def _parse(kind: Any, text: str, first_line: int) -> Document:
    loader = kind(text)
    notes = _Notes(loader, first_line)
    try:
        node = loader.get_single_node()
        if node is None:
            return Document(None, {}, first_line)
        notes.take(node, ())
        return Document(loader.construct_document(node), notes.lines, first_line)
    except RecursionError:
        raise YamlError(first_line, "not valid YAML: nested too deeply") from None
    finally:
        loader.dispose()


class _Notes:
    """Goes once through a document, noting the line of every value and its size."""

    def __init__(self, loader: Any, first_line: int) -> None:
        self.lines: dict[Place, int] = {}
        self._loader = loader
        self._first_line = first_line
        self._sizes: dict[Node, int] = {}  # 0 while a node is being looked at

    def take(self, node: Node, place: Place) -> int:
        """Return the node's size in characters, with every alias in it written out."""
        import yaml

        if node in self._sizes:  # met again through an alias
            if not self._sizes[node]:
                raise YamlError(self._line(node), "not valid YAML: a value contains itself")
            return self._sizes[node]
        self._sizes[node] = 0
        size = 1
        if isinstance(node, yaml.MappingNode):
            size += self._take_mapping(node, place)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[(*place, index)] = self._line(value)
                size += self.take(value, (*place, index))
        else:
            self._check_scalar(node)
            try:
                self._loader.construct_object(node)  # kept by the loader, so not done twice
            except ValueError as error:  # a date such as 2026-02-31
                raise YamlError(self._line(node), f"not a valid value: {error}") from None
            size += len(node.value)
        if size > LARGEST_VALUE:
            raise YamlError(
                self._line(node),
                f"not valid YAML: with its aliases written out, the document is larger than "
                f"{LARGEST_VALUE >> 20} MiB",
            )
        self._sizes[node] = size
        return size

    def _check_scalar(self, node: Any) -> None:
        if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
            raise YamlError(
                self._line(node), f"not a valid value: a number of {len(node.value)} characters"
            )
        try:
            pairs = node.value.encode("utf-16-le", "surrogatepass")
            node.value = pairs.decode("utf-16-le")
        except UnicodeDecodeError:
            raise YamlError(
                self._line(node),
                "not valid YAML: half of a surrogate pair; write both halves, or the character",
            ) from None

    def _take_mapping(self, node: Any, place: Place) -> int:
        seen = set()
        size = 0
        for key, value in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    raise YamlError(self._line(key), f"the key {shown(key.value)} is there twice")
                seen.add(key.value)
                self._check_scalar(key)
                size += len(key.value)
            name = key.value if isinstance(key.value, str) else None
            self.lines[(*place, name)] = self._line(key)
            size += self.take(value, (*place, name))
        return size

    def _line(self, node: Node) -> int:
        return self._first_line + int(node.start_mark.line)
