"""The process of the relay: ``python -m pytest_pinchbench.relay``.

It reads one line of JSON from standard input (endpoints, keys, limits), writes one line to
standard output (its port), and ends when standard input does: with the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from typing import Any

import uvicorn

from pytest_pinchbench.relay.server import Relay
from pytest_pinchbench.relay.upstream import Endpoint


async def serve(order: dict[str, Any]) -> None:
    endpoints = {name: Endpoint(**spec) for name, spec in order.pop("endpoints").items()}
    relay = Relay(endpoints, **order)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(
        relay,
        log_level="critical",
        access_log=False,
        lifespan="off",
        http="h11",
        ws="none",
        date_header=False,
        server_header=False,
        timeout_keep_alive=600,
    )
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    await uvicorn.Server(config).serve(sockets=[listening])


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    asyncio.run(serve(order))


if __name__ == "__main__":
    main()
