"""The process of the relay: ``python -m pytest_pinchbench.relay``.

It is given the descriptor of a listening socket, reads one line of JSON from standard input
(endpoints, keys, limits), and ends when standard input does: with the process that started it.
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


async def serve(order: dict[str, Any], descriptor: int) -> None:
    endpoints = {name: Endpoint(**spec) for name, spec in order.pop("endpoints").items()}
    relay = Relay(endpoints, **order)
    listening = socket.socket(fileno=descriptor)
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
    await uvicorn.Server(config).serve(sockets=[listening])


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    asyncio.run(serve(order, int(sys.argv[1])))


if __name__ == "__main__":
    main()
