"""Owns compaction: a conversation that is to be shorter is summed up by the model, and goes on from the summary.

The model is asked behind the conversation as it stands, so that its server need not read it again. What it writes
leaves as an item that only this server can open: sealed like a thought, with a key of its own, because a summary is no
thought. Where the conversation before it comes along, because the server keeps it, a prompt begins at the summary. A
sealed one that another server made stays what it is, which is reported; one that can be read is read.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from copy import copy
from secrets import token_hex

from msgspec.structs import replace

from turnscript.apis.serving import Compacting
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Opaque,
    Request,
    Settings,
    System,
    Text,
    ToolChoice,
    ToolsChange,
    User,
    text_content,
)
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartEnd, PartStart
from turnscript.core.losses import Loss
from turnscript.core.signatures import seal, unseal

WISH = (
    "The conversation up to here is about to be replaced by a summary, and you will go on from that summary alone. "
    "Write it now: what was asked for, and how; what was done and found out, with the names, paths, values and "
    "commands that matter; what was decided and why; and what is left to do. Write nothing but the summary."
)
"""What the model is told instead of the client's wish."""
SUMMARY = "What was said before has been replaced by this summary of it:\n\n"
"""What stands before a summary in a prompt."""


def opened(
    request: Request, compacting: Compacting, key: bytes, former: Sequence[bytes] = ()
) -> tuple[Request, list[Loss]]:
    """The request as the model sees it: with the summaries that this server made, and with its own wish for another;
    and what of it does not fit such a wish. The one that is given is not changed."""
    if Opaque not in map(type, request.items):
        return request, []
    wished = compacting.wished(request)
    proofs = [compacting.proof(item) for item in request.items]
    if not wished and not any(proofs):
        return request, []
    keys = _own(key), [_own(one) for one in former]
    items = [_shown(item, proof, keys) for item, proof in zip(request.items, proofs, strict=True)]
    whole, losses = copy(request), list[Loss]()
    if wished:
        items[-1] = User(content=[Text(text=WISH)], at=items[-1].at)
        losses = [_unfit(request, field) for field in _unfitting(request.settings)]
        whole.settings = replace(request.settings, tool_choice=_no_calls(request), response_format=None)
    whole.conversation = Conversation(items=_shortened(items, request.items, compacting), tools=request.tools)
    return whole, losses


def summed_up(request: Request, summary: Callable[[Item], str | None]) -> Request:
    """The request from the last summary on that its API tells in the open: what stands before it is not read there
    either, but for rules and tools. The one that is given is not changed."""
    said = request.items
    if Opaque not in map(type, said):
        return request
    last = next((at for at in reversed(range(len(said))) if summary(said[at])), None)
    if last is None:
        return request
    item = said[last]
    stays: list[Item] = [one for one in said[:last] if isinstance(one, System | ToolsChange)]
    whole = copy(request)
    items = [*stays, User(content=[Text(text=f"{SUMMARY}{summary(item)}")], at=item.at), *said[last + 1 :]]
    whole.conversation = Conversation(items=items, tools=request.tools)
    return whole


def _shortened(shown: list[Item], items: Sequence[Item], compacting: Compacting) -> list[Item]:
    """The items from the last summary on that stands for those before it. What cannot be read stands for nothing."""
    for index in range(len(items) - 1, -1, -1):
        if shown[index] is items[index] or compacting.proof(items[index]) is None:
            continue
        stays = compacting.stays(items, index)
        if stays is not None:
            return [*[shown[at] for at in stays], *shown[index:]]
    return shown


def _unfitting(settings: Settings) -> list[str]:
    choice = settings.tool_choice
    demands = choice is not None and choice.mode not in ("auto", "none")
    return [*(["tool_choice"] if demands else []), *(["response_format"] if settings.response_format else [])]


def _unfit(request: Request, field: str) -> Loss:
    return Loss(request.paths.get(field, f"$.{field}"), "dropped", "a summary is a text")


def _shown(item: Item, proof: str | None, keys: tuple[bytes, Sequence[bytes]]) -> Item:
    text = None if proof is None else unseal(proof, *keys)
    return item if text is None else User(content=[Text(text=f"{SUMMARY}{text}")], at=item.at)


def _no_calls(request: Request) -> ToolChoice | None:
    """The tools stay where they stand in the prompt, and none is called."""
    later = any(isinstance(item, ToolsChange) for item in request.items)
    return ToolChoice("none") if request.tools or later else None


def _own(key: bytes) -> bytes:
    return hmac.digest(key, b"summaries", "sha256")


class Compacted:
    """A stage that tells the text of an answer as one item. Thoughts pass: they show that something is done.

    Raises UpstreamError at the end of an answer without a text: it would replace the conversation by nothing.
    """

    def __init__(self, compacting: Compacting, key: bytes) -> None:
        self._compacting = compacting
        self._key = key
        self._texts: dict[int, str] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """The events without those of the text, and at the end the item."""
        told: list[Event] = []
        for event in events:
            if isinstance(event, MessageEnd):
                told += [*self._item(), event]
            elif isinstance(event, PartStart) and isinstance(event.part, Assistant):
                self._texts[event.index] = ""
            elif event.index not in self._texts:
                told.append(event)
            elif isinstance(event, PartEnd) and isinstance(event.part, Assistant):
                self._texts[event.index] = text_content(event.part.content)
        return told

    def _item(self) -> list[Event]:
        text = "".join(self._texts.values()).strip()
        if not text:
            raise UpstreamError("the model wrote no summary; ask again", retryable=True)
        item = self._compacting.item(token_hex(16), seal(text, _own(self._key)))
        index = min(self._texts)
        return [PartStart(index, item), PartEnd(index, item)]


__all__ = ["SUMMARY", "WISH", "Compacted", "opened", "summed_up"]
