"""Sandboxes at Modal (https://modal.com), through the vendor's SDK."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Any, TypeVar

from pytest_pinchbench.environments import EnvironmentSetup
from pytest_pinchbench.environments.cloud import (
    KEPT_FOR,
    PROJECT,
    CloudEnvironment,
    CloudSandbox,
    Order,
    patiently,
)
from pytest_pinchbench.environments.limits import Slot
from pytest_pinchbench.environments.recipe_options import LIMITS, read_options
from pytest_pinchbench.environments.sandbox import GRACE, Exchange
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure
from pytest_pinchbench.readers import (
    Reader,
    number,
    text_or_number,
    texts,
    whole_number,
    yes_no,
)

APP = PROJECT
"""The Modal App that all sandboxes belong to; made when there is none."""
_CHUNK = 4 << 20  # the SDK holds up to 16 MiB of a command's input at a time

# Stays, whatever an agent's `pkill` says to it, and buries orphans whenever a sleep ends.
_PROCESS_1 = "trap '' TERM INT HUP; while :; do sleep 5; done"

_READERS: Mapping[str, Reader] = {
    **LIMITS,
    "cpus": number(above=0),
    "memory": whole_number(1),
    "cloud": text_or_number,
    "region": text_or_number,
    "block_network": yes_no,
    "outbound_cidr_allowlist": texts,
    "outbound_domain_allowlist": texts,
}

T = TypeVar("T")


class ModalEnvironment(CloudEnvironment):
    kind = "modal"
    vendor = "Modal"

    def __init__(self, setup: EnvironmentSetup) -> None:
        super().__init__(setup, read_options(setup.recipe, _READERS))
        self._connecting = threading.Lock()
        self._made: tuple[Any, Any] | None = None

    def prepare(self) -> None:
        self._setup.say(f"Modal: getting the image {self._image()} (it is built on first use) ...")
        self._ground()

    def image_id(self) -> str:
        return f"modal:{self._ground()[1].object_id}"

    def _ground(self) -> tuple[Any, Any]:
        """The App and the image, ready for sandboxes."""
        with self._connecting:
            if self._made is None:
                sdk = _sdk()

                def make() -> tuple[Any, Any]:
                    client = sdk.Client.from_env()
                    app = sdk.App.lookup(APP, create_if_missing=True, client=client)
                    # an entrypoint of the image's own would run instead of our command
                    image = sdk.Image.from_registry(self._image()).entrypoint([])
                    return app, image.build(app)

                self._made = _ask(make, EnvironmentUnavailable)
            return self._made

    def _api_url(self) -> str:
        return os.environ.get("MODAL_SERVER_URL", "")

    def _order(self, order: Order, slot: Slot) -> ModalSandbox:
        sdk = _sdk()
        app, image = self._ground()
        options = {
            name: value
            for name, value in self._options.items()
            if name not in (*LIMITS, "cpus", "memory")
        }

        def create() -> Any:
            try:
                return sdk.Sandbox.create(
                    *("sh", "-c", _PROCESS_1),
                    app=app,
                    image=image,
                    name=order.name,
                    tags=dict(order.labels),
                    env=dict(order.env),
                    timeout=round(min(order.seconds, KEPT_FOR)),
                    cpu=self._options.get("cpus"),
                    memory=self._options.get("memory"),
                    **options,
                )
            except sdk.exception.AlreadyExistsError:  # an answer was lost: it is there
                return sdk.Sandbox.from_name(APP, order.name)

        try:
            made = _ask(create)
        except BaseException:
            self._cancel(order.name)
            raise
        return ModalSandbox(order, slot, self._setup, self.vendor, made)

    def _cancel(self, name: str) -> None:
        sdk = _sdk()
        with contextlib.suppress(sdk.exception.Error):  # mostly: there is none
            sdk.Sandbox.from_name(APP, name).terminate()


class ModalSandbox(CloudSandbox):
    def __init__(
        self, order: Order, slot: Slot, setup: EnvironmentSetup, vendor: str, made: Any
    ) -> None:
        super().__init__(order, slot, setup, vendor)
        self._made = made
        self._running: set[Any] = set()

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        process = self._ask(lambda: self._made.exec(*exchange.command, text=False, workdir="/"))
        self._running.add(process)
        # no command outlives the sandbox; the SDK would wait for one whose machine is lost
        end = time.monotonic() + self._goes_at - time.time() + GRACE
        self._ask(lambda: _finish(_converse(process, exchange, exchange.give_up_at or end)))
        if exchange.trailer and not exchange.trailer.get("left"):
            self._running.discard(process)  # the supervisor has ended with its command

    def stop_processes(self) -> None:
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        while self._running:
            process = self._running.pop()
            self._ask(functools.partial(_hang_up, process))
        super().stop_processes()

    def _shell(self, script: str) -> str:
        def run() -> str:
            process = self._made.exec("sh", "-c", script, timeout=60)
            return str(process.stdout.read()) + str(process.stderr.read())

        return self._ask(run)

    def _ask(self, call: Callable[[], T]) -> T:
        # nothing but a refusal: of what was cut off, nobody knows whether it was done
        return _ask(call, passing=_refused_for_now, on_behalf_of=self.name)

    def _end(self) -> None:
        sdk = _sdk()
        try:
            patiently(self._made.terminate, _passing)
        except sdk.exception.NotFoundError:
            pass
        finally:
            self._made.detach()

    def _ways(self) -> str:
        name = self._made.object_id
        remove = f"import modal; modal.Sandbox.from_id('{name}').terminate()"
        return f'to get in: modal shell {name}; to remove it: python -c "{remove}"'


async def _converse(process: Any, exchange: Exchange, give_up_at: float) -> None:
    """Carry an exchange over a running command's three streams."""

    async def feed() -> None:
        while data := exchange.request(_CHUNK):
            process.stdin.write(data)
            await process.stdin.drain.aio()

    async def drink(stream: Any, add: Callable[[bytes], None]) -> None:
        async for data in stream:
            add(data)

    feeding = asyncio.ensure_future(feed())
    drinking = asyncio.gather(
        drink(process.stdout, exchange.add_stdout), drink(process.stderr, exchange.add_stderr)
    )
    try:
        await _settle([feeding, drinking], give_up_at)
        if feeding.done() and feeding.exception():
            # a command need not read all its input; but if it waits for more, it will for ever
            give_up_at = min(give_up_at, time.monotonic() + GRACE)
        await _settle([drinking], give_up_at)
        if drinking.done():
            drinking.result()
    finally:
        feeding.cancel()
        drinking.cancel()
        await asyncio.gather(feeding, drinking, return_exceptions=True)


async def _settle(futures: list[asyncio.Future[Any]], until: float) -> None:
    await asyncio.wait(
        futures,
        timeout=max(0.0, until - time.monotonic()),
        return_when=asyncio.FIRST_COMPLETED,
    )


def _hang_up(process: Any) -> None:
    """The end of its input tells a supervisor to kill what it looks after."""
    _finish(_end_input(process))


async def _end_input(process: Any) -> None:
    process.stdin.write_eof()
    await process.stdin.drain.aio()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait.aio(), GRACE)


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, leaving the thread's own event loop alone."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until_complete(task)
        raise
    finally:
        loop.close()


def _sdk() -> Any:
    """The SDK, which is big: imported when it is used."""
    try:
        return import_module("modal")
    except ImportError as error:
        raise EnvironmentUnavailable(
            f"the Modal SDK is not installed: pip install 'pytest-pinchbench[modal]' ({error})"
        ) from error


def _passing(error: Exception) -> float | None:
    """Seconds to wait before another try, None if there is no use: see ``patiently``.

    Where Modal says how long to wait, the SDK does that itself.
    """
    faults = _sdk().exception
    known = (
        *(faults.ServiceError, faults.InternalError, faults.ResourceExhaustedError),
        *(faults.ConnectionError, faults.TimeoutError, *_cut_off()),
    )
    return 0.0 if isinstance(error, known) else None


def _cut_off() -> tuple[type[Exception], ...]:
    """What the SDK lets through of a connection's end."""
    terminated: type[Exception] = import_module("grpclib.exceptions").StreamTerminatedError
    return (terminated, OSError, asyncio.TimeoutError)


def _refused_for_now(error: Exception) -> float | None:
    return 0.0 if isinstance(error, _sdk().exception.ResourceExhaustedError) else None


def _ask(
    call: Callable[[], T],
    broken: type[EnvironmentUnavailable] | type[SandboxFailure] = SandboxFailure,
    passing: Callable[[Exception], float | None] = _passing,
    on_behalf_of: str = "",
) -> T:
    """An answer of Modal's, patiently; what stays broken, as an error of ours."""
    faults = _sdk().exception
    try:
        return patiently(call, passing)
    except (faults.AuthError, faults.PermissionDeniedError) as error:
        raise EnvironmentUnavailable(
            "Modal refuses, or misses, the credentials: run `modal token new`, or set the "
            f"variables MODAL_TOKEN_ID and MODAL_TOKEN_SECRET ({error})"
        ) from error
    except faults.ImageBuildError as error:
        raise EnvironmentUnavailable(f"Modal cannot build the image: {error}") from error
    except (faults.Error, *_cut_off()) as error:
        said = f"Modal: {error or type(error).__name__}"
        invalid = isinstance(error, faults.InvalidError)
        if invalid and not isinstance(error, faults.ConflictError) and not on_behalf_of:
            # what is wrong with this order, is wrong with the next one
            broken = EnvironmentUnavailable
        raise broken(f"{on_behalf_of}: {said}" if on_behalf_of else said) from error
