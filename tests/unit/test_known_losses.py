"""Owns the losses seen in an existing converter (spec apis B3): here each is an identity, or an entry in the losses."""

import json
from typing import Any

import turnscript as ts

MESSAGES, CHAT, RESPONSES, COMPLETIONS = "anthropic-messages", "openai-chat", "openai-responses", "openai-completions"


def messages(*turns: dict[str, Any], **members: Any) -> dict[str, Any]:
    """An Anthropic body."""
    return {"model": "m", "max_tokens": 4000, "messages": list(turns), **members}


def say(role: str, *content: dict[str, Any] | str) -> dict[str, Any]:
    """A message."""
    blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    return {"role": role, "content": blocks}


def convert(body: dict[str, Any], from_: str = MESSAGES, to: str = CHAT) -> tuple[Any, list[ts.Loss]]:
    """The body in another API, and the losses."""
    rendered = ts.convert(body, from_, to)
    return rendered.value, rendered.losses


def losses_at(losses: list[ts.Loss], path: str) -> list[str]:
    """The kinds of the losses at a path or below."""
    return [loss.kind for loss in losses if loss.path.startswith(path)]


CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}


def thought(text: str) -> dict[str, Any]:
    """A thinking block."""
    return {"type": "thinking", "thinking": text, "signature": "s"}


def test_1_the_order_of_thinking_text_and_calls_is_listed_as_moved() -> None:
    body = messages(say("user", "q"), say("assistant", thought("T1"), "a", CALL, thought("T2"), "b"))
    value, losses = convert(body)
    assert "moved" in losses_at(losses, "$.messages[1]")
    assert ["f"] == [call["function"]["name"] for call in value["messages"][1]["tool_calls"]]


def test_2_two_texts_are_not_fused_into_one() -> None:
    value, _ = convert(messages(say("user", "q"), say("assistant", "a", CALL, "b")))
    assert [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}] == value["messages"][1]["content"]


def test_3_is_error_is_listed() -> None:
    body = messages(say("user", "q"), say("assistant", CALL), say("user", {**RESULT, "is_error": True}))
    _, losses = convert(body)
    assert ["dropped"] == losses_at(losses, "$.messages[2].content[0].is_error")


def test_4_disable_parallel_tool_use_arrives() -> None:
    body = messages(say("user", "q"), tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    value, losses = convert(body)
    assert (False, "auto") == (value["parallel_tool_calls"], value["tool_choice"])
    assert [] == losses_at(losses, "$.tool_choice")


def test_5_an_explicit_effort_is_not_overridden_by_a_budget() -> None:
    body = messages(
        say("user", "q"),
        thinking={"type": "enabled", "budget_tokens": 2000},
        output_config={"effort": "xhigh"},
    )
    value, losses = convert(body)
    assert "xhigh" == value["reasoning_effort"]
    assert [] != losses_at(losses, "$.thinking")


def test_6_arguments_keep_their_numbers_keys_and_order() -> None:
    spelled = b'{"b":1.0,"\\u00e9":1e5, "b" : 1152921504606846976,"\xc3\xa9":"x"}'
    once = '{"b": 1.0, "é": 1e5, "b": 1152921504606846976, "é": "x"}'
    body = json.dumps(messages(say("user", "q"), say("assistant", {**CALL, "input": "SPELLED"}))).encode()
    body = body.replace(b'"SPELLED"', spelled)
    rendered = ts.convert(body, MESSAGES, CHAT)
    value: Any = rendered.value
    assert once == value["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert 1 == ts.convert(rendered.data, CHAT, MESSAGES).data.count(once.encode())
    assert 1 == ts.convert(body, MESSAGES, MESSAGES).data.count(spelled)


def test_7_members_of_a_tool_do_not_leak_into_its_schema() -> None:
    body = messages(say("user", "q"), tools=[{**TOOL, "input_examples": [{"a": "x"}], "defer_loading": True}])
    value, losses = convert(body)
    assert TOOL["input_schema"] == value["tools"][0]["function"]["parameters"]
    assert ["dropped"] == losses_at(losses, "$.tools[0].input_examples")
    assert ["dropped"] == losses_at(losses, "$.tools[0].defer_loading")


def test_8_an_optional_property_stays_optional() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
    body = messages(say("user", "q"), output_config={"format": {"type": "json_schema", "schema": schema}})
    value, _ = convert(body)
    assert schema == value["response_format"]["json_schema"]["schema"]


def test_9_texts_around_a_result_stay_two() -> None:
    body = messages(say("user", "q"), say("assistant", CALL), say("user", "before", RESULT, "after"))
    value, losses = convert(body)
    assert "tool" == value["messages"][2]["role"]
    said = json.dumps(value["messages"][3:])
    assert "before" in said
    assert "after" in said
    assert "beforeafter" not in said
    assert "moved" in losses_at(losses, "$.messages[2]")


def test_10_a_long_tool_name_is_not_replaced_by_a_hash() -> None:
    name = "mcp__" + "n" * 80
    value, _ = convert(messages(say("user", "q"), tools=[{**TOOL, "name": name}]))
    assert name == value["tools"][0]["function"]["name"]


def test_11_stop_sequences_arrive_and_are_listed_where_there_is_no_place() -> None:
    body = messages(say("user", "q"), stop_sequences=["END"])
    value, losses = convert(body)
    assert ["END"] == value["stop"]
    assert [] == losses_at(losses, "$.stop_sequences")
    _, losses = convert(body, MESSAGES, RESPONSES)
    assert ["dropped"] == losses_at(losses, "$.stop_sequences")


def test_12_a_chat_for_text_completion_never_becomes_a_batch_of_prompts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
    }
    value, losses = convert(body, CHAT, COMPLETIONS)
    assert isinstance(value["prompt"], str)
    assert [] != losses_at(losses, "$.messages[2]")
    assert [] != losses_at(losses, "$.messages[3]")


def test_13_items_and_tools_that_chat_does_not_know_are_listed() -> None:
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": "q"},
            {"type": "item_reference", "id": "x"},
            {"type": "hologram", "shape": "cube"},
        ],
        "tools": [{"type": "image_generation"}, {"type": "local_shell"}],
        "stop": ["END"],
    }
    value, losses = convert(body, RESPONSES, CHAT)
    assert ["END"] == value["stop"]
    for path in ("$.input[1]", "$.input[2]", "$.tools[0]", "$.tools[1]"):
        assert ["dropped"] == losses_at(losses, path)


def test_an_empty_member_is_told_as_empty() -> None:
    """It is a difference on the way back, and no more: no target would do anything else for it."""
    empties: list[Any] = [None, [], {}]
    for empty in empties:
        body = {"messages": [{"role": "user", "content": "x"}], "tools": empty or [], "notes": empty}
        details = {loss.path: loss.detail for loss in convert(body, CHAT, RESPONSES)[1]}
        assert {"$.tools", "$.notes"} == {path for path, detail in details.items() if "says nothing" in detail}
