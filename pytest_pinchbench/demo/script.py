"""What the scripted model says: the script file's format, and the choice of an answer.

A script is YAML::

    usage: {input_tokens: 100, output_tokens: 20}   # of every answer; these are the defaults
    turns:
      - when: write a poem about autumn             # text found in the user's prompt
        steps:
          - read: {path: style.txt}                 # one answer with one tool call
          - - write: {path: a.txt, content: one}    # one answer with two tool calls
            - write: {path: b.txt, content: two}
          - Both files are written.                 # the turn's last answer: text
    judge:
      - when: write a poem about autumn             # text found anywhere in the judge's prompt
        verdict: {total: 0.8, notes: fine}          # a mapping is sent as JSON, a text as it is
    otherwise: I have no script for this.           # the answer to anything else
    faults:                                         # see the class Fault
      - {first: 3, action: status, status: 500}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

SCRIPT = Path(__file__).with_name("script.yaml")  # the demo's own

Audience = Literal["agent", "judge", "other"]
"""Who is asking: an agent (it offers tools), someone who wants a verdict, or neither
(a check of the endpoint)."""

Action = Literal["status", "refuse", "reset", "cut", "silence"]


class ScriptError(ValueError):
    """A script that cannot be used. The message says where in it, and why."""


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """One assistant message: tool calls, or a text that ends the turn."""

    calls: tuple[ToolCall, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return ", ".join(call.name for call in self.calls) or "text"


@dataclass(frozen=True)
class Turn:
    """What the model does from one prompt of the user to its final text."""

    when: str
    steps: tuple[Answer, ...]


@dataclass(frozen=True)
class Verdict:
    when: str
    text: str


@dataclass(frozen=True)
class Fault:
    """A way for the endpoint to fail, for requests number ``first`` to ``last`` (from 1).

    Only requests of the audience ``only`` are counted and concerned; None means all.

    ``status``
        answers with that HTTP status; ``body`` is a text sent as it is, or a mapping sent as
        JSON; left out, it is an error object as the protocol has it, with ``message``.
    ``refuse``
        stops the server: this connection is reset, the next is refused.
    ``reset``
        resets the connection once the request is read.
    ``cut``
        sends half of the right answer, then resets the connection.
    ``silence``
        never answers; the connection stays open until either side closes.
    """

    action: Action = "status"
    first: int = 1
    last: int | None = None
    only: Audience | None = None
    status: int = 500
    message: str = "scripted failure"
    body: str | Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def concerns(self, audience: Audience, counts: Mapping[Audience, int]) -> bool:
        """Whether the newest request, already counted in ``counts``, meets this fault."""
        if self.only not in (None, audience):
            return False
        number = counts[self.only] if self.only else sum(counts.values())
        return self.first <= number and (self.last is None or number <= self.last)


@dataclass(frozen=True)
class Usage:
    """Tokens that every answer says it took."""

    input_tokens: int = 100
    output_tokens: int = 20


@dataclass(frozen=True)
class Message:
    """One message of a request, with all its text; ``role`` in the words of OpenAI's API."""

    role: str
    text: str


@dataclass(frozen=True)
class Script:
    turns: tuple[Turn, ...] = ()
    judge: tuple[Verdict, ...] = ()
    otherwise: str = "I have no script for this."
    usage: Usage = Usage()
    faults: tuple[Fault, ...] = ()

    def answer(self, messages: Sequence[Message], has_tools: bool) -> tuple[Audience, Answer]:
        """The answer to a conversation, and for whom.

        Decided by what the conversation holds, not by its last message: OpenClaw may end a
        request with a user message of its own, after a tool result too, and a session keeps
        the prompts of its earlier turns. So the turn is that of the latest prompt the script
        knows, and the step is the number of answers given since.
        """
        if not has_tools:
            whole = _squeeze(" ".join(message.text for message in messages))
            for verdict in self.judge:
                if _squeeze(verdict.when) in whole:
                    return "judge", Answer(text=verdict.text)
            return "other", Answer(text=self.otherwise)
        given = 0
        for message in reversed(messages):
            if message.role == "assistant":
                given += 1
            elif message.role == "user":
                text = _squeeze(message.text)
                for turn in self.turns:
                    if _squeeze(turn.when) in text and given < len(turn.steps):
                        return "agent", turn.steps[given]
                    if _squeeze(turn.when) in text:
                        return "agent", Answer(text=self.otherwise)
        return "agent", Answer(text=self.otherwise)


def load_script(path: Path) -> Script:
    """Read a script file. Raises ``ScriptError`` that names the file."""
    try:
        return parse_script(path.read_text(encoding="utf-8"))
    except (ScriptError, OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"script {path}: {error}") from error


def parse_script(text: str) -> Script:
    """Read a script from YAML text. Raises ``ScriptError``."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"not YAML: {error}") from error
    data = _mapping(data, "the script", {"turns", "judge", "otherwise", "usage", "faults"})
    return Script(
        turns=tuple(_turn(*item) for item in _items(data.get("turns", []), "turns")),
        judge=tuple(_verdict(*item) for item in _items(data.get("judge", []), "judge")),
        otherwise=_text(data.get("otherwise", Script.otherwise), "otherwise"),
        usage=_usage(data.get("usage", {})),
        faults=tuple(_fault(*item) for item in _items(data.get("faults", []), "faults")),
    )


def _turn(data: Any, where: str) -> Turn:
    turn = _mapping(data, where, {"when", "steps"})
    when = _text(turn.get("when"), f"{where}.when")
    steps = tuple(_step(*item) for item in _items(turn.get("steps"), f"{where}.steps"))
    if not steps or steps[-1].calls:
        raise ScriptError(f"{where}.steps: the last step must be a text, which ends the turn")
    for number, step in enumerate(steps[:-1]):
        if not step.calls:
            raise ScriptError(
                f"{where}.steps[{number}]: a text ends the turn, so the steps after it "
                "would never be reached"
            )
    return Turn(when, steps)


def _step(data: Any, where: str) -> Answer:
    if isinstance(data, str):
        return Answer(text=_text(data, where))
    calls = data if isinstance(data, list) else [data]
    return Answer(calls=tuple(_call(*item) for item in _items(calls, where)))


def _call(data: Any, where: str) -> ToolCall:
    if not isinstance(data, dict) or len(data) != 1:
        raise ScriptError(
            f"{where}: a step is a text, one tool call `tool: {{argument: value}}`, "
            f"or a list of tool calls; this is {data!r}"
        )
    ((name, arguments),) = data.items()
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ScriptError(f"{where}: the arguments of {name!r} must be a mapping")
    return ToolCall(name, arguments)


def _verdict(data: Any, where: str) -> Verdict:
    item = _mapping(data, where, {"when", "verdict"})
    verdict = item.get("verdict")
    if not isinstance(verdict, (str, dict)):
        raise ScriptError(f"{where}.verdict: must be a mapping or a text, not {verdict!r}")
    text = verdict if isinstance(verdict, str) else json.dumps(verdict)
    return Verdict(_text(item.get("when"), f"{where}.when"), text)


def _fault(data: Any, where: str) -> Fault:
    item = _mapping(data, where, {spec.name for spec in fields(Fault)})
    fault = Fault(**item)
    if fault.action not in ("status", "refuse", "reset", "cut", "silence"):
        raise ScriptError(
            f"{where}.action: must be status, refuse, reset, cut or silence, not {fault.action!r}"
        )
    if fault.only not in (None, "agent", "judge", "other"):
        raise ScriptError(f"{where}.only: must be agent, judge or other, not {fault.only!r}")
    for name in ("first", "last", "status"):
        value = getattr(fault, name)
        if not isinstance(value, int) and not (name == "last" and value is None):
            raise ScriptError(f"{where}.{name}: must be a whole number, not {value!r}")
    return fault


def _usage(data: Any) -> Usage:
    item = _mapping(data, "usage", {spec.name for spec in fields(Usage)})
    for name, value in item.items():
        if not isinstance(value, int) or value < 0:
            raise ScriptError(f"usage.{name}: must be a number of tokens, not {value!r}")
    return Usage(**item)


def _mapping(data: Any, where: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ScriptError(f"{where}: must be a mapping, not {data!r}")
    unknown = [key for key in data if key not in known]
    if unknown:
        raise ScriptError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return data


def _items(data: Any, where: str) -> Iterable[tuple[Any, str]]:
    """The items of a list, each with its place in the script for messages."""
    if not isinstance(data, list):
        raise ScriptError(f"{where}: must be a list, not {data!r}")
    return [(item, f"{where}[{number}]") for number, item in enumerate(data)]


def _text(data: Any, where: str) -> str:
    if not isinstance(data, str) or not data.strip():
        raise ScriptError(f"{where}: must be a text that is not empty, not {data!r}")
    return data


def _squeeze(text: str) -> str:
    """The text with every run of white space as one space: prompts get wrapped and indented."""
    return " ".join(text.split())
