"""Owns tool calls whose arguments are tags: `<parameter name="city">Tokyo</parameter>`, typed by the tool's schema.

A parameter that the schema calls a string is its text, exactly. Any other is JSON text. Where the schema does not tell,
a text that is JSON is JSON, so a string that looks like JSON is written in quotes (requirements D-A-7).

Some formats say the type in the tag: `<parameter name="city" string="true">`. Then a value is read as that says,
whatever the schema does.

A value ends at the first closing tag that is followed by another parameter, or by the end of the call or the beginning
of another one. A closing tag with anything else behind it belongs to the value.

A model may forget that closing tag. So the tag of another parameter, and that of the end of the call, end a value if no
closing of its own follows which says that they are of its text: what stands behind them waits for that (`_Doubts`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import Json, is_json, json_string, plain, read_object, safe_json_string, text_of
from turnscript.engine.attributes import attribute_text, scan_attributes
from turnscript.engine.escape import tags_in
from turnscript.engine.functioncalls import json_of_python
from turnscript.engine.machine import KEY, ODD_CALL, CallRules, Machine, PlainBody, Reading, joined, lose_difference
from turnscript.engine.recent import MB, recent
from turnscript.engine.scanner import Unescaper
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.grammar.nodes import Literal as Text
from turnscript.grammar.nodes import Node, choice, sequence

Kind = Literal["string", "json", "either", "nullable"]
"""`either`: a text that is JSON is JSON. `nullable`: the same, of a string or null as the schema says."""
_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r'[<"\\\x00-\x1f\x7f\ud800-\udfff]').search
_FURTHEST = 256  # white space behind a closing tag, and a value that waits, are looked at no further than this
_LONGEST_HEADER = 4096
_WIDEST = 32  # a line break and what indents a tag
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


class Begun(NamedTuple):
    """The tag of a parameter: its key, what it says of its value, where it ends, and attributes that none has."""

    key: str
    kind: Kind | None
    end: int
    others: tuple[str, ...] = ()


class _Doubts:
    """What stands in a value since a tag that may end it. `parameters`: such tags, each with where it begins and ends;
    `over`: where the first one of the end of the call begins, -1 if there is none; `ends`: such tags, and `alone`:
    whether nothing but them stands there since."""

    def __init__(self, ends: tuple[str, ...]) -> None:
        self.parameters: list[tuple[Begun, int]] = []
        self.keys: set[str] = set()
        self.over, self.size, self.alone = -1, 0, True
        self._ends = ends
        self._pieces: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.over >= 0

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    def take(self, piece: str) -> None:
        """Take more of the text."""
        self._pieces.append(piece)
        self.size += len(piece)
        self.alone = self.alone and (piece in self._ends or not piece.strip() or self.over < 0)

    def begin(self, begun: Begun, start: int) -> None:
        """Take note of the tag of a parameter that comes next; it begins at `start` where it was found."""
        self.parameters.append((begun._replace(end=self.size + begun.end - start), self.size))
        self.keys.add(begun.key)


class ParameterReader(Machine):
    """Reads one parameter after the other, up to the end of the call, which it leaves to its caller."""

    def __init__(self, open_: str, close: str, end: str, reading: Reading, head: Header = _HEAD) -> None:
        super().__init__()
        self._open, self._close, self._end, self._head = open_, close, end, head
        self._again = end.replace("</", "<", 1).removesuffix(">")
        self._followers = tags_of(open_, end, self._again)
        # Values of a transcript have their closings, so nothing in them is in doubt.
        self._overs = tuple(dict.fromkeys((end, *reading.closes))) if reading.lead is None and end else ()
        self._reopens = reading.opening or (self._again if "</" in end else "")
        reopens = (self._reopens,) if self._reopens else ()
        doubted = (open_, *self._overs, *reopens) if self._overs else ()
        self._enders = tags_of(close, *reading.ends, *doubted)
        self._ends = reading.ends
        others = {literal[0] for literal in (*reading.ends, *doubted)} - {"<"}  # as where turns end with `[/END]`
        self._begins = re.compile(f"[<{re.escape(''.join(sorted(others)))}]").search if others else None
        self._reading = reading
        self.name = reading.head.get("name")
        self.id = reading.head.get("id")
        self._kinds = kinds_of(reading.tools, self.name)
        self._state = self._between
        self._given: set[str] = set()  # keys
        self._kind: Kind = "either"
        self._value: list[str] = []
        self._kept = ""  # the end of a value that may be of what follows
        self._last = ""  # the last character of a value so far
        self._doubts = _Doubts(self._overs)
        self._mended = False
        self._unescaper = Unescaper(reading.escape)

    def passes(self, text: str) -> int:
        string = self._kind == "string" and self._begins is None
        inside = string and self._state == self._inside and not (self._unescaper.held or self._kept or self._doubts)
        if inside and _PLAIN(text) is None:
            return len(text)
        return 0 if self._waits(text) else -1

    def _waits(self, text: str) -> bool:
        """Return whether a piece changes nothing before more of it is there."""
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
            return self._enders.may_come_at(text, tag) and not text.startswith((*self._ends, *self._overs), tag)
        after = tag + len(self._close)
        follows = _SPACE.match(text, after).end()  # type: ignore[union-attr]
        comes = self._followers.may_come_at(text, follows) and not text.startswith(self._followers.all, follows)
        return comes and follows - after < _FURTHEST

    def feed(self, text: str, start: int) -> int:
        position, waits = start, False
        while position < len(text) and not (self.done or self.failed or self.left or waits):
            position, waits = self._state(text, position)
        return position

    def fields(self) -> dict[str, Any] | None:
        if not self._given:
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
        begun = self._head_at(text, position)
        if isinstance(begun, bool):
            self.failed = not begun
            return position, begun
        self._begin(begun)
        return begun.end, False

    def _head_at(self, text: str, position: int) -> Begun | bool:
        """The tag of a parameter at a place: what it says. True: it is not whole yet; False: it is none."""
        start = position + len(self._open)
        end = text.find(self._head.end, start)
        if end < 0 or "\n" in text[start:end]:
            return len(text) - position <= _LONGEST_HEADER and "\n" not in text[start:]
        try:
            found = scan_attributes(text, start, end, 1, 1)
            key = plain(found[self._head.key])
        except (InvalidTranscript, KeyError):
            bare = self._head.bare(text[start:end])
            if bare is None:
                return False
            key, found = bare
        others = tuple(sorted(found.keys() - {self._head.key} - self._head.words(found)))
        return Begun(self._head.name(str(key)), self._head.kind(found), end + len(self._head.end), others)

    def _begin(self, begun: Begun) -> None:
        """Begin the value of a parameter."""
        self._kind = begun.kind or self._kinds.get(begun.key, "either")
        if begun.key in self._given:
            self.issues.append((ODD_CALL, f"the argument {json_string(begun.key)} is given twice"))
        before = ", " if self._given else "{"
        self._say(f"{before}{json_string(begun.key)}: " + ('"' if self._kind == "string" else ""))
        self._given.add(begun.key)
        self.drop(begun.others)
        self._value, self._last = [], ""
        self._state = self._inside

    def _inside(self, text: str, position: int) -> tuple[int, bool]:
        """Read a value. At its closing tag, what follows decides; a tag that ends the turn is in no value."""
        tag = self._next_tag(text, position)
        if tag < 0:
            self._take(text[position:])
            return len(text), False
        self._take(text[position:tag])
        if text.startswith(self._close, tag):
            return self._at_close(text, tag)
        if text.startswith(self._ends, tag):
            self.failed = not (self._overs and self._end_value(True))
            return tag, False
        size = self._doubted(text, tag) if self._overs else 1
        if self.left or (size == 1 and self._enders.may_come_at(text, tag)):
            return tag, not self.left
        self._take(text[tag : tag + size])
        return tag + size, not size

    def _at_close(self, text: str, tag: int) -> tuple[int, bool]:
        after = tag + len(self._close)
        follows = _SPACE.match(text, after).end()  # type: ignore[union-attr]
        if text.startswith(self._followers.all, follows):
            begun = self._near_head(text, follows) if self._doubts else False
            if begun is True:
                return tag, True
            self._settle(begun.key if begun else "")
            self._close_value()
            self._state = self._between
            return after, False
        if follows - after < _FURTHEST and self._followers.may_come_at(text, follows):
            return tag, True
        self.issues.append(("ambiguous_close", f"{self._close} inside a value"))
        self._take(self._close)
        return after, False

    def _next_tag(self, text: str, position: int) -> int:
        """Return where the next tag may begin that means something in a value; -1 if nowhere."""
        if self._begins is None:
            return text.find("<", position)
        found = self._begins(text, position)
        return -1 if found is None else found.start()

    # What may be behind the end of a value.

    def _doubted(self, text: str, tag: int) -> int:
        """How much a tag in a value takes: all of one that may end it, a character of any other, nothing if it waits.

        Where the next call begins right behind the end of this one, the value has ended there.
        """
        doubts = self._doubts
        over = next((one for one in self._overs if text.startswith(one, tag)), "")
        if over:
            doubts.over = doubts.over if doubts.over >= 0 else doubts.size
            return len(over)
        if doubts.over >= 0:
            if doubts.alone and self._reopens and text.startswith(self._reopens, tag):
                self._end_value(True)
            return 1
        begun = self._near_head(text, tag)
        if begun is True:
            return 0
        if not begun or not self._is_new(begun.key):
            return 1
        follows = self._may_follow(text, begun.end)
        if follows:
            doubts.begin(begun, tag)
        return 0 if follows is None else begun.end - tag if follows else 1

    def _near_head(self, text: str, position: int) -> Begun | bool:
        """The tag of a parameter at a place, if it is not too long to be waited for; True: it may yet become one."""
        begun = text.startswith(self._open, position) and self._head_at(text, position)
        if isinstance(begun, bool):
            return begun and len(text) - position < _FURTHEST
        return begun.end - position <= _FURTHEST and begun

    def _is_new(self, key: str) -> bool:
        """Whether a call may have a parameter of this key that it has not yet."""
        return key not in self._given and key not in self._doubts.keys and (not self._kinds or key in self._kinds)

    def _may_follow(self, text: str, end: int) -> bool | None:
        """Whether the tag of a parameter that ends there stands as it is written; None if that is not certain yet."""
        return True

    def _settle(self, following: str) -> None:
        """Its closing is there: what was in doubt is of the value, or of parameters, none of which is `following`."""
        doubts, self._doubts = self._doubts, _Doubts(self._overs)
        if not doubts:
            return
        if following in doubts.keys:
            doubts.parameters.clear()
        self._tell_doubted(doubts, doubts.size)

    def _tell_doubted(self, doubts: _Doubts, end: int) -> None:
        text, position = doubts.text[:end], 0
        for begun, start in doubts.parameters:
            self._piece(text[position:start])
            self._close_value(mended=True)
            self._begin(begun)
            position = begun.end
        self._piece(text[position:])
        if doubts.parameters:
            self._note_mended()

    def _note_mended(self) -> None:
        if not self._mended:
            self._mended = True
            self.issues.append(("mended_call", f"a value without {self._close}"))

    def _end_value(self, stopped: bool) -> bool:
        """End a value without its closing where the call ends, or, if the model has `stopped`, the text.

        What was read behind the end of the call is to be read again. Returns whether the value may have ended there.
        """
        doubts = self._doubts
        over = doubts.over if doubts.over >= 0 else doubts.size
        if doubts.over < 0 and not (stopped and self._is_whole(doubts)):
            return False
        self._doubts = _Doubts(self._overs)
        self._tell_doubted(doubts, over)
        self._close_value(mended=True)
        self._note_mended()
        self._state, self.left = self._between, doubts.text[over:]
        self.done = not self.left
        return True

    def _is_whole(self, doubts: _Doubts) -> bool:
        """Whether a value may be all of it: a text may, and JSON if it is some."""
        if doubts.parameters:
            last, _ = doubts.parameters[-1]
            kind, value = last.kind or self._kinds.get(last.key, "either"), doubts.text[last.end :]
        else:
            kind, value = self._kind, "".join(self._value)
        return kind != "json" or is_json(value)

    def end(self, held: str, stopped: bool) -> bool:
        if not self._overs or self.done or self.failed:
            return False
        if self._state == self._between and self._given and stopped:
            self.issues.append(("mended_call", f"a call without {self._end}"))
            self.done = True
        elif self._state == self._inside and held.startswith(self._close) and stopped:
            self._settle("")
            self._close_value()
            self._note_mended()
            self.done = True
        elif self._state == self._inside:
            if not self._enders.may_come_at(held, 0):
                self._take(held)
            return self._end_value(stopped)
        return self.done

    # The text of a value.

    def _take(self, piece: str) -> None:
        if piece:
            self._last = piece[-1]
            if self._doubts:
                self._doubts.take(piece)
            else:
                self._piece(piece)

    def _piece(self, piece: str) -> None:
        """More of a value. What may be white space before a tag waits for what follows."""
        piece = self._kept + piece
        size = self._to_keep(piece)
        self._kept = piece[len(piece) - size :]
        self._pass_on(piece[: len(piece) - size])

    def _to_keep(self, piece: str) -> int:
        """How much of the end of a piece may be a line break and what indents a tag."""
        line = piece.rfind("\n", max(0, len(piece) - _WIDEST))
        return 0 if line < 0 or piece[line:].strip() else len(piece) - line

    def _pass_on(self, piece: str) -> None:
        if piece:
            text = self._unescaper.feed(piece)
            if self._kind == "string":
                self._say(safe_json_string(text)[1:-1])
            else:
                self._value.append(text)

    def _close_value(self, mended: bool = False) -> None:
        kept, self._kept = self._kept, ""
        self._pass_on("" if mended and not kept.strip() else kept)
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
