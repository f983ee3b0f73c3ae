"""The compile cache of an image: filled in its first sandbox, only read in all later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import runner_image
from harness_attempts import make_task

from pytest_pinchbench.demo.model import ScriptedModel
from pytest_pinchbench.demo.script import parse_script
from pytest_pinchbench.environments import EnvironmentSetup, Recipe, SharedFolder
from pytest_pinchbench.environments.docker import DockerEnvironment
from pytest_pinchbench.harnesses import DirectLine
from pytest_pinchbench.harnesses.openclaw import OpenClawHarness
from pytest_pinchbench.harnesses.openclaw.compile_cache import NAME
from pytest_pinchbench.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.openclaw]

SCRIPT = parse_script(
    """
    turns:
      - when: greet me
        steps:
          - Hello.
    """
)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as served:
        yield served


@pytest.mark.parametrize("release", ["2026.3.22", "2026.9.6"])
def test_the_first_sandbox_fills_it_and_the_next_one_runs_from_it(
    tmp_path: Path,
    settings_for: Callable[..., Settings],
    model: ScriptedModel,
    release: str,
) -> None:
    try:
        image = runner_image.openclaw(release)
    except runner_image.Missing as missing:
        pytest.skip(str(missing))
    recipe = Recipe("docker", "docker", image=image, options={"network": "host"})
    environment = DockerEnvironment(EnvironmentSetup(recipe, "run", tmp_path))
    harness = OpenClawHarness(
        settings_for(
            f"--pinchbench-model-base-url={model.url}", "--pinchbench-openclaw-install=preinstalled"
        )
    )
    harness.prepare(environment)
    task = make_task("Please greet me.")
    kept: list[dict[Path, float]] = []

    for _ in range(2):
        sandbox = environment.open(task.id, labels={"run": "run"}, lifetime=600)
        try:
            workspace = f"{sandbox.workspace_root}/task"
            line = DirectLine(harness.settings.model, environment, 300.0)
            sandbox.write({workspace: None, **harness.files(sandbox, task, workspace, line)})
            ended = harness.run(sandbox, task, workspace, line)
            shared = environment.shared_folder(NAME.format(version=ended.version))
            assert shared is not None
            debug = {"NODE_COMPILE_CACHE": shared.inside, "NODE_DEBUG_NATIVE": "COMPILE_CACHE"}
            loads = sandbox.exec(["openclaw", "--version"], env=debug).stderr.decode()
        finally:
            sandbox.close()
        assert (ended.final_answer, ended.issues) == ("Hello.", ())
        assert "was accepted" in loads
        kept.append(_files(shared))

    assert len(kept[0]) > 100  # the modules of a whole turn
    assert kept[1] == kept[0]
    assert len(model.requests) == 2  # no warm-up is paid for


def _files(shared: SharedFolder) -> dict[Path, float]:
    files = [path for path in shared.here.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files)
    return {path: path.stat().st_mtime for path in files}
