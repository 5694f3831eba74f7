"""Owns offers: which tools a model sees under which names, what is refused, and that calls come back as declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.growth import assert_grows_below
from tests.strategies import events as told_events
from tests.strategies import text as hostile
from turnscript.core.conversation import (
    Conversation,
    Request,
    Response,
    System,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolsChange,
    User,
    text_content,
)
from turnscript.core.conversation import calls as calls_of
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart, fold, raw_text
from turnscript.core.json_text import json_of, plain
from turnscript.gateway.checks import CallGate, CallPolicy
from turnscript.gateway.hygiene import clean
from turnscript.gateway.naming import Origin, Restorer, Unwrapper, unwrapped
from turnscript.gateway.offers import Offer, Offering, offer

ANY = ts.get_format("rwkv-universal")
F = {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}}
G = {**F, "name": "g"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": GRAMMAR}
SPACE = {"type": "namespace", "name": "fs", "description": "Files.", "tools": [{**F, "name": "read"}, PATCH]}
WEB = {"type": "web_search", "external_web_access": False}


def asked(tools: Sequence[Any], items: Sequence[Any] = (), **more: Any) -> Request:
    body = {"model": "m", "input": [{"role": "user", "content": "Hi"}, *items], "tools": list(tools), **more}
    return ts.parse(json.dumps(body), "openai-responses")


def offered(request: Request, options: Offering | None = None, format_name: str = "rwkv-universal") -> Offer:
    return offer(request, ts.get_format(format_name), options or Offering())


def shown(made: Offer) -> list[str | None]:
    return [tool.name for tool in made.request.tools]


def callable_names(made: Offer) -> list[str | None]:
    return [tool.name for tool in made.tools]


def losses(made: Offer) -> list[tuple[str, str]]:
    return [(loss.path, loss.kind) for loss in made.losses]


# What is offered.


def test_functions_are_offered_as_they_are() -> None:
    made = offered(asked([F, G]))
    assert (["f", "g"], ["f", "g"], []) == (shown(made), callable_names(made), losses(made))


def test_a_namespace_becomes_functions_with_its_name_in_theirs() -> None:
    made = offered(asked([SPACE, G]))
    assert ["fs__read", "fs__apply_patch", "g"] == shown(made)
    assert ["Files.\n\nF.", "Edits."] == [tool.description for tool in made.request.tools[:2]]
    assert [
        ("$.tools[0].tools[0]", "renamed"),
        ("$.tools[0].description", "moved"),
        ("$.tools[0].tools[1]", "renamed"),
        ("$.tools[0].tools[1]", "approximated"),
    ] == losses(made)


def test_two_tools_never_share_a_name() -> None:
    made = offered(asked([{**F, "name": "fs__read"}, SPACE, F, {**F, "description": "Another."}]))
    assert ["fs__read", "fs__read_2", "fs__apply_patch", "f"] == shown(made)
    assert ("$.tools[3]", "dropped") in losses(made)
    restored = made.restorer().response(Response(items=[ToolCall(name="fs__read_2"), ToolCall(name="fs__read")]))
    assert [("fs", "read"), (None, "fs__read")] == [(call.namespace, call.name) for call in calls_of(restored.items)]


def test_free_text_is_asked_for_as_one_string_and_its_grammar_is_told() -> None:
    (tool,) = offered(asked([PATCH])).request.tools
    assert ("function", None) == (tool.type, tool.format)
    schema = plain(tool.parameters or json_of(None))
    assert ["input"] == schema["required"]
    assert "lark" in schema["properties"]["input"]["description"]
    assert GRAMMAR["definition"] in schema["properties"]["input"]["description"]


def test_free_text_can_stay_what_it_is() -> None:
    made = offered(asked([PATCH]), Offering(custom="native"))
    assert [("custom", "apply_patch")] == [(tool.type, tool.name) for tool in made.request.tools]
    assert [] == losses(made)


@pytest.mark.parametrize("kind", ["web_search", "image_generation", "mcp", "computer_use_preview", "never_seen"])
def test_what_a_vendor_runs_is_reported_and_left_out(kind: str) -> None:
    made = offered(asked([F, {"type": kind}, {"type": "namespace", "name": "n", "tools": [{"type": kind}, G]}]))
    assert ["f", "n__g"] == shown(made)
    assert [("$.tools[1]", "dropped"), ("$.tools[2].tools[0]", "dropped")] == losses(made)[:2]


@pytest.mark.parametrize("options", [Offering(hosted="refuse"), Offering(refuse=("computer*", "web_*"))])
def test_what_a_vendor_runs_can_be_refused_with_its_place(options: Offering) -> None:
    with pytest.raises(ts.InvalidRequest, match="web_search") as caught:
        offered(asked([F, WEB]), options)
    assert ("$.tools[1]", 400) == (caught.value.path, caught.value.status)


def test_only_the_types_that_are_named_are_refused() -> None:
    assert ["f"] == shown(offered(asked([F, WEB]), Offering(refuse=("computer*",))))


def test_members_that_ask_for_a_vendors_tools_are_treated_like_those() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "web_search_options": {"a": 1}}
    request = ts.parse(json.dumps(body), "openai-chat")
    assert [("$.web_search_options", "dropped")] == losses(offered(request))
    with pytest.raises(ts.InvalidRequest) as caught:
        offered(request, Offering(hosted="refuse"))
    assert "$.web_search_options" == caught.value.path


# The conversation that is there already.


def test_old_calls_are_spelled_as_a_model_writes_them() -> None:
    items = [
        {"type": "function_call", "call_id": "1", "name": "read", "namespace": "fs", "arguments": '{"a": 1.0}'},
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
        {"type": "custom_tool_call", "call_id": "2", "name": "apply_patch", "input": 'a "b"\n'},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "done"},
        {"type": "function_call", "call_id": "3", "name": "gone", "namespace": "old", "arguments": "{}"},
    ]
    made = offered(asked([SPACE, PATCH], items))
    calls = list(calls_of(made.request.items))
    assert [("fs__read", None), ("apply_patch", None), ("old__gone", None)] == [(c.name, c.namespace) for c in calls]
    assert '{"a": 1.0}' == calls[0].arguments
    assert ({"input": 'a "b"\n'}, False) == (json.loads(calls[1].arguments), calls[1].custom)
    assert not any(result.custom for result in made.request.items if isinstance(result, ToolResult))


@pytest.mark.parametrize("format_name", ts.formats())
def test_tools_that_come_later_leave_the_beginning_of_the_prompt_as_it_was(format_name: str) -> None:
    later = {"type": "additional_tools", "role": "developer", "tools": [SPACE, G]}
    before = offered(asked([F]), format_name=format_name)
    after = offered(asked([F], [{"role": "user", "content": "More"}, later]), format_name=format_name)
    format_ = ts.get_format(format_name)
    old, new = before.prompt(format_, thinking=False), after.prompt(format_, thinking=False)
    spans = list(old.spans)
    last = max(index for index, span in enumerate(spans) if span.item >= 0)
    assert new.text.startswith("".join([span.text for span in spans[: last + 1]]).rstrip())
    assert "fs__read" in new.text.removeprefix(old.text[:40])
    assert {"f", "g", "fs__read", "fs__apply_patch"} == set(new.offered)
    assert {"f", "g", "fs__read", "fs__apply_patch"} == set(callable_names(after))


@pytest.mark.parametrize("format_name", ts.formats())
def test_a_prompts_parser_knows_the_tools_that_came_later(format_name: str) -> None:
    format_ = ts.get_format(format_name)
    change = ToolsChange(added=[Tool(name="late", parameters=json_of({"type": "object"}))])
    said = User(content=[Text(text="Hi")])
    made = offer(Request(conversation=Conversation([said, change])), format_)
    known = Request(conversation=Conversation([said], [Tool(name="late", parameters=json_of({"type": "object"}))]))
    written = format_.spans(
        Request(conversation=Conversation([said, ToolCall(name="late", arguments='{"a": "b"}')], known.tools)),
        view="prompt",
    )
    before = format_.prompt(known, thinking=False).text.rstrip()
    whole = "".join([span.text for span in written])
    answer = (
        whole[len(before) :] if whole.startswith(before) else "".join([one.text for one in written if one.item > 0])
    )
    prompt = made.prompt(format_, thinking=False)
    assert format_.prompt(known, thinking=False).stops == prompt.stops
    parser = prompt.parser()
    (call,) = calls_of(fold([*parser.feed(answer), *parser.close()]).items)
    assert ("late", {"a": "b"}) == (call.name, json.loads(call.arguments))


def test_a_removed_tool_may_not_be_called_any_more() -> None:
    change = ToolsChange(removed=["f"], added=[Tool(name="h")])
    request = Request(
        conversation=Conversation([User(content=[Text(text="Hi")]), change], [Tool(name="f"), Tool(name="g")])
    )
    made = offer(request, ts.get_format("batuta-chatml"))
    assert (["f", "g"], ["g", "h"]) == (shown(made), callable_names(made))
    told = made.request.items[1]
    assert isinstance(told, System)
    assert "can no longer be called: f" in text_content(told.content)


def test_a_prompts_losses_name_tools_where_the_client_declared_them() -> None:
    format_ = ts.get_format("rwkv-goose")
    made = offered(asked([WEB, {**F, "strict": True}]), format_name="rwkv-goose")
    paths = {loss.path for loss in made.located(made.prompt(format_).losses)}
    assert "$.tools[1].strict" in paths
    assert not any(path.startswith("$.tools[0]") for path in paths)


# Choices.


def choose(mode: str, name: str | None = None, **more: Any) -> Request:
    request = asked([F, G, SPACE, PATCH], **more)
    request.settings.tool_choice = ToolChoice(mode, name)
    return request


def test_no_choice_and_auto_change_nothing() -> None:
    assert offered(asked([F])).request.settings.tool_choice is None
    assert ToolChoice("auto") == offered(choose("auto")).request.settings.tool_choice


@pytest.mark.parametrize("format_name", ts.formats())
def test_no_tools_wanted_keeps_the_tools_in_the_prompt_and_reads_no_calls(format_name: str) -> None:
    format_ = ts.get_format(format_name)
    free, none = (offered(choose(mode), format_name=format_name).prompt(format_) for mode in ("auto", "none"))
    assert free.text == none.text
    assert {} == none.offered


@pytest.mark.parametrize(
    ("name", "expected"), [("f", "f"), ("read", "fs__read"), ("fs__read", "fs__read"), ("apply_patch", "apply_patch")]
)
def test_a_named_tool_is_named_as_the_model_knows_it(name: str, expected: str) -> None:
    made = offered(choose("named", name))
    assert ToolChoice("named", expected) == made.request.settings.tool_choice
    assert expected in made.prompt(ANY).text.split("<<USER_END>>")[1]


def test_a_named_tool_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ts.InvalidRequest, match="'h' is not among the tools") as caught:
        offered(choose("named", "h"))
    assert ("$.tool_choice", "one of f, g, fs__read, fs__apply_patch, apply_patch") == (
        caught.value.path,
        caught.value.expected,
    )


def test_a_name_in_two_namespaces_is_no_choice() -> None:
    two = [{**SPACE, "name": name, "tools": [{**F, "name": "read"}]} for name in ("a", "b")]
    request = asked(two)
    request.settings.tool_choice = ToolChoice("named", "read")
    with pytest.raises(ts.InvalidRequest, match="several namespaces"):
        offered(request)


@pytest.mark.parametrize("choice", [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}])
def test_a_choice_of_what_a_vendor_runs_is_refused_whatever_else_is_reported(choice: object) -> None:
    with pytest.raises(ts.InvalidRequest, match="its vendor's own") as caught:
        offered(asked([F, WEB], tool_choice=choice))
    assert "$.tool_choice" == caught.value.path


def test_a_choice_by_name_of_what_a_vendor_runs_is_refused() -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "tool", "name": "web_search"},
    }
    with pytest.raises(ts.InvalidRequest, match="web_search_20250305") as caught:
        offered(ts.parse(json.dumps(body), "anthropic-messages"))
    assert "$.tool_choice" == caught.value.path


def test_a_call_that_is_demanded_of_nobody_is_reported() -> None:
    request = asked([WEB], tool_choice="required")
    made = offered(request)
    assert made.request.settings.tool_choice is None
    assert ("$.tool_choice", "dropped") in losses(made)
    assert ToolChoice("required") == request.settings.tool_choice


def allowed(*entries: object, mode: str = "auto") -> Request:
    return asked([F, G, SPACE, WEB], tool_choice={"type": "allowed_tools", "mode": mode, "tools": list(entries)})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"type": "function", "name": "g"}], ["g"]),
        ([{"type": "function", "function": {"name": "g"}}], ["g"]),
        ([{"type": "function", "name": "g"}, {"type": "custom", "name": "apply_patch"}], ["g", "fs__apply_patch"]),
        ([{"type": "namespace", "name": "fs"}], ["fs__read", "fs__apply_patch"]),
    ],
)
def test_only_the_allowed_tools_are_shown_and_the_changed_beginning_is_reported(
    entries: list[object], expected: list[str]
) -> None:
    made = offered(allowed(*entries))
    assert (expected, expected) == (shown(made), callable_names(made))
    assert ToolChoice("auto") == made.request.settings.tool_choice
    assert ("$.tool_choice", "moved") in losses(made)
    assert ToolChoice("required") == offered(allowed(*entries, mode="required")).request.settings.tool_choice


def test_the_other_tools_can_stay_in_the_prompt_and_are_unknown_to_the_checks() -> None:
    made = offered(allowed({"type": "function", "name": "g"}), Offering(allowed="keep"))
    assert (["f", "g", "fs__read", "fs__apply_patch"], ["g"]) == (shown(made), callable_names(made))
    gate = CallGate(made.tools)
    gate.feed(told_events.told(Response(items=[ToolCall(name="f")]), told_events.in_pieces(9)))
    assert ["unknown_tool"] == [finding.kind for finding in gate.findings]


@pytest.mark.parametrize("entry", [{"type": "function", "name": "f{}"}, {"type": "web_search"}, {"type": "namespace"}])
def test_allowed_tools_are_found_in_time_in_proportion(entry: dict[str, str]) -> None:
    def choosing(count: int) -> Callable[[], object]:
        tools = [{"type": "function", "name": f"f{at}"} for at in range(count)]
        entries = [{key: value.format(at) for key, value in entry.items()} for at in range(count)]
        request = asked(tools, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": entries})
        return lambda: offered(request)

    assert_grows_below(10, choosing, 500, 2_000, least=0.005)


def test_where_none_of_the_allowed_tools_is_there_none_is_called() -> None:
    made = offered(allowed({"type": "web_search"}, mode="required"))
    assert ToolChoice("none") == made.request.settings.tool_choice
    assert [("$.tool_choice.tools[0]", "dropped"), ("$.tool_choice", "approximated")] == losses(made)[-2:]
    assert ["f", "g", "fs__read", "fs__apply_patch"] == shown(made)


# The way back.


def wrapped(input_: str, spaces: str = " ") -> str:
    return f'{{"input":{spaces}{json.dumps(input_)}}}'


@given(said=st.text() | hostile.texts(), size=st.integers(1, 9), ascii_=st.booleans())
def test_free_text_is_unescaped_as_it_comes(said: str, size: int, ascii_: bool) -> None:
    said = said.encode("utf-8", "replace").decode()
    arguments = json.dumps({"input": said}, ensure_ascii=ascii_)
    unwrapper = Unwrapper()
    pieces = [unwrapper.feed(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert said == "".join(pieces) + unwrapper.close()
    assert (said, False) == unwrapped(arguments)


def test_free_text_never_waits_for_more_than_an_escape() -> None:
    unwrapper = Unwrapper()
    assert ["", "a", "", "\n", "", "", "😀", "b"] == [
        unwrapper.feed(piece) for piece in ('{"input":"', "a", "\\", "n", "\\ud83d", "\\ude", "00", "b")
    ]


@pytest.mark.parametrize(
    ("arguments", "expected", "odd"),
    [
        ('{"input": "a"}', "a", False),
        (' { "input" : "a" } ', "a", False),
        ('{"input": "a", "x": 1}', "a", False),
        ('{"input": "a\\/\\u00e9\\t"}', "a/é\t", False),
        ('{"input": "\\ud83d\\ude00"}', "😀", False),
        ('{"input": "\\ud83d"}', "\N{REPLACEMENT CHARACTER}", False),
        ('{"input": "\\ud83dx"}', "\N{REPLACEMENT CHARACTER}x", False),
        ('{"input": "\\ude00\\ud83d\\ude00"}', "\N{REPLACEMENT CHARACTER}😀", False),
        ('{"input": "\\ud83d\\u0041"}', "\N{REPLACEMENT CHARACTER}A", False),
        ('{"x": 1, "input": "a"}', "a", True),
        ('{"patch": "a"}', "a", True),
        ('{"patch": "a", "x": "b"}', '{"patch": "a", "x": "b"}', True),
        ('{"input": ["a"]}', '{"input": ["a"]}', True),
        ("*** Begin", "*** Begin", True),
        ("", "", True),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 100])
def test_what_is_no_wrapped_text_is_passed_on_as_it_is(arguments: str, expected: str, odd: bool, size: int) -> None:
    unwrapper = Unwrapper()
    pieces = [unwrapper.feed(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert (expected, odd) == ("".join(pieces) + unwrapper.close(), unwrapper.odd)
    assert (expected, odd) == unwrapped(arguments)


ORIGINS = {
    "get_weather": Origin("weather", "sky"),
    "apply_patch": Origin("apply_patch", None, shim=True),
    "f": Origin("exec", "functions", shim=True),
}
KINDS = ("text", "texts", "thinking", "call", "idless")


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Events of answers, some of their calls with wrapped free text."""
    response = draw(told_events.responses(KINDS))
    for call in calls_of(response.items):
        if draw(st.booleans()):
            call.arguments = wrapped(
                draw(hostile.texts()).encode("utf-8", "replace").decode(), draw(st.sampled_from(("", " ")))
            )
    return told_events.told(response, lambda content: told_events.cut_anywhere(draw, content))


@given(events=answers())
def test_names_and_forms_come_back_the_same_whole_and_in_pieces(events: list[Event]) -> None:
    expected = Restorer(ORIGINS).response(fold(events))
    restorer, singly = Restorer(ORIGINS), Restorer(ORIGINS)
    assert expected == fold(restorer.feed(events))
    out = [told for event in events for told in singly.feed([event])]
    assert expected == fold(out)
    texts: dict[int, str] = {}
    for event in out:
        if isinstance(event, PartStart):
            texts[event.index] = ""
            assert not isinstance(event.part, ToolCall) or event.part.name not in ("get_weather", "f")
        elif isinstance(event, PartDelta):
            texts[event.index] += event.text
        elif isinstance(event, PartEnd) and event.part is not None:
            assert told_events.content_of(event.part) == texts[event.index]
    assert raw_text(events) == raw_text(out)


def test_free_text_that_was_none_is_reported() -> None:
    restorer = Restorer(ORIGINS)
    response = restorer.response(Response(items=[ToolCall(name="apply_patch", arguments='{"a": "b", "c": "d"}')]))
    (call,) = calls_of(response.items)
    assert ('{"a": "b", "c": "d"}', True) == (call.arguments, call.custom)
    assert ["approximated"] == [loss.kind for loss in restorer.losses]


@pytest.mark.parametrize("size", [1, 6, 10_000])
@pytest.mark.parametrize("format_name", [name for name in ts.formats() if name != "rwkv-universal"])
def test_the_clients_own_call_comes_out_of_what_a_model_writes(format_name: str, size: int) -> None:
    format_ = ts.get_format(format_name)
    made = offered(asked([F, SPACE]), format_name=format_name)
    call = {"type": "custom_tool_call", "call_id": "1", "name": "apply_patch", "namespace": "fs", "input": 'a "b"\né'}
    again = offered(asked([F, SPACE], [call]), format_name=format_name)
    prompt = made.prompt(format_, thinking=False)
    spans = format_.spans(again.request, view="prompt")
    answer = "".join([span.text for span in spans])[len(prompt.text.rstrip()) :]
    parser, gate, restorer = prompt.parser(), CallGate(made.tools, CallPolicy(action="text")), made.restorer()
    out: list[Event] = []
    for at in range(0, len(answer), size):
        out += restorer.feed(gate.feed(parser.feed(answer[at : at + size])))
    out += restorer.feed(gate.feed(parser.close()))
    (found,) = calls_of(fold(out).items)
    assert ("fs", "apply_patch", True, 'a "b"\né') == (found.namespace, found.name, found.custom, found.arguments)
    assert [] == gate.findings


def test_hidden_tools_may_be_called_though_no_prompt_shows_them() -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f"}, {"name": "late", "defer_loading": True}],
    }
    cleaned = clean(ts.parse(json.dumps(body), "anthropic-messages"))
    made = offer(cleaned.request, ANY, hidden=cleaned.hidden)
    assert (["f"], ["f", "late"]) == (shown(made), callable_names(made))


def test_a_choice_in_a_word_that_nobody_knows_is_reported() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tool_choice": "sometimes"}
    made = offered(ts.parse(json.dumps(body), "openai-chat"))
    assert [("$.tool_choice", "dropped")] == losses(made)


def test_a_tool_without_a_name_is_reported() -> None:
    made = offer(Request(conversation=Conversation([], [Tool(name=None), Tool(name="f")])), ANY)
    assert (["f"], [("$.tools[0]", "dropped")]) == (shown(made), losses(made))


def test_old_free_text_with_half_a_character_is_still_json() -> None:
    call = ToolCall(name="apply_patch", arguments="a\ud800", custom=True)
    (item,) = offer(Request(conversation=Conversation([call])), ANY).request.items
    assert isinstance(item, ToolCall)
    assert {"input": "a\ud800"} == json.loads(item.arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"input": "a', "a"), ('{"input": "a\\', "a"), ('{"input": "\\uzzzz"}', "\N{REPLACEMENT CHARACTER}")],
)
def test_a_string_that_is_broken_gives_what_there_is_of_it(arguments: str, expected: str) -> None:
    assert (expected, False) == unwrapped(arguments)


def test_what_needs_no_restoring_passes_as_it_is() -> None:
    events = told_events.told(Response(items=[ToolCall(name="f")]), told_events.in_pieces(1))
    assert events == offered(asked([F])).restorer().feed(events)
