"""Owns answers as the one message that this API has: its parts, as a stream tells them and a whole one holds them.

| model | wire |
| --- | --- |
| `Thinking` | `reasoning_content`, or the name that the reply says; `reasoning` where it stood there |
| `Assistant`: its texts, its refusals | `content`, `refusal` |
| `ToolCall` | an entry of `tool_calls`, or `function_call` for a client that offered `functions` only |
| `ToolCall` of a tool that takes free text, as JSON | a `custom` one |
| `logprobs` of all texts | `logprobs` of the choice: `content` |
| `extra`, in a response of this API | where it was |

To say why an answer ended, the words of other APIs are translated and reported; one that nobody knows is `length`,
unless it came from this API: clients take an unknown word for a good end.

One message has one text and one list of calls. What stood in another order, and where one text ended and the next
began, is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnscript.apis.api import Body, Rendering, Reply
from turnscript.apis.openai_chat.content import entry, is_within, piece, written_parts
from turnscript.apis.openai_chat.objects import BOTH
from turnscript.apis.openai_chat.stream_reading import COMPLETE, LEGACY_CALL, REASONING
from turnscript.apis.openai_chat.writing import Order
from turnscript.apis.shared.answers import (
    UNTOLD,
    free_text,
    is_whole,
    made_id,
    plain_reason,
)
from turnscript.apis.shared.citations import take_pages, wrapped
from turnscript.apis.shared.thoughts import thought_texts
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Item,
    Opaque,
    Raw,
    Refusal,
    Request,
    Text,
    Thinking,
    ToolCall,
    in_object,
)
from turnscript.core.finish_reasons import CALLED
from turnscript.core.json_text import is_object
from turnscript.core.source_paths import not_here, part_path
from turnscript.core.validation import text_only


def is_legacy(request: Request) -> bool:
    """Return whether a client knows calls only in their deprecated form: it offered `functions` and no tools."""
    return bool(request.tools) and all(tool.slot == "functions" for tool in request.tools)


OBJECTS = ("chat.completion", "chat.completion.chunk")


class AnswerOrder(Order):
    """Reports besides what the end of an answer makes of its calls."""

    def __init__(self, rendering: Rendering) -> None:
        super().__init__(rendering)
        self._broken: list[str] = []  # calls that look as if they were cut off
        self._last = ""  # the last one, where it is of free text, which may go on

    def call(self, item: ToolCall, arguments: str, *, custom: bool = False) -> None:
        """One more call, with what is written of its arguments."""
        self.note("call", item.at)
        self._last = item.at if custom else ""
        if not custom and not is_object(arguments):
            self._broken.append(item.at)

    def end(self, word: str) -> None:
        """Report calls that nobody will take for whole, because the answer ended early."""
        if word in COMPLETE:
            return
        for at in [*self._broken, *([self._last] if self._last else [])]:
            self._rendering.lose(at, "approximated", "who reads this must take the call for one that was cut off")


def _is_no_text(piece: Any) -> bool:
    return type(piece) is not str


class Message:
    """Says the parts of one message as deltas of it: a stream sends them, and `whole` they are put together.

    `calls`: how many there are; `speaks`: there is a text; `legacy`: calls have the deprecated form; `holds`: they are
    told when they are complete; `cut`: one of them was cut off.
    """

    def __init__(self, rendering: Rendering, request: Request, reply: Reply, *, whole: bool = False) -> None:
        self.order = AnswerOrder(rendering)
        self.calls = 0
        self.speaks = self.cut = False
        self.legacy = is_legacy(request)
        self.holds = reply.calls == "whole"
        self._rendering = rendering
        self._request = request
        self._whole = whole
        self._thinks_in = ""
        self._reasoning: str = reply.reasoning_name
        self._free = {tool.name for tool in request.tools if tool.type == "custom"} if whole else set()
        self._said: dict[str, list[Any]] = {}  # of a whole one: what all deltas said, by their members
        self._extra: Body = {}  # of a whole one
        self._length = 0  # of the texts so far, in characters

    def put(self, deltas: Iterable[Body]) -> None:
        """Put what is said of one more part into a whole message."""
        for delta in deltas:
            for member, value in delta.items():
                said = self._said.setdefault(member, [])
                said += value if isinstance(value, list) else [value]

    def end(self, rendering: Rendering, reason: str | None) -> str:
        """Return why the answer ended, in this API's words, and report what that makes of the calls. With a call that
        was told and is not whole it is no good end."""
        word = plain_reason(rendering, reason, called=self.calls > 0, cut=self.cut)
        self.order.end(word)
        return LEGACY_CALL if word == CALLED and self.legacy else word

    def body(self) -> Body:
        """Return the whole message."""
        said = self._said
        body: Body = {"role": "assistant", "content": self._text(), "refusal": None}
        for member in ("refusal", self._thinks_in):
            if member in said:
                body[member] = "".join(said[member])
        if "tool_calls" in said:
            body["tool_calls"] = said["tool_calls"]
        if LEGACY_CALL in said:
            (body[LEGACY_CALL],) = said[LEGACY_CALL]
        for key, value in self._extra.items():
            body.setdefault(key, value)
        return body

    def _text(self) -> Any:
        content = self._said.get("content", [])
        if any(map(_is_no_text, content)):
            return [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
        return "".join(content) if content or not (self.calls or "refusal" in self._said) else None

    def deltas(self, item: Item, said: tuple[type, ...] = (), *, cut: bool = False) -> list[Body]:
        """Return what is to be said of a part that is complete. `said`: the kinds of its contents that were sent;
        `cut`: it is the call in which a whole answer ended."""
        kind = type(item)  # which is told many times as fast as what else an item is not
        if kind is Assistant:
            return self._spoken(item, said)  # type: ignore[arg-type]
        if kind is Thinking:
            return self._thought(item, bool(said))  # type: ignore[arg-type]
        if kind is ToolCall:
            return self._call(item, cut)  # type: ignore[arg-type]
        if self._whole and isinstance(item, Opaque) and item.role == "assistant" and self._is_own:
            self.calls += 1
            return [{"tool_calls": [item.value]}]
        what = item.type if isinstance(item, Opaque) else item.kind
        place = "an answer has no place for it here" if self._whole else "a chunk has no place for it"
        self._rendering.lose(item.at, "dropped", f"{what}: {place}")
        return []

    def thinks_in(self, item: Thinking) -> str:
        """Return the member for thoughts: the first one of them says which."""
        if not self._thinks_in:
            self._thinks_in = REASONING if item.slot == REASONING else self._reasoning
        return self._thinks_in

    @property
    def _is_own(self) -> bool:
        """Return whether what is said came from this API."""
        return self._rendering.request.origin is not None and not self._rendering.foreign

    def _keep(self, body: Body, extra: Extra, at: str) -> None:
        """Write unnamed members, for which a chunk has no place."""
        if self._whole:
            self._rendering.put_extra(body, extra, at)
        else:
            self._rendering.losses += [not_here("a chunk", f"{at}.{key}", value) for key, value in extra.items()]

    def _thought(self, item: Thinking, said: bool) -> list[Body]:
        rendering = self._rendering
        rendering.lose_unplaced(item)
        if is_within(item) and not rendering.foreign:
            self.order.part()
            if not said:
                return [{"content": [entry(rendering, item)]}]
            return [{"content": [piece([], item.extra)]}] if item.extra else []
        text = "".join(thought_texts(rendering, item))
        rendering.put_extra({}, item.extra, item.at)
        if text or said:
            self.order.note("thinking", item.at)
        if said or not text:
            return []
        if self._whole and item.slot == BOTH and self._is_own:
            self._extra[REASONING] = text
        return [{self.thinks_in(item): text}]

    def _spoken(self, item: Assistant, said: tuple[type, ...]) -> list[Body]:
        rendering, deltas = self._rendering, list[Body]()
        rendering.lose_unplaced(item)
        self._keep(self._extra, item.extra, item.at)
        for index, given in enumerate(item.content):
            at, part, pages = part_path(item, index), given, list[Body]()
            if isinstance(part, Text) and part.extra and rendering.foreign:
                pages, part = take_pages(rendering, part, at, self._length)
            rich = bool(part.extra) or not isinstance(part, Text | Refusal)
            if rich and self._whole and isinstance(part, Text | Raw) and self._is_own:
                deltas.append({"content": written_parts(rendering, item, [(index, part)], None)})
            elif isinstance(part, Text | Refusal):
                deltas += self._told(part, item.at, at, said)
            elif self._whole:
                deltas.append({"content": written_parts(rendering, item, [(index, part)], frozenset({Text}))})
            else:
                kind = type(part).__name__.lower()
                rendering.lose(at, "dropped", f"a chunk cannot hold a part of kind {kind!r}")
            if pages and self._whole:
                self._extra.setdefault("annotations", []).extend(wrapped(pages))
            elif pages:
                deltas.append({"annotations": wrapped(pages)})
        return deltas

    def _told(self, part: Text | Refusal, where: str, at: str, said: tuple[type, ...]) -> list[Body]:
        """Return a text, or a refusal, unless its deltas have said it."""
        kind, member = ("text", "content") if isinstance(part, Text) else ("refusal", "refusal")
        self.order.note(kind, where)
        if isinstance(part, Text):
            self._length += len(part.text)
        self._keep({}, part.extra, at)
        self.speaks = self.speaks or bool(part.text)
        if said and part.text and not isinstance(part, said):
            word = "a refusal" if Refusal in said else "the answer"
            detail = f"sent as more of {word}: its kind was known too late for a chunk"
            self._rendering.lose(at, "approximated", detail)
        return [{member: part.text}] if not said and (part.text or self._whole) else []

    def _call(self, item: ToolCall, cut: bool) -> list[Body]:
        rendering = self._rendering
        cut = cut or not is_whole(item)
        legacy = self.legacy or (item.slot == LEGACY_CALL and not rendering.foreign)
        if cut and (not self._whole or self.holds or item.custom or legacy):  # of which no stream tells anything either
            rendering.lose(item.at, "dropped", UNTOLD)
            return []
        if legacy and self.calls:
            rendering.lose(item.at, "dropped", "the client offered functions, and a message has one function call")
            return []
        id_, name = self.call_head(item)
        custom = self._whole and not (legacy or cut) and (item.custom or name in self._free)
        arguments = in_object(item.arguments) if item.custom else item.arguments
        if custom:
            arguments = item.arguments if item.custom else free_text(item, f"{item.at}.arguments", rendering.losses)
        elif item.custom:
            rendering.lose(item.at, "approximated", "free text is sent as the argument `input`")
        kind, argument = ("custom", "input") if custom else ("function", "arguments")
        function: Body = {"name": name, argument: text_only(arguments)}
        told: Body = {"id": id_, "type": kind, kind: function}
        if legacy:
            self.legacy = True
            if item.id is not None:
                rendering.lose(f"{item.at}.id", "dropped", "a function call has no id")
            told = function
        if cut:
            self.cut = True
            return [{"tool_calls": [told]}]
        self.order.call(item, arguments, custom=custom)
        rendering.put_extra(told, item.extra, item.at)
        return [{LEGACY_CALL: told} if legacy else {"tool_calls": [told]}]

    def call_head(self, item: ToolCall) -> tuple[str, str]:
        """Return the id and the name of the next call, as they are written."""
        place = self.calls
        self.calls += 1
        self._rendering.lose_unplaced(item)
        made = made_id("call_", self._request, place, item.name) if item.id is None else item.id
        return made, item.full_name
