"""Owns what holds for the seed profile in every API that has it: the tables of the Universal document, and no more."""

from typing import Any

import pytest

import turnscript as ts

SEEDED = [name for name in ts.apis() if "seed" in ts.get_api(name).profiles]

CONVERSATION = ts.Conversation(
    items=[
        ts.System(content=[ts.Text(text="Be brief.")]),
        ts.System(content=[ts.Text(text="Be kind.")]),
        ts.User(content=[ts.Text(text="2 + 3?")]),
        ts.Assistant(content=[ts.Text(text="I will add.")]),
        ts.ToolCall(name="add", id="c1", arguments='{"a": 2, "b": 3}'),
        ts.ToolResult(name="add", id="c1", content=[ts.Text(text='{"sum": 5}')]),
        ts.Assistant(content=[ts.Text(text="5")]),
    ],
)


def test_three_apis_have_the_profile() -> None:
    assert ["anthropic-messages", "openai-chat", "openai-responses"] == SEEDED


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_body_reads_back_as_the_same_conversation(name: str) -> None:
    """R-U-17..32: each table there and back."""
    rendered = ts.render(ts.Request(conversation=CONVERSATION), name, profile="seed")
    items = ts.parse(rendered.data, name).items
    assert [item.kind for item in items if item.kind != "system"] == [
        item.kind for item in CONVERSATION.items if item.kind != "system"
    ]
    call = next(item for item in items if isinstance(item, ts.ToolCall))
    assert ("add", "c1", '{"a": 2, "b": 3}') == (call.name, call.id, call.arguments)


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
def test_tools_and_the_choice_among_them_are_listed_as_dropped(name: str) -> None:
    request = ts.Request(
        conversation=ts.Conversation(items=CONVERSATION.items, tools=[ts.Tool(name="add")]),
        settings=ts.Settings(tool_choice=ts.ToolChoice(mode="required")),
    )
    rendered = ts.render(request, name, profile="seed")
    value: Any = rendered.value
    assert not {"tools", "tool_choice"} & set(value)
    assert {"$.tools[0]", "$.tool_choice"} <= {loss.path for loss in rendered.losses}


@pytest.mark.parametrize(
    ("name", "member", "choice"),
    [
        ("openai-chat", "tool_choice", {"type": "function", "function": {"name": "f", "new": 1}}),
        ("openai-chat", "tool_choice", {"type": "new"}),
        ("openai-chat", "function_call", {"name": "f", "new": 1}),
        ("openai-responses", "tool_choice", {"type": "mcp", "server_label": "s"}),
    ],
)
def test_nothing_is_left_of_a_choice_that_is_dropped(name: str, member: str, choice: Any) -> None:
    body = {"input" if "responses" in name else "messages": [{"role": "user", "content": "q"}], member: choice}
    rendered = ts.convert(body, name, name, profile="seed")
    assert member not in rendered.value
    assert [f"$.{member}"] == [loss.path for loss in rendered.losses]


def test_a_result_of_which_only_a_text_is_left_is_written_as_one() -> None:
    part = {"type": "text", "text": "r", "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "tool", "tool_call_id": "c", "content": [part]}]}
    once = ts.convert(body, "openai-chat", "openai-responses", profile="seed")
    block = {"type": "tool_result", "tool_call_id": "c", "output": "r"}
    assert {"input": [{"role": "user", "content": [block]}]} == once.value
    assert once.data == ts.convert(once.data, "openai-responses", "openai-responses", profile="seed").data
