"""Limits on sandboxes, over all threads and processes of a machine."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from pytest_pinchbench.environments.limits import OpenLimits

HOLD = """
import sys
from pathlib import Path
from pytest_pinchbench.environments.limits import OpenLimits
slot = OpenLimits(Path(sys.argv[1]), "cloud", max_open=1).acquire()
print("have it", flush=True)
sys.stdin.read()
"""


def test_no_more_are_open_than_allowed(tmp_path: Path) -> None:
    limits = OpenLimits(tmp_path, "cloud", max_open=2)
    first, second = limits.acquire(), limits.acquire()
    got_third = threading.Event()
    threading.Thread(target=lambda: (limits.acquire(), got_third.set()), daemon=True).start()

    assert not got_third.wait(0.7)
    first.release()
    assert got_third.wait(60)
    second.release()


def test_a_slot_is_one_over_processes_and_comes_back_when_its_process_is_killed(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"have it\n"
        got_it = threading.Event()
        limits = OpenLimits(tmp_path, "cloud", max_open=1)
        threading.Thread(target=lambda: (limits.acquire(), got_it.set()), daemon=True).start()

        assert not got_it.wait(0.7)
        other.kill()
        assert got_it.wait(60)


def test_other_kinds_have_slots_of_their_own(tmp_path: Path) -> None:
    OpenLimits(tmp_path, "cloud", max_open=1).acquire()

    OpenLimits(tmp_path, "other", max_open=1).acquire().release()


def test_a_slot_released_twice_is_released_once(tmp_path: Path) -> None:
    limits = OpenLimits(tmp_path, "cloud", max_open=1)
    slot = limits.acquire()
    slot.release()
    slot.release()

    limits.acquire().release()


def test_openings_keep_their_distance_over_all_who_share_the_folder(tmp_path: Path) -> None:
    began = time.monotonic()
    threads = [
        threading.Thread(
            target=lambda: OpenLimits(tmp_path, "cloud", opens_per_second=10).acquire().release()
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert time.monotonic() - began >= 0.5


def test_a_clock_that_was_put_back_does_not_stop_anybody_for_long(tmp_path: Path) -> None:
    (tmp_path / "cloud.turn").write_text(repr(time.time() + 1e6))
    limits = OpenLimits(tmp_path, "cloud", opens_per_second=1000)

    got_it = threading.Event()
    threading.Thread(target=lambda: (limits.acquire(), got_it.set()), daemon=True).start()

    assert got_it.wait(60)
