"""Owns reading an answer that is JSON: its events, or the whole of it, cut anywhere, as pieces of text.

Most events of a stream are the one before with another text. So one that tells a text and nothing else is kept in
mind by the bytes around that text; the next one with the same bytes there is read without being decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from msgspec.structs import replace

from turnscript.backends.backend import UNREADABLE, Piece
from turnscript.backends.shared.server_errors import SHOWN, told_as_error
from turnscript.core.errors import UpstreamError
from turnscript.core.finish_reasons import is_cut
from turnscript.core.split_characters import Halves
from turnscript.core.sse import LIMIT, SseReader

_CUT = "\ufffd"
_LONGEST_CUT = 3  # of the four bytes that a character has at most
_LONG_EVENT = 8192
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_QUOTE, _ESCAPE, _LF, _CR = b'"\\\n\r'  # as numbers, which are found many times as fast in bytes as bytes are
_BLANK = b"\n\n"
_FIELD, _QUOTED = b"data:", b'"'
UNSAID = ": it does not say why it ended"
"""What an error says of an answer without a finish reason."""
_SHORT = 16  # no event of a text has so few bytes


_MOST_LEARNT = 4
"""How often a stream is looked at for what stays the same in its events, without finding that anything does."""


def _is_text(piece: Piece) -> bool:
    """Whether a piece tells a text and nothing else."""
    return piece == Piece(piece.text)


class JsonReader(ABC):
    """Reads an answer whose events, or whose whole, are JSON objects; what one object means, the subclass says.

    A server may stream though it was not asked to, and the other way round: the first character tells. Events of one
    `data` line, which nearly all are, are cut here; from the first other one on, `SseReader` does it.

    A character that the limit cut in two arrives as U+FFFD, once or for each byte. So these wait for what follows, and
    are dropped where `length` does. Half of one as JSON escapes it is joined with the other half, or is U+FFFD.

    Most events are the one before with another text. `member`: the key of that text, where an object with no other
    member of the name, and nothing else to tell, may be taken for the last one by the bytes around it; `unless`: what
    must not be there for that.
    """

    member: ClassVar[bytes] = b""
    unless: ClassVar[bytes] = b""

    # How each begins: there is one for every answer, and most of this stays as it is.
    finished = False
    over = False
    _around: tuple[bytes, bytes, bytes] | None = None
    """What stands before and behind the text of such an event, and between two of them."""
    _learns = _MOST_LEARNT
    _held = b""
    _whole: bytes | bytearray | None = None
    _sse: SseReader | None = None
    _started = False
    _cut = ""
    _halves: Halves | None = None
    _error: UpstreamError | None = None

    @property
    def stray(self) -> str:
        """The beginning of the first line that is no part of a stream of events; all but that was read."""
        said = self._sse.stray if self._sse is not None else ""
        return "" if said.startswith("event:") else said

    @abstractmethod
    def take(self, data: bytes) -> Piece | None:
        """What one object says, None if nothing. Raises UpstreamError, and msgspec.DecodeError for what is none."""

    def feed(self, data: bytes) -> list[Piece]:
        """More bytes; returns what is certain now. What was read before a fault is returned before it is raised."""
        if self._error is not None:
            raise self._error
        pieces: list[Piece] = []
        try:
            self._feed(data, pieces)
        except UpstreamError as error:
            self._error = error
            if not pieces:
                raise
        return pieces

    def close(self) -> list[Piece]:
        """The bytes are over. Raises UpstreamError unless the answer was whole."""
        if self._error is not None:
            raise self._error
        pieces: list[Piece] = []
        if self._whole is not None:
            self._take(bytes(self._whole), pieces)
            if not pieces:
                raise self._no_answer(bytes(self._whole), "it says nothing")
            self.over = True
        else:
            self._slowly(self._held, pieces)
            if not self.over:
                self._events(self._the_sse().close(), pieces)
        if not self.finished:
            raise self._broken_off(UNSAID if self.over else "")
        if self._cut or (self._sse is not None and self._sse.half):
            pieces.append(Piece(self._cut or _CUT))
        return pieces

    def _feed(self, data: bytes, pieces: list[Piece]) -> None:
        if not self._started:
            if data[:5] == _FIELD and not self._held:
                self._started = True
            else:
                data = self._start(data)
        if self._whole is not None:
            if not self._whole:
                self._whole = data  # most come at once
            else:
                self._whole = bytearray(self._whole) if type(self._whole) is bytes else self._whole
                self._whole += data
            if len(self._whole) > LIMIT:
                raise UpstreamError(f"the server sent an answer of more than {LIMIT} bytes; it was given up")
        elif self._sse is not None:
            self._events(self._sse.feed(data), pieces)
        elif data:
            self._quickly(data, pieces)

    def _start(self, data: bytes) -> bytes:
        """What is to be read, once it is known what it is."""
        if data[:1] == b"{" and not self._held:
            self._started, self._whole = True, b""
            return data
        data = (self._held + data).removeprefix(_BOM).lstrip(b" \t\r\n")
        self._held = b""
        if not data or _BOM.startswith(data):
            self._held = data
            return b""
        self._started = True
        if data[:1] in (b"{", b"["):
            self._whole = b""
        return data

    def _quickly(self, data: bytes, pieces: list[Piece]) -> None:
        data = self._held + data if self._held else data
        if self._learns:
            data = self._alike(data, pieces)
            if not data:
                self._held = data
                return
        lines = data.split(b"\n")
        single = len(lines) % 2 == 1 and not any(lines[1::2]) and _CR not in data  # each is one line
        *events, held = lines[::2] if single else data.split(_BLANK)
        take = self._take
        for number, event in enumerate(events):
            if event[:5] == _FIELD and (single or (b"\n" not in event and b"\r" not in event)):
                take(event[5:], pieces)
            elif event[:1] != b":" or b"\n" in event or b"\r" in event:  # no comment of one line, which says nothing
                self._slowly(b"\n\n".join([*events[number:], held]), pieces)
                return
        self._held = held
        if len(held) > _LONG_EVENT or _CR in held:
            self._slowly(held, pieces)

    def _alike(self, data: bytes, pieces: list[Piece]) -> bytes:
        """Read the events at the beginning that are the one before with other texts; returns what is left to read."""
        if self._around is None:
            end = data.find(_LF)
            first = data[5:end]
            if end < 0 or data[:5] != _FIELD or data[end : end + 2] != _BLANK or _CR in first:
                return data
            self._take(first, pieces)
            data = data[end + 2 :]
            if self._around is None:
                return data
        before, behind, between = self._around
        if self._cut or self.over or not data.startswith(before):
            return data
        texts: list[bytes] = []
        find, goes_on, step = data.find, data.startswith, len(between)
        at = len(before)
        end = find(_QUOTE, at)
        while goes_on(between, end):
            texts.append(data[at:end])
            at = end + step
            end = find(_QUOTE, at)
        if goes_on(behind, end):
            texts.append(data[at:end])
            at = end + len(behind)
        else:
            at -= len(before)
        # Where one of the texts may be another one than it looks, each event is read by itself.
        try:
            said = _QUOTED.join(texts).decode()
        except UnicodeDecodeError:
            return data
        if not said.isprintable() or "\\" in said or _CUT in said:
            return data
        found = list(map(Piece, filter(None, said.split('"'))))
        if found:
            self._learns = _MOST_LEARNT
            pieces += found
        return data[at:]

    def _slowly(self, data: bytes, pieces: list[Piece]) -> None:
        self._held = b""
        self._events(self._the_sse().feed(data), pieces)

    def _the_sse(self) -> SseReader:
        if self._sse is None:
            self._sse = SseReader()
        return self._sse

    def _events(self, events: list[tuple[str, str]], pieces: list[Piece]) -> None:
        for name, data in events:
            if name == "error" and '"error"' not in data:
                raise told_as_error(data)
            self._take(data.encode(), pieces)

    def _take(self, data: bytes, pieces: list[Piece]) -> None:
        if self.over:
            return
        if len(data) < _SHORT and data.strip() == _DONE:
            if not self.finished:
                raise self._broken_off(UNSAID)
            self.over = True
            return
        try:
            piece = self.take(data)
        except UNREADABLE as error:
            piece = self._of_halves(data, error)
        if piece is None:
            return
        if piece.finish is not None:
            self.finished = True
        if self._cut or piece.text[-1:] == _CUT:
            piece = self._mended(piece)
        pieces.append(piece)
        if self._learns and self.member and piece.finish is None:
            self._learn(data, piece)

    def _learn(self, data: bytes, piece: Piece) -> None:
        """Keep what stands around the text of an event that tells nothing else, where it is sure what that is: without
        a backslash every quote begins or ends a string, so what follows the only such key is its value."""
        around = self._around
        if around is not None and data.startswith(around[0][5:]) and data.endswith(around[1][:-2]):
            return  # it is such an event, with a text that has escapes
        self._learns -= 1
        before, _, behind = data.partition(self.member)
        if not behind or self.member in behind or _ESCAPE in data or self.unless in data or not _is_text(piece):
            return
        gap, text, rest = (*behind.split(_QUOTED, 2), b"", b"")[:3]
        if gap.strip() == b":" and text == piece.text.encode():
            start, end = b"".join((b"data:", before, self.member, gap, b'"')), b"".join((b'"', rest, _BLANK))
            self._around = start, end, end + start

    def _of_halves(self, data: bytes, error: Exception) -> Piece | None:
        """What an object says that no decoder takes. Half of a character is U+FFFD in it until the other half comes."""
        try:
            piece = self.take(self._joined(data.decode()).encode())
        except UNREADABLE:
            raise self._no_answer(data, str(error)) from None
        if self._halves is None or not self._halves.waiting:
            return piece
        return Piece(_CUT) if piece is None else replace(piece, text=piece.text + _CUT)

    def _joined(self, text: str) -> str:
        halves = self._halves = self._halves or Halves()
        if halves.waiting and self._cut:  # else it has been told as U+FFFD
            joined = halves.joined(text)
            if joined != text:
                self._cut = ""
                return joined
        halves.waiting = ""
        return halves.joined(text)

    def _mended(self, piece: Piece) -> Piece:
        """The piece without half a character at its end, or with the one that waited."""
        text, self._cut = self._cut + piece.text, ""
        if self.finished and not is_cut(piece.finish):
            return replace(piece, text=text)
        rest = text.rstrip(_CUT)
        rest = text[: max(len(rest), len(text) - _LONGEST_CUT)]
        if not self.finished:
            self._cut = text[len(rest) :]
        return replace(piece, text=rest)

    def _no_answer(self, data: bytes, why: str) -> UpstreamError:
        said = data[:SHOWN].decode("utf-8", "replace")
        message = f"the server sent what is no completion ({why}): {said[:200]!r}"
        return UpstreamError(message, body=said, retryable=True)

    def _broken_off(self, why: str = "") -> UpstreamError:
        said = self._sse.stray if self._sse is not None else ""
        shown = f"; it sent {said!r}" if said else ""
        message = f"the model server's answer broke off before its end{why}{shown}"
        return UpstreamError(message, body=said, retryable=True)
