"""Owns log probabilities: a token with its own and those of others in its place, and reading the forms servers have.

| form | of |
| --- | --- |
| a list of `id`, `token`, `bytes`, `logprob`, `top_logprobs` | llama.cpp; in `content`, its `/v1/completions`, too |
| lists side by side: `tokens`, `token_logprobs`, `top_logprobs` | OpenAI's text completions, vLLM, SGLang |

Quirks: llama.cpp calls a token what it sends with it. So one whose text is held back, because a stop may follow, is
empty, and the next one has the text of both; of a character in several tokens only the last is told, as all of it.
Others write U+FFFD for a part of a character, or `bytes:\\xe2\\x80`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

LEAST = -9999.0
"""The log probability of a token of which a server says none: OpenAI's word for very unlikely."""


class Candidate(Struct, frozen=True, gc=False):
    """A token that might have been. `bytes`: None where nobody knows them, for a part of a character."""

    token: str
    bytes: list[int] | None
    logprob: float


class TokenLogprob(Candidate, frozen=True, gc=False):
    """A token that is, and the likeliest ones in its place."""

    top_logprobs: list[Candidate] = []


def data_of(token: Candidate) -> bytes:
    """The bytes of a token; where they are not known, those of the text that stands for it."""
    return token.token.encode("utf-8", "replace") if token.bytes is None else bytes(token.bytes)


# Reading.


class _Entry(Struct, gc=False):
    id: int | None = None
    token: str = ""
    bytes: list[int] | None = None
    logprob: float | None = None
    top_logprobs: list[_Entry] | None = None


class _Lists(Struct, gc=False):
    content: list[_Entry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


_read = msgspec.json.Decoder(list[_Entry] | _Lists).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TokenReader:
    """Reads the tokens of one answer, piece by piece, each with at most `top` others."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._known: dict[int, _Entry] = {}  # what tokens are when nothing is held back
        self._held: list[_Entry] = []

    def read(self, data: Raw) -> list[TokenLogprob]:
        """The tokens that a piece says, in any form; none if it has another one."""
        try:
            said = _read(data)
        except _UNREADABLE:
            return []
        if isinstance(said, _Lists):
            if said.content is None:
                return self._lists(said)
            said = said.content
        return [token for entry in said for token in self._entry(entry)]

    def _entry(self, entry: _Entry) -> list[TokenLogprob]:
        """What is certain with one more token. Those whose text never comes are not of the answer."""
        for other in entry.top_logprobs or ():
            if other.id is not None:
                self._known[other.id] = other
        self._held.append(entry)
        sent = _bytes_of(entry)
        if not sent:
            return []
        held, self._held = self._held, []
        if len(held) == 1 and entry.id is not None and entry.id not in self._known:
            self._known[entry.id] = entry
        known = [self._known.get(-1 if one.id is None else one.id) for one in held]
        shares = _shares([None if one is None else _bytes_of(one) for one in known], sent)
        return [self._token(*of) for of in zip(held, known, shares, strict=True)]

    def _token(self, entry: _Entry, known: _Entry | None, data: bytes) -> TokenLogprob:
        named = next((one for one in (entry, known) if one is not None and _bytes_of(one) == data), None)
        said = data.decode("utf-8", "replace") if named is None else named.token
        others = [_candidate(one) for one in (entry.top_logprobs or [])[: self._top]]
        return TokenLogprob(said, list(data), _number(entry.logprob), others)

    def _lists(self, said: _Lists) -> list[TokenLogprob]:
        tokens, numbers, tops = said.tokens or [], said.token_logprobs or [], said.top_logprobs or []
        numbers = [*numbers, *[None] * (len(tokens) - len(numbers))]
        found = []
        for at, (token, number) in enumerate(zip(tokens, numbers, strict=False)):
            others = (tops[at] if at < len(tops) else None) or {}
            found.append(TokenLogprob(token, _bytes_in(token), _number(number), self._likeliest(others)))
        return found

    def _likeliest(self, others: Mapping[str, float | None]) -> list[Candidate]:
        found = [Candidate(token, _bytes_in(token), _number(number)) for token, number in others.items()]
        return sorted(found, key=lambda one: -one.logprob)[: self._top]


def _shares(known: Sequence[bytes | None], sent: bytes) -> list[bytes]:
    """The text of tokens that was sent at once, divided among them. What nobody can divide is the last one's."""
    shares = [b""] * len(known)
    first, last = 0, len(known)
    while first < last and (whole := known[first]) and sent.startswith(whole):
        shares[first], sent, first = whole, sent[len(whole) :], first + 1
    while first < last - 1 and (whole := known[last - 1]) and sent.endswith(whole):
        last -= 1
        shares[last], sent = whole, sent[: -len(whole)]
    if first < last:
        whole = known[last - 1]
        cut = last == len(known) and bool(sent) and whole is not None and whole.startswith(sent)  # by a stop
        shares[last - 1] = whole if cut and whole is not None else sent
    return shares


def _bytes_of(entry: _Entry) -> bytes:
    if entry.bytes is None:
        return entry.token.encode("utf-8", "replace")
    return bytes([one & 0xFF for one in entry.bytes])


def _candidate(entry: _Entry) -> Candidate:
    return Candidate(entry.token, list(_bytes_of(entry)), _number(entry.logprob))


_WRITTEN = re.compile(r"bytes:((?:\\x[0-9a-fA-F]{2})+)")


def _bytes_in(token: str) -> list[int] | None:
    """The bytes of a token that is told as text; None for a part of a character."""
    written = _WRITTEN.fullmatch(token)
    if written is not None:
        return list(bytes.fromhex(written[1].replace("\\x", "")))
    return None if "\ufffd" in token else list(token.encode("utf-8", "replace"))


def _number(said: float | None) -> float:
    return LEAST if said is None else said


__all__ = ["LEAST", "Candidate", "TokenLogprob", "TokenReader", "data_of"]
