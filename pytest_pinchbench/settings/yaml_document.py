"""YAML as people write it by hand: a key twice is an error, and every value has a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import Node

Place = tuple[Any, ...]
"""Keys and list indices that lead to a value: ``("workspace_files", 0, "dest")``."""


class YamlError(ValueError):
    """``line`` counts from 1 in the file, ``reason`` is one line for people."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


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


def parse(text: str, first_line: int = 1) -> Document:
    """Read one YAML document that starts on ``first_line`` of its file.

    Raises :class:`YamlError`.
    """
    import yaml

    # the C parser is ten times as fast; PyYAML is built without it on some platforms
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    notes = _Notes(loader, first_line)
    try:
        node = loader.get_single_node()
        if node is None:
            return Document(None, {}, first_line)
        notes.take(node, ())
        return Document(loader.construct_document(node), notes.lines, first_line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + mark.line if mark else first_line
        raise YamlError(line, f"not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        # the one YAML error without a mark; its position counts bytes
        line = first_line + text.encode()[: error.position].count(b"\n")
        raise YamlError(line, f"not valid YAML: {error.reason}") from None
    except RecursionError:
        raise YamlError(first_line, "not valid YAML: nested too deeply") from None
    finally:
        loader.dispose()


class _Notes:
    """Goes once through a document, noting the line of every value."""

    def __init__(self, loader: Any, first_line: int) -> None:
        self.lines: dict[Place, int] = {}
        self._loader = loader
        self._first_line = first_line
        self._finished: dict[Node, bool] = {}

    def take(self, node: Node, place: Place) -> None:
        import yaml

        if node in self._finished:  # met again through an alias
            if not self._finished[node]:
                raise YamlError(self._line(node), "not valid YAML: a value contains itself")
            return
        self._finished[node] = False
        if isinstance(node, yaml.MappingNode):
            self._take_mapping(node, place)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[(*place, index)] = self._line(value)
                self.take(value, (*place, index))
        else:
            try:
                self._loader.construct_object(node)  # kept by the loader, so not done twice
            except ValueError as error:  # a date such as 2026-02-31
                raise YamlError(self._line(node), f"not a valid value: {error}") from None
        self._finished[node] = True

    def _take_mapping(self, node: Any, place: Place) -> None:
        seen = set()
        for key, value in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    raise YamlError(self._line(key), f"the key {key.value!r} is there twice")
                seen.add(key.value)
            name = key.value if isinstance(key.value, str) else None
            self.lines[(*place, name)] = self._line(key)
            self.take(value, (*place, name))

    def _line(self, node: Node) -> int:
        return self._first_line + int(node.start_mark.line)
