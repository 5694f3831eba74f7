"""Owns calls that a model writes in no tag of its format: how they may look, and telling a run of them from a text.

A run is one call or several, each bare or in an enclosure (a code fence, `<tools>`), with a label before it or none, as
JSON or in Python's spelling. Whether it is one shows only behind it, so nobody sees any of it before that.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection

import msgspec

from turnscript.core.json_text import is_object

FENCE = "```"
ENCLOSURES = {
    FENCE: FENCE,
    "<tools>": "</tools>",
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<function_call>": "</function_call>",
    "<json>": "</json>",
}
"""What stands around calls, by how it begins."""
LABELS = ("**Tool Call:**", "**Tool call:**", "**Tool Calls:**", "Tool Call:", "Tool call:")
"""What stands before them on a line of its own."""
OPENINGS = (*ENCLOSURES, *LABELS, "{", "[")
_LANGUAGES = frozenset({"", "json", "jsonc", "javascript", "python", "xml", "tool_call", "tool_calls", "tool_code"})
_NAMES = ("name", "tool_name", "function", "tool")
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_BESIDE = frozenset({"id", "type", "index", "tool_call_id"})
_LISTS = "tool_calls"
_CLOSINGS = tuple(closing for closing in ENCLOSURES.values() if closing != FENCE)

_BLANK = re.compile(r"[ \t\r\n;,]*")
_FENCE = re.compile(r"```([A-Za-z_]{0,16})[ \t]*(\r?\n)?")
_WORDS = "|".join((*_NAMES, *_ARGUMENTS, *_BESIDE, _LISTS))
_HEAD = re.compile(rf"[\[{{][ \t\r\n\[{{]*[\"'](?:{_WORDS})[\"'][ \t\r\n]*:")
_BEGUN = re.compile(r"[\[{][ \t\r\n\[{]*(?:[\"'](?:\w*(?:[\"'][ \t\r\n]*)?)?)?")
_LONGEST_HEAD = 512
_STRUCTURE = re.compile(r"[\"'{}\[\]]")
_CLOSES = {"{": "}", "[": "]"}


class LooseCall(msgspec.Struct):
    """A call of a run: its name, its arguments as JSON text, and its id, if it says one."""

    name: str
    arguments: str
    id: str | None = None


class Found(msgspec.Struct):
    """Calls that stand in one value, and where in the run that ends."""

    calls: list[LooseCall]
    end: int


class LooseRun:
    """Reads a run as it comes. `failed`: it is none, from where on reading stopped. `over`: it may end there.

    `strays`: a fence may be closed that was never opened.
    """

    def __init__(self, offered: Collection[str], *, strays: bool = True) -> None:
        self.found: list[Found] = []
        self.failed = False
        self.over = False
        self.unknown = ""  # the name of a call of a tool that nobody offers
        self._offered = offered
        self._strays = strays
        self._inside: list[str] = []  # closings of enclosures
        self._length = 0
        self._value: list[str] = []
        self._head = False  # whether the value is known to begin like a call
        self._open: list[str] = []  # structures of the value
        self._quote = ""
        self._escaped = False
        self._fresh = True  # whether what was opened last holds nothing yet
        self._stray = False  # whether that is a fence which may as well be the closing of one that was never opened

    def feed(self, text: str, start: int, closing: bool) -> int:
        """Read from `start`; returns where reading stopped. The rest waits, unless the run has failed or is over."""
        position = start
        self.over = False
        while position < len(text) and not self.failed and not self.over:
            after = (
                self._in_value(text, position) if self._value or self._open else self._between(text, position, closing)
            )
            if after == position:
                break
            self._length += after - position
            position = after
        return position

    def ends(self, cut: bool) -> bool:
        """Tell whether the run is one where the text is over.

        `cut`: by the limit, so no structure is closed for it, and calls before one that is `unfinished` are some.
        """
        if self._value and not cut and self._head and not self._quote:
            self._take("".join(self._value).rstrip() + "".join(_CLOSES[one] for one in reversed(self._open)))
            self._value = []
        return bool(self.found) and not self.failed and (cut or not self.unfinished)

    @property
    def unfinished(self) -> bool:
        """Whether another call has begun, or an enclosure of one."""
        return bool(self._value) or (self._fresh and not self._stray)

    def _between(self, text: str, position: int, closing: bool) -> int:
        """Read what stands outside values: what opens or closes an enclosure, a label, or the beginning of a value."""
        blank = _BLANK.match(text, position).end()  # type: ignore[union-attr]
        if blank > position:
            return blank
        rest = text[position : position + 32]
        if not self._fresh:
            closings = (self._inside[-1],) if self._inside else _CLOSINGS
            known = next((one for one in closings if rest.startswith(one)), "")
            if known:
                self._inside = self._inside[:-1]
                return position + len(known)
            if not closing and any(one.startswith(rest) for one in closings):
                return position
        if rest[0] in "{[":
            self._stray = False
            self._value, self._head = [rest[0]], False
            self._open = [rest[0]]
            return position + 1
        if rest.startswith(FENCE):
            return self._fence(text, position, closing)
        known = next((one for one in (*ENCLOSURES, *LABELS) if rest.startswith(one)), "")
        if known:
            self._fresh, self._stray = True, False
            if known in ENCLOSURES:
                self._inside.append(ENCLOSURES[known])
            return position + len(known)
        if not closing and any(one.startswith(rest) for one in OPENINGS):
            return position
        self.over = True
        self.failed = self._fresh and not self._stray
        return position

    def _fence(self, text: str, position: int, closing: bool) -> int:
        match = _FENCE.match(text, position)
        assert match is not None
        if match.end() == len(text) and not closing and match[2] is None:
            return position
        closes = self._fresh and self._inside[-1:] == [FENCE]  # what looked like an opening was the end of other code
        if closes or match[1].lower() not in _LANGUAGES:
            self.failed = True
            return position
        self._stray = self._strays and not self._fresh and not self._inside and not match[1]
        self._fresh = True
        self._inside.append(FENCE)
        return match.end()

    def _in_value(self, text: str, position: int) -> int:
        if not self._head:
            return self._begin(text, position)
        start = position
        while position < len(text) and self._open:
            if self._escaped:
                self._escaped, position = False, position + 1
            elif self._quote:
                position = self._string(text, position)
            else:
                position = self._structure(text, position)
        self._value.append(text[start:position])
        if not self._open:
            value, self._value = "".join(self._value), []
            self._take(value)
            if not self.failed:
                self.found[-1].end = self._length + position - start
        return position

    def _begin(self, text: str, position: int) -> int:
        """Read the first words of a value: those of a call, or it is none."""
        known = "".join(self._value)
        said = known + text[position : position + _LONGEST_HEAD - len(known)]
        match = _HEAD.match(said)
        begun = match or _BEGUN.match(said)
        assert begun is not None
        after = position + begun.end() - len(known)
        if match is None and (begun.end() < len(said) or len(said) >= _LONGEST_HEAD):
            self.failed = True
            return after
        if match is not None:
            self._head = True
            self._open = [one for one in match[0] if one in "{["]
        self._value.append(text[position:after])
        return after

    def _string(self, text: str, position: int) -> int:
        ends = [at for sign in ("\\", self._quote) if (at := text.find(sign, position)) >= 0]
        if not ends:
            return len(text)
        end = min(ends)
        if text[end] == "\\":
            self._escaped = True
        else:
            self._quote = ""
        return end + 1

    def _structure(self, text: str, position: int) -> int:
        match = _STRUCTURE.search(text, position)
        if match is None:
            return len(text)
        sign = match[0]
        if sign in "\"'":
            self._quote = sign
        elif sign in "{[":
            self._open.append(sign)
        else:
            self._open.pop()
        return match.end()

    def _take(self, value: str) -> None:
        """Take a whole value: calls of offered tools, or the run is none."""
        calls = calls_of(value)
        unknown = next((call.name for call in calls or () if call.name not in self._offered), "")
        if not calls or unknown:
            self.failed, self.unknown = True, unknown
            return
        self.found.append(Found(calls, self._length))
        self._fresh = False


def calls_of(text: str) -> list[LooseCall] | None:
    """Return the calls that a value says, as JSON or as Python writes it; None if it says anything else."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = _from_python(text)
    return _listed(text) if text else None


def _from_python(text: str) -> str:
    """Return a value in Python's spelling as JSON; empty if it is none."""
    try:
        return json.dumps(ast.literal_eval(text.strip()), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ""


def _listed(text: str) -> list[LooseCall] | None:
    if text.lstrip().startswith("["):
        try:
            values = msgspec.json.decode(text, type=list[msgspec.Raw])
        except msgspec.DecodeError:
            return None
        calls = [_one(bytes(value).decode()) for value in values]
        return [call for call in calls if call is not None] if calls and None not in calls else None
    call = _one(text)
    if call is not None:
        return [call]
    members = _members(text)
    return _listed(members[_LISTS]) if members.keys() == {_LISTS} and members[_LISTS][:1] == "[" else None


def _members(text: str) -> dict[str, str]:
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}
    return {key: bytes(value).decode() for key, value in members.items()}


def _one(text: str) -> LooseCall | None:
    """Return one call: a name, its arguments, and nothing else that is none of a call's."""
    members = _members(text)
    if members.get("function", "").startswith("{") and members.keys() - _BESIDE == {"function"}:
        inner = _members(members["function"])
        members = {**{key: members[key] for key in members if key in _BESIDE}, **inner}
    names = [key for key in _NAMES if key in members]
    arguments = [key for key in _ARGUMENTS if key in members]
    if len(names) != 1 or len(arguments) != 1 or members.keys() - _BESIDE != {names[0], arguments[0]}:
        return None
    name, said = _text(members[names[0]]), members[arguments[0]]
    if said.startswith('"'):
        said = _text(said) or ""
    said = "{}" if said in ("null", "") else said
    if not name or not is_object(said):
        return None
    return LooseCall(name, said, _text(members.get("id", "null")))


def _text(value: str) -> str | None:
    """Return the text of a JSON string; None if it is none, or one that no UTF-8 can be."""
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return None


__all__ = ["ENCLOSURES", "FENCE", "LABELS", "OPENINGS", "Found", "LooseCall", "LooseRun", "calls_of"]
