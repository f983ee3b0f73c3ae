"""The table of options, and its registration with pytest.

A row of :data:`OPTIONS` is a command line option ``--pinchbench-NAME``, an ini value
``pinchbench_NAME``, perhaps environment variables, and places in the YAML file.
:func:`pytest_pinchbench.settings.resolve` makes the run's settings of them.

This module is imported by every pytest of a project that has the plugin installed: it imports
nothing that pytest does not, and makes no dataclasses, which take milliseconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

INSTALL_STRATEGIES = ("auto", "preinstalled", "install_if_missing", "install_always", "upload")

# Readers: what is valid. Each takes a value as its source has it (text, or a YAML or JSON
# value) and the folder that relative paths are meant from. ValueError completes "OPTION ...".

Reader = Callable[[Any, Path], Any]


def read_text(raw: Any, base: Path) -> str:
    # the value is not quoted in the message: it may be a key
    if not isinstance(raw, str):
        raise ValueError("has to be text; in YAML, put it in quotes")
    if not raw.strip():
        raise ValueError("is empty")
    if not raw.strip().isprintable():
        raise ValueError("holds a line break or a control character")
    return raw.strip()


def read_path(raw: Any, base: Path) -> Path:
    try:
        return Path(base, Path(read_text(raw, base)).expanduser())
    except RuntimeError:
        raise ValueError(f"names the home of a user who is not there: {raw}") from None


def _run_directory(raw: Any, base: Path) -> str:
    """A path, as text; ``latest`` is the newest run in the results directory."""
    return raw if raw == "latest" else str(read_path(raw, base))


def _url(raw: Any, base: Path) -> str:
    from urllib.parse import urlsplit

    url = read_text(raw, base)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # no number where the port should be
        usable = False
    if not usable or re.search(r"\s", url):
        raise ValueError("has to be a URL that begins with http:// or https://")
    return url.rstrip("/")


def _model_url(raw: Any, base: Path) -> str:
    """OpenClaw adds the path of the protocol by itself, whatever is there already."""
    from urllib.parse import urlsplit

    url = _url(raw, base)
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/responses", "/messages"):
        if path.endswith(ending):
            host = parts.netloc.rpartition("@")[2]  # user, password and query may be keys
            right = f"{parts.scheme}://{host}{path.removesuffix(ending)}"
            raise ValueError(f"has to end before {ending}: {right}")
    return url


def _yes_no(raw: Any, base: Path) -> bool:
    words = {"yes": True, "true": True, "on": True, "1": True}
    words |= {"no": False, "false": False, "off": False, "0": False}
    word = str(raw).lower()
    if word not in words:
        raise ValueError(f"has to be yes or no, not {raw!r}; before a path, write =yes")
    return words[word]


def _whole_number(least: int) -> Reader:
    def read(raw: Any, base: Path) -> int:
        try:
            if isinstance(raw, (bool, float)):
                raise ValueError
            number = int(raw)
        except (TypeError, ValueError):
            raise ValueError(f"has to be a whole number, not {raw!r}") from None
        if number < least:
            raise ValueError(f"has to be {least} or more, not {number}")
        return number

    return read


def _number(*, above: float | None = None, least: float = 0, most: float = math.inf) -> Reader:
    def read(raw: Any, base: Path) -> float:
        try:
            if isinstance(raw, bool):
                raise ValueError
            number = float(raw)
        except (TypeError, ValueError):
            raise ValueError(f"has to be a number, not {raw!r}") from None
        if not math.isfinite(number) or number < least or number > most:
            limits = f"from {least} to {most}" if math.isfinite(most) else f"of {least} or more"
            raise ValueError(f"has to be a finite number {limits}, not {raw!r}")
        if above is not None and number <= above:
            raise ValueError(f"has to be more than {above}, not {raw!r}")
        return number

    return read


def _choice(*known: str) -> Reader:
    def read(raw: Any, base: Path) -> str:
        if raw in known:
            return str(raw)
        from pytest_pinchbench.spelling import nearest

        raise ValueError(f"has to be one of {', '.join(known)}, not {raw!r}{nearest(raw, known)}")

    return read


def read_mapping(raw: Any, base: Path) -> dict[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError as error:
            raise ValueError(f"has to be a JSON object: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError("has to be a mapping (as JSON: an object)")
    try:
        json.dumps(raw, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"holds a value that JSON does not have: {error}") from None
    return raw


def read_words(raw: Any, base: Path) -> tuple[str, ...]:
    """Words in order: a list, or text with commas or line breaks between them."""
    parts = raw if isinstance(raw, (list, tuple)) else [raw]
    words = [
        word.strip()
        for part in parts
        for word in re.split(r"[,\n]", _one_text(part))
        if word.strip()
    ]
    if not words:
        raise ValueError("is empty")
    return tuple(dict.fromkeys(words))


def _one_text(part: Any) -> str:
    if not isinstance(part, str):
        raise ValueError(f"has to be text or a list of text, not {part!r}")
    return part


def _runs(raw: Any, base: Path) -> tuple[str, ...]:
    parts = raw if isinstance(raw, (list, tuple)) else read_words(raw, base)
    return tuple(_run_directory(part, base) for part in parts)


def _suite(raw: Any, base: Path) -> str | tuple[str, ...]:
    if isinstance(raw, str) and raw.strip() in ("all", "automated-only"):
        return raw.strip()
    return read_words(raw, base)


def _paths(raw: Any, base: Path) -> tuple[Path, ...]:
    # given as options, paths come as a list and may hold commas
    parts = raw if isinstance(raw, (list, tuple)) else read_words(raw, base)
    return tuple(read_path(part, base) for part in parts)


def _version(raw: Any, base: Path) -> str:
    version = read_text(raw, base)
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+-]*", version):
        raise ValueError(f"has to be a version such as 2026.3.22, or latest, not {version!r}")
    return version


class Option(NamedTuple):
    """One row of the table."""

    name: str
    """As in ``--pinchbench-NAME``; with ``_`` for ``-`` in the ini file and in ``origins``."""
    read: Reader
    help: str
    default: Any = None
    """As a user would write it. None: the option has no value unless one is given."""
    metavar: str | None = None
    env: tuple[str, ...] = ()
    """Environment variables, the first that is set and not empty counting."""
    yaml: tuple[str, ...] = ()
    """Places in the YAML file."""
    secret: bool = False
    several: bool = False

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


_FRACTION = _number(most=1)
_SECONDS = _number(above=0)
_PROTOCOL = _choice("openai-chat", "openai-responses", "anthropic")
_INSTALL = _choice(*INSTALL_STRATEGIES)

BENCHMARK = "benchmarks.pinchbench"
"""The place in the YAML file that holds the fields which --pinchbench-params has, too."""

# for the column of places below
_B = f"{BENCHMARK}."
_H = "harnesses.openclaw."
_E = "execution."
_M = "models.*."

OPTIONS: tuple[Option, ...] = (
    # what to run
    Option(
        "suite",
        _suite,
        "tasks to run: all, automated-only, or task ids with commas between them, in that order",
        "all",
        "SUITE",
        yaml=(_B + "suite",),
    ),
    Option(
        "limit",
        _whole_number(0),
        "run only the first N of them; 0 means all",
        0,
        "N",
        yaml=(_B + "limit",),
    ),
    Option(
        "sample-ids",
        read_words,
        "of those, run only these task ids, with commas between them, in that order",
        metavar="IDS",
        yaml=(_B + "sample_ids",),
        several=True,
    ),
    Option(
        "skill-dir",
        read_path,
        "skill checkout that holds tasks/ and assets/; without it, the skill repository is cloned",
        metavar="DIR",
        env=("PINCHBENCH_SKILL_DIR", "AGENTCOMPASS_PINCHBENCH_SKILL_DIR"),
    ),
    Option(
        "skill-repo-url",
        read_text,
        "git repository to clone the suite from",
        "https://github.com/pinchbench/skill.git",
        "URL",
        yaml=(_B + "skill_repo_url",),
    ),
    Option(
        "skill-repo-tag", read_text, "tag to clone", "v1.1.0", "TAG", yaml=(_B + "skill_repo_tag",)
    ),
    Option(
        "data-dir",
        read_path,
        "where clones and installed OpenClaw versions are kept"
        " (default: this user's data directory)",
        metavar="DIR",
        yaml=(_E + "data_dir",),
    ),
    Option(
        "params",
        read_mapping,
        'settings of the benchmark as JSON: {"suite": ..., "judge_model": {"id": ...}, ...};'
        " an option given beside it counts more",
        metavar="JSON",
    ),
    Option("config", read_path, "YAML file with settings", metavar="FILE"),
    # model under test
    Option(
        "model",
        read_text,
        "model under test: its id, or the name of an entry of models in the YAML file;"
        " also --model",
        metavar="ID",
        env=("MODEL_NAME",),
    ),
    Option(
        "model-base-url",
        _model_url,
        "endpoint of the model; without it, the id goes to OpenClaw as it is (openrouter/...)",
        metavar="URL",
        env=("MODEL_BASE_URL",),
        yaml=(_M + "base_url",),
    ),
    Option(
        "model-api-key",
        read_text,
        "API key of the model; better given as MODEL_API_KEY, which no process list shows",
        metavar="KEY",
        env=("MODEL_API_KEY",),
        yaml=(_M + "api_key",),
        secret=True,
    ),
    Option(
        "model-api-protocol",
        _PROTOCOL,
        "openai-chat, openai-responses or anthropic",
        "openai-chat",
        "PROTOCOL",
        yaml=(_M + "api_protocol",),
    ),
    Option(
        "model-params",
        read_mapping,
        "parameters for every request to the model, as JSON",
        metavar="JSON",
        yaml=(_M + "params",),
    ),
    Option(
        "context-window",
        _whole_number(1),
        "tokens that OpenClaw takes the model's context to hold; it compacts longer talks",
        250_000,
        "TOKENS",
        yaml=(_M + "context_window", _H + "context_window"),
    ),
    Option(
        "max-tokens",
        _whole_number(1),
        "tokens that one answer of the model may have",
        8192,
        "TOKENS",
        yaml=(_M + "max_tokens", _H + "max_tokens"),
    ),
    # judge
    Option(
        "judge-model",
        read_text,
        "id of the model that judges llm_judge and hybrid tasks",
        metavar="ID",
        env=("JUDGE_MODEL_NAME",),
        yaml=(_B + "judge_model.id",),
    ),
    Option(
        "judge-base-url",
        _url,
        "endpoint of the judge (default: that of the model)",
        metavar="URL",
        env=("JUDGE_MODEL_BASE_URL",),
        yaml=(_B + "judge_model.base_url",),
    ),
    Option(
        "judge-api-key",
        read_text,
        "API key of the judge (default: that of the model); better given as JUDGE_MODEL_API_KEY",
        metavar="KEY",
        env=("JUDGE_MODEL_API_KEY",),
        yaml=(_B + "judge_model.api_key",),
        secret=True,
    ),
    Option(
        "judge-api-protocol",
        _PROTOCOL,
        "protocol of the judge (default: that of the model)",
        metavar="PROTOCOL",
        yaml=(_B + "judge_model.api_protocol",),
    ),
    Option(
        "judge-params",
        read_mapping,
        "parameters for every request to the judge, as JSON",
        metavar="JSON",
        yaml=(_B + "judge_model.params",),
    ),
    Option(
        "judge-timeout",
        _SECONDS,
        "seconds for one request to the judge",
        360,
        "SECONDS",
        yaml=(_B + "judge_timeout_seconds",),
    ),
    Option(
        "transcript-limit",
        _whole_number(1000),
        "characters of a transcript that the judge is shown at most",
        60_000,
        "N",
        yaml=(_B + "transcript_limit",),
    ),
    # sandbox
    Option(
        "env",
        read_text,
        "kind of sandbox: local, docker, daytona, modal, or that of a plugin",
        "docker",
        "KIND",
        yaml=(_E + "environment",),
    ),
    Option(
        "recipe",
        read_text,
        "recipe of the sandbox: a name, or a YAML file (default: the one called as the kind)",
        metavar="NAME|FILE",
        yaml=(_E + "recipe",),
    ),
    Option("image", read_text, "image of the sandbox, whatever the recipe says", metavar="IMAGE"),
    Option(
        "workspace-root",
        read_text,
        "folder in the sandbox where workspaces are made, whatever the recipe says",
        metavar="DIR",
    ),
    Option(
        "keep-environment",
        _yes_no,
        "leave sandboxes in place, and say how to get in and how to remove them",
        "no",
        yaml=(_E + "keep_environment",),
    ),
    Option(
        "show-recipe",
        _yes_no,
        "print the recipe that would be used, and where each value comes from",
        "no",
    ),
    # agent
    Option(
        "harness", read_text, "agent that runs the tasks: openclaw, or that of a plugin", "openclaw"
    ),
    Option(
        "openclaw-version",
        _version,
        "OpenClaw release to install, or to insist on",
        metavar="VERSION",
        yaml=(_H + "version", _H + "openclaw_version"),
    ),
    Option(
        "openclaw-install",
        _INSTALL,
        "auto, preinstalled, install_if_missing, install_always or upload",
        "auto",
        "STRATEGY",
        yaml=(_H + "install_strategy",),
    ),
    Option(
        "openclaw-binary",
        read_text,
        "the openclaw command in the sandbox, where it is not on PATH",
        metavar="PATH",
        yaml=(_H + "binary",),
    ),
    Option(
        "skip-bootstrap",
        _yes_no,
        "keep OpenClaw from putting its own files into the workspace",
        "no",
        yaml=(_H + "skip_bootstrap",),
    ),
    Option(
        "new-session",
        _yes_no,
        "begin a new session at prompts that say new_session",
        "no",
        yaml=(_H + "new_session",),
    ),
    Option(
        "brave-api-key",
        read_text,
        "key for OpenClaw's web search; better given as BRAVE_API_KEY",
        metavar="KEY",
        env=("BRAVE_API_KEY",),
        yaml=(_H + "brave_api_key",),
        secret=True,
    ),
    # how often, how long
    Option(
        "attempts",
        _whole_number(1),
        "times that each task is run; its scores are averaged",
        1,
        "K",
        yaml=(_E + "attempts",),
    ),
    Option(
        "retries",
        _whole_number(0),
        "times that an attempt without a score is tried again",
        0,
        "N",
        yaml=(_E + "max_retries",),
    ),
    Option(
        "timeout-multiplier",
        _number(above=0),
        "factor for the time that each task gives the agent",
        1.0,
        "FACTOR",
        yaml=(_E + "timeout_multiplier", _B + "timeout_multiplier"),
    ),
    Option(
        "evaluation-timeout",
        _SECONDS,
        "seconds for all of a task's grading, with repeated requests to the judge"
        " (default: no limit)",
        metavar="SECONDS",
        yaml=(_E + "evaluation_timeout_seconds", _B + "evaluation_timeout_seconds"),
    ),
    Option(
        "evaluation-timeout-multiplier",
        _number(above=0),
        "factor for --pinchbench-evaluation-timeout",
        1.0,
        "FACTOR",
        yaml=(_E + "evaluation_timeout_multiplier", _B + "evaluation_timeout_multiplier"),
    ),
    Option(
        "check-timeout",
        _SECONDS,
        "seconds for the automated checks of one task",
        120,
        "SECONDS",
        yaml=(_E + "check_timeout_seconds", _B + "check_timeout_seconds"),
    ),
    Option(
        "model-check",
        _yes_no,
        "before the first task, try the model with one tiny request",
        "yes",
        yaml=(_E + "model_check",),
    ),
    Option(
        "judge-check",
        _yes_no,
        "before the first task, try the judge with one tiny request",
        "yes",
        yaml=(_E + "judge_check",),
    ),
    Option(
        "keep-going",
        _yes_no,
        "go on when the sanity task scores 0",
        "no",
        yaml=(_E + "keep_going",),
    ),
    Option(
        "budget-usd",
        _number(above=0),
        "start no further task once the run has cost this much (default: no limit)",
        metavar="USD",
        yaml=(_E + "budget_usd",),
    ),
    # what comes out
    Option(
        "results-dir",
        read_path,
        "where runs are recorded",
        "pinchbench-results",
        "DIR",
        yaml=(_E + "results_dir",),
    ),
    Option(
        "keep-workspace",
        _yes_no,
        "keep what the agent left in the workspace with the records",
        "yes",
        yaml=(_E + "keep_workspace",),
    ),
    Option(
        "resume",
        _run_directory,
        "go on with an earlier run: its directory, or latest",
        metavar="RUN_DIR",
    ),
    Option(
        "regrade",
        _run_directory,
        "grade the kept work of an earlier run again, without running an agent: its directory,"
        " or latest",
        metavar="RUN_DIR",
    ),
    Option(
        "merge",
        _paths,
        "put the records of runs of parts of a suite together, and judge them as one run;"
        " may be given again",
        metavar="RUN_DIR",
        several=True,
    ),
    Option(
        "compare",
        _runs,
        "compare with an earlier run: its directory, its summary.json, or latest;"
        " may be given again",
        metavar="RUN",
        several=True,
    ),
    Option(
        "compare-fail",
        _FRACTION,
        "fail when the mean is significantly lower than the compared run's, by more than this",
        metavar="DROP",
    ),
    Option(
        "fail-under",
        _FRACTION,
        "let the mean score decide the exit code: fail when it is lower (0.8)",
        metavar="MEAN",
        yaml=(_E + "fail_under",),
    ),
    Option(
        "pass-mark",
        _FRACTION,
        "score at which a task passes",
        1.0,
        "SCORE",
        yaml=(_E + "pass_mark",),
    ),
)


_ASK = ("help", "version", "markers", "cacheshow")
_LOOK = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")


def only_asks(config: pytest.Config) -> bool:
    """Whether pytest is only to say something, and collects nothing: ``--help``."""
    return any(config.getoption(name, None) for name in _ASK)


def only_looks(config: pytest.Config) -> bool:
    """Whether pytest collects tasks, but runs none: ``--collect-only``."""
    return any(config.getoption(name, None) for name in _LOOK)


def add_options(parser: pytest.Parser) -> None:
    """Register ``--pinchbench``, every option of the table, and their ini values."""
    group = parser.getgroup("pinchbench", "PinchBench: measure a model behind an OpenClaw agent")
    group.addoption(
        "--pinchbench", action="store_true", help="run PinchBench instead of the project's tests"
    )
    for option in OPTIONS:
        shape: dict[str, Any] = {"metavar": option.metavar}
        if option.read is _yes_no:
            # a bare option means yes
            shape = {"nargs": "?", "const": "yes", "metavar": "yes|no"}
        elif option.several:
            shape["action"] = "append"
        text = option.help
        if option.default is not None:
            text += f" (default: {option.default})"
        group.addoption(
            f"--pinchbench-{option.name}", dest=f"pinchbench_{option.key}", help=text, **shape
        )
        parser.addini(f"pinchbench_{option.key}", text, default=None)


def add_model_option(parser: pytest.Parser) -> None:
    """Register the bare ``--model``, for runs that say ``--pinchbench``.

    ``ValueError`` when the project has an option of that name.
    """
    group = parser.getgroup("pinchbench")
    group.addoption(
        "--model", dest="pinchbench_model", metavar="ID", help="short for --pinchbench-model"
    )
