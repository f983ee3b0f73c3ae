"""The harness itself, with a stand-in where OpenClaw would run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness_attempts import KEY, Attempt, make_task
from stand_in import StandIn

from pytest_pinchbench.harnesses import find_harness
from pytest_pinchbench.harnesses.openclaw import OpenClawHarness
from pytest_pinchbench.issues import HarnessUnavailable, SettingsError
from pytest_pinchbench.settings import Settings
from pytest_pinchbench.suite.manifest import Rules
from pytest_pinchbench.suite.task_file import Prompt

RunAttempt = Callable[..., Attempt]


def test_it_is_found_by_its_name() -> None:
    assert find_harness("openclaw") is OpenClawHarness


def test_prompts_go_in_order_to_one_session(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = attempt(stand_in_harness, make_task("one", Prompt("two", new_session=True), "three"))
    assert [call["prompt"] for call in done.calls] == ["one", "two", "three"]
    assert len({call["argv"][call["argv"].index("--session-id") + 1] for call in done.calls}) == 1
    assert done.run.final_answer == "ok: three"
    assert done.run.issues == ()


@pytest.mark.parametrize(
    ("asked", "rules"), [(True, Rules()), (None, Rules("categories"))], ids=["asked", "by suite"]
)
def test_a_new_session_is_begun_when_the_settings_or_the_suite_say_so(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt, asked: bool | None, rules: Rules
) -> None:
    stand_in_harness.settings = replace(stand_in_harness.settings, new_session=asked)
    task = make_task("one", Prompt("two", new_session=True), "three")
    done = attempt(stand_in_harness, replace(task, rules=rules))
    sessions = [call["argv"][call["argv"].index("--session-id") + 1] for call in done.calls]
    assert sessions[0] != sessions[1] == sessions[2]
    texts = [event["message"]["content"][0]["text"] for event in done.run.transcript]
    assert texts == ["one", "ok: one", "two", "ok: two", "three", "ok: three"]


def test_a_thinking_level_is_passed_on(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    spec = replace(stand_in_harness.settings.model, base_url="http://127.0.0.1:1/v1")
    settings = replace(stand_in_harness.settings, thinking="high", model=spec)
    stand_in_harness.settings = settings
    done = attempt(stand_in_harness, make_task("one"))
    argv = done.calls[0]["argv"]
    assert argv[argv.index("--thinking") + 1] == "high"
    (provider,) = json.loads((done.state / "openclaw.json").read_text())["models"][
        "providers"
    ].values()
    assert provider["models"][0]["reasoning"] is True
    assert provider["models"][0]["compat"]["supportsReasoningEffort"] is True


def test_skills_are_copied_into_the_workspace(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt, tmp_path: Path
) -> None:
    skill = tmp_path / "skills" / "greeting"
    (skill / "parts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("Say hello.")
    (skill / "parts" / "words.txt").write_text("hello")
    (tmp_path / "skills" / "notes.txt").write_text("no skill")
    settings = replace(stand_in_harness.settings, skills=tmp_path / "skills")
    stand_in_harness.settings = settings
    copied = attempt(stand_in_harness, make_task("one")).workspace / "skills"
    assert (copied / "greeting" / "parts" / "words.txt").read_text() == "hello"
    assert [path.name for path in copied.iterdir()] == ["greeting"]


def test_a_folder_without_skills_is_refused(
    settings_for: Callable[..., Settings], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"--pinchbench-skills: there is no \*/SKILL\.md in"):
        OpenClawHarness(settings_for(f"--pinchbench-skills={tmp_path}"))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["--help", "ünï ☃", "two\nlines\n", "x" * 300_000])
def test_a_prompt_arrives_as_it_is(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt, text: str
) -> None:
    assert attempt(stand_in_harness, make_task(text)).calls[0]["prompt"] == text


def test_an_older_release_gets_its_prompt_as_an_argument(
    settings_for: Callable[..., Settings], attempt: RunAttempt, tmp_path: Path
) -> None:
    harness = _harness(settings_for, StandIn(tmp_path, sys.executable, "2026.5.2"))
    done = attempt(harness, make_task("--help ünï"))
    assert done.calls[0]["prompt"] == "--help ünï"
    assert done.run.version == "2026.5.2"


def test_a_prompt_too_long_for_an_argument_is_refused_with_the_reason(
    settings_for: Callable[..., Settings], attempt: RunAttempt, tmp_path: Path
) -> None:
    harness = _harness(settings_for, StandIn(tmp_path, sys.executable, "2026.3.22"))
    (issue,) = attempt(harness, make_task("x" * 200_000)).run.issues
    assert (issue.severity, issue.code) == ("FATAL", "prompt_too_long")
    assert "2026.3.22 takes one as an argument only" in issue.message


def test_the_key_is_in_the_environment_and_nowhere_else(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = attempt(stand_in_harness, make_task("hello"))
    (call,) = done.calls
    assert call["env"]["PINCHBENCH_MODEL_API_KEY"] == KEY
    assert not any(KEY in argument for argument in call["argv"])
    assert KEY not in (done.state / "openclaw.json").read_text()


def test_the_agent_works_in_the_workspace_with_a_state_of_its_own(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    first = attempt(stand_in_harness, make_task("hello"))
    second = attempt(stand_in_harness, make_task("hello"))
    assert first.calls[0]["cwd"] == str(first.workspace)
    assert first.calls[0]["env"]["OPENCLAW_STATE_DIR"] == str(first.state)
    assert len(second.calls) == 1


@pytest.mark.slow
def test_the_clock_stops_the_agent_and_what_it_left_running(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    begun = time.monotonic()
    done = _stopped_in_its_second_turn(attempt, stand_in_harness, "leave", "sleep", "never sent")
    assert time.monotonic() - begun < 500  # it sleeps for 600 s
    assert done.run.timed_out
    assert done.codes == ["agent_timeout"]
    assert [call["prompt"] for call in done.calls] == ["leave", "sleep"]
    _assert_nothing_writes(done.workspace / "ticks")


@pytest.mark.slow
def test_what_was_said_before_the_time_was_up_is_kept(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = _stopped_in_its_second_turn(attempt, stand_in_harness, "hello", "sleep")
    assert done.run.final_answer == "ok: hello"
    assert done.run.usage.request_count == 1
    assert len(done.run.trajectory["steps"]) == 1


def test_a_process_left_running_is_stopped_when_the_agent_is_done(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = attempt(stand_in_harness, make_task("leave"))
    assert done.run.issues == ()
    _assert_nothing_writes(done.workspace / "ticks")


@pytest.mark.slow
def test_a_crash_ends_the_conversation(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = attempt(stand_in_harness, make_task("hello", "crash", "never sent"))
    assert len(done.calls) == 2
    (issue,) = done.run.issues
    assert (issue.severity, issue.code) == ("FATAL", "agent_crash")
    assert "exit code 7: it broke" in issue.message


def test_a_refused_request_does_not_end_the_conversation_and_is_not_forgotten(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    done = attempt(stand_in_harness, make_task("hello", "refused", "refused too", "go on"))
    assert len(done.calls) == 4
    assert done.codes == ["request_refused"]
    assert done.run.final_answer == "ok: go on"


@pytest.mark.slow
def test_a_transcript_that_comes_late_is_waited_for(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_pinchbench.harnesses.openclaw.harness.TRANSCRIPT_LAG", 60.0)
    done = attempt(stand_in_harness, make_task("late", "late again"))
    assert done.run.final_answer == "ok: late again"
    assert done.run.issues == ()


def test_no_transcript_is_fatal_and_said(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_pinchbench.harnesses.openclaw.harness.TRANSCRIPT_LAG", 0.5)
    told: list[str] = []
    stand_in_harness.say = told.append
    done = attempt(stand_in_harness, make_task("mute"))
    assert done.codes == ["no_transcript"]
    assert "no answer in OpenClaw's transcript" in told[0]


def test_an_issue_does_not_repeat_the_key(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    url = f"http://127.0.0.1:9/v1?key={KEY}"
    model = replace(stand_in_harness.settings.model, base_url=url)
    stand_in_harness.settings = replace(stand_in_harness.settings, model=model)
    done = attempt(stand_in_harness, make_task("sleep"), timeout=1.0)
    assert "http://127.0.0.1:9" in done.run.issues[0].message
    assert KEY not in "".join(issue.message for issue in done.run.issues)


def test_a_program_that_is_not_there_is_one_clear_error(
    settings_for: Callable[..., Settings], attempt: RunAttempt
) -> None:
    harness = OpenClawHarness(
        settings_for(
            "--pinchbench-openclaw-install=preinstalled",
            "--pinchbench-openclaw-binary=/nowhere/openclaw",
        )
    )
    with pytest.raises(HarnessUnavailable, match=r"there is no /nowhere/openclaw .*--pinchbench"):
        attempt(harness, make_task("hello"))


def test_another_version_than_the_one_asked_for_is_an_error(
    stand_in_harness: OpenClawHarness, attempt: RunAttempt
) -> None:
    stand_in_harness.settings = replace(stand_in_harness.settings, openclaw_version="2026.3.22")
    with pytest.raises(HarnessUnavailable, match=r"is 2026\.9\.6, not 2026\.3\.22"):
        attempt(stand_in_harness, make_task("hello"))


def test_a_program_that_does_not_run_says_why(
    stand_in_harness: OpenClawHarness, stand_in: StandIn, attempt: RunAttempt
) -> None:
    stand_in.path.write_text("#!/bin/sh\necho 'Node.js 24.16 or newer is required' >&2\nexit 1\n")
    with pytest.raises(HarnessUnavailable, match=r"does not run: Node\.js 24\.16 or newer"):
        attempt(stand_in_harness, make_task("hello"))


@pytest.mark.parametrize("strategy", ["auto", "install_if_missing"])
def test_a_program_that_is_named_is_the_one_that_runs(
    settings_for: Callable[..., Settings], stand_in: StandIn, attempt: RunAttempt, strategy: str
) -> None:
    done = attempt(_harness(settings_for, stand_in, strategy), make_task("hello"))
    assert done.run.final_answer == "ok: hello"


@pytest.mark.parametrize("strategy", ["install_always", "upload"])
def test_a_program_that_is_named_beside_an_install_is_refused(
    settings_for: Callable[..., Settings], stand_in: StandIn, strategy: str
) -> None:
    with pytest.raises(SettingsError, match=f"openclaw-binary .* {strategy} brings another"):
        _harness(settings_for, stand_in, strategy)


def test_a_data_directory_that_cannot_be_used_is_one_clear_error(
    settings_for: Callable[..., Settings], attempt: RunAttempt, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    options = ["--model-base-url=http://127.0.0.1:9/v1", f"--data-dir={tmp_path}/file/data"]
    harness = OpenClawHarness(
        settings_for(*(option.replace("--", "--pinchbench-", 1) for option in options))
    )
    with pytest.raises(HarnessUnavailable, match="--pinchbench-data-dir names another"):
        attempt(harness, make_task("hello"))


def test_a_missing_key_is_found_before_anything_is_installed(
    settings_for: Callable[..., Settings], attempt: RunAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    settings = settings_for("--model=google/gemini-x")
    settings = replace(settings, model=replace(settings.model, api_key=None))
    with pytest.raises(HarnessUnavailable, match="set GEMINI_API_KEY or GOOGLE_API_KEY"):
        attempt(OpenClawHarness(settings), make_task("hello"))


def test_a_provider_that_may_need_no_key_is_tried(
    settings_for: Callable[..., Settings], stand_in: StandIn, attempt: RunAttempt
) -> None:
    settings = settings_for("--model=some/model", f"--pinchbench-openclaw-binary={stand_in.path}")
    harness = OpenClawHarness(replace(settings, model=replace(settings.model, api_key=None)))
    told: list[str] = []
    harness.say = told.append
    assert attempt(harness, make_task("hello")).run.final_answer == "ok: hello"
    assert told[0].startswith("no key for some/model: set SOME_API_KEY")


def _harness(
    settings_for: Callable[..., Settings], stand_in: StandIn, strategy: str = "preinstalled"
) -> OpenClawHarness:
    return OpenClawHarness(
        settings_for(
            "--pinchbench-model-base-url=http://127.0.0.1:9/v1",
            f"--pinchbench-openclaw-install={strategy}",
            f"--pinchbench-openclaw-binary={stand_in.path}",
        )
    )


def _stopped_in_its_second_turn(
    attempt: RunAttempt, harness: OpenClawHarness, *prompts: str
) -> Attempt:
    """With a longer timeout where the machine needed a short one for the first turn alone."""
    for timeout in (3.0, 20.0, 100.0):
        done = attempt(harness, make_task(*prompts), timeout=timeout)
        if len(done.calls) == 2:
            break
    return done


def _assert_nothing_writes(file: Path) -> None:
    """The writer writes every 0.02 s, so half a second without a byte is an end."""
    before = file.stat().st_size
    assert before > 0
    time.sleep(0.5)
    assert file.stat().st_size == before
