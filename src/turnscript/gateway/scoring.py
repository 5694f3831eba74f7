"""Owns the log probabilities of an answer: which of the tokens that a model's server told lie in the answer's texts.

A server tells tokens of all that is generated; its parser says of each event what it has read. So the two are laid side
by side, byte by byte. A token belongs to the part that has the first of its bytes that are content: what it holds of a
tag, or of a stop string behind the text, does not matter. Tokens of tags, thoughts and calls are told to nobody.

What a server says and what it sends may differ a little: a tag that it does not show, a part of a character as U+FFFD.
So a token is looked for a little further on, and left out where it is not found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from turnscript.core.conversation import Assistant, Request, Response, ToolCall, text_content
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart, ScoredDelta
from turnscript.core.logprobs import TokenLogprob, data_of
from turnscript.core.losses import Loss

_WINDOW = 64  # bytes of text that no token may explain
_AHEAD = 8  # tokens that no text may show
_CUT = "\ufffd".encode()
_ASCII = 0x80


class _Placed(NamedTuple):
    """A token and its bytes among those of a piece: it may have begun before, and may go on behind. `token` is None
    for what no model wrote."""

    start: int
    end: int
    token: TokenLogprob | None

    def moved(self, by: int) -> _Placed:
        return _Placed(self.start + by, self.end + by, self.token)


class Scoring:
    """A stage that puts tokens on the deltas of texts. `add` them before their text is fed.

    `found`: the tokens of the texts so far, by the place of the text among the parts of the answer.
    """

    def __init__(self) -> None:
        self.found: dict[int, list[TokenLogprob]] = {}
        self._line = _Line()
        self._texts: dict[int, list[TokenLogprob]] = {}  # the texts that go on
        self._parts = 0
        self._undecided: list[_Placed] = []  # begun in a tag, and not over
        self._in_call = False
        self._tail: list[str] = []  # what was read since the last content: tags, and a call, which may yet be a text
        self._tail_size = 0  # in bytes
        self._tail_tokens: list[_Placed] = []

    def add(self, tokens: Sequence[TokenLogprob]) -> None:
        """Tokens that the server has told."""
        self._line.add([(token, data_of(token)) for token in tokens])

    def insert(self, text: str) -> None:
        """A text that no model wrote comes next."""
        self._line.add([(None, text.encode())])

    def resume(self) -> None:
        """What has no place yet is generated once more."""
        self._line = _Line()
        self._undecided = []
        self._cut_tail()

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, those of texts with their tokens."""
        return [self._delta(event) if isinstance(event, PartDelta) else self._other(event) for event in events]

    def _other(self, event: Event) -> Event:
        if isinstance(event, PartStart):
            self._in_call = isinstance(event.part, ToolCall)
            if isinstance(event.part, Assistant):
                self._texts[event.index] = []
        self._pass(event.raw, content=False)
        if isinstance(event, PartEnd):
            self._end(event)
        return event

    def _end(self, event: PartEnd) -> None:
        tokens = self._texts.pop(event.index, None)
        self._in_call = False
        if event.part is None:
            return
        if isinstance(event.part, ToolCall):
            self._cut_tail()
        if tokens:
            self.found[self._parts] = tokens
        self._parts += 1

    def _pass(self, raw: str, *, content: bool) -> None:
        """What is no text, or not yet."""
        placed = self._line.take(raw.encode("utf-8", "replace"))
        self._among(raw, placed, [(0, _size(raw))] if content else [])
        self._tail_tokens += [one.moved(self._tail_size) for one in placed]
        self._tail.append(raw)
        self._tail_size += _size(raw)

    def _cut_tail(self) -> None:
        self._tail, self._tail_size, self._tail_tokens = [], 0, list(self._undecided)

    def _delta(self, event: PartDelta) -> Event:
        if self._in_call:
            self._pass(event.raw, content=True)
            return event
        raw, placed = event.raw, self._line.take(event.raw.encode("utf-8", "replace"))
        puts_back = bool(self._tail) and len(event.text) > len(raw)  # what was no call is text
        if puts_back:
            placed = [*self._tail_tokens, *(one.moved(self._tail_size) for one in placed)]
            raw, self._undecided = "".join([*self._tail, raw]), []
        spans = [(0, _size(raw))] if raw == event.text else _spans(raw, event.text)
        tokens = self._among(raw, placed, spans)
        self._cut_tail()
        if puts_back and spans:
            self._keep_tail(raw, placed, spans[-1][1])
        if not tokens or event.index not in self._texts:
            return event
        self._texts[event.index] += tokens
        return ScoredDelta(event.index, event.text, event.raw, tokens)

    def _keep_tail(self, raw: str, placed: list[_Placed], end: int) -> None:
        """What is put back may come in several pieces: what lies behind this one is for the next."""
        rest = raw.encode("utf-8", "replace")[end:].decode("utf-8", "replace")
        if rest:
            self._tail, self._tail_size = [rest], _size(rest)
            self._tail_tokens = [one.moved(-end) for one in placed if one.start >= end]

    def _among(self, raw: str, placed: list[_Placed], spans: list[tuple[int, int]]) -> list[TokenLogprob]:
        """The tokens that are decided: they have a byte in the content of a piece, and had none before."""
        size, at = _size(raw), 0
        found: list[TokenLogprob] = []
        undecided: list[_Placed] = []
        for one in [*self._undecided, *placed]:
            while at < len(spans) and spans[at][1] <= one.start:
                at += 1
            if at < len(spans) and spans[at][0] < max(one.end, one.start + 1):
                if one.token is not None:
                    found.append(one.token)
            elif one.end > size:
                undecided.append(one.moved(-size))
        self._undecided = undecided
        return found


class _Line:
    """The tokens whose text has not come yet, in order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[TokenLogprob | None, bytes]] = deque()
        self._owed = 0  # bytes that the last token goes on behind what has come

    def add(self, tokens: list[tuple[TokenLogprob | None, bytes]]) -> None:
        """More tokens."""
        self._waiting += tokens

    def take(self, raw: bytes) -> list[_Placed]:
        """The tokens that begin in the next bytes."""
        at = min(self._owed, len(raw))
        self._owed -= at
        found: list[_Placed] = []
        while at < len(raw) and self._waiting:
            passed, start, size = self._next(raw, at)
            if start < 0:
                break
            before = [self._waiting.popleft() for _ in range(passed)]
            found += [_Placed(start, start, empty) for empty, data in before if not data]
            token, _ = self._waiting.popleft()
            at = start + size
            found.append(_Placed(start, at, token))
        self._owed += max(0, at - len(raw))
        return found

    def _next(self, raw: bytes, at: int) -> tuple[int, int, int]:
        """The next token: how many before it are passed over, where it begins, and its size."""
        near = [data for _, data in islice(self._waiting, _AHEAD)]
        for passed, data in enumerate(near):
            if passed and not data:  # the first bytes of a character: they are before any other token
                continue
            if _CUT not in data and raw.startswith(data[: len(raw) - at], at):
                return passed, at, len(data)
            if not passed and (size := _cut_size(raw, at, data)) is not None:
                return 0, at, size
        first = near[0].lstrip(b" ")  # a server may leave out the space before its first word
        if first and raw.startswith(first[: len(raw) - at], at):
            return 0, at, len(first)
        for passed, data in enumerate(near):
            if passed and not data:
                continue
            start = _found(raw, at, data, straddling=not passed)
            if start >= 0:
                return passed, start, len(data)
        return 0, -1, 0


def _found(raw: bytes, at: int, data: bytes, *, straddling: bool) -> int:
    """Where a token begins a little further on, -1 if nowhere. `straddling`: it may go on behind what has come."""
    start = raw.find(data, at, at + _WINDOW + len(data))
    if start >= 0 or not straddling:
        return start
    tails = range(max(at, len(raw) - len(data)), min(len(raw), at + _WINDOW))
    return next((tail for tail in tails if data.startswith(raw[tail:])), -1)


def _cut_size(raw: bytes, at: int, data: bytes) -> int | None:
    """How many bytes a token with a part of a character takes, as far as that is certain; None where it is not here."""
    before, cut, behind = data.decode("utf-8", "replace").encode().partition(_CUT)
    end = at + len(before)
    if not cut or not raw.startswith(before[: len(raw) - at], at):
        return None
    if end >= len(raw):
        return len(before)
    if raw[end] < _ASCII:
        return None
    behind = behind.rpartition(_CUT)[2]
    found = raw.find(behind, end + 1, end + _WINDOW) if behind else -1
    return len(before) if found < 0 else found + len(behind) - at


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _spans(raw: str, text: str) -> list[tuple[int, int]]:
    """The bytes of what was read that are the text: its end, or all but the escapes."""
    if raw.endswith(text):
        before = _size(raw[: len(raw) - len(text)])
        return [(before, before + _size(text))] if text else []
    spans: list[tuple[int, int]] = []
    end, left = _size(raw), len(text)
    for one in reversed(raw):
        start = end - _size(one)
        if left and text[left - 1] == one:
            left -= 1
            last = spans.pop()[1] if spans and spans[-1][0] == end else end
            spans.append((start, last))
        end = start
    return spans[::-1] if not left else [(0, _size(raw))]


def unscored(request: Request, response: Response, scoring: Scoring | None) -> list[Loss]:
    """A loss where a server that was asked for log probabilities told none of a text."""
    if scoring is None or scoring.found:
        return []
    if not any(isinstance(item, Assistant) and text_content(item.content) for item in response.items):
        return []
    path = request.paths.get("logprobs", "$.logprobs")
    return [Loss(path, "dropped", "the model's server told no log probabilities")]


__all__ = ["Scoring", "unscored"]
