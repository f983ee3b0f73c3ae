"""The table of options, and its registration with pytest.

A row of :data:`OPTIONS` holds every fact about an option: it is a command line option
``--pinchbench-NAME``, an ini value ``pinchbench_NAME``, perhaps environment variables and
places in the YAML file, and fills a field of the run's settings
(:func:`pytest_pinchbench.settings.resolve.resolve`). What a row ``affects`` decides whether the
value belongs to a run's identity (``results/identity.py``).

This module is imported by every pytest of a project that has the plugin installed: it imports
nothing that pytest does not, and makes no dataclasses, which take milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_pinchbench import readers
from pytest_pinchbench.readers import Reader

if TYPE_CHECKING:
    import pytest

INSTALL_STRATEGIES = ("auto", "preinstalled", "install_if_missing", "install_always", "upload")
THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "adaptive")
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic")
JUDGE_VIEWS = ("reference", "full")
BENCHMARK = "benchmarks.pinchbench"
"""The place in the YAML file that holds the fields which --pinchbench-params has, too."""


class Option(NamedTuple):
    """One row of the table."""

    name: str
    """As in ``--pinchbench-NAME``; with ``_`` for ``-`` in the ini file and in ``origins``."""
    affects: Literal["agent", "grading", ""]
    """What a result depends on by this option: the agent's work, the grade of that work, or
    neither. Has no default: a new option needs a decision."""
    read: Reader
    help: str
    default: Any = None
    """As a user would write it. None: the option has no value unless one is given."""
    metavar: str | None = None
    env: tuple[str, ...] = ()
    """Environment variables, the first that is set and not empty counting."""
    yaml: tuple[str, ...] = ()
    """Places in the YAML file."""
    field: str | None = None
    """Where the settings hold the value: ``judge.base_url``. None: in the field called as
    ``key``. Empty: nowhere as such, but in the fields of other options."""
    secret: bool = False
    several: bool = False
    """May be given more than once."""
    group: str = ""
    """The heading in ``--help``; set by :data:`OPTIONS`."""

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def place(self) -> str:
        """The field of the settings, dotted; empty without one."""
        return self.key if self.field is None else self.field


_COUNT, _AT_LEAST_ONE = readers.whole_number(0), readers.whole_number(1)
_POSITIVE = readers.number(above=0)
_FRACTION = readers.number(most=1)
_PROTOCOL = readers.choice(*PROTOCOLS)
_INSTALL = readers.choice(*INSTALL_STRATEGIES)
_LIST = readers.choice("text", "json")
_BARE = {readers.yes_no: "yes", readers.folder_or_yes: "yes", _LIST: "text"}
"""What an option without a value means."""

# Places in the YAML file.
_B = f"{BENCHMARK}."
_H = "harnesses.openclaw."
_E = "execution."
_M = "models.*."
_J = f"{BENCHMARK}.judge_model."

# A row is two to four lines, and not twelve.
# fmt: off
_GROUPS: dict[str, tuple[Option, ...]] = {
    "what to run": (
        Option("suite", "", readers.suite,
               "tasks to run: all, automated-only, or task ids, categories of the manifest and"
               " core, joined by commas or +",
               "all", "SUITE", yaml=(_B + "suite",)),
        Option("limit", "", _COUNT, "run only the first N tasks (0: all)", 0, "N",
               yaml=(_B + "limit",)),
        Option("sample-ids", "", readers.words,
               "run only these of the selected tasks: ids separated by commas, in this order"
               " (repeatable)", metavar="IDS", yaml=(_B + "sample_ids",), several=True),
        Option("skill-dir", "", readers.path,
               "skill checkout with tasks/ and assets/ (default: a clone of the skill repository)",
               metavar="DIR", env=("PINCHBENCH_SKILL_DIR", "AGENTCOMPASS_PINCHBENCH_SKILL_DIR")),
        Option("skill-repo-url", "", readers.text, "git repository of the suite",
               "https://github.com/pinchbench/skill.git", "URL", yaml=(_B + "skill_repo_url",)),
        Option("skill-repo-tag", "", readers.text, "tag of the suite", "v1.1.0", "TAG",
               yaml=(_B + "skill_repo_tag",)),
        Option("list", "", _LIST,
               "print the selected tasks with what they need, and run nothing: text or json",
               metavar="text|json"),
        Option("check", "", readers.yes_no,
               "check task files and try their checks where no agent has worked, and run nothing",
               "no"),
        Option("data-dir", "", readers.path,
               "folder for clones and installed OpenClaw versions"
               " (default: the user's data directory)", metavar="DIR", yaml=(_E + "data_dir",)),
        Option("params", "", readers.mapping,
               'settings of the benchmark as JSON: {"suite": ..., "judge_model": {"id": ...}};'
               " single options override them", metavar="JSON", field=""),
        Option("config", "", readers.path, "YAML file with settings", metavar="FILE", field=""),
    ),
    "model under test": (
        Option("model", "agent", readers.text,
               "model under test: its id, or the name of an entry of models in the YAML file"
               " (also --model; repeatable)", metavar="ID", env=("MODEL_NAME",), field="model.id",
               several=True),
        Option("model-base-url", "", readers.model_url,
               "endpoint of the model (default: OpenClaw resolves the id: openrouter/...)",
               metavar="URL", env=("MODEL_BASE_URL",), yaml=(_M + "base_url",),
               field="model.base_url"),
        Option("model-api-key", "", readers.text,
               "API key of the model; prefer MODEL_API_KEY, which process lists do not show",
               metavar="KEY", env=("MODEL_API_KEY",), yaml=(_M + "api_key",), field="model.api_key",
               secret=True),
        Option("model-api-key-env", "", readers.word,
               "environment variable that holds the model's key", metavar="NAME",
               yaml=(_M + "api_key_env",), field=""),
        Option("model-api-protocol", "agent", _PROTOCOL,
               "protocol of the endpoint: openai-chat, openai-responses or anthropic",
               "openai-chat", "PROTOCOL", yaml=(_M + "api_protocol",), field="model.api_protocol"),
        Option("model-params", "agent", readers.mapping,
               "parameters of every request to the model, as JSON", metavar="JSON",
               yaml=(_M + "params",), field="model.params"),
        Option("model-compat", "agent", readers.mapping,
               "what the endpoint cannot do, as JSON: {\"drop\": [\"store\"]} leaves fields out of"
               " requests; other keys go to OpenClaw's compat", metavar="JSON",
               yaml=(_M + "compat",), field="model.compat"),
        Option("model-price", "", readers.mapping,
               "dollars a million tokens, as JSON: {\"input\": 0.5, \"output\": 1.5,"
               " \"cached\": 0.05}", metavar="JSON", yaml=(_M + "price",), field="model.price"),
        Option("relay", "agent", readers.choice("auto", "yes", "no"),
               "carry requests to the model through the relay: auto (where the kind of sandbox"
               " can), yes or no", "auto", "auto|yes|no", yaml=(_E + "relay",)),
        Option("model-patience", "", readers.number(),
               "seconds for which the relay repeats a request to a busy or broken endpoint", 120,
               "SECONDS", yaml=(_E + "model_patience_seconds",)),
        Option("model-concurrency", "", _AT_LEAST_ONE,
               "requests to an endpoint at a time, over all workers (default: no limit)",
               metavar="N", yaml=(_E + "model_concurrency",)),
        Option("context-window", "agent", _AT_LEAST_ONE,
               "tokens in the model's context; OpenClaw compacts longer conversations", 250_000,
               "TOKENS", yaml=(_M + "context_window", _H + "context_window")),
        Option("max-tokens", "agent", _AT_LEAST_ONE, "tokens of one answer, at most", 8192,
               "TOKENS", yaml=(_M + "max_tokens", _H + "max_tokens")),
    ),
    "judge": (
        Option("judge-model", "grading", readers.text,
               "id of the model that judges llm_judge and hybrid tasks", metavar="ID",
               env=("JUDGE_MODEL_NAME",), yaml=(_J + "id",), field="judge.id"),
        Option("judge-base-url", "", readers.url,
               "endpoint of the judge (default: the model's endpoint)", metavar="URL",
               env=("JUDGE_MODEL_BASE_URL",), yaml=(_J + "base_url",), field="judge.base_url"),
        Option("judge-api-key", "", readers.text,
               "API key of the judge (default: the model's key); prefer JUDGE_MODEL_API_KEY",
               metavar="KEY", env=("JUDGE_MODEL_API_KEY",), yaml=(_J + "api_key",),
               field="judge.api_key", secret=True),
        Option("judge-api-key-env", "", readers.word,
               "environment variable that holds the judge's key", metavar="NAME",
               yaml=(_J + "api_key_env",), field=""),
        Option("judge-api-protocol", "grading", _PROTOCOL,
               "protocol of the judge's endpoint (default: the model's protocol)",
               metavar="PROTOCOL", yaml=(_J + "api_protocol",), field="judge.api_protocol"),
        Option("judge-params", "grading", readers.mapping,
               "parameters of every request to the judge, as JSON", metavar="JSON",
               yaml=(_J + "params",), field="judge.params"),
        Option("judge-timeout", "grading", _POSITIVE, "seconds for one request to the judge", 360,
               "SECONDS", yaml=(_B + "judge_timeout_seconds",)),
        Option("grade-in", "grading", readers.choice("auto", "fresh", "same"),
               "sandbox for grading: fresh (the agent has not been there), same (the agent's), or"
               " auto (fresh with docker and bubblewrap, unless the checks need the agent's)",
               "auto", "auto|fresh|same", yaml=(_E + "grade_in", _B + "grade_in")),
        Option("transcript-limit", "grading", readers.whole_number(1000),
               "characters of the transcript that the judge is shown", 60_000, "CHARACTERS",
               yaml=(_B + "transcript_limit",)),
        Option("judge-view", "grading", readers.choice(*JUDGE_VIEWS),
               "what the judge is shown: reference (messages, tool calls, 200 characters of their"
               " results) or full (the agent's words and the workspace's text files, too)"
               " (default: full for a suite with a manifest)", metavar="VIEW",
               yaml=(_B + "judge_view",)),
    ),
    "sandbox": (
        Option("env", "agent", readers.text,
               "kind of sandbox: docker, bubblewrap, local, daytona, modal, a plugin's", "docker",
               "KIND", yaml=(_E + "environment",), field="recipe.environment"),
        Option("recipe", "agent", readers.text,
               "recipe of the sandbox: a name or a YAML file (default: the recipe named after the"
               " kind)", metavar="NAME|FILE", yaml=(_E + "recipe",), field="recipe"),
        Option("image", "agent", readers.text, "image of the sandbox; overrides the recipe",
               metavar="IMAGE", field="recipe.image"),
        Option("workspace-root", "", readers.text,
               "folder in the sandbox for workspaces; overrides the recipe", metavar="DIR",
               field="recipe.workspace_root"),
        Option("keep-environment", "", readers.yes_no,
               "keep sandboxes, and print how to enter and remove them", "no",
               yaml=(_E + "keep_environment",)),
        Option("show-recipe", "", readers.yes_no,
               "print the effective recipe and the origin of each value", "no"),
    ),
    "agent": (
        Option("harness", "agent", readers.text,
               "agent that runs the tasks: openclaw, or the harness of a plugin", "openclaw"),
        Option("openclaw-version", "agent", readers.version,
               "OpenClaw release to install, or to require where it is installed",
               metavar="VERSION", yaml=(_H + "version", _H + "openclaw_version")),
        Option("openclaw-install", "agent", _INSTALL,
               "auto, preinstalled, install_if_missing, install_always or upload", "auto",
               "STRATEGY", yaml=(_H + "install_strategy",)),
        Option("openclaw-binary", "agent", readers.text,
               "openclaw command in the sandbox, where it is not on PATH", metavar="PATH",
               yaml=(_H + "binary",)),
        Option("openclaw-mode", "agent", readers.choice("local", "gateway"),
               "local runs an agent without a gateway; gateway starts one for each attempt, which"
               " subagents, cron and messages need", "local", "MODE", yaml=(_H + "mode",)),
        Option("skip-bootstrap", "agent", readers.yes_no,
               "keep OpenClaw from adding its own files to the workspace", "no",
               yaml=(_H + "skip_bootstrap",)),
        Option("new-session", "agent", readers.yes_no,
               "begin a new session at prompts that say new_session (default: yes in a suite"
               " whose manifest has categories)",
               yaml=(_H + "new_session",)),
        Option("thinking", "agent", readers.choice(*THINKING_LEVELS),
               "thinking level of the agent: " + ", ".join(THINKING_LEVELS), metavar="LEVEL",
               yaml=(_H + "thinking",)),
        Option("skills", "agent", readers.path,
               "folder of skills, copied into the workspace's folder skills", metavar="DIR",
               yaml=(_H + "skills",)),
        Option("brave-api-key", "agent", readers.text,
               "key for OpenClaw's web search; prefer BRAVE_API_KEY", metavar="KEY",
               env=("BRAVE_API_KEY",), yaml=(_H + "brave_api_key",), secret=True),
    ),
    "how often, how long": (
        Option("attempts", "", _AT_LEAST_ONE,
               "attempts per task; their scores are averaged", 1, "K", yaml=(_E + "attempts",)),
        Option("retries", "", _COUNT,
               "retries of an attempt that ends without a score", 0, "N",
               yaml=(_E + "max_retries",)),
        Option("timeout-multiplier", "agent", _POSITIVE, "factor for the timeout of each task", 1.0,
               "FACTOR", yaml=(_E + "timeout_multiplier", _B + "timeout_multiplier")),
        Option("evaluation-timeout", "grading", _POSITIVE,
               "seconds for a task's grading, with retried judge requests (default: no limit)",
               metavar="SECONDS",
               yaml=(_E + "evaluation_timeout_seconds", _B + "evaluation_timeout_seconds")),
        Option("evaluation-timeout-multiplier", "grading", _POSITIVE,
               "factor for --pinchbench-evaluation-timeout", 1.0, "FACTOR",
               yaml=(_E + "evaluation_timeout_multiplier", _B + "evaluation_timeout_multiplier"),
               field=""),
        Option("check-timeout", "grading", _POSITIVE, "seconds for a task's automated checks", 120,
               "SECONDS", yaml=(_E + "check_timeout_seconds", _B + "check_timeout_seconds")),
        Option("model-check", "", readers.yes_no,
               "try the model with one tiny request before the first task", "yes",
               yaml=(_E + "model_check",)),
        Option("judge-check", "", readers.yes_no,
               "try the judge with one tiny request before the first task", "yes",
               yaml=(_E + "judge_check",)),
        Option("keep-going", "", readers.yes_no, "continue when the sanity task scores 0", "no",
               yaml=(_E + "keep_going",)),
        Option("budget-usd", "", _POSITIVE,
               "start no further task once the run has cost this much (default: no limit)",
               metavar="USD", yaml=(_E + "budget_usd",)),
        Option("task-max-requests", "", _AT_LEAST_ONE,
               "requests to the model in one attempt; then it is graded (default: no limit)",
               metavar="N", yaml=(_E + "task_max_requests",)),
    ),
    "what comes out": (
        Option("results-dir", "", readers.path, "folder of recorded runs", "pinchbench-results",
               "DIR", yaml=(_E + "results_dir",)),
        Option("view", "", readers.folder_or_yes,
               "write the page of all runs in a results folder anew, open it, and run nothing",
               metavar="DIR"),
        Option("keep-workspace", "", readers.yes_no, "keep the agent's workspace with the records",
               "yes", yaml=(_E + "keep_workspace",)),
        Option("export", "", readers.csv_file, "write a row for each attempt", metavar="csv=FILE",
               yaml=(_E + "export",)),
        Option("resume", "", readers.run_directory,
               "continue an earlier run: its directory, or latest", metavar="RUN_DIR"),
        Option("regrade", "", readers.run_directory,
               "grade the kept work of an earlier run again, without an agent: its directory, or"
               " latest", metavar="RUN_DIR"),
        Option("record", "", readers.yes_no,
               "keep every request to the model and its answer, so that the run can be replayed",
               "no", yaml=(_E + "record",)),
        Option("replay", "agent", readers.run_directory,
               "answer from a recorded run, without its model: its directory, or latest",
               metavar="RUN_DIR"),
        Option("merge", "", readers.paths,
               "merge the runs of a sharded suite into one (repeatable)", metavar="RUN_DIR",
               several=True),
        Option("compare", "", readers.run_directories,
               "compare with an earlier run: its directory, summary.json, or latest (repeatable)",
               metavar="RUN", several=True),
        Option("compare-fail", "", _FRACTION,
               "fail when the mean is significantly lower than the compared one, by more than this",
               metavar="DROP"),
        Option("fail-under", "", _FRACTION,
               "let the mean score decide the exit code: fail when it is lower (0.8)",
               metavar="MEAN", yaml=(_E + "fail_under",)),
        Option("pass-mark", "", _FRACTION, "score at which a task passes", 1.0, "SCORE",
               yaml=(_E + "pass_mark",)),
    ),
}
# fmt: on

OPTIONS = tuple(row._replace(group=group) for group, rows in _GROUPS.items() for row in rows)

_ASK = ("help", "version", "markers", "cacheshow")
_LOOK = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")


def only_asks(config: pytest.Config) -> bool:
    """Return whether pytest collects nothing, and only prints: ``--help``."""
    return any(config.getoption(name, None) for name in _ASK)


def only_looks(config: pytest.Config) -> bool:
    """Return whether pytest collects tasks without running them: ``--collect-only``."""
    return any(config.getoption(name, None) for name in _LOOK)


def add_options(parser: pytest.Parser) -> None:
    """Register ``--pinchbench``, every option of the table, and their ini values."""
    main = parser.getgroup("pinchbench", "PinchBench: measure a model behind an OpenClaw agent")
    main.addoption(
        "--pinchbench", action="store_true", help="run PinchBench instead of the project's tests"
    )
    main.addoption(
        "--pinchbench-init",
        action="store_true",
        help="write a pinchbench.yaml with what the environment suggests, and run nothing",
    )
    for option in OPTIONS:
        group = parser.getgroup(f"pinchbench-{option.group}", f"PinchBench: {option.group}")
        shape: dict[str, Any] = {"metavar": option.metavar}
        if option.read in _BARE:
            metavar = option.metavar or "yes|no"
            shape = {"nargs": "?", "const": _BARE[option.read], "metavar": metavar}
        elif option.several:
            shape["action"] = "append"
        help = option.help
        if option.default is not None:
            help += f" (default: {option.default})"
        group.addoption(
            f"--pinchbench-{option.name}", dest=f"pinchbench_{option.key}", help=help, **shape
        )
        parser.addini(f"pinchbench_{option.key}", help, default=None)


def add_model_option(parser: pytest.Parser) -> None:
    """Register the bare ``--model``, for runs that say ``--pinchbench``.

    ``ValueError`` when the project has an option of that name.
    """
    group = parser.getgroup("pinchbench")
    group.addoption(
        "--model",
        dest="pinchbench_model",
        metavar="ID",
        action="append",
        help="short for --pinchbench-model",
    )
