"""Connections to a judge that fail, or never end, in every way a network has."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from judging import KEY, VERDICT, JudgeServer, Reply, ask, chat
from pytest_pinchbench.grader import endpoint
from pytest_pinchbench.grader.part import Part
from support.tls_server import private_authority


def failure(part: Part) -> tuple[str, str]:
    assert part.score is None
    [issue] = part.issues
    assert issue["severity"] == "FATAL"
    return issue["code"], issue["message"]


@contextmanager
def raw_server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """A base URL at which ``speak`` handles each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                speak(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)


def read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)


def reset(connection: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = json.dumps(chat(json.dumps(VERDICT))).encode()


def reset_at_once(connection: socket.socket) -> None:
    reset(connection)


def close_without_response(connection: socket.socket) -> None:
    read_request(connection)


def reset_in_mid_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(HEAD + b"Content-Length: 9999\r\n\r\n" + BODY[:30])
    reset(connection)


def end_in_mid_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(HEAD + b"Content-Length: 9999\r\n\r\n" + BODY)


def end_in_mid_chunk(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + BODY)


def speak_no_http(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    read_request(connection)


def endless_headers(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        connection.sendall(b"X-%d: y\r\n" % number)


BROKEN = {
    "reset at once": (reset_at_once, ("the connection was reset", "closed without")),
    "no response": (close_without_response, ("closed without a response",)),
    "a reset in mid-body": (reset_in_mid_body, ("was reset", "in the middle of the response")),
    "an end in mid-body": (end_in_mid_body, ("ended in the middle of the response",)),
    "an end in mid-chunk": (end_in_mid_chunk, ("ended in the middle of the response",)),
    "no HTTP": (speak_no_http, ("does not speak HTTP: SSH-2.0", "was reset")),
    "endless headers": (endless_headers, ("got more than 100 headers",)),
}


@pytest.mark.parametrize(("speak", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_connection_is_fatal(
    judge_server: JudgeServer, speak: Callable[[socket.socket], None], words: tuple[str, ...]
) -> None:
    with raw_server(speak) as url:
        code, message = failure(ask(judge_server, base_url=url))
    assert code == "judge_connection"
    assert any(each in message for each in words), message
    assert url in message


def test_a_refused_connection_is_fatal(judge_server: JudgeServer) -> None:
    with socket.socket() as bound:  # nobody else gets its port, and it does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        code, message = failure(ask(judge_server, base_url=url))
    assert code == "judge_connection"
    assert "connection refused; is the server running" in message


def test_a_name_that_does_not_resolve_is_fatal(judge_server: JudgeServer) -> None:
    code, message = failure(ask(judge_server, base_url="http://judge.invalid/v1"))
    assert code in ("judge_connection", "judge_timeout")
    assert "judge.invalid" in message


def never_answer(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)  # until the other side gives up


def drip_headers(connection: socket.socket) -> None:
    read_request(connection)
    while True:
        connection.sendall(b"H")
        time.sleep(0.1)


def drip_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(HEAD + b"Content-Length: 9999\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("speak", "words"),
    [(never_answer, "gave no answer"), (drip_headers, "gave no answer"), (drip_body, "bytes of")],
)
def test_the_deadline_is_that_of_the_whole_request(
    judge_server: JudgeServer, speak: Callable[[socket.socket], None], words: str
) -> None:
    for timeout in (1.0, 10.0, 60.0):  # so long that it gets to what the message speaks of
        started = time.monotonic()
        with raw_server(speak) as url:
            code, message = failure(ask(judge_server, base_url=url, timeout=timeout))
        if words in message:
            break
    assert time.monotonic() - started < timeout + 60.0
    assert code == "judge_timeout"
    assert words in message
    assert f"within {timeout:g} s" in message


def test_the_second_request_has_what_the_first_left(
    judge_server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    exchange = endpoint._exchange

    def record(*arguments: Any) -> Any:
        given.append(arguments[2])
        return exchange(*arguments)

    def refuse_after_a_while(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        handler.send_error(400, "temperature is not supported")

    monkeypatch.setattr(endpoint, "_exchange", record)
    judge_server.replies = [Reply(write=refuse_after_a_while), *judge_server.replies]
    assert ask(judge_server, timeout=1000.0).score == 0.7
    [first, second] = given
    assert second <= first - 0.3


def test_a_redirect_takes_the_key_nowhere(judge_server: JudgeServer) -> None:
    elsewhere = JudgeServer()
    try:
        location = elsewhere.address + "/v1/chat/completions"
        for status in (301, 302, 303, 307, 308):
            judge_server.replies = [Reply(status=status, headers={"Location": location})]
            code, message = failure(ask(judge_server))
            assert code == "judge_http"
            assert location in message
        assert elsewhere.requests == []
    finally:
        elsewhere.close()


def test_a_proxy_from_the_environment_is_used(
    judge_server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", judge_server.address)
    assert ask(judge_server, base_url="http://judge.invalid/v1").score == 0.7
    assert judge_server.requests[0].path == "http://judge.invalid/v1/chat/completions"


@pytest.fixture
def tls_server(judge_server: JudgeServer, tmp_path: Path) -> tuple[JudgeServer, Path]:
    """The judge's server behind a private authority, and that authority's certificate."""
    authority = tmp_path / "authority.pem"
    server = judge_server.server
    server.socket = private_authority(authority).wrap_socket(server.socket, server_side=True)
    judge_server.scheme = "https"
    return judge_server, authority


def test_a_private_authority_is_not_trusted(
    tls_server: tuple[JudgeServer, Path],
) -> None:
    server, _ = tls_server
    code, message = failure(ask(server))
    assert code == "judge_connection"
    assert "certificate could not be verified" in message
    assert "SSL_CERT_FILE" in message
    assert server.requests == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"])
def test_a_variable_names_an_authority_to_trust(
    variable: str, tls_server: tuple[JudgeServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, authority = tls_server
    monkeypatch.setenv(variable, str(authority))
    assert ask(server).score == 0.7
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_tls_to_a_plain_server_fails_as_tls(judge_server: JudgeServer) -> None:
    url = judge_server.address.replace("http:", "https:") + "/v1"
    code, message = failure(ask(judge_server, base_url=url))
    assert code == "judge_connection"
    assert "TLS failed" in message or "closed without" in message or "reset" in message
