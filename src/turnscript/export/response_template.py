r"""Owns the export of a format as transformers' `response_template`: how the text of an answer becomes a message.

    {"start_anchor": ["<|im_start|>assistant\n"], "fields": {
        "reasoning_content": {"open": ["<think>"], "close": ["</think>"], ...},
        "content": {"close": ["<|im_end|>"], ...},
        "tool_calls": {"open_pattern": ..., "content": "json", "transform": ...}}}

Spec: the docstrings of `transformers.utils.chat_parsing` (5.24), read 2026-11-28. A field without an opening takes what
stands in no other. White space around literals is not looked for, and taken off the ends of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from turnscript.core.conversation import Assistant, Thinking, ToolCall, ToolResult
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.engine.bodies import CallArguments
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.namedcalls import NamedCall
from turnscript.engine.table import Document, Turn
from turnscript.engine.tagcalls import CDATA, CDATA_END, AddressedCall, TagCall
from turnscript.engine.xmlcalls import XmlParameters

CONTENT, THOUGHTS, CALLS = "$.content", "$.reasoning_content", "$.tool_calls"
_TAGGED = (XmlParameters, TagCall)
_TAGS = "an argument is a string unless the schema of its tool, which must be given, says something else"
_JSON = "a call is an error if it is no JSON, has no name, or has the format's closing in one of its strings"
_WORD = r"[^\s<>\"\[\]]+?"
_OF_JSON = "{}[],: \n"
"""JSON is built of these, so none of them tells where it ends."""
_AROUND = re.compile(r'"f"|\{\}')


def write_response_template(document: Document) -> Rendered[dict[str, Any]]:
    """The declaration, and what is read otherwise by it than by a prompt's parser."""
    return _Export(layout_of(document)).rendered()


class _Export:
    """A declaration as it is made."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._document = layout.document
        self._losses = [
            Loss(CONTENT, "approximated", "white space at the ends of texts is taken off"),
            Loss(CONTENT, "approximated", "texts before and behind calls become one"),
            Loss(
                CONTENT, "approximated", "the backslash stays that keeps a tag in a text apart from one of the format"
            ),
        ]
        self._answer = layout.places[Assistant.kind]

    def rendered(self) -> Rendered[dict[str, Any]]:
        """All of it."""
        fields: dict[str, Any] = {}
        thought = self._layout.places.get(Thinking.kind)
        thoughts = list(self._layout.thoughts.values()) or ([] if thought is None else [thought])
        if thoughts:
            fields["reasoning_content"] = self._text(thoughts) | {"repeats": True, "join": "\n"}
        fields["content"] = self._content()
        call = self._layout.places.get(ToolCall.kind)
        field = None if call is None else self._call(call)
        if field is not None:
            fields["tool_calls"] = field
        declared = {"version": 1, "defaults": {"role": "assistant"}, **self._anchor(), "fields": fields}
        return Rendered(declared, self._losses)

    def _anchor(self) -> dict[str, Any]:
        """Where the message begins in a prompt: behind the last opening of the model's turn."""
        turn = self._answer.turn
        if turn.open or turn.behind:
            opening = f"{turn.open}{turn.head_end}".rstrip()
            unthinking = f"{turn.open}{turn.head_end}{turn.no_thought}".rstrip() if turn.no_thought else ""
            before = [one.close.strip() for one in self._document.turns if one.role in turn.behind]
            found = [unthinking, opening, *before, *self._results_in(turn)]
            return {"start_anchor": [one for one in dict.fromkeys(found) if one]}
        openings = [place.open for place in self._layout.places.values() if place.model and place.open]
        return {"start_anchor_pattern": "|".join([f"(?={re.escape(one)})" for one in dict.fromkeys(openings)])}

    def _results_in(self, turn: Turn) -> list[str]:
        """What closes results that stand in the model's own turn, which goes on behind them."""
        results = [one for one in turn.segments if one.kind == ToolResult.kind]
        return [(one.group.close if one.group else one.close).strip() for one in results]

    def _text(self, places: Sequence[Place]) -> dict[str, Any]:
        """A field that is the text between two tags."""
        opens = [f"{one.open}{'' if one.own_attributes else one.head_end}".strip() for one in places]
        closes = [close for one in places for close in (one.close, *one.segment.also_closed_by)]
        field: dict[str, Any] = {"close": list(dict.fromkeys(close.strip() for close in closes)), "content": "text"}
        if any(one.own_attributes for one in places):
            return field | {"open_pattern": "|".join([f"{re.escape(one)}[^>]*>>" for one in opens])}
        return field | {"open": opens}

    def _content(self) -> dict[str, Any]:
        ends = {"repeats": True, "join": ""}
        if self._answer.open and not self._answer.close:
            opened = {"content": "text", "open": [self._answer.open.strip()]}
            return opened | {"close_pattern": self.closing(self._answer)} | ends
        if self._answer.open:
            return self._text([self._answer]) | ends
        return {"content": "text", "close": self._ends()} | ends

    def _ends(self) -> list[str]:
        """What ends the model's turn."""
        generation = self._document.generation
        found = [self._answer.turn.close.strip(), *generation.stops, *generation.stops_with_tools, self._document.end]
        call = self._layout.places.get(ToolCall.kind)
        closes = [] if call is None else [call.close, call.segment.group.close if call.segment.group else ""]
        return [one for one in dict.fromkeys(found) if one and one.strip() not in map(str.strip, closes)]

    # Calls.

    def _call(self, place: Place) -> dict[str, Any] | None:
        make = _CALLS.get(type(place.body))
        if make is None or place.segment.named:
            detail = "calls are read as text: no declaration can say how these are written"
            self._losses.append(Loss(CALLS, "dropped", detail))
            return None
        self._losses.append(Loss(CALLS, "approximated", _TAGS if isinstance(place.body, _TAGGED) else _JSON))
        field: dict[str, Any] = make(self, place, place.body)
        return field

    def opening(self, place: Place, rest: str = "") -> str:
        """The pattern of a call's opening. What opens a group of calls may stand before it."""
        group, opening = place.segment.group, _spaced(place.open)
        before = rf"(?:{_spaced(group.open)}\s*)?" if group and group.open.strip() else ""
        answer = self._answer.open.strip()
        if place.open.strip() and answer.startswith(place.open.strip()):  # a text is opened as a call to everybody
            opening = rf"(?!{_spaced(answer)}\s){opening}"
        return rf"{before}{opening}{rest}"

    def closing(self, place: Place, end: str = "", following: str = "") -> str:
        """The pattern of its closing. Where a call has none, the next one, or the end of the turn, ends it.

        `following`: how the next call begins, where its opening is none or may stand in JSON.
        """
        close, group = f"{end.strip()}{place.close.strip()}", place.segment.group
        after = _spaced(group.close) if group and group.close.strip() else ""
        own = (self._answer, self._layout.places.get(ToolCall.kind), place)
        opens = dict.fromkeys(one.open.strip() for one in own if one is not None)
        again = "|".join(rf"(?={_spaced(one)})" for one in opens if one)
        if following:
            between = re.escape(self._document.joints.get((ToolCall.kind, ToolCall.kind), ""))
            again = rf"{between}(?={following})"
        if close and after and not close.strip(_OF_JSON):  # so what ends a call is what stands behind it
            return rf"{_spaced(close)}(?:\s*{after}|{again})"
        if close:
            behind = rf"(?:\s*{after})?" if after else ""
            return rf"{_spaced(end)}\s*{_spaced(place.close)}{behind}"
        ends = [re.escape(one) for one in self._ends()]
        return "|".join([one for one in (again, after if following else "", *ends) if one])

    def field(self, opening: str, closing: str, content: dict[str, Any], function: dict[str, str]) -> dict[str, Any]:
        """The field of calls."""
        identified = {"id": function.pop("id")} if "id" in function else {}
        transform = {"type": "function", **identified, "function": function}
        return {"open_pattern": opening, "close_pattern": closing, **content, "repeats": True, "transform": transform}

    def array(self, place: Place, function: dict[str, str], begins: str) -> dict[str, Any]:
        """Return the field of calls where all are one array of JSON. `begins`: the pattern of how one begins."""
        group = place.segment.group
        assert group is not None
        opening = group.open.strip().removesuffix("[").strip()
        closing = group.close.strip().removeprefix("]").strip()
        identified = {"id": function.pop("id")} if "id" in function else {}
        return {
            **({"open": [opening]} if opening else {"open_pattern": rf"\s*(?=\[\s*{begins})"}),
            "close": [closing] if closing else self._ends(),
            "content": "json",
            "transform": {"type": "function", **identified, "function": function},
            "transform_each": True,
        }


def _json(export: _Export, place: Place, body: JsonCall) -> dict[str, Any]:
    key = _AROUND.split(body.written("f", "{}")[0])[0 if body.name_last else 1].strip(' {,:"')
    group = place.segment.group
    in_array = group is not None and not place.open and group.open.rstrip().endswith("[")
    root = "" if in_array else "content."
    function = {"name": f"{{{root}{body.name_key}}}", "arguments": f"{{{root}{key}}}"}
    if "id" in body.carries:
        function["id"] = f"{{{root}{body.id_key}}}"
    begins = rf'\{{\s*"(?:{re.escape(body.name_key)}|{re.escape(key)})"'
    if in_array:
        return export.array(place, function, begins)
    # What opens a call may be ordinary text, too, as a fence is, or nothing at all.
    bare = not place.open.strip()
    ahead = rf"\s*(?={begins})" if place.segment.tentative or bare else ""
    attributes, known = _attributes(place)
    closing = export.closing(place, following=begins if bare and group is not None else "")
    return export.field(export.opening(place, attributes + ahead), closing, {"content": "json"}, known | function)


def _named(export: _Export, place: Place, body: NamedCall) -> dict[str, Any]:
    function = {"name": "{name}", "arguments": "{content}"}
    name = rf"\s*{re.escape(body.prefix)}(?P<name>{_WORD})"
    id_ = rf"(?P<id>(?:(?!{re.escape(body.mark)}).)*?)"
    if body.number_mark:
        name, function["id"] = rf"\s*(?P<id>{name[3:]}{re.escape(body.number_mark)}\d+)", "{id}"
    if body.id_first:
        name = rf"\s*(?:{id_}{re.escape(body.id_mark)})?{name[3:]}"
        function["id"] = "{id}"
    elif body.id_mark:
        name += rf"{re.escape(body.id_mark)}{id_}"
        function["id"] = "{id}"
    marks = [one for one in (body.mark, body.also_mark) if one]
    opening = rf"{name}\s*(?:{'|'.join([_spaced(one) or re.escape(one) for one in marks])})"
    following = ""
    if place.close.strip() and not place.close.strip().strip(_OF_JSON):
        following = rf"{_spaced(place.open)}\s*{re.escape(body.prefix)}{_WORD}{_spaced(body.mark)}\s*\{{"
    closing = export.closing(place, following=following)
    return export.field(export.opening(place, opening), closing, {"content": "json"}, function)


def _attributes(place: Place) -> tuple[str, dict[str, str]]:
    """The pattern of attributes up to the end of an opening, and the fields that they give."""
    pattern, function = "", dict[str, str]()
    if not place.own_attributes and not place.head_end:
        return pattern, function
    for attribute in place.segment.attributes_shown:
        if attribute.path == "name":
            pattern += rf'\s+{attribute.key}="(?P<name>[^"]*)"'
            function["name"] = "{name}"
        elif attribute.path == "id":
            pattern += rf'(?:\s+{attribute.key}=")?(?P<id>[^"\s>]*)"?'
            function["id"] = "{id}"
    return rf"{pattern}[^>]*?{_spaced(place.head_end)}", function


def _arguments(export: _Export, place: Place, body: CallArguments) -> dict[str, Any]:
    attributes, known = _attributes(place)
    function = known | {"arguments": "{content}"}
    return export.field(export.opening(place, attributes), export.closing(place), {"content": "json"}, function)


def _xml(export: _Export, place: Place, body: XmlParameters) -> dict[str, Any]:
    attributes, known = _attributes(place)
    function = known | {"arguments": "{content}"}
    opening, close = map(re.escape, body.literals[:2])
    typed = r"[^<>\n]*?" if body.flag or body.type else r"\s*"
    pattern = rf'{opening}\s+{body.key}="(?P<key>[^"]*)"{typed}{re.escape(body.head_end)}(?P<value>.*?){close}'
    content = {"content": "xml-inline", "content_args": {"tag_pattern": pattern}}
    return export.field(export.opening(place, attributes), export.closing(place), content, function)


def _tags(export: _Export, place: Place, body: TagCall) -> dict[str, Any]:
    name = rf"\s*{_spaced(body.name_open)}\s*(?P<name>[^\s<>]+)"
    closed = body.name_close.strip()
    name += rf"\s*{_spaced(body.name_close)}" if closed else r"(?=\s*(?:<|\Z))"
    if isinstance(body, AddressedCall):
        name += rf"\s*[^\s<>]+?\s*{_spaced(body.name_again)}"
    key, value = _spaced(body.key_open), _spaced(body.value_open)
    lead = re.escape(body.value_open[len(body.value_open.rstrip()) :])
    trail = re.escape(body.value_close[: len(body.value_close) - len(body.value_close.lstrip())])
    lead, trail = (f"(?:{lead})?" if lead else ""), (f"(?:{trail})?" if trail else "")
    if body.cdata:
        lead, trail = rf"{lead}(?:{re.escape(CDATA)})?", rf"(?:{re.escape(CDATA_END)})?{trail}"
    pattern = rf"{key}\s*(?P<key>.*?)\s*{value}{lead}(?P<value>.*?){trail}{_spaced(body.value_close)}"
    content = {"content": "xml-inline", "content_args": {"tag_pattern": pattern}}
    function = {"name": "{name}", "arguments": "{content}"}
    return export.field(export.opening(place, name), export.closing(place, body.end), content, function)


def _spaced(literal: str) -> str:
    """The pattern of a literal without the white space around it, any white space for that inside."""
    return r"\s*".join([re.escape(word) for word in re.split(r"\s*\n\s*", literal.strip())])


_CALLS: dict[type[Any], Callable[[_Export, Place, Any], dict[str, Any]]] = {
    JsonCall: _json,
    NamedCall: _named,
    CallArguments: _arguments,
    XmlParameters: _xml,
    TagCall: _tags,
    AddressedCall: _tags,
}
