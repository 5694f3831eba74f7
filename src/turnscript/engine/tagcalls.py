"""Owns tool calls that are tags all through: `<function=f>`, `<parameter=city>`, `<arg_key>city</arg_key>`.

The tool's name stands in the payload, between two literals of the table, and so does the key of each argument. Values
are typed by the tool's schema, as in `xmlcalls`, which also says where a value ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import json_string, read_object, respace, without_angles
from turnscript.engine.escape import tags_in
from turnscript.engine.machine import KEY, ODD_CALL, CallRules, Machine, PlainBody, Reading, joined, lose_difference
from turnscript.engine.names import name_of_line
from turnscript.engine.scanner import beginning_of, overlap
from turnscript.engine.spans import Writer
from turnscript.engine.structures import may_be
from turnscript.engine.table import Payload
from turnscript.engine.xmlcalls import Begun, Kind, ParameterReader, argument_text, kinds_of, shown_text, tags_of
from turnscript.grammar.nodes import Node, sequence

_SPACE = re.compile(r"\s*")
_PLAIN_WORD = re.compile(r"[^\s<>\"]+")
_STEPS = re.compile(r"\s+|\S")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}  # as some templates write JSON's
_NOTHING = "None"
_LONGEST_WORD = 4096
CDATA, CDATA_END = "<![CDATA[", "]]>"
_IN_SECTION = re.compile(r"[<&\n]")


class TagCall(PlainBody):
    """A call as tags. `name_open` and `name_close` stand around the tool's name, `key_open` and `value_open` around a
    key, and a value stands between that and `value_close`. `end` ends the call, if the segment's closing does not.

    Names and keys are written as they are if they are one word, and as JSON strings otherwise. White space at the ends
    of these literals is written, and a reader does without. `cdata`: a string with a tag, a `&` or a line break in it
    stands in a section of XML's, `<![CDATA[...]]>`.
    """

    carries: tuple[str, ...] = ("name", "arguments")
    says_name = True

    def __init__(  # noqa: PLR0913  (each is an option of a table)
        self,
        key_open: str,
        value_open: str,
        value_close: str,
        *,
        name_open: str = "",
        name_close: str = "\n",
        end: str = "",
        cdata: bool = False,
    ) -> None:
        self.cdata = cdata
        self.name_open, self.name_close, self.end = name_open, name_close, end
        self.key_open, self.value_open, self.value_close = key_open, value_open, value_close
        written = (name_open, name_close, key_open, value_open, value_close, end)
        self.literals: tuple[str, ...] = tuple(tag for literal in written for tag in tags_in(literal))
        self.begins = name_open

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the name, and tags for each member. Arguments that are no JSON object are one called `arguments`."""
        out.control(self.name_open)
        out.content(_word(item.name))
        out.control(self.name_close)
        kinds, sections = kinds_of(out.tools, item.name), self.cdata
        try:
            members = {key: respace(value) for key, value in read_object(item.arguments).items()}
        except InvalidRequest:
            out.lose(".arguments", "approximated", "no JSON object; written as a parameter called 'arguments'")
            kind = kinds.get("arguments", "either")
            members, sections = {"arguments": argument_text(item.arguments, kind).strip()}, False
            again = item.arguments
        else:
            read = partial(_spelled, kinds)
            again = joined([(key, read(key, value)) for key, value in members.items()])
        for key, value in members.items():
            out.control(self.key_open)
            out.content(_word(key))
            out.control(self.value_open)
            shown = _shown(value, kinds.get(key, "either"))
            section = sections and value.startswith('"') and _IN_SECTION.search(json.loads(value)) is not None
            out.control(CDATA if section else "")
            out.content(shown)
            out.control(f"{CDATA_END if section else ''}{self.value_close}")
        if self.end:
            out.control(self.end)
        if again != item.arguments:
            detail = "tags keep the values of JSON arguments, not how they were spelled"
            lose_difference(item.arguments, len(members), partial(_spelled, kinds), out, detail)

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the name's opening, and the name if it is known."""
        return self.name_open if name is None else f"{self.name_open}{protect(_word(name))}{self.name_close}"

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the arguments."""
        message = f"a call is written {self.name_open}NAME{self.name_close.strip()}, then its arguments as tags"
        raise InvalidTranscript(message, line=payload.line, column=1, expected=self.name_open or "a name")

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _TagMachine(self, reading)

    def grammar(self, call: CallRules) -> Node:
        """Return the name, and tags for each parameter of the schema, in its order."""
        kinds = kinds_of({call.name: call.tool}, call.name)
        head = f"{self.name_open}{call.protect(_word(call.name))}{self.name_close}"
        any_key = sequence(self.key_open, KEY, self.value_open)
        return sequence(head, call.parameters(kinds, partial(self._opened, call), any_key, self.value_close), self.end)

    def _opened(self, call: CallRules, key: str) -> str:
        return f"{self.key_open}{call.protect(_word(key))}{self.value_open}"


class _Word(NamedTuple):
    """How a name or a key is found, up to what is behind it; and what may yet become one."""

    whole: re.Pattern[str]
    begun: re.Pattern[str]


@lru_cache(maxsize=64)
def _key_before(behind: str) -> _Word:
    """Return the patterns of a key with the literal behind it: templates write keys as they are.

    So a key may have spaces and quotes in it, but no tag and no line break. Between two tags any white space will do,
    because models of a newer version write some where the older one had it.
    """
    row = [r"\s*" if step.isspace() else re.escape(step) for step in _STEPS.findall(behind.replace("><", "> <"))]
    key, half = r'[^\s<>"][^<\n]*?', r'"(?>(?:[^"\\\n]|\\[^\n])*)\\?|'
    quoted = r'"(?>(?:[^"\\\n]|\\[^\n])*)"'
    return _Word(
        re.compile(rf"\s*({quoted}|{key})\s*(?:{''.join(row)})"),
        re.compile(rf'\s*(?:(?>{quoted}|[^\s<>"][^<\n]*)\s*(?:{beginning_of(row)})|{half})'),
    )


@lru_cache(maxsize=64)
def _word_before(behind: tuple[str, ...], taken: bool) -> _Word:
    """Return the patterns of a word that one of these literals is behind. `taken`: the literal is read with the word.

    Where a literal has white space, any will do.
    """
    rows = [[r"\s*" if step.isspace() else re.escape(step) for step in _STEPS.findall(one)] for one in behind]
    whole = "|".join("".join(row) for row in rows)
    begun = "|".join(map(beginning_of, rows))
    word, half = r'"(?>(?:[^"\\\n]|\\[^\n])*)"|[^\s<>"]+', r'"(?>(?:[^"\\\n]|\\[^\n])*)\\?|'
    return _Word(
        re.compile(rf"\s*((?>{word}))\s*(?:{whole})" if taken else rf"\s*((?>{word}))\s*(?={whole})"),
        re.compile(rf"\s*(?:(?>{word})\s*(?:{begun})|{half})"),
    )


class _TagMachine(ParameterReader):
    """Reads the name, then one argument after the other."""

    def __init__(self, body: TagCall, reading: Reading) -> None:
        end = body.end.strip() or (reading.closes[0] if reading.closes else "")
        super().__init__(body.key_open.strip(), body.value_close.strip(), end, reading)
        self._body = body
        self._closes = reading.closes if body.end.strip() else ()  # without the end of the call before them
        ends = (end, *self._closes)
        self._followers = tags_of(*self._followers.all, *self._closes)
        closed = bool(body.name_close.strip())  # else a name ends where the first key, or the end, begins
        self._names = _word_before((body.name_close.strip(),) if closed else (body.key_open.strip(), *ends), closed)
        self._keys = _key_before(body.value_open.strip())
        self._lead = body.value_open[len(body.value_open.rstrip()) :]
        self._before_close = body.value_close[: len(body.value_close) - len(body.value_close.lstrip())]
        self._space = self._before_close  # what of a value's end is not of the value
        self._first = False  # whether a value has just begun
        self._lined = False  # whether it begins on a line of its own
        self._state = self._name

    def passes(self, text: str) -> int:
        return -1

    @property
    def streams(self) -> bool:
        return self.name is not None and super().streams

    def fields(self) -> dict[str, Any] | None:
        return None if self.name is None else {"name": self.name, **(super().fields() or {})}

    def _name(self, text: str, position: int) -> tuple[int, bool]:
        opening = self._body.name_open.strip()
        start = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if opening and not text.startswith(opening, start):
            self.failed = not opening.startswith(text[start:])
            return position, not self.failed
        found = self._word(self._names, text, start + len(opening))
        if found is None:
            return position, not self.failed
        self.name, end = found
        self._kinds = kinds_of(self._reading.tools, self.name)
        self._state = self._between
        return end, self._reading.tentative

    def _head_at(self, text: str, position: int) -> Begun | bool:
        start = position + len(self._open)
        found = self._keys.whole.match(text, start)
        if found is None:
            return self._keys.begun.fullmatch(text, start) is not None and len(text) - start <= _LONGEST_WORD
        key = name_of_word(self._reading.escape.remove(found[1]))
        return key is not None and Begun(key, None, found.end())

    def _begin(self, begun: Begun) -> None:
        super()._begin(begun)
        self._first = True

    def _may_follow(self, text: str, end: int) -> bool | None:
        """A tag that is to stand on a line of its own does, if the one before it did."""
        if self._space.startswith(CDATA_END):
            return False
        if not self._lined:
            return True
        if text.startswith(self._lead, end):
            return self._last == "\n"
        return None if self._lead.startswith(text[end:]) else False

    def _word(self, word: _Word, text: str, start: int) -> tuple[str, int] | None:
        """Return a name or key and where what is behind it ends; None where it is not there yet, or never will be."""
        found = word.whole.match(text, start)
        if found is None:
            self.failed = word.begun.fullmatch(text, start) is None or len(text) - start > _LONGEST_WORD
            return None
        name = name_of_word(self._reading.escape.remove(found[1]))
        self.failed = name is None
        return None if name is None else (name, found.end())

    def _between(self, text: str, position: int) -> tuple[int, bool]:
        start = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if self._closes and text.startswith(self._closes, start):
            self.issues.append(("odd_call", f"a call without {self._end}"))
            self.done = True
            return start, False
        after, waits = super()._between(text, position)
        if self.done and self._body.end.strip() and text.startswith(self._end, after):
            after += len(self._end)
        return after, waits

    def _inside(self, text: str, position: int) -> tuple[int, bool]:
        """Read a value, without the white space that belongs to what stands around it."""
        if self._first:
            rest = text[position : position + len(self._lead)]
            if rest != self._lead and self._lead.startswith(rest):
                return position, True
            start = position + (len(self._lead) if rest == self._lead else 0)
            if self._body.cdata and may_be(CDATA, text, start):
                return position, True
            return position + self._opening(text, position), False
        return super()._inside(text, position)

    def end(self, held: str, stopped: bool) -> bool:
        return not (self._state == self._inside and self._first) and super().end(held, stopped)

    def _opening(self, text: str, position: int) -> int:
        """Return how much of the beginning of a value is of the tag before it."""
        self._first, self._lined = False, "\n" in self._lead and text.startswith(self._lead, position)
        size = len(self._lead) if text.startswith(self._lead, position) else 0
        section = self._body.cdata and text.startswith(CDATA, position + size)
        self._space = f"{CDATA_END}{self._before_close}" if section else self._before_close
        return size + (len(CDATA) if section else 0)

    def _piece(self, piece: str) -> None:
        super()._piece(piece[self._opening(piece, 0) :] if self._first else piece)

    def _to_keep(self, piece: str) -> int:
        """Return how much of the end waits; white space that may belong to the closing does, too."""
        return max(overlap(piece, self._space), super()._to_keep(piece))

    def _close_value(self, mended: bool = False) -> None:
        self._kept = self._kept.removesuffix(self._space)
        if mended and not self._kept.strip():
            self._kept = ""
        self._pass_on(self._kept)
        self._kept = ""
        word = "".join(self._value).strip()
        if (self._kind == "nullable" and word == _NOTHING) or (self._kind == "json" and word in _PYTHON_WORDS):
            self._value = [_PYTHON_WORDS[word]]
        super()._close_value()


def _word(word: str) -> str:
    return word if _PLAIN_WORD.fullmatch(word) else without_angles(json_string(word))


def name_of_word(word: str) -> str | None:
    """Return the name or key that is written so; None if it is none."""
    return name_of_line(word) if word.startswith('"') else word


def _spelled(kinds: Any, key: str, value: str) -> str:
    kind = kinds.get(key, "either")
    return argument_text(_shown(value, kind), kind)


def _shown(value: str, kind: Kind) -> str:
    """Return a value as its text. The string that would be read as null is written in quotes."""
    shown = shown_text(value, kind)
    return value if kind == "nullable" and shown == _NOTHING else shown


# What calls share that are tags of another kind.
TagReader = _TagMachine
word_of = _word
word_before = _word_before


class AddressedCall(TagCall):
    """A call as tags, its name first of all. `name_close`: what stands between that and the name in the first tag;
    `name_again`: what stands behind it there."""

    def __init__(
        self, key_open: str, value_open: str, value_close: str, *, name_close: str, name_again: str, end: str = ""
    ) -> None:
        super().__init__(key_open, value_open, value_close, name_close=name_close, end=end)
        self.name_again = name_again

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the name twice, and tags for each member."""
        self._of(item.name).write(item, out)

    def prefill(self, name: str | None, protect: Any, number: int) -> str:
        """Return the name, up to where the model decides."""
        return super().prefill(name, protect, number) if name is None else self._of(name).prefill(name, protect, number)

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _AddressedReader(self, reading)

    def grammar(self, call: CallRules) -> Node:
        """Return the name twice, and tags for each parameter of the schema."""
        return self._of(call.name).grammar(call)

    def _of(self, name: str) -> TagCall:
        """Return the shape of the calls of one tool, whose name is a part of the first tag."""
        close = f"{self.name_close}{word_of(name)}{self.name_again}"
        return TagCall(self.key_open, self.value_open, self.value_close, name_close=close, end=self.end)


class _AddressedReader(TagReader):
    """Reads the name twice. The first one counts: it is where the message goes."""

    def __init__(self, body: AddressedCall, reading: Reading) -> None:
        super().__init__(body, reading)
        self._addressee: str | None = None
        self._second_name = word_before((body.name_again.strip(),), True)

    def _name(self, text: str, position: int) -> tuple[int, bool]:
        end, waits = super()._name(text, position)
        if not (waits or self.failed):
            self._state, self._addressee, self.name = self._second, self.name, None
        return end, waits

    def _second(self, text: str, position: int) -> tuple[int, bool]:
        found = self._word(self._second_name, text, position)
        if found is None:
            return position, not self.failed
        if found[0] != self._addressee and self._reading.strict:
            self.issues.append((ODD_CALL, f"the first tag says another name: {found[0]}"))
        self.name, self._state = self._addressee, self._between
        return found[1], False
