"""Owns the contract of a backend: what is asked of a model that continues text, on its wire and back, without I/O.

A backend is a subclass of `Backend` in `turnscript/backends/`: the wire of one kind of server. It makes HTTP calls as
values and reads the bytes of the answers; who sends them, how often and for how long is the gateway's business. So a
backend is tested with bytes, and any transport can carry it.

Four rules that every backend keeps (spec backends 5):
- Only members that its server knows are sent, `max_tokens` and `stop` always: defaults differ and some cut texts short.
- What comes back is text as it was generated, cut anywhere, stop strings in or out: who reads it looks for the stops.
- An answer that breaks off in the middle, an error inside it, and an end that the server gives no reason for, is an
  `UpstreamError`, never an end.
- What the server says of itself (counts, why it stopped, its cache) is passed on, or None where it does not say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from turnscript.backends.shared.listed_models import read_models
from turnscript.backends.shared.server_errors import refusal
from turnscript.core.conversation import Usage
from turnscript.core.errors import Unsupported, UpstreamError
from turnscript.core.events import Event
from turnscript.core.json_text import Json
from turnscript.core.logprobs import TokenLogprob, TokenReader
from turnscript.core.losses import Loss

MARKER = "<__media__>"
"""This mark stands for a picture or a sound in the prompt of a server that names none."""


class Completion(Struct, frozen=True, kw_only=True, gc=False):
    """A text to go on from, and how. `sampling`: settings by the names of `conversation.Settings`, `top_k` included.

    `prompt`: text, or token ids where the gateway has made them. `suffix`: the text behind the hole, where the server
    itself fills in. `visible`: control tokens whose text must be in the answer, `slot`: the place in the server that
    holds this conversation, `state`: a saved state's name, `grammar`: in the server's notation, `owner`: whose it is.
    `media`: the base64 of each picture and sound by the word that stands for it in the prompt, `marker`: what the
    server wants there. `before`: ids of tokens that stand before a prompt in text, in place of what the server puts
    there. `api`: the `Api` of a server with one, for which the prompt is the body of a request, and `headers` what that
    is told beside it.
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
    schema: Json | None = None
    echo: bool = False
    media: Mapping[str, str] = {}
    marker: str = MARKER
    before: Sequence[int] = ()
    api: Any = None
    headers: Mapping[str, str] = {}


class HttpCall(Struct, frozen=True, gc=False):
    """An HTTP request as a value. `path` is relative to the backend's base URL, and `/..` leads above its last part;
    `body` is JSON, None for a GET. `headers`: those of this request alone."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}


class Piece(Struct, frozen=True, gc=False):
    """A piece of an answer.

    `finish`: `stop`, `length` or `content_filter`, or a word of the server's that nobody knows; on the last piece.
    `stop`: the string that it says it stopped at, which may or may not be in the text.
    `usage`: counts, `Usage.cached` those read from a cache.
    `logprobs`: the tokens that it told with this piece, where it was asked for them; their text may come later.
    """

    text: str = ""
    finish: str | None = None
    stop: str | None = None
    usage: Usage | None = None
    slot: int | None = None
    logprobs: list[TokenLogprob] | None = None


class EventPiece(Piece, frozen=True, gc=False):
    """A piece of an answer in a chat API: what it says is known already."""

    events: Sequence[Event] = ()


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
    its chat template, the one that it has for tools besides, the path of its file on the server's machine, whether its
    model sees pictures and hears sounds, the mark that stands for one in a prompt, the name to ask for its model by,
    where requests may need one and there is no other, and what it samples with where a request does not say."""

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
    tools_template: str | None = None
    file: str | None = None
    sees: bool = False
    hears: bool = False
    marker: str = MARKER
    asked_as: str | None = None
    sampling: Mapping[str, float] = {}


SlotAction = Literal["save", "restore"]


class State(Struct, frozen=True, gc=False):
    """A state that a server has loaded, from which a model may begin instead of from nothing."""

    id: str
    name: str = ""


class AnswerReader(Protocol):
    """Reads an answer, streamed or whole: bytes cut anywhere, as pieces. Raises UpstreamError for what is none.

    `finished`: why the answer ended is known; a connection that breaks now costs nothing. `over`: and nothing follows.
    `stray`: the beginning of the first line that was passed over because it is no part of a stream of events.
    """

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
    whether it takes a `slot`, `keeps`: whether it writes what a slot holds to a file. `begins`: whether it takes a
    `state`. `names_stops`: whether it says which stop string it met. `grammars`: the notations that it takes (`gbnf`,
    `kbnf`, `lark`), best first, and `owned` those of servers by whose they are. `scores`: the member that asks for log
    probabilities, where it tells them. `generic`: a server that tells nothing of itself is taken for one of this kind.
    `settings`: the sampling settings that all servers of this kind know. `prepends`: whether it takes ids of tokens
    before a text, where others need a prompt of ids alone; `no_ids`: why it takes none at all. `sections`: those of its
    own configuration that ours has none of, by which such a file is known. `endpoint`: the one of the chat API
    that a server has which takes no prompt; empty for all others. `signs`: it may refuse a thought that it has not
    proved itself. `key_header`: the header that its key is in, where that is not `Authorization: Bearer`, and `headers`
    those that each request has. `passes`: headers by which clients of its API say what they want.

    One deployment may differ from the others of its kind: `extra` are members for every request, in place of those that
    are made; `drop` are members that this server does not know; `also` are settings that it does.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    default_path: ClassVar[str] = ""
    fills: ClassVar[bool] = False
    pins: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    begins: ClassVar[bool] = False
    names_stops: ClassVar[bool] = False
    grammars: ClassVar[tuple[str, ...]] = ()
    owned: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    scores: ClassVar[str] = ""
    generic: ClassVar[bool] = False
    prepends: ClassVar[bool] = False
    no_ids: ClassVar[str] = ""
    settings: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()
    endpoint: ClassVar[str] = ""
    signs: ClassVar[bool] = False
    key_header: ClassVar[str] = ""
    headers: ClassVar[Mapping[str, str]] = {}
    passes: ClassVar[tuple[str, ...]] = ()

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

    def body(self, members: dict[str, Any], *, stream: bool) -> str:
        """The body of a request in its chat API, with what this kind of server and this deployment want beside it."""
        raise Unsupported("a chat API", self.title)

    def left_of(self, schema: Json, losses: Sequence[Loss]) -> list[Loss] | None:
        """Return which of a grammar's losses are left where the server is sent the schema instead. None where it is not
        to be sent, because the grammar holds as much of it, or more."""
        return None

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
        alone = model.id if (self.generic or self.endpoint) and len(models) == 1 else None
        return Facts(context=context, model=model.id, owner=model.owned_by, root=root, asked_as=alone)

    def slot_call(self, action: SlotAction, slot: int, file: str) -> HttpCall:
        """The request to write what a slot holds to a file of that name, or to read it back. Raises Unsupported."""
        raise Unsupported("files of slots", self.title)

    def states_calls(self) -> Sequence[HttpCall]:
        """The requests of which one is answered with the states that the server has, in the order to try them."""
        return ()

    def read_states(self, body: bytes) -> list[State] | None:
        """The states that an answer to one of `states_calls` names; None where it is no such answer."""
        return None

    def counts(self, facts: Facts) -> bool:
        """Whether a server that tells this of itself has a tokenizer to ask."""
        return self.tokens_call("") is not None

    def tokens_call(self, text: str, *, plain: bool = False) -> HttpCall | None:
        """The request for a text's tokens, None where it cannot be asked for them: as of a prompt, with what the server
        puts before it; with `plain` as of content, in which the text of a control token is text."""
        return None

    def bare_tokens_call(self, text: str) -> HttpCall | None:
        """The request for the tokens of a prompt without what the server puts before it; None where it cannot be asked
        for them."""
        return None

    def read_tokens(self, body: bytes) -> list[int]:
        """The ids that an answer to `tokens_call` gives. Raises UpstreamError where there are none."""
        raise UpstreamError(f"{self.name} has no tokenizer to ask")

    def count_call(self, body: str) -> HttpCall | None:
        """The request for the number of tokens in a request's body, None where it cannot be asked for that."""
        return None

    def read_count(self, body: bytes) -> int | None:
        """The number that an answer to `count_call` gives, None where there is none."""
        return None

    def written_call(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> HttpCall | None:
        """The request for the prompt that the server makes of messages of a chat, None where it cannot be asked."""
        return None

    def text_call(self, body: bytes) -> HttpCall | None:
        """Return the request for the text of a prompt, where an answer to `written_call` has its tokens; else None."""
        return None

    def read_written(self, body: bytes) -> str:
        """The prompt that an answer to `written_call` gives. Raises UpstreamError where there is none."""
        raise UpstreamError(f"{self.name} tells no prompts")

    # What the subclasses share.

    def sampling(self, ask: Completion) -> dict[str, Any]:
        """The settings that are said and that this server knows."""
        if not ask.sampling:
            return {}
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
