"""Owns the Gemini API: `models/{model}:generateContent` and its streams, read and written.

| wire | model |
| --- | --- |
| `systemInstruction` | a leading `System` |
| content of role `user`, `function`, or of none: its `text` `inlineData` `fileData` parts | parts of a `User` |
| its `functionResponse` parts | a `ToolResult` each |
| content of role `model`: a `text` part with `thought` | `Thinking`; its `thoughtSignature` is the signature |
| its other `text`, and what it holds of data | parts of an `Assistant` |
| its `functionCall` parts | a `ToolCall` each |
| any other part; a content of another role, or without parts | `Raw`; `Opaque` |
| `tools` `toolConfig` `generationConfig` | see `options` |
| `safetySettings` `cachedContent` and all others; a `thoughtSignature` of any other part | `extra` |

The model and whether to stream are said by the path. A stream is server-sent events where the query says `alt=sse`,
and else one array of JSON. Arguments of calls are objects, which come whole; ids of calls may be missing.

Spec: https://ai.google.dev/api/generate-content and the types of the SDK google-genai 3.6.1, read 2026-11-29.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from turnscript.apis.api import Api, Body, Option, Rendering, Reply
from turnscript.apis.gemini.answers import ARRAY, Assembly, StreamWriter, error_bytes
from turnscript.apis.gemini.contents import UNPLACED, Writer, read_contents, read_system
from turnscript.apis.gemini.objects import ORIGIN, WORDS, is_list, is_object, respelled
from turnscript.apis.gemini.options import OPTIONS, read_tools, write_tools
from turnscript.apis.serving import ModelCard, PathForm, Serving, unasked
from turnscript.core.conversation import Opaque, Request, Response, System
from turnscript.core.errors import InvalidRequest, TurnscriptError
from turnscript.core.events import fold
from turnscript.core.framing import JSON_ARRAY, SSE, Framing
from turnscript.core.json_text import NULL, Json, read_list, read_object
from turnscript.core.payloads import Source, body_bytes


def _model(card: ModelCard) -> dict[str, Any]:
    body: dict[str, Any] = {"name": f"models/{card.id}", "version": "1", "displayName": card.id}
    limits = {"inputTokenLimit": card.context, "outputTokenLimit": card.answer or card.context}
    body |= {name: limit for name, limit in limits.items() if limit is not None}
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    return body | {"supportedGenerationMethods": methods, "thinking": card.thinks}


def _unasked(request: Request) -> InvalidRequest | None:
    said = [item for item in request.items if not isinstance(item, System | Opaque)]
    return None if said else unasked("$.contents", "content")


def _together(bodies: Sequence[bytes]) -> bytes:
    """Several answers to one request as one: the first of them, with the candidates of all."""
    joined: Body = dict(read_object(bodies[0]))
    joined["candidates"] = [one for body in bodies for one in read_list(read_object(body)["candidates"])]
    return msgspec.json.encode(joined)


_METHOD = "models/{model}:"
_SSE = {"alt=sse": b"true"}
SERVING = Serving(
    models=lambda cards: msgspec.json.encode({"models": [_model(card) for card in cards]}),
    model=lambda card: msgspec.json.encode(_model(card)),
    header="x-goog-api-key",
    count=lambda tokens: msgspec.json.encode({"totalTokens": tokens}),
    unasked=_unasked,
    together=_together,
    seals=lambda request: True,
    key_parameter="key",
    lists=("/v1beta/models",),
    paths=tuple(
        form
        for version in ("/v1beta/", "/v1/")
        for form in (
            PathForm(f"{version}{_METHOD}generateContent", stream=b"false"),
            PathForm(f"{version}{_METHOD}streamGenerateContent", stream=ARRAY, by_query=_SSE),
            PathForm(f"{version}{_METHOD}countTokens", counts=True),
        )
    ),
)


class Gemini(Api):
    """The Gemini API."""

    name = "gemini"
    title = "Gemini generateContent"
    endpoint = f"/v1beta/{_METHOD}generateContent"
    origin = ORIGIN
    serving = SERVING
    options: ClassVar[Sequence[Option]] = OPTIONS
    words = WORDS
    unplaced = UNPLACED
    framings: ClassVar[Mapping[bytes, Framing]] = {b"true": SSE, ARRAY: JSON_ARRAY}
    signs: ClassVar[Mapping[str, int]] = {"contents": 2}
    answer_signs: ClassVar[Mapping[str, int]] = {"candidates": 2, "promptFeedback": 2, "usageMetadata": 1}
    has_objects = True

    def named(self, members: dict[str, Any]) -> dict[str, Any]:
        """A body with its members under their usual names. One that counts tokens may have them in a member."""
        members = respelled(members)
        inner = members.get("generateContentRequest")
        if "contents" not in members and isinstance(inner, Json) and is_object(inner):
            members |= respelled(read_object(members.pop("generateContentRequest")))
        return members

    def read(self, members: dict[str, Any], request: Request) -> None:
        """Instructions, contents and tools. What of them has no form in the model stays unnamed."""
        if read_system(members.get("systemInstruction"), request.items):
            del members["systemInstruction"]
        read_contents(members.pop("contents", None), request.items)
        tools = members.get("tools")
        if is_list(tools) and all(map(is_object, read_list(tools))) and read_list(tools):
            read_tools(members.pop("tools"), request)

    def write(self, body: Body, rendering: Rendering) -> None:
        """Instructions, contents and tools."""
        writer = Writer(rendering, rendering.request.items)
        writer.write(body)
        rendering.lose_end()
        write_tools(body, rendering, writer.changes)

    def parse_response(self, body: Source) -> Response:
        """A whole answer, of several candidates the first; or a stream that is an array."""
        return self.parse_responses(body)[0]

    def parse_responses(self, body: Source) -> list[Response]:
        """An answer for each candidate."""
        data = body_bytes(body)
        if data.lstrip()[:1] == b"[":
            parser = self.stream_parser()
            return [fold([*parser.feed(data), *parser.close()])]
        members = respelled(read_object(data))
        candidates = members.get("candidates")
        several = read_list(candidates) if is_list(candidates) else []
        told = [members | ({"candidates": [one]} if several else {}) for one in several or [NULL]]
        found = [self.reader().whole(Json(msgspec.json.encode(one))) for one in told]
        for number, response in enumerate(found):
            for item in response.items:
                item.at = item.at.replace("[0]", f"[{number}]", 1)
        return found

    def reader(self) -> Assembly:
        """Return what reads an answer."""
        return Assembly()

    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> StreamWriter:
        """Return what writes an answer."""
        return StreamWriter(self, request, reply, response)

    def render_error(self, error: TurnscriptError, *, request_id: str | None = None) -> tuple[int, bytes]:
        """Status and body of an error."""
        return error_bytes(error)


APIS = (Gemini(),)
