"""Owns answers: reading them, whole and piece by piece in the same way, and writing them as one body or as chunks.

| `finishReason` | model |
| --- | --- |
| `STOP` | `stop`; `tool_calls` where the answer has a call |
| `MAX_TOKENS` | `length` |
| `SAFETY` `RECITATION` `BLOCKLIST` and the like; a `promptFeedback` with a `blockReason` | `content_filter` |
| any other | the same: what the server said, which is no good end |

A whole answer is a chunk that says all. A stream is over with the chunk that says why. It is server-sent events, or one
array of JSON of which each element is a chunk.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnscript.apis.api import Api, Body, Rendering, Reply, leftover, merge
from turnscript.apis.gemini.contents import MODEL, Writer, read_part
from turnscript.apis.gemini.objects import ORIGIN, is_list, is_object, members_of, text_in, without
from turnscript.apis.shared.answers import (
    UNTOLD,
    Gathered,
    came_to_nothing,
    invalid_count,
    is_whole,
    lose_foreign,
    lose_id,
    missing_count,
    nameless,
    only_first,
    plain_reason,
)
from turnscript.apis.shared.chunk_streams import ChunkAnswer, ChunkWriter, encoded, lose_stop
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Issue,
    Item,
    Part,
    Raw,
    Refusal,
    Request,
    Response,
    Text,
    Thinking,
    ToolCall,
    Usage,
    text_content,
)
from turnscript.core.error_object import error_body, upstream_error
from turnscript.core.errors import InvalidRequest, TurnscriptError
from turnscript.core.events import MessageEnd, PartDelta, PartEnd, PartStart, ScoredDelta
from turnscript.core.finish_reasons import CALLED, FILTERED, LENGTH, STOP, check_end
from turnscript.core.framing import JSON_ARRAY, SSE
from turnscript.core.json_spelling import objects_in_one_spelling
from turnscript.core.json_text import NULL, Json, compact, excerpt, one_line, plain, read_count, read_list
from turnscript.core.source_paths import part_path
from turnscript.core.sse import HOLE, frame
from turnscript.core.wire import mismatch

_ENDS = {"STOP": STOP, "MAX_TOKENS": LENGTH} | dict.fromkeys(
    [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    ],
    FILTERED,
)
_WORDS = {STOP: "STOP", CALLED: "STOP", LENGTH: "MAX_TOKENS", FILTERED: "SAFETY"}
_AT = "$.candidates[0]"
_REASON, _CANDIDATES, _USAGE = "finishReason", "candidates", "usageMetadata"


# Reading.


class Assembly(ChunkAnswer):
    """One answer, as its chunks arrive. Texts that follow one another are pieces of one text."""

    origin = ORIGIN

    def __init__(self) -> None:
        super().__init__()
        self._any_index = False  # whether the candidate that is read may have any
        self._usage: Json | None = None
        self._rest, self._content = Gathered(), Gathered()
        self._open: Assistant | Thinking | None = None
        self._at = 0  # its index
        self._texts: list[str] = []  # of it
        self._seen = 0
        self._called = False

    def whole(self, body: Json) -> Response:
        self._any_index = True  # there is one
        return super().whole(body)

    def take(self, name: str, data: str) -> None:
        super().take(name, data)
        if self.reason is not None and self.ending is None:
            self.finish()

    def add_chunk(self, chunk: Json) -> None:
        members = members_of(chunk, "$")
        if members.get("error", NULL) != NULL:
            raise upstream_error(members["error"], chunk)
        candidates = members.pop(_CANDIDATES, NULL)
        self._usage = members.pop(_USAGE, self._usage)
        if candidates != NULL and not is_list(candidates):
            raise mismatch(candidates, "$.candidates", "an array of candidates")
        if candidates == NULL and "promptFeedback" not in members and self._usage is None:
            raise missing_candidates()
        said = self.said
        said.id, said.model = said.id or text_in(members, "responseId"), said.model or text_in(members, "modelVersion")
        said.extra |= without(members, ("responseId", "modelVersion"))
        found = (
            [members_of(one, f"$.{_CANDIDATES}[{at}]") for at, one in enumerate(read_list(candidates))]
            if is_list(candidates)
            else []
        )
        first = [one for one in found if self._any_index or read_count(one.get("index", NULL)) in (0, None)]
        if len(first) < len(found):
            self.parts.note(only_first(found[len(first) :]), "candidates")
        for candidate in first[:1]:
            self._candidate(candidate)
        feedback = members.get("promptFeedback")
        if not found and is_object(feedback) and text_in(members_of(feedback, "$.promptFeedback"), "blockReason"):
            self.reason = FILTERED

    def _candidate(self, candidate: dict[str, Json]) -> None:
        content = candidate.get("content", NULL)
        said = members_of(content, f"{_AT}.content") if content != NULL else {}
        parts = said.get("parts", NULL)
        if parts != NULL and not is_list(parts):
            raise mismatch(parts, f"{_AT}.content.parts", "an array of parts")
        for one in read_list(parts) if parts != NULL else ():
            self._part(one)
        self._content.add([(key, value) for key, value in said.items() if key != "parts"])
        reason = text_in(candidate, _REASON)
        if reason is None and candidate.get(_REASON, NULL) != NULL:
            raise mismatch(candidate[_REASON], f"{_AT}.{_REASON}", "a string")
        named = ("content", _REASON) if reason in ("STOP", "MAX_TOKENS") else ("content",)
        rest = [(key, one) for key, one in without(candidate, named).items() if one != NULL]
        self._rest.add([(key, one) for key, one in rest if key != "index" or one != Json(b"0")])
        if reason is not None and reason != "FINISH_REASON_UNSPECIFIED":
            self.reason = _ENDS.get(reason, reason)

    def _part(self, value: Json) -> None:
        at = f"{_AT}.content.parts[{self._seen}]"
        self._seen += 1
        found = read_part(value, at, model=True)
        if isinstance(found, Thinking | Text):
            self._text(found, at)
            return
        self._close_part()
        if isinstance(found, Raw):
            self.parts.note(Issue("unknown_part", f"{at} is kept as it is: {excerpt(value, 100)}"))
        if isinstance(found, Part):
            found = Assistant(content=[found], at=at)
        head, text = found, ""
        if isinstance(found, ToolCall):
            (found,) = objects_in_one_spelling([found])
            assert isinstance(found, ToolCall)
            found.id, text = found.id or None, found.arguments
            if not found.name:
                self.parts.note(nameless(text))
                return
            self._called, head = True, msgspec.structs.replace(found, arguments="")
        self.parts.close(self.parts.open(head, text), found)

    def _text(self, found: Thinking | Text, at: str) -> None:
        """More of a text or of a thought. One that says more than its text is the last of it."""
        thought = found if isinstance(found, Thinking) else None
        text = found.text if isinstance(found, Text) else text_content(found.content)
        more = bool(found.extra) or (thought is not None and thought.signature is not None)
        if self._open is None or isinstance(self._open, Thinking) != (thought is not None):
            if not (text or more):
                return
            self._close_part()
            self._open, self._texts = Thinking(at=at) if thought is not None else Assistant(at=at), []
            self._at = self.parts.open(msgspec.structs.replace(self._open))
        self._texts.append(text)
        self.parts.append(self._at, text)
        if more:
            self._close_part(found)

    def _close_part(self, last: Thinking | Text | None = None) -> None:
        part, self._open = self._open, None
        if part is None:
            return
        said = Text(text="".join(self._texts))
        part.content = [said]
        if isinstance(last, Text):
            said.extra = last.extra
        elif isinstance(part, Thinking) and last is not None:
            part.signature, part.extra = last.signature, last.extra
        self.parts.close(self._at, part)

    def finish(self) -> None:
        self._close_part()
        told, end = self._usage if self._usage is not None else NULL, self.said
        end.usage, rest, issues = (None, {}, []) if told == NULL else read_usage(told)
        end.finish_reason = CALLED if self.reason == STOP and self._called else self.reason
        if self.reason is None:
            issues.append(Issue("no_finish_reason", "the server did not say why the answer ended"))
        said, content = self._rest.joined(), self._content.joined()
        if content.get("role") == Json(b'"model"'):
            del content["role"]
        if content:
            said["content"] = leftover(content)
        if said:
            end.extra[_CANDIDATES] = leftover(said)
        if rest:
            end.extra[_USAGE] = leftover(rest)
        self.end(issues)


def missing_candidates() -> InvalidRequest:
    """The error for what is no answer."""
    expected = "a list of candidates"
    return InvalidRequest(f"required, but missing; expected {expected}", path="$.candidates", expected=expected)


_COUNTS = {"promptTokenCount": "input", "candidatesTokenCount": "output"}
_DETAILS = {"thoughtsTokenCount": "reasoning", "cachedContentTokenCount": "cached"}
_TOTAL = "totalTokenCount"


def read_usage(value: Json) -> tuple[Usage | None, Extra, list[Issue]]:
    """The counts, the members without a name in `Usage`, and what is no count. Thoughts are no part of the output
    here, and are in the model. A count that is left out is 0, but for that of the prompt."""
    at = f"$.{_USAGE}"
    if not is_object(value):
        return None, {}, [invalid_count(value, at)]
    members, issues, usage = members_of(value, at), [], Usage()
    told = {name: one for name, one in members.items() if one != NULL}
    for name, field in (_COUNTS | _DETAILS).items():
        count = read_count(told.get(name, _ZERO))
        if count is None:
            issues.append(invalid_count(told[name], f"{at}.{name}"))
        setattr(usage, field, count or 0)
    usage.output += usage.reasoning
    if "promptTokenCount" not in told:
        issues.append(missing_count(f"{at}.promptTokenCount"))
    if any(issue.detail.startswith(tuple(f"{at}.{name} " for name in _COUNTS)) for issue in issues):
        return None, told, issues
    rest = without(members, (*_COUNTS, *_DETAILS))
    if read_count(rest.get(_TOTAL, NULL)) == usage.input + usage.output:
        del rest[_TOTAL]
    return usage, rest, issues


_ZERO = Json(b"0")


# Writing.


ARRAY = b'"array"'
"""The member `stream` of a request is this where it asks for an array."""

_IN_TEXT = frozenset({"text", "thought"})
"""All members of a part that is a text and nothing else."""


class StreamWriter(ChunkWriter):
    """Writes an answer, whole or as chunks: server-sent events, or an array where the request asks for one. A call is
    sent when it is complete, because arguments are an object here."""

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(api, request, reply, response)
        self._array = request.framing == "array"
        self.framing = JSON_ARRAY if self._array else SSE
        self._called = self._is_cut = self._opened = self._scored = False
        self._parts: list[Any] = []  # of a whole answer
        self._last: type[Item] | None = None
        self._open: dict[int, type[Item]] = {}
        self._said: set[int] = set()
        self._text: dict[type[Item], bytes] = {}  # the chunk that tells a text, or a thought

    def _add(self, item: Item, parts: list[Any]) -> None:
        """Append the parts of an item of an answer."""
        if isinstance(item, ToolCall) and not is_whole(item):
            self._rendering.lose(item.at, "dropped", UNTOLD)
            return
        self._called = self._called or isinstance(item, ToolCall)
        if type(item) is self._last and isinstance(item, Assistant | Thinking):
            self._rendering.lose(item.at, "approximated", "joined with what was said before it: texts are one here")
        self._last = type(item)
        for index, part in enumerate(item.content if isinstance(item, Assistant) else ()):
            if index and isinstance(part, Text | Refusal):
                at = part_path(item, index)
                self._rendering.lose(at, "approximated", "joined with the text before it: texts are one here")
        written: list[Any] = []
        Writer(self._rendering, [item]).parts(item, written)
        for one in written:
            call = one.get("functionCall", {}) if isinstance(one, dict) else {}
            if isinstance(call.get("args"), Json):
                call["args"] = Json(compact(call["args"]).encode())
            before: Any = parts[-1] if parts else None
            both = isinstance(before, dict) and isinstance(one, dict) and before.keys() == one.keys()
            if both and "text" in one and _IN_TEXT.issuperset(one):
                before["text"] += one["text"]
            else:
                parts.append(one)

    def _put_end(self, body: Body, said: MessageEnd, rendering: Rendering) -> None:
        """Write how the answer ended, what it took, and its other members."""
        candidate: Body = body[_CANDIDATES][0]
        extra = {} if rendering.foreign else dict(said.extra)
        rest = plain(extra.pop(_CANDIDATES)) if _CANDIDATES in extra else {}
        word = plain_reason(rendering, said.finish_reason, called=self._called, cut=self._is_cut)
        if word == STOP and self._called:
            rendering.lose("$.finish_reason", "approximated", "an answer with a call ends for it here")
        candidate[_REASON] = _WORDS.get(word, word)
        if _REASON in rest and _ENDS.get(rest[_REASON]) != said.finish_reason:
            del rest[_REASON]
        candidate |= {key: value for key, value in rest.items() if key != "content"}
        candidate.get("content", {}).update(rest.get("content", {}))
        if said.usage is not None:
            body[_USAGE] = _usage(said.usage)
            if said.usage.cache_written:
                rendering.lose("$.usage", "dropped", "tokens that a cache has taken are not told here")
        merge(body, extra)
        lose_stop(rendering, said.stop_sequence, candidate)
        if rendering.foreign:
            lose_foreign(rendering.losses, rendering.target, said.extra, said.usage)

    # Chunks.

    def _told(self, kind: type[Item], text: bytes) -> bytes:
        if kind not in self._text:
            thought = {"thought": True} if kind is Thinking else {}
            chunk = msgspec.json.encode(self._chunk([{"text": HOLE, **thought}]))
            self._text[kind] = chunk.replace(b"%", b"%%").replace(b"\0", b"%b")
        return self._framed(self._text[kind] % text)

    def _chunk(self, parts: list[Any], model: str | None = None) -> Body:
        candidate: Body = {"content": {"parts": parts, "role": MODEL}, "index": self._reply.choice}
        model = self._request.settings.model or model or ""
        return {_CANDIDATES: [candidate], "modelVersion": model, "responseId": self.id}

    def _framed(self, chunk: bytes) -> bytes:
        if not self._array:
            return frame(one_line(chunk))
        before, self._opened = b",\r\n" if self._opened else b"[", True
        return before + one_line(chunk)

    def _begin(self) -> None:
        """A chunk with an empty text, for who waits for a first one."""
        self._out.append(self._alive())

    def _alive(self) -> bytes:
        """Return a chunk with an empty text, as often as it takes: clients do not read comments."""
        return self._told(Assistant, b'""')

    def _start(self, event: PartStart) -> None:
        self._open[event.index] = type(event.part)
        if self._now is None and isinstance(event.part, Assistant | Thinking):
            self._now = event.index

    def _delta(self, event: PartDelta) -> None:
        if isinstance(event, ScoredDelta) and event.tokens and not self._scored:
            self._scored = True
            self._rendering.lose("$.logprobs", "dropped", _NO_SCORES)
        if event.index != self._now or not event.text:
            return
        self._said.add(event.index)
        self._out.append(self._told(self._open[event.index], encoded(event.text)))

    def _end(self, event: PartEnd) -> None:
        said, part = event.index in self._said, event.part
        kind = self._open.pop(event.index, None)
        self._now = None if self._now == event.index else self._now
        if self._response is None:
            self._rendering = self.rendering(event.origin)
        if part is None:
            self._is_cut = self._is_cut or kind is ToolCall
            self._rendering.lose(f"items[{event.index}]", "approximated", came_to_nothing(said))
            return
        if self._response is not None:
            self._add(part, self._parts)
            return
        parts: list[Any] = []
        self._add(part, parts)
        if said:
            parts = [rest for one in parts if (rest := _without_text(one))]
        if parts:
            self._out.append(self._framed(encoded(self._chunk(parts))))

    def _cut(self, call: ToolCall, index: int) -> None:
        """It has no place, because its arguments are no object: its issue tells of it."""
        self._is_cut = True

    def _finish(self, end: MessageEnd) -> None:
        check_end(end.finish_reason)
        rendering, response = self.rendering(end.origin), self._response
        if response is None:
            if self._reply.id is None:
                lose_id(rendering, end.id, self.id)
            body = self._chunk([])
            self._put_end(body, end, rendering)
            self._out.append(self._framed(encoded(body)))
            return
        if response.logprobs:
            rendering.lose("$.logprobs", "dropped", _NO_SCORES)
        self.id = self.whole_id(response)
        self._body = self._chunk(self._parts, end.model)
        self._put_end(self._body, end, rendering)

    def _fail(self, error: TurnscriptError) -> None:
        self._out += [self._framed(error_bytes(error)[1]), self._tail()]

    def _tail(self) -> bytes:
        return b"]" if self._array else b""


_NO_SCORES = "how likely tokens were is not told here"


def _usage(usage: Usage) -> Body:
    counts = {"promptTokenCount": usage.input, "candidatesTokenCount": max(0, usage.output - usage.reasoning)}
    counts |= {name: getattr(usage, field) for name, field in _DETAILS.items() if getattr(usage, field)}
    return counts | {_TOTAL: usage.input + usage.output}


def _without_text(part: Any) -> Body | None:
    """Return what of a part its deltas have not said; None for one that they have."""
    if not isinstance(part, dict) or "text" not in part:
        return part
    rest = {key: value for key, value in part.items() if key not in ("text", "thought")}
    return {**part, "text": ""} if rest else None


# Errors.

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_bytes(error: TurnscriptError) -> tuple[int, bytes]:
    """Status and body of an error, in the shape that clients of this API branch on."""
    status, body = error_body(error)
    said = {"code": status, "message": body["error"]["message"], "status": _STATUS.get(status, "INTERNAL")}
    return status, encoded({"error": said})
