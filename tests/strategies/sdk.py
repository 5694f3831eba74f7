"""Owns the API bodies: strategies drawn from the official SDKs' own request types.

`bodies(api)` draws a body; `bodies_reaching(api, sites)` one that surely contains a given field or union member. A body
is built of `Typed` objects, which equal plain dicts, and of `Spelled` values where arguments stand as JSON: serialise
it with `jsontext.dumps`, or take `jsontext.plain(body)`.

A random walk meets a field five unions deep once in ten thousand bodies. So a body may have aims: sites that the walk
is steered to, while it stays random at every choice that does not matter for them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from anthropic import Anthropic
from anthropic.types import message_create_params as anthropic_params
from anthropic.types.beta import message_create_params as anthropic_beta_params
from hypothesis import strategies as st
from openai import OpenAI
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from tests.strategies import google, leaves
from tests.strategies.coherent import ANSWERS, CALLS, cohere, places
from tests.strategies.shapes import (
    MAX_HOPS,
    Field,
    Leaf,
    ListOf,
    MapOf,
    Member,
    Model,
    OneOf,
    Options,
    Record,
    Shape,
    Typed,
    wire_fields,
)

Strategy = st.SearchStrategy[Any]

# Sites to reach together: one bit is one site, several are the fields of one record.
Aims = tuple[int, ...]
MAX_AIMS = 6


# ------------------------------------------------------------------------------------------------- the five APIs


class _Sent(Exception):
    """Carries the body that a `create` method was about to post."""


def _sent_fields(resource: Any, params: Any) -> set[str]:
    """The fields of `params` that `resource.create` puts into the body; it sends the others as headers."""

    def catch(_path: str, *, body: dict[str, Any], **_options: Any) -> None:
        raise _Sent(set(body))

    resource._post = catch
    # "" does for any parameter: it is a text, and it is empty for the code that looks into lists.
    arguments = dict.fromkeys((name for name, _, _ in wire_fields(params)), "")
    try:
        resource.create(**arguments, timeout=1.0)
    except _Sent as sent:
        return typing.cast("set[str]", sent.args[0])
    raise AssertionError(f"{resource} posted nothing")


def _openai(pick: Callable[[OpenAI], Any]) -> Any:
    return pick(OpenAI(api_key="-", base_url="http://localhost"))


def _anthropic(pick: Callable[[Anthropic], Any]) -> Any:
    return pick(Anthropic(api_key="-", base_url="http://localhost"))


# Per API: (the SDK's resource, its request type). A client may use any of them.
SOURCES: dict[str, tuple[tuple[Callable[[], Any], Any], ...]] = {
    "openai-chat": ((lambda: _openai(lambda client: client.chat.completions), chat_params.CompletionCreateParams),),
    "openai-responses": ((lambda: _openai(lambda client: client.responses), responses_params.ResponseCreateParams),),
    "anthropic-messages": (
        (lambda: _anthropic(lambda client: client.messages), anthropic_params.MessageCreateParams),
        (lambda: _anthropic(lambda client: client.beta.messages), anthropic_beta_params.MessageCreateParams),
    ),
    "openai-completions": (
        (lambda: _openai(lambda client: client.completions), completion_params.CompletionCreateParams),
    ),
    "gemini": ((google.Models, google.Bodies),),
}
APIS = tuple(SOURCES)


@cache
def model(api: str) -> Model:
    """The shapes and sites of an API's request types."""
    roots = [(resource, root) for resource, params in SOURCES[api] for root in typing.get_args(params)]
    return Model([root for _, root in roots], {root: _sent_fields(resource(), root) for resource, root in roots})


# ------------------------------------------------------------------------------------------------- the random walk

_cached: dict[tuple[Shape, int], Strategy] = {}


def _of(shape: Shape, hops: int) -> Strategy:
    """Values of a shape with at most `hops` nested records, if the shape allows so few."""
    key = (shape, hops)
    if key not in _cached:
        _cached[key] = _made(shape, hops)
    return _cached[key]


def drawn_from(shape: Shape, hops: int = MAX_HOPS) -> Strategy:
    """Values of any shape, for tests of single types."""
    return _of(shape, hops)


def _made(shape: Shape, hops: int) -> Strategy:
    match shape:
        case Leaf():
            return leaves.leaf(shape)
        case Options():
            return st.sampled_from(shape.values)
        case ListOf():
            # The last records that fit get no children, so the types' own recursion ends.
            length = leaves.LONG_LISTS.get(shape.name, 3) if shape.item.floor <= hops else 0
            return st.lists(_of(shape.item, hops), max_size=length)
        case MapOf():
            return st.dictionaries(leaves.names(), _of(shape.value, hops), max_size=2)
        case OneOf():
            return _members(shape, hops)
        case Record():
            return _records(shape, hops, _optional(shape, hops))
    raise TypeError(shape)


def _weighted(shape: OneOf, hops: int) -> list[Member]:
    """The members that still fit, each as often as its weight says, the simplest first."""
    least = min(member.shape.floor for member in shape.members)
    fit = [member for member in shape.members if member.shape.floor <= max(hops, least)]
    fit.sort(key=lambda member: member.shape.floor)
    return [member for member in fit for _ in range(leaves.weight(member.shape))]


def _members(shape: OneOf, hops: int) -> Strategy:
    return st.sampled_from(_weighted(shape, hops)).flatmap(lambda member: _of(member.shape, hops))


@cache
def _optional(record: Record, hops: int) -> Strategy:
    """Which optional fields to give, in the order to write them: none to all, mostly two or three."""
    fields = [member for member in record.fields if not member.required and member.shape.floor < max(hops, 1)]
    if not fields:
        return st.just([])
    few = st.lists(st.sampled_from(fields), max_size=min(len(fields), 4), unique=True)
    usual = [member for member in fields if (leaves.class_name(record.name), member.name) in leaves.USUAL_FIELDS]
    choices = [few, few.map(lambda chosen: [*usual, *(member for member in chosen if member not in usual)])]
    if len(fields) > 4:
        choices.append(st.lists(st.sampled_from(fields), max_size=len(fields), unique=True))
    return st.one_of(choices if usual or len(fields) > 4 else [few])


@st.composite
def _records(draw: st.DrawFn, record: Record, hops: int, optional: Strategy) -> Typed:
    chosen: list[Field] = [member for member in record.fields if member.required] + draw(optional)
    return Typed([(member.name, draw(_of(member.shape, hops - 1))) for member in chosen], record)


# ------------------------------------------------------------------------------------------------- the steered walk


def _aimed(draw: st.DrawFn, shape: Shape, hops: int, aims: Aims) -> Any:
    """A value of the shape in which every aim is met that can be met together."""
    # Not a strategy of its own: building one for each step of the way costs more than the draw.
    below = shape.within[max(hops, 0)]
    aims = tuple(aim for aim in aims if aim & below)
    if not aims:
        return draw(_of(shape, hops))
    match shape:
        case OneOf():
            first = _lowest(aims[0] & below)
            ways = tuple(m.shape for m in shape.members if (m.site | m.shape.within[hops]) & first)
            return _aimed(draw, draw(_one_of(ways)), hops, aims)
        case ListOf():
            # An element for each aim, so that aims that exclude one another meet in one body.
            around = draw(st.lists(_of(shape.item, hops), max_size=2))
            return [*around, *(_aimed(draw, shape.item, hops, (aim,)) for aim in aims)]
        case MapOf():
            return {draw(leaves.names()): _aimed(draw, shape.value, hops, aims)}
        case Record():
            return _aimed_record(draw, shape, hops, aims)
    raise TypeError(shape)


@cache
def _one_of(ways: tuple[Any, ...]) -> Strategy:
    return st.sampled_from(ways)


def _aimed_record(draw: st.DrawFn, record: Record, hops: int, aims: Aims) -> Typed:
    aimed = _share(draw, record, hops, aims)
    chosen: list[Field] = [member for member in record.fields if member.required] + draw(_optional(record, hops))
    chosen += [member for member in aimed if member not in chosen]
    return Typed([(m.name, _aimed(draw, m.shape, hops - 1, tuple(aimed.get(m, ())))) for m in chosen], record)


def _share(draw: st.DrawFn, record: Record, hops: int, aims: Aims) -> dict[Field, list[int]]:
    """Which fields must be given, and which aims each of them carries on."""
    aimed: dict[Field, list[int]] = {}
    for aim in aims:
        here = [member for member in record.fields if member.present & aim]
        aimed.update({member: aimed.get(member, []) for member in here})
        rest = aim & ~sum(member.present for member in here)
        ways = tuple(member for member in record.fields if member.shape.within[hops - 1] & _lowest(rest))
        if ways:
            aimed.setdefault(draw(_one_of(ways)), []).append(rest)
    return aimed


def _lowest(mask: int) -> int:
    return mask & -mask


# ------------------------------------------------------------------------------------------------- bodies


@st.composite
def _bodies(draw: st.DrawFn, root: Shape, aims: Aims, coherent: bool) -> dict[str, Any]:
    body = _aimed(draw, root, MAX_HOPS, aims)
    if coherent:
        cohere(body)
    return typing.cast("dict[str, Any]", body)


@cache
def bodies(api: str) -> st.SearchStrategy[dict[str, Any]]:
    """Request bodies of an API, as a client that uses the SDK's types may send them; in half, results answer calls."""
    shapes = model(api)
    # One request type at a time, since Anthropic's two share no records and aims at the other would be lost.
    return st.one_of([_bodies_of(shapes, member.shape) for member in typing.cast("OneOf", shapes.root).members])


def _bodies_of(shapes: Model, root: Shape) -> st.SearchStrategy[dict[str, Any]]:
    below = root.within[MAX_HOPS]
    sites = [1 << number for number, name in enumerate(shapes.sites) if below >> number & 1 and name[-7:] != " absent"]
    full = [sum(member.present for member in record.fields) for record in shapes.records()]
    aims = st.lists(st.sampled_from(sites) | st.sampled_from([aim for aim in full if aim & below]), max_size=MAX_AIMS)
    random = aims.flatmap(lambda chosen: _bodies(root, tuple(chosen), coherent=False))
    answered = _answered(shapes, below)
    if not answered:
        return random
    both = st.tuples(st.sampled_from(answered), aims).map(lambda drawn: (*drawn[0], *drawn[1]))
    return random | both.flatmap(lambda chosen: _bodies(root, chosen, coherent=True))


def _answered(shapes: Model, below: int) -> list[Aims]:
    """The aims "a call and an answer of its family", each as often as the weights of the two records say."""
    calls = [place for place in places(shapes, CALLS) if place[1] & below]
    answers = [place for place in places(shapes, ANSWERS) if place[1] & below]
    return [
        (call_site, answer_site)
        for call, call_site, family in calls
        for answer, answer_site, answered in answers
        if family == answered
        for _ in range(leaves.weight(call) * leaves.weight(answer))
    ]


def bodies_reaching(api: str, names: Sequence[str], *, coherent: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with the first named site in them, and as many of the others as go with it in one body."""
    shapes = model(api)
    return _bodies(shapes.root, tuple(1 << shapes.sites.index(name) for name in names), coherent)
