"""Owns what a model server says when it refuses: its words, whatever body they came in, and what to do about it."""

from __future__ import annotations

import re

import msgspec

from turnscript.errorobject import page_in, upstream_error
from turnscript.errors import InvalidRequest, UpstreamError
from turnscript.jsontext import Json, read_object, text_of

SHOWN = 2000
"""How much of what a server said an error keeps."""


def refusal(status: int, body: bytes) -> UpstreamError:
    """An answer with an error's status, whatever its body holds: an error object, a `detail`, a page, or nothing."""
    said = body[:SHOWN].decode("utf-8", "replace").strip()
    retryable = status in (408, 429) or status >= 500
    message = page_in(said) or _words_of(body.decode("utf-8", "replace")) or said[:300] or "nothing else"
    wanted = status in _OF_MODELS and _WHICH_MODEL.search(message[:SHOWN])
    hint = _HINT_MODEL if wanted else _HINTS.get(status, "")
    return UpstreamError(
        f"the model server answers {status}: {message}{hint}", upstream=status, body=said, retryable=retryable
    )


_HINTS = {
    401: " (check the key that the gateway has for this server)",
    403: " (check the key that the gateway has for this server)",
    404: " (check the path of this server's URL, and which kind of server it is)",
    405: " (check the path of this server's URL, and which kind of server it is)",
}


_OF_MODELS = (400, 404, 422)
_HINT_MODEL = " (say in the gateway's configuration what this server calls its model: `upstream_model`)"
_WHICH_MODEL = re.compile(
    r"\bmodel\b\S{0,9}(?: \S{1,200}){0,2} not (?:found|exist|loaded)\b"  # its name and an auxiliary verb between
    r"|\bmodel\b\W{0,3} (?:is|was) (?:a )?(?:required|missing)\b"
    r"|\bmodel\"\], ?\"msg\": ?\"field required"
    r"|\b(?:missing|invalid|unknown|no such)\W{1,4}(?:(?:or|invalid|required|parameter|field|key)\W{1,4}){0,3}"
    r"model\b(?! (?:parameter|output))"
    r"|\bmust provide a model\b",
    re.IGNORECASE,
)
"""A server that has several models, and was not told which one or does not know the name."""


def _words_of(body: str) -> str:
    """The message in an error's body, as far as it is one of the usual shapes."""
    try:
        members = read_object(body)
    except InvalidRequest:
        return ""
    if "error" in members:
        return str(upstream_error(members["error"], body)).removeprefix("the server says: ")
    for name in ("message", "detail"):
        if name in members:
            text = text_of(members[name])
            return str(msgspec.json.decode(text)) if text[:1] == '"' else text[:500]
    return ""


def told_as_error(data: str) -> UpstreamError:
    """An event that is called an error, and is one whatever it holds."""
    try:
        return upstream_error(Json(data.encode()), data)
    except InvalidRequest:
        return UpstreamError(f"the server says: {data[:300]}", body=data[:SHOWN], retryable=True)
