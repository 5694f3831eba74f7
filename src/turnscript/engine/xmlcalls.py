"""Owns tool calls whose arguments are tags: `<parameter name="city">Tokyo</parameter>`, typed by the tool's schema.

A parameter that the schema calls a string is its text, exactly. Any other is JSON text. Where the schema does not tell,
a text that is JSON is JSON, so a string that looks like JSON is written in quotes (requirements D-A-7).

Some formats say the type in the tag: `<parameter name="city" string="true">`. Then a value is read as that says,
whatever the schema does.

A value ends at the first closing tag that is followed by another parameter, or by the end of the call or the beginning
of another one. A closing tag with anything else behind it belongs to the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from turnscript.conversation import ToolCall
from turnscript.engine.attributes import attribute_text, scan_attributes
from turnscript.engine.callrules import KEY, CallRules
from turnscript.engine.escape import tags_in
from turnscript.engine.functioncalls import json_of_python
from turnscript.engine.machine import ODD_CALL, Machine, PlainBody, Reading
from turnscript.engine.recent import MB, recent
from turnscript.engine.repeats import joined, lose_difference
from turnscript.engine.scanner import Look, Unescaper, look_for
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.errors import InvalidRequest, InvalidTranscript
from turnscript.grammar.nodes import Literal as Text
from turnscript.grammar.nodes import Node, choice, sequence
from turnscript.jsontext import Json, is_json, json_string, plain, read_object, safe_json_string, text_of

Kind = Literal["string", "json", "either", "nullable"]
"""`either`: a text that is JSON is JSON. `nullable`: the same, of a string or null as the schema says."""
_SPACE = re.compile(r"\s*")
_PLAIN = look_for((), re.compile(r'[<"\\\x00-\x1f\x7f\ud800-\udfff]').search)
_FURTHEST = 256  # white space behind a closing tag, and a value that waits, are looked at no further than this
_LONGEST_HEADER = 4096
_QUOTE = '"'
_TYPES = {_QUOTE: "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}
_OTHER_TYPES = ("number", "boolean", "null", "object", "array")
_TYPE_WORDS = ("string", *_OTHER_TYPES)
_FLAGS = ("true", "false")


class Header(NamedTuple):
    """How the tag of a parameter goes on behind its beginning.

    `key`: the attribute with the name, and `end` what ends the tag. `flag`: the attribute that says whether the value
    is a text, and `type` the one that names its JSON type, where there is one. `entities`: a quote or a `&` in a name
    is written as in XML.
    """

    key: str = "name"
    end: str = ">"
    flag: str = ""
    type: str = ""
    entities: bool = False

    def named(self, key: str) -> str:
        """Return a name as it stands in the attribute."""
        return attribute_text(key.replace("&", "&amp;").replace(_QUOTE, "&quot;") if self.entities else key)

    def name(self, said: str) -> str:
        """Return the name that stands in an attribute."""
        return said.replace("&quot;", _QUOTE).replace("&amp;", "&") if self.entities else said

    @property
    def tells(self) -> bool:
        """Return whether it says of a value what that is."""
        return bool(self.flag or self.type)

    def opened(self, open_: str, key: str, value: str) -> str:
        """Return the tag before a JSON value. `key`: the name as an attribute's value."""
        said = f' {self.flag}="{"true" if value.startswith(_QUOTE) else "false"}"' if self.flag else ""
        said += f' {self.type}="{_type_of(value)}"' if self.type else ""
        return f"{open_} {self.key}={key}{said}{self.end}"

    def rule(self, open_: str, key: Node | str, text: bool | None) -> Node:
        """Return the tag before a value of any kind, a `text` or not."""
        said: list[Node | str] = [f' {self.flag}="{"true" if text else "false"}"'] if self.flag else []
        if self.type:
            types = choice(*map(Text, _OTHER_TYPES))
            said += [f' {self.type}="', "string" if text else types, '"']
        return sequence(f"{open_} {self.key}=", key, *said, self.end)

    def bare(self, said: str) -> tuple[str, dict[str, Json]] | None:
        """Return the name and the other attributes of a tag whose name has quotes in it that nothing escapes.

        Templates write keys as they are. None where something else is wrong with the tag.
        """
        others = "".join(rf'(?:\s+{re.escape(key)}=("[^"]*"))?' for key in (self.flag, self.type) if key)
        found = re.fullmatch(rf'\s+{re.escape(self.key)}="(.*?)"{others}\s*', said)
        if found is None or found[1].count(_QUOTE) % 2 or '="' in found[1] or "\\" in found[1]:
            return None
        told = zip((key for key in (self.flag, self.type) if key), found.groups()[1:], strict=True)
        return found[1], {key: Json(value.encode()) for key, value in told if value is not None}

    def words(self, found: Mapping[str, Json]) -> set[str]:
        """Return the attributes that say what the value is, in the words that there are for it."""
        known = {self.flag: _FLAGS, self.type: _TYPE_WORDS}
        return {key for key in found.keys() & known.keys() if plain(found[key]) in known[key]}

    def kind(self, found: Mapping[str, Json]) -> Kind | None:
        """Return what the attributes of a tag say of its value; None if nothing."""
        said = [plain(found[key]) for key in (self.flag, self.type) if key and key in found]
        return None if not said else "string" if said[0] in ("true", "string", True) else "json"


class XmlParameters(PlainBody):
    """The arguments of a call as one tag each. `open` is up to the attributes, `end` is the end of the call.

    `key`: the attribute with a parameter's name; `head_end`: what ends the opening tag. `flag`: an attribute that is
    `"true"` for texts and `"false"` for JSON; `type`: one that names the type. `behind`: white space behind each tag.
    `entities`: names are escaped as in XML.
    """

    carries: tuple[str, ...] = ("name", "arguments")

    def __init__(  # noqa: PLR0913  (each is an option of a table)
        self,
        open: str,  # noqa: A002
        close: str,
        end: str,
        indent: str = "",
        key: str = "name",
        head_end: str = ">",
        flag: str = "",
        type: str = "",  # noqa: A002
        behind: str = "\n",
        entities: bool = False,
    ) -> None:
        self._indent, self._open, self._close, self.end = indent, open, close, end
        self.key, self.head_end, self.flag, self.type, self.behind = key, head_end, flag, type, behind
        self.entities = entities
        self._header = Header(key, head_end, flag, type, entities)
        self.literals: tuple[str, ...] = (open, close, *tags_in(head_end))

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write a tag for each member. Arguments that are no JSON object become one parameter called `arguments`."""
        kinds = {} if self._header.tells else kinds_of(out.tools, item.name)
        try:
            members = read_object(item.arguments)
        except InvalidRequest:
            out.lose(".arguments", "approximated", "no JSON object; written as a parameter called 'arguments'")
            kind = "string" if self._header.tells else kinds.get("arguments", "either")
            read = argument_text(item.arguments, kind).strip()
            self._write_one("arguments", read, kinds, out)  # as what is read from it would be written
            return
        again: list[tuple[str, str]] = []
        for key, value in members.items():
            written = text_of(value)
            shown, kind = self._write_one(key, written, kinds, out)
            again.append((key, argument_text(shown, kind)))
        if joined(again) != item.arguments:
            detail = "tags keep the values of JSON arguments, not how they were spelled"
            lose_difference(item.arguments, len(again), partial(self._spelled, kinds), out, detail)

    def _write_one(self, key: str, value: str, kinds: Mapping[str, Kind], out: Writer) -> tuple[str, Kind]:
        """Write one parameter. Returns the text of its value, and what a reader takes that for."""
        kind = self._kind(key, value, kinds)
        shown = shown_text(value, kind)
        name = out.escape.spelled(self._header.named(key))
        out.control(f"{self._indent}{self._header.opened(self._open, name, value)}")
        out.content(shown)
        out.control(f"{self._close}{self.behind}")
        return shown, kind

    def _kind(self, key: str, value: str, kinds: Mapping[str, Kind]) -> Kind:
        """Return what a reader takes a value for: as its tag says, or as the schema does."""
        if self._header.tells:
            return "string" if value.startswith(_QUOTE) else "json"
        return kinds.get(key, "either")

    def _spelled(self, kinds: Mapping[str, Kind], key: str, value: str) -> str:
        """Return how a JSON value is read again where it is written as the parameter `key`."""
        kind = self._kind(key, value, kinds)
        return argument_text(shown_text(value, kind), kind)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the arguments."""
        message = f"parameters are written {self._open} {self.key}=...{self.head_end}value{self._close}"
        raise InvalidTranscript(message, line=payload.line, column=1, expected=self._open)

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for parameters that come in pieces."""
        return ParameterReader(self._open, self._close, self.end, reading, self._header)

    def grammar(self, call: CallRules) -> Node:
        """Return a tag for each parameter of the schema, in its order."""
        kinds = kinds_of({call.name: call.tool}, call.name)
        any_key = self._rule(sequence('"', KEY, '"'), False)
        return call.parameters(kinds, partial(self._opened, call, kinds), any_key, f"{self._close}{self.behind}")

    def _opened(self, call: CallRules, kinds: Mapping[str, Kind], key: str) -> Node:
        return self._rule(call.spelled(self._header.named(key)), kinds.get(key) == "string")

    def _rule(self, key: Node | str, text: bool) -> Node:
        return self._header.rule(f"{self._indent}{self._open}", key, text)


_HEAD = Header()


class _Tags(NamedTuple):
    """Tags that are looked for at one place; all their beginnings, themselves included; the length of the longest."""

    all: tuple[str, ...]
    beginnings: frozenset[str]
    longest: int

    def may_come_at(self, text: str, position: int) -> bool:
        """Return whether the end of a text, from `position` on, is the beginning of one."""
        return len(text) - position <= self.longest and text[position:] in self.beginnings


@lru_cache(maxsize=64)
def tags_of(*tags: str) -> _Tags:
    """Return tags that are looked for together, made once."""
    beginnings = frozenset(tag[:length] for tag in tags for length in range(len(tag) + 1))
    return _Tags(tags, beginnings, max(map(len, tags)))


class ParameterReader(Machine):
    """Reads one parameter after the other, up to the end of the call, which it leaves to its caller."""

    def __init__(self, open_: str, close: str, end: str, reading: Reading, head: Header = _HEAD) -> None:
        super().__init__()
        self._open, self._close, self._end, self._head = open_, close, end, head
        self._again = end.replace("</", "<", 1).removesuffix(">")
        self._followers = tags_of(open_, end, self._again)
        self._enders = tags_of(close, *reading.ends)
        self._ends = reading.ends
        others = {end[0] for end in reading.ends} - {"<"}  # as where turns end with `[/END]`
        self._begins = re.compile(f"[<{re.escape(''.join(sorted(others)))}]").search if others else None
        self._reading = reading
        self.name = reading.head.get("name")
        self.id = reading.head.get("id")
        self._kinds = kinds_of(reading.tools, self.name)
        self._state = self._between
        self._count = 0
        self._kind: Kind = "either"
        self._value: list[str] = []
        self._unescaper = Unescaper(reading.escape)
        self.waits = self._wait

    def look(self) -> Look | None:
        string = self._kind == "string" and self._begins is None
        inside = string and self._state == self._inside and not self._unescaper.held
        return _PLAIN if inside else None

    def _wait(self, text: str) -> bool:
        if len(text) > _FURTHEST:
            return False
        if self._state == self._inside:
            return self._waits_inside(text)
        if self._state == self._header:
            return text.find(self._head.end, len(self._open)) < 0
        return self._followers.may_come_at(text, 0) and not text.startswith((self._end, self._again, self._open))

    def _waits_inside(self, text: str) -> bool:
        """Return whether a piece of a value changes nothing yet: a tag may go on, or it is told at its end."""
        tag = 0 if self._kind == "string" else self._next_tag(text, 0)
        if tag < 0:
            return len(text) < _FURTHEST
        if not text.startswith(self._close, tag):
            return self._enders.may_come_at(text, tag) and not text.startswith(self._ends, tag)
        after = tag + len(self._close)
        follows = _SPACE.match(text, after).end()  # type: ignore[union-attr]
        comes = self._followers.may_come_at(text, follows) and not text.startswith(self._followers.all, follows)
        return comes and follows - after < _FURTHEST

    def feed(self, text: str, start: int) -> int:
        position, waits = start, False
        while position < len(text) and not (self.done or self.failed or waits):
            position, waits = self._state(text, position)
        return position

    def fields(self) -> dict[str, Any] | None:
        if not self._count:
            self._say("{}")
        else:
            self._say("}")
        return {"arguments": "".join(self.said)}

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.deltas.append(text)

    def _between(self, text: str, position: int) -> tuple[int, bool]:
        """Read white space, then a parameter or the end of the call."""
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if text.startswith((self._end, self._again), position):
            self.done = True
        elif text.startswith(self._open, position):
            self._state = self._header
        elif self._followers.may_come_at(text, position):
            return position, True
        else:
            self.failed = True
        return position, False

    def _header(self, text: str, position: int) -> tuple[int, bool]:
        start = position + len(self._open)
        end = text.find(self._head.end, start)
        if end < 0 or "\n" in text[start:end]:
            self.failed = len(text) - position > _LONGEST_HEADER or "\n" in text[start:]
            return position, not self.failed
        try:
            found = scan_attributes(text, start, end, 1, 1)
            key = plain(found[self._head.key])
        except (InvalidTranscript, KeyError):
            bare = self._head.bare(text[start:end])
            if bare is None:
                self.failed = True
                return position, False
            key, found = bare
        self._note_others(found)
        self._begin(self._head.name(str(key)), self._head.kind(found))
        return end + len(self._head.end), False

    def _note_others(self, found: Mapping[str, Json]) -> None:
        """Take note of attributes that say nothing here, or not what they may."""
        if not self._reading.strict:
            return
        others = sorted(found.keys() - {self._head.key} - self._head.words(found))
        if others:
            self.issues.append((ODD_CALL, f"an argument's tag says more than is kept: {', '.join(others)}"))

    def _begin(self, key: str, said: Kind | None = None) -> None:
        """Begin the value of a key. `said`: what it is, where its tag says so."""
        self._kind = said or self._kinds.get(key, "either")
        self._say(f"{', ' if self._count else '{'}{json_string(key)}: " + ('"' if self._kind == "string" else ""))
        self._count += 1
        self._value = []
        self._state = self._inside

    def _inside(self, text: str, position: int) -> tuple[int, bool]:
        """Read a value. At its closing tag, what follows decides; a tag that ends the turn is in no value."""
        end = self._next_tag(text, position)
        if end < 0:
            self._piece(text[position:])
            return len(text), False
        self._piece(text[position:end])
        if not text.startswith(self._close, end):
            if text.startswith(self._ends, end):
                self.failed = True
                return end, False
            if self._enders.may_come_at(text, end):
                return end, True
            self._piece(text[end])
            return end + 1, False
        after = end + len(self._close)
        follows = _SPACE.match(text, after).end()  # type: ignore[union-attr]
        if text.startswith(self._followers.all, follows):
            self._close_value()
            self._state = self._between
            return after, False
        if follows - after < _FURTHEST and self._followers.may_come_at(text, follows):
            return end, True
        self.issues.append(("ambiguous_close", f"{self._close} inside a value"))
        self._piece(self._close)
        return after, False

    def _next_tag(self, text: str, position: int) -> int:
        """Return where the next tag may begin that means something in a value; -1 if nowhere."""
        if self._begins is None:
            return text.find("<", position)
        found = self._begins(text, position)
        return -1 if found is None else found.start()

    def _piece(self, piece: str) -> None:
        if piece:
            text = self._unescaper.feed(piece)
            if self._kind == "string":
                self._say(safe_json_string(text)[1:-1])
            else:
                self._value.append(text)

    def _close_value(self) -> None:
        rest = self._unescaper.close()
        if self._kind == "string":
            self._say(safe_json_string(rest)[1:])
        else:
            self._say(argument_text("".join(self._value) + rest, self._kind))


def argument_text(shown: str, kind: Kind) -> str:
    """Return the JSON text that a parameter's text stands for.

    Seed-OSS's template writes a dict or a list as Python does, so where a schema wants one, that is read, too.
    """
    if kind != "string" and is_json(shown):
        return shown
    literal = json_of_python(shown) if kind == "json" and shown.strip()[:1] in ("[", "{") else None
    return safe_json_string(shown) if literal is None else literal


def _type_of(value: str) -> str:
    """Return the name of the type of a JSON value."""
    return _TYPES.get(value[:1], "number")


def shown_text(value: str, kind: Kind) -> str:
    """Return a JSON value as the text of a parameter."""
    if not value.startswith('"') or kind == "json":
        return value
    text: str = json.loads(value)
    return text if kind == "string" or not is_json(text) else json_string(text)


def kinds_of(tools: Mapping[str, Any], name: str | None) -> Mapping[str, Kind]:
    """Return what the schema of a tool says of each parameter. Empty for a tool that is not known."""
    tool = tools.get(name) if name is not None else None
    if tool is None or tool.parameters is None:
        return {}
    return _kinds(bytes(tool.parameters))


@recent(8 * MB)
def _kinds(schema: bytes) -> Mapping[str, Kind]:
    try:
        read = json.loads(schema)
    except (ValueError, RecursionError):
        return {}
    properties = read.get("properties") if isinstance(read, dict) else None
    return {key: kind_of(value) for key, value in properties.items()} if isinstance(properties, dict) else {}


def kind_of(schema: Any) -> Kind:
    """Return what a schema says of a value: its text is a string, JSON, or either."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    if declared is None and isinstance(schema, dict) and isinstance(schema.get("enum"), list):
        return "string" if all(isinstance(one, str) for one in schema["enum"]) else "either"
    types = declared if isinstance(declared, list) else [declared]
    if types == ["string"]:
        return "string"
    known = {"integer", "number", "boolean", "null", "object", "array"}
    if types and all(isinstance(one, str) and one in known for one in types):
        return "json"
    return "nullable" if "string" in types and "null" in types else "either"
