"""The scripted model's choice of an answer, and what the script file's reader says."""

from __future__ import annotations

import pytest

from pytest_pinchbench.demo.script import (
    Answer,
    Message,
    Script,
    ScriptError,
    ToolCall,
    load_script,
    parse_script,
)

TWO_TURNS = """
turns:
  - when: write a poem
    steps:
      - write: {path: poem.txt, content: leaves}
      - - read: {path: poem.txt}
        - exec: {command: wc poem.txt}
      - The poem is written.
  - when: make it longer
    steps:
      - It is longer now.
judge:
  - when: write a poem
    verdict: {total: 0.5}
"""


def ask(script: Script, *messages: tuple[str, str], tools: bool = True) -> Answer:
    return script.answer([Message(*message) for message in messages], has_tools=tools)[1]


def test_the_first_step_answers_the_prompt() -> None:
    answer = ask(parse_script(TWO_TURNS), ("system", "You are..."), ("user", "Please write a poem"))
    assert answer.calls == (ToolCall("write", {"path": "poem.txt", "content": "leaves"}),)


def test_one_step_may_hold_several_tool_calls() -> None:
    answer = ask(
        parse_script(TWO_TURNS), ("user", "write a poem"), ("assistant", ""), ("tool", "written")
    )
    assert [call.name for call in answer.calls] == ["read", "exec"]


def test_a_user_message_by_the_runtime_does_not_hide_the_prompt() -> None:
    answer = ask(
        parse_script(TWO_TURNS),
        ("user", "write a poem"),
        ("assistant", ""),
        ("tool", "written"),
        ("assistant", ""),
        ("tool", "1 1 7"),
        ("user", "Runtime context: it is noon."),
    )
    assert answer.text == "The poem is written."


def test_a_later_prompt_of_the_session_starts_its_own_turn() -> None:
    answer = ask(
        parse_script(TWO_TURNS),
        ("user", "write a poem"),
        ("assistant", "The poem is written."),
        ("user", "make it longer"),
    )
    assert answer.text == "It is longer now."


def test_a_tool_result_that_quotes_a_prompt_is_no_prompt() -> None:
    answer = ask(
        parse_script(TWO_TURNS),
        ("user", "write a poem"),
        ("assistant", ""),
        ("tool", "make it longer"),
    )
    assert answer.calls[0].name == "read"


def test_a_prompt_is_known_by_its_words_however_it_is_wrapped() -> None:
    assert ask(parse_script(TWO_TURNS), ("user", "[Mon 12:00] write\n  a poem")).calls


def test_after_its_last_step_a_turn_has_nothing_more_to_say() -> None:
    script = parse_script(TWO_TURNS)
    answer = ask(script, ("user", "make it longer"), ("assistant", "It is longer now."))
    assert answer.text == script.otherwise


def test_a_request_without_tools_is_for_the_judge_when_a_verdict_knows_it() -> None:
    script = parse_script(TWO_TURNS)
    question = [Message("user", "Judge this. Task: write a poem. make it longer")]
    assert script.answer(question, has_tools=False) == ("judge", Answer(text='{"total": 0.5}'))


def test_a_request_without_tools_that_no_verdict_knows_is_a_check() -> None:
    audience, _ = parse_script(TWO_TURNS).answer([Message("user", "ping")], has_tools=False)
    assert audience == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("turns: [", "not YAML"),
        ("[]", "the script: must be a mapping"),
        ("turn: []", "unknown key 'turn'; known: faults, judge"),
        ("turns: {}", "turns: must be a list"),
        ("turns: [{when: a, steps: [{write: {}}]}]", "turns[0].steps: the last step must be"),
        ("turns: [{when: a, steps: []}]", "turns[0].steps: the last step must be"),
        ("turns: [{when: a, steps: [b, c]}]", "turns[0].steps[0]: a text ends the turn"),
        ("turns: [{when: '', steps: [b]}]", "turns[0].when: must be a text"),
        ("turns: [{when: a, steps: [{write: 1}, b]}]", "turns[0].steps[0][0]: the arguments"),
        ("turns: [{when: a, steps: [{a: {}, b: {}}, c]}]", "turns[0].steps[0][0]: a step is"),
        ("judge: [{when: a, verdict: 1}]", "judge[0].verdict: must be a mapping or a text"),
        ("usage: {input_tokens: many}", "usage.input_tokens: must be a number of tokens"),
        ("faults: [{action: explode}]", "faults[0].action: must be status, refuse"),
        ("faults: [{only: everyone}]", "faults[0].only: must be agent, judge or other"),
        ("faults: [{first: soon}]", "faults[0].first: must be a whole number"),
    ],
)
def test_a_wrong_script_is_explained(text: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(text)
    assert message in str(caught.value)


def test_a_script_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(ScriptError, match=r"none\.yaml"):
        load_script(tmp_path / "none.yaml")
