"""Owns conversations that are put together wrongly: each is an error that names the place, and what to write."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given

import turnscript as ts
from tests import corpora
from tests.every import every
from tests.strategies import conversations
from turnscript.core.validation import refuse_mistakes

X: list[ts.Part] = [ts.Text(text="x")]


def by_name(name: str, request: ts.Request) -> object:
    return ts.render(request, name).data


def as_prompt(name: str, request: ts.Request) -> object:
    return ts.get_format(name).prompt(request).text


def as_body(name: str, request: ts.Request) -> object:
    return ts.get_api(name).render_request(request).data


TARGETS: dict[str, Callable[[ts.Request], object]] = {
    **{name: partial(by_name, name) for name in (*ts.apis(), *ts.formats())},
    **{f"{name}: prompt": partial(as_prompt, name) for name in ts.formats()},
    **{f"{name}: request": partial(as_body, name) for name in ts.apis()},
}
"""All that writes a request."""


def asked(*items: Any, tools: Any = (), **settings: Any) -> ts.Request:
    """A request that nothing checks."""
    return ts.Request(conversation=ts.Conversation(list(items), tools), settings=ts.Settings(**settings))


def wrong(**members: Any) -> Any:
    """A user's text with members of any type."""
    return ts.User(**members)


CALL = ts.ToolCall(name="f", id="a")
PART = r"a list of Part, got {}; write \[{}\]"
MISTAKES: dict[str, tuple[ts.Request, str, str]] = {
    "text": (asked(wrong(content="Hi")), "items[0].content", PART.format("str", r"Text\(text=\.\.\.\)")),
    "part": (asked(wrong(content=ts.Text(text="x"))), "items[0].content", PART.format("Text", r"\.\.\.")),
    "texts": (asked(wrong(content=["Hi"])), "items[0].content[0]", r"Part, got str; write Text\(text=\.\.\.\)"),
    "dicts": (asked(wrong(content=[{"type": "text"}])), "items[0].content[0]", "Part, got dict"),
    "none": (asked(wrong(content=None)), "items[0].content", "a list of Part, got None"),
    "later": (asked(ts.User(content=X), wrong(content="Hi")), "items[1].content", "a list of Part, got str"),
    "system": (asked(ts.System(content="Hi"), ts.User(content=X)), "items[0].content", "a list of Part, got str"),  # type: ignore[arg-type]
    "item": (asked({"role": "user", "content": "Hi"}), "items[0]", "Item, got dict"),
    "string": (asked("Hi"), "items[0]", "Item, got str"),
    "conversation": (ts.Request(conversation=[wrong(content=X)]), "conversation", "Conversation, got list"),  # type: ignore[arg-type]
    "settings": (ts.Request(settings={"n": 1}), "settings", "Settings, got dict"),  # type: ignore[arg-type]
    "tool": (asked(ts.User(content=X), tools=[{"name": "f"}]), "tools[0]", "Tool, got dict"),
}
"""What is wrong, where, and what is said of it."""

TALES = {
    "result": (asked(ts.User(content=X), CALL, ts.ToolResult(id="a", content="22")), "items[2].content", "a list of"),  # type: ignore[arg-type]
    "thought": (asked(ts.User(content=X), ts.Thinking(content="Hm")), "items[1].content", "a list of Part, got str"),  # type: ignore[arg-type]
    "arguments": (
        asked(ts.User(content=X), ts.ToolCall(name="f", id="a", arguments={"a": 1})),  # type: ignore[arg-type]
        "items[1].arguments",
        r"str, got dict; write json\.dumps\(\.\.\.\)",
    ),
}
"""The same of items that not every API has a place for."""

CHOICES = {
    "tool_choice": (
        asked(ts.User(content=X), tools=[ts.Tool(name="f")], tool_choice="auto"),
        "settings.tool_choice",
        r"ToolChoice or None, got str; write ToolChoice\(mode=\.\.\.\)",
    ),
    "thinking": (asked(ts.User(content=X), thinking=True), "settings.thinking", "ThinkingMode or None, got bool"),
    "format": (
        asked(ts.User(content=X), response_format={"type": "json_object"}),
        "settings.response_format",
        "ResponseFormat or None, got dict",
    ),
}
"""Settings, of which each target knows some."""


def assert_told(write: Callable[[], object], path: str, said: str) -> None:
    with pytest.raises(ts.InvalidConversation, match=f"expected {said}") as caught:
        write()
    assert path == caught.value.path
    assert caught.value.__suppress_context__  # nobody needs to read which writer met it


@pytest.mark.parametrize("mistake", MISTAKES)
@every("target", TARGETS)
def test_a_mistake_is_told_with_its_place_and_remedy(mistake: str, target: str) -> None:
    request, path, said = MISTAKES[mistake]
    assert_told(lambda: TARGETS[target](request), path, said)


@pytest.mark.parametrize("mistake", TALES)
@every("target", [name for name in TARGETS if "completions" not in name])
def test_a_mistake_in_what_a_model_or_tool_said_is_told(mistake: str, target: str) -> None:
    request, path, said = TALES[mistake]
    assert_told(lambda: TARGETS[target](request), path, said)


@pytest.mark.parametrize("target", ["anthropic-messages", "openai-chat", "openai-responses"])
@pytest.mark.parametrize("mistake", CHOICES)
def test_a_mistake_in_a_setting_is_told(mistake: str, target: str) -> None:
    request, path, said = CHOICES[mistake]
    assert_told(lambda: TARGETS[target](request), path, said)


@pytest.mark.parametrize("name", ts.apis())
@pytest.mark.parametrize("given", [None, {"messages": []}, b"{}", "Hi", [ts.User(content=X)]], ids=repr)
def test_what_is_no_request_is_told(name: str, given: Any) -> None:
    said = f"Request, got {type(given).__name__.removesuffix('Type')}; `parse` makes one"
    assert_told(lambda: ts.get_api(name).render_request(given), "request", said)
    for format_ in map(ts.get_format, ts.formats()):
        assert_told(partial(format_.prompt, given), "request", said)
        assert_told(partial(format_.render, given), "request", said)


@pytest.mark.parametrize("name", [*ts.apis(), *ts.formats()])
@pytest.mark.parametrize("given", [None, {"messages": []}, b"{}", "Hi", [ts.User(content=X)]], ids=repr)
def test_what_cannot_be_rendered_is_told(name: str, given: Any) -> None:
    with pytest.raises(ts.InvalidConversation, match=r"expected a Request, Response or Exchange, got .*; `convert`"):
        ts.render(given, name)


@pytest.mark.parametrize("name", ts.apis())
def test_a_mistake_in_an_answer_is_told(name: str) -> None:
    api, request = ts.get_api(name), asked(ts.User(content=X))
    answer = ts.Response(items=[ts.Assistant(content="Hi")])  # type: ignore[arg-type]
    for write in (lambda: api.render_response(answer, request), lambda: ts.render(answer, name)):
        assert_told(write, "items[0].content", "a list of Part, got str")
    if "completions" not in name:
        call: Any = ts.ToolCall(name="f", id="a", arguments={"a": 1})  # type: ignore[arg-type]
        answer = ts.Response(items=[ts.Assistant(content=X), call])
        assert_told(partial(api.render_response, answer, request), "items[1].arguments", "str, got dict")
    given: Any = {"choices": []}
    assert_told(lambda: api.render_response(given, request), "response", "Response, got dict; `parse_response` makes")


@pytest.mark.parametrize("name", ts.formats())
def test_a_mistake_in_what_extends_a_prompt_is_told_and_spoils_nothing(name: str) -> None:
    prompt = ts.get_format(name).prompt(asked(ts.User(content=X)))
    parser = prompt.parser()
    answer = ts.fold(parser.feed("Hello") + parser.close())
    more: Any = ts.User(content=X)
    assert_told(lambda: prompt.extend(answer, more), "items", r"a list of Item, got User; write \[\.\.\.\]")
    assert_told(lambda: prompt.extend(answer, [wrong(content="Hi")]), "items[0].content", "a list of Part, got str")
    given: Any = "Hello"
    assert_told(lambda: prompt.extend(given, []), "response", "Response, got str")
    longer = prompt.extend(answer, [ts.User(content=X)])
    again = ts.get_format(name).prompt(asked(ts.User(content=X))).extend(answer, [ts.User(content=X)])
    assert longer is not None
    assert again is not None
    assert again.text == longer.text


def test_a_fault_of_our_own_is_not_taken_for_a_mistake() -> None:
    """An error while a conversation is written in which nothing is wrong stays what it is."""

    class Broken(type(ts.get_api("openai-chat"))):  # type: ignore[misc]
        def write(self, body: dict[str, Any], rendering: object) -> None:
            raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        Broken().render_request(asked(ts.User(content=X)))


def test_json_where_it_is_written_as_python_is_told() -> None:
    format_ = ts.ResponseFormat(type="json_schema", schema=5)  # type: ignore[arg-type]
    request = asked(wrong(content="Hi"), response_format=format_)
    request.conversation.items = [ts.Raw(type="x", value=msgspec.Raw(b"{}"))]  # type: ignore[list-item]
    assert_told(lambda: ts.render(request, "openai-chat"), "items[0]", "Item, got Raw")


@pytest.mark.parametrize("name", corpora.names())
def test_nothing_is_wrong_in_what_was_read(name: str) -> None:
    """Whatever is read is of the types that are looked at, so a fault of a writer is never told as the caller's."""
    request = corpora.load(name)
    refuse_mistakes(request=request)
    for target in (*ts.apis(), "rwkv-universal"):
        refuse_mistakes(request=ts.parse(ts.render(request, target).data, target))


@given(conversations.requests())
def test_nothing_is_wrong_in_any_conversation(asked: ts.Request) -> None:
    refuse_mistakes(request=asked, items=asked.items, tools=asked.tools)
