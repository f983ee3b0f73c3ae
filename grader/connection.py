"""Trust a server's certificate, bound an exchange in time, and say in words why it failed."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import urllib.error
from typing import Callable, List, TypeVar

from .redact import Redactor, excerpt

T = TypeVar("T")


def tls_context() -> ssl.SSLContext:
    """Trust what Python trusts (``SSL_CERT_FILE``), and what the agent's Node trusts besides."""
    context = ssl.create_default_context()
    with contextlib.suppress(OSError):  # Node goes on without a file that it cannot read, too
        context.load_verify_locations(os.environ.get("NODE_EXTRA_CA_CERTS", ""))
    return context


class OutOfTime(Exception):
    """The time for the exchange is over."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """Do the work in a thread that is given up on in time; otherwise raise ``OutOfTime``.

    A socket's time-out starts anew with each byte, and name resolution has none at all.
    """
    if seconds <= 0:
        raise OutOfTime()
    results: List[T] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if not errors:
        raise OutOfTime()
    error = _innermost(errors[0])
    if isinstance(error, socket.timeout) and error.errno is None:  # ours, not the kernel's
        raise OutOfTime()
    raise errors[0]


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    return error


def cause(error: BaseException, redactor: Redactor) -> str:
    """A connection failure in words."""
    inner = _innermost(error)
    words = redactor.text(str(inner))
    if isinstance(inner, ssl.SSLCertVerificationError):
        return (
            "its TLS certificate could not be verified ({}); if it is signed by an authority of "
            "your own, set SSL_CERT_FILE or NODE_EXTRA_CA_CERTS in the sandbox".format(
                inner.verify_message
            )
        )
    if isinstance(inner, ssl.SSLError):
        return "TLS failed: {}".format(inner.reason or inner)
    if isinstance(inner, socket.gaierror):
        return "the host name cannot be resolved: {}".format(inner.strerror)
    if isinstance(inner, ConnectionRefusedError):
        return "connection refused; is the server running, and reachable from the sandbox?"
    if isinstance(inner, http.client.RemoteDisconnected):
        return "the connection was closed without a response"
    if isinstance(inner, http.client.IncompleteRead):
        return "the connection ended in the middle of the response"
    if isinstance(inner, http.client.BadStatusLine):
        return "it does not speak HTTP: {}".format(excerpt(words, 80))
    if isinstance(inner, ConnectionResetError):
        return "the connection was reset"
    return "{}: {}".format(type(inner).__name__, excerpt(words))
