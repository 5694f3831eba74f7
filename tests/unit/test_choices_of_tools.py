"""Owns the law of choices: what another API is told of the tools to call never speaks of one that it was not given."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

HOSTED = {
    "anthropic-messages": {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    "openai-responses": {"type": "web_search"},
}
SCHEMA = {"type": "object"}
FUNCTION: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"name": "f", "input_schema": SCHEMA},
    "openai-responses": {"type": "function", "name": "f", "parameters": SCHEMA, "strict": True},
}
SPACE = {"type": "namespace", "name": "ns", "description": "d", "tools": [FUNCTION["openai-responses"]]}
OTHERS = {
    "anthropic-messages": ("openai-chat", "openai-responses"),
    "openai-responses": ("openai-chat", "anthropic-messages"),
}
PAIRS = [(source, target) for source, targets in OTHERS.items() for target in targets]


def converted(source: str, target: str, tools: list[Any], choice: Any, **members: Any) -> ts.Rendered[Any]:
    said: dict[str, Any] = {"model": "m", "tools": tools, "tool_choice": choice}
    if source == "anthropic-messages":
        said |= {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    else:
        said |= {"input": "Hi"}
    return ts.convert(said | members, source, target)


def named(written: dict[str, Any]) -> set[str]:
    """What a choice names, in any of the forms that there are."""
    found: set[str] = set()
    for key, value in written.items():
        if key == "name":
            found.add(value)
        for inner in value if isinstance(value, list) else [value]:
            found |= named(inner) if isinstance(inner, dict) else set()
    return found


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("word", ["auto", "required"])
def test_without_any_tool_there_is_nothing_to_choose(source: str, target: str, word: str) -> None:
    choice: Any = word
    if source == "anthropic-messages":
        choice = {"type": "any" if word == "required" else "auto", "disable_parallel_tool_use": True}
    rendered = converted(source, target, [HOSTED[source]], choice)
    assert not {"tools", "tool_choice"} & rendered.value.keys()
    assert {"$.tools[0]", "$.tool_choice"} <= {loss.path for loss in rendered.losses}


def test_nor_is_there_anything_to_call_at_once() -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    rendered = converted("anthropic-messages", "openai-chat", [HOSTED["anthropic-messages"]], choice)
    assert "parallel_tool_calls" not in rendered.value
    assert "$.tool_choice.disable_parallel_tool_use" in [loss.path for loss in rendered.losses]
    rendered = converted("openai-responses", "anthropic-messages", [HOSTED["openai-responses"]], "auto")
    assert "tool_choice" not in rendered.value


@pytest.mark.parametrize("target", OTHERS["anthropic-messages"])
@pytest.mark.parametrize("beside", [[], [FUNCTION["anthropic-messages"]]], ids=["alone", "beside another"])
def test_a_tool_that_was_left_out_is_not_named(target: str, beside: list[Any]) -> None:
    choice = {"type": "tool", "name": "web_search"}
    rendered = converted("anthropic-messages", target, [HOSTED["anthropic-messages"], *beside], choice)
    assert "tool_choice" not in rendered.value
    assert "$.tool_choice" in [loss.path for loss in rendered.losses]


def test_one_in_a_namespace_is_called_as_it_was_written() -> None:
    choice = {"type": "function", "name": "f"}
    for target, member in (("openai-chat", "function"), ("anthropic-messages", "name")):
        rendered = converted("openai-responses", target, [SPACE], choice)
        written = rendered.value["tool_choice"][member]
        assert "ns__f" == (written["name"] if isinstance(written, dict) else written)
        assert "renamed" in [loss.kind for loss in rendered.losses if loss.path == "$.tool_choice"]


def allowed(*tools: Any, mode: str = "required") -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": [*tools]}


def test_of_a_list_of_allowed_tools_those_that_are_there_are_left() -> None:
    tools = [HOSTED["openai-responses"], FUNCTION["openai-responses"], SPACE]
    choice = allowed({"type": "web_search"}, {"type": "function", "name": "f"}, mode="auto")
    rendered = converted("openai-responses", "openai-chat", tools, choice)
    assert {"f"} == named(rendered.value["tool_choice"])
    assert "web_search" not in str(rendered.value)
    assert "$.tool_choice" in [loss.path for loss in rendered.losses]
    rendered = converted("openai-responses", "openai-chat", [SPACE], choice)
    assert {"ns__f"} == named(rendered.value["tool_choice"])


@pytest.mark.parametrize(("target", "none"), [("openai-chat", "none"), ("anthropic-messages", {"type": "none"})])
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_where_none_of_them_is_none_may_be_called(target: str, none: Any, mode: str) -> None:
    tools = [HOSTED["openai-responses"], FUNCTION["openai-responses"]]
    rendered = converted("openai-responses", target, tools, allowed({"type": "web_search"}, mode=mode))
    assert none == rendered.value["tool_choice"]
    told = [loss.detail for loss in rendered.losses if loss.path == "$.tool_choice"]
    assert any("none may be called" in one for one in told)
    assert not any("only the allowed tools are offered" in one for one in told)


def test_what_a_request_says_of_tools_that_it_has_not_itself_stays() -> None:
    unknown: dict[str, Any] = {"type": "function", "name": "g"}
    rendered = converted("openai-responses", "openai-chat", [FUNCTION["openai-responses"]], unknown)
    assert {"type": "function", "function": {"name": "g"}} == rendered.value["tool_choice"]
    back = converted("openai-responses", "openai-responses", [HOSTED["openai-responses"]], allowed(unknown))
    assert allowed(unknown) == back.value["tool_choice"]


WRITE = {**FUNCTION["openai-responses"], "name": "g"}
TWO = {**SPACE, "tools": [FUNCTION["openai-responses"], WRITE]}


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ({"type": "function", "name": "f"}, ["ns__f"]),
        ({"name": "g"}, ["ns__g"]),
        ({"type": "namespace", "name": "ns"}, ["ns__f", "ns__g"]),
    ],
)
def test_no_more_of_a_namespace_is_left_than_is_allowed(entry: Any, left: list[str]) -> None:
    choice = allowed(entry)
    rendered = converted("openai-responses", "openai-chat", [TWO], choice)
    assert {*left} == named(rendered.value["tool_choice"])
    rendered = converted("openai-responses", "anthropic-messages", [TWO, {**WRITE, "name": "h"}], choice)
    assert {"type": "any"} == rendered.value["tool_choice"]
    assert left == [tool["name"] for tool in rendered.value["tools"]]
    dropped = [loss.path for loss in rendered.losses if loss.kind == "dropped" and loss.path.startswith("$.tools")]
    assert {"$.tools[1]"} | ({"$.tools[0].tools[1]"} if left == ["ns__f"] else set()) <= set(dropped)


@pytest.mark.parametrize(("name", "left"), [("f", ["f"]), ("g", ["g"])])
def test_tools_that_come_later_are_allowed_or_not_as_others_are(name: str, left: list[str]) -> None:
    later = {"type": "additional_tools", "role": "developer", "tools": [WRITE]}
    said = [{"type": "message", "role": "user", "content": "Hi"}, later]
    choice = allowed({"type": "function", "name": name})
    rendered = converted("openai-responses", "anthropic-messages", [FUNCTION["openai-responses"]], choice, input=said)
    assert left == [tool["name"] for tool in rendered.value["tools"]]
