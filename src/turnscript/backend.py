"""Owns the contract of a backend: what is asked of a model that continues text, on its wire and back, without I/O.

A backend is a subclass of `Backend` in `turnscript/backends/`: the wire of one kind of server. It makes HTTP calls as
values and reads the bytes of the answers; who sends them, how often and for how long is the gateway's business. So a
backend is tested with bytes, and any transport can carry it.

Four rules that every backend keeps (spec backends 5):
- Only members that its server knows are sent, `max_tokens` and `stop` always: defaults differ and some cut texts short.
- What comes back is text as it was generated, cut anywhere, stop strings in or out: who reads it looks for the stops.
- A stream that breaks off in the middle, and an error inside it, is an `UpstreamError`, never an end.
- What the server says of itself (counts, why it stopped, its cache) is passed on, or None where it does not say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from turnscript.conversation import Usage
from turnscript.errors import UpstreamError
from turnscript.halves import Halves
from turnscript.jsontext import Json
from turnscript.listed import read_models
from turnscript.logprobs import TokenLogprob, TokenReader
from turnscript.refused import SHOWN, refusal, told_as_error
from turnscript.sse import LIMIT, SseReader


class Completion(Struct, frozen=True, kw_only=True, gc=False):
    """A text to go on from, and how. `sampling`: settings by the names of `conversation.Settings`, `top_k` included.

    `prompt`: text, or token ids where the gateway has made them. `suffix`: the text behind the hole, where the server
    itself fills in. `visible`: control tokens whose text must be in the answer, `slot`: the place in the server that
    holds this conversation, `state`: a saved state's name, `grammar`: in the server's notation, `owner`: whose it is.
    """

    prompt: str | Sequence[int]
    max_tokens: int
    stops: Sequence[str] = ()
    stream: bool = True
    model: str | None = None
    sampling: dict[str, Any] = {}
    suffix: str | None = None
    visible: Sequence[str] = ()
    slot: int | None = None
    state: str | None = None
    grammar: str | None = None
    owner: str | None = None
    echo: bool = False


class HttpCall(Struct, frozen=True, gc=False):
    """An HTTP request as a value. `path` is relative to the backend's base URL, and `/..` leads above its last part;
    `body` is JSON, None for a GET."""

    method: str
    path: str
    body: bytes | None = None


class Piece(Struct, frozen=True, gc=False):
    """A piece of an answer.

    `finish`: `stop` or `length`, on the last piece or None where the server never says. `stop`: the string that it
    says it stopped at, which may or may not be in the text. `usage`: counts, `Usage.cached` those read from a cache.
    `logprobs`: the tokens that it told with this piece, where it was asked for them; their text may come later.
    """

    text: str = ""
    finish: str | None = None
    stop: str | None = None
    usage: Usage | None = None
    slot: int | None = None
    logprobs: list[TokenLogprob] | None = None


_MOST_TOKENS = 1 << 53


def counted(input_: int, output: int, cached: int = 0) -> Usage | None:
    """Token counts as a server tells them; None where one of them is none, because there cannot be so few or so many.
    A server has read no more from its cache than the prompt has, if it says how much that is."""
    if not (0 <= input_ <= _MOST_TOKENS and 0 <= output <= _MOST_TOKENS):
        return None
    return Usage(input_, output, max(0, min(cached, input_ or _MOST_TOKENS)))


class Facts(Struct, frozen=True, gc=False):
    """What a server tells of itself, None where it does not: tokens a conversation may have, places for conversations,
    the model's name or file, what its generations end with, whether it puts a token before each text, who it says that
    its models are from (for many servers, the name of their own kind), what the model was called where it came from,
    and its chat template."""

    context: int | None = None
    slots: int | None = None
    model: str | None = None
    end_token: str | None = None
    bos_token: str | None = None
    adds_bos: bool | None = None
    build: str | None = None
    owner: str | None = None
    root: str | None = None
    template: str | None = None


class AnswerReader(Protocol):
    """Reads an answer, streamed or whole: bytes cut anywhere, as pieces. Raises UpstreamError for what is none.

    `finished`: why the answer ended is known; a connection that breaks now costs nothing. `over`: and nothing follows.
    `reasons`: whether this server says in its streams why they end; one that ends without is broken off then.
    `stray`: the beginning of the first line that was passed over because it is no part of a stream of events.
    """

    reasons: bool
    finished: bool
    over: bool

    @property
    def stray(self) -> str:
        """As the class says it."""
        ...

    def feed(self, data: bytes) -> list[Piece]:
        """More bytes; returns what is certain now."""
        ...

    def close(self) -> list[Piece]:
        """The answer's bytes are over. One that ends in the middle is an UpstreamError."""
        ...


class Backend(ABC):
    """The wire of one kind of server. Subclasses set the class attributes and write the methods.

    `default_path`: what a base URL without a path stands for (`/v1`). `fills`: whether it takes a `suffix`. `pins`:
    whether it takes a `slot`. `names_stops`: whether it says which stop string it met. `grammars`: the notations that
    it takes (`gbnf`, `kbnf`, `lark`), best first, and `owned` those of servers by whose they are. `scores`: the member
    that asks for log probabilities, where it tells them. `generic`: a server that tells nothing of itself is taken for
    one of this kind. `settings`: the sampling settings that all servers of this kind know.

    One deployment may differ from the others of its kind: `extra` are members for every request, in place of those that
    are made; `drop` are members that this server does not know; `also` are settings that it does.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    default_path: ClassVar[str] = ""
    fills: ClassVar[bool] = False
    pins: ClassVar[bool] = False
    names_stops: ClassVar[bool] = False
    grammars: ClassVar[tuple[str, ...]] = ()
    owned: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    scores: ClassVar[str] = ""
    generic: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, *, extra: Mapping[str, Any] | None = None, drop: Collection[str] = (), also: Collection[str] = ()
    ) -> None:
        self.extra = dict(extra or {})
        self.drop = frozenset(drop)
        self.also = frozenset(also)

    def configured(
        self, *, extra: Mapping[str, Any] | None = None, drop: Collection[str] = (), also: Collection[str] = ()
    ) -> Self:
        """The same wire for a deployment that differs."""
        return type(self)(extra=extra, drop=drop, also=also)

    @abstractmethod
    def call(self, ask: Completion) -> HttpCall:
        """The request for a completion. Raises Unsupported for what the server cannot be asked."""

    @abstractmethod
    def reader(self, ask: Completion) -> AnswerReader:
        """A reader for the body of the answer, which a status below 300 came with."""

    def why_call(self, ask: Completion) -> HttpCall | None:
        """The request whose refusal says why a stream was over before it began: for one token, whole. None for an
        answer that was to be whole. Some servers send the head of a stream before they look at the prompt, and what
        they find wrong then is in their logs alone."""
        return self.call(replace(ask, stream=False, max_tokens=1)) if ask.stream else None

    def read_error(self, status: int, body: bytes) -> UpstreamError:
        """What a status of 300 and more means. `overflow` is told by words that `faults` knows."""
        return refusal(status, body)

    def health_call(self) -> HttpCall:
        """The cheapest request whose status tells whether the server can answer."""
        return HttpCall("GET", "/models")

    def is_well(self, status: int) -> bool:
        """Whether a server that answers `health_call` with this status can answer.

        A list of models may fail where completions do not: `transformers serve` looks for it in a cache that a model
        from a folder never made. What stands before a server that is gone says 502, 503 or 504.
        """
        return status <= 500

    def facts_calls(self) -> Sequence[HttpCall]:
        """The requests whose answers `read_facts` reads: the list of models, which nearly every server has. The second
        one, if any, is sent where the answer to the first says that there is a tokenizer to ask."""
        return (HttpCall("GET", "/models"),)

    def read_facts(self, bodies: Sequence[bytes]) -> Facts:
        """What the answers to `facts_calls` say; one that did not come is empty. What is not understood is None.

        Of a list of models it is the first one that counts; some servers say how much it can read.
        """
        try:
            models = read_models(bodies[0])
        except UNREADABLE:
            return Facts()
        if not models:
            return Facts()
        model = models[0]
        slot = at_least_one(model.meta.n_ctx) if model.meta is not None else None
        context = at_least_one(model.max_model_len) or slot
        root = model.root if model.root != model.id else None
        return Facts(context=context, model=model.id, owner=model.owned_by, root=root)

    def counts(self, facts: Facts) -> bool:
        """Whether a server that tells this of itself has a tokenizer to ask."""
        return self.tokens_call("") is not None

    def tokens_call(self, text: str, *, plain: bool = False) -> HttpCall | None:
        """The request for a text's tokens, None where it cannot be asked for them: as of a prompt, with what the server
        puts before it; with `plain` as of content, in which the text of a control token is text."""
        return None

    def read_tokens(self, body: bytes) -> list[int]:
        """The ids that an answer to `tokens_call` gives. Raises UpstreamError where there are none."""
        raise UpstreamError(f"{self.name} has no tokenizer to ask")

    # What the subclasses share.

    def sampling(self, ask: Completion) -> dict[str, Any]:
        """The settings that are said and that this server knows."""
        known = (*self.settings, *self.also) if self.also else self.settings
        return {key: ask.sampling[key] for key in known if ask.sampling.get(key) is not None}

    @property
    def tells_logprobs(self) -> bool:
        """Whether a server of this deployment tells the log probabilities of its tokens."""
        return bool(self.scores) and self.scores not in self.drop

    def post(self, path: str, members: dict[str, Any]) -> HttpCall:
        """A request with a body of these members, and of what the deployment wants differently."""
        if self.extra:
            members |= self.extra
        for name in self.drop:
            members.pop(name, None)
        return HttpCall("POST", path, encode(members))


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are not what it expects."""


def at_least_one(number: int | None) -> int | None:
    """A number of something that there is; servers that do not know it say 0 or -1, too."""
    return number if number is not None and number > 0 else None


def encode(members: dict[str, Any]) -> bytes:
    """JSON bytes. A lone surrogate, which a client's JSON may have brought, becomes U+FFFD: servers refuse it."""
    try:
        return msgspec.json.encode(members)
    except UnicodeEncodeError:
        return msgspec.json.encode(_mended(members))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _mended(one) for key, one in value.items()}
    return list(map(_mended, value)) if isinstance(value, list | tuple) else value


def limit_of(ask: Completion) -> int:
    """The most tokens to write: at least one, because servers read 0 as one, as no limit or as a fault."""
    return max(1, ask.max_tokens)


def stops_of(ask: Completion) -> list[str]:
    """The stop strings: none is empty, because that would stop at once."""
    return [stop for stop in ask.stops if stop]


def token_reader(ask: Completion) -> TokenReader | None:
    """What reads the tokens of an answer, None where nobody asked for them."""
    return TokenReader(ask.sampling.get("top_logprobs") or 0) if ask.sampling.get("logprobs") is True else None


def given(value: Json | UnsetType) -> Json | None:
    """A member's value, None where it is missing or null."""
    return None if value is UNSET or bytes(value) == b"null" else value


_CUT = "\ufffd"
_LONGEST_CUT = 3  # of the four bytes that a character has at most
_LONG_EVENT = 8192
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_SHORT = 16  # no event of a text has so few bytes


class JsonReader(ABC):
    """Reads an answer whose events, or whose whole, are JSON objects; what one object means, the subclass says.

    A server may stream though it was not asked to, and the other way round: the first character tells. Events of one
    `data` line, which nearly all are, are cut here; from the first other one on, `SseReader` does it.

    A character that the limit cut in two arrives as U+FFFD, once or for each byte. So these wait for what follows, and
    are dropped where `length` does. Half of one as JSON escapes it is joined with the other half, or is U+FFFD.
    """

    def __init__(self) -> None:
        self.reasons = False
        self.finished = False
        self.over = False
        self._held = b""
        self._whole: bytearray | None = None
        self._sse: SseReader | None = None
        self._started = False
        self._cut = ""
        self._halves = Halves()
        self._error: UpstreamError | None = None

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
            self.finished = self.over = True
        else:
            self._slowly(self._held, pieces)
            if not self.over:
                self._events(self._the_sse().close(), pieces)
        if not self.finished:
            raise self._broken_off()
        if self._cut or (self._sse is not None and self._sse.half):
            pieces.append(Piece(self._cut or _CUT))
        return pieces

    def _feed(self, data: bytes, pieces: list[Piece]) -> None:
        if not self._started:
            data = self._start(data)
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > LIMIT:
                raise UpstreamError(f"the server sent an answer of more than {LIMIT} bytes; it was given up")
        elif self._sse is not None:
            self._events(self._sse.feed(data), pieces)
        elif data:
            self._quickly(data, pieces)

    def _start(self, data: bytes) -> bytes:
        """What is to be read, once it is known what it is."""
        data = (self._held + data).removeprefix(_BOM).lstrip(b" \t\r\n")
        self._held = b""
        if not data or _BOM.startswith(data):
            self._held = data
            return b""
        self._started = True
        if data[:1] in (b"{", b"["):
            self._whole = bytearray()
        return data

    def _quickly(self, data: bytes, pieces: list[Piece]) -> None:
        data = self._held + data if self._held else data
        lines = data.split(b"\n")
        single = len(lines) % 2 == 1 and not any(lines[1::2]) and b"\r" not in data  # each is one line
        *events, held = lines[::2] if single else data.split(b"\n\n")
        take = self._take
        for number, event in enumerate(events):
            if event[:5] == b"data:" and (single or (b"\n" not in event and b"\r" not in event)):
                take(event[5:], pieces)
            elif event[:1] != b":" or b"\n" in event or b"\r" in event:  # no comment of one line, which says nothing
                self._slowly(b"\n\n".join([*events[number:], held]), pieces)
                return
        self._held = held
        if len(held) > _LONG_EVENT or b"\r" in held:
            self._slowly(held, pieces)

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
            if self.reasons and not self.finished:
                raise self._broken_off()
            self.finished = self.over = True
            return
        try:
            piece = self.take(data)
        except UNREADABLE as error:
            piece = self._of_halves(data, error)
        if piece is None:
            return
        if piece.finish is not None:
            self.reasons = self.finished = True
        if self._cut or piece.text[-1:] == _CUT:
            piece = self._mended(piece)
        pieces.append(piece)

    def _of_halves(self, data: bytes, error: Exception) -> Piece | None:
        """What an object says that no decoder takes. Half of a character is U+FFFD in it until the other half comes."""
        try:
            piece = self.take(self._joined(data.decode()).encode())
        except UNREADABLE:
            raise self._no_answer(data, str(error)) from None
        if not self._halves.waiting:
            return piece
        return Piece(_CUT) if piece is None else replace(piece, text=piece.text + _CUT)

    def _joined(self, text: str) -> str:
        halves = self._halves
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
        if piece.finish != "length" and self.finished:
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

    def _broken_off(self) -> UpstreamError:
        said = self._sse.stray if self._sse is not None else ""
        shown = f"; it sent {said!r}" if said else ""
        return UpstreamError(f"the model server's answer broke off before its end{shown}", body=said, retryable=True)
