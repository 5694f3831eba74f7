"""Owns what responses say: the items of their blocks, why one stopped, token counts, and writing all of it.

| wire | model |
|---|---|
| each block of `content` | an item of its own; unknown ones `Opaque` |
| `stop_reason` `end_turn` `stop_sequence` | `finish_reason` `stop`; `stop_sequence` is kept |
| `max_tokens` `tool_use` `refusal` | `length` `tool_calls` `content_filter` |
| every other `stop_reason` | the same word |
| `usage.input_tokens` + `cache_read_input_tokens` + `cache_creation_input_tokens` | `usage.input` |
| `output_tokens`, `output_tokens_details.thinking_tokens` | `usage.output`, `usage.reasoning` |
| `id` `model`; every other member | the same; `extra`, but for those that are null here unless they say something |

Whether the last call of a response that met a limit is whole cannot be seen, because a server completes what was cut:
such a call is no item, it becomes an issue and `Response.cut`.

Items are written as the blocks of a response, and why it ended; whole responses and streams write alike. An answer
leaves here so that its reader is never misled: a call is only told whole, arguments that are no object are wrapped in
one, a stop string is named only if the client asked for it, and an ending that nobody knows is no good one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from turnscript.apis.anthropic_messages.blocks import (
    AssistantMessage,
    DocumentBlock,
    ImageBlock,
    RedactedBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    items_of,
)
from turnscript.apis.anthropic_messages.writing import TAKEN, PartWriter, is_text
from turnscript.apis.api import OFFICIAL, Api, Body, Rendering, Reply, leftover, merge
from turnscript.apis.shared.answers import (
    CUT_CALL,
    UNTOLD,
    invalid_count,
    is_whole,
    lose_foreign,
    missing_count,
    tier_of,
)
from turnscript.apis.shared.thoughts import thought_texts
from turnscript.core.call_pairing import legal_id, unused_id
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Issue,
    Item,
    Opaque,
    Refusal,
    Request,
    Response,
    Thinking,
    ToolCall,
    Usage,
    object_arguments,
    text_content,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.finish_reasons import check_end, meaning
from turnscript.core.json_text import NULL, Json, closed, json_of, read_count, read_object
from turnscript.core.losses import Indexed, LossKind
from turnscript.core.source_paths import part_path
from turnscript.core.wire import Reader

API = "anthropic-messages"
ORIGIN = "anthropic"

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
OWN_REASONS = frozenset({"pause_turn", "model_context_window_exceeded", "compaction", "refusal"})
"""Endings that no other API has a word for, and one that may come under this API's own word."""
CUTTING = frozenset({"length", "content_filter", "model_context_window_exceeded"})
"""Finish reasons that may come in the middle of a call."""

SILENT, SILENT_USAGE = (
    ("stop_details", "container"),
    ("cache_creation", "inference_geo", "server_tool_use", "service_tier"),
)
"""The members of a message and of its counts that are there whether they say anything or not: null is nothing."""

_BLOCK = TextBlock | ThinkingBlock | ToolUseBlock | RedactedBlock | ImageBlock | DocumentBlock
_read_block: Reader[Any] = Reader(_BLOCK)
_read_word: Reader[str | None] = Reader(str | None)
_PLACES = Indexed("$.content")

# Blocks.


def fill(body: Body, silent: Sequence[str]) -> None:
    """Write null for those of some members that say nothing."""
    for name in silent:
        body.setdefault(name, None)


def item_of(block: Json, index: int) -> Item:
    """The item of one content block. An empty signature is none: the member is required, even where nobody signs. An
    empty id is none, too, and citations that are null."""
    place = _PLACES[index]
    message = AssistantMessage(content=[_read_block(block, place)])
    item = items_of(message, "$")[0]
    item.at = place
    if isinstance(item, Thinking):
        item.signature = item.signature or None
    elif isinstance(item, ToolCall):
        item.id = item.id or None
    elif isinstance(item, Assistant) and item.content[0].extra.get("citations") == NULL:
        del item.content[0].extra["citations"]
    return item


# Token counts.

_INPUT, _OUTPUT = "input_tokens", "output_tokens"
_COUNTS = frozenset({_INPUT, _OUTPUT, "cache_read_input_tokens", "cache_creation_input_tokens"})
_DETAILS = "output_tokens_details"
_THINKING = "thinking_tokens"


class Tokens:
    """Token counts as a stream gives them: all cumulative, so that a later one replaces an earlier one."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rest: Extra = {}
        self._issues: dict[str, Issue] = {}
        self._seen = False
        self._begun = False  # the count of the output is what it was when the answer began

    def read(self, value: Json | None, at: str) -> None:
        """Take a `usage` object. Null and absent counts change nothing, and what is no count is an issue."""
        if value is None or bytes(value) == b"null":
            return
        self._seen = True
        if bytes(value)[:1] != b"{":
            self._issues[""] = invalid_count(value, at)
            return
        for key, member in read_object(value).items():
            if key in _COUNTS:
                self._count(key, member, f"{at}.{key}")
            elif key == _DETAILS:
                self._details(member, f"{at}.{key}")
            elif bytes(member) != b"null" or not (key in self._rest or key in SILENT_USAGE):
                self._rest[key] = member

    def begin(self) -> None:
        """The answer begins: how much it is has yet to be told."""
        self._begun = True

    def _details(self, value: Json, at: str) -> None:
        if bytes(value)[:1] == b"{":
            details = read_object(value)
            self._count(_THINKING, details.pop(_THINKING, None), f"{at}.{_THINKING}")
            if details:
                self._rest[_DETAILS] = leftover(details)
        elif bytes(value) != b"null":
            self._issues[_DETAILS] = invalid_count(value, at)

    def _count(self, name: str, value: Json | None, at: str) -> None:
        if value is None or bytes(value) == b"null":
            return
        self._issues.pop(name, None)
        self._counts.pop(name, None)
        count = read_count(value)
        if count is None:
            self._issues[name] = invalid_count(value, at)
        else:
            self._counts[name] = count
            self._begun = self._begun and name != _OUTPUT

    def usage(self) -> Usage | None:
        """The counts so far; None if those of the input and the output were not told."""
        if _INPUT not in self._counts or _OUTPUT not in self._counts:
            return None
        count = self._counts.get
        cached, written = count("cache_read_input_tokens", 0), count("cache_creation_input_tokens", 0)
        total = self._counts[_INPUT] + cached + written
        return Usage(total, self._counts[_OUTPUT], cached, written, count(_THINKING, 0))

    def end(self) -> tuple[Usage | None, list[Issue]]:
        """The counts at the end, and what is wrong with them. What an answer was said to be when it began is none."""
        if self._begun:
            self._counts.pop(_OUTPUT, None)
        issues = list(self._issues.values())
        if self._seen and "" not in self._issues:
            missing = [name for name in (_INPUT, _OUTPUT) if name not in self._counts and name not in self._issues]
            issues += [missing_count(f"$.usage.{name}") for name in missing]
        return self.usage(), issues

    def extra(self) -> Extra:
        """The members without a name, as `extra` of the response; counts, too, where they are not all."""
        known = {} if self.usage() is not None else {name: json_of(self._counts[name]) for name in self._counts}
        rest = {name: count for name, count in known.items() if name in _COUNTS} | self._rest
        if _THINKING in known:
            beside = read_object(rest[_DETAILS]) if _DETAILS in rest else {}
            rest[_DETAILS] = leftover({_THINKING: known[_THINKING], **beside})
        return {"usage": leftover(rest)} if rest else {}


def usage_object(usage: Usage) -> Body:
    """Token counts as this API says them: `input_tokens` are those that no cache had to do with."""
    return {
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        _DETAILS: {_THINKING: usage.reasoning},
    }


def put_known(told: Body, extra: Extra) -> None:
    """Put the counts that are known, though they are not all, in the place of those that were made up."""
    for name, count in read_object(extra["usage"]).items():
        if name in _COUNTS:
            told[name] = count
        elif name == _DETAILS:
            told[name] |= {one: value for one, value in read_object(count).items() if one == _THINKING}


# What a response says of itself.


def told(members: Extra) -> Extra:
    """The members of a message that say something."""
    return {name: value for name, value in members.items() if value != NULL or name not in SILENT}


def head_of(members: dict[str, Json]) -> tuple[str | None, str | None]:
    """The id and the model that a response names. Takes out the members that it reads."""
    role = word(members, "role")
    if role not in (None, "assistant"):
        raise InvalidRequest(f"a response is the assistant's, not of role {role!r}", path="$.role")
    return word(members, "id"), word(members, "model")


def finish_reason(word: str | None) -> str | None:
    """The reason in the words of all APIs. An empty word says none."""
    return REASONS.get(word, word) if word else None


def cut_short(name: str, arguments: str) -> Issue:
    """The issue for a call that a limit may have cut."""
    return Issue("cut_call", f"the answer met its limit in a call of {name!r}, so it is not told; so far: {arguments}")


def word(members: dict[str, Json], key: str) -> str | None:
    """Remove a member that is a string, or null, and give its value."""
    value = members.pop(key, None)
    return None if value is None else _read_word(value, f"$.{key}")


LATE = "it was not known when the block began"
_TIERS = frozenset({"standard", "priority", "batch"})
_BLANKS = " \t\r\n"


class AnswerWriter:
    """Writes the blocks of one response. `losses`: what they could not say. `whole`: they go into one body.

    `origin` is the API whose unnamed members the next items, or the response, hold.
    """

    def __init__(self, request: Request, api: Api, reply: Reply, *, whole: bool) -> None:
        self._whole = whole
        self.rendering = Rendering(Request(origin=request.origin), api, OFFICIAL, {})
        self.rendering.unplaced = api.unplaced.in_answers
        self.losses = self.rendering.losses
        self.omits_thinking = request.settings.thinking is not None and request.settings.thinking.display == "omitted"
        self.model = request.settings.model
        self._stops = request.settings.stop or []
        self._any_stop, self._direct, self._holds = reply.any_stop, reply.direct, reply.calls == "whole"
        self._seed = _seed(request)
        self._taken = {item.id for item in request.items if isinstance(item, ToolCall)}
        self._numbers: dict[str, int] = {}
        self._parts = PartWriter(self.rendering)
        self._calls = 0
        self._blanks: list[tuple[str, Any]] = []  # empty texts and where they stood
        self._refusal: str | None = None
        self._api_origin = api.origin
        self.origin: str | None = None
        self._written = False
        self._last_call = ""  # where the last block stood, if it is a call
        self.cut = False  # whether a call was told as it came, and is not whole

    # Items.

    def blocks(self, item: Item, index: int) -> list[Any]:
        """The blocks for the next item: none for an empty text, which clients cannot send back."""
        self._note(item, index)
        write = _WRITERS.get(type(item))
        if write is None:
            self._lose(item, "dropped", f"an answer here has nothing like a {item.kind}")
            return []
        blocks = write(self, item)
        if blocks:
            self._written = True
            self._last_call = item.at if isinstance(item, ToolCall) else ""
        return blocks

    def _note(self, item: Item, index: int) -> None:
        """Note the next item, and where it stands if it came from no body."""
        item.at = item.at if item.at[:1] == "$" else f"items[{index}]"
        self.rendering.foreign = self._foreign

    def end(self, word: str | None) -> None:
        """Report a call that a limit seems to have cut: the last block of a whole answer, which says no more of it.

        `word`: why the answer ended, as it is written, because a refusal shows as one whatever its end was called.
        """
        if finish_reason(word) in CUTTING and self._last_call:
            detail = "who reads this must take the last call for one that the limit cut off"
            self.rendering.lose(self._last_call, "approximated", detail)

    def blank(self) -> list[Any]:
        """Return what stands for an answer without any block: one empty text, the first. Others are reported."""
        blanks, self._blanks = self._blanks, []
        if not self._written and not blanks:
            self.rendering.lose("$.content", "invented", "an empty text stands for an answer that says nothing")
        for place, _ in blanks if self._written else blanks[1:]:
            self.rendering.lose(place, "dropped", "an empty text is not accepted when it is sent back")
        if self._written:
            return []
        return [blanks[0][1] if blanks else {"type": "text", "text": "", "citations": None}]

    def _lose(self, item: Item, kind: LossKind, detail: str) -> None:
        self.rendering.lose(item.at, kind, detail)

    @property
    def _foreign(self) -> bool:
        return self.origin not in (None, self._api_origin)

    def _text(self, item: Assistant) -> list[Any]:
        self.rendering.lose_unplaced(item)
        if item.extra:
            self.rendering.put_extra({}, item.extra, item.at)
        blocks = []
        for index, part in enumerate(item.content):
            if isinstance(part, Refusal):
                self._refusal = (self._refusal or "") + part.text
            block = self._parts.write(part, item, index)
            if block is None:
                continue
            if is_text(block):
                block.setdefault("citations", None)
            if is_text(block) and not block["text"]:
                self._blanks.append((part_path(item, index), block))
            else:
                blocks.append(block)
        return blocks

    def _thinking(self, item: Thinking) -> list[Any]:
        self.rendering.lose_unplaced(item)
        if item.redacted is not None:
            block: Body = {"type": "redacted_thinking", "data": item.redacted}
        else:
            text = "" if self.omits_thinking else "".join(thought_texts(self.rendering, item))
            block = {"type": "thinking", "thinking": text, "signature": item.signature or item.seal or ""}
        if item.extra:
            self.rendering.put_extra(block, item.extra, item.at)
        return [block]

    def _tool_use(self, item: ToolCall) -> list[Any]:
        if not is_whole(item):
            return self._unfinished(item)
        block = self._call_head(item)
        arguments, why = object_arguments(item)
        if not self._whole and arguments == item.arguments.strip(_BLANKS):  # pieces of a text may be white space
            arguments, why = item.arguments, ""
        block["input"] = Json(arguments.encode())
        if why:
            self._lose(item, "approximated", why)
        if item.extra:
            self.rendering.put_extra(block, item.extra, item.at)
        return [block]

    def cut_call(self, item: ToolCall, index: int) -> list[Any]:
        """The block for the call in which the answer ended."""
        self._note(item, index)
        return self._unfinished(item)

    def _unfinished(self, item: ToolCall) -> list[Any]:
        """A call that was cut off, as clients make one of the stream that tells it."""
        if self._holds or item.custom or item.arguments.lstrip()[:1] != "{":
            self._lose(item, "dropped", UNTOLD)
            return []
        self.cut = self._written = True
        self._lose(item, "approximated", "the call was cut off: what is not whole of its arguments is left out")
        return [self._call_head(item) | {"input": Json(closed(item.arguments).encode())}]

    def _call_head(self, item: ToolCall) -> Body:
        self._calls += 1
        block: Body = {"type": "tool_use", "id": self._call_id(item), "name": item.full_name, "input": Json(b"{}")}
        self.rendering.lose_unplaced(item)
        if self._direct and "caller" not in item.extra:
            block["caller"] = {"type": "direct"}
        return block

    def begin_call(self, item: ToolCall, index: int) -> Body:
        """The block of a call whose arguments are told as they come: without them, and with what its start told."""
        self._note(item, index)
        block = self._call_head(item)
        self._written, self._last_call = True, item.at
        if item.extra and not self._foreign:
            self.rendering.put_extra(block, item.extra, item.at)
        return block

    def end_call(self, item: ToolCall, block: Body, index: int) -> None:
        """Report what such a call has that came too late for its block."""
        self._note(item, index)
        rest: Body = {}
        self.rendering.put_extra(rest, item.extra, item.at)
        for name in rest.keys() - block.keys():
            self.rendering.lose(f"{item.at}.{name}", "dropped", LATE)

    def _opaque(self, item: Opaque) -> list[Any]:
        if self.rendering.foreign:
            self._lose(item, "dropped", f"{self.rendering.target} has nothing like {item.type!r}")
            return []
        return [item.value]

    # Ids.

    def message_id(self, response: Response | None = None) -> str:
        """An id for the message: made from the request and what a whole answer says, so the same each time."""
        return f"msg_{_digest(self._seed, '' if response is None else _said(response))}"

    def _call_id(self, item: ToolCall) -> str:
        """The call's own id in the characters that are allowed here, or a new one that no earlier call has."""
        if item.id is not None:
            if self.origin == self._api_origin:
                return item.id
            legal = legal_id(item.id)
            if legal != item.id:
                self._lose(item, "renamed", f"the id {item.id!r} has characters that are not allowed here: {legal!r}")
            if self._foreign and legal in self._taken:  # as of servers that begin to count with each answer
                distinct = unused_id(legal, self._taken, self._numbers)
                self._lose(item, "renamed", TAKEN.format(legal, distinct))
                legal = distinct
            self._taken.add(legal)
            return legal
        number = self._calls
        while (made := f"toolu_{_digest(self._seed, str(number), item.name)}") in self._taken:
            number += 1
        self._taken.add(made)
        return made

    # The end.

    def ending(self, reason: str | None, stop_sequence: str | None) -> Body:
        """`stop_reason`, `stop_sequence` and, after a refusal in words, `stop_details`.

        Raises UpstreamError for a reason that says the answer failed.
        """
        check_end(reason)
        asked = self._any_stop or stop_sequence in self._stops
        if reason == "stop" and stop_sequence is not None and asked and not self.cut:
            return {"stop_reason": "stop_sequence", "stop_sequence": stop_sequence}
        if stop_sequence is not None:
            detail = f"{stop_sequence!r} is no stop string of the client's, or not why the answer ended"
            self.rendering.lose("$.stop_sequence", "dropped", detail)
        word = self._not_whole(self._stop_reason(reason))
        end: Body = {"stop_reason": word, "stop_sequence": None}
        if word == "refusal" and self._refusal is not None:
            end["stop_details"] = {"type": "refusal", "category": None, "explanation": self._refusal}
        return end

    def _stop_reason(self, reason: str | None) -> str | None:
        word = STOP_REASONS.get(reason or "", reason)
        own = self.origin == self._api_origin or word in STOP_REASONS.values() or word in OWN_REASONS
        if word is not None and not own:
            known = STOP_REASONS.get(meaning(word))
            why = f"nobody knows an end {word!r}, so it is no good one" if known is None else f"{word!r} is that"
            word = known or "max_tokens"
            self._end_is(word, why)
        if word == "end_turn" and self._refusal is not None:
            self._end_is("refusal", "the answer is a refusal")
            return "refusal"
        if word == "end_turn" and self._calls:
            self._end_is("tool_use", "the answer calls a tool, and whoever asked must run it")
            return "tool_use"
        if word == "tool_use" and not self._calls:
            self._end_is("end_turn", "the answer calls no tool")
            return "end_turn"
        return word

    def _not_whole(self, word: str | None) -> str | None:
        """The same, where a call that was told is not whole: then it is no good end."""
        if not self.cut or finish_reason(word) in CUTTING:
            return word
        self._end_is("max_tokens", CUT_CALL)
        return "max_tokens"

    def _end_is(self, word: str, why: str) -> None:
        self.rendering.lose("$.finish_reason", "approximated", f"{word!r}, because {why}")

    def usage(self, usage: Usage | None, default: Usage) -> Body:
        """The token counts, which are required here."""
        if usage is None:
            self.rendering.lose("$.usage", "invented", "required here: the counts that are known, or 0")
        elif usage.input < usage.cached + usage.cache_written:
            detail = "more of the prompt is said to be in a cache than there is: its tokens are those"
            self.rendering.lose("$.usage", "approximated", detail)
        return usage_object(default if usage is None else usage)

    def lose_scores(self) -> None:
        """Say that how likely tokens were is not told."""
        self.rendering.lose("$.logprobs", "dropped", f"{self.rendering.target} does not tell how likely tokens were")

    def put_tier(self, usage: Body, extra: Extra) -> None:
        """Return how another API's answer was served. A stream says it when it begins, where others do not know it."""
        if self._foreign and (tier := tier_of(extra, _TIERS)) is not None:
            usage["service_tier"] = tier

    def put_extra(self, body: Body, extra: Extra, usage: Usage | None) -> None:
        """Write unnamed members of the response, or report them where they are another API's."""
        if self._foreign:
            lose_foreign(self.rendering.losses, self.rendering.target, extra, usage, body)
        else:
            merge(body, extra)
            if usage is None and "usage" in extra and "usage" in body:
                put_known(body["usage"], extra)


def message_body(id_: str, model: str | None, content: list[Any], ending: Body, usage: Body) -> Body:
    """A message, which a stream begins as one that has said nothing."""
    body = {"id": id_, "type": "message", "role": "assistant", "model": model or "", "content": content}
    return body | ending | {"usage": usage}


def _said(response: Response) -> str:
    """The contents of a response as one text."""
    items = [(item.kind, text_content(getattr(item, "content", ())), item) for item in response.items]
    return "\0".join(
        [f"{kind}\0{item.arguments if isinstance(item, ToolCall) else text}" for kind, text, item in items]
    )


def _seed(request: Request) -> str:
    """Return what tells this request from the others of its conversation: how long it is, and how it ends."""
    last = request.items[-1] if request.items else None
    content: Any = getattr(last, "content", ())
    return f"{request.settings.model}\n{len(request.items)}\n{text_content(content)}"


def _digest(*parts: str) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


_WRITERS: dict[type, Callable[[AnswerWriter, Any], list[Any]]] = {
    Assistant: AnswerWriter._text,
    Thinking: AnswerWriter._thinking,
    ToolCall: AnswerWriter._tool_use,
    Opaque: AnswerWriter._opaque,
}
