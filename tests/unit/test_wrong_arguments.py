"""Owns what a program is told that gives the wrong thing: what was expected, what came, and what to write instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts

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
        with pytest.raises(ts.UnknownName, match=r"expected a str, got PosixPath; write 'examples/formats/tagged\.toml'"):
            ask(path)


@pytest.mark.parametrize("one", [ts.get_format("ai00-v1"), ts.get_api("openai-chat")], ids=lambda one: one.name)
def test_a_format_or_api_itself_is_told_its_name(one: Any) -> None:
    with pytest.raises(ts.UnknownName, match=f"got {type(one).__name__}; write '{one.name}'"):
        ts.render(ts.parse(BODY), one)
