from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from stand_in import StandIn

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox
from pytest_pinchbench.environments.local import LocalEnvironment
from pytest_pinchbench.harnesses.openclaw.config import UNKNOWN, parse_version
from pytest_pinchbench.harnesses.openclaw.versions import image_version


class ElsewhereEnvironment(LocalEnvironment):
    """Local sandboxes that claim to be those of an image somewhere else."""

    on_this_machine = False
    image = "sha256:one"

    def image_id(self) -> str:
        return self.image


@pytest.fixture
def environment(tmp_path: Path) -> ElsewhereEnvironment:
    recipe = Recipe("local", "local", workspace_root=str(tmp_path / "sandboxes"))
    return ElsewhereEnvironment(EnvironmentSetup(recipe, "run", tmp_path / "data"))


@pytest.fixture
def ask(
    environment: ElsewhereEnvironment, stand_in: StandIn, tmp_path: Path
) -> Callable[[], str | None]:
    def version() -> str | None:
        sandbox: Sandbox = environment.open("task", labels={}, lifetime=60)
        try:
            return image_version(sandbox, [str(stand_in.path)], environment, tmp_path / "data")
        finally:
            sandbox.close()

    return version


def test_an_image_is_asked_once(ask: Callable[[], str | None], stand_in: StandIn) -> None:
    assert [ask(), ask()] == ["2026.9.6", "2026.9.6"]
    assert stand_in.times_asked == 1


def test_several_at_once_ask_once(ask: Callable[[], str | None], stand_in: StandIn) -> None:
    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stand_in.times_asked == 1


def test_another_image_is_asked_anew(
    ask: Callable[[], str | None], stand_in: StandIn, environment: ElsewhereEnvironment
) -> None:
    ask()
    environment.image = "sha256:two"
    ask()
    assert stand_in.times_asked == 2


def test_what_is_on_this_machine_may_change_and_is_not_remembered(
    ask: Callable[[], str | None], stand_in: StandIn, environment: ElsewhereEnvironment
) -> None:
    environment.on_this_machine = True
    assert [ask(), ask()] == ["2026.9.6", "2026.9.6"]
    assert stand_in.times_asked == 2


def test_a_missing_program_is_not_remembered(
    ask: Callable[[], str | None], stand_in: StandIn
) -> None:
    stand_in.path.rename(stand_in.path.with_suffix(".away"))
    assert ask() is None
    stand_in.path.with_suffix(".away").rename(stand_in.path)
    assert ask() == "2026.9.6"


def test_a_broken_cache_is_as_good_as_none(ask: Callable[[], str | None], tmp_path: Path) -> None:
    ask()
    (cache,) = (tmp_path / "data" / "cache").glob("*.json")
    cache.write_text('{"torn')
    assert ask() == "2026.9.6"


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("OpenClaw 2026.9.6 (eb377ac)", (2026, 9, 6)),
        ("2026.3.22", (2026, 3, 22)),
        ("2026.10.1-beta.2", (2026, 10, 1)),
        ("OpenClaw dev (main)", UNKNOWN),
    ],
)
def test_versions_are_compared_as_numbers(said: str, version: tuple[int, ...]) -> None:
    assert parse_version(said) == version


def test_an_unknown_version_is_taken_for_the_newest() -> None:
    assert UNKNOWN > (2030, 1, 1)
