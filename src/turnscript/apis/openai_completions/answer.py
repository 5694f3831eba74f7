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
from typing import ClassVar

from msgspec import UNSET, UnsetType

from turnscript.apis.api import Api, Body, Rendering, Reply, merge
from turnscript.apis.shared.answers import (
    Counts,
    came_to_nothing,
    index_of,
    plain_reason,
)
from turnscript.apis.shared.chunk_streams import ChoiceAnswer, ChoiceWriter, Told, ToldChoice, encoded, lose_stop
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Item,
    Part,
    Refusal,
    Request,
    Response,
    Text,
    ToolCall,
)
from turnscript.core.events import MessageEnd, PartDelta, PartEnd, PartStart, ScoredDelta
from turnscript.core.finish_reasons import check_end
from turnscript.core.json_text import Json, members_in
from turnscript.core.logprobs import TokenLogprob
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
_NULL = Json(b"null")


class Delta(Wire):
    content: str | UnsetType | None = UNSET


class Choice(ToldChoice):
    text: str | UnsetType | None = UNSET
    delta: Delta | UnsetType | None = UNSET


class Answer(Told):
    choices: list[Choice] | UnsetType | None = UNSET


# Reading.


class Assembly(ChoiceAnswer):
    """One answer, as its chunks arrive."""

    origin = ORIGIN
    read: ClassVar[Reader[Answer]] = Reader(Answer)
    counts = COUNTS

    def __init__(self) -> None:
        super().__init__()
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
        if self.reason is not None:
            self.note_late(choice.finish_reason, says=bool(text))
        self._seen = self._seen or isinstance(text, str)
        if not isinstance(text, str) and not choice.finish_reason:
            self.note("missing_text", "there is a choice without a text")
        if isinstance(text, str) and text:
            if not self._texts:
                self.parts.open(Assistant(at="$.choices[0].text"))
            self._texts.append(text)
            self.parts.append(0, text)


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


class CompletionStreamRenderer(ChoiceWriter):
    """Writes an answer of one text, as chunks or whole."""

    prefix, objects, counts = "cmpl-", (OBJECT, OBJECT), COUNTS

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(api, request, reply, response)
        self._speaks = False
        self._said: set[int] = set()  # the parts that have said anything
        self._texts: list[str] = []  # of a whole answer
        self._telling = b""  # the chunk that tells a text
        self._lists = _Lists()

    def _text_of(self, rendering: Rendering, item: Item) -> str:
        """What can be said of a part; the rest is reported."""
        if not isinstance(item, Assistant):
            rendering.lose(
                item.at, "dropped", f"an answer here is a text: no place for a {item.kind.replace('_', ' ')}"
            )
            return ""
        rendering.lose_unplaced(item)
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

    def _begin(self) -> None:
        """Nothing: there is no role to tell, so a stream begins with its first text."""

    def _start(self, event: PartStart) -> None:
        if self._now is None and isinstance(event.part, Assistant):
            self._now = event.index

    def _delta(self, event: PartDelta) -> None:
        if event.index != self._now:
            return
        if type(event) is PartDelta:  # by far the most
            if event.text:
                self._said.add(event.index)
                self._tell(event.text)
        elif isinstance(event, ScoredDelta):
            if event.text:
                self._said.add(event.index)
            choice = {"index": 0, "text": event.text, "logprobs": self._lists.of(event.tokens), "finish_reason": None}
            self._out.append(frame(encoded(self.chunk([choice]))))

    def _tell(self, text: str) -> None:
        if not self._telling:
            choice = {"index": 0, "text": HOLE, "logprobs": None, "finish_reason": None}
            self._telling = template(self.chunk([choice]))
        self._out.append(self._telling % encoded(text))

    def _end(self, event: PartEnd) -> None:
        part = event.part
        if event.index == self._now:
            self._now = None
        if part is None:
            said = event.index in self._said
            self._speaks = self._speaks or said
            self._rendering.lose(f"items[{event.index}]", "approximated", came_to_nothing(said))
            return
        text = self._text_of(self._rendering, part)
        if self._response is not None:
            self._texts.append(text)
        elif text and event.index not in self._said:
            self._tell(text)

    def _cut(self, call: ToolCall, index: int) -> None:
        """It has no place: its issue tells of it."""

    def _finish(self, end: MessageEnd) -> None:
        check_end(end.finish_reason)
        rendering, text = self.rendering(end.origin), "".join(self._texts)
        word = plain_reason(rendering, end.finish_reason, called=False)
        rest = {} if rendering.foreign else members_in(end.extra.get("choices"))
        choice: Body = {"index": index_of(rest), "text": text, "finish_reason": word}
        merge(choice, rest)
        choice.setdefault("logprobs", None)
        lose_stop(rendering, end.stop_sequence, choice)
        if self._response is not None and self._response.logprobs:
            choice["logprobs"] = self._lists.of(chain.from_iterable(self._response.logprobs.values()))
        self.put_end(rendering, end, choice, text)
