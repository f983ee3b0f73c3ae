"""Many connections over one stream out of a sandbox, local and docker."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import runner_image
from support.waiting import wait_until

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.docker import DockerEnvironment
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.issues import SandboxFailure
from pytest_pinchbench.relay.tunnel import Tunnel


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def sandbox(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Sandbox]:
    """A docker one has no network but loopback."""
    if request.param == "local":
        recipe = Recipe("local", "local", workspace_root=str(tmp_path / "local"))
        environment: Any = LocalEnvironment(EnvironmentSetup(recipe, "run", tmp_path))
    else:
        try:
            image = runner_image.base()
        except runner_image.Missing as missing:
            pytest.skip(str(missing))
        recipe = Recipe("docker", "docker", image=image, options={"network": "none"})
        environment = DockerEnvironment(EnvironmentSetup(recipe, "run", tmp_path))
    opened = environment.open("tunnel", labels={"run": "r", "task": "t"}, lifetime=300)
    yield opened
    opened.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """``serve(play)``: a port of this machine where ``play`` gets each connection."""
    listening: list[socket.socket] = []

    def start(play: Callable[[socket.socket], None]) -> int:
        server = socket.create_server(("127.0.0.1", 0), backlog=200)
        listening.append(server)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=play, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for server in listening:
        server.close()


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65_536):
            connection.sendall(data)


CLIENT = """
import hashlib, socket, sys, threading
port, count, size = map(int, sys.argv[1:])
sent = [hashlib.sha256(b"%d" % i).digest() * (size // 32) for i in range(count)]
got = [b""] * count
def talk(i):
    with socket.create_connection(("127.0.0.1", port)) as s:
        threading.Thread(target=lambda: (s.sendall(sent[i]), s.shutdown(1))).start()
        while data := s.recv(65536): got[i] += data
threads = [threading.Thread(target=talk, args=(i,)) for i in range(count)]
for t in threads: t.start()
for t in threads: t.join()
print(sum(a == b for a, b in zip(sent, got)))
"""


def inside(sandbox: Sandbox, code: str, *arguments: object) -> str:
    done = sandbox.exec([sandbox.python, "-c", code, *map(str, arguments)], timeout=120)
    assert done.exit_code == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(100, 32_000), (3, 20_000_000)])
def test_what_goes_out_comes_back(sandbox, serve, count, size):
    tunnel = Tunnel(sandbox, serve(echo))
    assert inside(sandbox, CLIENT, tunnel.port, count, size) == str(count)
    wait_until(lambda: not tunnel._link.connections)
    tunnel.close()
    assert not tunnel.is_open


def test_a_connection_that_nobody_reads_holds_up_no_other(sandbox, serve):
    def flood(connection: socket.socket) -> None:
        if connection.recv(1) == b"f":
            with contextlib.suppress(OSError):  # the reset at the tunnel's end
                connection.sendall(b"x" * 50_000_000)
        else:
            connection.sendall(b"y")

    tunnel = Tunnel(sandbox, serve(flood))
    code = """
import socket, sys, time
full = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); full.sendall(b"f"); full.recv(1)
time.sleep(0.5)
other = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); other.sendall(b"o")
print(other.recv(1))
"""
    assert inside(sandbox, code, tunnel.port) == "b'y'"
    tunnel.close()


def test_a_dead_port_is_a_reset(sandbox):
    tunnel = Tunnel(sandbox, 9)
    code = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
try: print(s.recv(1))
except ConnectionResetError: print("reset")
"""
    assert inside(sandbox, code, tunnel.port) == "reset"
    tunnel.close()


def test_the_end_of_the_tunnel_ends_what_it_carries(sandbox, serve):
    ended = threading.Event()

    def wait(connection: socket.socket) -> None:
        try:
            connection.sendall(b"1")
            connection.recv(1)
        except OSError:
            pass
        ended.set()

    tunnel = Tunnel(sandbox, serve(wait))
    code = """
import socket, sys
try:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    while s.recv(1): pass
except OSError: pass
"""
    thread = threading.Thread(target=inside, args=(sandbox, code, tunnel.port))
    thread.start()
    wait_until(lambda: bool(tunnel._link.connections))
    tunnel.close()
    assert ended.wait(30)
    thread.join(30)


def test_a_lost_sandbox_ends_the_tunnel(sandbox, serve):
    tunnel = Tunnel(sandbox, serve(echo))
    sandbox.close()
    wait_until(lambda: not tunnel.is_open)
    tunnel.close()


def test_a_program_that_cannot_be_started_is_a_failure(sandbox):
    sandbox.python = "/nowhere/python"
    with pytest.raises((SandboxFailure, FileNotFoundError)):
        Tunnel(sandbox, 9)
