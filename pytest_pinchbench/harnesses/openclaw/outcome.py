"""How a turn of the agent ended: the agent's doing, the clock's, or the model endpoint's.

The rules are the table "When things go wrong" of the scoring rules. OpenClaw itself hardly
tells these apart: with a dead endpoint some releases exit 0 and print the error as if it were
the answer. The transcript tells, and, for what a killed OpenClaw had no time to put there, its
log. What stands on stderr tells nothing.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytest_pinchbench.environments import ExecResult
from pytest_pinchbench.harnesses import Requests
from pytest_pinchbench.harnesses.openclaw import messages as read
from pytest_pinchbench.issues import Issue

REFUSALS = (400, 413, 422)

# Endpoints answer 400 not only to what a request holds, but to who sends it.
_ABOUT_THE_ACCOUNT = re.compile(
    r"credit|billing|quota|balance|insufficient|api.?key|unauthori[sz]ed|authenticat|permission",
    re.IGNORECASE,
)
_ABOUT_THE_CONTENT = re.compile(
    r"context.{0,20}(length|window|overflow|size)|maximum context|prompt is too long"
    r"|request.{0,20}too (long|large)|content.?(filter|policy)|finish.?reason.{0,5}safety",
    re.IGNORECASE,
)
_KILLING = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
# 2026.9.6 ends a turn in this way when a tool call of the model's is not JSON; earlier releases
# take it for a call without arguments. The endpoint did its part.
_ABOUT_THE_ANSWER = re.compile(r"malformed tool call", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """A failed request: the endpoint's own words, and when."""

    words: str
    at: datetime | None

    @property
    def refused_content(self) -> bool:
        """Whether the endpoint refused what the request held, not the one who sent it."""
        if _ABOUT_THE_ACCOUNT.search(self.words):
            return False
        status = re.match(r"\W*(?:HTTP |status |error )?(\d{3})\b", self.words, re.IGNORECASE)
        if status:
            return int(status[1]) in REFUSALS
        return bool(_ABOUT_THE_CONTENT.search(self.words))


def find_issues(
    result: ExecResult,
    transcript: Sequence[dict[str, Any]],
    log: bytes,
    endpoint: str,
    *,
    known: int = 0,
    requests: Requests | None = None,
    began: datetime | None = None,
) -> list[Issue]:
    """What went wrong in the turn that just ended.

    ``known`` is how many events the transcript had before it. ``log`` is OpenClaw's log file
    where the clock ended the turn, else empty; ``endpoint`` names the model's endpoint for
    people; ``began`` is when the turn was started. What the relay knows (``requests``) counts
    before what OpenClaw wrote.
    """
    first = result.timed_out and requests is None and known == 0
    if first and (starved := _why_starved(result, transcript, log, began)):
        return [Issue("FATAL", "agent_starved", f"{starved} ({endpoint})")]
    answers = _answers(transcript[known:])
    heard = any(_is_answer(event["message"]) for event in _answers(transcript))
    failure = _last_failure(answers, log)
    if requests is not None:
        heard = requests.heard
        if requests.failure and not (failure and _ABOUT_THE_ANSWER.search(failure.words)):
            failure = Failure(requests.failure, None)
        elif result.timed_out:  # OpenClaw's own words are about its end
            failure = None
    issues: list[Issue] = []

    if failure and _ABOUT_THE_ANSWER.search(failure.words):
        issues.append(
            Issue("ERROR", "bad_answer", f"OpenClaw could not use the answer: {failure.words}")
        )
    elif failure and heard and failure.refused_content:
        issues.append(
            Issue(
                "ERROR",
                "request_refused",
                f"the endpoint refused a request for what was in it: {failure.words}",
            )
        )
    elif failure:
        what = (
            "the model's endpoint failed in mid-task, and the attempt ended with that"
            if heard
            else "the model was never heard"
        )
        issues.append(Issue("FATAL", "model_endpoint", f"{what}: {failure.words} ({endpoint})"))

    if result.timed_out:
        issues.append(
            Issue(
                "ERROR", "agent_timeout", f"the agent ran out of time after {result.seconds:.0f} s"
            )
        )
        if not heard and not failure:
            issues.append(
                Issue(
                    "WARNING",
                    "model_silent",
                    f"not one answer of the model had come when the time was up ({endpoint})",
                )
            )
    elif result.exit_code == 1 and answers and _is_empty(answers[-1]["message"]):
        issues.append(
            Issue("ERROR", "bad_answer", "the model's last answer was empty, and OpenClaw gave up")
        )
    elif heard and _was_killed(result.exit_code):
        text = f"the agent ended its own OpenClaw, or used up its memory: {_ending(result)}"
        issues.append(Issue("ERROR", "agent_ended", text))
    elif result.exit_code < 0 or (result.exit_code and not failure):
        issues.append(Issue("FATAL", "agent_crash", f"OpenClaw ended with {_ending(result)}"))
    elif not failure and not transcript:
        issues.append(
            Issue(
                "FATAL",
                "no_transcript",
                f"OpenClaw left no transcript; it ended with {_ending(result)}",
            )
        )
    elif not failure and not any(_is_answer(event["message"]) for event in answers):
        issues.append(
            Issue(
                "FATAL",
                "model_endpoint",
                f"no answer of the model, and OpenClaw does not say why ({endpoint}); "
                f"it ended with {_ending(result)}",
            )
        )
    return issues


def _was_killed(exit_code: int) -> bool:
    """Whether a signal ended OpenClaw that a process sends to another, or the kernel for want of
    memory; nobody but its agent had a reason to.
    """
    return (-exit_code if exit_code < 0 else exit_code - 128) in _KILLING


def _why_starved(
    result: ExecResult, transcript: Sequence[dict[str, Any]], log: bytes, began: datetime | None
) -> str:
    """Return why the agent had no fair time to ask the model, empty where it had.

    OpenClaw notes a prompt when it is ready to work on it.
    """
    if _answers(transcript) or last_logged_failure(log):
        return ""
    prompts = [e for e in transcript if (m := read.message_of(e)) and m.get("role") == "user"]
    told = "this machine is overloaded: run fewer at a time (-n), or give more time"
    if not prompts:
        return f"OpenClaw had not started to work after {result.seconds:.0f} s; {told}"
    at = read.finished(prompts[0])
    if at is None or began is None:
        return ""
    late = (at - began).total_seconds()
    if late <= result.seconds / 2:
        return ""
    return f"OpenClaw took {late:.0f} of {result.seconds:.0f} s to start; {told}"


def _answers(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in events if (m := read.message_of(e)) and read.is_from_model(m)]


def _is_answer(message: read.Message) -> bool:
    """A run that is cut off ends with a message that says nothing, too."""
    if read.endpoint_error(message) is not None:
        return False
    return message.get("stopReason") != "aborted" or bool(read.blocks(message))


def _is_empty(message: read.Message) -> bool:
    """Neither words nor tool calls: since 2026.9 OpenClaw itself calls that a failure."""
    return _is_answer(message) and not read.text(message) and not read.tool_calls(message)


def _last_failure(answers: Sequence[dict[str, Any]], log: bytes) -> Failure | None:
    """The failure that nothing of the model came after."""
    last = answers[-1] if answers else None
    words = read.endpoint_error(last["message"]) if last else None
    if last and words is not None:
        return Failure(words, read.finished(last))
    logged = last_logged_failure(log)
    if logged is None or last is None:
        return logged
    answered = read.finished(last)
    return logged if logged.at and answered and logged.at > answered else None


def last_logged_failure(log: bytes) -> Failure | None:
    """The last failed request in OpenClaw's log (JSON lines).

    While it still tries again, 2026.9.6 keeps a failure out of the transcript.
    """
    for line in reversed(log.splitlines()):
        if b'"embedded_run_agent_end"' not in line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # torn: the process was killed
            continue
        if not isinstance(entry, dict):
            continue
        fields = next((part for part in entry.values() if _is_failure(part)), None)
        if fields:
            words = fields.get("rawErrorPreview") or fields.get("error") or "no reason given"
            meta = entry.get("_meta")
            at = read.moment(meta.get("date")) if isinstance(meta, dict) else None
            return Failure(str(words), at)
    return None


def _is_failure(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("event") == "embedded_run_agent_end"
        and part.get("isError") is True
    )


def _ending(result: ExecResult) -> str:
    """How a command ended, with the last of what it said."""
    if result.exit_code < 0:
        how = f"signal {-result.exit_code}"
        how += " (out of memory?)" if result.exit_code == -9 else ""
    else:
        how = f"exit code {result.exit_code}"
    said = result.stderr or result.stdout
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said.decode(errors="replace")).strip().splitlines()
    return f"{how}: {' / '.join(lines[-5:])[-1000:]}" if lines else how
