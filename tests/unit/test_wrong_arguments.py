"""Owns what a program is told that gives the wrong thing: what was expected, what came, and what to write instead."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.core.errors import type_of

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

REGISTERED: dict[str, Callable[[Any], object]] = {
    "get_format": ts.get_format,
    "get_api": ts.get_api,
    "get_preset": ts.get_preset,
    "parse": lambda name: ts.parse(BODY, name),
    "parse_response": lambda name: ts.parse_response(BODY, name),
    "render": lambda name: ts.render(ts.parse(BODY), name),
    "convert from": lambda name: ts.convert(BODY, name, "openai-chat"),
    "convert to": lambda name: ts.convert(BODY, "openai-chat", name),
}
"""Everything that looks a name up in the registry."""

OPTIONS: dict[str, Callable[[Any], object]] = {
    "view": lambda name: ts.render(ts.parse(BODY), "rwkv-universal", view=name),
    "escape": lambda name: ts.get_format("rwkv-universal").prompt(ts.parse(BODY), escape=name),
    "variant": lambda name: ts.get_format("rwkv-universal").variant(name),
    "profile": lambda name: ts.render(ts.parse(BODY), "anthropic-messages", profile=name),
    "side": lambda name: ts.convert(BODY, "auto", "openai-chat", side=name),
    "order": lambda name: ts.get_format("openchatml").fill_prompt(ts.Fill(prefix="", suffix=""), order=name),
}
"""Options whose values have names."""


@pytest.mark.parametrize("ask", REGISTERED.values(), ids=REGISTERED)
@pytest.mark.parametrize("name", [None, 5, b"openai-chat", ["openai-chat"], BODY], ids=repr)
def test_what_is_no_name_is_an_unknown_one(ask: Callable[[Any], object], name: object) -> None:
    with pytest.raises(ts.UnknownName) as caught:
        ask(name)
    assert f"expected a str, got {type(name).__name__.removesuffix('Type')}; known: " in str(caught.value)


@pytest.mark.parametrize("ask", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("value", [5, True, b"x"], ids=repr)
def test_what_is_no_name_is_an_unknown_option(ask: Callable[[Any], object], value: object) -> None:
    with pytest.raises(ts.UnknownName, match=f"expected a str, got {type(value).__name__}; "):
        ask(value)


def test_a_path_is_told_how_it_is_written() -> None:
    path: Any = Path("examples/formats/tagged.toml")
    for ask in (ts.get_format, REGISTERED["render"], REGISTERED["convert to"]):
        with pytest.raises(ts.UnknownName, match=re.escape(f"got {type(path).__name__}; write '{path}'")):
            ask(path)


@pytest.mark.parametrize("one", [ts.get_format("ai00-v1"), ts.get_api("openai-chat")], ids=lambda one: one.name)
def test_a_format_or_api_itself_is_told_its_name(one: Any) -> None:
    with pytest.raises(ts.UnknownName, match=f"got {type(one).__name__}; write '{one.name}'"):
        ts.render(ts.parse(BODY), one)


@pytest.mark.parametrize("api", ts.apis())
def test_an_error_of_another_library_is_told_how_it_is_said(api: str) -> None:
    error: Any = ValueError("no such city")
    for tell in (ts.get_api(api).render_error, ts.get_api(api).stream_renderer(ts.parse(BODY)).fail):
        with pytest.raises(TypeError, match=r"expected a TurnscriptError, got ValueError; write TurnscriptError\(str"):
            tell(error)


class SdkObject:
    """What SDKs answer with."""

    def model_dump_json(self) -> str:
        return json.dumps(BODY)


READERS: dict[str, Callable[[Any], object]] = {
    "parse": ts.parse,
    "parse of an API": lambda source: ts.parse(source, "anthropic-messages"),
    "parse of a format": lambda source: ts.parse(source, "ai00-v1"),
    "parse_response": ts.parse_response,
    "parse_exchange": ts.parse_exchange,
    "parse_response of an API": lambda source: ts.parse_response(source, "openai-responses"),
    "parse_response of another": lambda source: ts.get_api("openai-chat").parse_response(source),
    "parse_request": lambda source: ts.get_api("openai-completions").parse_request(source),
    "convert": lambda source: ts.convert(source, "auto", "openai-chat"),
    "convert of an API": lambda source: ts.convert(source, "openai-chat", "rwkv-universal"),
    "detect_api": ts.detect_api,
}
"""Everything that reads what a caller gives."""

NO_SOURCES: dict[str, tuple[object, str]] = {
    "None": (None, "got None"),
    "number": (5, "got int"),
    "path": (Path("body.json"), r"got \w*Path; write \.read_bytes\(\)"),
    "file": (io.BytesIO(b"{}"), r"got BytesIO; write \.read\(\)"),
    "SDK": (SdkObject(), r"got SdkObject; write \.model_dump_json\(\)"),
    "bytearray": (bytearray(b"{}"), r"got bytearray; write bytes\(\.\.\.\)"),
    "view": (memoryview(b"{}"), r"got memoryview; write bytes\(\.\.\.\)"),
    "mapping": (MappingProxyType(BODY), r"got mappingproxy; write dict\(\.\.\.\)"),
    "request": (ts.parse(BODY), "got Request; `render` writes it"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("source", "said"), NO_SOURCES.values(), ids=NO_SOURCES)
def test_what_cannot_be_read_is_told_what_can(read: Callable[[Any], object], source: object, said: str) -> None:
    with pytest.raises(ts.InvalidInput, match=rf"expected .*bytes.*, {said}"):
        read(source)


def test_a_foreign_value_inside_a_body_is_told_its_place() -> None:
    body = {"messages": [{"role": "user", "content": Path("x")}]}
    with pytest.raises(ts.InvalidRequest, match="JSON cannot say this value") as caught:
        ts.parse(body, "openai-chat")
    assert "$.messages[0].content" == caught.value.path


@pytest.mark.parametrize("read", [ts.parse, ts.parse_response, ts.detect_api])
def test_the_name_of_a_file_is_no_transcript(read: Callable[[Any], object]) -> None:
    with pytest.raises(ts.InvalidInput, match="give what a file holds, not its name"):
        read("examples/chat_request.json")


def test_a_text_that_ends_in_an_address_is_no_name_of_a_file() -> None:
    with pytest.raises(ts.InvalidInput, match=r"name the format$"):
        ts.parse("Please read https://example.com/page")


def test_a_long_line_that_is_no_name_of_a_file_is_refused_in_linear_time() -> None:
    def refuse(size: int) -> Callable[[], object]:
        text = "/" * size + " x"

        def refused() -> None:
            with pytest.raises(ts.InvalidInput, match="name the format"):
                ts.detect_api(text)

        return refused

    assert_grows_below(24, refuse, 10_000, 80_000)


@pytest.mark.parametrize("api", ts.apis())
@pytest.mark.parametrize("piece", ["data: {}\n\n", "", None, 5, ["data"], memoryview(b"data")], ids=type_of)
def test_a_stream_parser_is_fed_bytes(api: str, piece: Any) -> None:
    parser = ts.get_api(api).stream_parser()
    with pytest.raises(
        TypeError, match=rf"a stream is fed as bytes, got {type_of(piece)}; of a str, write \.encode\(\)"
    ):
        parser.feed(piece)


def test_a_piece_of_the_wrong_type_leaves_a_stream_as_it_was() -> None:
    parser = ts.get_api("openai-chat").stream_parser()
    head = b'data: {"choices": [{"delta": {"content": "Hel'
    events = parser.feed(head)
    with pytest.raises(TypeError):
        parser.feed("lo")  # type: ignore[arg-type]
    events += parser.feed(b'lo"}}]}\n\ndata: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    assert [ts.Assistant(content=[ts.Text(text="Hello")])] == ts.fold(events + parser.close()).items


@pytest.mark.parametrize("name", ts.formats())
@pytest.mark.parametrize("piece", [None, 5, ["text"]], ids=repr)
def test_a_prompts_parser_is_fed_text(name: str, piece: Any) -> None:
    parser = ts.get_format(name).prompt(ts.parse(BODY)).parser()
    events = parser.feed("He")
    with pytest.raises(TypeError, match=f"a parser is fed str or UTF-8 bytes, got {type_of(piece)}"):
        parser.feed(piece)
    events += parser.feed("llo") + parser.close()
    assert "Hello" == ts.fold(events).raw


@pytest.mark.parametrize("one", ["text", None, [ts.MessageEnd()], b"data", ts.Assistant()], ids=repr)
def test_what_is_folded_are_events(one: Any) -> None:
    with pytest.raises(TypeError, match=rf"fold takes the events of a parser, got {type_of(one)}; add the lists"):
        ts.fold([ts.PartStart(0, ts.Assistant()), one])


@pytest.mark.parametrize("api", ts.apis())
@pytest.mark.parametrize("given", [None, BODY, "Hi", ts.Conversation()], ids=type_of)
def test_a_stream_answers_a_request(api: str, given: Any) -> None:
    with pytest.raises(ts.InvalidConversation, match=f"expected Request, got {type_of(given)}") as caught:
        ts.get_api(api).stream_renderer(given)
    assert "request" == caught.value.path


@pytest.mark.parametrize("api", ts.apis())
@pytest.mark.parametrize(
    "one", [[ts.MessageEnd()], ts.Assistant(content=[ts.Text(text="Hi")]), "Hi", None], ids=type_of
)
def test_what_is_sent_are_events(api: str, one: Any) -> None:
    """An answer that is sent as anything else must not be one that says nothing."""
    renderer = ts.get_api(api).stream_renderer(ts.parse(BODY))
    with pytest.raises(TypeError, match=rf"a stream is sent the events of a parser, got {type_of(one)}"):
        renderer.send([one])


def test_stop_strings_of_a_parser_are_no_string() -> None:
    """Each letter would be one."""
    with pytest.raises(TypeError, match=r"stops are a list of strings: write \['###'\]"):
        ts.get_format("ai00-v1").parser(stops="###")


@pytest.mark.parametrize("tools", [[{"name": "f"}], ["f"], "f"], ids=repr)
def test_the_tools_of_a_parser_are_tools(tools: Any) -> None:
    with pytest.raises(ts.InvalidConversation, match=r"expected (Tool|a list of Tool or None), got "):
        ts.get_format("ai00-v1").parser(tools)
