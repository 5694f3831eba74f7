"""Owns whole responses: reading one, and writing the one that answers a request.

Of the members of a response, `output`, `status`, `usage`, `id` and `model` are typed; all others are in
`Response.extra`, those that repeat the request included.

Its other members repeat the request, with what they are when the request does not say them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec import Raw as RawJson
from msgspec.structs import replace

from turnscript.apis.api import OFFICIAL, Api, Body, Reply, leftover, merge
from turnscript.apis.openai_responses.options import ORIGIN
from turnscript.apis.openai_responses.outcome import (
    COMPLETED,
    COUNTS,
    INCOMPLETE,
    ResponseObject,
    ending_with_cut_call,
    read_ending,
    said,
    write_ending,
)
from turnscript.apis.openai_responses.output import Output
from turnscript.apis.openai_responses.tools import write_tools
from turnscript.apis.shared.answers import (
    lose_foreign,
    lose_usage,
    nameless,
    read_usage,
    tier_of,
    write_usage,
)
from turnscript.apis.streams import created_of
from turnscript.core.conversation import Extra, Issue, Item, Request, single_text
from turnscript.core.events import MessageEnd
from turnscript.core.json_text import Json, excerpt, json_of, members_in, plain, read_object
from turnscript.core.losses import Loss
from turnscript.core.wire import extra_of, given

_encode = msgspec.json.Encoder().encode

DEFAULTS: Body = {
    "background": False,
    "completed_at": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
"""Strict clients want these members in every response; the values hold where nobody says anything else."""
SAMPLED = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
"""Whoever runs the model may know these members better than its request."""

_ENCODED_DEFAULTS = {key: RawJson(_encode(value)) for key, value in DEFAULTS.items()}
_ALSO = frozenset(
    {"access_programs", "conversation", "image", "prompt", "prompt_cache_options", "prompt_cache_retention"}
)
_SERVER_DECIDES = frozenset({"service_tier"})


class Echo:
    """The repeated members of the responses to one request, encoded once: a stream says them three times."""

    def __init__(self, api: Api, request: Request) -> None:
        self._said, self._all, self._rest = _repeated(api, request)

    def add(self, body: Body, extra: Extra) -> None:
        """Add them to a response. `extra` holds what another server said of itself: that counts where the request says
        nothing, and where it is not the request that decides."""
        if not extra and _COMPLETED in body:
            body.update(self._rest)
            return
        for key, value in extra.items():
            if key not in body and (key not in self._said or key in _SERVER_DECIDES):
                body[key] = value
        body |= self._all | body


_COMPLETED = "completed_at"
"""The one of them that a response may say itself."""
_Repeated = tuple[Body, Body, Body]
"""What a request says, encoded; the same with all that it does not say; and that without what a response may say."""


def _repeated(api: Api, request: Request) -> _Repeated:
    """What is repeated of a request. It is read alone: where nothing stands in it but settings, those of one client are
    the same again and again."""
    if request.tools or _is_instructed(request):
        return _encoded(api, request)
    try:
        settings = _encode((api.name, request.settings, request.extra, request.origin))
    except UnicodeEncodeError:  # half of a surrogate pair; whoever writes it says where
        return _encoded(api, request)
    found = _known.get(settings)
    if found is None:
        found = _encoded(api, request)
        if len(settings) <= _LONGEST:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[settings] = found
    return found


_known: dict[bytes, _Repeated] = {}
_MOST_KNOWN, _LONGEST = 500, 2000  # a few megabytes at most


def _encoded(api: Api, request: Request) -> _Repeated:
    said = {key: RawJson(_encode(value)) for key, value in _said(api, request).items()}
    every = said | (_ENCODED_DEFAULTS | said)
    return said, every, {key: value for key, value in every.items() if key != _COMPLETED}


def _said(api: Api, request: Request) -> Body:
    """What the request says. The losses of writing it are those of the request, and not told again."""
    rendering = api.rendering(replace(request, source=None), OFFICIAL, {})
    body: Body = {}
    api.write_options(body, rendering)
    settings = request.settings
    body |= {name: value for name in SAMPLED if (value := getattr(settings, name)) is not None}
    if _is_instructed(request) and (value := _instructions(request)) is not None:
        body["instructions"] = value
    if request.tools:
        body["tools"] = list(map(_full, write_tools(rendering, request.tools, "$.tools")))
    rendering.put_extra(body, request.extra, "$")
    found = {key: value for key, value in body.items() if key in DEFAULTS or key in _ALSO}
    for key, value in list(found.items()):
        if isinstance(value, Json) and bytes(value).strip() == b"null":
            del found[key]
    for key in ("text", "reasoning"):
        if isinstance(found.get(key), dict):
            found[key] = DEFAULTS[key] | found[key]
    if "conversation" in found:
        found["conversation"] = _conversation(found["conversation"])
    return found


def _is_instructed(request: Request) -> bool:
    return bool(request.items) and request.items[0].at.startswith("$.instructions")


def _instructions(request: Request) -> Any:
    """What stood in `instructions`."""
    if request.source is not None:
        return read_object(request.source.data).get("instructions")
    return single_text(getattr(request.items[0], "content", []))


def _full(tool: Body) -> Body:
    """A tool with all that a function has in a response, whether or not its request says it."""
    unsaid = [name for name in ("description", "parameters", "strict") if name not in tool]
    return tool | dict.fromkeys(unsaid) if tool["type"] == "function" else tool


def _conversation(value: Any) -> Any:
    """A request may give the id alone."""
    is_id = isinstance(value, Json) and bytes(value).lstrip()[:1] == b'"'
    return {"id": value} if is_id else value


_NO_NAME = Json(b'""')

# Reading.


def untold_call(value: Json) -> Issue:
    """The issue for a call that is not complete, or has no name."""
    members = read_object(value)
    if members.get("name") == _NO_NAME:
        return nameless(str(plain(members.get("arguments", members.get("input", _NO_NAME)))))
    return Issue("unclosed_call", f"the response ends inside a call, which is left out: {excerpt(value, 200)}")


def ending(wire: ResponseObject, items: list[Item]) -> MessageEnd:
    """What a response object says of itself, as the last event."""
    extra = said(extra_of(wire))
    usage, issues = None, list[Issue]()
    if wire.usage is not UNSET:
        usage, unnamed, issues = read_usage(wire.usage, "$.usage", COUNTS)
        if said(unnamed):
            extra["usage"] = leftover(said(unnamed))
    details = {} if wire.incomplete_details is UNSET else extra_of(wire.incomplete_details)
    if said(details):
        extra["incomplete_details"] = leftover(said(details))
    reason = read_ending(wire, items)
    if reason == INCOMPLETE:
        issues = [*issues, Issue("missing_reason", "the response does not say why it is incomplete")]
    return MessageEnd(
        finish_reason=reason,
        usage=usage,
        issues=issues,
        id=given(wire.id) or None,
        model=given(wire.model) or None,
        extra=extra,
        origin=ORIGIN,
    )


# Writing.


_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})


def own_extra(told: MessageEnd, losses: list[Loss]) -> Extra:
    """The unnamed members, where they are this API's; those of another API's response that have no place are losses."""
    extra = told.extra
    if told.origin in (None, ORIGIN):
        lose_usage(losses, told.usage, extra)
        return extra
    said = {"created_at": created_of(extra), "service_tier": tier_of(extra, _TIERS)}
    said = {name: value for name, value in said.items() if value is not None}
    lose_foreign(losses, "a response", extra, told.usage, said)
    return {name: json_of(value) for name, value in said.items()}


class Report:
    """Writes the response object.

    `created_at` is 0 and `completed_at` null unless somebody says when: two renders must be the same.
    """

    def __init__(self, api: Api, request: Request, id_: str, reply: Reply) -> None:
        self.id = id_
        self._reply = reply
        self._model = request.settings.model
        self._echo = Echo(api, request)
        self._sampled = {name: reply.sampling[name] for name in SAMPLED if name in reply.sampling}

    def conclude(
        self, output: Output, said: MessageEnd, items: Iterable[Item], written: Callable[[str], list[Any]]
    ) -> tuple[str, Body]:
        """Return how a response is over, and the object that says so. Raises UpstreamError for one that failed.

        `written`: its output, by the status of its last item.
        """
        status, reason = write_ending(said.finish_reason, items, output.lose, own=said.origin == ORIGIN)
        if output.unfinished:
            status, reason = ending_with_cut_call(status, reason, output.lose)
        told = written(INCOMPLETE if status == INCOMPLETE else COMPLETED)
        if status == INCOMPLETE and self._reply.incomplete_as != INCOMPLETE:
            output.lose("$.finish_reason", "approximated", "told as completed, because the client takes no other end")
            status = self._reply.incomplete_as
        if said.stop_sequence is not None:
            output.lose("$.stop_sequence", "dropped", "a response does not say which stop string was met")
        end = MessageEnd(usage=said.usage, model=said.model, extra=own_extra(said, output.losses))
        return status, self.body(status, told, end, reason=reason)

    def body(
        self, status: str, output: list[Any], end: MessageEnd, *, reason: str | None = None, error: Body | None = None
    ) -> Body:
        """The response object with that output. The model's name is the one that the client asked for."""
        extra, reply = end.extra, self._reply
        body: Body = {
            "id": self.id,
            "object": "response",
            "created_at": _number(extra.get("created_at")) if reply.created is None else reply.created,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": reason} if reason is not None else None,
            "model": self._model or end.model or "",
            "output": output,
            "usage": None,
        }
        if status == COMPLETED and reply.completed is not None:
            body["completed_at"] = reply.completed()
        if end.usage is not None:
            body["usage"] = write_usage(end.usage, members_in(extra.get("usage")), COUNTS)
        if reason is not None:
            merge(body["incomplete_details"], members_in(extra.get("incomplete_details")))
        self._echo.add(body, extra)
        body.update(self._sampled)
        if reply.members:
            body.update(reply.members)
        return body


def _number(value: Json | None) -> float:
    number = plain(value) if value is not None else 0
    return number if isinstance(number, int | float) else 0
