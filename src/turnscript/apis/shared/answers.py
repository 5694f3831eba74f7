"""Owns what the answers of several APIs share: token counts on the wire, calls cut off, made-up ids, unnamed members.

Nothing here knows an API by name: an API says what it calls its counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from turnscript.apis.api import Body, Rendering, leftover, merge
from turnscript.apis.streams import CREATED, created_of
from turnscript.core.conversation import Extra, Issue, Request, Response, ToolCall, Usage
from turnscript.core.errors import InvalidRequest
from turnscript.core.finish_reasons import CALLED, FILTERED, LENGTH, STOP, meaning
from turnscript.core.json_text import (
    Json,
    elements_in,
    excerpt,
    is_object,
    json_of,
    json_string,
    members_in,
    plain,
    read_count,
    read_list,
    read_object,
)
from turnscript.core.losses import Loss
from turnscript.core.payloads import Source, body_bytes
from turnscript.core.source_paths import not_here
from turnscript.core.wire import mismatch

# Why it ended.


def plain_reason(rendering: Rendering, reason: str | None, *, called: bool, cut: bool = False) -> str:
    """Why an answer ended, in the four words that clients of these APIs branch on. What is another word is reported.

    `called`: there is a call in it, and `cut` one that was told and is not whole, with which it is no good end.
    """
    word = CALLED if called else STOP
    if reason is None:
        rendering.lose("$.finish_reason", "invented", f"nobody said why the answer ended: {word}")
    else:
        word = _plain_word(rendering, reason)
    if word == CALLED and not called:
        rendering.lose("$.finish_reason", "approximated", "there is no call: said as the end")
        word = STOP
    if cut and word in (STOP, CALLED):
        rendering.lose("$.finish_reason", "approximated", f"{LENGTH!r}, because {CUT_CALL}")
        word = LENGTH
    return word


def _plain_word(rendering: Rendering, reason: str) -> str:
    """A word of the target's own server stands as it is. What nobody else knows is said as a cut: it is no good end."""
    word, detail = _PLAIN.get(reason, (meaning(reason), ""))
    if not detail:
        if rendering.request.origin == rendering.origin or word == reason in _PLAINEST:
            return reason
        detail = f"{reason!r} is said as {word!r}"
        if word not in _PLAINEST:
            word, detail = LENGTH, f"nobody knows an end {reason!r}: said as one that was cut off"
    rendering.lose("$.finish_reason", "approximated", detail)
    return word


_PLAINEST = frozenset({STOP, LENGTH, CALLED, FILTERED})
_PLAIN = {
    "model_context_window_exceeded": (LENGTH, "that the context is full is said as a limit on tokens"),
    "refusal": (FILTERED, "a refusal is said as a filter"),
    "pause_turn": (STOP, "a pause of the model is said as its end"),
    "compaction": (STOP, "a compaction is said as the end"),
    "max_messages": (LENGTH, "a limit on messages is said as one on tokens"),
    "steered": (STOP, "that the client broke in is said as the end"),
}
"""Words of one API alone, for the clients of others."""


# Token counts.


class Counts(Struct, frozen=True):
    """What an API calls its token counts. `aliases`: names that some servers use instead of an official one.

    The details are the objects that hold more counts of the input, and of the output.
    """

    input: str
    output: str
    aliases: tuple[tuple[str, str], ...] = ()
    input_details: str = ""
    output_details: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "input_details", f"{self.input}_details")
        force_setattr(self, "output_details", f"{self.output}_details")


_TOTAL = "total_tokens"
_decode_number = msgspec.json.Decoder(int | float).decode


def read_usage(value: Json, at: str, counts: Counts) -> tuple[Usage | None, Extra, list[Issue]]:
    """The counts, the members that have no name in `Usage`, in their places, and what is no count.

    A count of the input or the output that nobody told is no 0: then there is no `Usage` at all, and all that was told
    has no name. A detail is one.
    """
    if bytes(value)[:1] != b"{":
        return None, {}, [invalid_count(value, at)]
    members = read_object(value)
    for alias, name in counts.aliases:
        if alias in members and name not in members:
            members[name] = members.pop(alias)
    told = {key: member for key, member in members.items() if bytes(member) != b"null"}
    issues: list[Issue] = []
    input_, output = [_required(members, name, at, issues) for name in (counts.input, counts.output)]
    usage = Usage(input_ or 0, output or 0)
    details = _nested(members, counts.input_details, at, issues)
    usage.cached = details.take("cached_tokens")
    usage.cache_written = details.take("cache_write_tokens")
    details.put_rest()
    details = _nested(members, counts.output_details, at, issues)
    usage.reasoning = details.take("reasoning_tokens")
    details.put_rest()
    said = members.get(_TOTAL)
    total = take_count(members, _TOTAL, at, issues)
    if said is not None and total is not None and total != usage.input + usage.output:
        members[_TOTAL] = said
    return (None, told, issues) if input_ is None or output is None else (usage, members, issues)


def write_usage(usage: Usage, rest: Extra, counts: Counts) -> Body:
    """The counts as an object of the API: all of them, zeros too, because strict clients want them."""
    body: Body = {
        counts.input: usage.input,
        counts.output: usage.output,
        _TOTAL: rest.get(_TOTAL, usage.input + usage.output),
        counts.input_details: {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        counts.output_details: {"reasoning_tokens": usage.reasoning},
    }
    if rest:
        merge(body, rest)
    return body


def lose_foreign(losses: list[Loss], target: str, extra: Extra, usage: Usage | None, body: Body | None = None) -> None:
    """Report unnamed members of another API's answer. What stood beside counts that cannot be told is among them.

    `body`: what is told, which may say the same in a place of its own.
    """
    told = body or {}
    lost = [not_here(target, f"$.{key}", extra.get(key)) for key in _unsaid(extra, told)]
    if usage is None:
        why = "not all of the counts are known, so none of what stands here is told"
        lost = [replace(one, detail=why) if one.path.startswith("$.usage") else one for one in lost]
    losses += lost


_TIER = "service_tier"
"""Several APIs say by this how an answer was served."""
_SAME_TIER = {"standard": "default", "default": "standard"}
"""How most answers are served has a word of its own in APIs that tell it among their counts."""


def tier_of(extra: Extra, known: Collection[str]) -> str | None:
    """How another API's answer was served, in a word that is `known` here."""
    return next((word for word in _tier_words(extra) if word in known), None)


def _tier_words(extra: Extra) -> list[str]:
    """The words for how an answer was served: beside its counts or, in other APIs, among them."""
    place = extra if _TIER in extra else members_in(extra.get("usage"))
    word = plain(place[_TIER]) if _TIER in place else None
    return [one for one in (word, _SAME_TIER.get(word)) if one is not None] if isinstance(word, str) else []


def _unsaid(extra: Extra, body: Body) -> list[str]:
    """The unnamed members that a body does not say. Of counts, all are told together unless one of them is said."""
    made = [body[name] for name in CREATED if name in body]
    said = {name for name in CREATED if name in extra and created_of({name: extra[name]}) in made}
    counts = body.get("usage")
    tiers = [place.get(_TIER) for place in (body, counts) if isinstance(place, dict)]
    if any(word in tiers for word in _tier_words(extra)):
        said.add(_TIER if _TIER in extra else "usage")
    beside = [f"usage.{name}" for name in members_in(extra.get("usage")) if name != _TIER] if "usage" in said else []
    return [key for key in extra if key not in said] + beside


def lose_usage(losses: list[Loss], usage: Usage | None, extra: Extra) -> None:
    """Report what stood beside counts that cannot be told."""
    if usage is None and "usage" in extra:
        detail = "its counts are not known, and without them its other members say nothing"
        losses.append(Loss("$.usage", "dropped", detail))


def take_count(members: Extra, name: str, at: str, issues: list[Issue]) -> int | None:
    """A count, taken out of its object at `at`. None if it is not there or null, or no count, which is an issue."""
    value = members.pop(name, None)
    if value is None or bytes(value) == b"null":
        return None
    count = read_count(value)
    if count is None:
        issues.append(invalid_count(value, f"{at}.{name}"))
    return count


def invalid_count(value: Json, at: str) -> Issue:
    """The issue for what is no count, or no object of them."""
    return Issue("invalid_count", f"{at} is {excerpt(value, 100)}, which counts no tokens: it is left out")


def missing_count(at: str) -> Issue:
    """The issue for a count that nobody told."""
    return Issue("missing_count", f"{at} is missing or null: what the answer cost is not known")


def _required(members: Extra, name: str, at: str, issues: list[Issue]) -> int | None:
    before = len(issues)
    count = take_count(members, name, at, issues)
    if count is None and len(issues) == before:
        issues.append(missing_count(f"{at}.{name}"))
    return count


class _Details(Struct):
    """An object of counts inside a usage, read member by member."""

    members: Extra
    around: Extra
    name: str
    at: str
    issues: list[Issue]

    def take(self, name: str) -> int:
        """A count; 0 is what nobody told."""
        return take_count(self.members, name, self.at, self.issues) or 0

    def put_rest(self) -> None:
        """Put the members that have no name back into the usage."""
        if self.members:
            self.around[self.name] = leftover(self.members)


def _nested(members: Extra, name: str, at: str, issues: list[Issue]) -> _Details:
    value = members.pop(name, None)
    inside: Extra = {}
    if value is not None and bytes(value)[:1] == b"{":
        inside = read_object(value)
    elif value is not None and bytes(value) != b"null":
        issues.append(invalid_count(value, f"{at}.{name}"))
    return _Details(inside, members, name, f"{at}.{name}", issues)


# Choices.

_CHOICES, _INDEX = "choices", "index"


def of_each_choice(body: Source, read: Callable[[Source], Response]) -> list[Response]:
    """An answer for each choice of a body; `read` reads one that has the choice of index 0 and no other.

    An index stays with the unnamed members of its choice, but for the 0 of the first one.
    """
    data = body_bytes(body)
    said = read_object(data)
    value = said.get(_CHOICES)
    choices = elements_in(value)
    if not any(bytes(choice)[:1] == b"{" for choice in choices):
        return [read(data)]  # which says what is wrong with it
    found: list[Response] = []
    for number, choice in enumerate(choices):
        place = f"$.{_CHOICES}[{number}]"
        if bytes(choice)[:1] != b"{":
            raise mismatch(choice, place, "an object")
        entry = read_object(choice)
        index = entry.get(_INDEX, _NULL_INDEX)
        if bytes(index) == _NULL:
            index = json_of(number)
        alone = msgspec.json.encode({**said, _CHOICES: [{**entry, _INDEX: 0}]})
        try:
            response = read(alone)
        except InvalidRequest as error:
            error.path = error.path.replace(_FIRST, place, 1)
            raise
        for item in response.items:
            item.at = item.at.replace(_FIRST, place, 1)
        if number or read_count(index) != 0:
            rest = members_in(response.extra.get(_CHOICES))
            response.extra[_CHOICES] = leftover({_INDEX: index, **rest})
        found.append(response)
    return found


def only_first(others: Collection[object]) -> Issue:
    """The issue for a body or a stream of several choices of which the first is read. `others`: the rest."""
    return Issue("extra_choices", f"there are {len(others) + 1} choices; only {_FIRST} is read")


def index_of(choice: Extra, asked: int = 0) -> Json | int:
    """The index of a choice: as its unnamed members have it, else as it is `asked` for."""
    return choice.get(_INDEX, asked)


def claims_choices(members: Mapping[str, Json], object_: str, member: str) -> int:
    """How surely a body is an answer of choices that have a `member` each, and is called an `object_`."""
    value = members.get(_CHOICES)
    if value is None or bytes(value)[:1] != b"[":
        return 0
    if "object" in members and bytes(members["object"]) == f'"{object_}"'.encode():
        return 2
    choices = read_list(value)
    return int(bool(choices) and bytes(choices[0])[:1] == b"{" and member in read_object(choices[0]))


_FIRST = f"$.{_CHOICES}[0]"
_NULL = b"null"
_NULL_INDEX = Json(_NULL)


# Calls.


_SHOWN = 200


CUT_CALL = "a call that was told as it came is not whole"
"""Why an answer with a good end is told as one that was cut off."""
UNTOLD = "the call was cut off: nobody may run it"
CHANGED = "it was sent before it was known in full, and became something else"


def is_whole(call: ToolCall) -> bool:
    """Whether a call may be told as complete. One that was cut off may not, so that nobody runs it with half its
    arguments."""
    return not call.open or (not call.custom and is_object(call.arguments))


def nameless(arguments: str) -> Issue:
    """The issue for a call of nobody knows what: it is not told, because no client could run it."""
    shown = f": {arguments[:_SHOWN]}" if arguments else ""
    return Issue("invalid_call", f"a call without a name, with {len(arguments)} characters of arguments{shown}")


def free_text(call: ToolCall, at: str, losses: list[Loss]) -> str:
    """What a call says to a tool that takes free text, where the model wrote an object with one string, as models do
    that know functions alone. Anything else is passed on as it is, and reported."""
    try:
        (value,) = read_object(call.arguments).values()
        text: Any = plain(value)
    except ValueError:
        text = None
    if isinstance(text, str):
        return text
    detail = f"the tool {call.name!r} takes free text, and the model wrote something else: it is passed on as it is"
    losses.append(Loss(at, "approximated", detail))
    return call.arguments


def came_to_nothing(said: bool) -> str:
    """What a loss says of a part of a stream that turned out to be none. `said`: some of it was sent already."""
    return f"it came to nothing, and {'what was sent of it stands' if said else 'is not told'}"


# Ids.


def made_id(prefix: str, request: Request, *seeds: object) -> str:
    """An id for something in the answer to a request, the same whenever it is asked for. `seeds`: what it is.

    The length of the conversation is in it, so that equal calls in two turns of one conversation have two ids.
    """
    last = request.items[-1] if request.items else None
    told = [len(request.items), request.settings.model, last, list(seeds)]
    try:
        data = msgspec.json.encode(told, enc_hook=str)
    except UnicodeEncodeError:  # half a surrogate pair in somebody's text
        data = json.dumps(msgspec.to_builtins(told, enc_hook=str)).encode()
    return f"{prefix}{blake2b(data, digest_size=12).hexdigest()}"


def lose_id(rendering: Rendering, id_: str | None, told: str) -> None:
    """Report that a stream has another id than the answer that it tells."""
    if id_ not in (None, told):
        rendering.lose("$.id", "renamed", f"the stream called itself {told!r} before this was known")


# Unnamed members of a stream.


class Gathered:
    """Members without a name, as the pieces of a stream bring them: lists grow, objects grow inside, of anything else
    the last one counts. `texts`: texts grow too, as they do in a message; elsewhere servers repeat them."""

    def __init__(self, *, texts: bool = False) -> None:
        self._texts = texts
        self._growing = (b"[", b"{", b'"') if texts else (b"[", b"{")
        self._pieces: dict[str, list[Json]] = {}

    def add(self, members: Iterable[tuple[str, Json]]) -> None:
        """The members of one more piece."""
        for key, value in members:
            piece = bytes(value)
            before = self._pieces.get(key)
            if before is not None and piece[:1] in self._growing:
                before.append(Json(piece))
            elif before is None or piece != _NULL:
                self._pieces[key] = [Json(piece)]  # what came before is never asked for

    def joined(self) -> Extra:
        """All members."""
        return {key: _joined(pieces, self._texts, 0) for key, pieces in self._pieces.items()}


_DEEPEST = 8


def _joined(pieces: list[Json], texts: bool, depth: int) -> Json:
    said = [piece for piece in pieces if bytes(piece) != _NULL]
    if len(said) < 2 or depth > _DEEPEST:
        return said[-1] if said else pieces[-1]
    firsts = {bytes(piece)[:1] for piece in said}
    if texts and firsts == {b'"'}:
        return Json(json_string("".join(map(_text, said))).encode())
    if firsts == {b"["}:
        return Json(msgspec.json.encode([one for piece in said for one in read_list(piece)]))
    if firsts == {b"{"}:
        members: dict[str, list[Any]] = {}
        for piece in said:
            for key, value in read_object(piece).items():
                members.setdefault(key, []).append(value)
        return leftover({key: _joined(values, texts, depth + 1) for key, values in members.items()})
    return said[-1]


def _text(value: Json) -> str:
    return str(plain(value))
