"""Owns output items: writing them as a response holds them, and reading them back.

The log probabilities of an item are told with its texts; events tell them without the bytes of each token.

A response says more than a request does of the same item: its status, and empty lists of annotations and log
probabilities. What is always so is left out when it is read: empty lists, nulls, and `completed`; where the response is
incomplete, its last text or thought is `incomplete`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnscript.apis.api import OFFICIAL, Api, Body, Rendering, Reply
from turnscript.apis.openai_responses.client_tools import (
    CLIENT_CALLS,
    CLIENT_OUTPUTS,
    TOOL_SEARCH_CALL,
    begun_body,
    call_body,
    settle_call,
)
from turnscript.apis.openai_responses.options import ORIGIN
from turnscript.apis.openai_responses.outcome import COMPLETED, IN_PROGRESS, INCOMPLETE, is_unfinished, said
from turnscript.apis.openai_responses.parts import (
    OUTPUT,
    REASONING,
    SUMMARY,
    Place,
    text_of_part,
    type_of_part,
    write_parts,
)
from turnscript.apis.openai_responses.reading import read_items
from turnscript.apis.openai_responses.tools import Named, Naming
from turnscript.apis.openai_responses.writing import Writer, search_call
from turnscript.apis.shared.answers import UNTOLD
from turnscript.apis.shared.citations import take_pages
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Opaque,
    Part,
    Refusal,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from turnscript.core.json_text import Json, read_object, string_of, type_word
from turnscript.core.logprobs import Candidate, TokenLogprob, data_of
from turnscript.core.source_paths import part_path
from turnscript.core.validation import text_only
from turnscript.core.wire import missing

_ALWAYS = {"annotations": b"[]", "logprobs": b"[]"}
_NULL = Json(b"null")
OVERTAKEN = "what this call is shows when it is complete: it is told behind what came first"
"""The loss of an item whose place in the order was taken by later ones."""


class Output:
    """Writes the items of one response. `losses` grows with what cannot be said."""

    def __init__(self, api: Api, request: Request, seed: str, reply: Reply) -> None:
        self._api = api
        self.rendering = Rendering(Request(origin=ORIGIN), api, OFFICIAL, {})
        self.rendering.unplaced = api.unplaced.in_answers
        self._origin: str | None = None
        self.losses = self.rendering.losses
        self.lose = self.rendering.lose
        self.naming = Naming(request, seed, self.losses)
        self.logprobs: dict[int, list[TokenLogprob]] = {}  # of the items, by their index
        self._holds = reply.calls == "whole" or reply.incomplete_as == COMPLETED
        self.unfinished = False  # whether a call was told that is not whole
        self.summarise = request.settings.reasoning_summary not in (None, "none")

    def came_from(self, origin: str | None) -> None:
        """Say which API's unnamed members the next items hold."""
        self._origin = origin
        self.rendering.foreign = origin not in (None, ORIGIN)

    def waits(self, call: ToolCall) -> bool:
        """Whether a stream tells a call when it is complete."""
        return self._holds or self.naming.shows_late(call)

    def cut_call(self, item: ToolCall, index: int) -> list[Any]:
        """A call that was cut off, if a stream tells it."""
        if self.waits(item):
            self.rendering.lose(self.at(item, index), "dropped", UNTOLD)
            return []
        self.unfinished = True
        return [self.item(self.naming.begin(item, index).item, index, INCOMPLETE)]

    def opening(self, named: Named, index: int) -> Any:
        """The item as it is announced: without content. None if it has no place here."""
        item = named.item
        if isinstance(item, Assistant):
            return self._message(item, index, [], IN_PROGRESS)
        if isinstance(item, Thinking):
            return self._reasoning(item, index, [], [], IN_PROGRESS)
        if isinstance(item, ToolCall):
            return self._call(item, index, "", IN_PROGRESS)
        return self._other(item, index, IN_PROGRESS)

    def item(self, item: Item, index: int, status: str) -> Any:
        """The whole item, which has its ids. None if it has no place here."""
        if item.open and not isinstance(item, ToolCall):
            status = INCOMPLETE
        if isinstance(item, Assistant):
            self.rendering.lose_unplaced(item, self.at(item, index))
            return self._message(item, index, self.content(item, index), status)
        if isinstance(item, Thinking):
            self.rendering.lose_unplaced(item, self.at(item, index))
            return self._reasoning(item, index, self.summary(item, index), self.content(item, index), status)
        if isinstance(item, ToolCall):
            return self._call(item, index, text_only(item.arguments), status)
        return self._other(item, index, status)

    def settle(self, body: Any, item: Item, status: str) -> None:
        """Say of the last item, where a limit cut off its text or thought, so, unless it says itself what it is."""
        is_own = "status" in item.extra and not self.rendering.foreign
        if status == INCOMPLETE and isinstance(item, Assistant | Thinking) and not is_own:
            body["status"] = INCOMPLETE

    def content(self, item: Assistant | Thinking, index: int) -> list[Any]:
        """The content parts of a message or thought."""
        if isinstance(item, Thinking):
            return self._parts(item, index, item.content, REASONING)
        said, cited = self._pages(item)
        written = self._parts(item, index, said, OUTPUT)
        texts = [part for part in written if type_of_part(part) == OUTPUT]
        shares = _shared(self.logprobs.get(index, []), [text_of_part(part) for part in texts])
        for part, tokens in zip(texts, shares, strict=True):
            part.setdefault("annotations", next(cited, []))
            part.setdefault("logprobs", [told_token(one) for one in tokens])
        return written

    def _pages(self, item: Assistant) -> tuple[list[Part], Iterator[list[Body]]]:
        """The parts without what another API has them cite, and the pages that each text cites."""
        if not self.rendering.foreign or not any(part.extra for part in item.content):
            return item.content, iter(())
        said, cited = list(item.content), list[list[Body]]()
        for at, part in enumerate(item.content):
            if isinstance(part, Text):
                pages, said[at] = take_pages(self.rendering, part, part_path(item, at))
                cited.append(pages)
        return said, iter(cited)

    def summary(self, item: Thinking, index: int) -> list[Any]:
        """The summary; where one was asked for and there is none, the thought itself stands for it."""
        if not item.summary and self.summarise and item.content:
            detail = "a summary was asked for: the thought itself is shown as one, too"
            self.rendering.lose(f"{self.at(item, index)}.summary", "invented", detail)
            return self._parts(item, index, item.content, SUMMARY)
        return self._parts(item, index, item.summary, SUMMARY)

    def at(self, item: Item, index: int) -> str:
        """The item's source path, or its place, which is noted."""
        item.at = item.at or f"items[{index}]"
        return item.at

    def _parts(self, item: Item, index: int, content: list[Part], usual: str) -> list[Any]:
        self.at(item, index)
        return write_parts(Place(self.rendering, item, usual), content)

    def _message(self, item: Assistant, index: int, content: list[Any], status: str) -> Body:
        body: Body = {"type": "message", "id": item.id, "status": status, "role": "assistant", "content": content}
        if item.phase is not None:
            body["phase"] = item.phase
        return self._with_extra(body, item, index)

    def _reasoning(self, item: Thinking, index: int, summary: list[Any], content: list[Any], status: str) -> Body:
        body: Body = {"type": "reasoning", "id": item.id, "summary": summary, "content": content, "status": status}
        proof = item.encrypted if item.encrypted is not None else item.seal
        if proof is not None and status != IN_PROGRESS:
            body["encrypted_content"] = proof
        return self._with_extra(body, item, index)

    def _call(self, item: ToolCall, index: int, arguments: str, status: str) -> Body:
        if is_search_call(item):
            body = search_call(item, item.id)
            if status == IN_PROGRESS:
                body["arguments"] = {}
            return self._with_extra(body | {"status": status}, item, index)
        if (own := call_body(item, item.id, whole=True)) is not None:
            own = begun_body(own) if status == IN_PROGRESS else own
            return self._with_extra(own | {"status": status}, item, index)
        kind, text = ("custom_tool_call", "input") if item.custom else ("function_call", "arguments")
        body = {"type": kind, "id": item.item_id, "call_id": item.id, "name": item.name, text: arguments}
        if item.namespace is not None:
            body["namespace"] = item.namespace
        return self._with_extra(body | {"status": status}, item, index)

    def _other(self, item: Item, index: int, status: str) -> Any:
        """An item that models seldom write: as it stands in a request, with a status."""
        if isinstance(item, Opaque):
            if not item.role:
                return item.value
            self.rendering.lose(self.at(item, index), "dropped", f"{self._api.name} has no item {item.type!r}")
            return None
        self.at(item, index)
        alone = Request(conversation=Conversation(items=[item]), origin=self._origin or ORIGIN)
        rendering = Rendering(alone, self._api, OFFICIAL, {})
        writer = Writer(rendering, alone.items)
        writer.write(0, 1)
        self.losses += rendering.losses
        for body in writer.out:
            if "role" in body:
                body.setdefault("type", "message")
            if isinstance(item, ToolResult):
                body.setdefault("status", status)
            return body
        return None

    def _with_extra(self, body: Body, item: Item, index: int) -> Body:
        """The unnamed members; a status that is said there is the item's own. What is only announced has none."""
        if not item.extra or body["status"] == IN_PROGRESS:
            return body
        if "status" in item.extra and not self.rendering.foreign:
            body["status"] = item.extra["status"]
        self.rendering.put_extra(body, item.extra, self.at(item, index))
        return body


def _shared(tokens: list[TokenLogprob], texts: list[str]) -> Iterator[list[TokenLogprob]]:
    """The tokens of each of an item's texts: as many as have its bytes, and the rest for the last."""
    start = 0
    for text in texts[:-1]:
        end, left = start, len(text.encode("utf-8", "replace"))
        while left > 0 and end < len(tokens):
            left -= len(data_of(tokens[end]))
            end += 1
        yield tokens[start:end]
        start = end
    if texts:
        yield tokens[start:]


def told_token(token: TokenLogprob) -> Body:
    """A token as an item holds it. What its bytes are has to be said."""
    return _scored(token) | {"top_logprobs": [_scored(one) for one in token.top_logprobs]}


def brief(tokens: Any) -> Any:
    """Tokens as an event tells them: without their bytes. Those of another server are as it wrote them."""
    if not isinstance(tokens, list):
        return tokens
    kept = [{key: one[key] for key in one if key != "bytes"} for one in tokens]
    return [one | {"top_logprobs": brief(one["top_logprobs"])} if "top_logprobs" in one else one for one in kept]


def _scored(token: Candidate) -> Body:
    return {"token": token.token, "bytes": token.bytes or [], "logprob": token.logprob}


def is_search_call(item: Item) -> bool:
    """Whether a call is one of a search for tools that the client runs."""
    return isinstance(item, ToolCall) and item.slot == TOOL_SEARCH_CALL


# Reading.


def read_output(value: Json, path: str, index: int) -> Item | None:
    """An item of the output at `path`. None: a call that was cut off, or has no name, which nobody may run."""
    item, *more = _output_items(value, path, index)
    if isinstance(item, Opaque) and bytes(read_object(value).get("type", _NULL)) == b"null":
        raise missing(item.at, "type", "the type of an output item")  # requests name items of before by their id alone
    if more:  # what a search of the client's has found, or a message around calls: no model answers with that
        return Opaque(type=type_word(value), value=value, at=f"{path}[{index}]")
    if not isinstance(item, Assistant | Thinking | ToolCall):
        return item
    if is_search_call(item):
        item.extra.pop("execution", None)
    elif isinstance(item, ToolCall) and item.slot in CLIENT_CALLS:
        settle_call(item)
    else:
        if isinstance(item, ToolCall) and item.arguments == "{}" and _has_no_arguments(value):
            item.arguments = ""  # what an answer says is kept as it is, in streams too
        _take_envelope(item)
    item.extra = said(item.extra)
    item.id = item.id or None
    if isinstance(item, ToolCall):
        item.item_id = item.item_id or None
        unfinished = status_of(item) == INCOMPLETE
        settle_status(item, COMPLETED)
        return None if unfinished or not item.name else item
    for part in item.content:
        if part.extra and isinstance(part, Text):
            part.extra = {key: one for key, one in said(part.extra).items() if _ALWAYS.get(key) != bytes(one)}
    return item


def _take_envelope(item: Item) -> None:
    """Give a call that stands in a message what that says: it is the item of the output."""
    around, item.envelope = item.envelope, None
    if isinstance(item, ToolCall) and around is not None:
        item.item_id = string_of(around.pop("id")) if "id" in around else None
        item.extra = around | item.extra


def _has_no_arguments(value: Json) -> bool:
    """Return whether the arguments of a call are an empty text."""
    return bytes(read_object(value).get("arguments", _NULL)) == b'""'


def _output_items(value: Json, path: str, index: int) -> list[Item]:
    """The items of an output item. Where it is what a tool of the client's has answered, the server has run that."""
    items = read_items([value], path, index)
    return [
        Opaque(type=item.slot, value=value, at=item.at)
        if isinstance(item, ToolResult) and item.slot in CLIENT_OUTPUTS
        else item
        for item in items
    ]


def status_of(item: Item | None) -> str | None:
    """What a message, a thought or a call says of itself, if it does."""
    value = item.extra.get("status") if isinstance(item, Assistant | Thinking | ToolCall) else None
    return bytes(value).decode().strip().strip('"') if value is not None else None


def settle_status(item: Item | None, usual: str) -> None:
    """Take the status off an item whose place in the response says as much: `usual`."""
    if item is not None and status_of(item) == usual:
        del item.extra["status"]


def settle_last(item: Item | None, reason: str | None) -> None:
    """Take the status off the last item, if the response, which ended for that reason, says as much."""
    settle_status(item, INCOMPLETE if is_unfinished(reason) and not isinstance(item, ToolCall) else COMPLETED)


def head(item: Item) -> Item:
    """An item as an event announces it: without its content."""
    if isinstance(item, Assistant):
        return Assistant(id=item.id, phase=item.phase, at=item.at)
    if isinstance(item, Thinking):
        return Thinking(id=item.id, at=item.at)
    if isinstance(item, ToolCall):
        return ToolCall(
            name=item.name,
            arguments="",
            id=item.id,
            item_id=item.item_id,
            namespace=item.namespace,
            custom=item.custom,
            slot=item.slot,
            at=item.at,
        )
    return item


def content_text(item: Item | None) -> str:
    """What the deltas of an item add up to."""
    if isinstance(item, ToolCall):
        return item.arguments
    content = item.content if isinstance(item, Assistant | Thinking) else ()
    return "".join([part.text for part in content if isinstance(part, Text | Refusal)])
