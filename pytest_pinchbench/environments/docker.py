"""Sandboxes that are containers of a Docker Engine, or of what speaks its API (Podman).

Nothing is asked of an image but a ``python3``: its entrypoint, user, shell and tools are its
own affair.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from docker import errors
from docker.types import Mount

from pytest_pinchbench.environments import EnvironmentSetup, Sandbox, SharedFolder
from pytest_pinchbench.environments.docker_engine import (
    FAULTS,
    OTHER_WAY,
    Engine,
)
from pytest_pinchbench.environments.docker_options import READERS, DockerOptions
from pytest_pinchbench.environments.docker_sandbox import DockerSandbox
from pytest_pinchbench.environments.limits import OpenLimits, Slot
from pytest_pinchbench.environments.process_identity import is_dead, process_identity
from pytest_pinchbench.environments.recipe_options import read_options
from pytest_pinchbench.environments.sandbox import file_name
from pytest_pinchbench.issues import EnvironmentUnavailable, using_data_dir

LABEL = "pytest-pinchbench"
SHARED = "/opt/pinchbench"
KEPT_LIFETIME = 30 * 24 * 3600.0
"""Seconds for which a kept container runs."""

# Process 1 reaps orphans, and ends with the lifetime, so that a killed run leaves nothing.
# Only a signal from outside stops it (such a sender has no id in here): an agent that runs
# `pkill python3` does not take its own container down. It is not dumpable: /proc/1/mem is closed
# to an agent of the same user.
_PROCESS_1 = """\
import os,signal,sys,time
try:
 import ctypes
 ctypes.CDLL(None).prctl(4,0,0,0,0)
except Exception:pass
end=time.monotonic()+float(sys.argv[1])
signals={signal.SIGCHLD,signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK,signals)
while time.monotonic()<end:
 got=signal.sigtimedwait(signals,max(0,end-time.monotonic()))
 if got and got.si_signo==signal.SIGTERM and not got.si_pid:break
 try:
  while os.waitpid(-1,os.WNOHANG)[0]:pass
 except ChildProcessError:pass"""


class DockerEnvironment:
    kind = "docker"
    on_this_machine = False
    has_streams = True

    def __init__(self, setup: EnvironmentSetup) -> None:
        self._setup = setup
        self._recipe = setup.recipe
        self._options = DockerOptions(**read_options(setup.recipe, READERS))
        self._root = (self._recipe.workspace_root or "/workspace").rstrip("/") or "/"
        # workspaces in memory, or in no folder of their own, cannot be shared
        alone = self._root not in {"/", *(one.partition(":")[0] for one in self._options.tmpfs)}
        self.grades_fresh: Literal["", "asked", "auto"] = "auto" if alone else ""
        self._engine = Engine()
        self._limits = OpenLimits(
            setup.data_dir / "open-sandboxes",
            self.kind,
            self._options.max_open,
            self._options.opens_per_second,
        )

    def prepare(self) -> None:
        self._remove_leftovers()
        self._image = self._find_image(self._options.pull)

    def open(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None = None,
    ) -> DockerSandbox:
        image = self.image_id()
        slot = Slot(None) if beside else self._limits.acquire()  # both are one attempt's
        sandbox = DockerSandbox(
            f"pinchbench-{file_name(name)}-{secrets.token_hex(4)}",
            self._engine,
            self._root,
            kept=self._setup.keep,
            on_close=lambda sandbox: self._on_close(sandbox, slot),
        )
        try:
            self._start(sandbox, image, labels, lifetime, beside)
        except BaseException:
            sandbox.remove()
            slot.release()
            raise
        return sandbox

    @property
    def shares_loopback(self) -> bool:
        return self._engine.is_here and self._options.network == "host"

    def image_id(self) -> str:
        return self._image

    def image_digest(self) -> str:
        return self._engine.image_digest(self._image)

    def shared_folder(self, name: str) -> SharedFolder | None:
        if self._shared is None:
            return None
        return SharedFolder(self._shared / name, f"{SHARED}/{name}")

    @cached_property
    def _shared(self) -> Path | None:
        """What all containers of this image see at ``SHARED``."""
        if not self._engine.is_here:
            return None
        image = re.sub(r"[^A-Za-z0-9]", "-", self._image)
        folder = self._setup.data_dir / "shared" / image
        with using_data_dir(EnvironmentUnavailable):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def _image(self) -> str:
        # in a process that has not prepared: `always` was always done by the one that has
        return self._find_image("never" if self._options.pull == "never" else "missing")

    def _find_image(self, pull: str) -> str:
        if not self._recipe.image:
            raise EnvironmentUnavailable(
                f"recipe {self._recipe.name} names no image: give one with --pinchbench-image"
            )
        return self._engine.find_image(
            self._recipe.image, pull=pull, platform=self._options.platform, say=self._setup.say
        )

    def _start(
        self,
        sandbox: DockerSandbox,
        image: str,
        labels: Mapping[str, str],
        lifetime: float,
        beside: Sandbox | None,
    ) -> None:
        seconds = KEPT_LIFETIME if self._setup.keep else lifetime
        api = self._engine.api
        with self._engine.translated(f"{sandbox.name} could not be started"):
            try:
                api.create_container(
                    image,
                    name=sandbox.name,
                    entrypoint=["python3", "-I", "-S", "-c", _PROCESS_1, str(seconds)],
                    command=[],
                    environment=self._recipe.variables(),
                    labels={
                        **{f"{LABEL}.{name}": value for name, value in labels.items()},
                        f"{LABEL}.owner": process_identity(os.getpid()),
                        f"{LABEL}.kept": str(self._setup.keep).lower(),
                    },
                    user=self._options.user,
                    platform=self._options.platform,
                    stop_signal="SIGTERM",
                    healthcheck={"test": ["NONE"]},
                    host_config=self._host_config(sandbox, beside),
                )
                api.start(sandbox.name)
            except errors.APIError as error:
                if self._shared and str(self._shared) in self._engine.explain(error):
                    # An engine that is reached from here, but sees other files (that of the
                    # host of a CI job's container): without the cache it is only slower.
                    self._shared = None
                    sandbox.remove()
                    self._start(sandbox, image, labels, lifetime, beside)
                    return
                self._raise_if_permanent(error)
                raise
        sandbox.set_up()

    def _host_config(self, sandbox: DockerSandbox, beside: Sandbox | None) -> dict[str, Any]:
        options = self._options
        volumes = {volume.split(":")[1]: volume for volume in options.volumes}
        mounts = [Mount(SHARED, str(self._shared), "bind", read_only=True)] if self._shared else []
        if beside is not None:
            # what an agent can write to does not come along, but for the workspaces
            volumes = {path: one for path, one in volumes.items() if one.endswith(":ro")}
            shared = self._engine.api.inspect_container(beside.name)["Mounts"]
            (root,) = (one for one in shared if one["Destination"] == self._root)
            mounts.append(Mount(self._root, root.get("Name") or root["Source"], root["Type"]))
            volumes.pop(self._root, None)
        elif self._root not in volumes and self.grades_fresh:
            mounts.append(Mount(self._root, None, "volume"))
        tmpfs = {}
        for entry in options.tmpfs:
            path, _, how = entry.partition(":")
            tmpfs[path] = how
        if options.read_only:
            for path in {sandbox.private_root, "/tmp"} - set(volumes):
                tmpfs.setdefault(path, "mode=1777,exec")
        return dict(
            self._engine.api.create_host_config(
                auto_remove=not self._setup.keep,
                network_mode="none" if options.network == "internal" else options.network,
                extra_hosts=dict(options.extra_hosts) or None,
                nano_cpus=round(options.cpus * 1e9) if options.cpus else None,
                mem_limit=options.memory,
                pids_limit=options.pids_limit,
                read_only=options.read_only,
                tmpfs=tmpfs or None,
                binds=list(volumes.values()) or None,
                mounts=mounts,
                shm_size=options.shm_size,
                runtime=options.runtime,
                cap_drop=list(options.cap_drop) or None,
                security_opt=list(options.security_opt) or None,
            )
        )

    def _raise_if_permanent(self, error: errors.APIError) -> None:
        """What is wrong with the image or the recipe is wrong for every attempt."""
        reason = self._engine.explain(error)
        if "python3" in reason and re.search("no such file|not found", reason):
            raise EnvironmentUnavailable(
                f"the image {self._recipe.image} has no python3 (3.8 or newer), which every "
                f"sandbox needs: install it there, or name another image; {OTHER_WAY}"
            ) from error
        if error.is_client_error():
            raise EnvironmentUnavailable(
                f"recipe {self._recipe.name}: the Docker daemon refuses the container: {reason}"
            ) from error

    def _on_close(self, sandbox: DockerSandbox, slot: Slot) -> None:
        if self._setup.keep:
            self._setup.say(
                f"kept the container {sandbox.name} (workspaces in {sandbox.workspace_root}); "
                f"to get in: docker exec -it {sandbox.name} sh; "
                f"to remove it: docker rm -f {sandbox.name}"
            )
        elif fault := sandbox.remove():
            self._setup.say(
                f"the container {sandbox.name} could not be removed ({fault}); it ends by itself "
                f"when its time is over, or with: docker rm -f {sandbox.name}"
            )
        slot.release()

    def _remove_leftovers(self) -> None:
        """Remove the containers of runs on this machine whose process is dead.

        They would go by themselves, later, when their lifetime is over.
        """
        with self._engine.translated("", EnvironmentUnavailable):
            containers = self._engine.api.containers(
                all=True, filters={"label": [f"{LABEL}.owner", f"{LABEL}.kept=false"]}
            )
        for container in containers:
            if is_dead(container["Labels"][f"{LABEL}.owner"]):
                with contextlib.suppress(*FAULTS):  # another run may be faster
                    self._engine.api.remove_container(container["Id"], force=True, v=True)
