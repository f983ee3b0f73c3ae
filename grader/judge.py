"""The judge's part: one question to a model, and its verdict."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional

from . import prompt as prompts
from .endpoint import Endpoint, EndpointError, ask
from .part import Part, issue
from .protocols import Answer, defaults_for, usage_of
from .redact import Redactor, excerpt
from .verdict import InvalidAnswer, Verdict, parse

_TOO_LATE = (
    "it was not asked, since the time for the evaluation was used up before; "
    "--pinchbench-evaluation-timeout sets it"
)
KEPT_ANSWER = 20_000  # characters of the judge's answer that are kept for the record


def ask_judge(
    task: Mapping[str, Any],
    transcript: Any,
    spec: Optional[Mapping[str, Any]],
    *,
    timeout: float,
    transcript_limit: int,
    files: Optional[List[Dict[str, Any]]] = None,
) -> Part:
    """The judge's part of a grade. Without a usable answer it is FATAL: there is no score.

    ``files``: see :func:`prompt.build`.
    """
    started = time.monotonic()
    try:
        endpoint = _endpoint(spec)
    except EndpointError as error:
        return Part(None, {}, [issue("FATAL", error.code, str(error))], {}, 0.0)
    redactor = Redactor(endpoint.secrets())
    prompt = prompts.build(task, transcript, transcript_limit, files)
    debug: Dict[str, Any] = {
        "model": endpoint.model,
        "protocol": endpoint.protocol,
        "url": endpoint.shown_url(),
        "timeout": timeout,
        "prompt_characters": len(prompt.text),
        "transcript_left_out": prompt.left_out,
        "view": "reference" if files is None else "full",
    }
    try:
        if timeout <= 0:
            raise EndpointError("judge_timeout", _TOO_LATE)
        answer = ask(
            endpoint,
            prompt.text,
            defaults=defaults_for(endpoint.protocol, endpoint.params),
            timeout=timeout,
            redactor=redactor,
        )
        part = _judged(answer, debug, redactor)
    except EndpointError as error:
        debug["status"] = error.status
        debug["retry_after"] = error.retry_after
        debug["response"] = error.body[:KEPT_ANSWER]
        problem = issue("FATAL", error.code, "the judge failed: {}".format(error))
        usage = usage_of({}, error.requests) if error.requests else None
        part = Part(None, {}, [problem], debug, 0.0, usage=usage)
    if not prompt.shows_work:
        words = "the judge was shown nothing that the agent did: its transcript holds no tool call"
        part = part._replace(issues=[*part.issues, issue("WARNING", "judge_blind", words)])
    seconds = time.monotonic() - started
    debug["seconds"] = seconds
    return Part(**redactor.json(part._replace(seconds=seconds)._asdict()))


def _judged(answer: Answer, debug: Dict[str, Any], redactor: Redactor) -> Part:
    """The part that an answer makes, valid or not."""
    usage = usage_of(answer.usage, answer.requests)
    raw = redactor.text(answer.text)
    debug["dropped_parameters"] = list(answer.dropped)
    debug["finish_reason"] = answer.finish_reason
    debug["raw_verdict"] = raw[:KEPT_ANSWER]
    try:
        verdict = _verdict(answer)
    except InvalidAnswer as error:
        says = "; the judge wrote: " + excerpt(raw) if raw.strip() else ""
        text = "the judge gave no valid verdict: {}{}".format(error, says)
        return Part(None, {}, [issue("FATAL", "judge_answer", text)], debug, 0.0, usage=usage)
    debug["parsed_verdict"] = verdict.parsed
    notes = verdict.notes[:KEPT_ANSWER]
    odd = [issue("WARNING", "judge_total", warning) for warning in verdict.warnings]
    return Part(verdict.total, verdict.scores, odd, debug, 0.0, notes, usage)


def _verdict(answer: Answer) -> Verdict:
    if answer.problem:
        raise InvalidAnswer(answer.problem)
    return parse(answer.text, cut_off=answer.cut_off)


def check_endpoint(spec: Mapping[str, Any], timeout: float) -> Dict[str, Any]:
    """One tiny request: ``problem`` is None when the endpoint answers, else what is wrong, in
    its words; ``passing`` says that it may answer soon, ``retry_after`` when (seconds).

    Whatever the model says is fine: sixteen tokens may all go into thinking.
    """
    try:
        endpoint = Endpoint.of(spec)
        redactor = Redactor(endpoint.secrets())
        ask(
            endpoint,
            "This is a connection test. Answer with the word OK.",
            defaults=defaults_for(endpoint.protocol, endpoint.params, tiny=True),
            timeout=timeout,
            redactor=redactor,
        )
    except EndpointError as error:
        busy = error.status == 429 or (error.status or 0) >= 500
        return {"problem": str(error), "passing": busy, "retry_after": error.retry_after}
    return {"problem": None, "passing": False, "retry_after": None}


def _endpoint(spec: Optional[Mapping[str, Any]]) -> Endpoint:
    """Where to ask. Raises :class:`EndpointError`, saying what to configure."""
    if spec is None:
        raise EndpointError(
            "judge_missing",
            "this task needs a judge, and none is configured: give --pinchbench-judge-model and "
            "--pinchbench-judge-base-url (or JUDGE_MODEL_NAME and JUDGE_MODEL_BASE_URL)",
        )
    if not spec["base_url"]:
        raise EndpointError(
            "judge_missing",
            "the judge {} has no base URL: give --pinchbench-judge-base-url (or "
            "JUDGE_MODEL_BASE_URL)".format(spec["id"]),
        )
    return Endpoint.of(spec)
