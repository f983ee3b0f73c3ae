from __future__ import annotations

from typing import Any

import pytest
from transcript_files import assistant, call, failed, said, tool_result, user

from pytest_pinchbench.harnesses import Usage
from pytest_pinchbench.harnesses.openclaw import messages


def test_usage_is_summed_over_the_models_messages() -> None:
    first = {
        "input": 60,
        "output": 7,
        "cacheRead": 40,
        "cacheWrite": 5,
        "totalTokens": 112,
        "cost": {"total": 0.25},
    }
    second = {"input": 10, "output": 3, "totalTokens": 13, "cost": {"total": 0.5}}
    transcript = [user("hi"), assistant(usage=first), tool_result("x"), assistant(usage=second)]
    assert messages.usage(transcript) == Usage(
        input_tokens=115,
        output_tokens=10,
        cache_read_tokens=40,
        cache_write_tokens=5,
        total_tokens=125,
        cost_usd=0.75,
        request_count=2,
    )


def test_a_cost_of_nothing_is_no_cost() -> None:
    """OpenClaw writes 0 for every model whose price it does not know."""
    assert messages.usage([assistant(usage={"input": 1, "cost": {"total": 0}})]).cost_usd is None


@pytest.mark.parametrize("odd", [None, True, "7", float("nan"), float("inf"), -3, 10**400, [1]])
def test_what_is_no_number_counts_as_nothing(odd: Any) -> None:
    used = messages.usage([assistant(usage={"input": odd, "output": 5, "cost": {"total": odd}})])
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == (0, 5, None)


def test_a_total_that_is_not_recorded_is_the_sum_of_the_parts() -> None:
    used = messages.usage([assistant(usage={"input": 60, "cacheRead": 40, "output": 7})])
    assert used.total_tokens == 107


def test_a_failed_request_is_a_request() -> None:
    assert messages.usage([assistant(said("x")), failed("500 oops")]).request_count == 2


def test_a_message_that_openclaw_delivers_itself_is_not_the_models() -> None:
    mirror = assistant(said("delivered"), provider="openclaw", model="delivery-mirror")
    transcript = [user("hi"), assistant(said("the answer")), mirror]
    assert messages.usage(transcript).request_count == 1
    assert messages.final_answer(transcript) == "the answer"


def test_the_final_answer_is_the_last_text_of_the_model() -> None:
    transcript = [
        assistant(said("one"), call("read")),
        tool_result("not this"),
        assistant(said("two"), said("lines")),
        assistant(),
    ]
    assert messages.final_answer(transcript) == "two\nlines"


def test_what_openclaw_writes_in_place_of_an_answer_is_none() -> None:
    placeholder = said("[assistant turn failed before producing content]")
    transcript = [assistant(said("so far")), failed("400 too long", content=[placeholder])]
    assert messages.final_answer(transcript) == "so far"


def test_a_silent_model_has_no_final_answer() -> None:
    assert messages.final_answer([user("hi"), failed("401 no")]) == ""


@pytest.mark.parametrize("field", ["arguments", "params", "input"])
@pytest.mark.parametrize("written", [{"path": "a"}, '{"path": "a"}'])
def test_tool_calls_are_read_however_they_are_written(field: str, written: Any) -> None:
    block = {"type": "toolCall", "id": "c1", "name": "read", field: written}
    (found,) = messages.tool_calls({"role": "assistant", "content": [block]})
    assert (found.id, found.name, found.arguments) == ("c1", "read", {"path": "a"})


@pytest.mark.parametrize("written", ["not json", "[1]", "[" * 100_000])
def test_arguments_that_are_no_object_stay_as_they_are(written: str) -> None:
    block = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": written}
    (found,) = messages.tool_calls({"role": "assistant", "content": [block]})
    assert found.arguments == written


@pytest.mark.parametrize("content", [None, 7, {}, [None, 3]])
def test_content_of_any_other_kind_is_no_text(content: Any) -> None:
    assert messages.text({"role": "user", "content": content}) == ""


@pytest.mark.parametrize(
    "value", ["2026-09-12T12:00:00.500Z", "2026-09-12T14:00:00.500+02:00", 1_789_214_400_500]
)
def test_a_moment_has_several_spellings(value: Any) -> None:
    moment = messages.moment(value)
    assert moment is not None
    assert moment.timestamp() == 1_789_214_400.5


@pytest.mark.parametrize("value", [None, True, "yesterday", 1e300, {}])
def test_what_is_no_moment_is_none(value: Any) -> None:
    assert messages.moment(value) is None


def test_the_start_up_lasts_until_the_first_prompt():
    def asked(stamp):
        return {"type": "message", "message": {"role": "user", "timestamp": stamp, "content": "a"}}

    assert messages.seconds_to_prompt([{"type": "session"}, asked(12_500)], 10.0) == 2.5
    assert messages.seconds_to_prompt([asked(12_500), asked(99_000)], 10.0) == 2.5
    # another clock, or none
    assert messages.seconds_to_prompt([asked(9_000)], 10.0) is None
    assert messages.seconds_to_prompt([asked(None)], 10.0) is None
    assert messages.seconds_to_prompt([], 10.0) is None
