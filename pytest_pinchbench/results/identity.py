"""Identity of a run: everything that a score depends on, and what differs between two runs.

A resume or a merge is refused between different identities; a comparison notes each difference
(rules: scoring, "Identity"). Options belong to it by what their row in the table ``affects``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from pytest_pinchbench.environments import Environment, Recipe, Sandbox
from pytest_pinchbench.environments.recipe_options import LIMITS
from pytest_pinchbench.harnesses import Harness
from pytest_pinchbench.issues import PinchBenchError
from pytest_pinchbench.options import OPTIONS, Option
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.suite.checkout import read_skills
from pytest_pinchbench.suite.load import suite_digest, suite_rules
from pytest_pinchbench.suite.manifest import Rules

Identity = dict[str, Any]

_COUNTED = [option for option in OPTIONS if option.affects and option.place not in ("", "recipe")]
"""Options whose values are part of an identity as such. A recipe's contents count one by one, and
not its name."""
_FOR_THE_USER_ONLY = {*LIMITS, "pull"}
"""Options of a recipe that no score depends on."""

GRADING = (
    *(option.key for option in _COUNTED if option.affects == "grading"),
    *("suite", "grader"),
)
"""Names in an identity that a grade depends on; the agent's work depends on the others."""


_SANDBOX = "sandbox."
_IMAGE = "sandbox.image"
_ASK = "import os, platform; print(platform.python_version(), 'user' if os.getuid() else 'root')"
_ASK_TIMEOUT_S = 60.0


class Difference(NamedTuple):
    """One name whose values differ between two identities, as text for people."""

    name: str
    old: str
    new: str


def identity_of(settings: Settings, suite_roots: Sequence[Path]) -> Identity:
    """Return the identity of a run, as JSON values without secrets."""
    value = {
        **{option.key: _value(option, settings) for option in _COUNTED},
        **dict(_of_recipe(settings.recipe)),
        **{f"harness_settings.{name}": one for name, one in settings.harness_settings.items()},
        **dict(_of_rules(settings, [suite_rules(root) for root in suite_roots])),
        "skills": settings.skills and _skills_digest(settings.skills),
        "suite": sorted(suite_digest(root) for root in suite_roots),
        "grader": _grader_digest(),
        "pytest-pinchbench": ".".join(version("pytest-pinchbench").split(".")[:2]),
    }
    plain: Identity = json.loads(json.dumps(value, default=str))
    return plain


def regraded(earlier: Identity, today: Identity) -> Identity:
    """Return the identity of earlier work that is graded as today."""
    return {**earlier, **{name: today[name] for name in GRADING}}


def sandbox_facts(
    sandbox: Sandbox, environment: Environment, harness: Harness
) -> dict[str, str | None]:
    """Return what of an identity is known in a sandbox only. Raises as its methods do."""
    asked = sandbox.exec([sandbox.python, "-I", "-S", "-c", _ASK], timeout=_ASK_TIMEOUT_S)
    python, _, user = asked.stdout.decode(errors="replace").strip().partition(" ")
    return {
        "sandbox.agent": harness.version(sandbox),
        "sandbox.image": environment.image_digest(),
        "sandbox.python": python,
        "sandbox.user": user,
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Compare two identities, given the ``run.json`` or the summary of each run.

    A name that one of them lacks differs unless its value is null, or it is a fact about the
    sandbox, which is not known yet. An image's digest, where it is known, decides instead of
    the image's name.
    """
    was, now = old["identity"], new["identity"]
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    known = {name for name in names if None not in (was.get(name), now.get(name))}
    digests = None not in (was.get(_IMAGE), now.get(_IMAGE))
    return [
        Difference(name, _shown(name, old), _shown(name, new))
        for name in names
        if (name in known or not name.startswith(_SANDBOX)) and not (digests and name == "image")
    ]


def check_same_experiment(
    what: str, old: Mapping[str, Any], new: Mapping[str, Any], regrade_hint: str = ""
) -> None:
    """Raise ``PinchBenchError`` that shows each difference between two identities.

    ``what`` completes "cannot ..."; ``regrade_hint`` is added where only the grading differs.
    Images that were built locally may differ, where nothing else in the sandbox does: each job
    of a CI system builds its own.
    """
    found = differences(old, new)
    in_sandbox = [one for one in found if one.name.startswith(_SANDBOX)]
    local = all(str(run["identity"].get(_IMAGE)).startswith("local ") for run in (old, new))
    if local and [one.name for one in in_sandbox] == [_IMAGE]:
        found.remove(in_sandbox[0])
    if found:
        shown = "".join(f"\n  {name}: {was} there, {now} here" for name, was, now in found)
        hint = f"\n{regrade_hint}" if {one.name for one in found} <= set(GRADING) else ""
        raise PinchBenchError(f"cannot {what}: settings differ:{shown}{hint}")


def _value(option: Option, settings: Settings) -> Any:
    value: Any = settings
    for name in option.place.split("."):
        value = getattr(value, name, None)  # without a judge, its fields are None
    return bool(value) if option.secret else value


def _of_rules(settings: Settings, rules: Sequence[Rules]) -> Iterator[tuple[str, Any]]:
    """Give what the suites decide where the settings do not."""
    for name in ("judge_view", "new_session"):
        by_suite = {getattr(one, name) for one in rules}
        given = getattr(settings, name)
        known = by_suite.pop() if len(by_suite) == 1 else "by suite"
        yield name, known if given is None else given


def _of_recipe(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    yield "recipe.openclaw_install", recipe.openclaw_install
    yield "recipe.variables", sorted({*recipe.env, *recipe.pass_env})
    for name, value in recipe.options.items():
        if name not in _FOR_THE_USER_ONLY:
            yield f"recipe.options.{name}", value


def _skills_digest(folder: Path) -> str:
    content = repr(sorted(read_skills(folder).items()))
    return hashlib.sha256(content.encode()).hexdigest()


@lru_cache
def _grader_digest() -> str:
    """SHA-256 over the grader's program."""
    digest = hashlib.sha256()
    for source in sorted(files("pytest_pinchbench.grader").iterdir(), key=lambda one: one.name):
        if source.name.endswith(".py"):
            content = hashlib.sha256(source.read_bytes()).digest()
            digest.update(source.name.encode() + b"\0" + content)
    return digest.hexdigest()


def _shown(name: str, run: Mapping[str, Any]) -> str:
    value = run["identity"].get(name)
    if name != "suite":
        return json.dumps(value)
    commits = ", ".join(f"{suite} at {commit}" for suite, commit in run["suites"].items())
    digests = ", ".join(digest[:12] for digest in value or ())
    return f"{commits.replace(' at None', ' in no git repository')} (digest {digests})"
