"""The three protocols that model servers speak: what to send, and where the answer is."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

from .redact import excerpt

_CUT_OFF = (
    "length",
    "max_tokens",
    "max_output_tokens",
    "model_context_window_exceeded",
    "incomplete",
)


class Answer(NamedTuple):
    """What a model said. ``problem`` says why there is no text, where there is none."""

    text: str
    problem: str
    cut_off: bool  # the endpoint stopped the model in mid-answer
    finish_reason: str
    usage: Dict[str, Any]
    requests: int = 1
    dropped: Tuple[str, ...] = ()  # parameters of ours that the endpoint refused


class Protocol(NamedTuple):
    path: str
    headers: Callable[[str], Dict[str, str]]  # of an API key
    body: Callable[[str], Dict[str, Any]]  # of a prompt
    read: Callable[[Any], Answer]  # KeyError and its like: the payload is of another form
    # What we ask for unless the user says otherwise. Anthropic's protocol requires a limit;
    # the others know no number that is right for every model, thinking included.
    defaults: Dict[str, Any]
    tiny: Dict[str, Any]  # for a request that only asks whether the endpoint answers


def _bearer(key: str) -> Dict[str, str]:
    return {"Authorization": "Bearer " + key} if key else {}


def _x_api_key(key: str) -> Dict[str, str]:
    headers = {"anthropic-version": "2023-06-01"}
    if key:
        headers["x-api-key"] = key
    return headers


def _messages(prompt: str) -> Dict[str, Any]:
    # One user message: some models and chat templates refuse a system message.
    return {"messages": [{"role": "user", "content": prompt}]}


def _input(prompt: str) -> Dict[str, Any]:
    return {"input": prompt}


def _read_chat(payload: Any) -> Answer:
    choice = payload["choices"][0]
    message = choice["message"]
    return _answer(
        _texts(message.get("content"), ("text", "output_text")),
        choice.get("finish_reason"),
        payload.get("usage"),
        refusal=str(message.get("refusal") or ""),
        tools=bool(message.get("tool_calls") or message.get("function_call")),
    )


def _read_responses(payload: Any) -> Answer:
    parts = [
        part
        for item in payload["output"]
        if item["type"] == "message"
        for part in item.get("content") or []
    ]
    details = payload.get("incomplete_details") or {}
    return _answer(
        _texts(parts, ("output_text", "text")),
        details.get("reason") or payload.get("status"),
        payload.get("usage"),
        refusal=" ".join(
            str(part.get("refusal") or "refused") for part in parts if part["type"] == "refusal"
        ),
        tools=any(item["type"].endswith("_call") for item in payload["output"]),
    )


def _read_messages(payload: Any) -> Answer:
    content = payload["content"]
    return _answer(
        _texts(content, ("text",)),
        payload.get("stop_reason"),
        payload.get("usage"),
        refusal="",
        tools=any(item["type"] == "tool_use" for item in content),
    )


def _texts(content: Any, kinds: Tuple[str, ...]) -> str:
    """The text of a message's parts of these kinds; thinking is of another kind."""
    if isinstance(content, str):
        return content
    parts = [item for item in content or [] if isinstance(item, dict)]
    return "".join(str(item.get("text") or "") for item in parts if item.get("type") in kinds)


def _answer(text: str, finish: Any, usage: Any, *, refusal: str, tools: bool) -> Answer:
    finish = str(finish or "")
    problem = ""
    if refusal or finish in ("refusal", "content_filter"):
        problem = "the model refused: " + excerpt(refusal or text or finish)
    elif finish == "error":  # OpenRouter's word for an upstream that broke off
        problem = "the endpoint broke the answer off"
    elif not text.strip() and finish in _CUT_OFF:
        problem = (
            "the answer has no text ({}): it was cut off at its limit of tokens; give more with "
            "max_tokens among the judge's params".format(finish)
        )
    elif not text.strip() and tools:
        problem = "the model called a tool instead of answering"
    elif not text.strip():
        problem = "the answer has no text" + (" ({})".format(finish) if finish else "")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(text, problem, finish in _CUT_OFF, finish, counts)


ANSWER_BESIDE_THINKING = 4096  # tokens
PROTOCOLS = {
    "openai-chat": Protocol(
        "/chat/completions", _bearer, _messages, _read_chat, {"temperature": 0}, {"max_tokens": 16}
    ),
    "openai-responses": Protocol(
        "/responses",
        _bearer,
        _input,
        _read_responses,
        {"temperature": 0},
        {"max_output_tokens": 16},
    ),
    "anthropic": Protocol(
        "/messages",
        _x_api_key,
        _messages,
        _read_messages,
        {"temperature": 0, "max_tokens": 8192},
        {"max_tokens": 16},
    ),
}


def defaults_for(protocol: str, params: Mapping[str, Any], *, tiny: bool = False) -> Dict[str, Any]:
    """What we ask for unless the user says otherwise.

    Anthropic wants ``max_tokens`` above a thinking budget, and no ``temperature`` beside it.
    """
    found = dict(PROTOCOLS[protocol].tiny if tiny else PROTOCOLS[protocol].defaults)
    thinking = params.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if protocol == "anthropic" and isinstance(budget, int) and not isinstance(budget, bool):
        found["max_tokens"] = budget + ANSWER_BESIDE_THINKING
        found.pop("temperature", None)
    return found


def usage_of(counts: Mapping[str, Any], requests: int) -> Dict[str, Any]:
    """Tokens as all three protocols report them, input with what was cached included."""

    def number(*path: str) -> int:
        found: Any = counts
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        whole = isinstance(found, (int, float)) and not isinstance(found, bool)
        return int(found) if whole and 0 <= found < 1 << 53 else 0

    # Anthropic counts cached tokens apart; LiteLLM gives its fields beside a sum that has them.
    apart_read = number("cache_read_input_tokens")
    cache_write = number("cache_creation_input_tokens")
    within = number("prompt_tokens_details", "cached_tokens") or number(
        "input_tokens_details", "cached_tokens"
    )
    given = number("prompt_tokens") or number("input_tokens") + apart_read + cache_write
    written = number("completion_tokens") or number("output_tokens")
    cost = counts.get("cost")  # OpenRouter's, in dollars
    priced = isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < 1e9
    return {
        "input_tokens": given,
        "output_tokens": written,
        "cache_read_tokens": apart_read or within,
        "cache_write_tokens": cache_write,
        "total_tokens": number("total_tokens") or given + written,
        "cost_usd": cost if priced else None,
        "request_count": requests,
    }
