"""Progress display: what is running, how many tasks are done, their mean and cost.

On a terminal: a status line below pytest's own output, renewed every second. Elsewhere (CI
logs): a line every minute.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from pytest_pinchbench.reports import formats

_EVERY = 60.0  # seconds between lines where there is no terminal
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Progress:
    """Follow the items of a run by their node ids, and show them until :meth:`stop`."""

    def __init__(self, reporter: Any, total: Callable[[], int]) -> None:
        self._reporter = reporter
        self._total = total
        self._running: dict[str, float] = {}
        self._done = 0
        self._scores: list[float] = []
        self._cost = 0.0
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="pinchbench-progress")
        writer = reporter._tw
        self._out = _past_capturing(writer._file)
        self._screen: _StatusLine | None = None
        if writer._file.isatty():
            self._screen = _StatusLine(writer._file, self._out, self._lock)
            writer._file = self._screen

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._screen is not None:
            self._screen.show("")
            self._reporter._tw._file = self._screen.stream
        if self._out is not self._reporter._tw._file:
            self._out.close()

    def started(self, node_id: str) -> None:
        with self._lock:
            self._running[node_id] = time.monotonic()

    def finished(self, node_id: str) -> None:
        with self._lock:
            if self._running.pop(node_id, None) is not None:
                self._done += 1

    def scored(self, score: float | None, cost: float | None) -> None:
        with self._lock:
            if score is not None:
                self._scores.append(score)
            self._cost += cost or 0.0

    def _loop(self) -> None:
        while not self._ended.wait(1.0 if self._screen is not None else _EVERY):
            with self._lock:
                if self._screen is not None:
                    self._screen.show(self.line(self._reporter._tw.fullwidth - 1))
                elif self._running:
                    self._out.write(f"\npinchbench: {self.line(200)}\n")
                    self._out.flush()

    def line(self, width: int) -> str:
        """``3 of 23 done, mean 0.710, $0.0312 | task_01 34s, task_07 2s``, cut to ``width``."""
        now = time.monotonic()
        head = f"{self._done} of {self._total()} done"
        if self._scores:
            head += f", mean {formats.score(sum(self._scores) / len(self._scores))}"
        if self._cost:
            head += f", {formats.usd(self._cost)}"
        running = ", ".join(
            f"{node_id.rpartition('::')[2]} {now - began:.0f}s"
            for node_id, began in self._running.items()
        )
        text = f"{head} | {running}" if running else head
        return text if len(text) <= width else text[: width - 1] + "…"


def _past_capturing(stream: Any) -> Any:
    """A stream of its own to where ``stream`` goes now: once pytest captures what a test
    prints, the descriptor of ``stream`` leads elsewhere.
    """
    try:
        return os.fdopen(os.dup(stream.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError, AttributeError):
        return stream  # no descriptor, so nothing that could be led elsewhere


class _StatusLine:
    """A terminal's stream with one line of status kept below what is written to it.

    ``out`` leads to the same terminal, at any time.
    """

    def __init__(self, stream: Any, out: Any, lock: threading.RLock) -> None:
        self.stream = stream
        self._out = out
        self._lock = lock
        self._column = 0  # where the text above the status line ends
        self._shown = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self._lock:
            self._erase()
            self._column = _column_after(self._column, text)
            return int(self.stream.write(text) or 0)

    def show(self, line: str) -> None:
        with self._lock:
            self._erase()
            if line:
                self._out.write(f"\n\x1b[2m{line}\x1b[0m")
                self._out.flush()
                self._shown = True

    def _erase(self) -> None:
        if self._shown:
            right = f"\x1b[{self._column}C" if self._column else ""
            self._out.write(f"\r\x1b[K\x1b[1A\r{right}")
            self._out.flush()
            self._shown = False


def _column_after(column: int, text: str) -> int:
    plain = _ESCAPE.sub("", text)
    _, newline, last = plain.rpartition("\n")
    column = 0 if newline else column
    _, carriage, rest = last.rpartition("\r")
    return (0 if carriage else column) + len(rest)
