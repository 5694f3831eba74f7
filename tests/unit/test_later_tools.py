"""Owns tools that come or go in the course of a conversation: the parser of its prompt knows which may be called."""

import pytest

import turnscript as ts
from turnscript.core.conversation import (
    Conversation,
    Request,
    Settings,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolsChange,
    User,
)
from turnscript.core.json_text import json_of

SCHEMA = json_of({"type": "object"})
EARLY, LATE = Tool(name="early", parameters=SCHEMA), Tool(name="late", parameters=SCHEMA)
HI = User(content=[Text(text="Hi")])
CALL = ToolCall(name="late", arguments='{"a": "b"}')


def asked(*items: ts.Item, tools: tuple[Tool, ...] = (EARLY,), choice: ToolChoice | None = None) -> Request:
    return Request(conversation=Conversation(list(items), list(tools)), settings=Settings(tool_choice=choice))


def call_text(format_: ts.Format) -> str:
    """What a model writes for a call of `late`."""
    known = asked(HI, tools=(EARLY, LATE))
    before = format_.prompt(known, thinking=False).text.rstrip()
    spans = format_.spans(asked(HI, CALL, tools=(EARLY, LATE)), view="prompt")
    whole = "".join([span.text for span in spans])
    return whole[len(before) :] if whole.startswith(before) else "".join([s.text for s in spans if s.item > 0])


def answered(prompt: ts.Prompt, text: str) -> ts.Response:
    parser = prompt.parser()
    return ts.fold([*parser.feed(text), *parser.close()])


def unknown(response: ts.Response) -> list[str]:
    return [issue.kind for issue in response.issues if issue.kind == "unknown_tool"]


@pytest.mark.parametrize("name", ts.formats())
@pytest.mark.parametrize("tools", [(EARLY,), ()])
def test_a_tool_that_was_added_may_be_called(name: str, tools: tuple[Tool, ...]) -> None:
    format_ = ts.get_format(name)
    prompt = format_.prompt(asked(HI, ToolsChange(added=[LATE]), tools=tools), thinking=False)
    assert format_.prompt(asked(HI, tools=(EARLY, LATE)), thinking=False).stops == prompt.stops
    response = answered(prompt, call_text(format_))
    assert ["late"] == [item.name for item in response.items if isinstance(item, ToolCall)]
    assert not unknown(response)


def test_a_tool_that_was_taken_away_is_unknown_until_it_comes_back() -> None:
    format_ = ts.get_format("rwkv-universal")
    text = call_text(format_)
    gone = asked(HI, ToolsChange(removed=["late"]), tools=(EARLY, LATE))
    assert unknown(answered(format_.prompt(gone, thinking=False), text))
    back = asked(HI, ToolsChange(removed=["late"]), ToolsChange(added=[LATE]), tools=(EARLY, LATE))
    assert not unknown(answered(format_.prompt(back, thinking=False), text))


def test_a_longer_prompt_knows_what_the_shorter_one_did_and_what_came_since() -> None:
    format_ = ts.get_format("rwkv-universal")
    prompt = format_.prompt(asked(HI, ToolsChange(added=[LATE])), thinking=False)
    longer = prompt.extend(answered(prompt, "Hello.\x1f"), [HI])
    assert longer is not None
    assert {"early", "late"} == set(longer.offered)
    longest = longer.extend(
        answered(longer, "Hello.\x1f"), [ToolsChange(removed=["early"], added=[Tool(name="x")]), HI]
    )
    assert longest is not None
    assert {"late", "x"} == set(longest.offered)
    assert {"early", "late"} == set(prompt.offered), "a prompt stays as it was"


def test_a_call_is_demanded_where_all_tools_came_later() -> None:
    format_ = ts.get_format("rwkv-universal")
    early = format_.prompt(asked(HI, tools=(LATE,), choice=ToolChoice("required")))
    later = format_.prompt(asked(HI, ToolsChange(added=[LATE]), tools=(), choice=ToolChoice("required")))
    assert early.prefill
    assert (early.prefill, early.stops) == (later.prefill, later.stops)


def test_no_tool_is_offered_where_none_may_be_called() -> None:
    format_ = ts.get_format("rwkv-universal")
    assert not format_.prompt(asked(HI, ToolsChange(added=[LATE]), choice=ToolChoice("none"))).offered
