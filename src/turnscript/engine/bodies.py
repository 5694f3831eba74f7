"""Owns the payload shapes: how an item's content is written between an opening and its closing, and read back.

A body is shared by formats and knows no tag. Each writes what it is given exactly; where a payload needs a word of
explanation (a tool result that is not a JSON object, say), `attributes` puts it into the opening tag.

A payload may hold part lines: `<<PART type="image" url="...">>`, each followed by its own text. A payload that is one
plain text has no part line. Otherwise a first text without attributes stands bare, and every other part begins with a
line of its own. No text after the line means that the part has no text, which differs from an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Raw as RawJson
from msgspec import Struct

from turnscript.core.conversation import (
    Audio,
    Document,
    Extra,
    Image,
    Opaque,
    Part,
    Raw,
    Refusal,
    Request,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    unseen,
)
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import (
    Json,
    every_member,
    is_json,
    is_object,
    members,
    plain,
    read_object,
    respace,
    text_of,
    type_word,
)
from turnscript.core.losses import Loss
from turnscript.engine.attributes import attribute_text, read_attributes, scan_attributes, write_attributes
from turnscript.engine.jsonscan import ArgumentsMachine, FreeTextMachine, begins_object
from turnscript.engine.machine import CallRules, Machine, PlainBody, Reading
from turnscript.engine.spans import Writer
from turnscript.engine.table import Attribute, Payload
from turnscript.grammar.nodes import Node

PART_TAG = "<<PART"
"""How a part line begins."""
NEXT_TEXT = f"\n{PART_TAG}>>\n"
"""The part line of a text, on a line of its own. It is the only one that means anything where a model writes it."""
SUMMARY = "summary"
"""The type of texts in the summary of a thought. Another part that stands there says so in an attribute."""
_IN_SUMMARY = f' in="{SUMMARY}"'
_EXTRA = Attribute("x", "extra", "object")
_LINE = re.compile(rf"^{PART_TAG}(?=[ \t>])(.*?)>>[ \t]*$", re.MULTILINE)


class PartLine(Struct, frozen=True):
    """How one class of part is written: its `type` word, its attributes, and the field that holds its text."""

    word: str
    part: type[Part]
    text: str
    attributes: tuple[Attribute, ...] = ()


PART_LINES = (
    PartLine("", Text, "text", (_EXTRA,)),
    PartLine(
        "image",
        Image,
        "data",
        (
            Attribute("url", "url", prompt=True),
            Attribute("file_id", "file_id", prompt=True),
            Attribute("media_type", "media_type", prompt=True),
            Attribute("detail", "detail"),
            _EXTRA,
        ),
    ),
    PartLine(
        "document",
        Document,
        "data",
        (
            Attribute("url", "url", prompt=True),
            Attribute("file_id", "file_id", prompt=True),
            Attribute("media_type", "media_type", prompt=True),
            Attribute("filename", "filename", prompt=True),
            Attribute("title", "title", prompt=True),
            Attribute("context", "context", prompt=True),
            _EXTRA,
        ),
    ),
    PartLine("audio", Audio, "data", (Attribute("format", "format", prompt=True), Attribute("id", "id"), _EXTRA)),
    PartLine("refusal", Refusal, "text", (_EXTRA,)),
    PartLine("raw", Raw, "value", (_EXTRA,)),  # `of` is read below: it is written only where the text does not tell
)
_BY_CLASS = {line.part: line for line in PART_LINES}
_BY_WORD = {line.word: line for line in PART_LINES} | {"file": _BY_CLASS[Document], "text": _BY_CLASS[Text]}
_BINARY = (Image, Document, Audio)


def is_plain(content: Sequence[Part], archive: bool) -> bool:
    """Return whether the content is one text alone. A prompt does not show members without a name."""
    return len(content) == 1 and type(content[0]) is Text and not (archive and content[0].extra)


def write_parts(content: Sequence[Part], out: Writer, word: str = "", first: bool = True) -> bool:
    """Write the parts of a content. `word` is the type of its texts; returns whether anything was written."""
    for index, part in enumerate(content):
        if first and not word and type(part) is Text and _bare(part, out, index):
            out.content(part.text)
            first = False
            continue
        if not first:
            out.control("\n")
        first = False
        _write_part(part, out, word, index)
    return not first


def _bare(part: Text, out: Writer, index: int) -> bool:
    """Return whether a first text may stand without a part line: always in a prompt, which shows no extra members."""
    if out.archive or not part.extra:
        return not part.extra
    _lose_extra(part, out, index)
    return True


def _write_part(part: Part, out: Writer, word_of_texts: str, index: int) -> None:
    line = _BY_CLASS[type(part)]
    member = "summary" if word_of_texts == SUMMARY else "content"
    word = line.word or word_of_texts
    place = out.place
    out.place = f"{place}.{member}[{index}]"
    attributes = write_attributes(part, line.attributes, out)
    text = getattr(part, line.text)
    if isinstance(part, Document) and part.text is not None:
        attributes += ' payload="text"'
        text = part.text
    if isinstance(part, Raw):
        text = text_of(part.value)
        if type_word(part.value) != part.type:
            attributes += f" of={attribute_text(part.type)}"
    if line.word and word_of_texts == SUMMARY:
        attributes += _IN_SUMMARY
    tag = f' type="{word}"' if word else ""
    out.control(f"{PART_TAG}{tag}{attributes}>>")
    if not out.archive and isinstance(part, _BINARY) and getattr(part, "text", None) is None:
        out.lose("", "dropped", unseen(part))
        text = None
    if text is not None:
        out.control("\n")
        out.content(text)
    out.place = place


def _lose_extra(part: Part, out: Writer, index: int) -> None:
    out.lose_unnamed(f".content[{index}]", part.extra, "a prompt has no place for members without a name")


def read_parts(payload: Payload) -> Iterator[tuple[str, Part]]:
    """Give the parts of a payload, each with its type word (empty for a plain text)."""
    text = payload.text
    lines = list(_LINE.finditer(text)) if PART_TAG in text else []
    if not lines:
        yield "", Text(text=payload.escape.remove(text))
        return
    if lines[0].start():
        yield "", Text(text=payload.escape.remove(text[: lines[0].start() - 1]))
    counted, number = 0, payload.line
    for match, following in zip(lines, [*lines[1:], None], strict=True):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        end = following.start() - 1 if following else len(text)
        own = text[match.end() + 1 : end] if match.end() < end else None
        yield _read_part(match, None if own is None else payload.escape.remove(own), number)


def _read_part(match: re.Match[str], own: str | None, number: int) -> tuple[str, Part]:
    found = scan_attributes(match.string, match.start(1), match.end(1), number, 1 + len(PART_TAG))
    word = plain(found.pop("type")) if "type" in found else ""
    line = _line_of(word)
    if line is None:
        known = ", ".join(sorted(one for one in _BY_WORD if one))
        message = f"unknown part type {word!r}; known: {known}, summary, reasoning"
        raise InvalidTranscript(message, line=number, column=1, expected=f"one of {known}", got=repr(word))
    of = {"type": str(plain(found.pop("of")))} if line.part is Raw and "of" in found else {}
    as_text = line.part is Document and found.pop("payload", None) is not None
    place = SUMMARY if line.word and _is_in_summary(found) else word
    fields = read_attributes(found, line.attributes, number)
    if unnamed := fields.pop("attributes", None):
        fields["extra"] = {**fields.get("extra", {}), **unnamed}
    if line.part is Raw:
        return place, _raw_part(own, fields | of, number)
    if own is not None:
        fields["text" if as_text else line.text] = own
    elif line.text == "text":
        fields["text"] = ""
    return place, line.part(**fields)


def _line_of(word: object) -> PartLine | None:
    """Return how parts of a type are written; None for what is no known type, and maybe no text."""
    if word in (SUMMARY, "reasoning"):
        return _BY_CLASS[Text]
    return _BY_WORD.get(word) if isinstance(word, str) else None


def _is_in_summary(found: dict[str, RawJson]) -> bool:
    """Return whether the attributes say that the part stands in a summary; takes off the one that does."""
    if "in" not in found or plain(found["in"]) != SUMMARY:
        return False
    del found["in"]
    return True


def _raw_part(own: str | None, found: dict[str, Any], number: int) -> Raw:
    if own is None or not is_json(own):
        message = "the text of a raw part must be JSON"
        raise InvalidTranscript(message, line=number, column=1, expected="JSON")
    value = RawJson(own.encode())
    return Raw(value=value, **{"type": type_word(value), **found})


NO_PARTS = "parts"
_EMPTY_SHAPES = frozenset({"null", "absent", "empty"})


class Parts(PlainBody):
    """The content of a system, user or assistant item: one plain text, or texts and other parts with part lines."""

    literals: tuple[str, ...] = (PART_TAG,)
    next_text = NEXT_TEXT
    plain = True

    def attributes(self, item: Any, archive: bool) -> Mapping[str, str]:
        """Return `parts=0` where the content has no part at all."""
        return {NO_PARTS: "0"} if archive and not item.content else {}

    def write(self, item: Any, out: Writer) -> None:
        """Write the parts in order."""
        write_parts(item.content, out)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the parts in order."""
        if not payload.text and _has_no_parts(payload):
            return {"content": []}
        return {"content": [part for _, part in read_parts(payload)]}


class Thought(PlainBody):
    """A thought: its text, or summaries and texts as parts. One text alone stands bare."""

    literals: tuple[str, ...] = (PART_TAG,)
    carries: tuple[str, ...] = ("summary",)
    plain = True

    def attributes(self, item: Thinking, archive: bool) -> Mapping[str, str]:
        """Return `parts=0` where there is no text at all and no proof tells why."""
        bare = not item.content and not item.summary and item.redacted is None
        return {NO_PARTS: "0"} if bare and archive else {}

    def write(self, item: Thinking, out: Writer) -> None:
        """Write summaries, then texts."""
        written = write_parts(item.summary, out, "summary")
        word = "" if not written and is_plain(item.content, out.archive) else "reasoning"
        write_parts(item.content, out, word, first=not written)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return summaries and texts by the type of their part lines."""
        none = _has_no_parts(payload) or "redacted" in payload.attributes
        if not payload.text and none:
            return {"content": [], "summary": []}
        content: list[Part] = []
        summary: list[Part] = []
        for word, part in read_parts(payload):
            (summary if word == "summary" else content).append(part)
        return {"content": content, "summary": summary}


class CallArguments(PlainBody):
    """The arguments of a tool call, exactly as the model wrote them.

    A JSON object needs no word; `format="text"` is the free text of a custom tool, `format="raw"` arguments that should
    have been a JSON object and are not.
    """

    carries: tuple[str, ...] = ("arguments", "custom")
    formats = True

    def attributes_read(self, form: Json | None) -> dict[str, Any]:
        """Return whether the arguments are a custom tool's free text, and whether they are JSON at all."""
        word = plain(form) if form is not None else ""
        return {"custom": True, "text": True} if word == "text" else {"text": True} if word == "raw" else {}

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for arguments that come in pieces."""
        return FreeTextMachine(reading) if reading.head.get("text") else ArgumentsMachine(reading)

    def grammar(self, call: CallRules) -> Node:
        """Return the arguments alone."""
        return call.schema.arguments()

    def attributes(self, item: ToolCall, archive: bool) -> Mapping[str, str]:
        """Return the `format` of the payload."""
        if item.custom:
            return {"format": '"text"'}
        return {} if _is_object(item.arguments, item.open) else {"format": '"raw"'}

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the text."""
        out.content(item.arguments)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the text, checked to be a JSON object unless it is marked otherwise."""
        text = payload.escape.remove(payload.text)
        form = _format(payload, ("text", "raw"))
        if not form:
            _require_object(text, payload, 'or mark the tag with format="raw"', payload.open)
        return {"arguments": text, "custom": form == "text"}


class ResultContent(PlainBody):
    """What a tool answered: a JSON object, or with `format` other JSON (`json`), text (`text`) or parts (`parts`)."""

    literals: tuple[str, ...] = (PART_TAG,)

    def attributes(self, item: ToolResult, archive: bool) -> Mapping[str, str]:
        """Return the `format` of the payload."""
        content = item.content
        if not content:
            return Parts().attributes(item, archive) if archive else {"format": '"text"'}
        if not is_plain(content, archive):
            return {"format": '"parts"'}
        text = content[0].text if isinstance(content[0], Text) else ""
        if _is_object(text, item.open and bool(text)):
            return {}
        return {"format": '"json"'} if is_json(text) else {"format": '"text"'}

    def write(self, item: ToolResult, out: Writer) -> None:
        """Write the parts in order."""
        write_parts(item.content, out)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return one text, or parts."""
        if not payload.text and _has_no_parts(payload):
            return {"content": []}
        form = _format(payload, ("text", "json", "parts"))
        if form == "parts":
            return {"content": [part for _, part in read_parts(payload)]}
        text = payload.escape.remove(payload.text)
        if not form:
            word = "json" if is_json(text) else "text"
            _require_object(text, payload, f'or mark the tag with format="{word}"', payload.open)
        return {"content": [Text(text=text)]}


class Record(PlainBody):
    """An opaque item: its wire object, verbatim."""

    carries: tuple[str, ...] = ("value",)

    def attributes(self, item: Opaque, archive: bool) -> Mapping[str, str]:
        """Return no attribute: the type is one of its own."""
        return {}

    def write(self, item: Opaque, out: Writer) -> None:
        """Write the JSON text; a prompt has no place for it."""
        out.content(text_of(item.value))

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the JSON text, checked to be JSON."""
        text = payload.escape.remove(payload.text)
        if not is_json(text):
            raise _bad_payload(payload, "the payload of an item must be JSON", "JSON")
        value = RawJson(text.encode())
        return {"value": value, "type": type_word(value)}


_TOOL_WORDS = ("name", "description", "parameters", "type", "format", "strict", "tools", "x")


class ToolList:
    """Tool definitions, one JSON object per line: name, description, parameters, then every further member."""

    def write(self, tools: Sequence[Tool], out: Writer, place: str = "$") -> None:
        """Write a line for each tool. A prompt shows neither what it was declared as nor members without a name."""
        if not out.archive:
            for index, tool in enumerate(tools):
                for key in [*tool.extra, *tool.envelope]:
                    out.losses.append(Loss(f"{place}.tools[{index}].{key}", "dropped", "a prompt does not show it"))
        out.content("\n".join([tool_line(tool, out.archive) for tool in tools]))

    def read(self, payload: Payload) -> list[Tool]:
        """Return the tools in order."""
        text = payload.escape.remove(payload.text)
        return list(self._read_lines(text, payload)) if text.strip() else []

    def _read_lines(self, text: str, payload: Payload) -> Iterator[Tool]:
        for offset, line in enumerate(text.split("\n")):
            if not line.strip():
                continue
            try:
                fields = read_object(line)
                if len(every_member(line)) != len(fields):
                    payload.lose("", "dropped", "a key comes twice: its last value alone is kept")
                yield tool_from(fields)
            except InvalidRequest as error:
                column = max(error.column, 1)
                raise _no_tool(error.message, payload.line + offset, column) from None
            except msgspec.ValidationError as error:
                raise _no_tool(str(error), payload.line + offset, 1) from None


def _no_tool(reason: str, line: int, column: int) -> InvalidTranscript:
    message = f"each line of a tool list must be one JSON object that defines a tool: {reason}"
    return InvalidTranscript(message, line=line, column=column, expected="a JSON object")


def tool_line(tool: Tool, archive: bool) -> str:
    """Return a tool as one line of JSON, our own spacing between tokens."""
    fields: dict[str, object] = {}
    if tool.type != "function":
        fields["type"] = tool.type
    for key in ("name", "description", "parameters", "format", "strict"):
        if getattr(tool, key) is not None:
            fields[key] = getattr(tool, key)
    if tool.tools:
        fields["tools"] = RawJson(("[" + ",".join([tool_line(one, archive) for one in tool.tools]) + "]").encode())
    if archive:
        fields |= {key: value for key, value in tool.extra.items() if key not in _TOOL_WORDS}
        hidden = {key: value for key, value in tool.extra.items() if key in _TOOL_WORDS}
        hints = {key: said for key in _Hints.__struct_fields__ if (said := getattr(tool, key))}
        notes = {"wrapper": tool.envelope, "hints": hints, "extra": hidden}
        if any(notes.values()):
            fields["x"] = RawJson(msgspec.json.encode({key: value for key, value in notes.items() if value}))
    return members(fields)


class _Hints(msgspec.Struct):
    declared_as: str = ""
    slot: str = ""


class _Notes(msgspec.Struct):
    wrapper: Extra = {}
    hints: _Hints = msgspec.field(default_factory=_Hints)
    extra: Extra = {}


class _Named(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    type: str = "function"
    strict: bool | None = None
    tools: list[dict[str, Json]] = []
    x: _Notes = msgspec.field(default_factory=_Notes)


def tool_from(fields: Mapping[str, Json]) -> Tool:
    """Return the tool that a line defines. A wrong type raises msgspec.ValidationError."""
    known = {key: value for key, value in fields.items() if key in _Named.__struct_fields__}
    named = msgspec.json.decode(msgspec.json.encode(known), type=_Named)
    extra = {key: value for key, value in fields.items() if key not in _TOOL_WORDS}
    return Tool(
        name=named.name,
        description=named.description,
        parameters=fields.get("parameters"),
        type=named.type,
        format=fields.get("format"),
        strict=named.strict,
        tools=[tool_from(one) for one in named.tools],
        extra=extra | named.x.extra,
        envelope=named.x.wrapper,
        declared_as=named.x.hints.declared_as,
        slot=named.x.hints.slot,
    )


class Metadata:
    """What an archive keeps of a request besides its items: one JSON object.

    `v` is the version of the extension, `origin` the API, `options` the request's other members as they stood there.
    `settings` appear only for requests built by hand, whose settings no API has spelled yet; `hints` say what a
    transcript or a stream is like. Any other member, such as `response` or `metadata`, is kept as it stands.
    """

    version = 1

    def write(self, fields: Mapping[str, Any], out: Writer) -> None:
        """Write the members that say something."""
        said = {key: value for key, value in fields.items() if value not in (None, {}, "")}
        out.content(members({"v": self.version} | {key: _as_json(value) for key, value in said.items()}))

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the fields of a request that it says; other members are those of `archived`."""
        text = payload.escape.remove(payload.text)
        _require_object(text, payload, "")
        fields = read_object(text)
        version = plain(fields.pop("v", RawJson(b"1")))
        if version != self.version:
            message = f"this is version {version} of the archive; this release reads version {self.version}"
            raise _bad_payload(payload, message, f"version {self.version}")
        try:
            hints = msgspec.json.decode(fields.get("hints", RawJson(b"{}")), type=dict[str, str])
            if hints.keys() <= _HINTS.keys():
                fields.pop("hints", None)
            return {
                "origin": msgspec.json.decode(fields.pop("origin", RawJson(b"null")), type=str | None),
                "extra": read_object(fields.pop("options", RawJson(b"{}"))),
                "settings": _struct_from(Settings, fields.pop("settings", RawJson(b"{}"))),
                "tight": bool(hints.get("tight")),
                "unasked": hints.get("thoughts_unasked", "").split(),
                "framing": hints.get("stream", ""),
                "archived": fields,
            }
        except (msgspec.ValidationError, InvalidRequest) as error:
            raise _bad_payload(payload, f"malformed metadata: {error}", "metadata") from None


_HINTS: dict[str, Callable[[Request], str]] = {
    "tight": lambda request: "true" if request.tight else "",
    "thoughts_unasked": lambda request: " ".join(request.unasked),
    "stream": lambda request: request.framing,
}


def hints_of(request: Request) -> dict[str, str]:
    """Return what an archive calls hints of a request: how it was written, or is to be answered."""
    return {key: said for key, say in _HINTS.items() if (said := say(request))}


def _struct_from(cls: type[msgspec.Struct], value: Json) -> Any:
    """Return a model struct from JSON. msgspec reads no `Json | None`. Unknown members are an error."""
    readers = _member_readers(cls)
    read: dict[str, Any] = {}
    for key, member in read_object(value).items():
        if key not in readers:
            raise InvalidRequest(f"no such setting: {key!r}", path=f"$.{key}")
        read[key] = readers[key](member)
    try:
        return cls(**read)
    except TypeError as error:
        raise InvalidRequest(str(error)) from None


@cache
def _member_readers(cls: type[msgspec.Struct]) -> dict[str, Callable[[Json], Any]]:
    return {key: _member_reader(type_) for key, type_ in get_type_hints(cls).items()}


def _member_reader(type_: Any) -> Callable[[Json], Any]:
    inner = [one for one in get_args(type_) if one is not type(None)] or [type_]
    if inner == [RawJson]:
        return _as_it_is
    if isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct):
        return partial(_struct_from, inner[0])
    return msgspec.json.Decoder(type_).decode


def _as_it_is(member: Json) -> Json:
    return member


def _as_json(value: Any) -> object:
    return value if isinstance(value, str | int) else RawJson(msgspec.json.encode(value))


def _has_no_parts(payload: Payload) -> bool:
    """Return whether the tag says that the content has no part. It takes `parts` off; archives of before say `as`."""
    shape = plain(payload.attributes["as"]) if "as" in payload.attributes else ""
    empty = isinstance(shape, str) and shape in _EMPTY_SHAPES
    return payload.attributes.pop(NO_PARTS, None) is not None or empty


def _format(payload: Payload, known: tuple[str, ...]) -> str:
    value = payload.attributes.pop("format", None)
    if value is None:
        return ""
    word = plain(value)
    if word not in known:
        message = f"unknown format {word!r}; known here: {', '.join(known)}"
        raise InvalidTranscript(message, line=payload.line - 1, column=1, expected=f"one of {', '.join(known)}")
    return str(word)


def _is_object(text: str, open_: bool) -> bool:
    """Return whether a text is a JSON object, or may become one: `open_` says that it is not finished."""
    return is_object(text) or (open_ and begins_object(text))


def _require_object(text: str, payload: Payload, remedy: str, open_: bool = False) -> None:
    if _is_object(text, open_):
        return
    reason, line, column = "", 1, 1
    try:
        read_object(text)
    except InvalidRequest as error:
        line, column = max(error.line, 1), max(error.column, 1)
        reason = f" ({error.message} at line {payload.line + line - 1}, column {column})"
    message = f"the payload must be a JSON object{reason}; correct it{', ' * bool(remedy)}{remedy}"
    raise _bad_payload(payload, message, "a JSON object", line, column)


def _bad_payload(payload: Payload, message: str, expected: str, line: int = 1, column: int = 1) -> InvalidTranscript:
    """Return the error of a payload. `line` and `column`: where in it."""
    got = respace(payload.text)[:40] if payload.text.strip() else "nothing"
    return InvalidTranscript(message, line=payload.line + line - 1, column=column, expected=expected, got=got)
