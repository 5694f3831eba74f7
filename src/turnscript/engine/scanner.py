"""Owns finding literals in text that comes in pieces, and the only hold-back: what may yet become a literal waits.

Theory of operation. `find` looks for the first literal, the longest one at its place. `hold` says from where on the end
of the text is the beginning of a literal or of an escape: so much waits for the next piece, and never more than the
longest literal. Everything before it is final. A match that starts after such a place waits too, so that whatever the
pieces are, the result is that of the whole text. `certain` tells at one look what the two come to, where that is
nothing but text: whichever stands first, a literal or a beginning of one at the end.

Here is also where an opening tag with attributes ends, and how an answer is read that is a text and nothing else, such
as the middle of a fill.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from sys import maxsize
from typing import Generic, TypeVar

from turnscript.core.conversation import Assistant, Issue, Text
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.finish_reasons import meaning
from turnscript.engine.escape import Escape

Action = TypeVar("Action")
WIDEST = 32  # white space between two segments is looked over no further than this; more is text
_LONG, _STEP = 64, 4096  # in a text of more characters than this, needles are looked for first; and in such steps
_SLASHES = 500  # an escape with more backslashes than this is not looked for while streaming
Look = tuple[str, str, str, Callable[[str], object]]
"""How to tell at one look that a piece is content: it holds none of three characters, or a search finds nothing in it.

A character is found in an eighth of the time of a pattern. An empty one is in every text: then the search decides.
"""

_DEEPEST = 64  # beginnings of at most so many characters are known; what begins like a longer one is compared with it


def overlap(text: str, behind: str) -> int:
    """Return how much of the beginning of `behind` stands at the end of a text already."""
    return next((size for size in range(min(len(text), len(behind)), 0, -1) if text.endswith(behind[:size])), 0)


class Scanner(Generic[Action]):
    """The literals of one state of a parser, each with what it means, and the escape of the text between them.

    `runs`: those that end in a run of one character, and stand at the end of a longer one: what is before is content.
    """

    def __init__(
        self, literals: Mapping[str, Action], escape: Escape | None = None, runs: frozenset[str] = frozenset()
    ) -> None:
        self.actions = dict(literals)
        rules = escape.rules if escape else ()
        ordered = sorted(self.actions, key=len, reverse=True)
        self._long = tuple(literal for literal in ordered if len(literal) > _DEEPEST + 1)
        short = ordered[len(self._long) :]
        # One literal alone is found in linear time, whatever it is; one of several, in its length for each character.
        self._each = [re.compile(re.escape(literal)).search for literal in self._long]
        self._short = re.compile(_any_of(short, runs) or r"(?!)").search
        self._search = self._earliest if self._long else self._short
        begun = [*ordered, *(f"{lead}\\" for lead, _ in rules)]
        self.trigger = re.compile(_beginnings(begun)).search
        self.look = look_for({literal[0] for literal in begun}, self.trigger)
        self._begun = _begun(begun) | runs
        self._lead = re.compile(rf"({'|'.join(re.escape(lead) for lead, _ in rules)})\\{{1,{_SLASHES}}}").match
        self._names = {lead: {"", *_begun(names)} for lead, names in rules}
        leads = max((len(lead) for lead, _ in rules), default=0)
        self._name = max((len(name) for _, names in rules for name in names), default=0)
        escapes = re.compile(_escapes(rules) or r"(?!)")
        self._escaped, self._escapes = escapes.search, escapes.finditer
        longest, escaped = max(map(len, ordered), default=0), leads + self._name + 1
        self._window, self._reach = max(longest, escaped), max(min(longest, _DEEPEST), escaped)
        # White space and one character more: how a literal begins. Each of those has a needle in it.
        first = {literal[: len(literal) - len(literal.lstrip()) + 1] for literal in ordered}
        needles = _by_first([one for one in first if not any(other in one for other in first - {one})])
        # Of several that begin alike, that character is found first: nothing is found faster.
        self._needles = [
            (those[0] if len(those) == 1 else sign, re.compile(_any_of(those)).search) for sign, those in needles
        ]
        self._before = max([1, *map(len, first)]) - 1
        # Beginnings in which nothing whole stands, so that no more needs to be known of a text that ends with one.
        self._clear = {one for one in self._begun if self._short(one) is None and self._escaped(one) is None}
        unfinished = "\0".join(one[:-1] for one in begun)
        self._nested = bool(runs) or any(one.lstrip() in unfinished for one in ordered)

    def find(self, text: str, start: int, closing: bool) -> re.Match[str] | None:
        """Return the first literal from `start` on that is certain: no longer one can begin before or at it."""
        match = self._search(text, self._first(text, start) if len(text) - start > _LONG else start)
        return match if match is None or closing or self._is_certain(text, start, match) else None

    def _earliest(self, text: str, start: int = 0, end: int = maxsize) -> re.Match[str] | None:
        """Return the first literal, the longest at its place, where some are long."""
        found = [search(text, start, end) for search in (*self._each, self._short)]
        return min((match for match in found if match is not None), key=re.Match.start, default=None)

    def _first(self, text: str, start: int) -> int:
        """Return from where on a literal may stand in a long text. A string is found much faster than a pattern."""
        # Step by step: a needle that is far away, or nowhere, is not looked for as far as that for each literal.
        for at in range(start, len(text), _STEP):
            end = at + _STEP + self._before
            found = [
                match.start()
                for sign, search in self._needles
                if (place := text.find(sign, at, end)) >= 0 and (match := search(text, place, end)) is not None
            ]
            if found:
                return max(start, min(found) - self._before)
        return len(text)

    def near(self, text: str, start: int, last: int, closing: bool) -> re.Match[str] | None:
        """Return the first literal that begins between `start` and `last`, if that is certain."""
        match = self._search(text, start, last + self._window)
        if match is None or match.start() > last:
            return None
        return match if closing or self._is_certain(text, start, match) else None

    def _is_certain(self, text: str, start: int, match: re.Match[str]) -> bool:
        """Return whether no longer literal, nor an escape, can begin before or at a match any more."""
        if match.end() + self._window <= len(text) or not (self._nested or "\\" in text):
            return True
        return match.start() < self.hold(text, start)

    def certain(self, text: str) -> int:
        """Return how much of a text is content, where the rest may become a literal; -1: not so easy to tell."""
        first, second, third, _ = self.look
        if first not in text and second not in text and third not in text:
            return len(text)
        sign = self.trigger(text)
        if sign is None:
            return len(text)
        if self._long:
            return -1
        at = sign.start()
        if text[at:] in self._clear:
            return at
        whole = self._short(text, at)
        if "\\" in text and (escape := self._escaped(text, at)) is not None:
            whole = escape if whole is None or escape.start() < whole.start() else whole
        held = self._held(text, max(at, len(text) - self._reach - _SLASHES))
        return held if whole is None or held < whole.start() else -1

    def hold(self, text: str, start: int) -> int:
        """Return from where on `text` may be the beginning of something; its length if nothing is."""
        window, (first, second, third, _) = self._reach, self.look
        end = text[-window:]
        if "\\" in end:
            window += _SLASHES
        elif first not in end and second not in end and third not in end and not self._long:
            return len(text)
        held = self._held(text, max(start, len(text) - window))
        held = min(held, self._hold_long(text, start)) if self._long else held
        if held < len(text) and "\\" in text[max(held - self._name, start) : held + 1]:
            return self.before_escape(text, max(held - self._reach - _SLASHES, start), held)
        return held

    def _held(self, text: str, start: int) -> int:
        """Return where the end of a text begins that is a beginning of a literal, or of an escape; else its length."""
        sign = self.trigger(text, start)
        while sign is not None:
            at = sign.start()
            if text[at:] in self._begun:
                return at
            lead = self._lead(text, at) if self._names else None
            if lead is not None and text[lead.end() :] in self._names[lead[1]]:
                return at
            sign = self.trigger(text, at + 1)
        return len(text)

    def before_escape(self, text: str, start: int, held: int) -> int:
        """Return from where on something may begin, not inside a whole escape: a stop may begin with a tag's end."""
        return next((one.start() for one in self._escapes(text, start) if one.start() < held < one.end()), held)

    def _hold_long(self, text: str, start: int) -> int:
        """Return from where on `text` is a beginning that is too long for the set; its length if there is none."""
        held = len(text)
        for literal in self._long:
            begun = literal[: _DEEPEST + 1]
            at = text.find(begun, max(start, len(text) - len(literal) + 1))
            while at >= 0 and not literal.startswith(text[at:]):
                at = text.find(begun, at + 1)
            held = at if 0 <= at < held else held
        return held


def look_for(signs: Iterable[str], search: Callable[[str], object]) -> Look:
    """Return the look for what has one of the signs in it, each a character; `search` finds that."""
    known = sorted(set(signs))
    if not 0 < len(known) <= 3:
        return "", "", "", search
    return known[0], known[len(known) // 2], known[-1], search


def beginning_of(steps: Sequence[str]) -> str:
    """Return a pattern for the beginning of what all the steps match one after the other."""
    pattern = ""
    for step in reversed(steps):
        pattern = f"(?:{step}{pattern}|)"
    return pattern


def _by_first(literals: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return literals by their first characters."""
    found: dict[str, list[str]] = {}
    for literal in literals:
        found.setdefault(literal[:1], []).append(literal)
    return list(found.items())


def _any_of(literals: Iterable[str], runs: frozenset[str] = frozenset()) -> str:
    """Return a pattern for literals. What they begin with is looked at once, and not for each that begins so."""
    behind = {one: f"(?!{re.escape(one[-1])})" for one in runs}
    return "|".join(
        f"{re.escape(sign)}(?:{'|'.join(re.escape(one[1:]) + behind.get(one, '') for one in those)})"
        for sign, those in _by_first(literals)
    )


def _beginnings(literals: Iterable[str]) -> str:
    """Return a pattern for what begins like a literal: its first two characters, or the first at the end of a text."""
    branches = []
    for first, those in sorted(_by_first(literals)):
        seconds = {one[1:2] for one in those}
        rest = "" if "" in seconds else f"(?:[{''.join(map(re.escape, sorted(seconds)))}]|\\Z)"
        branches.append(re.escape(first) + rest)
    return "|".join(branches) or "(?!)"


def _escapes(rules: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """Return a pattern for whole escapes."""
    return "|".join(
        rf"{re.escape(lead)}\\{{1,{_SLASHES}}}(?:{'|'.join(map(re.escape, names))})" for lead, names in rules
    )


def _begun(literals: Iterable[str]) -> set[str]:
    """Return every proper beginning of the literals but the empty one, and those too long for a set."""
    return {one[:size] for one in literals for size in range(1, min(len(one) - 1, _DEEPEST) + 1)}


class Unescaper:
    """Removes escapes from text that comes in pieces."""

    __slots__ = ("_escape", "_look", "_scanner", "held")

    def __init__(self, escape: Escape) -> None:
        self._escape = escape
        self._scanner: Scanner[None] = scanner_of(escape)
        self._look = self._scanner.look
        self.held = ""  # what waits

    def feed(self, text: str) -> str:
        """Return as much of the text as is certain."""
        first, second, third, _ = self._look
        if not self.held and first not in text and second not in text and third not in text:
            return text
        text = self.held + text
        end = self._scanner.hold(text, 0)
        self.held = text[end:]
        return self._escape.remove(text[:end])

    def certain(self, text: str) -> int:
        """Return how much of a piece stays as it is, where the rest may become an escape; -1: not so easy to tell."""
        if self.held:
            return -1
        first, second, third, _ = self._look
        if first not in text and second not in text and third not in text:
            return len(text)
        return self._scanner.certain(text)

    def close(self) -> str:
        """Return what was held back."""
        if not self.held:
            return ""
        text, self.held = self.held, ""
        return self._escape.remove(text)


@lru_cache(maxsize=256)
def scanner_for(literals: tuple[str, ...]) -> Scanner[None]:
    """Return the scanner of literals that mean nothing but themselves; each call of an answer has the same ones."""
    return Scanner(dict.fromkeys(literals))


@lru_cache(maxsize=256)
def scanner_of(escape: Escape) -> Scanner[None]:
    """Return the scanner that looks for escapes only."""
    return Scanner({}, escape)


@lru_cache(maxsize=256)
def look_in_string(escape: Escape) -> Look:
    """Return the look for what makes a piece of a JSON string more than that: what may be its end, or begin an escape.

    Whether a quote ends the string can be told from the backslashes before it, unless the piece begins with those.
    """
    signs = sorted({lead[0] for lead, _ in escape.rules})
    begun, leads = _beginnings(f"{lead}\\" for lead, _ in escape.rules), "".join(map(re.escape, signs))
    lead, other = (f"[{leads}]", f"[^{leads}]") if leads else ("(?!)", ".")
    plain = rf'[^"\\{leads}]*+'  # a run of its own, because an alternative is tried anew for each character
    plain = rf"{plain}(?:\\{other}{plain})*+"
    odd = rf"(?:\\(?={lead})|(?!{begun}){lead}){plain}"  # what is rare
    more = re.compile(rf'\\*+{plain}(?:"|{begun}|{odd}(?>(?:{odd})*)(?:"|{begun}))', re.DOTALL).match
    return look_for(['"', *signs], more)


_QUOTED = re.compile(r'(?>(?:[^"\\\n]+|\\[^\n])*)')


class HeadEnd:
    """Finds the `core` of one opening tag (`>>`, `|>`): outside quotes, on the line on which the tag began."""

    def __init__(self, core: str) -> None:
        self._core = core
        self._outside = _outside(core)
        self._seen = 0  # how much of the tag cannot hold its end
        self._quoted = False  # whether a quote is open there

    def find(self, text: str, start: int) -> int:
        """Return where the core stands; the text's length if more must come, -1 if this is no such tag.

        `start` is where the tag's attributes begin. A later text has what an earlier one had, and more.
        """
        at = start + self._seen
        if self._quoted:
            at = self._behind_quote(text, at)
        if not self._quoted:
            at = self._outside.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith(self._core, at):
                return at
            if text.startswith('"', at):
                self._quoted = True
                at = self._behind_quote(text, at + 1)
        self._seen = at - start
        rest = text[at : at + len(self._core)]
        unfinished = rest == text[at:] and (rest == "\\" * len(rest) if self._quoted else self._core.startswith(rest))
        return len(text) if unfinished else -1

    def _behind_quote(self, text: str, at: int) -> int:
        """Return the place behind the quote that ends what is quoted; the end of the text where it does not end yet."""
        at = _QUOTED.match(text, at).end()  # type: ignore[union-attr]
        self._quoted = not text.startswith('"', at)
        return at if self._quoted else at + 1


@lru_cache(maxsize=64)
def _outside(core: str) -> re.Pattern[str]:
    """Return what may stand before the core: inside quotes all but a line end, and no quote that stays open."""
    first, rest = re.escape(core[0]), core[1:]
    ends = [re.escape(rest), *(rf"{re.escape(rest[:size])}\Z" for size in range(len(rest)))]  # whole, or cut off
    no_end = rf"|{first}(?!{'|'.join(ends)})" if rest else ""
    quoted = r'"(?>(?:[^"\\\n]+|\\[^\n])*)"'
    return re.compile(rf'(?>(?:[^"<>\n{first}]+|{quoted}{no_end})*)')


class TextParser:
    """The parser of a text. It ends at `stops`, the strings of the client, and at `ends`, which no client is told."""

    issues: Sequence[Issue] = ()
    """Nothing can be wrong with a text."""

    def __init__(self, stops: Sequence[str], ends: Sequence[str] = ()) -> None:
        self._client = frozenset(stops)
        self._scanner = Scanner({stop: stop for stop in (*ends, *stops) if stop})
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._told: list[str] = []
        self._met = ""
        self.client_stop: str | None = None
        self.ended = False

    def feed(self, text: str | bytes) -> list[Event]:
        """Take more text; returns what is certain. Bytes are UTF-8 and may be cut anywhere."""
        more = text if isinstance(text, str) else self._decoder.decode(text)
        return self._read(self._held + more, closing=False)

    def _read(self, text: str, *, closing: bool) -> list[Event]:
        if self.ended:
            return []
        found = self._scanner.find(text, 0, closing)
        if found is not None:
            self.ended, self._met, self._held = True, found[0], ""
            self.client_stop = self._met if self._met in self._client else None
            return self._tell(text[: found.start()])
        end = len(text) if closing else self._scanner.hold(text, 0)
        self._held = text[end:]
        return self._tell(text[:end])

    def _tell(self, text: str) -> list[Event]:
        events: list[Event] = [] if self._told or not text else [PartStart(0, Assistant())]
        if text:
            self._told.append(text)
            events.append(PartDelta(0, text, text))
        return events

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """End the text."""
        events = self._read(self._held + self._decoder.decode(b"", True), closing=True)
        if self._told:
            events.append(PartEnd(0, Assistant(content=[Text(text="".join(self._told))])))
        reason = "stop" if self._met else meaning(finish_reason or "stop")
        return [*events, MessageEnd(reason, self.client_stop, None, [], self._met)]
