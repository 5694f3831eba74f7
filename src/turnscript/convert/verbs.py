"""Owns the verbs on names: parse, render and convert between any two APIs and formats, requests and their answers.

An API spells the settings of its requests in its own way, and a format knows no API. So an archive keeps a request's
options as their origin spelled them: `render` folds the typed settings back into that spelling, and `parse` types them
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from turnscript.apis.api import Api, Body, Reply
from turnscript.convert.recognition import (
    ANSWER,
    AUTO,
    ONE_SIDE,
    REQUEST,
    SIDES,
    detect_answer,
    detect_api,
    recognised,
    wrapped,
)
from turnscript.convert.recording import BROKEN, answered, losses_in_source_words, read_whole
from turnscript.convert.registry import is_format, is_stream, lookup, origin_of
from turnscript.core.conversation import Conversation, Dropped, Issue, Request, Response, ToolCall
from turnscript.core.errors import (
    InvalidConversation,
    InvalidRequest,
    InvalidTranscript,
    LossyConversion,
    UnknownName,
    Unsupported,
    type_of,
)
from turnscript.core.exchange import RESPONSE, Exchange, alone, archived, exchange_of
from turnscript.core.json_spelling import respelled
from turnscript.core.json_text import read_object
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered, Source, body_bytes, is_error, transcript_text
from turnscript.core.source_paths import in_source_words, message_path
from turnscript.core.unread_stream import BEHIND, HALF, STRAY
from turnscript.core.validation import MISTAKES, refuse_mistakes
from turnscript.formats.format import Format

FORMAT_OPTIONS = ("view", "escape", "variant")

# Reading.


def parse(source: Source, name: str = AUTO, *, variant: str | None = None) -> Request:
    """An API's request body (bytes, str or dict) or a transcript (str or UTF-8 bytes) as a `Request`.

    `name` is an API, a format, or `auto` to tell from the source; `variant` one of that format. Of an archive that
    holds an answer too, that is the end of the conversation; `parse_exchange` tells them apart. Raises InvalidRequest
    or InvalidTranscript with the place, UnknownName for a name that nobody registered.

    >>> parse({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "openai-chat").items[0].content[0].text
    'Hi'
    """
    source = wrapped(source) if name == AUTO else source
    target = lookup(detect_api(source) if name == AUTO else name)
    if isinstance(target, Api):
        _refuse_variant(target, variant)
        return target.parse_request(source)
    return unfolded((target if variant is None else target.variant(variant)).parse(transcript_text(source)))


def unfolded(request: Request) -> Request:
    """A request that an archive keeps with its settings typed. Raises InvalidTranscript for what its API refuses."""
    api = origin_of(request.origin)
    if api is not None:
        if request.extra or request.archived:
            _unfold(api, request)
        for item in request.items if api.has_objects else ():
            if isinstance(item, ToolCall):
                item.as_object = not item.custom
    return request


def parse_response(source: Source, name: str = AUTO) -> Response:
    """An API's response body, a recorded stream of one, or the answer that an archive holds, as a `Response`.

    Of several choices only the first. Raises InvalidRequest or InvalidTranscript with the place, UpstreamError for an
    error body and for a stream that holds an error or breaks off, UnknownName.

    >>> body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    >>> parse_response(body).items[0].content[0].text
    'Hi'
    """
    target = lookup(detect_answer(source) if name == AUTO else name)
    if not isinstance(target, Api) or is_stream(source):
        return parse_exchange(source, name).response
    return target.parse_response(source)


def parse_exchange(source: Source, name: str = AUTO, *, variant: str | None = None) -> Exchange:
    """An archive that holds an answer, and maybe its request, or an API's response body, all choices, or a recorded
    stream. Raises the same.

    >>> asked = parse({"messages": [{"role": "user", "content": "Hi"}]})
    >>> said = parse_response({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
    >>> text = render(Exchange(asked, said), "rwkv-universal").value
    >>> parse_exchange(text) == Exchange(asked, said)
    True
    """
    target = lookup(detect_answer(source) if name == AUTO else name)
    if isinstance(target, Format):
        return exchange_of(parse(source, target.name if name == AUTO else name, variant=variant))
    _refuse_variant(target, variant)
    if is_stream(source):
        return Exchange(Request(origin=target.origin, words=target.words), read_whole(source, target))
    response, *others = target.parse_responses(source)
    return Exchange(Request(origin=target.origin, words=target.words), response, others)


def read(source: Source, name: str, to: str, side: str = AUTO, variant: str | None = None) -> Request | Exchange:
    """What a source says, for writing it in `to`: a request or an answer, as `side` says or as can be told.

    `variant`: of the format that a transcript is in.

    An archive stays what it is in a format. In an API it is the answer if it holds nothing else; which of both is
    wanted of it, and of a body that may be both, must be said. Raises InvalidInput, UpstreamError and UnknownName.
    """
    if side not in SIDES:
        raise UnknownName("side of an exchange", side, SIDES)
    if is_stream(source) and (name == AUTO or not is_format(name)):
        return _recorded(source, name, side, variant)
    if side == ANSWER:
        exchange = parse_exchange(source, name, variant=variant)
        return replace(exchange, request=alone(exchange.response).request) if is_format(to) else exchange
    if name == AUTO:
        source = wrapped(source)
        name, answers = (detect_api(source), False) if side == REQUEST else recognised(source)
        if answers:
            return parse_exchange(source, name, variant=variant)
    elif side == AUTO and isinstance(api := lookup(name), Api):
        _refuse_variant(api, variant)
        return _body(api, source)
    request = parse(source, name, variant=variant)
    if RESPONSE not in request.archived or (side == AUTO and is_format(to)):
        return request
    exchange = exchange_of(request)
    if side == REQUEST:
        return exchange.request
    if exchange.is_alone:
        return exchange
    message = "the transcript holds a request and its answer, and an API has a body for each; say which is meant"
    raise InvalidTranscript(message, line=1, column=1, expected=ONE_SIDE, got="both")


def _refuse_variant(api: Api, variant: str | None) -> None:
    """Raise UnknownName for a variant where what is read is no transcript."""
    if variant is not None:
        raise UnknownName(f"variant of {api.name}", variant, ())


def _recorded(source: bytes | str, name: str, side: str, variant: str | None) -> Exchange:
    if side == REQUEST:
        raise InvalidRequest("a recorded stream is an answer", path="$", expected="a request", got="a stream")
    return parse_exchange(source, name, variant=variant)


def _body(api: Api, source: Source) -> Request | Exchange:
    """A body of an API: an answer where it has the members of one, and none of those that a request must have."""
    try:
        request = api.parse_request(source)
    except InvalidRequest:
        if _is_answer(api, source):
            return parse_exchange(source, api.name)
        raise
    if (api.claims_response(request.extra) or is_error(request.extra)) and _is_answer(api, source):
        return parse_exchange(source, api.name)
    return request


def _is_answer(api: Api, source: Source) -> bool:
    """Whether a body is an answer of an API, or the error that there is instead."""
    try:
        members = read_object(body_bytes(source))
    except InvalidRequest:
        return False
    return bool(api.claims_response(members) or is_error(members)) and not api.claims(members)


def _unfold(api: Api, request: Request) -> None:
    try:
        api.unfold(request)
    except InvalidRequest as error:
        message = f"the archive's options are not what {api.name} takes: {error}"
        raise InvalidTranscript(message, line=1, column=1, expected=error.expected, got=error.got) from error


# Writing.


def render(
    said: Request | Response | Exchange,
    name: str,
    *,
    strict: bool = False,
    normalize_json: bool = False,
    **options: str,
) -> Rendered[Any]:
    """A request, an answer or both as a body of an API or as a transcript, with the losses.

    To an API, both are the answer to that request. Options: `profile` and each API's own flags for its requests,
    `view`, `escape` and `variant` for a format.
    `normalize_json` spells the JSON of calls and results in one way, `{"city": "Tokyo"}`, or as the format spells JSON.
    That is a loss, told where it changes anything. `strict` raises LossyConversion for every other one.
    Raises UpstreamError where an answer that failed would be written as one, InvalidConversation for what a program has
    put together wrongly.
    """
    target = lookup(name)
    try:
        return _rendered(said, target, strict, normalize_json, options)
    except MISTAKES:
        if isinstance(said, Exchange):
            refuse_mistakes(request=said.request, response=said.response)
        raise


def _rendered(
    said: Request | Response | Exchange,
    target: Api | Format,
    strict: bool,
    normalize_json: bool,
    options: dict[str, str],
) -> Rendered[Any]:
    if isinstance(target, Api):
        if not isinstance(said, Request):
            return _answer(target, _exchange(said), strict, normalize_json, options)
        return _request(target, said, strict, normalize_json, options)
    unknown = set(options) - set(FORMAT_OPTIONS)
    if unknown:
        raise UnknownName(f"option of {target.name}", min(unknown), FORMAT_OPTIONS)
    variant = options.pop("variant", None)
    target = target.variant(variant) if variant is not None else target
    left: list[Loss] = []
    if not isinstance(said, Request):
        exchange = _exchange(said)
        said, left = archived(exchange), beyond_first(exchange, "a transcript")
    if options.get("view", "archive") == "archive" and target.document.metadata is not None:
        said = folded(said)
    rendered = target.render(said, strict=strict, normalize_json=normalize_json, **options)
    if left:
        _refuse(left, target.name, strict=strict)
        rendered.losses[:0] = left
    return rendered


def convert(
    source: Source,
    from_: str,
    to: str,
    *,
    strict: bool = False,
    normalize_json: bool = False,
    side: str = AUTO,
    **options: str,
) -> Rendered[Any]:
    """What a source says, a request or an answer, in another API or format.

    `side`: `request` or `response`, where the source may be both, or holds both. What of an answer could not be read is
    among the losses. Options as for `render`, but that a `variant` is of the format that is read where an API is
    written; raises what `parse`, `parse_response` and `render` do.

    >>> body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    >>> print(convert(body, "anthropic-messages", "rwkv-universal", view="prompt").value)
    <<USER>>
    Hi
    <<USER_END>>
    """
    read_by = None if is_format(to) else options.pop("variant", None)
    said = read(source, from_, to, side, read_by)
    left = unread(said)
    _refuse(left, to, strict=strict)
    rendered = render(said, to, strict=strict, normalize_json=normalize_json, **options)
    if left:
        rendered.losses[:0] = left
    return rendered


_LEFT_OUT = frozenset({"call_id", "call_name", "cut_call", "extra_choices", "invalid_call", "invalid_count"})
_LEFT_OUT |= {"unclosed_call", "late_arguments", "missing_item", "unannounced_item", "changed_item"}
_LEFT_OUT |= {"unknown_event", "unknown_delta", "unknown_member", "misplaced_delta", "misplaced_content"}
_LEFT_OUT |= {"second_signature", BROKEN, BEHIND, HALF, STRAY}
"""Issues of an answer that tell of something in it that was not read."""


def unread(said: Request | Exchange) -> list[Loss]:
    """Return what was left out when it was read: of a transcript what the conversation does not hold as it stood
    there, of an answer what is broken or cut off."""
    if isinstance(said, Request):
        return said.unread
    return said.request.unread + left_out(
        [issue for response in (said.response, *said.others) for issue in response.issues]
    )


def left_out(issues: Iterable[Issue]) -> list[Loss]:
    """The same of issues: those that tell of it."""
    return [
        Loss("$", "dropped", issue.detail) for issue in issues if issue.kind in _LEFT_OUT or isinstance(issue, Dropped)
    ]


def _request(api: Api, request: Request, strict: bool, normalize_json: bool, options: dict[str, str]) -> Rendered[Body]:
    if not normalize_json:
        return api.render_request(request, strict=strict, **options)
    spelled, asked = respelled(request)
    rendered = api.render_request(spelled, strict=strict, **options)
    rendered.losses[:0] = in_source_words(request, asked)
    return rendered


def _answer(
    api: Api, exchange: Exchange, strict: bool, normalize_json: bool, options: dict[str, str]
) -> Rendered[Body]:
    """The response body of an API."""
    if options:
        option, target = min(options), f"an answer of {api.name}"
        raise Unsupported(f"the option {option!r}", target, f"{target} has no option {option!r}; leave it out")
    together = api.serving.together
    answers = [exchange.response, *(exchange.others if together is not None else ())]
    losses = [] if together is not None else beyond_first(exchange, f"a body of {api.name}")
    asked: list[Loss] = []
    bodies: list[Rendered[Body]] = []
    for number, answer in enumerate(answers):
        response, changed = respelled_answer(answer) if normalize_json else (answer, [])
        asked += changed
        request = answered(api, exchange.request, response)
        bodies.append(api.render_response(response, request, reply=Reply(choice=number)))
        told = losses_in_source_words(answer, bodies[-1].losses, number)
        losses += [loss for loss in told if loss not in losses]  # each answer says all that its body says of itself
    _refuse(losses, api.name, strict=strict)
    if together is None or len(bodies) == 1:
        bodies[0].losses[:] = [*asked, *losses]
        return bodies[0]
    body: Body = dict(read_object(together([one.data for one in bodies])))
    return Rendered(body, [*asked, *losses])


def respelled_answer(response: Response) -> tuple[Response, list[Loss]]:
    """An answer with the JSON of its calls in one spelling, and where that is another one."""
    api = origin_of(response.origin)
    request = Request(conversation=Conversation(response.items), origin=response.origin, words=api.words if api else {})
    spelled, asked = respelled(request)
    return replace(response, items=spelled.items), in_source_words(request, asked)


def beyond_first(exchange: Exchange, holder: str) -> list[Loss]:
    """The answers behind the first, where there is place for one."""
    rest = f"of {len(exchange.others) + 1} has no place in {holder}, which holds one"
    return [
        Loss(_place_of(answer), "dropped", f"answer {number} {rest}")
        for number, answer in enumerate(exchange.others, 2)
    ]


def _place_of(answer: Response) -> str:
    """Where an answer among several stands; the body, if it says nothing."""
    at = answer.items[0].at if answer.items else ""
    return message_path(at) if at.startswith("$") and "]" in at else "$"


def _refuse(losses: list[Loss], target: str, *, strict: bool) -> None:
    if strict and losses:
        raise LossyConversion(losses, target)


def _exchange(said: object) -> Exchange:
    if isinstance(said, Exchange):
        return said
    if isinstance(said, Response):
        return alone(said)
    expected, got = "a Request, Response or Exchange", type_of(said)
    message = f"expected {expected}, got {got}; `convert` takes what `parse` reads"
    raise InvalidConversation(message, expected=expected, got=got)


def folded(request: Request) -> Request:
    """A request with its settings in the spelling of the API that it came from, as an archive keeps them."""
    api = origin_of(request.origin)
    return api.fold(request) if api is not None else request
