"""What the relay costs, against the same scripted endpoint spoken to directly.

    python benchmarks/relay.py [--docker IMAGE]

Prints milliseconds to the first byte, the time of 2,000 chunks paced at 5 ms, chunks a second
unpaced, 100 streams at a time with the memory of the relay's process, the time of 200 MB, and
what a start and a grant take; with an image, the same through a tunnel out of a container.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.docker import DockerEnvironment
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.relay.client import RelayClient, RelayProcess
from pytest_pinchbench.relay.tunnel import Tunnel

CLIENT = """
import json, socket, sys, threading, time
host, port, path, token, streams = sys.argv[1], int(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5])
def ask():
    s = socket.create_connection((host, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b'{"stream": true, "stream_options": {"include_usage": true}}'
    began = time.perf_counter()
    s.sendall(("POST %s/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nauthorization: Bearer %s\\r\\n"
               "content-type: application/json\\r\\ncontent-length: %d\\r\\n"
               "connection: close\\r\\n\\r\\n"
               % (path, token, len(body))).encode() + body)
    first = size = 0
    last = b""
    while data := s.recv(1 << 18):
        if b"data:" in data and not first: first = time.perf_counter() - began
        size += len(data); last = (last + data)[-64:]
    return first, time.perf_counter() - began, size, b"[DONE]" in last or size > 1e8
results = []
threads = [threading.Thread(target=lambda: results.append(ask())) for _ in range(streams)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(results))
"""
CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'


async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
    _, kind, count = head.split()[1].decode().split("/")[1:4]
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    loop = asyncio.get_running_loop()
    began = loop.time()
    piece = CHUNK if kind != "big" else b"data: " + b"x" * 65_528 + b"\n\n"
    for number in range(int(count)):
        if kind == "paced":
            await asyncio.sleep(max(0.0, began + number * 0.005 - loop.time()))
        writer.write(piece)
        await writer.drain()
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


def serve() -> int:
    ready = threading.Event()
    port = 0

    async def run() -> None:
        nonlocal port
        server = await asyncio.start_server(endpoint, "127.0.0.1", 0, backlog=500)
        port = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    ready.wait()
    return port


class Way:
    """A way to the endpoint: where a client connects, and where it runs."""

    def __init__(self, name: str, sandbox: Sandbox, relay: RelayClient | None, port: int) -> None:
        self.name, self.sandbox, self.relay, self.port = name, sandbox, relay, port

    def ask(self, kind: str, count: int, streams: int = 1) -> list[list[float]]:
        path, token, port = f"/v1/{kind}/{count}", "none", self.port
        if self.relay is not None:
            token = self.relay.open("benchmark", f"{kind}-{count}", seconds=1e6).token
            path = "/v1"
        argv = ["-c", CLIENT, "127.0.0.1", str(port), path, token, str(streams)]
        done = self.sandbox.exec([self.sandbox.python, *argv], timeout=600)
        assert done.exit_code == 0, done.stderr.decode()
        found: list[list[float]] = json.loads(done.stdout)
        assert all(one[3] for one in found), "a stream was cut"
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docker", metavar="IMAGE")
    given = parser.parse_args()
    port = serve()
    kinds = [("first", 1), ("paced", 2000), ("fast", 20_000), ("many", 500), ("big", 3200)]
    specs = {
        f"{kind}-{count}": {"base_url": f"http://127.0.0.1:{port}/v1/{kind}/{count}"}
        for kind, count in kinds
    }
    began = time.perf_counter()
    process = RelayProcess(specs)
    started = time.perf_counter() - began
    client = RelayClient(process.port, process.admin)
    client.spent()
    ready = time.perf_counter() - began
    began = time.perf_counter()
    client.open("benchmark", "first-1", seconds=1).close()
    print(f"start: {started * 1000:.0f} ms (ready after {ready:.2f} s); a grant: "
          f"{(time.perf_counter() - began) * 1000:.1f} ms")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        setup = EnvironmentSetup(Recipe("local", "local", workspace_root=folder), "b", Path(folder))
        local = LocalEnvironment(setup).open("b", labels={}, lifetime=3600)
        ways = [
            Way("direct", local, None, port),
            Way("relay", local, client, process.port),
        ]
        opened: list[Sandbox] = [local]
        if given.docker:
            recipe = Recipe("d", "docker", image=given.docker, options={"network": "internal"})
            environment = DockerEnvironment(EnvironmentSetup(recipe, "b", Path(folder)))
            environment.prepare()
            container = environment.open("b", labels={"run": "b"}, lifetime=3600)
            opened.append(container)
            began = time.perf_counter()
            tunnel = Tunnel(container, process.port)
            print(f"a tunnel opens in {(time.perf_counter() - began) * 1000:.0f} ms")
            ways.append(Way("tunnel", container, client, tunnel.port))
        print(f"{'':8}{'first':>9}{'paced':>9}{'chunks/s':>10}{'100 at once':>13}{'200 MB':>9}")
        for way in ways:
            first = statistics.median(way.ask("first", 1)[0][0] for _ in range(15))
            paced = way.ask("paced", 2000)[0][1]
            fast = 20_000 / way.ask("fast", 20_000)[0][1]
            many = max(one[1] for one in way.ask("many", 500, streams=100))
            big = way.ask("big", 3200)[0][1]
            print(f"{way.name:8}{first * 1000:6.1f} ms{paced:8.3f}s{fast:10,.0f}"
                  f"{many:12.2f}s{big:8.2f}s")  # fmt: skip
            if way.relay is not None:
                status = Path(f"/proc/{process._process.pid}/status").read_text()
                peak = int(status.partition("VmHWM:")[2].split()[0]) / 1000
                print(f"{'':8}the relay's peak so far: {peak:.0f} MB")
        for sandbox in opened:
            sandbox.close()
    process.close()


if __name__ == "__main__":
    main()
