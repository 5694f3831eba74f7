"""Owns whole answers: reading a body as a response, and writing a response as the one message that this API has.

| model | wire |
| --- | --- |
| `Thinking` | `reasoning_content`, or the name that the reply says; `reasoning` where it stood there |
| `Assistant`: its texts, its refusals | `content`, `refusal` |
| `ToolCall` | an entry of `tool_calls`, or `function_call` for a client that offered `functions` only |
| `ToolCall` of a tool that takes free text, as JSON | a `custom` one |
| `logprobs` of all texts | `logprobs` of the choice: `content` |
| `extra`, in a response of this API | where it was |

One message has one text and one list of calls. What stood in another order, and where one text ended and the next
began, is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from turnscript.apis.api import OFFICIAL, Api, Body, Rendering, Reply, leftover, merge
from turnscript.apis.openai_chat.answer import (
    COMPLETE,
    COUNTS,
    LEGACY_CALL,
    REASONING,
    Piece,
    cut_word,
    finish_word,
    is_legacy,
)
from turnscript.apis.openai_chat.content import entry, is_within, written_parts
from turnscript.apis.openai_chat.objects import BOTH
from turnscript.apis.openai_chat.options import TIERS
from turnscript.apis.openai_chat.stream_reading import Assembly
from turnscript.apis.shared.answers import (
    UNTOLD,
    created_of,
    free_text,
    index_of,
    is_whole,
    lose_foreign,
    lose_usage,
    made_id,
    tier_of,
    write_usage,
)
from turnscript.apis.shared.chunk_streams import encoded
from turnscript.apis.shared.citations import take_pages, wrapped
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Extra,
    Hints,
    Item,
    Opaque,
    Raw,
    Refusal,
    Request,
    Response,
    Text,
    Thinking,
    ToolCall,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.events import MessageEnd
from turnscript.core.finish_reasons import FILTERED, check_end
from turnscript.core.json_text import Json, is_object, read_list, read_object, safe_json_string
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.losses import Loss
from turnscript.core.message_groups import slot_of
from turnscript.core.payloads import Source, body_bytes
from turnscript.core.source_paths import part_path
from turnscript.core.validation import text_only

# Reading.


def read_response(source: Source) -> Response:
    """A whole answer. Raises InvalidRequest for what is none, UpstreamError for an error."""
    assembly = Assembly(is_whole=True)
    answer = assembly.checked(Json(body_bytes(source)))
    for index, choice in enumerate(answer.choices):
        choice.index = choice.index or index
        if not (index or choice.message or choice.finish_reason == FILTERED):  # of which Azure leaves no message
            raise InvalidRequest("required, but missing; expected a message", path="$.choices[0].message")
    answer.choices[0].index = 0
    assembly.add(answer)
    assembly.finish()
    response = assembly.response()
    if assembly.twice:
        next(item for item in response.items if isinstance(item, Thinking)).hints = Hints(slot=BOTH)
    message = answer.choices[0].message
    if isinstance(message, Piece) and (message.content is None or message.content is UNSET):
        _note_null(response)
    return response


def _note_null(response: Response) -> None:
    """The message has no text, not even an empty one: that is kept where something else of it is."""
    items = response.items
    if all(isinstance(item, Thinking) for item in items) and (items or "choices" in response.extra):
        choice = read_object(response.extra.get("choices", b"{}"))
        message = read_object(choice["message"]) if "message" in choice else {}
        message["content"] = Json(b"null")
        response.extra["choices"] = leftover(choice | {"message": leftover(message)})


# Writing.


def rendering_of(api: Api, items: list[Item], origin: str | None) -> Rendering:
    """A rendering for the items of a response that came from an API, or from none."""
    return api.rendering(Request(conversation=Conversation(items=items), origin=origin), OFFICIAL, {})


OBJECTS = ("chat.completion", "chat.completion.chunk")
_OWN_MEMBERS = frozenset({"object", "choices", "usage", "id", "model"})


class Order:
    """Reports what one message cannot say of the order of its parts, and what its end makes of its calls."""

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self._before: set[str] = set()
        self._broken: list[str] = []  # calls that look as if they were cut off
        self._last = ""  # the last one, where it is of free text, which may go on

    def note(self, kind: str, at: str) -> None:
        """One more part: `thinking`, `text`, `refusal` or `call`."""
        before = self._before
        if kind == "thinking" and before - {"thinking"}:
            self._rendering.lose(at, "moved", "one message holds its thinking before all else")
        elif kind in ("text", "refusal") and "call" in before:
            self._rendering.lose(at, "moved", "one message holds its text before its calls")
        elif kind in before and kind != "call":
            self._rendering.lose(at, "approximated", f"joined with the {kind} before it in one message")
        elif kind == "text" and "refusal" in before:
            self._rendering.lose(at, "moved", "one message holds its text before its refusal")
        before.add(kind)

    def call(self, item: ToolCall, arguments: str, *, custom: bool = False) -> None:
        """One more call, with what is written of its arguments."""
        self.note("call", item.at)
        self._last = item.at if custom else ""
        if not custom and not is_object(arguments):
            self._broken.append(item.at)

    def end(self, word: str) -> None:
        """Report calls that nobody will take for whole, because the answer ended early."""
        if word in COMPLETE or word == LEGACY_CALL:
            return
        for at in [*self._broken, *([self._last] if self._last else [])]:
            self._rendering.lose(at, "approximated", "who reads this must take the call for one that was cut off")

    def part(self) -> None:
        """A thought in the content, which parts the text before it from the one behind."""
        self._before.discard("text")


def lose_thinking(rendering: Rendering, item: Thinking) -> None:
    """Report what is lost of a thought besides its text."""
    proof = "only the API that made it can read it"
    members = (("signature", proof), ("redacted", proof), ("encrypted", proof), ("id", "thinking has no id here"))
    for member, detail in members:
        if getattr(item, member) is not None:
            rendering.lose(f"{item.at}.{member}", "dropped", detail)
    if item.of != "reason":
        rendering.lose(f"{item.at}.kind", "dropped", f"thinking has no kinds here, such as {item.of!r}")
    if item.summary and item.content:
        rendering.lose(f"{item.at}.summary", "dropped", "the thinking itself is sent")
    elif item.summary:
        rendering.lose(f"{item.at}.summary", "approximated", "sent as the thinking itself")
    for index, part in enumerate(item.content):
        rendering.put_extra({}, part.extra, part_path(item, index))
    rendering.put_extra({}, item.extra, item.at)


def thought(item: Thinking) -> str:
    """The text of a thought; a summary stands in for a text that is not there."""
    if item.content:
        return "".join([part.text for part in item.content if isinstance(part, Text)])
    return "\n\n".join([part.text for part in item.summary if isinstance(part, Text)])


def lose_spoken(rendering: Rendering, item: Assistant) -> None:
    """Report what is lost of a text besides what it says."""
    for member in ("id", "phase", "name"):
        if getattr(item, member) is not None:
            rendering.lose(f"{item.at}.{member}", "dropped", f"the message of an answer has no {member} here")


def call_head(rendering: Rendering, request: Request, item: ToolCall, place: int) -> tuple[str, str]:
    """Id and name of a call as they are written."""
    if item.item_id is not None:
        rendering.lose(f"{item.at}.item_id", "dropped", "a call has one id here, that of its result")
    name = item.name
    if item.namespace is not None:
        rendering.lose(f"{item.at}.namespace", "renamed", "tools have no namespaces here: it begins the name")
        name = f"{item.namespace}__{item.name}"
    return item.id if item.id is not None else made_id("call_", request, place, item.name), name


def as_function(item: ToolCall) -> str:
    """The arguments of a call where it can only be a function's: free text becomes the argument `input`."""
    return f'{{"input":{safe_json_string(item.arguments)}}}' if item.custom else item.arguments


def lose_legacy(rendering: Rendering, item: ToolCall) -> None:
    """Report a call that the deprecated form cannot say: a message has one of those."""
    rendering.lose(item.at, "dropped", "the client offered functions, and a message has one function call")


def _is_no_text(piece: Any) -> bool:
    return type(piece) is not str


class Message:
    """One message that is being written."""

    def __init__(self, rendering: Rendering, request: Request, reply: Reply) -> None:
        self._rendering = rendering
        self._request = request
        self._reasoning: str = reply.reasoning_name
        self._holds = reply.calls == "whole"
        self.cut = False  # whether it holds a call that was cut off
        self.order = Order(rendering)
        self._own = rendering.request.origin is not None and not rendering.foreign
        self.legacy = is_legacy(request)
        self._free = {tool.name for tool in request.tools if tool.type == "custom"}
        self._thoughts: list[str] = []
        self._content: list[Any] = []
        self._refusals: list[str] = []
        self._calls: list[Any] = []
        self._function: Body = {}
        self._extra: Body = {}
        self._length = 0  # of the texts so far, in characters

    @property
    def called(self) -> bool:
        """Whether it holds a call."""
        return bool(self._calls or self._function)

    def add(self, item: Item, *, cut: bool = False) -> None:
        """One more part of the answer. `cut`: it is the call in which the answer ended."""
        kind = type(item)  # which is told many times as fast as what else an item is not
        if kind is Assistant:
            self._speak(item)  # type: ignore[arg-type]
        elif kind is Thinking:
            self._think(item)  # type: ignore[arg-type]
        elif kind is ToolCall:
            self._call(item, cut)  # type: ignore[arg-type]
        elif isinstance(item, Opaque) and self._own and item.role == "assistant":
            self._calls.append(item.value)
        else:
            what = item.type if isinstance(item, Opaque) else item.kind
            self._rendering.lose(item.at, "dropped", f"{what}: an answer has no place for it here")

    def body(self) -> Body:
        """The message."""
        body: Body = {"role": "assistant", "content": self._text(), "refusal": None}
        if self._refusals:
            body["refusal"] = "".join(self._refusals)
        if self._thoughts:
            body[self._reasoning] = "".join(self._thoughts)
        if self._calls:
            body["tool_calls"] = self._calls
        if self._function:
            body["function_call"] = self._function
        for key, value in self._extra.items():
            body.setdefault(key, value)
        return body

    def _text(self) -> Any:
        if any(map(_is_no_text, self._content)):
            return [{"type": "text", "text": one} if isinstance(one, str) else one for one in self._content]
        none = self.called or self._refusals
        return "".join(self._content) if self._content or not none else None

    def _think(self, item: Thinking) -> None:
        lose_thinking(self._rendering, item)
        text = thought(item)
        if self._own and is_within(item):
            self._content.append(entry(self._rendering, item))
            self.order.part()
            return
        if not text:
            return
        self.order.note("thinking", item.at)
        if self._own and not self._thoughts and slot_of(item) == REASONING:
            self._reasoning = REASONING
        elif self._own and slot_of(item) == BOTH:
            self._extra[REASONING] = text
        self._thoughts.append(text)

    def _speak(self, item: Assistant) -> None:
        rendering = self._rendering
        lose_spoken(rendering, item)
        if item.extra:
            rendering.put_extra(self._extra, item.extra, item.at)
        for index, given in enumerate(item.content):
            part = given
            if isinstance(part, Text) and part.extra and rendering.foreign:
                pages, part = take_pages(rendering, part, part_path(item, index), self._length)
                self._cite(pages)
            if isinstance(part, Text) and not (part.extra and self._own):
                self.order.note("text", item.at)
                self._content.append(part.text)
                self._length += len(part.text)
                if part.extra:
                    rendering.put_extra({}, part.extra, part_path(item, index))
            elif isinstance(part, Refusal):
                self.order.note("refusal", item.at)
                self._refusals.append(part.text)
                rendering.put_extra({}, part.extra, part_path(item, index))
            elif self._own and isinstance(part, Text | Raw):
                self._content += written_parts(rendering, item, [(index, part)], None)
            else:
                self._content += written_parts(rendering, item, [(index, part)], frozenset({Text}))

    def _cite(self, pages: list[Body]) -> None:
        if pages:
            self._extra.setdefault("annotations", []).extend(wrapped(pages))

    def _call(self, item: ToolCall, cut: bool) -> None:
        rendering = self._rendering
        legacy = self.legacy or (self._own and slot_of(item) == "function_call")
        cut = cut or not is_whole(item)
        if cut and (self._holds or item.custom or legacy):  # of which no stream tells anything either
            rendering.lose(item.at, "dropped", UNTOLD)
            return
        id_, name = call_head(rendering, self._request, item, len(self._calls))
        if cut:
            self.cut = True
            self._calls.append({"id": id_, "type": "function", "function": {"name": name, "arguments": item.arguments}})
            return
        if legacy:
            self._legacy_call(item, name)
            return
        if name in self._free and not item.custom:
            text = free_text(item, f"{item.at}.arguments", rendering.losses)
            item = replace(item, arguments=text, custom=True, open=False)
        self.order.call(item, item.arguments, custom=item.custom)
        kind, argument = ("custom", "input") if item.custom else ("function", "arguments")
        entry: Body = {"id": id_, "type": kind, kind: {"name": name, argument: text_only(item.arguments)}}
        rendering.put_extra(entry, item.extra, item.at)
        self._calls.append(entry)

    def _legacy_call(self, item: ToolCall, name: str) -> None:
        if self._function:
            lose_legacy(self._rendering, item)
            return
        if item.id is not None:
            self._rendering.lose(f"{item.at}.id", "dropped", "a function call has no id")
        if item.custom:
            self._rendering.lose(item.at, "approximated", "free text is sent as the argument `input`")
        self._function = {"name": name, "arguments": as_function(item)}
        self.order.call(item, self._function["arguments"])
        self.legacy = True
        self._rendering.put_extra(self._function, item.extra, item.at)


def write_response(api: Api, response: Response, request: Request, reply: Reply) -> tuple[Body, list[Loss]]:
    """The body of an answer, and what could not be said. Raises UpstreamError for one that failed."""
    check_end(response.finish_reason)
    cut = [] if response.cut is None else [response.cut]
    rendering = rendering_of(api, [*response.items, *cut], response.origin)
    message = Message(rendering, request, reply)
    for item in response.items:
        message.add(item)
    for call in cut:
        message.add(call, cut=True)
    extra = response.extra if not rendering.foreign else {}
    reason = finish_word(rendering, response.finish_reason, message.called, message.legacy)
    if message.cut:
        reason = cut_word(rendering, reason)
    message.order.end(reason)
    rest = read_object(extra["choices"]) if "choices" in extra else {}
    choice: Body = {
        "index": index_of(rest, reply.choice),
        "message": message.body(),
        "finish_reason": reason,
    }
    if "message" in rest and "content" in read_object(rest["message"]):
        choice["message"]["content"] = choice["message"]["content"] or None
    merge(choice, rest)
    choice["message"].setdefault("annotations", [])
    if response.logprobs:
        choice["logprobs"] = logprobs_of(chain.from_iterable(response.logprobs.values()))
    choice.setdefault("logprobs", None)
    lose_stop(rendering, response.stop_sequence, choice)
    id_ = reply.id if reply.id is not None else response.id
    if id_ is None:
        seeds = [(type(item).__name__, getattr(item, "arguments", None) or item) for item in response.items]
        id_ = made_id("chatcmpl-", request, seeds)
    body: Body = {
        "id": id_,
        "object": OBJECTS[0],
        "created": _created(response.extra, foreign=rendering.foreign) if reply.created is None else reply.created,
        "model": request.settings.model or response.model or "",
        "choices": [choice],
    }
    if response.usage is not None:
        body["usage"] = write_usage(response.usage, usage_rest(extra), COUNTS)
    lose_usage(rendering.losses, response.usage, extra)
    put_top(rendering, body, response)
    return body, rendering.losses


def join_choices(bodies: Sequence[bytes]) -> bytes:
    """Several answers to one request as one: the first of them, with the choices of all."""
    joined: Body = dict(read_object(bodies[0]))
    joined["choices"] = [choice for body in bodies for choice in read_list(read_object(body)["choices"])]
    return encoded(joined)


def logprobs_of(tokens: Iterable[TokenLogprob]) -> Body:
    """The log probabilities of a choice, or of a piece of one: those of its content."""
    return {"content": list(tokens), "refusal": None}


def lose_stop(rendering: Rendering, stop: str | None, choice: Body) -> None:
    """Report which stop string was met, where the choice does not say it."""
    if stop is not None and not {"stop_reason", "matched_stop"} & choice.keys():
        rendering.lose("$.stop_sequence", "dropped", "which stop string was met cannot be said here")


def usage_rest(extra: Extra) -> Extra:
    """The unnamed members of the usage."""
    return read_object(extra["usage"]) if "usage" in extra else {}


def _created(extra: Extra, *, foreign: bool) -> Any:
    return (created_of(extra) or 0) if foreign else extra.get("created", 0)


def put_top(rendering: Rendering, body: Body, said: Response | MessageEnd) -> None:
    """Write the unnamed members of the body, or report them."""
    extra = said.extra
    if rendering.foreign:
        tier = tier_of(extra, TIERS)
        if tier is not None:
            body["service_tier"] = tier
        strange = {key: value for key, value in extra.items() if key != "object"}
        lose_foreign(rendering.losses, rendering.target, strange, said.usage, body)
        return
    for key, value in extra.items():
        if key not in _OWN_MEMBERS:
            body.setdefault(key, value)
