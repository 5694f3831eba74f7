"""Owns the members of a response that repeat the request, with what they are when the request does not say them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw as RawJson

from turnscript.apis.api import OFFICIAL, Api, Body
from turnscript.apis.openai_responses.tools import write_tools
from turnscript.apis.openai_responses.writing import Writer
from turnscript.core.conversation import Extra, Request
from turnscript.core.json_text import Json
from turnscript.core.message_groups import slot_of

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
    if request.tools or (request.items and slot_of(request.items[0])):
        return _encoded(api, request)
    try:
        settings = _encode((api.name, request.settings, request.extra, request.hints, request.origin))
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
    rendering = api.rendering(request, OFFICIAL, {})
    body: Body = {}
    api.write_options(body, rendering)
    settings = request.settings
    body |= {name: value for name in SAMPLED if (value := getattr(settings, name)) is not None}
    if request.items and slot_of(request.items[0]):
        Writer(rendering, request.items).write_instructions(body)
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


def _full(tool: Body) -> Body:
    """A tool with all that a function has in a response, whether or not its request says it."""
    unsaid = [name for name in ("description", "parameters", "strict") if name not in tool]
    return tool | dict.fromkeys(unsaid) if tool["type"] == "function" else tool


def _conversation(value: Any) -> Any:
    """A request may give the id alone."""
    is_id = isinstance(value, Json) and bytes(value).lstrip()[:1] == b'"'
    return {"id": value} if is_id else value
