"""The two fake clouds, each started once in a process that needs it, and pointed to.

The SDKs read the environment variables, and Modal's keeps the client that it made from them.
"""

from __future__ import annotations

import atexit
import functools
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cloud.daytona_server import FakeDaytona
    from tests.cloud.modal_server import FakeModal


@functools.cache
def daytona() -> FakeDaytona:
    pytest.importorskip("daytona", reason="needs pytest-pinchbench[daytona]")
    from tests.cloud.daytona_server import FakeDaytona

    cloud = FakeDaytona().__enter__()
    atexit.register(cloud.__exit__)
    os.environ.update(DAYTONA_API_URL=cloud.url, DAYTONA_API_KEY=cloud.key)
    return cloud


@functools.cache
def modal() -> FakeModal:
    pytest.importorskip("modal", reason="needs pytest-pinchbench[modal]")
    from tests.cloud.modal_server import FakeModal

    cloud = FakeModal().__enter__()
    atexit.register(cloud.__exit__)
    os.environ.update(
        MODAL_SERVER_URL=cloud.url,
        MODAL_TOKEN_ID=cloud.token_id,
        MODAL_TOKEN_SECRET=cloud.token_secret,
    )
    return cloud
