"""A headless Chromium over its DevTools pipe, to see pages as a person does.

Debian's Chromium is driven as it is: selenium would need a driver of the same version beside
it, playwright ships a Node of its own and speaks for its own builds; what the tests need of
the protocol is below, on the standard library alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Chromium reads commands from descriptor 3 and answers on 4
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_DEADLINE = 60.0  # seconds for anything to come; far above what it takes


class Browser:
    """One Chromium. Every event it sends is kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = os.fdopen(to_browser, "wb")
        self._from = os.fdopen(from_browser, "rb")
        self._next = 0
        self._gone = False
        self._messages: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while chunk := self._from.read1():
            *whole, rest = (rest + chunk).split(b"\0")
            with self._arrived:
                self._messages += map(json.loads, whole)
                self._arrived.notify_all()
        with self._arrived:
            self._gone = True
            self._arrived.notify_all()

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def first() -> dict[str, Any] | None:
            return next(filter(wanted, self._messages), None)

        with self._arrived:
            self._arrived.wait_for(lambda: self._gone or first(), _DEADLINE)
            found = first()
        if found is None:
            raise TimeoutError(f"the browser said only: {self._messages[-5:]}")
        return found

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        answer = self.wait(lambda told: told.get("id") == number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def events(self, session: str) -> list[dict[str, Any]]:
        with self._arrived:
            return [told for told in self._messages if told.get("sessionId") == session]

    def open(
        self, page: Path, *, width: int, dark: bool = False, height: int = 900, hash: str = ""
    ) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self.call("Page.setLifecycleEventsEnabled", session, enabled=True)
        loader = self.call("Page.navigate", session, url=page.as_uri() + hash)["loaderId"]

        def loaded(told: dict[str, Any]) -> bool:
            """This page, and not the empty one before it."""
            event = told.get("params", {})
            return (event.get("loaderId"), event.get("name")) == (loader, "load")

        self.wait(loaded)
        return Page(self, session, page)


class Page:
    """One open page."""

    def __init__(self, browser: Browser, session: str, path: Path) -> None:
        self._browser = browser
        self._session = session
        self._path = path

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._browser.call(
            "Runtime.evaluate",
            self._session,
            expression=script,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture = self._browser.call(
            "Page.captureScreenshot", self._session, captureBeyondViewport=whole
        )
        path.write_bytes(base64.b64decode(picture["data"]))

    def complaints(self) -> list[str]:
        """What the console holds: errors, warnings, exceptions, refused resources."""
        found = []
        for told in self._browser.events(self._session):
            params = told.get("params", {})
            if told.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            elif told.get("method") == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif told.get("method") == "Runtime.consoleAPICalled":
                found.append(json.dumps(params["args"])[:500])
        return found

    def requests(self) -> list[str]:
        """Every URL that was asked for besides the page itself and data in it."""
        urls = [
            told["params"]["request"]["url"]
            for told in self._browser.events(self._session)
            if told.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if url != self._path.as_uri() and not url.startswith("data:")]

    def width(self) -> int:
        """Pixels that the page takes; more than its window has is scrolled sideways."""
        return int(self.run("document.documentElement.scrollWidth"))


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A Chromium that makes no request of its own; gone at the end, with all its processes."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",  # as root there is no other way, and the pages are our own
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    ]
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(their_in), str(their_out), *command],
        pass_fds=(their_in, their_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    started = Browser(our_out, our_in)
    try:
        yield started
    finally:
        with contextlib.suppress(OSError, TimeoutError, AssertionError):
            started.call("Browser.close")
        try:
            process.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
