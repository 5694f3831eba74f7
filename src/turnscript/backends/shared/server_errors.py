"""Owns what a model server says when it refuses: its words, whatever body they came in, and what to do about it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from turnscript.core.error_object import page_in, upstream_error
from turnscript.core.errors import InvalidRequest, UpstreamError
from turnscript.core.json_text import Json, is_json, read_object, text_of

SHOWN = 2000
"""How much of what a server said an error keeps."""


def refusal(status: int, body: bytes) -> UpstreamError:
    """An answer with an error's status, whatever its body holds: an error object, a `detail`, a page, or nothing.

    Some servers repeat what was sent, and clients branch on the words of an error: the echo is left out.
    """
    whole = _without_echo(body.decode("utf-8", "replace"))
    said = whole[:SHOWN].strip()
    retryable = status in (408, 429) or status >= 500
    message = page_in(said) or _words_of(whole) or said[:300] or "nothing else"
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


_ECHOES = frozenset({"input", "body"})
"""Where FastAPI's lists of what is wrong with a request repeat the request."""
_SAYING = frozenset({"detail", "error", "errors", "message", "msg"})
"""One of these stands beside an echo. Where none does, it is what the server says."""
_LISTED = re.compile(r"""(?P<name>['"]input['"]: ?).*""", re.DOTALL)
"""The same where a list is text: as Python shows it, or cut off. What comes behind the first echo is beyond reading."""
_SAID = ("loc", "msg")
_DEPTH = 5


def _without_echo(body: str) -> str:
    """A body without what it repeats of the request; as it came if it repeats nothing."""
    if "input" not in body and '"body"' not in body:
        return body
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _cut(body)
    spared = _spared(said, _DEPTH)
    return body if spared == said else msgspec.json.encode(spared).decode()


def _spared(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if depth and isinstance(value, dict):
        echoes = frozenset() if _SAYING.isdisjoint(value) else _ECHOES
        return {key: _spared(one, depth - 1) for key, one in value.items() if key not in echoes}
    if depth and isinstance(value, list):
        return [_spared(one, depth - 1) for one in value]
    return value


def _cut(listed: str) -> str:
    """What a text says before the first echo, if it lists what is wrong with a request."""
    found = _LISTED.search(listed)
    known = found is not None and all(re.search(rf"['\"]{name}['\"]:", listed[: found.end("name")]) for name in _SAID)
    return _LISTED.sub(r"\g<name>...", listed) if known else listed


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
    if is_json(data):
        with suppress(InvalidRequest):  # half of a surrogate pair
            return upstream_error(Json(data.encode()), data)
    return UpstreamError(f"the server says: {data[:300]}", body=data[:SHOWN], retryable=True)
