"""Owns calls whose arguments are elements named by their keys, nested as the values are, each tag behind a mark.

    MARK<city>OsloMARK</city>MARK<days>MARK<item>1MARK</item>MARK</days>

No content holds the mark, so whatever stands behind one is a tag. A value is a text until a tag opens inside it.

What stands inside one element is a JSON value. An object is an element for each member, an array one called `item` for
each of its values; what a schema says of a value decides how its text is read. A value that would not come back so is
written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import json_string, read_object, respace, safe_json_string, without_angles
from turnscript.engine.escape import Escape
from turnscript.engine.machine import KEY, ODD_CALL, CallRules, Machine, PlainBody, Reading, joined, lose_difference
from turnscript.engine.scanner import Unescaper
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.engine.tagcalls import name_of_word
from turnscript.engine.xmlcalls import Kind, argument_text, kind_of, shown_text
from turnscript.grammar.nodes import EMPTY, Node, Reference, Repeat, Without, choice, optional, sequence
from turnscript.grammar.rules import VALUE
from turnscript.grammar.schema import Member, Members, listed_strings

ITEM = "item"
"""The element of a value in an array."""
_KEY = re.compile(r"(?!item\Z)[^\s<>/\"\\]+")
_HALF = re.compile("[\ud800-\udfff]")
_DEEPEST_VALUE = 50
"""Values further down are written as JSON, which takes no element for a level."""
_POINTERS = 8


class Number(str):
    """A number as it was spelled."""

    __slots__ = ()


class Told(NamedTuple):
    """What a schema says of a value: its schema, and the whole one in which it stands."""

    schema: Any
    root: Any

    @property
    def kind(self) -> Kind:
        """Return how its text is read."""
        return kind_of(self.schema)

    @property
    def type(self) -> str:
        """Return `object`, `array`, or nothing where it is neither for sure."""
        declared = self.schema.get("type") if isinstance(self.schema, dict) else None
        return declared if declared in ("object", "array") else ""

    def words(self) -> list[str]:
        """Return the strings that it allows, if it lists them."""
        return listed_strings(self.schema)

    def member(self, key: str) -> Told:
        """Return what it says of a member of an object."""
        properties = self.schema.get("properties") if isinstance(self.schema, dict) else None
        if isinstance(properties, dict) and key in properties:
            return self._of(properties[key])
        return self._of(self.schema.get("additionalProperties") if isinstance(self.schema, dict) else None)

    def item(self) -> Told:
        """Return what it says of the values of an array."""
        return self._of(self.schema.get("items") if isinstance(self.schema, dict) else None)

    def _of(self, schema: Any) -> Told:
        for _ in range(_POINTERS):
            pointer = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(pointer, str):
                break
            schema = _pointed(self.root, pointer)
        return Told(schema, self.root)


def told_of(tools: Mapping[str, Any], name: str | None) -> Told:
    """Return what the schema of a tool says of its arguments; nothing where that is not known."""
    tool = tools.get(name) if name is not None else None
    if tool is None or tool.parameters is None:
        return Told(None, None)
    try:
        schema = json.loads(bytes(tool.parameters))
    except (ValueError, RecursionError):
        return Told(None, None)
    return Told(schema, schema)


def _pointed(root: Any, pointer: str) -> Any:
    """Return what a reference within a schema leads to; None where it leads nowhere."""
    if not pointer.startswith("#/"):
        return None
    for step in pointer[2:].split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def read_value(text: str) -> Any:
    """Return a JSON value with its numbers as they are spelled; None of Python where it has too many levels."""
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, object_pairs_hook=_pairs)
    except RecursionError:
        return None


class _Pairs(dict[str, Any]):
    """An object. `whole`: no key comes twice."""

    whole = True


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    made = _Pairs(pairs)
    made.whole = len(made) == len(pairs)
    return made


def write_value(text: str, told: Told, mark: str, out: Writer) -> str:
    """Write a JSON value between its tags; returns how it will be read."""
    value = read_value(text)
    if told.kind != "string" and _fits(value, told, _DEEPEST_VALUE):
        return _write(value, told, mark, out)
    shown = shown_text(text, told.kind)
    out.content(shown)
    return argument_text(shown, told.kind)


def read_again(text: str, told: Told, mark: str, escape: Escape) -> str:
    """Return how a JSON value will be read where it is written so."""
    return write_value(text, told, mark, Writer(escape, archive=False))


def _fits(value: Any, told: Told, levels: int) -> bool:
    """Return whether elements say a value, so that it comes back as it is."""
    if isinstance(value, _Pairs):
        if not (levels and value and value.whole) or told.type == "array" or told.kind == "string":
            return False
        named = all(_KEY.fullmatch(key) or (key == ITEM and told.type == "object") for key in value)
        return named and all(_fits(one, told.member(key), levels - 1) for key, one in value.items())
    if isinstance(value, list):
        if not (levels and value) or told.type == "object" or told.kind == "string":
            return False
        return all(_fits(one, told.item(), levels - 1) for one in value)
    if told.kind == "string" and (isinstance(value, Number) or not isinstance(value, str)):
        return False
    return not isinstance(value, str) or _HALF.search(value) is None


def _write(value: Any, told: Told, mark: str, out: Writer) -> str:
    if isinstance(value, _Pairs):
        said = []
        for key, one in value.items():
            said.append(f"{json_string(key)}: {_element(key, one, told.member(key), mark, out)}")
        return "{" + ", ".join(said) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_element(ITEM, one, told.item(), mark, out) for one in value]) + "]"
    shown = shown_text(_spelled(value), told.kind)
    out.content(shown)
    return argument_text(shown, told.kind)


def _element(key: str, value: Any, told: Told, mark: str, out: Writer) -> str:
    tag(f"{mark}<", key, out)
    read = _write(value, told, mark, out)
    tag(f"{mark}</", key, out)
    return read


def tag(begin: str, word: str, out: Writer) -> None:
    """Write a tag of a key."""
    out.control(begin)
    out.content(word)
    out.control(">")


def _spelled(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    return json_string(value) if isinstance(value, str) else json.dumps(value)


_LONGEST_TAG = 4096
_PLAIN_WORD = re.compile(r"(?!/)[^\s<>\"]+")
_NO_SPACE = re.compile(r"\S")
_NO_KEY = re.compile(r'[^"]\S*\s')  # as of a tag with attributes


class ElementCall(PlainBody):
    """The arguments of a call as elements. `mark` stands before each tag."""

    carries: tuple[str, ...] = ("name", "arguments")

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.literals: tuple[str, ...] = (f"{mark}<",)

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write an element for each member. Arguments that are no JSON object become one called `arguments`."""
        told = told_of(out.tools, item.name)
        try:
            members = {key: respace(value) for key, value in read_object(item.arguments).items()}
        except InvalidRequest:
            out.lose(".arguments", "approximated", "no JSON object; written as a parameter called 'arguments'")
            self._write_one("arguments", safe_json_string(item.arguments), told, out)
            return
        again = [(key, self._write_one(key, text, told, out)) for key, text in members.items()]
        if joined(again) != item.arguments:
            detail = "elements keep the values of JSON arguments, not how they were spelled"
            lose_difference(item.arguments, len(again), partial(self._spelled, told, out.escape), out, detail)

    def _spelled(self, told: Told, escape: Escape, key: str, value: str) -> str:
        return read_again(value, told.member(key), self.mark, escape)

    def _write_one(self, key: str, text: str, told: Told, out: Writer) -> str:
        word = _word(key)
        tag(f"{self.mark}<", word, out)
        read = write_value(text, told.member(key), self.mark, out)
        tag(f"{self.mark}</", word, out)
        return read

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the arguments."""
        message = f"arguments are written {self.mark}<KEY>value{self.mark}</KEY>"
        raise InvalidTranscript(message, line=payload.line, column=1, expected=f"{self.mark}<")

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for elements that come in pieces."""
        return _ElementMachine(self.mark, reading)

    def grammar(self, call: CallRules) -> Node:
        """Return an element for each parameter of the schema, in its order."""
        return _Elements(self.mark, call).arguments()


class _Elements:
    """The rules of one tool's elements. Arrays and objects of one schema are one rule, wherever they stand."""

    def __init__(self, mark: str, call: CallRules) -> None:
        self._mark, self._call = mark, call
        self._made: dict[int, Reference] = {}  # by the schema, which the argument of `arguments` keeps

    def arguments(self) -> Node:
        members = self._call.schema.members()
        others = self._call.others(members, self._any)
        if others is not None or members is None:
            return EMPTY if others is None else others.behind(EMPTY)
        told = told_of({self._call.name: self._call.tool}, self._call.name)
        return self._members(members, told)

    def _any(self) -> Node:
        """An element that no schema names."""
        inner = choice(self._call.rules.shared(VALUE), EMPTY)
        return sequence(f"{self._mark}<", KEY, ">", inner, f"{self._mark}</", KEY, ">")

    def _members(self, members: Members, told: Told) -> Node:
        parts = []
        for one in members.known:
            element = self._element(one, self._call.protect(_word(one.key)), told.member(one.key))
            parts.append(element if one.required else optional(element))
        return sequence(*parts)

    def _element(self, member: Member, word: str, told: Told) -> Reference:
        rules = self._call.rules
        inner = self._value(member, told)
        element = sequence(f"{self._mark}<{word}>", inner, f"{self._mark}</{word}>")
        return rules.add(rules.named(self._call.name, member.key), element)

    def _value(self, member: Member, told: Told) -> Node:
        """Return a value: a text, or JSON, or elements where a schema names their keys or says what an array holds."""
        call = self._call
        if told.kind == "string":
            words = told.words()
            if words and call.rules.spend(len(words)):
                return choice(*(sequence(call.protect(word)) for word in words))
            call.schema.lose_text(member)
            return Without((self._mark,))
        if not told.type:
            return call.schema.member(member)
        known = self._made.get(id(told.schema))
        if known is None:
            name = call.rules.named(call.name, member.key, "value")
            known = self._made[id(told.schema)] = Reference(name)
            elements = self._nested(member, told) if call.rules.spend() else None
            as_json = call.schema.member(member)
            call.rules.add(name, as_json if elements is None else choice(elements, as_json))
        return known

    def _nested(self, member: Member, told: Told) -> Node | None:
        """Return the elements inside one; None where a schema does not say what they are."""
        schema = self._call.schema
        inner, items = schema.inner(member), schema.items(member)
        if told.type == "object" and inner is not None and inner.known and inner.more is None:
            return self._members(inner, told)
        if told.type == "array" and items is not None:
            return Repeat(self._element(items.item, ITEM, told.item()), max(items.least, 1), items.most)
        return None


class _Frame(NamedTuple):
    """What is open: an object, an array, or what may yet become one; `told` is what a schema says of it."""

    kind: str
    told: Told


@lru_cache(maxsize=64)
def _marks(mark: str, ends: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str], int]:
    """Return what ends a text: the mark or what ends the turn; all proper beginnings of both, and the longest."""
    literals = (mark, *ends)
    begun = frozenset(one[:size] for one in literals for size in range(1, len(one)))
    return re.compile("|".join(map(re.escape, literals))), begun, max(map(len, literals)) - 1


class _ElementMachine(Machine):
    """Reads one tag behind another, up to the end of the call, which it leaves to its caller."""

    def __init__(self, mark: str, reading: Reading) -> None:
        super().__init__()
        self.name = reading.head.get("name")
        self.id = reading.head.get("id")
        self._mark, self._reading = mark, reading
        self._end = reading.closes[0].removeprefix(mark) if reading.closes else ""
        ends = tuple(one for one in reading.ends if not one.startswith(mark))
        self._found, self._begun, self._longest = _marks(mark, ends)
        self._odd = _outside(mark, reading)
        self._frames = [_Frame("object", told_of(reading.tools, self.name))]
        self._counts = [0]
        self._keys: list[str] = []  # of what is open
        self._text: list[str] | None = None  # of a value that may be a text; None between elements
        self._string = False  # whether that is a string for sure, and passed on as it comes
        self._told = Told(None, None)
        self._unescaper = Unescaper(reading.escape)

    def passes(self, text: str) -> int:
        inside = self._string and self._text is not None and not self._unescaper.held
        return len(text) if inside and self._odd(text) is None else -1

    def feed(self, text: str, start: int) -> int:
        position = start
        while position < len(text) and not (self.done or self.failed):
            found = self._found.search(text, position)
            end = self._held(text, position) if found is None else found.start()
            if self._text is None and (stray := _NO_SPACE.search(text, position, end)):  # no tag, and in no value
                self.failed = True
                return stray.start()
            self._content(text[position:end])
            if found is None:
                return end
            if found[0] != self._mark:  # the turn is over
                self.failed = True
                return end
            position = self._tag(text, end)
            if position == end:
                break
        return position

    def _held(self, text: str, start: int) -> int:
        """Return from where on the end of a text may be the beginning of a mark; its length if nothing is."""
        for at in range(max(start, len(text) - self._longest), len(text)):
            if text[at:] in self._begun:
                return at
        return len(text)

    def _tag(self, text: str, start: int) -> int:
        """Read the tag behind a mark; returns where it ends, or `start` where it is not there yet or none."""
        begin = start + len(self._mark)
        if self._end and text.startswith(self._end, begin):
            self._close_all()
            return start
        end = text.find(">", begin, begin + _LONGEST_TAG)
        if end < 0:
            rest = text[begin : begin + 2]
            self.failed = len(text) - begin >= _LONGEST_TAG or (rest != "" and rest[0] != "<")
            return start
        word = text[begin + 1 : end]
        closes = word.startswith("/")
        key = name_of_word(self._reading.escape.remove(word[1:] if closes else word))
        if text[begin] != "<" or key is None or "\n" in word:
            self.failed = True
            return start
        if self._text is None and len(self._frames) == 1 and (closes or _NO_KEY.match(word)):
            self._close_all()  # what opened the call is closed, or opens the next one
            return start
        if closes:
            self._close(key)
        else:
            self._open(key)
        return start if self.failed else end + 1

    def _content(self, piece: str) -> None:
        if not piece or self._text is None:
            return
        said = self._unescaper.feed(piece)
        if self._string:
            self._say(safe_json_string(said)[1:-1])
        else:
            self._text.append(said)

    def _say(self, text: str) -> None:
        if text:
            self.said.append(text)
            self.deltas.append(text)

    def _open(self, key: str) -> None:
        """Begin an element: in an object, in an array, or in a value that is one of both by that."""
        if self._text is not None:
            if self._string or "".join(self._text).strip() or self._unescaper.held:
                self.failed = True  # an element inside a text
                return
            kind = self._told.type or ("array" if key == ITEM else "object")
            self._frames.append(_Frame(kind, self._told))
            self._counts.append(0)
            self._say("[" if kind == "array" else "{")
        self._keys.append(key)
        kind, told = self._frames[-1]
        before = ", " if self._counts[-1] else "{" if len(self._frames) == 1 else ""
        self._counts[-1] += 1
        self._told = told.item() if kind == "array" else told.member(key)
        self._text, self._string = [], self._told.kind == "string"
        self._say(before + ("" if kind == "array" else f"{json_string(key)}: ") + ('"' if self._string else ""))

    def _close(self, key: str) -> None:
        """End what is open, whichever key its closing says."""
        if self._keys and key not in ("", self._keys.pop()) and self._reading.strict:
            self.issues.append((ODD_CALL, f"an argument is closed as {key}"))
        if self._text is not None:
            rest = self._unescaper.close()
            if self._string:
                self._say(safe_json_string(rest)[1:])
            else:
                shown = "".join(self._text) + rest
                empty = {"object": "{}", "array": "[]"}.get(self._told.type, "") if not shown.strip() else ""
                self._say(empty or argument_text(shown, self._told.kind))
            self._text, self._string = None, False
        elif len(self._frames) > 1:
            self._say("]" if self._frames.pop().kind == "array" else "}")
            self._counts.pop()
        else:
            self.failed = True

    def _close_all(self) -> None:
        """End the call, and all that is still open with it."""
        if self._text is not None or len(self._frames) > 1:
            self.issues.append((ODD_CALL, "an argument without its closing"))
        while self._text is not None or len(self._frames) > 1:
            self._close("")
        self.done = True

    def fields(self) -> dict[str, Any] | None:
        self._say("}" if self._counts[0] else "{}")
        return {"arguments": "".join(self.said)}


def _word(key: str) -> str:
    """Return a key as it is written in a tag."""
    return key if _PLAIN_WORD.fullmatch(key) else without_angles(json_string(key))


def _outside(mark: str, reading: Reading) -> Any:
    """Return a search for what is more than text: JSON writes it otherwise, or a tag or an escape begins."""
    signs = {mark[0], *(one[0] for one in reading.ends), *(lead[0] for lead, _ in reading.escape.rules)}
    return _search("".join(sorted(signs)))


@lru_cache(maxsize=64)
def _search(signs: str) -> Any:
    return re.compile(rf'[{re.escape(signs)}"\\\x00-\x1f\x7f\ud800-\udfff]').search
