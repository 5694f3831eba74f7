"""Owns writing: a request as the spans of a document, for an archive (everything) or a prompt (what a model sees).

Theory of operation. Items are written one after the other. If the table has a joint for the kind before and the kind of
an item, the item goes on in the same turn; otherwise that turn is closed and another one opened. Everything else is
literals from the table and payloads from the bodies.

A turn may stand where it has no opening of its own. Theory of operation. A turn without an opening is known by what
stands before it: the closing of another turn, or the start of the document. No text can look like an opening or a
closing, because the escape breaks those, so one such turn at each place is as certain as a mark. Elsewhere it cannot
begin: instructions are written as the user's text then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Part,
    Raw,
    Request,
    System,
    Text,
    Tool,
    ToolResult,
    ToolsChange,
    User,
    shown,
)
from turnscript.core.errors import InvalidConversation
from turnscript.core.json_spelling import is_laid_out
from turnscript.core.losses import Loss
from turnscript.core.source_paths import message_path
from turnscript.engine.attributes import (
    attribute_text,
    bare_attributes,
    extra_attributes,
    turn_value,
    write_attributes,
)
from turnscript.engine.bodies import Metadata, ToolList, hints_of
from turnscript.engine.correlate import NOTHING, are_paired, ids_of, names_of, report_correlation
from turnscript.engine.escape import AUTO
from turnscript.engine.layout import Layout, Past, Place, layout_of, report_shared, report_unshown, speaker_at
from turnscript.engine.names import name_line
from turnscript.engine.read_turns import tightened
from turnscript.engine.replay import Generated, Replays, closing_of, hides
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, Glue, Literal, Writer
from turnscript.engine.system import leads, write_system
from turnscript.engine.table import Document, Section, Turn


def opening_of(place: Place, item: Item, out: Writer, keeps: bool) -> str:
    """Return the opening with its attributes. `keeps`: also those that the table does not name."""
    if isinstance(item, ToolsChange):
        change = f" removed={out.escape.spelled(attribute_text(item.removed))}" if item.removed else ""
        shown = write_attributes(item, place.own_attributes, out) + extra_attributes(item, out, place.own_attributes)
        return f"{place.open} change=true{change}{shown}{place.head_end}"
    if out.names and isinstance(item, ToolResult) and item.name is None:
        item = replace(item, name=out.names.get(out.item))
    known = write_attributes(item, place.own_attributes, out)
    payload = "".join([f" {key}={value}" for key, value in place.body.attributes(item, out.archive).items()])
    unnamed = extra_attributes(item, out, place.own_attributes) if keeps else ""
    return f"{place.open}{known}{payload}{unnamed}{place.head_end}"


def metadata_of(request: Request) -> dict[str, Any]:
    """Return what the archive says beside the items; nothing for a plain conversation without options."""
    fields = {"options": request.extra, "settings": _said(request.settings), "hints": hints_of(request)}
    fields = {key: value for key, value in fields.items() if value} | request.archived
    if request.origin is not None and (fields or _needs_origin(request)):
        fields = {"origin": request.origin, **fields}
    return fields


def _said(settings: Any) -> Any:
    fields = settings.__struct_fields__
    return settings if any(getattr(settings, field) is not None for field in fields) else None


def _needs_origin(request: Request) -> bool:
    """Return whether something in the conversation can be written as it was only to the API that it came from. Plain
    texts, calls and results are the same bytes whichever API they are from."""
    return any(map(_is_tool_of_origin, request.tools)) or any(map(_is_item_of_origin, request.items))


def _is_tool_of_origin(tool: Tool) -> bool:
    return bool(tool.declared_as or tool.slot or tool.envelope or tool.extra)


def _is_item_of_origin(item: Item) -> bool:
    if item.extra or item.slot or item.envelope:
        return True
    return isinstance(item, Opaque) or is_laid_out(item) or any(map(_is_part_of_origin, getattr(item, "content", ())))


def _is_part_of_origin(part: Part) -> bool:
    return bool(part.extra) or isinstance(part, Raw) or (isinstance(part, Text) and not part.text)


_METADATA = Metadata()
_TOOLS = ToolList()


def write_document(document: Document, request: Request, archive: bool, policy: str = AUTO) -> Writer:
    """Return all spans of a request and what was lost. A last item that is `open` has no closing."""
    composer = Composer.of(tightened(document) if request.tight else document, archive, policy)
    composer.write(request)
    if not composer.stays_open(request.items):
        composer.end_turn()
        if document.end:
            composer.out.control(document.end)
    elif request.tight and not _is_seen_tight(document, "".join(composer.out.pieces)):
        detail = "no turn is closed without white space here, so that of the texts is read as the closings'"
        composer.out.losses.append(Loss("$", "approximated", detail))
    return composer.out


def _is_seen_tight(document: Document, text: str) -> bool:
    """Return whether some closing stands without the white space that the format writes before it."""
    spaced = {turn.close for turn in document.turns if turn.close[:1].isspace()}
    return any(text.count(close.lstrip()) > text.count(close) for close in spaced)


class Composer:
    """Writes items into turns.

    `place`: where the last item stands, as long as its turn is open. `model`: whether the last item was the model's.
    `joined`: the next item goes on in the turn, and what joins it is written already. `replays`: turns that are written
    as they were generated, `replayed` where those that fitted begin. `flags`: the kinds of thought that are flagged.
    `opened`: how many pieces stand before an item that is open, and the kind of the one before it. `unclosed`: where
    the last item stands, once its turn has ended without a closing of its own. `ended`: the last turn, once it has
    ended; None at the start of the document. `placed`: items that stand in another's place, by position, as they are
    there. `tells_turns`: whether it is a loss where two turns become one; an API's messages become turns by rule.
    `earlier`: what the session has said before the request. `named`: the last item that opened a turn without a text
    of its own, whose opening says what the message around the item says.
    """

    __slots__ = (
        "_places",
        "_special",
        "document",
        "earlier",
        "ended",
        "flags",
        "joined",
        "last",
        "layout",
        "model",
        "named",
        "opened",
        "out",
        "past",
        "place",
        "placed",
        "replayed",
        "replays",
        "separated",
        "tells_turns",
        "unclosed",
    )

    def __init__(self, layout: Layout, out: Writer) -> None:
        self.layout = layout
        self.document = layout.document
        self.out = out
        self.place: Place | None = None
        self.model = False
        self.earlier = NOTHING
        self.last = -1
        self.named = -1
        self.joined = False
        self.separated = True
        self.tells_turns = False
        self.unclosed: Place | None = None
        self.ended: Turn | None = None
        self.replays: Replays = ()
        self.replayed: list[int] = []
        self.flags: tuple[str, ...] = ()
        self.past = Past.of(layout)
        self.opened = 0, ""
        self.placed: dict[int, Item] = {}
        self._places = layout.places
        self._special = bool(layout.thoughts)

    @classmethod
    def of(cls, document: Document, archive: bool, policy: str = AUTO) -> Composer:
        """Return a composer that has written nothing. `policy`: what to do with tags in texts."""
        layout = layout_of(document, policy)
        out = Writer(layout.escape, archive and document.metadata is not None)
        out.flattened, out.blank = document.flattened, document.blank
        return cls(layout, out)

    def write(self, request: Request, thought: str | None = None) -> None:
        """Write the whole request, the last turn not closed. `thought`: a kind of thought that is asked for."""
        document, out, items, tools = self.document, self.out, request.items, request.tools
        self.tells_turns = request.origin is None
        if tools:
            out.tools = {tool.name: tool for tool in tools if tool.name is not None}
        if document.start:
            out.control(document.start)
        if document.tools is None:
            paired = are_paired(items)
            if paired:
                out.names, out.ids = names_of(items, document), ids_of(items, document)
            special = tools or document.flags is not None or document.always_system
            written = write_system(self, request, thought) if special else 0
            self.write_items(items[written:] if written else items, written)
            if paired and document.results:
                said = list(items)
                out.later.append(lambda: report_correlation(said, document, out))
            shown = [self.placed.get(at, item) for at, item in enumerate(items)] if self.placed else items
            report_shared(self.layout, shown, out)
            return
        out.names = {} if out.archive else names_of(items, document)
        fields = metadata_of(request) if out.archive else {}
        if fields and document.metadata is not None:
            self._section(document.metadata, lambda: _METADATA.write(fields, out))
        leading = self._count_leading(items) if tools else 0
        self.write_items(items[:leading], 0)
        if tools:
            self._section(document.tools, lambda: _TOOLS.write(tools, out))
        self.write_items(items[leading:], leading)

    def write_items(self, items: Sequence[Item], start: int) -> None:
        """Write items in order, the first of them at position `start`.

        Most say one text and nothing more. Those take a short way: what stands between two kinds is made once.
        """
        if self.layout.passing:
            self.past.note(items, start)
        try:
            if self.replays and not any(item.open for item in items[:-1]):
                self._write_around(items, start)
            else:
                self._write_run(items, start)
        except InvalidConversation as error:
            raise self._located(error, items, start) from None

    def _write_around(self, items: Sequence[Item], start: int) -> None:
        """Write items with turns in between as they were generated, those that fit where they stand."""
        at = 0
        for first, end, generated in self.replays:
            if start + at <= first < end <= start + len(items):
                self._write_run(items[at : first - start], start + at)
                at = first - start
                if self._replay(generated, first):
                    at = end - start
                    self.last = end - 1
                    self.close_generated(generated.text, items[at:], end)
        self._write_run(items[at:], start + at)

    def _forgotten(self, index: int) -> list[Place]:
        """Return what a prompt leaves out of the model's at a position."""
        return [place for place in self._places.values() if place.model and self.past.hides(place, index)]

    def _replay(self, generated: Generated, first: int) -> bool:
        """Write what the prompt had opened and what the model wrote. False where the text before is another."""
        place = self.layout.place_named(generated.last, generated.of)
        kind = "" if self.place is None else self.place.kind
        if place is None or self.joined or kind != generated.before or hides(self._forgotten(first), generated):
            return False
        out, content = self.out, len(generated.opening) - generated.prefilled
        out.item, out.trainable = first, False
        out.control(generated.opening[:content])
        if generated.prefilled:
            out.written(generated.opening[content:])
        out.generated(generated.text)
        self.separated = False
        self.place, self.model = place, True
        self.replayed.append(first)
        return True

    def close_generated(self, text: str, following: Sequence[Item], start: int) -> int:
        """End the segment that a generated text stops in, or its turn. Returns how much of that the text has.

        `following`: the items behind it, the first of them at position `start`.
        """
        place, out, after = self.place, self.out, None
        assert place is not None
        self.past.note(following, start)
        for at, item in enumerate(following, start):
            behind = self.layout.place_for(item)
            if behind is not None and not self.past.hides(behind, at):
                out.item = at
                if self.are_joined(place.kind, item) and not place.is_ended(text):
                    after = behind
                break
        else:
            out.item = -1
        closing = closing_of(self.layout, place, after)
        shared = closing.shared(text)
        self.write_literals(closing.rest(shared))
        out.item = -1
        self.joined = after is not None
        if after is None:
            self.place, self.unclosed, self.ended = None, place if place.unclosed else None, place.turn
            # A model that learnt where turns end writes what stands between them, too: once is enough.
            between, tail = self.document.separator, closing.text
            self.separated = bool(between) and shared == len(tail) > 0 and text.endswith(tail + between)
        return shared

    def _located(self, error: InvalidConversation, items: Sequence[Item], start: int) -> InvalidConversation:
        """Return an error of a text, with the place of its item: the first that cannot be written by itself."""
        if error.path:
            return error
        for index, item in enumerate(items, start):
            try:
                Composer(self.layout, Writer(self.layout.escape, self.out.archive))._write_run([item], index)
            except InvalidConversation as found:
                path = found.path or item.at or f"items[{index}]"
                return InvalidConversation(found.message, path=path, expected=found.expected, got=found.got)
        return error

    def _write_run(self, items: Sequence[Item], start: int) -> None:
        out = self.out
        # All of a long conversation comes through here, so what is used for every item is at hand.
        plain = {} if out.archive else self.layout.nameless if out.names else self.layout.plain
        places = list(map(plain.get, map(type, items)))
        piece, flattened = out.pieces.append, out.flattened
        glues = None if self.joined or self.place is None else self.place.behind  # what may stand before the next item
        first, begun = None, 0  # what stands before items that are written the short way
        for at, place in enumerate(places):
            item = items[at]
            if place is not None and (glues is not None or self._is_first(place)):
                say = place.only_text  # not called as an attribute, which takes longer
                text = say(item, out)
                # Of a text of which nothing would be left, the long way knows what becomes.
                if text and not (flattened and text.isspace()):
                    if flattened:
                        text = out.flattened_text(text, item.at or f"items[{start + at}]")
                    glue = (self.layout.first_glues[self.separated] if glues is None else glues)[place]
                    piece(glue.text)
                    piece(place.protect(text) if place.lead_of_tags in text else text)
                    if first is None:
                        first, begun = glue, at
                    glues = place.behind_text
                    continue
            if first is not None:
                self._arrive(first, places[begun:at], start + begun)
            self._write_item(items, at, start + at)
            first, glues = None, None if self.place is None or self._is_bare() else self.place.behind
            if plain and glues is not None:
                out.end_with(self.last)
        if first is not None:
            self._arrive(first, places[begun:], start + begun)
        out.item, out.place, out.trainable, out.escape = -1, "", False, self.layout.escape

    def _arrive(self, glue: Glue, places: list[Any], first: int) -> None:
        """Take note of items that were written the short way, the first of them at a position, and close the last."""
        out, place = self.out, places[-1]
        last = first + len(places) - 1
        out.marks.append((glue, places, first))
        if place.close:
            out.pieces.append(place.close)
            out.marks.append(last * ITEM + place.said + CONTROL)
        self.place, self.model, self.last, self.separated = place, place.model, last, False

    def _is_first(self, place: Place) -> bool:
        """Return whether no turn stands open before an item, so that what it opens with does not depend on it.

        Whether the last one was the model's counts only for what the model writes itself.
        """
        undone = self.joined or self.unclosed or self.place is not None or (self.model and place.model)
        return place.begins_plainly and not undone

    def _write_item(self, items: Sequence[Item], at: int, index: int) -> None:
        """Write any item, with all that it may say."""
        out, item = self.out, items[at]
        if item.open:
            self.note_open(items, at, index)
        out.item, out.place = index, item.at or f"items[{index}]"
        place: Place | None = self.layout.place_for(item) if self._special else self._places.get(item.kind)
        if place is None:
            self._lose_item(item)
            return
        if not self._is_shown(place, item):
            return
        joint = "" if self.joined else self._joint(place, item)
        if joint is None and place.turn.behind:
            item, place = stand(self, place, item)
            if place is None:
                return
            joint = self._joint(place, item)
        if self.layout.hides_empty and vanishes(self, place, items, at, joint):
            if self.model and (joint is None or self._is_last_of_turn(place, items, at)):
                self.end_turn()  # what follows opens a turn, as it would if this one were seen
            return
        if joint is None:
            self.end_turn()
            self._begin(place, items, at, index)
        elif joint:
            self.join(place)
        self.joined = False
        self._write_segment(place, item)
        self.place, self.model, self.last = place, place.model, index

    def note_open(self, items: Sequence[Item], at: int, index: int) -> None:
        """Remember what stands before an item that is not finished; only the last one may be."""
        if at < len(items) - 1:
            message = f"only the last item may be open, and this is item {index}; close it"
            raise InvalidConversation(message, path=items[at].at or f"items[{index}]", expected="open=False")
        self.opened = len(self.out.pieces), "" if self.place is None else self.place.kind

    def copied(self, count: int) -> Composer:
        """Return another composer that has written the first `count` pieces of this one's."""
        composer = Composer(self.layout, self.out.copied(count))
        composer.separated, composer.last, composer.flags = self.separated, self.last, self.flags
        composer.unclosed, composer.ended = self.unclosed, self.ended
        return composer

    def _begin(self, place: Place, items: Sequence[Item], at: int, index: int) -> None:
        """Open the turn of an item. What its opening says is of the item that speaks there, and so is what is lost."""
        if not place.turn_attributes:
            self.begin_turn(place)
            return
        where, speaker = self.out.place, speaker_at(self.layout, items, at, self.out)
        if speaker < 0:
            speaker, self.named, self.out.place = at, index, message_path(where)
        else:
            self.out.place = items[speaker].at or f"items[{index - at + speaker}]"
        self.begin_turn(place, items[speaker])
        self.out.place = where

    def stays_open(self, items: Sequence[Item]) -> bool:
        """Return whether the last item is unfinished, in a way that this format can show."""
        place = self.place
        if not items or place is None or self.last < len(items) - 1:
            return False
        ends = bool(place.close or place.end)
        if not ends and self.out.flattened and self._is_to_come(place, items[-1]):
            if not items[-1].open:
                detail = "an empty answer that is finished looks like one that is to come"
                self.out.losses.append(Loss(self._path(items), "approximated", detail))
            return True
        if not items[-1].open:
            return False
        if place.may_stay_open and ends and shows_its_end(place, items[-1]):
            return True
        close = (place.turn.close or place.close).strip()
        behind = f": {close} is written behind it" if close else ""
        detail = f"what is unfinished has no mark in this format{behind}"
        self.out.losses.append(Loss(f"{self._path(items)}.open", "dropped", detail))
        return False

    def _is_to_come(self, place: Place, item: Item) -> bool:
        """Return whether nothing stands behind the opening of the model's turn, as at the end of a prompt."""
        if place.kind != self.document.generation.kind or not place.body.is_empty(item, flattened=True):
            return False
        return "".join(self.out.pieces[-3:]).rstrip().endswith(place.turn.open.rstrip())

    def _path(self, items: Sequence[Item]) -> str:
        return items[-1].at or f"items[{len(items) - 1}]"

    def end_turn(self) -> None:
        """Close the turn that is open, if there is one. The closing is the model's if the last segment is."""
        if self.place is not None:
            self.unclosed = self.place if self.place.unclosed else None
            if self.place.ending:
                self.write_literals(self.place.ending)
            self.ended, self.place = self.place.turn, None

    def write_literals(self, literals: Iterable[Literal]) -> None:
        """Write what stands between the last item and the one that is written."""
        out = self.out
        for text, trainable, before in literals:
            if text:
                out.pieces.append(text)
                mark = CONTROL | TRAINABLE if trainable else CONTROL
                out.marks.append((self.last if before else out.item) * ITEM + mark)
        out.trainable = False

    def _open(self, opening: str) -> None:
        """Write the opening of a turn. What of it ends the model's own, if that has no closing, is the model's."""
        out = self.out
        stop = self.layout.stop_in(opening) if self.unclosed is not None and self.unclosed.model else 0
        self.unclosed = None
        if stop:
            item, trainable = out.item, out.trainable
            out.item, out.trainable = self.last, True
            out.control(opening[:stop])
            out.item, out.trainable = item, trainable
        if opening[stop:]:
            out.control(opening[stop:])

    def join(self, place: Place, grouped: bool = True) -> None:
        """Go on in the turn, up to the segment's own opening."""
        assert self.place is not None
        literals = self.layout.joint(self.place, place)
        self.write_literals(literals if grouped else literals[:-1])

    def begin_turn(self, place: Place, item: Item | None = None, grouped: bool = True) -> None:
        """Open a turn of a segment's speaker, up to the segment's own opening."""
        out = self.out
        out.trainable = False
        self.separate(place)
        if place.begin and place.turn.is_marked(self.ended):
            out.trainable = self.model and self.layout.goes_on(self.ended, place)
            self._open(place.begin)
        if place.turn_attributes:
            out.control(f"{bare_attributes(item, place.turn_attributes, out, self.layout.escape)}{place.turn_head_end}")
        if place.group_open and grouped:
            out.trainable = place.model
            out.control(place.group_open)

    def separate(self, place: Place | None = None) -> None:
        """Write what stands between two turns, if one stands before. The model writes it where it ends its turn.

        `place`: where the next item stands.
        """
        if self.separated:
            self.separated = False
        elif self.unclosed is not None:
            self.write_literals([self.layout.separator(self.unclosed, place)])
        elif self.document.separator:
            self.out.trainable = False
            self.out.control(self.document.separator)

    def _joint(self, place: Place, item: Item) -> str | None:
        if self.place is None or self._is_bare() or not self.are_joined(self.place.kind, item):
            return None
        if self.tells_turns and item.turn == "new":
            self.out.lose("", "approximated", "it goes on in the turn before")
        return self.layout.joints[self.place.kind, place.kind]

    def are_joined(self, kind: str, item: Item) -> bool:
        """Return whether an item may go on in the turn of an item of a kind."""
        place = self.layout.place_for(item)
        if place is None or (item.turn == "new" and place.model):
            return False
        return (kind, place.kind) in self.layout.joints

    def _is_last_of_turn(self, place: Place, items: Sequence[Item], at: int) -> bool:
        """Return whether what is written behind an item begins a turn of its own."""
        after = _shown_behind(self, items, at)
        return after is not None and not self.are_joined(place.kind, after)

    def _is_bare(self) -> bool:
        """Return whether the turn has an empty text alone, of which nothing would be seen if it went on."""
        if not self.out.flattened or self.place is None or self.out.pieces[-1] != self.place.begin:
            return False
        mark = self.out.marks[-1]  # a text may be the same words
        return isinstance(mark, int) and bool(mark & CONTROL)

    def _is_shown(self, place: Place, item: Item) -> bool:
        if self.out.archive or not self.past.hides(place, self.out.item):
            if place.unseen_if_empty and not item.open and place.body.is_empty(item):
                self.out.lose("", "dropped", "an empty thought reads as none")
                return False
            return place.body.shows(item, self.out)
        self._lose_item(item)
        return False

    def _lose_item(self, item: Item) -> None:
        kind = getattr(item, "type", item.kind)
        self.out.lose("", "dropped", f"a prompt does not show items of type {kind!r}")

    def _write_segment(self, place: Place, item: Item) -> None:
        out = self.out
        out.escape = place.escape
        out.trainable = place.model and (self.model or self.layout.opens(place))
        if place.open:
            head = place.open if place.plain_head else self._opening(place, item)
            if out.flattened and place.body.is_empty(item, flattened=True):
                head = head.rstrip("\n")  # nothing between two newlines would be a blank line
            lead = place.lead if self.place is None else ""
            if place.segment.named:
                out.control(lead)
                out.content(name_line(item.name))  # type: ignore[attr-defined]
                lead = "\n"
            self._open(f"{lead}{head}")
        elif place.lead and self.place is None and not place.body.is_empty(item, out.flattened):
            out.control(place.lead)
        out.trainable = place.model
        if isinstance(item, ToolsChange):
            _TOOLS.write(item.added, out, out.place)
        else:
            place.body.write(item, out)
        if place.close and not (item.open and place.may_stay_open):
            out.control(place.close)
        self.report(place, item)

    def report(self, place: Place, item: Item) -> None:
        """Report what its place does not show of an item. Most say nothing more, which one look tells."""
        if place.says_more(item):
            opens = self.out.item == self.named
            told = [one.path for one in place.turn_attributes if opens and turn_value(item, one) is not None]
            report_unshown(place, item, self.out, told)

    def _opening(self, place: Place, item: Item) -> str:
        return opening_of(place, item, self.out, self.out.archive or self.document.metadata is not None)

    def _section(self, section: Section, write: Callable[[], None]) -> None:
        self.end_turn()
        self.separate()
        self.unclosed = None
        self.out.control(f"{section.open}{self.document.tag_end}\n")
        write()
        self.out.control(f"\n{section.close}")
        self.model = False

    def _count_leading(self, items: Sequence[Item]) -> int:
        """Return how many items stand before the tool list: leading instructions, and what a prompt does not show."""
        places = self._places
        hidden = set() if self.out.archive else {kind for kind, place in places.items() if not place.segment.prompt}
        leading = (item.kind in hidden or leads(item) for item in items)
        return next((index for index, one in enumerate(leading) if not one), len(items))


def vanishes(composer: Composer, place: Place, items: Sequence[Item], at: int, joint: str | None) -> bool:
    """Return whether an item is an empty answer beside something else that nothing would show, which is a loss.

    White space is not kept, or none joins. `joint`: what joins it to the item before; None where it opens a turn.
    """
    item, flattened = items[at], composer.out.flattened
    if place.kind != Assistant.kind or not place.body.is_empty(item, flattened=flattened):
        return False
    if item.open and place.end and (flattened or joint != ""):
        return False
    after = _shown_behind(composer, items, at)
    follows = after is not None and composer.are_joined(place.kind, after)
    if joint is None and not follows:
        return False
    before = "" if joint is None or composer.place is None else composer.place.kind
    if not flattened and not composer.layout.leaves_no_trace(
        before, after.kind if follows and after is not None else ""
    ):
        return False
    composer.out.lose("", "dropped", "an empty text beside a thought or a call cannot be seen")
    return True


def _shown_behind(composer: Composer, items: Sequence[Item], at: int) -> Item | None:
    """Return the next item that is written. What a prompt leaves out, or has no place for, stands between no two."""
    behind = range(at + 1, len(items))
    layout, past, shift = composer.layout, composer.past, composer.out.item - at
    out = composer.out.copied(0)  # the losses of an item are told when its turn comes
    return next((items[one] for one in behind if is_shown(layout, past, items[one], one + shift, out)), None)


def is_shown(layout: Layout, past: Past, item: Item, index: int, out: Writer) -> bool:
    """Return whether anything is written of an item at a position. `out` is told what that loses of it."""
    place = layout.place_for(item)
    if place is None or (past.hides(place, index) and not out.archive):
        return False
    if place.unseen_if_empty and not item.open and place.body.is_empty(item):
        return False
    return place.body.shows(item, out)


def stand(composer: Composer, place: Place, item: Any) -> tuple[Item, Place | None]:
    """Return an item of a turn that may begin without an opening, and its place; books a loss where that is another."""
    before = turn_before(composer)
    if place.turn.open:
        return item, place
    if place.turn.is_marked(before):
        return _elsewhere(composer, place, item)
    if not place.turn.close and _is_blank(item):
        composer.out.lose("", "dropped", "a text without words cannot be seen where no tag stands around it")
        return item, None
    return item, place


def turn_before(composer: Composer) -> Turn | None:
    """Return the turn that stands before what is written next; None at the start of the document."""
    return composer.ended if composer.place is None else composer.place.turn


def shows_its_end(place: Place, item: Any) -> bool:
    """Return whether a text that is not finished differs from no turn at all, where no opening may stand before it."""
    return not (place.turn.behind and place.segment.bare and _is_blank(item))


def _elsewhere(composer: Composer, place: Place, item: Any) -> tuple[Item, Place | None]:
    """Return instructions as a text of the user."""
    other = composer.layout.places.get(User.kind)
    if not isinstance(item, System) or other is None:
        composer.out.lose("", "dropped", "its turn has no opening, so it cannot begin here")
        return item, None
    composer.report(place, item)
    composer.out.lose("", "approximated", "instructions have a place at the start alone; here they are a user's text")
    said = User(content=item.content, turn=item.turn, open=item.open, at=item.at)
    composer.placed[composer.out.item] = said
    return said, other


def _is_blank(item: Any) -> bool:
    return not any((shown(part) or "").strip() for part in getattr(item, "content", ()))
