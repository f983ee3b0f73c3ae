"""Sandboxes at Daytona (https://www.daytona.io), through the vendor's SDK.

A request that runs a command there lasts as long as the command, is given no input, and gives
its two streams as one text. So here a command's input is uploaded as a file, the command is
started by a short request and waited for by others, and its output comes as a file when it is
long: see ``detached.py``, which runs at the other end. Each of these requests can be repeated
without harm, and is, when it is cut off or refused for a while.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import secrets
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pytest_pinchbench.environments import EnvironmentSetup
from pytest_pinchbench.environments.cloud import (
    PROJECT,
    CloudEnvironment,
    CloudSandbox,
    Order,
    patiently,
    whole_minutes,
)
from pytest_pinchbench.environments.inside.supervisor import CHUNK
from pytest_pinchbench.environments.limits import Slot
from pytest_pinchbench.environments.recipe_options import LIMITS, read_options
from pytest_pinchbench.environments.sandbox import Exchange
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure
from pytest_pinchbench.readers import (
    Reader,
    text_or_number,
    whole_number,
    yes_no,
)

CREATE_TIMEOUT = 1200.0
"""Seconds for a sandbox to be there. With an image that is new to Daytona, it pulls it first."""
LONG_POLL = 45.0
"""Seconds that one request waits for a command: proxies cut off silent ones after 60."""
INLINE = 1 << 18
"""Bytes of output that come in the answer itself; more are fetched as files."""
START_SLACK = 600.0
"""Seconds by which Daytona's clock of a sandbox's lifetime starts too early: at the order."""

_READERS: Mapping[str, Reader] = {
    **LIMITS,
    "cpus": whole_number(1),
    "memory": whole_number(1),
    "disk": whole_number(1),
    "snapshot": text_or_number,
    "target": text_or_number,
    "os_user": text_or_number,
    "network_block_all": yes_no,
    "network_allow_list": text_or_number,
    "domain_allow_list": text_or_number,
}

T = TypeVar("T")


class DaytonaEnvironment(CloudEnvironment):
    kind = "daytona"
    vendor = "Daytona"

    def __init__(self, setup: EnvironmentSetup) -> None:
        super().__init__(setup, read_options(setup.recipe, _READERS))
        self._connecting = threading.Lock()
        self._client: Any = None

    def prepare(self) -> None:
        self._image()
        query = _sdk().ListSandboxesQuery(labels={"project": PROJECT}, limit=1)
        _ask(lambda: next(iter(self.client.list(query)), None), EnvironmentUnavailable)

    @property
    def client(self) -> Any:
        with self._connecting:
            if self._client is None:
                sdk = _sdk()
                try:
                    self._client = sdk.Daytona()
                except sdk.DaytonaAuthenticationError as error:
                    raise EnvironmentUnavailable(
                        "no credentials for Daytona: set the variable DAYTONA_API_KEY "
                        f"(https://app.daytona.io/dashboard/keys) ({error})"
                    ) from error
            return self._client

    def _api_url(self) -> str:
        # as the SDK decides
        return os.environ.get("DAYTONA_API_URL") or os.environ.get("DAYTONA_SERVER_URL") or ""

    def _image(self) -> str:
        snapshot: str | None = self._options.get("snapshot")
        return f"snapshot {snapshot}" if snapshot else super()._image()

    def _order(self, order: Order, slot: Slot) -> DaytonaSandbox:
        sdk = _sdk()
        client = self.client

        def create() -> Any:
            try:
                return _off_main_thread(
                    lambda: client.create(self._params(order), timeout=CREATE_TIMEOUT)
                )
            except sdk.DaytonaConflictError:  # an answer was lost: it is there
                found = client.get(order.name)
                _off_main_thread(lambda: found.wait_for_sandbox_start(timeout=CREATE_TIMEOUT))
                return found

        try:
            made = _ask(create, of_order=True)
        except BaseException:
            # built wrongly, or made while its answer was lost: it may be there all the same
            self._cancel(order.name)
            raise
        return DaytonaSandbox(order, slot, self._setup, self.vendor, client, made)

    def _params(self, order: Order) -> Any:
        sdk = _sdk()
        options = self._options
        minutes = whole_minutes(order.seconds + START_SLACK)
        common: dict[str, Any] = {
            "name": order.name,
            "labels": dict(order.labels),
            "env_vars": dict(order.env),
            # the first counts all the time there is, the second the time that nobody used it,
            # for servers that do not know the first; what has stopped, is deleted at once
            "ttl_minutes": minutes,
            "auto_stop_interval": minutes,
            "ephemeral": True,
            **{
                name: options[name]
                for name in (
                    *("target", "os_user", "network_block_all"),
                    *("network_allow_list", "domain_allow_list"),
                )
                if name in options
            },
        }
        if "snapshot" in options:  # which has its size already
            return sdk.CreateSandboxFromSnapshotParams(snapshot=options["snapshot"], **common)
        size = sdk.Resources(
            cpu=options.get("cpus"), memory=options.get("memory"), disk=options.get("disk")
        )
        return sdk.CreateSandboxFromImageParams(image=self._image(), resources=size, **common)

    def _cancel(self, name: str) -> None:
        sdk = _sdk()
        try:
            found = patiently(lambda: self.client.get(name), _passing)
            _off_main_thread(lambda: self.client.delete(found, timeout=60))
        except sdk.DaytonaNotFoundError:
            pass
        except sdk.DaytonaError as error:
            self._setup.say(f"{name}: Daytona may have it still ({error}); it ends by itself")


class DaytonaSandbox(CloudSandbox):
    def __init__(
        self,
        order: Order,
        slot: Slot,
        setup: EnvironmentSetup,
        vendor: str,
        client: Any,
        made: Any,
    ) -> None:
        super().__init__(order, slot, setup, vendor)
        self._client = client
        self._made = made
        self._lock = threading.Lock()
        self._finished: list[str] = []
        self._started: list[list[int]] = []  # ids of the processes of jobs, since the last stop

    def _talk(self, exchange: Exchange, as_root: bool) -> None:
        job = f"{self.private_root}/job-{secrets.token_hex(8)}"
        with tempfile.NamedTemporaryFile(prefix="pinchbench-") as request:
            while data := exchange.request(CHUNK):
                request.write(data)
            request.flush()
            fs = self._made.fs
            _ask(lambda: fs.upload_file(request.name, f"{job}/request"), on_behalf_of=self.name)
        with self._lock:
            finished, self._finished = self._finished, []
        order: dict[str, Any] = {
            "job": job,
            "argv": exchange.command,
            "inline": INLINE,
            "finished": finished,
        }
        pids = None
        while True:
            left = LONG_POLL
            if exchange.give_up_at is not None:
                left = min(left, exchange.give_up_at - time.monotonic())
            report = self._detached({**order, "wait": max(0.0, left)})
            # the first answer counts: later ones come from a file that an agent can write to
            pids = pids or report["pids"]
            if not report.get("running") or left <= 0:
                break
        if "stdout" in report:
            self._add(report["stdout"], f"{job}/stdout", exchange.add_stdout)
            self._add(report["stderr"], f"{job}/stderr", exchange.add_stderr)
        with self._lock:
            self._finished.append(job)
            if pids:
                self._started.append(pids)

    def _add(self, inline: str | None, path: str, add: Callable[[bytes], None]) -> None:
        if inline is not None:
            add(base64.b64decode(inline))
            return
        with tempfile.TemporaryDirectory(prefix="pinchbench-") as folder:
            local = Path(folder, "content")
            fs = self._made.fs
            _ask(lambda: fs.download_file(path, str(local)), on_behalf_of=self.name)
            with local.open("rb") as content:
                while data := content.read(CHUNK):
                    add(data)

    def stop_processes(self) -> None:
        if self._closed:
            raise SandboxFailure(f"{self.name}: the sandbox is closed")
        with self._lock:
            started, self._started = self._started, []
        if started:
            # all of them: that a command has ended and left nothing, may be an agent's word
            self._detached({"kill": started})
        super().stop_processes()

    def _detached(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Run ``detached.py`` in the sandbox. Its report."""
        argument = base64.b64encode(json.dumps(order).encode()).decode()
        # words of letters, and quotes that do not nest: whatever shell there is
        command = f'{self.python} -I -S -c "{_boot()}" {argument}'
        seconds = round(order.get("wait", LONG_POLL) + 30)
        process = self._made.process
        answer = _ask(lambda: process.exec(command, timeout=seconds), on_behalf_of=self.name)
        try:
            report: dict[str, Any] = json.loads(answer.result.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise SandboxFailure(
                f"{self.name}: no command can be run: {answer.result.strip()[-500:]!r} "
                f"(exit code {answer.exit_code})"
            ) from None
        return report

    def _shell(self, script: str) -> str:
        process = self._made.process
        answer = _ask(lambda: process.exec(f"sh -c '{script}'", timeout=60), on_behalf_of=self.name)
        return str(answer.result)

    def _why_lost(self) -> str:
        sdk = _sdk()
        try:
            self._made.refresh_data(request_timeout=30)
        except sdk.DaytonaNotFoundError:
            return "Daytona has it no more"
        except sdk.DaytonaError as error:
            return str(error)
        return f"Daytona says that it is {self._made.state}"

    def _end(self) -> None:
        sdk = _sdk()
        with contextlib.suppress(sdk.DaytonaNotFoundError):
            patiently(
                lambda: _off_main_thread(lambda: self._client.delete(self._made, timeout=60)),
                _passing,
            )

    def _ways(self) -> str:
        return (
            f"to get in: daytona ssh {self.name}; to remove it: daytona delete {self.name}; "
            "or https://app.daytona.io/dashboard/sandboxes"
        )


def _sdk() -> Any:
    """The SDK, which is big: imported when it is used."""
    try:
        return import_module("daytona")
    except ImportError as error:
        raise EnvironmentUnavailable(
            f"the Daytona SDK is not installed: pip install 'pytest-pinchbench[daytona]' ({error})"
        ) from error


def _ask(
    call: Callable[[], T],
    broken: type[EnvironmentUnavailable] | type[SandboxFailure] = SandboxFailure,
    on_behalf_of: str = "",
    of_order: bool = False,
) -> T:
    """An answer of Daytona's, patiently; what stays broken, as an error of ours.

    ``of_order``: what is asked for is a sandbox, and what speaks against that would speak
    against the next one, too.
    """
    sdk = _sdk()
    try:
        return patiently(call, _passing)
    except sdk.DaytonaAuthenticationError as error:
        raise EnvironmentUnavailable(
            f"Daytona refuses the key in DAYTONA_API_KEY: {error}"
        ) from error
    except sdk.DaytonaError as error:
        said = f"Daytona: {error}"
        if _is_short_of_room(error):
            said += "; max_open among the recipe's options keeps below what the account allows"
        elif of_order and (
            error.status_code in (400, 403, 404, 422) or "build_failed" in said.lower()
        ):
            raise EnvironmentUnavailable(said) from error
        raise broken(f"{on_behalf_of}: {said}" if on_behalf_of else said) from error


def _passing(error: Exception) -> float | None:
    """Seconds to wait before another try, None if there is no use: see ``patiently``."""
    sdk = _sdk()
    if not isinstance(error, sdk.DaytonaError):
        return None
    if error.status_code is None:
        return 0.0 if _is_cut_off(error) else None
    if error.status_code in (408, 429, 500, 502, 503, 504) or _is_short_of_room(error):
        headers = {name.lower(): value for name, value in error.headers.items()}
        try:
            return max(0.0, float(headers["retry-after"]))
        except (KeyError, ValueError):
            return 0.0
    return None


def _is_cut_off(error: BaseException) -> bool:
    """Whether it was the connection, which the SDK says in the error's causes alone."""
    import httpx
    import urllib3

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (httpx.TransportError, urllib3.exceptions.HTTPError, OSError)):
            return True
        cause = cause.__cause__
    return "Truncated" in str(error)


def _is_short_of_room(error: Any) -> bool:
    """The account's CPUs, memory or disk are all taken, until another sandbox closes.

    For example "Total CPU limit exceeded. Maximum allowed: 10."; there is no code for it.
    """
    return re.search(r"limit (exceeded|reached)", str(error)) is not None


def _off_main_thread(call: Callable[[], T]) -> T:
    """In the main thread the SDK takes SIGALRM for its timeouts, which is pytest-timeout's."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(call).result()


@functools.cache
def _boot() -> str:
    source = files("pytest_pinchbench.environments.inside").joinpath("detached.py").read_bytes()
    packed = base64.b64encode(zlib.compress(source, 9)).decode()
    return f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
