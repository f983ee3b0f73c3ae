"""A Daytona of our own on loopback: the HTTP calls that the real SDK makes, on local processes.

Use :class:`FakeDaytona` as a context manager and set ``DAYTONA_API_URL`` and
``DAYTONA_API_KEY`` to its ``url`` and ``key``. There is no event gateway: the SDK then polls,
as it does behind a proxy that knows no WebSocket.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cloud.machine import Machine, Script, kill_tree

_BOUNDARY = "DAYTONA-FILE-BOUNDARY"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class HTTPFault:
    """An answer instead of the real one; ``status`` 0 closes the connection.

    With ``after`` the operation is done first, and only its answer is lost.
    """

    status: int = 0
    message: str = "ordered by the test"
    headers: Mapping[str, str] = field(default_factory=dict)
    after: bool = False


class FakeDaytona:
    """Operations, for ``script``: create, get, delete, list, execute, upload, download, folder."""

    def __init__(self, key: str = "dtn_test_key", port: int = 0) -> None:
        self.key = key
        self.script: Script[HTTPFault] = Script()
        self.machines: dict[str, Machine] = {}
        self.created: list[dict[str, Any]] = []
        """The bodies of all create requests that were carried out, in order."""
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.origin}/api"

    def __enter__(self) -> FakeDaytona:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for machine in self.open():
            self.remove(machine)

    def open(self) -> list[Machine]:
        """The sandboxes that exist now."""
        with self.lock:
            return list(self.machines.values())

    def remove(self, machine: Machine) -> None:
        with self.lock:
            self.machines.pop(machine.id, None)
        machine.kill()


class _Closed(Exception):
    """The connection is to be closed without an answer."""


def _handler(cloud: FakeDaytona) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer()

        do_POST = do_DELETE = do_GET

        def _answer(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            routes = (
                (operation, re.fullmatch(pattern, url.path))
                for method, pattern, operation in _ROUTES
                if method == self.command
            )
            operation, match = next((route for route in routes if route[1]), ("", None))
            if match is None:
                return self._json(404, {"message": f"no such route: {self.command} {url.path}"})
            fault = cloud.script.next_fault(operation, body)
            try:
                if fault and not fault.after:
                    raise _Closed if fault.status == 0 else _Refusal(fault)
                if self.headers.get("Authorization") != f"Bearer {cloud.key}":
                    raise _Refusal(HTTPFault(401, "Invalid credentials"))
                answer = getattr(self, f"_{operation}")(*match.groups(), body=body, query=query)
                if fault:
                    raise _Closed if fault.status == 0 else _Refusal(fault)
                if answer is not None:
                    self._json(200, answer)
            except _Refusal as refusal:
                refused = refusal.fault
                self._json(
                    refused.status,
                    {"statusCode": refused.status, "message": refused.message},
                    refused.headers,
                )
            except (_Closed, ConnectionError):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
            return None

        def _json(self, status: int, value: object, headers: Mapping[str, str] = NOTHING) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        # the control plane

        def _create(self, *, body: bytes, query: dict[str, str]) -> object:
            wanted = json.loads(body)
            with cloud.lock:
                if any(machine.name == wanted.get("name") for machine in cloud.machines.values()):
                    raise _Refusal(HTTPFault(409, f"Sandbox {wanted['name']} already exists"))
                machine = Machine(wanted["name"], wanted.get("labels", {}), wanted.get("env", {}))
                machine.request = wanted
                cloud.machines[machine.id] = machine
                cloud.created.append(wanted)
            if wanted.get("ttlMinutes"):
                timer = threading.Timer(wanted["ttlMinutes"] * 60, cloud.remove, [machine])
                timer.daemon = True
                timer.start()
            return self._description(machine, "creating")

        def _get(self, name: str, *, body: bytes, query: dict[str, str]) -> object:
            return self._description(self._machine(name), "started")

        def _delete(self, name: str, *, body: bytes, query: dict[str, str]) -> object:
            machine = self._machine(name)
            cloud.remove(machine)
            return self._description(machine, "destroyed")

        def _list(self, *, body: bytes, query: dict[str, str]) -> object:
            labels = json.loads(query.get("labels", "{}"))
            found = [
                self._description(machine, "started")
                for machine in cloud.open()
                if labels.items() <= machine.labels.items()
            ]
            return {"items": found[: int(query.get("limit", 100))], "nextCursor": None}

        def _machine(self, name: str) -> Machine:
            for machine in cloud.open():
                if name in (machine.id, machine.name):
                    return machine
            raise _Refusal(HTTPFault(404, f"Sandbox with ID or name {name} not found"))

        def _description(self, machine: Machine, state: str) -> dict[str, object]:
            wanted = machine.request
            return {
                "id": machine.id,
                "organizationId": "org",
                "name": machine.name,
                "user": "daytona",
                "env": wanted.get("env", {}),
                "labels": machine.labels,
                "public": False,
                "networkBlockAll": wanted.get("networkBlockAll") or False,
                "kvm": False,
                "target": wanted.get("target") or "local",
                "cpu": wanted.get("cpu") or 1,
                "gpu": 0,
                "memory": wanted.get("memory") or 1,
                "disk": wanted.get("disk") or 3,
                "state": state,
                "desiredState": "started",
                "createdAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(machine.created)),
                "updatedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "toolboxProxyUrl": f"{cloud.origin}/toolbox",
            }

        # the toolbox of one sandbox

        def _execute(self, name: str, *, body: bytes, query: dict[str, str]) -> object | None:
            machine = self._machine(name)
            request = json.loads(body)
            process = subprocess.Popen(
                ["sh", "-c", request["command"]],
                cwd=request.get("cwd") or machine.cwd,
                env=machine.environ(request.get("envs") or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            watcher = threading.Thread(target=self._kill_when_left, args=[process], daemon=True)
            watcher.start()
            try:
                output, _ = process.communicate(timeout=request.get("timeout") or 360)
            except subprocess.TimeoutExpired:
                kill_tree(process)
                process.communicate()
                raise _Refusal(HTTPFault(408, "Command execution timed out")) from None
            if machine.id not in cloud.machines:
                raise _Closed  # the machine was lost under the command
            text = output.decode("utf-8", "replace")
            return {"exitCode": process.returncode, "result": text}

        def _kill_when_left(self, process: subprocess.Popen[bytes]) -> None:
            """What the daemon does when its client hangs up: end the command."""
            while process.poll() is None:
                with contextlib.suppress(OSError, ValueError):
                    self.connection.settimeout(None)
                    if self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                        kill_tree(process)
                        return
                time.sleep(0.05)

        def _folder(self, name: str, *, body: bytes, query: dict[str, str]) -> object:
            self._machine(name)
            os.makedirs(query["path"], int(query.get("mode", "755"), 8), exist_ok=True)
            return {}

        def _upload(self, name: str, *, body: bytes, query: dict[str, str]) -> object:
            self._machine(name)
            paths: dict[str, str] = {}
            for field_name, data in _parts(body, self.headers["Content-Type"]):
                index, _, kind = field_name.partition("].")
                if kind == "path":
                    paths[index] = data.decode()
                    continue
                target = Path(paths[index])
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
                except OSError as error:
                    self._json(400, {"errors": [f"{target}: {error}"]})
                    return None
            return {}

        def _download(self, name: str, *, body: bytes, query: dict[str, str]) -> None:
            self._machine(name)
            fault = cloud.script.next_fault("download body", body)
            self.send_response(200)
            self.send_header("Content-Type", f"multipart/form-data; boundary={_BOUNDARY}")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for path in json.loads(body)["paths"]:
                self.wfile.write(_part_header("file" if os.path.isfile(path) else "error", path))
                if os.path.isfile(path):
                    with open(path, "rb") as source:
                        if fault:
                            self.wfile.write(source.read(os.path.getsize(path) // 2))
                            raise _Closed
                        shutil.copyfileobj(source, self.wfile)
                else:
                    self.wfile.write(b"file not found or invalid")
                self.wfile.write(b"\r\n")
            self.wfile.write(f"--{_BOUNDARY}--\r\n".encode())

    return Handler


_SANDBOX = r"/api/sandbox/([^/]+)"
_TOOLBOX = r"/toolbox/([^/]+)"
_ROUTES = (
    ("POST", r"/api/sandbox", "create"),
    ("GET", r"/api/sandbox", "list"),
    ("GET", _SANDBOX, "get"),
    ("DELETE", _SANDBOX, "delete"),
    ("POST", _TOOLBOX + "/process/execute", "execute"),
    ("POST", _TOOLBOX + "/files/folder", "folder"),
    ("POST", _TOOLBOX + "/files/bulk-upload", "upload"),
    ("POST", _TOOLBOX + "/files/bulk-download", "download"),
)


class _Refusal(Exception):
    def __init__(self, fault: HTTPFault) -> None:
        self.fault = fault


def _parts(body: bytes, content_type: str) -> Iterator[tuple[str, bytes]]:
    """The fields of a multipart/form-data body, by name."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, data = part[2:].partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]*)"', head)
        assert name, head
        yield name[1].decode(), data


def _part_header(kind: str, path: str) -> bytes:
    lines = (
        f"--{_BOUNDARY}",
        "Content-Type: application/octet-stream",
        f'Content-Disposition: form-data; name="{kind}"; filename="{path}"',
    )
    return "\r\n".join([*lines, "", ""]).encode()


def main() -> None:
    """Serve until the standard input ends: ``python -m tests.cloud.daytona_server``."""
    import sys

    with FakeDaytona() as cloud:
        print(cloud.url, cloud.key, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
