"""What is Modal's own: its words for an order, and streams that are cut off."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cloud.conftest import Cloud, open_one

pytestmark = pytest.mark.slow

MB = 1 << 20


def test_an_order_names_image_size_network_and_the_end_of_its_life(modal: Cloud) -> None:
    options = {"cpus": 1.5, "memory": 2048, "block_network": True, "region": "eu"}

    open_one(modal.environment(options=options), lifetime=1000.0)

    [order] = modal.server.created
    definition = order.definition
    image = modal.server.images[int(definition.image_id.removeprefix("im-"))]
    assert image == ["FROM base", "ENTRYPOINT []"]
    assert ["FROM registry.example.com/image:1"] in modal.server.images
    assert (definition.resources.milli_cpu, definition.resources.memory_mb) == (1500, 2048)
    assert list(definition.scheduler_placement.regions) == ["eu"]
    assert definition.network_access.network_access_type == (
        definition.network_access.NetworkAccessType.BLOCKED
    )
    assert definition.timeout_secs == 1000


def test_no_token_is_an_error_that_names_the_variables(modal: Cloud) -> None:
    program = """
import sys
from pathlib import Path
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.modal import ModalEnvironment
from pytest_pinchbench.issues import EnvironmentUnavailable
recipe = Recipe(name="modal", environment="modal", image="image")
try:
    ModalEnvironment(EnvironmentSetup(recipe, "run", Path(sys.argv[1]))).prepare()
except EnvironmentUnavailable as error:
    print(error)
"""
    environ = {name: value for name, value in os.environ.items() if "MODAL" not in name}

    result = subprocess.run(
        [sys.executable, "-c", program, str(modal.folder)],
        env={**environ, "HOME": str(modal.folder)},
        capture_output=True,
        text=True,
    )

    assert "modal token new" in result.stdout, result.stderr
    assert "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET" in result.stdout


def test_a_stream_that_is_cut_off_is_read_on_from_there(modal: Cloud) -> None:
    from tests.cloud.modal_server import RPCFault

    sandbox = modal.open()
    modal.server.script.fail("TaskExecStdioRead", *[RPCFault(after=True)] * 4)

    result = sandbox.exec(["sh", "-c", f"head -c {3 * MB} /dev/zero; echo end; echo err >&2"])

    assert result.stdout == bytes(3 * MB) + b"end\n"
    assert result.stderr == b"err\n"


def test_input_that_is_cut_off_is_sent_on_from_there(modal: Cloud) -> None:
    from tests.cloud.modal_server import RPCFault

    sandbox = modal.open()
    modal.server.script.fail("TaskExecStdinWrite", RPCFault(after=True), RPCFault())

    assert sandbox.exec(["wc", "-c"], stdin=bytes(9 * MB)).stdout == f"{9 * MB}\n".encode()
