"""Owns answers that begin otherwise than their prompt does: the empty answer that a model writes before a call at once.

A prompt opens an answer, because nobody knows yet what it will be. Where a call is a block of its own, as in the
Universal transcript, a model that calls at once must end that answer first. No transcript of the conversation has it,
but every prompt of the session has it from then on, so what is trained has it too.

Where a format reads it so, the answer is ended right behind its opening, without the newline that a renderer puts
there: of two newlines most tokenizers make one token, and a prompt with the first of them would end within it.

Which kinds of items these are is asked of the format: its prompt, its rendering and its parsers must agree on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import fold
from turnscript.core.losses import Loss
from turnscript.datasets.train import MODEL
from turnscript.engine.layout import Past, layout_of
from turnscript.engine.prompt import Prompt
from turnscript.engine.render import is_shown
from turnscript.engine.spans import ITEM, Span, Writer
from turnscript.formats.format import Format

_NAME = "f"
_PROBES: tuple[Item, ...] = (
    ToolCall(name=_NAME, arguments="{}", id="c1"),
    Thinking(content=[Text(text="x")]),
)
_CALLING = frozenset(map(type, _PROBES))
_ASKED: tuple[Item, ...] = (User(content=[Text(text="x")]),)
_RESULTS: tuple[Item, ...] = (
    *_ASKED,
    ToolCall(name=_NAME, arguments="{}", id="c0"),
    ToolResult(content=[Text(text="x")], name=_NAME, id="c0"),
)
_PROBED = [(before, item) for before in (_ASKED, _RESULTS) for item in _PROBES]
_SILENCE: tuple[Item, ...] = (Assistant(content=[Text(text="")]),)
_SPOKEN = (Assistant, ToolCall)
_BEGINS = "an empty text before a call is how a model begins the call, and reads as none"


class Opened(NamedTuple):
    """A conversation as a model says it. `origins`: of each item, which one of the conversation as it was given it is,
    or which one it stands before. `empty`: positions of answers that end where they began. `rendered`: how a renderer
    closes them, `closed`: how they are closed.

    `read`: what the text reads back as. `losses`: the empty texts of the conversation that this does not have.
    """

    request: Request
    read: Request
    losses: Sequence[Loss]
    origins: Sequence[int]
    empty: frozenset[int]
    rendered: str
    closed: str

    def texts(self, texts: Sequence[str], marks: Sequence[int]) -> list[str]:
        """Return the pieces of a Writer as they are in what is trained."""
        return [
            self.closed if text == self.rendered and mark // ITEM in self.empty else text
            for text, mark in zip(texts, marks, strict=True)
        ]

    def spans(self, spans: Sequence[Span]) -> list[Span]:
        """Return the spans of a prompt."""
        return [
            span._replace(text=self.closed) if span.text == self.rendered and span.item in self.empty else span
            for span in spans
        ]

    def as_given(self, marks: Sequence[int]) -> list[int]:
        """Return the marks of a Writer by the items as they were given: an empty answer is of the call."""
        origins = self.origins
        return [origins[mark // ITEM] * ITEM + mark % ITEM if mark >= 0 else mark for mark in marks]


class AnswerBeginnings:
    """Knows what a model writes in a format before an item that goes on from no prompt."""

    def __init__(self, format_: Format) -> None:
        self._format = format_
        self._layout = layout_of(format_.document)
        place = self._layout.places.get(Assistant.kind)
        self._rendered = "" if place is None else place.close
        opening = "" if place is None else f"{place.open}{place.head_end}"
        self._tight = self._rendered[opening.endswith("\n") and self._rendered.startswith("\n") :]

    def opened(self, request: Request) -> Opened | None:
        """Return a conversation as a model says it, answer by answer; None if that is the conversation itself."""
        items = request.items
        if _CALLING.isdisjoint(map(type, items)):  # before anybody asks the format, which takes a while
            return None
        kinds = self.kinds
        if not kinds or not _may_begin(items, kinds):
            return None
        places = set(self._places(items))
        if not places:
            return None
        closed, unread = self._closing
        said: list[Item] = []
        origins: list[int] = []
        empty: set[int] = set()
        for at, item in enumerate(items):
            if at in places:
                empty.add(len(said))
            if at in places and not isinstance(item, Assistant):
                said.append(_nothing(item.at or f"items[{at}]"))
                origins.append(at)
            said.append(item if item.at else _placed(item, f"items[{at}]"))
            origins.append(at)
        kept = [item for at, item in enumerate(said) if at not in empty] if unread else said
        lost = [said[at].at for at in sorted(empty) if unread and isinstance(items[origins[at]], Assistant)]
        return Opened(
            request=_with_items(request, said),
            read=_with_items(request, kept),
            losses=[Loss(where, "approximated", _BEGINS) for where in lost],
            origins=origins,
            empty=frozenset(empty),
            rendered=self._rendered,
            closed=closed,
        )

    def _places(self, items: Sequence[Item]) -> Iterator[int]:
        """Give where answers begin with an item that needs an empty one before it, or with that empty one."""
        past = Past.of(self._layout)
        past.note(items, 0)
        begins, behind_result = True, False
        for at, item in enumerate(items):
            if item.kind not in MODEL:
                begins, behind_result = True, isinstance(item, ToolResult)
            elif begins and not (isinstance(item, Thinking) and self._is_hidden(item, at, past)):
                begins = False
                first = items[at + 1] if _is_nothing(item) and at + 1 < len(items) else item
                if type(first) in self._apart[behind_result]:
                    yield at

    def _is_hidden(self, thought: Thinking, at: int, past: Past) -> bool:
        """Return whether the text shows nothing of a thought, so that the answer begins behind it."""
        return not is_shown(self._layout, past, thought, at, Writer(self._layout.escape, archive=False))

    @cached_property
    def kinds(self) -> frozenset[type[Item]]:
        """Return the kinds of items before which an answer is ended; none in most formats."""
        return self._apart[False] | self._apart[True]

    @cached_property
    def _closing(self) -> tuple[str, bool]:
        """Return how an empty answer is closed: at once, if it reads so; and whether it reads as none."""
        apart = [(before, item) for before, item in _PROBED if type(item) in self._apart[before is _RESULTS]]
        for closed in (self._tight, self._rendered):
            read = [self._read(before, item, closed) for before, item in apart]
            for unread in (True, False):
                if all(
                    found == _types([*before, *_SILENCE[unread:], item])
                    for found, (before, item) in zip(read, apart, strict=True)
                ):
                    return closed, unread
        return self._rendered, False

    @cached_property
    def _apart(self) -> tuple[frozenset[type[Item]], frozenset[type[Item]]]:
        """Return the items that no prompt of their own leads to, behind what a user says and behind a result."""
        if self._format.document.generation.kind != Assistant.kind:
            return frozenset(), frozenset()
        found = [(before is _RESULTS, type(item)) for before, item in _PROBED if self._is_apart(before, item)]
        asked, answered = [frozenset([kind for place, kind in found if place == behind]) for behind in (False, True)]
        return asked, answered

    def _is_apart(self, before: Sequence[Item], item: Item) -> bool:
        """Return whether prompts lead to an item only behind an empty answer, and both are read as the item alone."""
        try:
            bare = self._format.write(_request([*before, item])).text
            led = any(bare.startswith(prompt.text) for prompt in self._prompts(before, item))
            return not led and bool(self._read(before, item, self._rendered))
        except TurnscriptError:
            return False

    def _read(self, before: Sequence[Item], item: Item, closed: str) -> list[type[Item]]:
        """Return what a transcript reads as that has an empty answer, closed so, before an item: the types of its
        items. Nothing where the answer goes on from no prompt, or where the parser of that does not read the item
        alone."""
        said = _request([*before, *_SILENCE, item])
        out = self._format.write(said)
        opened = Opened(said, said, [], [], frozenset({len(before)}), self._rendered, closed)
        text = "".join(opened.texts(*out.flat()))
        prompt, *_ = self._prompts(before, item)
        if not text.startswith(prompt.text):
            return []
        written = text[len(prompt.text) :].removesuffix(self._format.document.end)
        stop = min([at for one in prompt.stops if (at := written.find(one)) >= 0], default=len(written))
        parser = prompt.parser()
        response = fold(parser.feed(written[:stop]) + parser.close())
        if response.issues or _types(response.items) != [type(item)]:
            return []
        try:
            return _types(self._format.parse(text).items)
        except TurnscriptError:
            return []

    def _prompts(self, before: Sequence[Item], item: Item) -> Iterator[Prompt]:
        """Give the prompts that lead to an item: one for an answer, and to a thought one that asks for it."""
        yield self._format.prompt(_request(before), thinking=False)
        if isinstance(item, Thinking):
            yield self._format.prompt(_request(before), thinking=True)


def _types(items: Sequence[Item]) -> list[type[Item]]:
    return list(map(type, items))


def _with_items(request: Request, items: list[Item]) -> Request:
    """Return a request with other items."""
    return replace(request, conversation=replace(request.conversation, items=items))


def _request(items: Sequence[Item]) -> Request:
    return Request(conversation=Conversation(items=list(items), tools=[Tool(name=_NAME)]))


def _nothing(where: str) -> Assistant:
    """Return an empty answer."""
    return Assistant(content=[Text(text="")], at=where)


def _is_nothing(item: Item) -> bool:
    """Return whether an item is an answer that says the empty text and nothing else that a model sees."""
    if not isinstance(item, Assistant) or item.open or item.name is not None or item.extra or len(item.content) > 1:
        return False
    return not item.content or (type(part := item.content[0]) is Text and not part.text and not part.extra)


def _may_begin(items: Sequence[Item], kinds: frozenset[type[Item]]) -> bool:
    """Return whether an item of these kinds may begin an answer, by what stands before it: most often, a word does."""
    for at, kind in enumerate(map(type, items)):
        if kind in kinds and (not at or type(before := items[at - 1]) not in _SPOKEN or _is_nothing(before)):
            return True
    return False


def _placed(item: Item, where: str) -> Item:
    """Return an item that says where it stands, because others come before it."""
    found = copy(item)
    found.at = where
    return found
