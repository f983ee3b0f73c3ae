"""The conformance suite for docker, run whole against other engines by ``DOCKER_HOST`` alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import engines
import pytest
import runner_image

pytestmark = pytest.mark.docker

SUITE = Path(__file__).with_name("test_conformance.py")


@pytest.mark.parametrize("engine", [engines.dockerd, engines.podman])
def test_the_conformance_suite_passes(engine: engines.Engine) -> None:
    try:
        image = runner_image.base()
    except runner_image.Missing as missing:
        pytest.skip(str(missing))
    with engine(image) as (address, _):
        ended = subprocess.run(
            [*(sys.executable, "-m", "pytest", "-q", "-m", "docker"), str(SUITE)],
            env={**os.environ, "DOCKER_HOST": address, "PINCHBENCH_TESTS_REQUIRE": "docker"},
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
