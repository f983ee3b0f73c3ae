"""What the sandboxes in somebody else's cloud share, whoever's cloud it is."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from pytest_pinchbench.environments import EnvironmentSetup, Sandbox, is_loopback
from pytest_pinchbench.environments.limits import OpenLimits, Slot
from pytest_pinchbench.environments.sandbox import ExecSandbox, file_name
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure

PROJECT = "pytest-pinchbench"
"""The value of the label ``project`` that every sandbox carries."""
PATIENCE = 90.0
"""Seconds for which a call that meets a passing fault is tried again."""
KEPT_FOR = 24 * 3600.0
"""Seconds for which a sandbox kept for a look stays. Modal allows no more."""

# The first command, before anything of ours is there. Old Daytona daemons split a command
# themselves and know no escapes, hence no quote within the quotes.
_LOOK_AROUND = "umask 077 && mktemp -d && command -v python3"

_FIRST_DELAY, _LONGEST_DELAY = 0.25, 10.0

T = TypeVar("T")


def patiently(call: Callable[[], T], passing: Callable[[Exception], float | None]) -> T:
    """``call()``, again after passing faults, with growing, jittered delays.

    ``passing`` says of an exception how many seconds to wait at least (what the server asked
    for, or 0), and None when trying again cannot help. What stays broken is raised.
    """
    give_up_at = time.monotonic() + PATIENCE
    for attempt in itertools.count():
        try:
            return call()
        except Exception as error:
            asked_for = passing(error)
            if asked_for is None:
                raise
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt) * random.uniform(0.5, 1.0)
            delay = max(asked_for, delay)
            if time.monotonic() + delay > give_up_at:
                raise
            time.sleep(delay)
    raise AssertionError  # count() does not end


@dataclass(frozen=True)
class Order:
    """What one sandbox is ordered with."""

    name: str
    """Unique in the account, so that an order whose answer was lost can be repeated."""
    labels: Mapping[str, str]
    env: Mapping[str, str]
    seconds: float
    """After how long it has to go away by itself."""


class CloudEnvironment(ABC):
    """Orders sandboxes; a kind says how one is made.

    Nothing is removed in ``prepare``: whether another machine's run is alive cannot be seen
    from here, and what a dead run left goes at the end of its lifetime, by the vendor's hand.
    """

    kind: str
    vendor: str
    """How people call it."""
    on_this_machine = False
    grades_fresh: Literal["", "asked", "auto"] = ""

    def __init__(self, setup: EnvironmentSetup, options: Mapping[str, Any]) -> None:
        self._setup = setup
        self._options = options
        self._limits = OpenLimits(
            setup.data_dir / "open-sandboxes",
            self.kind,
            options.get("max_open"),
            options.get("opens_per_second"),
        )

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def _order(self, order: Order, slot: Slot) -> CloudSandbox:
        """Have a sandbox made. Leaves none behind when it raises, which is
        ``SandboxFailure`` or ``EnvironmentUnavailable``."""

    @abstractmethod
    def _api_url(self) -> str: ...

    def open(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None = None,
    ) -> CloudSandbox:
        order = Order(
            name=f"pb-{file_name(name)}-{secrets.token_hex(6)}",
            labels={"project": PROJECT, "run": self._setup.run_id, **labels},
            env=self._setup.recipe.variables(),
            seconds=max(lifetime, KEPT_FOR) if self._setup.keep else lifetime,
        )
        slot = self._limits.acquire()
        try:
            sandbox = self._order(order, slot)
        except BaseException:
            slot.release()
            raise
        try:
            sandbox.set_up()
        except BaseException:
            sandbox.remove()
            raise
        return sandbox

    def image_id(self) -> str:
        image = f"{self.kind}:{self._image()}"
        # what a tag or a snapshot stands for is known for this run only
        return image if "@sha256:" in image else f"{image} in run {self._setup.run_id}"

    def image_digest(self) -> str | None:
        return self._image().partition("@")[2] or None

    def _image(self) -> str:
        recipe = self._setup.recipe
        if recipe.image is None:
            raise EnvironmentUnavailable(
                f"recipe {recipe.name} names no image: give one with --pinchbench-image"
            )
        return recipe.image

    def shared_folder(self, name: str) -> None:
        return None

    @property
    def shares_loopback(self) -> bool:
        return is_loopback(urlsplit(self._api_url()).hostname or "")  # a server of one's own


class CloudSandbox(ExecSandbox):
    """A sandbox that is reached through its vendor's API."""

    _held = True

    def __init__(self, order: Order, slot: Slot, setup: EnvironmentSetup, vendor: str) -> None:
        super().__init__(order.name)
        self._slot = slot
        self._setup = setup
        self._vendor = vendor
        self._goes_at = time.time() + order.seconds
        self.workspace_root = setup.recipe.workspace_root or "/workspace"
        self.private_root = ""
        self.python = ""

    @abstractmethod
    def _shell(self, script: str) -> str:
        """What ``sh -c script`` prints, and no quote in it; nothing of ours is there yet."""

    @abstractmethod
    def _end(self) -> None:
        """Have the vendor remove it. May raise whatever its SDK does."""

    @abstractmethod
    def _ways(self) -> str:
        """How a person gets in, and how they remove it."""

    def set_up(self) -> None:
        """Find a Python and make the folders. Raises like ``open``."""
        found = self._shell(_LOOK_AROUND).split()
        image = f"image {self._setup.recipe.image}"
        if len(found) != 2:
            raise EnvironmentUnavailable(
                f"{image} has no python3 on its PATH; Python 3.8 or newer has to be in it "
                f"({self._vendor} said: {' '.join(found)[-300:]!r})"
            )
        self.private_root, self.python = found
        python = io.BytesIO()
        try:
            roots = [self.workspace_root, self.private_root]
            self._transfer("make its folders", "set_up", roots, stdout=python)
        except (SandboxFailure, FileNotFoundError) as error:
            self.exec(["true"])  # a lost sandbox says so itself; this one works
            raise EnvironmentUnavailable(
                f"no folder {self.workspace_root} can be made in {image} ({error}): make it in "
                "the image, for its user to write to, or name another one with "
                "--pinchbench-workspace-root"
            ) from error
        self.python = python.getvalue().decode()

    def close(self) -> None:
        if self._closed:
            return
        if not self._setup.keep:
            self.remove()
            return
        with contextlib.suppress(SandboxFailure):
            self.stop_processes()
        self._closed = True
        self._slot.release()
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._goes_at))
        self._setup.say(f"{self.name}: kept at {self._vendor} until {until}; {self._ways()}")

    def remove(self) -> None:
        """Remove the sandbox, be it to be kept or not. Never raises."""
        self._closed = True
        try:
            self._end()
        except Exception as error:
            until = time.strftime("%H:%M", time.localtime(self._goes_at))
            self._setup.say(
                f"{self.name}: {self._vendor} did not remove it ({error}); it will at {until}"
            )
        finally:
            self._slot.release()


def whole_minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))
