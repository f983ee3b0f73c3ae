"""One question to a model, over the three protocols that model servers speak.

What can go wrong is one exception, :class:`EndpointError`, whose message has the endpoint's
own words, redacted.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from .connection import OutOfTime, cause, tls_context, within
from .protocols import PROTOCOLS, Answer, Protocol
from .redact import Redactor, excerpt

LARGEST_RESPONSE = 4 << 20  # bytes; no verdict comes near it
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class EndpointError(Exception):
    """No answer. ``code``: judge_missing or judge_settings (nothing was asked),
    judge_connection, judge_timeout, judge_http or judge_answer.

    ``retry_after`` is the number of seconds that the endpoint asked to wait.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: Optional[int] = None,
        retry_after: Optional[float] = None,
        body: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.body = body  # redacted, for the record
        self.requests = 0  # how many were made


class Endpoint(NamedTuple):
    """A model behind a URL, as the order describes it."""

    model: str
    base_url: str
    api_key: str
    protocol: str
    params: Dict[str, Any]
    headers: Dict[str, str]

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "Endpoint":
        """``params`` are fields of the request, except for the SDKs' ``extra_headers`` and
        ``extra_body`` (and ``headers``, which no protocol has as a field). Raises
        :class:`EndpointError` for what cannot be used.
        """
        url, params = spec["base_url"], dict(spec["params"])
        extra = {}
        for field in ("headers", "extra_headers", "extra_body"):
            extra[field] = params.pop(field, None) or {}
            if not isinstance(extra[field], dict):
                raise EndpointError("judge_settings", "params: {} is not a mapping".format(field))
        params.update(extra["extra_body"])
        given = {**extra["headers"], **extra["extra_headers"]}
        headers = {str(name): str(value) for name, value in given.items()}
        key = (spec["api_key"] or "").strip()  # a key file's line break is none of the key
        for name, value in [("API key", key), *headers.items()]:
            # http.client would refuse them too, and quote the value
            if not (name + value).isprintable() or not (name + value).isascii():
                raise EndpointError("judge_settings", "the {} is not plain text".format(name))
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            text = "the base URL must be http:// or https:// and a host: {}".format(url)
            raise EndpointError("judge_settings", text)
        if "@" in parts.netloc:
            text = "the base URL holds a user name; give a key or a header instead"
            raise EndpointError("judge_settings", text)
        return cls(spec["id"], url, key, spec["api_protocol"], params, headers)

    def secrets(self) -> List[str]:
        found = [self.api_key]
        for name, value in self.headers.items():
            if _SECRET_HEADER.search(name):
                found += [value, *value.split()]  # "Bearer abc": a server may echo abc alone
        found += [value for _, value in parse_qsl(urlsplit(self.base_url).query)]
        return [secret for secret in found if len(secret) >= 8 or secret == self.api_key]

    def url(self) -> str:
        """``{base_url}/chat/completions`` and so on; the base's query string is kept.

        As the SDKs have it, an OpenAI base URL ends in ``/v1`` and Anthropic's does not; both
        spellings are understood for Anthropic, and a whole endpoint URL is for all.
        """
        parts = urlsplit(self.base_url)
        path, suffix = parts.path.rstrip("/"), PROTOCOLS[self.protocol].path
        if self.protocol == "anthropic" and not path.endswith(("/v1", "/v1/messages")):
            path += "/v1"
        if not path.endswith(suffix):
            path += suffix
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    def shown_url(self) -> str:
        """The URL without what may be secret in it."""
        return _shown(urlsplit(self.url()))


def ask(
    endpoint: Endpoint,
    prompt: str,
    *,
    defaults: Mapping[str, Any],
    timeout: float,
    redactor: Redactor,
) -> Answer:
    """Ask once; ``timeout`` seconds bound it as a whole, however it is spent.

    ``defaults`` are parameters of ours. One that the endpoint names in its refusal is left
    out, and the question asked once more; those of the user (``params``, which go over
    ``defaults``; null there leaves a default out) are never dropped.
    """
    protocol = PROTOCOLS[endpoint.protocol]
    params = endpoint.params
    ours = {key: value for key, value in defaults.items() if key not in params}
    theirs = {
        key: value for key, value in params.items() if value is not None or key not in defaults
    }
    deadline = time.monotonic() + timeout
    refused: List[str] = []
    for requests in (1, 2):
        body = {"model": endpoint.model, **protocol.body(prompt), **ours, **theirs}
        try:
            payload = _post(endpoint, body, deadline - time.monotonic(), timeout, redactor)
            answer = _read(protocol, payload, redactor)
            return answer._replace(requests=requests, dropped=tuple(refused))
        except EndpointError as error:
            error.requests = requests
            refused = _refused(ours, error)
            if requests == 2 or not refused:
                raise
            ours = {key: value for key, value in ours.items() if key not in refused}
    raise AssertionError("not reached")


def _refused(names: Iterable[str], error: EndpointError) -> List[str]:
    """Those of the parameters that the endpoint's refusal names."""
    if error.code != "judge_http" or error.status not in (200, 400, 422):
        return []
    return [name for name in names if re.search(r"\b" + re.escape(name) + r"\b", error.body)]


def _post(
    endpoint: Endpoint,
    body: Dict[str, Any],
    remaining: float,
    timeout: float,
    redactor: Redactor,
) -> Any:
    """The JSON value of a successful response."""
    progress = [0]  # bytes of the response's body so far

    def exchange() -> Tuple[int, str, Mapping[str, str], bytes]:
        return _exchange(endpoint, body, remaining, progress)

    where = endpoint.shown_url()
    try:
        status, reason, headers, data = within(remaining, exchange)
    except OutOfTime:
        got = "{} bytes of an answer".format(progress[0]) if progress[0] else "no answer"
        raise EndpointError(
            "judge_timeout", "{} gave {} within {:g} s".format(where, got, timeout)
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EndpointError(
            "judge_connection", "{}: {}".format(where, cause(error, redactor))
        ) from None
    data = _decoded(data, headers.get("content-encoding") or "")
    kind = (headers.get("content-type") or "").split(";")[0].strip().lower()
    text = redactor.text(data.decode("utf-8", "replace"))[:65536]
    if 300 <= status < 400:
        location = _shown(urlsplit(headers.get("location") or "(nowhere)"))
        raise EndpointError(
            "judge_http",
            "HTTP {} from {}: it redirects to {}, which is not followed, since the key would "
            "go along; give the right address as the base URL".format(
                status, where, redactor.text(location)
            ),
            status=status,
        )
    if not 200 <= status < 300:
        raise EndpointError(
            "judge_http",
            "HTTP {} from {}: {}{}".format(
                status, where, _words(text) or reason or "(no text)", _advice(status)
            ),
            status=status,
            retry_after=_retry_after(headers),
            body=text,
        )
    if len(data) > LARGEST_RESPONSE:
        problem = "is larger than {} MiB".format(LARGEST_RESPONSE >> 20)
    elif not data.strip():
        problem = "is empty"
    elif kind == "text/event-stream" or data.lstrip().startswith((b"data:", b"event:")):
        problem = "is an event stream, which was not asked for: {}".format(excerpt(text))
    else:
        try:
            return json.loads(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            problem = "is not UTF-8: {}".format(excerpt(text))
        except (ValueError, RecursionError):
            problem = "is not JSON ({}): {}".format(kind or "no content type", excerpt(text))
    raise EndpointError(
        "judge_answer", "the response of {} {}".format(where, problem), status=status, body=text
    )


def _decoded(data: bytes, encoding: str) -> bytes:
    """The body, unpacked where a server packed it though we did not ask for that."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return data
    try:
        import zlib

        return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(data, LARGEST_RESPONSE + 1)
    except (ImportError, zlib.error):
        return data


def _exchange(
    endpoint: Endpoint, body: Dict[str, Any], timeout: float, progress: List[int]
) -> Tuple[int, str, Mapping[str, str], bytes]:
    headers = PROTOCOLS[endpoint.protocol].headers(endpoint.api_key)
    headers.update({"Content-Type": "application/json", "Accept": "application/json"})
    headers["User-Agent"] = "pytest-pinchbench"
    headers.update(endpoint.headers)
    # No HTTPErrorProcessor and no redirect handler: every status comes back as it is. The
    # proxy handler reads the environment.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=tls_context()),
    ):
        opener.add_handler(handler)
    data = json.dumps(body).encode("ascii")
    request = urllib.request.Request(endpoint.url(), data, headers, method="POST")
    with opener.open(request, timeout=timeout) as response:
        received = bytearray()
        while len(received) <= LARGEST_RESPONSE:
            chunk = response.read1(65536)
            if not chunk:
                break
            received += chunk
            progress[0] = len(received)
        else:
            return response.status, response.reason, response.headers, bytes(received)
        if response.length:  # of the Content-Length that was promised
            raise http.client.IncompleteRead(bytes(received), response.length)
        return response.status, response.reason, response.headers, bytes(received)


def _read(protocol: Protocol, payload: Any, redactor: Redactor) -> Answer:
    body = redactor.text(json.dumps(payload, ensure_ascii=False))
    words = _error_of(payload)
    if words:
        message = "the endpoint reported an error: " + excerpt(redactor.text(words))
        raise EndpointError("judge_http", message, status=200, body=body)
    try:
        return protocol.read(payload)
    except (KeyError, IndexError, TypeError, AttributeError):
        message = "the response has another form than the protocol's: " + excerpt(body)
        raise EndpointError("judge_answer", message, status=200, body=body) from None


def _advice(status: int) -> str:
    if status in (401, 403):
        return " (check the API key)"
    if status == 404:
        return " (check the base URL and the model's name)"
    return ""


def _retry_after(headers: Mapping[str, str]) -> Optional[float]:
    """Seconds, from a header that has seconds or a date; None without a usable one."""
    value = (headers.get("retry-after") or "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
        return max(0.0, date.timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _words(text: str) -> str:
    """What an error body says: its message where it is JSON, its text where it is HTML."""
    try:
        found = _error_of(json.loads(text))
    except (ValueError, RecursionError):
        found = ""
    if not found:
        found = re.sub(r"<(style|script|head)\b.*?</\1>|<[^>]*>", " ", text, flags=re.S | re.I)
    return excerpt(found)


def _error_of(payload: Any) -> str:
    """The words of an error body; empty when the payload is not an error."""
    if not isinstance(payload, dict):
        return ""
    error = payload.get("error") or _error_of_choice(payload)
    if isinstance(error, dict):
        message = error.get("message")
        return message if isinstance(message, str) and message else json.dumps(error)
    if error:
        return error if isinstance(error, str) else json.dumps(error)
    if not any(field in payload for field in ("choices", "output", "content")):
        value = payload.get("message") or payload.get("detail") or ""
        return value if isinstance(value, str) else json.dumps(value)
    return ""


def _error_of_choice(payload: Mapping[str, Any]) -> Any:
    """Routers put the error of the server behind them into the choice that it was to fill."""
    choices = payload.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first.get("error") if isinstance(first, dict) else None


def _shown(parts: SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
