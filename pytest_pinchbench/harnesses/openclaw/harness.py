"""The OpenClaw harness: one process a prompt, a state directory of its own, our clock."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pytest_pinchbench.harnesses import AgentRun, Line, Requests
from pytest_pinchbench.harnesses.openclaw import config, install, messages, node, outcome
from pytest_pinchbench.harnesses.openclaw.compile_cache import compile_cache
from pytest_pinchbench.harnesses.openclaw.gateway import Gateway
from pytest_pinchbench.harnesses.openclaw.trajectory import to_actf
from pytest_pinchbench.harnesses.openclaw.transcripts import (
    MAX_BYTES,
    Event,
    TranscriptUnreadable,
    known_sessions,
    read_transcript,
    transcript_files,
)
from pytest_pinchbench.harnesses.openclaw.versions import image_version, sandbox_version
from pytest_pinchbench.issues import (
    HarnessUnavailable,
    Issue,
    OutputTooLarge,
    SettingsError,
    using_data_dir,
)
from pytest_pinchbench.redaction import Redactor
from pytest_pinchbench.suite.checkout import read_skills

if TYPE_CHECKING:
    from pytest_pinchbench.environments import Environment, ExecResult, Sandbox
    from pytest_pinchbench.settings import Settings
    from pytest_pinchbench.suite.task_file import Task

TRANSCRIPT_LAG = 5.0
"""Seconds that a transcript may take to appear after the command that made it has returned."""


def say_on_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Agent:
    """An OpenClaw that is there in a sandbox, and how it is run."""

    command: tuple[str, ...]
    version: str
    variables: Mapping[str, str] = field(default_factory=dict)


class OpenClawHarness:
    """See :class:`pytest_pinchbench.harnesses.Harness`.

    ``say`` prints a line for the user.
    """

    name = "openclaw"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.say: Callable[[str], None] = say_on_stderr
        self._redact = Redactor(settings.secrets()).text
        self._environment: Environment | None = None
        self._strategy = settings.openclaw_install
        if self._strategy == "auto":
            self._strategy = settings.recipe.openclaw_install or "auto"
        if settings.openclaw_binary and self._strategy in ("install_always", "upload"):
            raise SettingsError(
                f"--pinchbench-openclaw-binary names an OpenClaw that is there, and "
                f"{self._strategy} brings another one: give only one of them"
            )
        if settings.skills and not read_skills(settings.skills):
            raise SettingsError(
                f"{settings.origins['skills']}: there is no */SKILL.md in {settings.skills}"
            )
        self._host_install: install.HostInstall | None = None
        self._agents: WeakKeyDictionary[Sandbox, Agent] = WeakKeyDictionary()
        self._gateways: WeakKeyDictionary[Sandbox, Gateway] = WeakKeyDictionary()

    def prepare(self, environment: Environment) -> None:
        if environment is self._environment:  # asked before every attempt
            return
        settings = self.settings
        if settings.model.base_url is None and (missing := config.missing_key(settings)):
            if config.works_by_key_only(settings.model):
                raise HarnessUnavailable(missing)
            self.say(missing)
        here = environment.on_this_machine
        if self._strategy == "auto":
            self._strategy = "install_if_missing" if here else "preinstalled"
        if here and settings.openclaw_binary:
            self._strategy = "preinstalled"  # the one that the user names
        if self._strategy == "upload" or (here and self._strategy != "preinstalled"):
            with using_data_dir(HarnessUnavailable):
                self._host_install = install.install_here(
                    settings.data_dir,
                    settings.openclaw_version,
                    again=self._strategy == "install_always",
                    say=self.say,
                )
        self._environment = environment

    def version(self, sandbox: Sandbox) -> str:
        return self._agent(sandbox).version

    def files(self, sandbox: Sandbox, task: Task, workspace: str, line: Line) -> dict[str, bytes]:
        state = _state(sandbox)
        version = config.parse_version(self._agent(sandbox).version)
        settings = replace(self.settings, model=line.model)
        endpoint = self.settings.model.base_url if line.is_relayed else None
        gateway = None
        if settings.openclaw_mode == "gateway":
            gateway = self._gateways.setdefault(sandbox, Gateway()).config()
        content = config.config_file(settings, version, state, workspace, endpoint, gateway)
        skills = read_skills(self.settings.skills) if self.settings.skills else {}
        return {
            f"{state}/openclaw.json": content,
            **{f"{workspace}/skills/{name}": data for name, data in skills.items()},
        }

    def run(self, sandbox: Sandbox, task: Task, workspace: str, line: Line) -> AgentRun:
        agent = self._agent(sandbox)
        version = config.parse_version(agent.version)
        environ = {
            **self._trust(),
            **agent.variables,
            **config.variables(replace(self.settings, model=line.model), _state(sandbox)),
        }
        if line.is_relayed:  # the relay is on a loopback port, and no proxy leads there
            environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
        gateway = self._gateways.get(sandbox)
        if gateway is not None:
            environ["OPENCLAW_GATEWAY_TOKEN"] = gateway.token
            log = f"{_state(sandbox)}/gateway.log"
            gateway.start(sandbox, agent.command, log=log, workspace=workspace, environ=environ)
        conversation = Conversation(sandbox)
        turns: list[ExecResult] = []
        issues: list[Issue] = []
        requests: Requests | None = None
        patience = config.silence_limit(version)
        new_session = task.rules.begins_sessions(self.settings.new_session)
        began = time.time()
        for prompt in task.prompts:
            left = line.begin_turn(patience)
            if not left:
                break
            session = conversation.next_session(prompt.new_session and new_session)
            arguments, stdin = config.turn_arguments(
                version, session, prompt.text, left, self.settings.thinking, local=gateway is None
            )
            if too_long := _too_long(arguments, agent):
                issues.append(too_long)
                break
            turn = sandbox.exec(
                [*agent.command, *arguments],
                cwd=workspace,
                env=environ,
                stdin=stdin,
                timeout=left,
            )
            requests = line.end_turn(turn.seconds)
            if requests and requests.ended:
                turn = replace(turn, timed_out=True)
            turns.append(turn)
            issues += self._issues(turn, conversation, requests)
            if turn.timed_out or any(issue.severity == "FATAL" for issue in issues):
                break
        sandbox.stop_processes()  # what the agent left running
        events = conversation.events
        return AgentRun(
            transcript=events,
            trajectory=to_actf((*events, *conversation.helpers)),
            usage=messages.usage((*events, *conversation.helpers)),
            final_answer=messages.final_answer(events),
            timed_out=any(turn.timed_out for turn in turns)
            and (requests is None or requests.ended == "time"),
            execution_time=sum(turn.seconds for turn in turns),
            startup_seconds=messages.seconds_to_prompt(events, began),
            stdout="".join(turn.stdout.decode(errors="replace") for turn in turns),
            stderr="".join(turn.stderr.decode(errors="replace") for turn in turns),
            version=agent.version,
            issues=tuple(dict.fromkeys(issues)),
        )

    def _issues(
        self, turn: ExecResult, conversation: Conversation, requests: Requests | None
    ) -> list[Issue]:
        """What went wrong in a turn; the conversation has been read when this returns."""
        known, log = len(conversation.events), b""
        try:
            if turn.timed_out:
                conversation.sandbox.stop_processes()
                log = conversation.log()
                conversation.read()
            elif not conversation.read_when_there():
                self.say(f"no answer in OpenClaw's transcript after {TRANSCRIPT_LAG:.0f} s")
        except TranscriptUnreadable as error:
            return [Issue("FATAL", "no_transcript", f"the transcript cannot be read: {error}")]
        endpoint = f"model {self.settings.model.id}"
        if self.settings.model.base_url:
            endpoint += f" at {self.settings.model.base_url}"
        found = outcome.find_issues(
            turn,
            conversation.events,
            log,
            endpoint,
            known=known,
            requests=requests,
            began=conversation.asked_at,
        )
        return [Issue(issue.severity, issue.code, self._redact(issue.message)) for issue in found]

    def _agent(self, sandbox: Sandbox) -> Agent:
        if sandbox not in self._agents:
            self._agents[sandbox] = self._get_agent(sandbox)
        return self._agents[sandbox]

    def _get_agent(self, sandbox: Sandbox) -> Agent:
        settings, environment = self.settings, self._environment
        assert environment is not None, "prepare() comes first"
        prefix = f"{sandbox.private_root}/openclaw-install"
        host = self._host_install

        if host and environment.on_this_machine:
            path = settings.recipe.env.get("PATH", os.environ["PATH"])
            command: tuple[str, ...] = (str(host.node), str(host.entry))
            cache = {"NODE_COMPILE_CACHE": str(host.compile_cache)}
            variables = {
                **(compile_cache(sandbox, environment, settings, command, host.version) or cache),
                "PATH": f"{host.programs}{os.pathsep}{path}",
            }
            return Agent(command, host.version, variables)
        if host:
            return Agent(install.upload(sandbox, prefix, host), host.version)

        wanted = settings.openclaw_version
        image = settings.recipe.image
        where = f"the image {image}" if image else sandbox.name
        command = (settings.openclaw_binary or "openclaw",)
        if self._strategy != "install_always":
            with using_data_dir(HarnessUnavailable):
                found = image_version(sandbox, command, environment, settings.data_dir)
            if found and wanted in (None, found):
                variables = compile_cache(sandbox, environment, settings, command, found)
                return Agent(command, found, variables)
            if self._strategy == "preinstalled":
                raise install.missing(where, command, found, wanted)
        command = install.install_inside(sandbox, prefix, wanted, self._trust())
        version = sandbox_version(sandbox, command)
        if version is None:
            raise install.missing(where, command, None, wanted)
        return Agent(command, version)

    def _trust(self) -> dict[str, str]:
        """The variables by which Node in the sandbox trusts what its other programs trust."""
        assert self._environment is not None, "prepare() comes first"
        here = os.environ if self._environment.on_this_machine else {}
        return node.trust({**here, **self.settings.recipe.variables()})


class Conversation:
    """The sessions of one attempt, and what OpenClaw has written down of them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.events: tuple[Event, ...] = ()
        self.helpers: tuple[Event, ...] = ()
        """What subagents said, one session after the other."""
        self._sessions: list[str] = []
        self._asked = 0
        self.asked_at = datetime.now(timezone.utc)

    def next_session(self, new: bool) -> str:
        """The session for the next prompt."""
        if new or not self._sessions:
            self._sessions.append(str(uuid.uuid4()))
        self._asked += 1
        self.asked_at = datetime.now(timezone.utc)
        return self._sessions[-1]

    def read(self) -> None:
        """Copy the transcript here and read it. Raises ``TranscriptUnreadable``."""
        with tempfile.TemporaryDirectory(prefix="pinchbench-") as folder:
            copy = Path(folder, "agent")
            try:
                self._download(transcript_files(self._sessions), copy)
                known = known_sessions(copy)
                helpers = [session for session, key in known.items() if ":subagent:" in key]
                ours = self._sessions
                if known and known.keys().isdisjoint(ours):  # a gateway may choose the session
                    ours = [session for session in known if session not in helpers]
                if (copy / "sessions").is_dir() and {*ours, *helpers} - {*self._sessions}:
                    copy = Path(folder, "all")
                    self._download(transcript_files([*ours, *helpers]), copy)
            except FileNotFoundError:
                return
            except OutputTooLarge as error:
                raise TranscriptUnreadable(str(error)) from None
            self.events = read_transcript(copy, ours)
            self.helpers = read_transcript(copy, helpers)

    def _download(self, names: list[str], copy: Path) -> None:
        source = f"{_state(self.sandbox)}/agents/{config.AGENT}"
        self.sandbox.download(source, copy, only=names, limit=2 * MAX_BYTES)

    def read_when_there(self) -> bool:
        """Read; where the answer to the last prompt is missing, until it is there or time is up."""
        deadline = time.monotonic() + TRANSCRIPT_LAG
        while True:
            try:
                self.read()
            except TranscriptUnreadable:
                if time.monotonic() > deadline:
                    raise
            else:
                if self._is_answered():
                    return True
                if time.monotonic() > deadline:
                    return False
            time.sleep(0.2)

    def log(self) -> bytes:
        try:
            return self.sandbox.read(config.log_file(_state(self.sandbox)))
        except FileNotFoundError:
            return b""

    def _is_answered(self) -> bool:
        said = messages.messages(self.events)
        users = [index for index, message in enumerate(said) if message.get("role") == "user"]
        if len(users) < self._asked:
            return False
        return any(messages.is_from_model(message) for message in said[users[-1] :])


def _state(sandbox: Sandbox) -> str:
    """OpenClaw's state directory: a sandbox is one attempt's, and so is this."""
    return f"{sandbox.private_root}/openclaw"


def _too_long(arguments: list[str], agent: Agent) -> Issue | None:
    longest = max(len(argument.encode()) for argument in arguments)
    if longest <= config.MAX_ARGUMENT:
        return None
    return Issue(
        "FATAL",
        "prompt_too_long",
        f"a prompt of {longest // 1024} KiB: OpenClaw {agent.version} takes one as an argument "
        "only, which may have 128 KiB; releases since 2026.7.1 take 4 MiB",
    )
