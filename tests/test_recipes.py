"""Recipes: the YAML files that describe a sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, find_environment
from pytest_pinchbench.issues import SettingsError
from pytest_pinchbench.settings.recipes import (
    Layer,
    describe_recipe,
    load_recipe,
    recipe_names,
)

NAMES = ["bubblewrap", "daytona", "docker", "docker-hardened", "local", "modal"]
IMAGE = "ailabdocker/ac-openclaw:pinchbench-v1"


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SettingsError) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """``write(text)`` writes a recipe file and gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


# -- the recipes that come with the project ---------------------------------------------------


def test_there_is_a_recipe_for_every_kind() -> None:
    assert recipe_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_for_the_kind_it_is_called_after(name: str) -> None:
    recipe = load_recipe(name)
    assert (recipe.name, recipe.environment) == (name, name.partition("-")[0])


@pytest.mark.parametrize("name", ["daytona", "docker", "docker-hardened", "modal"])
def test_every_remote_sandbox_has_the_image_and_the_workspace_root(name: str) -> None:
    recipe = load_recipe(name)
    assert (recipe.image, recipe.workspace_root) == (IMAGE, "/workspace")
    assert recipe.openclaw_install == "preinstalled"


def test_the_local_recipe_has_no_image_and_installs_openclaw() -> None:
    recipe = load_recipe("local")
    assert (recipe.image, recipe.workspace_root) == (None, None)
    assert recipe.openclaw_install == "install_if_missing"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_that_a_recipe_offers_can_be_switched_on(
    name: str, write: Callable[[str], str], tmp_path: Path
) -> None:
    """People take the ``# `` off a ``# key: value`` and expect it to work."""
    text = (Path(__file__).parents[1] / "recipes" / f"{name}.yaml").read_text()
    recipe = load_recipe(write(re.sub(r"(?m)^( *)# (\w+: \S+|\w+: [\[{\"].*)$", r"\1\2", text)))
    offered = set(re.findall(r"(?m)^  (?:# )?(\w+):", text))
    assert set(recipe.options) == offered
    setup = EnvironmentSetup(recipe=recipe, run_id="x", data_dir=tmp_path)
    assert find_environment(recipe.environment)(setup).kind == recipe.environment


# -- a recipe of one's own --------------------------------------------------------------------


def test_every_key_of_a_recipe_file_is_read(write: Callable[[str], str]) -> None:
    path = write(
        "environment: docker\nimage: me/image:1\nworkspace_root: /space/\n"
        "openclaw_install: upload\nenv: {A: text, B: 2}\npass_env: [C]\n"
        "options: {cpus: 2, extra_hosts: [a:1.2.3.4]}\n"
    )
    assert load_recipe(path) == Recipe(
        name="mine",
        environment="docker",
        image="me/image:1",
        workspace_root="/space",
        openclaw_install="upload",
        env={"A": "text", "B": "2"},
        pass_env=("C",),
        options={"cpus": 2, "extra_hosts": ["a:1.2.3.4"]},
    )


def test_only_the_environment_has_to_be_given(write: Callable[[str], str]) -> None:
    path = write("environment: vendor\nimage:\noptions:\n")
    assert load_recipe(path) == Recipe(name="mine", environment="vendor")


def test_a_relative_file_is_meant_from_the_given_folder(
    write: Callable[[str], str], tmp_path: Path
) -> None:
    write("environment: docker\n")
    assert load_recipe("mine.yaml", tmp_path).name == "mine"
    assert load_recipe("./mine.yaml", tmp_path).name == "mine"


def layer(origin: str, **keys: object) -> Layer:
    return Layer(keys, lambda *place: origin)


def test_what_is_given_goes_over_what_the_file_says_key_by_key(
    write: Callable[[str], str],
) -> None:
    path = write("environment: docker\nimage: a\nenv: {A: 1, B: 1}\noptions: {cpus: 1, x: 1}\n")
    recipe = load_recipe(
        path,
        by_kind={"docker": layer("file", image="b", env={"B": 2}, options={"cpus": 2})}.get,
        given=[layer("--pinchbench-image", image="c")],
    )
    assert recipe.image == "c"
    assert recipe.env == {"A": "1", "B": "2"}
    assert recipe.options == {"cpus": 2, "x": 1}
    assert recipe.origins["image"] == "--pinchbench-image"
    assert recipe.origins["env.A"] == f"{path}:3"
    assert recipe.origins["env.B"] == "file"
    assert recipe.origins["options.x"] == f"{path}:4"


def test_settings_for_another_kind_do_not_matter() -> None:
    assert load_recipe("docker", by_kind={"modal": layer("file", image="x")}.get).image == IMAGE


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image: x", ":1: a recipe has to say its environment: docker, local, daytona, modal"),
        ("", ":1: has to be a mapping"),
        ("- docker", ":1: has to be a mapping"),
        ("environment: docker\nimage: [", ":3: not valid YAML"),
        ("environment: docker\nimage: a\nimage: b", ":3: the key 'image' is there twice"),
        (
            "environment: docker\nworkspace-root: /x",
            ":2: unknown key 'workspace-root', did you",
        ),
        ("environment: docker\nmemory: 1g", ":2: unknown key 'memory'; there are: environment, im"),
        ("environment: docker\nimage: 3", ":2: image has to be text without spaces, not 3"),
        ("environment: docker\nworkspace_root: x", "workspace_root has to be an absolute path"),
        ("environment: docker\nworkspace_root: /../x", "workspace_root has to be an absolute path"),
        ("environment: docker\nopenclaw_install: instal", "openclaw_install has to be one of auto"),
        ("environment: docker\nenv: [A]", ":2: env has to be a mapping of variables"),
        ("environment: docker\nenv: {A B: 1}", "env holds 'A B', which cannot be the name of"),
        ("environment: docker\nenv: {A: yes}", "env has a value of A that is not text; put it in"),
        ("environment: docker\npass_env: A", "pass_env has to be a list of names of variables"),
        ("environment: docker\npass_env: [A=1]", "pass_env holds 'A=1', which cannot be the"),
        ("environment: docker\noptions: [a]", "options has to be a mapping"),
        ("environment: docker\noptions: {a: 2026-01-01}", "options holds a value that JSON does"),
    ],
)
def test_mistakes_name_file_line_and_reason(
    write: Callable[[str], str], text: str, message: str
) -> None:
    path = write(text)
    error = refused(lambda: load_recipe(path))
    assert error.startswith(f"{path}:")
    assert message in error


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert refused(lambda: load_recipe("dockr")) == (
        "no recipe or environment called 'dockr', did you mean 'docker'?"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = refused(lambda: load_recipe("none.yaml", tmp_path))
    assert message == (
        f"recipe none.yaml: cannot read {tmp_path / 'none.yaml'}: No such file or directory"
    )


# -- what is shown ----------------------------------------------------------------------------


def test_a_recipe_is_shown_with_where_each_value_comes_from(write: Callable[[str], str]) -> None:
    path = write(
        "environment: docker\nenv: {A: 1, MY_TOKEN: sekrit}\npass_env: [B]\noptions: {cpus: 2}\n"
    )
    recipe = load_recipe(path, given=[layer("--pinchbench-image", image="me/image")])
    rows = [line.split() for line in describe_recipe(recipe).splitlines()]
    assert rows == [
        ["recipe", "mine"],
        ["environment", "docker", "#", f"{path}:1"],
        ["image", "me/image", "#", "--pinchbench-image"],
        ["workspace_root", "-", "#", "not", "given"],
        ["openclaw_install", "-", "#", "not", "given"],
        ["env.A", "1", "#", f"{path}:2"],
        ["env.MY_TOKEN", "[redacted]", "#", f"{path}:2"],
        ["pass_env", "B", "#", f"{path}:3"],
        ["options.cpus", "2", "#", f"{path}:4"],
    ]
