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
