"""Owns what a server of an API does beside answering: who its clients are, and its bodies for counts, lists and stores.

The gateway knows no API by name. What differs between them stands here as data and small functions, which each API
fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from turnscript.core.conversation import Item, Opaque, Request, Tool
from turnscript.core.errors import InvalidRequest, TurnscriptError


def unasked(path: str, what: str) -> InvalidRequest:
    """The error for a request without anything that could be answered: there is no `what`, which belongs at `path`."""
    return InvalidRequest(f"there is nothing to answer: at least one {what} is needed", path=path, expected=f"a {what}")


def unseen(items: Iterable[Item]) -> InvalidRequest | None:
    """The error for messages all of whose roles are unknown: a model would be asked to answer nothing."""
    last: Opaque | None = None
    for item in items:
        if not isinstance(item, Opaque) or item.role:
            return None
        last = item
    if last is None:
        return None
    message = f"there is nothing to answer: no role is called {last.type!r} here"
    return InvalidRequest(message, path="$.messages", expected="a message of a role that is known")


class ModelCard(Struct, frozen=True, kw_only=True):
    """A model as lists of models show it. `created`: unix seconds; `context`, `answer`: tokens, None if not known;
    `shapes`: whether an answer in JSON is held to its schema while it is written; `sees`: whether it takes pictures."""

    id: str
    created: int = 0
    owner: str = "turnscript"
    context: int | None = None
    answer: int | None = None
    thinks: bool = False
    shapes: bool = False
    sees: bool = False


class Stored(Struct, frozen=True, kw_only=True):
    """How clients of an API lean on what the server keeps: whole answers, by id, and the items in them.

    An item is kept as the JSON that the API has for it, with an `id` in it.
    """

    asks: Callable[[Request], bool]
    """Whether the answer is to be kept."""
    detached: Callable[[Request], bool]
    """Whether the client wants an id at once, and asks for the answer later."""
    previous: Callable[[Request], str | None]
    """The id of the answer that a request goes on from."""
    references: Callable[[Request], dict[int, str]]
    """The ids of kept items that a request names instead of saying them, by their index in the conversation; those of
    thoughts whose text it leaves out, too, which need not be kept. Raises InvalidRequest for one that names none."""
    inputs: Callable[[bytes, str, Mapping[str, bytes]], list[tuple[str, bytes]]]
    """Ids and items of a request body; those without an id get one made of the answer's id. What the body only names
    is taken from the last argument, by its id."""
    outputs: Callable[[bytes], list[tuple[str, bytes]]]
    """Ids and items of a response body."""
    join: Callable[[Request, Sequence[bytes]], None]
    """Put the items of the conversation so far before those of a request, behind its instructions."""
    resolve: Callable[[Request, int, bytes], None]
    """Put a kept item in the place of the reference at an index."""
    page: Callable[[Sequence[bytes], bool], bytes]
    """A list of items as a body, and whether there are more."""
    deleted: Callable[[str], bytes]
    """The body that says that an answer is forgotten."""
    failed: Callable[[bytes, TurnscriptError], bytes]
    """A response body that says why there is no answer."""
    left: Callable[[TurnscriptError, int], bytes]
    """The event, of a number, that ends a stream for one who follows it, whatever becomes of the answer itself."""
    with_status: Callable[[bytes, str], bytes]
    """A response body with another status: `queued`, `in_progress`, `cancelled`."""


class Compacting(Struct, frozen=True, kw_only=True):
    """How clients of an API have a conversation replaced by a summary, which only the server can read.

    `path`: where they send a conversation for nothing else; `body`: what they are told there, made of a response body.
    """

    path: str
    body: Callable[[bytes], bytes]
    wished: Callable[[Request], bool]
    """Whether the last item of a request, an `Opaque` one, wishes a summary instead of an answer."""
    wish: Callable[[Request], None]
    """Make a request that came to `path` one that wishes a summary, whole and not kept."""
    proof: Callable[[Item], str | None]
    """The summary in an item as it was sealed; None for any other item, and for all but `Opaque` ones."""
    stays: Callable[[Sequence[Item], int], list[int] | None]
    """What stays before the summary at an index, as positions: rules, tools and settings. None where it answers no wish
    of this conversation, so that whoever sent it has chosen what stands before it."""
    item: Callable[[str, str], Item]
    """The item that holds a sealed summary: of something that makes its id, and the seal."""


class EffortChange(Struct, frozen=True):
    """The effort that holds from an item on, and what is left of the item without it."""

    effort: str
    rest: Item | None


CacheCause = Literal[
    "", "unknown", "model", "tools", "instructions", "input", "effort", "format", "verbosity", "compacted", "other"
]


class CacheVerdict(Struct, frozen=True):
    """How a prompt goes on from that of an earlier answer. `cause`: what has changed, and "" where nothing has;
    `unknown` where nobody knows that answer any more, `other` where what has changed is none of the rest. In tokens,
    estimated: `missed`, what the earlier prompt has behind the place where they part; `affected`, what the new one has
    there; `reusable`, what both begin with."""

    cause: CacheCause
    missed: int = 0
    affected: int = 0
    reusable: int = 0


class Diagnosing(Struct, frozen=True, kw_only=True):
    """How clients of an API ask why a prompt could not go on from that of an earlier answer.

    `wished`: whether a request asks. `earlier`: the id of the answer that it names, None for none. `told`: the members
    of an answer that say it.
    """

    wished: Callable[[Request], bool]
    earlier: Callable[[Request], str | None]
    told: Callable[[CacheVerdict], dict[str, Any]]


class PathForm(Struct, frozen=True):
    """A path that says something of a request beside its body: `{model}` in it is the model.

    `counts`: tokens are counted there, and nothing is answered. `stream`: the value of the body's member of that name,
    as JSON, and `by_query` that of certain parameters of the query (`alt=sse`).
    """

    path: str
    counts: bool = False
    stream: bytes = b"null"
    by_query: Mapping[str, bytes] = {}


class Serving(Struct, frozen=True, kw_only=True):
    """An API as a server sees it.

    `header`: a header that only clients of this API send. `id_prefix`: what ids of its answers begin with. `bare`: a
    request is a text to go on from, and no conversation. `count_path` and `count`: where tokens are counted, and the
    body that says how many. `models` and `model`: a list of models, and one. `refusal`: the error for a request with a
    member that must not be ignored. `unasked`: the error for a request that asks nothing, whose tokens may be counted
    all the same. `together`: the bodies of several answers to one request as one body, for an API
    that has a place for them; each was written as the choice of its number, and the first says what all of them took.
    `call_ids`: whether the client of a request is told the ids of calls; None where all are. `effort`: the one that an
    item in the middle of a conversation sets. `as_function`: what a tool that the client runs, of a type that only the
    vendor's models know, is to any other model; None for all other tools. `summary`: what an item tells in the open of
    all that was said before it, which it stands for; None for any other item, and for all but `Opaque` ones. `seals`:
    whether the client of a request is told the seals of thoughts; None for an API that has no place for them.
    `paths`: where requests go that say part of themselves in their path, and `lists` where models are listed, if not
    where all APIs have them. `key_parameter`: what a key is called in the query; it may be in `header`, too.
    `needs`: members without which the vendor's servers refuse a request, whatever it asks.
    """

    models: Callable[[Sequence[ModelCard]], bytes]
    model: Callable[[ModelCard], bytes]
    header: str = ""
    id_prefix: str = ""
    bare: bool = False
    count_path: str = ""
    count: Callable[[int], bytes] | None = None
    stored: Stored | None = None
    compacting: Compacting | None = None
    effort: Callable[[Item], EffortChange | None] | None = None
    refusal: Callable[[Request], InvalidRequest | None] | None = None
    unasked: Callable[[Request], InvalidRequest | None] | None = None
    together: Callable[[Sequence[bytes]], bytes] | None = None
    call_ids: Callable[[Request], bool] | None = None
    as_function: Callable[[Tool], Tool | None] | None = None
    summary: Callable[[Item], str | None] | None = None
    seals: Callable[[Request], bool] | None = None
    diagnosing: Diagnosing | None = None
    paths: tuple[PathForm, ...] = ()
    lists: tuple[str, ...] = ()
    key_parameter: str = ""
    needs: tuple[str, ...] = ()


def check(serving: Serving, request: Request, *, asks: bool) -> None:
    """Raises what an API has against a request: one that `asks` must ask something."""
    refused = None if serving.refusal is None else serving.refusal(request)
    if refused is None and asks and serving.unasked is not None:
        refused = serving.unasked(request)
    if refused is not None:
        raise refused
