"""What is said while tasks run."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from pytest_pinchbench.session import progress as progress_module
from pytest_pinchbench.session.progress import Progress, _StatusLine


class Screen(io.StringIO):
    """A terminal just real enough: newline, carriage return, and the three escapes used."""

    def isatty(self):
        return True

    def lines(self):
        rows, row, column = [""], 0, 0
        rest = self.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "")
        while rest:
            if rest.startswith("\x1b["):
                end = next(i for i, c in enumerate(rest[2:], 2) if c.isalpha())
                number, command, rest = int(rest[2:end] or 1), rest[end], rest[end + 1 :]
                if command == "K":
                    rows[row] = rows[row][:column]
                elif command == "A":
                    row -= number
                elif command == "C":
                    column += number
                continue
            character, rest = rest[0], rest[1:]
            if character == "\n":
                row, column = row + 1, 0
                rows += [""] * (row == len(rows))
            elif character == "\r":
                column = 0
            else:
                rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
                column += 1
        return rows


class Writer:
    def __init__(self, stream):
        self._file = stream
        self.fullwidth = 80


class Reporter:
    def __init__(self, stream):
        self._tw = Writer(stream)


@pytest.fixture
def screen():
    return Screen()


def test_output_goes_on_where_it_was_when_the_status_is_taken_away(screen):
    import threading

    status = _StatusLine(screen, screen, threading.RLock())
    status.write("header\ntasks/a.md ")
    status.show("0 of 2 done | task_a 1s")
    assert screen.lines() == ["header", "tasks/a.md ", "0 of 2 done | task_a 1s"]
    status.write(".")
    status.show("")
    status.write("F\nnext")
    assert [line.rstrip() for line in screen.lines()] == ["header", "tasks/a.md .F", "next"]


def test_the_line_says_what_runs_and_what_came_out(screen, monkeypatch):
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    progress = Progress(Reporter(screen), total=lambda: 3)
    progress.started("tasks/a.md::task_a")
    progress.scored(0.5, 0.01)
    progress.finished("tasks/a.md::task_a")
    progress.started("tasks/b.md::task_b")
    assert progress.line(100) == "1 of 3 done, mean 0.500, $0.0100 | task_b 0s"
    assert len(progress.line(20)) == 20
    progress.stop()


def test_the_terminal_is_given_back(screen):
    reporter = Reporter(screen)
    progress = Progress(reporter, total=lambda: 1)
    assert reporter._tw._file is not screen
    progress.start()
    progress.stop()
    assert reporter._tw._file is screen
