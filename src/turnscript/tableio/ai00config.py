"""Owns writing a format as ai00's configuration: `[prompts]`, its sampling presets, and what ai00 would do otherwise.

ai00's own template has turns of its own. Of a format it can be told what roles are called, what opens the model's turn,
what ends it, how thoughts are asked for, and in the format with labels the texts around the tools. What it cannot be
told is found by trying: what is written here is read back, and both write the same conversations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Part,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import Unsupported
from turnscript.core.json_text import json_of
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.core.presets import Preset, Range, get_preset
from turnscript.engine.table import Document, Turn
from turnscript.engine.template.program import InvalidTemplate, TemplateRefused
from turnscript.formats.format import Format
from turnscript.tableio.prompts import (
    FOOTER,
    HEADER,
    PREFIX,
    ROLES,
    SECTION,
    STOPS,
    SUFFIXES,
    THINKING_PREFIX,
    base_of,
    has_texts,
    read_prompts,
)
from turnscript.tableio.tables import InvalidFormat, Table
from turnscript.tableio.writing import write_toml

SAMPLER = "sampler"
"""The sections of presets, by what a request to ai00 calls its settings. ai00 itself leaves them unread."""
_UNREAD = "# ai00 has no settings for sampling and leaves these sections unread: they are the `sampler` of a request.\n"
_LONGEST = 60


def write_ai00_config(format_: Format, known: Mapping[str, Format]) -> Rendered[str]:
    """A format as the sections of ai00's file, as TOML. What ai00 does otherwise is among the losses."""
    base = base_of(Table({PREFIX: _opening(format_, thinking=False)}, SECTION), known)
    keys = _keys(format_, base)
    losses: list[Loss] = []
    theirs = base
    try:
        theirs = read_prompts(Table(keys, SECTION), known)
    except InvalidFormat as error:
        losses.append(Loss(SECTION, "approximated", f"turnscript itself takes no such section back: {error.message}"))
    losses += _differences(format_, theirs)
    head = f"# The prompts of {format_.title} ({format_.name}), for the Config.toml of ai00_server.\n"
    return Rendered(f"{head}{write_toml({SECTION: keys}).lstrip()}{_samplers(format_)}", losses)


# What ai00 can be told.


def _keys(format_: Format, base: Format) -> dict[str, Any]:
    document = format_.document
    turns = {turn.role: turn for turn in document.turns}
    names = {key: _name(one, turns[one.role]) for key, one in _roles(base.document) if one.role in turns}
    keys: dict[str, Any] = {key: name for key, name in names.items() if name}
    keys |= {PREFIX: _opening(format_, thinking=False), THINKING_PREFIX: _opening(format_, thinking=True)}
    keys[STOPS] = list(document.generation.stops)
    keys |= {key: document.generation.hints.get(effort, "") for key, effort in SUFFIXES.items()}
    place = document.tools_place
    if place is not None and has_texts(document) and has_texts(base.document):
        keys |= {HEADER: place.open.removesuffix("\n"), FOOTER: place.close.removeprefix("\n")}
    return keys


def _roles(document: Document) -> Iterator[tuple[str, Turn]]:
    for key, role in ROLES.items():
        yield key, next(turn for turn in document.turns if turn.role == role)


def _name(theirs: Turn, ours: Turn) -> str:
    """What a role is called, if that is all in which its turns differ from ai00's."""
    before, _, behind = re.sub(re.escape(theirs.role), "\0", theirs.open, count=1, flags=re.IGNORECASE).partition("\0")
    named = ours.open.startswith(before) and ours.open.endswith(behind) and ours.close.startswith(theirs.close[:1])
    return ours.open[len(before) : len(ours.open) - len(behind)] if named else ""


def _opening(format_: Format, *, thinking: bool) -> str:
    """What a prompt opens the model's turn with. A format without thoughts opens an answer."""
    asked = _request(User(content=_text("Hi")))
    try:
        prompt = format_.prompt(asked, thinking=thinking)
    except (Unsupported, TemplateRefused):
        return "" if not thinking else _opening(format_, thinking=False)
    text, opening = prompt.text, format_.document.model_turn.open.strip()
    if opening and opening in text:
        return text[text.rindex(opening) :]
    return text.removeprefix(format_.write(asked).text.removesuffix(format_.document.end)).lstrip()


# What it does otherwise.


def _differences(ours: Format, theirs: Format) -> Iterator[Loss]:
    for what, request in _probes():
        written = _written(ours, request)
        other = _written(theirs, request)
        if written and written != other:
            yield Loss(what, "approximated", f"ai00 writes {_short(other)}, and the format {_short(written)}")
    mine, its = ours.document.generation, theirs.document.generation
    if set(mine.stops_with_tools) != set(its.stops_with_tools):
        yield Loss(
            f"{SECTION}.{STOPS}",
            "approximated",
            f"where tools are offered the stops are {list(mine.stops_with_tools)}, and ai00 has one list for all",
        )


def _written(format_: Format, request: Request) -> str:
    """What a prompt shows of a conversation, nothing if the format has no place for it."""
    try:
        out = format_.write(request)
    except (TemplateRefused, InvalidTemplate):
        return ""
    return "" if any(loss.kind == "dropped" and "id" not in loss.path for loss in out.all_losses()) else out.text


def _probes() -> Iterator[tuple[str, Request]]:
    call = ToolCall(name="f", arguments='{"a": "b"}', id="call_1")
    yield "instructions", _request(System(content=_text("Be brief.")))
    yield "questions", _request(User(content=_text("Hi")))
    yield "answers", _request(Assistant(content=_text("Ho")))
    yield "blank lines", _request(User(content=_text("a\n\nb")))
    yield "thoughts", _request(Thinking(content=_text("Hm.")), Assistant(content=_text("Ho")))
    yield "calls", _request(call)
    yield "results", _request(call, ToolResult(content=_text("done"), name="f", id="call_1"))
    yield "tools", _request(tools=[_TOOL])


_TOOL = Tool(name="f", description="Do it.", parameters=json_of({"type": "object", "properties": {"a": {}}}))


def _short(text: str) -> str:
    """A text as people can read it in a line: what is long keeps its beginning and its end."""
    middle = _LONGEST // 2
    return repr(text if len(text) <= _LONGEST else f"{text[:middle]} ... {text[-middle:]}")


def _request(*items: Item, tools: list[Tool] | None = None) -> Request:
    return Request(conversation=Conversation(items=list(items), tools=tools or []))


def _text(text: str) -> list[Part]:
    return [Text(text=text)]


# Sampling.


def _samplers(format_: Format) -> str:
    """The presets that the format's document gives, as requests to ai00 have them."""
    if not format_.presets:
        return ""
    return f"\n{_UNREAD}" + "".join(map(_sampler, map(get_preset, format_.presets)))


def _sampler(preset: Preset) -> str:
    given = {field.name: getattr(preset, field.name) for field in fields(preset)}
    ranges = [f"{name} {value}" for name, value in given.items() if isinstance(value, Range)]
    comment = f"# Of a range the middle: {', '.join(ranges)}.\n" if ranges else ""
    return f"\n{comment}[{SAMPLER}.{preset.name}]\n{write_toml({'type': 'Nucleus', **preset.values()})}"
