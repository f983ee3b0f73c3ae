"""A Modal of our own on loopback: the gRPC calls that the real SDK makes, on local processes.

Use :class:`FakeModal` as a context manager and set ``MODAL_SERVER_URL``, ``MODAL_TOKEN_ID``
and ``MODAL_TOKEN_SECRET`` to its ``url``, ``token_id`` and ``token_secret``. The control plane
and the task command router answer on one port; the stubs of both are those the SDK ships.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpclib
import grpclib.server
from grpclib import GRPCError, Status
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto import api_pb2, task_command_router_pb2
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from tests.cloud.machine import Machine, Script

_ROUTER = task_command_router_pb2
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RPCFault:
    """An answer instead of the real one; ``status`` None resets the stream without one.

    ``retry_after`` attaches the retry policy by which Modal throttles a client. With
    ``after`` the operation is done first, and only its answer is lost.
    """

    status: Status | None = None
    message: str = "ordered by the test"
    retry_after: float | None = None
    after: bool = False


@dataclass
class _Pipe:
    """What a command has written to one stream so far; readers come by offset."""

    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def fill(self, source: asyncio.StreamReader) -> None:
        while chunk := await source.read(_CHUNK):
            self.data += chunk
            async with self.changed:
                self.changed.notify_all()
        self.ended = True
        async with self.changed:
            self.changed.notify_all()


@dataclass
class _Command:
    process: asyncio.subprocess.Process
    stdout: _Pipe
    stderr: _Pipe
    tasks: list[asyncio.Task[Any]]
    written: int = 0


class FakeModal:
    """Operations, for ``script``, have the names of the RPCs (``SandboxCreateV2``...)."""

    def __init__(self, token_id: str = "ak-test", token_secret: str = "as-test-secret") -> None:
        self.token_id = token_id
        self.token_secret = token_secret
        self.script: Script[RPCFault] = Script()
        self.machines: dict[str, Machine] = {}
        self.created: list[api_pb2.SandboxCreateV2Request] = []
        """All create requests that were carried out, in order."""
        self.images: list[list[str]] = []
        """The Dockerfile commands of all images, in the order of their ids ``im-0``..."""
        self.commands: dict[str, _Command] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> FakeModal:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *exc: object) -> None:
        for machine in self.open():
            self.remove(machine)
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> list[Machine]:
        """The sandboxes that exist now."""
        return list(self.machines.values())

    def remove(self, machine: Machine) -> None:
        self.machines.pop(machine.id, None)
        machine.kill()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._server = grpclib.server.Server(
            [_ControlPlane(self), _Router(self)], status_details_codec=custom_detail_codec
        )
        await self._server.start("127.0.0.1", 0)
        listener = self._server._server  # grpclib offers no public way to ask for the port
        assert listener is not None
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]

    async def _stop(self) -> None:
        self._server.close()  # and not wait_closed(): the SDK keeps its connection open
        for command in self.commands.values():
            for task in command.tasks:
                task.cancel()

    def machine(self, task_id: str) -> Machine:
        """The sandbox of a task id (``ta-<id>V``) or a sandbox id (``sb-<id>``)."""
        key = task_id[3:].removesuffix("V")
        if key not in self.machines:
            raise GRPCError(Status.NOT_FOUND, "Sandbox not found, or it has finished")
        return self.machines[key]


Stream = grpclib.server.Stream[Any, Any]


def _unimplemented(base: Any) -> type:
    """``base`` with an honest answer to every call that no test needs."""

    def answer(name: str) -> Callable[[Any, Stream], Awaitable[None]]:
        async def refuse(self: Any, stream: Stream) -> None:
            raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not part of this fake")

        return refuse

    return type(base.__name__, (base,), {name: answer(name) for name in base.__abstractmethods__})


def _operation(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Stream], Any]:
    """A unary call: request in, answer out, with the ordered faults around it."""
    name = method.__name__

    async def handle(self: Any, stream: Stream) -> None:
        request = await stream.recv_message()
        fault: RPCFault | None = self.cloud.script.next_fault(name, request)
        if fault and not fault.after:
            return await _refuse(stream, fault)
        self.authenticate(stream)
        answer = await method(self, request)
        if fault:
            return await _refuse(stream, fault)
        await stream.send_message(answer)
        return None

    handle.__name__ = name
    return handle


async def _refuse(stream: Stream, fault: RPCFault) -> None:
    if fault.status is None:
        return await stream.cancel()
    details = None
    if fault.retry_after is not None:
        details = [api_pb2.RPCRetryPolicy(retry_after_secs=fault.retry_after)]
    raise GRPCError(fault.status, fault.message, details)


def _token() -> str:
    """A JWT as far as the SDK looks into it: its expiry."""
    claims = json.dumps({"exp": time.time() + 3600}).encode()
    return "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".c2ln"


class _ControlPlane(_unimplemented(ModalClientBase)):  # type: ignore[misc]
    def __init__(self, cloud: FakeModal) -> None:
        self.cloud = cloud

    def authenticate(self, stream: Stream) -> None:
        given = stream.metadata.get("x-modal-token-id"), stream.metadata.get("x-modal-token-secret")
        if given != (self.cloud.token_id, self.cloud.token_secret):
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID or secret is invalid")

    @_operation
    async def ClientHello(self, request: Any) -> Any:
        return api_pb2.ClientHelloResponse()

    @_operation
    async def AuthTokenGet(self, request: Any) -> Any:
        return api_pb2.AuthTokenGetResponse(token=_token())

    @_operation
    async def AppGetOrCreate(self, request: Any) -> Any:
        return api_pb2.AppGetOrCreateResponse(app_id="ap-0")

    @_operation
    async def EnvironmentGetOrCreate(self, request: Any) -> Any:
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        return api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-0", metadata=api_pb2.EnvironmentMetadata(settings=settings)
        )

    @_operation
    async def ImageGetOrCreate(self, request: Any) -> Any:
        commands = list(request.image.dockerfile_commands)
        if commands not in self.cloud.images:
            self.cloud.images.append(commands)
        succeeded = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
        return api_pb2.ImageGetOrCreateResponse(
            image_id=f"im-{self.cloud.images.index(commands)}", result=succeeded
        )

    @_operation
    async def SandboxCreateV2(self, request: Any) -> Any:
        wanted = request.definition
        if any(machine.name == wanted.name for machine in self.cloud.open()):
            raise GRPCError(Status.ALREADY_EXISTS, f"Sandbox {wanted.name!r} already exists")
        env = {
            name: value
            for source in request.secret_sources
            for name, value in source.env.contents.items()
        }
        machine = Machine(wanted.name, {t.tag_name: t.tag_value for t in request.tags}, env)
        machine.request = request
        self.cloud.machines[machine.id] = machine
        self.cloud.created.append(request)
        asyncio.get_running_loop().call_later(wanted.timeout_secs, self.cloud.remove, machine)
        return api_pb2.SandboxCreateV2Response(
            sandbox_id=f"sb-{machine.id}",
            task_id=f"ta-{machine.id}V",
            command_router_access=api_pb2.CommandRouterAccess(url=self.cloud.url, jwt=_token()),
        )

    @_operation
    async def SandboxGetFromNameV2(self, request: Any) -> Any:
        for machine in self.cloud.open():
            if machine.name == request.sandbox_name:
                return api_pb2.SandboxGetFromNameResponse(sandbox_id=f"sb-{machine.id}")
        raise GRPCError(Status.NOT_FOUND, f"No sandbox {request.sandbox_name!r}")

    @_operation
    async def SandboxGetTaskIdV2(self, request: Any) -> Any:
        machine = self.cloud.machine(request.sandbox_id)
        return api_pb2.SandboxGetTaskIdResponse(task_id=f"ta-{machine.id}V")

    @_operation
    async def SandboxGetCommandRouterAccess(self, request: Any) -> Any:
        self.cloud.machine(request.sandbox_id or request.task_id)
        return api_pb2.SandboxGetCommandRouterAccessResponse(url=self.cloud.url, jwt=_token())

    @_operation
    async def SandboxTerminateV2(self, request: Any) -> Any:
        machine = self.cloud.machine(request.sandbox_id)
        await asyncio.to_thread(self.cloud.remove, machine)
        return api_pb2.SandboxTerminateResponse()


class _Router(_unimplemented(TaskCommandRouterBase)):  # type: ignore[misc]
    """Runs commands in a sandbox; its caller proves itself with the token handed out before."""

    def __init__(self, cloud: FakeModal) -> None:
        self.cloud = cloud

    def authenticate(self, stream: Stream) -> None:
        if not str(stream.metadata.get("authorization", "")).startswith("Bearer e30."):
            raise GRPCError(Status.UNAUTHENTICATED, "no token")

    def _command(self, request: Any) -> _Command:
        self.cloud.machine(request.task_id)
        if request.exec_id not in self.cloud.commands:
            raise GRPCError(Status.NOT_FOUND, f"no command {request.exec_id}")
        return self.cloud.commands[request.exec_id]

    @_operation
    async def TaskExecStart(self, request: Any) -> Any:
        machine = self.cloud.machine(request.task_id)
        if request.exec_id in self.cloud.commands:  # a repeated request starts nothing twice
            return _ROUTER.TaskExecStartResponse()
        env = {k: v for source in request.secret_sources for k, v in source.env.contents.items()}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *request.command_args,
                cwd=request.workdir or machine.cwd,
                env=machine.environ(env),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                limit=_CHUNK,
                start_new_session=True,
            )
        except OSError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, f"cannot start: {error}") from None
        assert process.stdout  # both are pipes
        assert process.stderr
        stdout, stderr = _Pipe(), _Pipe()
        tasks = [
            asyncio.create_task(stdout.fill(process.stdout)),
            asyncio.create_task(stderr.fill(process.stderr)),
        ]
        if request.timeout_secs:
            tasks.append(asyncio.create_task(_kill_after(process, request.timeout_secs)))
        self.cloud.commands[request.exec_id] = _Command(process, stdout, stderr, tasks)
        return _ROUTER.TaskExecStartResponse()

    @_operation
    async def TaskExecStdinWrite(self, request: Any) -> Any:
        command = self._command(request)
        stdin = command.process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):  # the command did not want it
            stdin.write(request.data[max(0, command.written - request.offset) :])
            command.written = max(command.written, request.offset + len(request.data))
            await stdin.drain()
            if request.eof:
                stdin.close()
        return _ROUTER.TaskExecStdinWriteResponse()

    async def TaskExecStdioRead(self, stream: Stream) -> None:
        request = await stream.recv_message()
        fault: RPCFault | None = self.cloud.script.next_fault("TaskExecStdioRead", request)
        if fault and not fault.after:
            return await _refuse(stream, fault)
        self.authenticate(stream)
        command = self._command(request)
        wants_stdout = _ROUTER.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        pipe = command.stdout if request.file_descriptor == wants_stdout else command.stderr
        offset = request.offset
        while True:
            async with pipe.changed:
                while len(pipe.data) == offset and not pipe.ended:
                    await pipe.changed.wait()
            self.cloud.machine(request.task_id)  # what a lost machine wrote is lost with it
            if len(pipe.data) == offset:
                return None
            chunk = bytes(pipe.data[offset : offset + _CHUNK])
            if fault:  # the stream is cut off half-way
                await stream.send_message(
                    _ROUTER.TaskExecStdioReadResponse(data=chunk[: max(1, len(chunk) // 2)])
                )
                return await _refuse(stream, fault)
            await stream.send_message(_ROUTER.TaskExecStdioReadResponse(data=chunk))
            offset += len(chunk)

    @_operation
    async def TaskExecWait(self, request: Any) -> Any:
        command = self._command(request)
        code = await command.process.wait()
        self._command(request)
        if code < 0:
            return _ROUTER.TaskExecWaitResponse(signal=-code)
        return _ROUTER.TaskExecWaitResponse(code=code)


async def _kill_after(process: asyncio.subprocess.Process, seconds: float) -> None:
    await asyncio.sleep(seconds)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Serve until the standard input ends: ``python -m tests.cloud.modal_server``."""
    import sys

    with FakeModal() as cloud:
        print(cloud.url, cloud.token_id, cloud.token_secret, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
