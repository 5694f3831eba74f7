"""Owns the answers of this API: one text, whole or in chunks of the same shape.

| wire | model |
| --- | --- |
| `choices[0].text`, or a chunk's `delta.content`, as one server writes it | one `Assistant` text |
| `finish_reason` | the same word |
| `stop_reason`, `matched_stop`: a stop string, as two servers name it | `stop_sequence`, and in `extra` |
| other members of the choice, such as `logprobs` | `extra`, under `choices` |
| `logprobs` of the choice, in lists side by side; only written | `logprobs` |

Only texts can be written: thoughts and calls are reported.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import chain
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from turnscript.apis.api import OFFICIAL, Api, Body, Rendering, Reply, extra_of, merge
from turnscript.apis.shared.answers import (
    Counts,
    came_to_nothing,
    created_of,
    index_of,
    lose_foreign,
    lose_id,
    lose_usage,
    made_id,
    plain_reason,
    write_usage,
)
from turnscript.apis.shared.chunk_streams import ChoiceAnswer, ChunkEnding, asks_usage, encoded
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Extra,
    Item,
    Part,
    Refusal,
    Request,
    Response,
    Text,
    Usage,
)
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, ScoredDelta, no_event
from turnscript.core.finish_reasons import CALLED, STOP, check_end
from turnscript.core.json_text import Json, plain, read_object
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.losses import Loss
from turnscript.core.source_paths import not_here, part_path
from turnscript.core.sse import HOLE, frame, template
from turnscript.core.wire import Reader, Wire

ORIGIN = "openai-completions"
OBJECT = "text_completion"
COUNTS = Counts(
    "prompt_tokens",
    "completion_tokens",
    (("prompt", "prompt_tokens"), ("completion", "completion_tokens"), ("total", "total_tokens")),
)
_STOPS = ("stop_reason", "matched_stop")
_NULL = Json(b"null")


class Delta(Wire):
    content: str | UnsetType | None = UNSET


class Choice(Wire):
    text: str | UnsetType | None = UNSET
    delta: Delta | UnsetType | None = UNSET
    index: int | UnsetType | None = UNSET
    finish_reason: str | UnsetType | None = UNSET
    logprobs: Json | UnsetType = UNSET
    stop_reason: Json | UnsetType = UNSET
    matched_stop: Json | UnsetType = UNSET


class Answer(Wire):
    id: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    choices: list[Choice] | UnsetType | None = UNSET
    usage: Json | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    object: Json | UnsetType = UNSET
    created: Json | UnsetType = UNSET
    system_fingerprint: Json | UnsetType = UNSET


# Reading.


class Assembly(ChoiceAnswer):
    """One answer, as its chunks arrive."""

    origin = ORIGIN
    read: ClassVar[Reader[Answer]] = Reader(Answer)
    counts = COUNTS
    kept = ("object", "created", "system_fingerprint", "error")

    def __init__(self, is_whole: bool = False) -> None:
        super().__init__(is_whole)
        self._texts: list[str] = []
        self._seen = False  # a text, though it be empty

    def conclude(self) -> Extra:
        if self._texts:
            self.parts.close(0, Assistant(content=[Text(text="".join(self._texts))], at="$.choices[0].text"))
        if not self._seen:
            self.note("missing_text", "there is a choice without a text")
        return self.rest.joined()

    def choose(self, choice: Choice) -> None:
        text = choice.text or (choice.delta.content if isinstance(choice.delta, Delta) else choice.text)
        self.note_late(choice.finish_reason, says=bool(text))
        self.reason = choice.finish_reason or self.reason
        self._seen = self._seen or isinstance(text, str)
        if not isinstance(text, str) and not choice.finish_reason:
            self.note("missing_text", "there is a choice without a text")
        if isinstance(text, str) and text:
            if not self._texts:
                self.parts.open(Assistant(at="$.choices[0].text"))
            self._texts.append(text)
            self.parts.append(0, text)
        rest = extra_of(choice.rest)
        for name in ("logprobs", *_STOPS):
            value = getattr(choice, name)
            if value is UNSET or value == _NULL:
                rest.pop(name, None)
                continue
            rest[name] = value
            if name in _STOPS and bytes(value)[:1] == b'"' and choice.finish_reason == STOP:
                self.said.stop_sequence = plain(value)
        self.rest.add(rest.items())


# Writing.


class _Lists:
    """Tokens as lists side by side, each with its place in the text so far."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0

    def of(self, tokens: Iterable[TokenLogprob]) -> Body:
        """More tokens. The one that is stands among the likeliest."""
        body: Body = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            body["tokens"].append(token.token)
            body["token_logprobs"].append(token.logprob)
            body["top_logprobs"].append({one.token: one.logprob for one in (*token.top_logprobs, token)})
            body["text_offset"].append(self._at)
            self._at += len(self._decoder.decode(bytes(token.bytes or b"")))
        return body


class _Writer:
    """What whole answers and chunks have in common."""

    def __init__(self, api: Api, request: Request) -> None:
        self.losses: list[Loss] = []
        self._api = api
        self._request = request
        self._speaks = False

    def rendering(self, items: list[Item], origin: str | None) -> Rendering:
        """A rendering that reports to `losses`, for a response that came from an API, or from none."""
        request = Request(conversation=Conversation(items=items), origin=origin)
        rendering = self._api.rendering(request, OFFICIAL, {})
        rendering.losses = self.losses
        return rendering

    def text_of(self, rendering: Rendering, item: Item) -> str:
        """What can be said of a part; the rest is reported."""
        if not isinstance(item, Assistant):
            rendering.lose(
                item.at, "dropped", f"an answer here is a text: no place for a {item.kind.replace('_', ' ')}"
            )
            return ""
        for member in ("id", "phase", "name"):
            if getattr(item, member) is not None:
                rendering.lose(f"{item.at}.{member}", "dropped", f"a text has no {member} here")
        rendering.losses += [not_here("a text", f"{item.at}.{key}", value) for key, value in item.extra.items()]
        return "".join([self._part(rendering, part, part_path(item, index)) for index, part in enumerate(item.content)])

    def _part(self, rendering: Rendering, part: Part, at: str) -> str:
        """What can be said of a content part. Of those that say something, all but the first are joined with it."""
        text = self._said_of(rendering, part, at)
        if text:
            if self._speaks:
                rendering.lose(at, "approximated", "joined with the text before it")
            self._speaks = True
        return text

    def _said_of(self, rendering: Rendering, part: Part, at: str) -> str:
        rendering.losses += [not_here("a text", f"{at}.{key}", value) for key, value in part.extra.items()]
        if isinstance(part, Text):
            return part.text
        if isinstance(part, Refusal):
            rendering.lose(at, "approximated", "a refusal is written as text")
            return part.text
        rendering.lose(at, "dropped", f"a text has no place for a part of kind {type(part).__name__.lower()}")
        return ""

    def choice(self, rendering: Rendering, end: Response | MessageEnd, text: str) -> Body:
        """The choice with the finish reason."""
        reason = end.finish_reason
        word = STOP if reason is None else plain_reason(rendering, reason)
        if reason is None:
            rendering.lose("$.finish_reason", "invented", "nobody said why the answer ended: stop")
        elif word == CALLED:
            word = STOP
            rendering.lose("$.finish_reason", "approximated", f"{reason} is said as {word}")
        rest = read_object(end.extra["choices"]) if "choices" in end.extra and not rendering.foreign else {}
        choice: Body = {"index": index_of(rest), "text": text, "finish_reason": word}
        merge(choice, rest)
        choice.setdefault("logprobs", None)
        if end.stop_sequence is not None and not choice.keys() & set(_STOPS):
            rendering.lose("$.stop_sequence", "dropped", "which stop string was met cannot be said here")
        return choice

    def body(self, id_: str, created: Any, choices: list[Body]) -> Body:
        """A whole answer, or a chunk, which has the same shape."""
        model = self._request.settings.model or ""
        return {"id": id_, "object": OBJECT, "created": created, "model": model, "choices": choices}

    def put_top(self, rendering: Rendering, body: Body, said: Response | MessageEnd) -> None:
        """Write the unnamed members of the body, or report them."""
        extra = {key: value for key, value in said.extra.items() if key != "object"}
        if rendering.foreign:
            lose_foreign(rendering.losses, rendering.target, extra, said.usage, body)
            return
        for key, value in extra.items():
            if key not in ("choices", "usage"):  # which are written already
                body.setdefault(key, value)


def usage_body(usage: Usage, extra: Extra, own: bool) -> Body:
    """The token counts."""
    return write_usage(usage, read_object(extra["usage"]) if own and "usage" in extra else {}, COUNTS)


def write_response(api: Api, response: Response, request: Request, reply: Reply) -> tuple[Body, list[Loss]]:
    """The body of an answer, and what could not be said. Raises UpstreamError for one that failed."""
    check_end(response.finish_reason)
    writer = _Writer(api, request)
    rendering = writer.rendering(response.items, response.origin)
    text = "".join([writer.text_of(rendering, item) for item in response.items])
    choice = writer.choice(rendering, response, text)
    if response.logprobs:
        choice["logprobs"] = _Lists().of(chain.from_iterable(response.logprobs.values()))
    id_ = reply.id if reply.id is not None else response.id
    if id_ is None:
        id_ = made_id("cmpl-", request, text)
    created = (created_of(response.extra) or 0) if rendering.foreign else response.extra.get("created", 0)
    created = created if reply.created is None else reply.created
    body = writer.body(id_, created, [choice])
    body["model"] = body["model"] or response.model or ""
    if response.usage is not None:
        body["usage"] = usage_body(response.usage, response.extra, not rendering.foreign)
    elif not rendering.foreign:
        lose_usage(writer.losses, response.usage, response.extra)
    writer.put_top(rendering, body, response)
    return body, writer.losses


class CompletionStreamRenderer(ChunkEnding, _Writer):
    """Writes events as chunks."""

    def __init__(self, api: Api, request: Request, reply: Reply) -> None:
        super().__init__(api, request)
        self._named = reply.id is not None
        self.id = reply.id if reply.id is not None else made_id("cmpl-", request)
        self.created = reply.created or 0
        self._asked_usage = asks_usage(request)
        self._speaking: int | None = None  # the part that is sent as it is said
        self._said: set[int] = set()  # those that have said anything
        self._telling = b""  # the chunk that tells a text
        self._lists = _Lists()
        self._ended = self._failed = False
        self._rendering = self.rendering([], None)

    def start(self) -> bytes:
        """Nothing: there is no role to tell, so a stream begins with its first text."""
        return b""

    def send(self, events: Iterable[Event]) -> bytes:
        """The chunks for some events."""
        out: list[bytes] = []
        for event in events:
            if self._ended or self._failed:
                break
            if type(event) is PartDelta:  # by far the most
                if event.index == self._speaking and event.text:
                    self._said.add(event.index)
                    out.append(self._text(event.text))
            elif isinstance(event, ScoredDelta):
                out.append(self._scored(event))
            elif isinstance(event, PartStart):
                self._start(event)
            elif isinstance(event, PartEnd):
                self._end(out, event)
            elif isinstance(event, MessageEnd):
                self._finish(out, event)
            elif type(event) is not NextText:  # which one text cannot say
                raise no_event("a stream is sent", [event])
        return b"".join(out)

    def _start(self, event: PartStart) -> None:
        if self._speaking is None and isinstance(event.part, Assistant):
            self._speaking = event.index

    def _scored(self, event: ScoredDelta) -> bytes:
        if event.index != self._speaking:
            return b""
        self._said.add(event.index)
        choice = {"index": 0, "text": event.text, "logprobs": self._lists.of(event.tokens), "finish_reason": None}
        return frame(encoded(self._asked(self.body(self.id, self.created, [choice]))))

    def _text(self, text: str) -> bytes:
        if not self._telling:
            choice = {"index": 0, "text": HOLE, "logprobs": None, "finish_reason": None}
            self._telling = template(self._asked(self.body(self.id, self.created, [choice])))
        return self._telling % encoded(text)

    def _end(self, out: list[bytes], event: PartEnd) -> None:
        part = event.part
        if event.index == self._speaking:
            self._speaking = None
        if part is None:
            said = event.index in self._said
            self._speaks = self._speaks or said
            self._rendering.lose(f"items[{event.index}]", "approximated", came_to_nothing(said))
            return
        if not part.at:
            part.at = f"items[{event.index}]"
        text = self.text_of(self._rendering, part)
        if text and event.index not in self._said:
            out.append(self._text(text))

    def _finish(self, out: list[bytes], end: MessageEnd) -> None:
        try:
            check_end(end.finish_reason)
        except UpstreamError as error:
            out.append(self.fail(error))
            return
        rendering = self.rendering([], end.origin)
        body = self.body(self.id, self.created, [self.choice(rendering, end, "")])
        self.put_top(rendering, body, end)
        lose_id(rendering, end.id, self.id, named=self._named)
        out.append(frame(encoded(self._asked(body))))
        if end.usage is not None:
            if self._asked_usage:
                body = self.body(self.id, self.created, [])
                body["usage"] = usage_body(end.usage, end.extra, not rendering.foreign)
                out.append(frame(encoded(body)))
            else:
                rendering.lose("$.usage", "dropped", "the client did not ask for it in a stream")
        elif not rendering.foreign:
            lose_usage(self.losses, end.usage, end.extra)
        self._ended = True

    def _asked(self, body: Body) -> Body:
        """A chunk with `usage`, which is null in all but the last if the client asked for it."""
        if self._asked_usage:
            body["usage"] = None
        return body
