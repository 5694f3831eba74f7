"""Owns strict reading of documents made of speakers' turns. Errors name line and column.

Theory of operation. Turns are cut out by their literals, which no content holds; a turn without a closing ends where
the label of the next one follows. What is inside a turn is read by the same steps as a model's answer (`parse`), only
strictly. A first system turn is taken apart before that, because it may hold the tool definitions.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Dropped,
    Item,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from turnscript.core.errors import InvalidTranscript
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import json_of
from turnscript.core.losses import Loss, LossKind
from turnscript.engine.attributes import SPOKEN, read_word
from turnscript.engine.borders import tag_line_end, tool_list_closings, tool_list_opening, turn_labels, turn_openings
from turnscript.engine.correlate import correlate
from turnscript.engine.cursor import Ending, Malformed
from turnscript.engine.escape import Escape
from turnscript.engine.jsonscan import value_end, values_end
from turnscript.engine.layout import layout_of
from turnscript.engine.lines import UNESCAPED, Finding, Findings, Lines
from turnscript.engine.names import lines_before
from turnscript.engine.nearly import opening_meant
from turnscript.engine.parse import TurnParser
from turnscript.engine.states import named_call, states_of
from turnscript.engine.system import ALONE, BEFORE
from turnscript.engine.table import Document, Payload, ToolsPlace, Turn

_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"\S+")
_SHOWN = 80
"""So many characters of what begins no turn are compared with what does."""
_NO_ESCAPE = Escape()  # what was parsed has none any more


class Cut(Struct):
    """A turn as it was cut out: its text (still escaped), where that starts, its attributes."""

    turn: Turn
    text: str
    start: int
    attributes: dict[str, str]
    open: bool
    last: bool = False


def read_turns(document: Document, text: str, found: Findings | None = None) -> Request:
    """Return the request that a transcript holds. Raises InvalidTranscript, unless `found` takes all that is wrong."""
    text = _unix_lines(document, text.removeprefix("\ufeff"))
    reader = _Reader(document, text, found)
    request = Request()
    cuts = list(reader.cuts())
    request.conversation.tools = reader.told or []
    if document.turns and _is_tight(cuts):
        request.tight = True
    elif not document.flattened:
        cuts = [reader.without_space(cut) for cut in cuts]
    for index, cut in enumerate(cuts):
        cut.last = index == len(cuts) - 1
        try:
            reader.read(cut, request, first=index == 0)
        except InvalidTranscript as error:
            reader.lines.keep(error)
    reader.lose_blank(*reader.behind)
    correlate(request.items, document, {tool.name or "" for tool in request.tools})
    request.unread = reader.unread
    _note_unasked(document, request)
    return request


def _note_unasked(document: Document, request: Request) -> None:
    """Take note of kinds of thought that no flag asks for, where there are flags: a writer would add them."""
    asked = request.settings.thoughts or ()
    kinds = {item.of for item in request.items if isinstance(item, Thinking)} if document.flags is not None else set()
    request.unasked = sorted(kinds.difference(asked))


def begins_document(document: Document, text: str) -> bool:
    """Return whether a text begins with an opening of the document."""
    text = text.removeprefix("\ufeff").lstrip()
    start = text.removeprefix(document.start) if document.start else text
    openings = [turn.open.rstrip() for turn in document.known_turns if turn.open]
    if document.tools_place is not None and document.tools_place.apart:
        openings.append(document.tools_place.open.strip())
    if any(start.lstrip().startswith(opening) for opening in openings):
        return True
    unmarked = any(not turn.is_marked(None) for turn in document.turns)
    return unmarked and start is not text and any(opening in start for opening in openings)


@lru_cache(maxsize=64)
def tightened(document: Document) -> Document:
    """Return a format without the white space that it has before closings."""
    turns = tuple(replace(turn, close=turn.close.lstrip()) for turn in document.turns)
    return replace(document, turns=turns)


def _is_tight(cuts: list[Cut]) -> bool:
    """Return whether not every turn has the white space that the format writes before a closing."""
    spaced = [cut for cut in cuts if cut.turn.close[:1].isspace() and not cut.open]
    return bool(spaced) and not all(cut.text.endswith(_space_before(cut.turn)) for cut in spaced)


def _space_before(turn: Turn) -> str:
    return turn.close[: len(turn.close) - len(turn.close.lstrip())]


class _Reader:
    """One transcript on its way to a request."""

    def __init__(self, document: Document, text: str, found: Findings | None) -> None:
        self.document = document
        self.text = text
        self.lines = Lines(text, found)
        self.layout = layout_of(document)
        self._before: Turn | None = None
        self._last: Item | None = None
        self._ending = Ending()  # how the last turn did
        self.behind: tuple[int, str] = 0, ""  # white space at the end of all
        self._unsaid = False  # whether the first system turn had no text of its own
        place = document.tools_place
        self._apart = place.open.strip() if place is not None and place.apart else ""
        self.told: list[Tool] | None = None
        self.unread: list[Loss] = []
        self._unread_items: list[tuple[int, Loss]] = []  # of the turn that is read, each with its place

    def cuts(self) -> Iterator[Cut]:
        """Give the turns in order."""
        text, document = self.text, self.document
        position = _BLANK.match(text).end()  # type: ignore[union-attr]
        if document.start and text.startswith(document.start, position):
            position += len(document.start)
        elif self._unmarked(None) is not None:
            position = 0  # white space is of its text
        end = len(text)
        if document.end and text.rstrip().endswith(document.end):
            end = len(text.rstrip()) - len(document.end)
        marked = [turn for turn in document.known_turns if turn.open or not turn.behind]
        ordered = sorted(marked, key=lambda turn: len(turn.open), reverse=True)
        before: Turn | None = None
        while True:
            start = _BLANK.match(text, position, end).end()  # type: ignore[union-attr]
            if start >= end:
                return
            if self._apart and self._tools_apart(before) and text.startswith(self._apart, start):
                position = self._read_apart(start + len(self._apart), end)
                continue
            turn = next((turn for turn in ordered if text.startswith(turn.open.rstrip("\n"), start)), None)
            if turn is not None:
                body, attributes = self._begin(turn, start, before)
            elif (turn := self._unmarked(before)) is not None:
                body, attributes = position, {}
            else:
                position = self._no_turn(start, end, self._closed_by(before, position))
                continue
            cut, position = self._cut(turn, body, end, attributes, after=position)
            if cut.open and end != len(text) and text[end:].strip():
                self._tell(
                    end, "dropped", f"{text[end:].strip()} stands behind a turn that has no end, and is left out"
                )
            before = turn
            yield cut

    def _tools_apart(self, before: Turn | None) -> bool:
        """Return whether a tool list may stand here: before all turns but instructions, and there is none yet."""
        led = before is None or before.segments[0].kind == System.kind
        return led and self.told is None

    def _read_apart(self, start: int, end: int) -> int:
        """Cut out a tool list that stands in no turn; returns where it ends."""
        place = self.document.tools_place
        assert place is not None
        close = place.close.strip()
        stop, behind = self._closing(place.open.strip(), close, start, end)
        self.told = []
        if stop < 0:
            if behind == end:
                self.lines.note(start, f"the tool list has no {close}", close)
            return behind
        try:
            self.told = self._defined(place, self.text[start:stop], start)
        except InvalidTranscript as error:
            self.lines.keep(error)
        return stop + len(close)

    def _defined(self, place: ToolsPlace, text: str, start: int, before: int = 0) -> list[Tool]:
        """Return the tools that a text defines, which begins at a place. `before`: how many there are before them."""
        self.lines.note_tools(start)
        payload = Payload(text, {}, 1, self.layout.escape)
        try:
            tools = place.body.read(payload)
        except InvalidTranscript as error:
            raise self.lines.within(start, error) from None
        for loss in payload.unread:
            number, rest = loss.path.removeprefix("[").split("]", 1)
            self._lose(start, Loss(f"$.tools[{int(number) + before}]{rest}", loss.kind, loss.detail))
        return tools

    def _lose(self, position: int, loss: Loss) -> None:
        """Keep what is not read as it stands at a place."""
        self.unread.append(loss)
        self.lines.lose(position, loss)

    def _unmarked(self, before: Turn | None) -> Turn | None:
        """Return the turn that begins behind another, or at the start, where no opening stands."""
        return next((turn for turn in self.document.turns if not turn.is_marked(before)), None)

    def _closed_by(self, before: Turn | None, end: int) -> str:
        """Return what closed the turn before, which ends at a place, and how it is written if it is content."""
        close = before.close.strip() if before is not None else ""
        if not close or not self.text.endswith(close, 0, end):
            return ""
        line, column = self.lines.at(end - len(close))
        escaped = self.layout.escape.apply(close)
        remedy = f"; write {escaped} there if that is content" if escaped != close else ""
        return f" ({close} at {line}:{column} closed the one before{remedy})"

    def _no_turn(self, position: int, end: int, closed: str = "") -> int:
        """Refuse what stands where a turn must begin; returns where the next one does."""
        openings = " or ".join(turn.open.strip() for turn in self.document.turns if turn.open)
        message = f"a turn must begin here: {openings}{closed}"
        ends = (one for one in (self.document.end.strip(), self.document.start.strip()) if one)
        if mark := next((one for one in ends if self.text.startswith(one, position)), ""):
            message = f"{mark} stands between two documents, and a text holds one; give each a file of its own"
        elif near := opening_meant(self.document, self.text[position : position + _SHOWN]):
            message += f"; did you mean {near}?"
        self.lines.note(position, message, openings)
        anywhere = all(turn.close for turn in self.document.turns)
        pattern = turn_openings(self.document) if anywhere else turn_labels(self.document)
        found = pattern.search(self.text, position + 1, end)
        return found.start() if found else end

    def _header(self, turn: Turn, position: int) -> tuple[int, dict[str, str]]:
        """Read what stands behind the opening: attributes, blanks, and the newline that belongs to it."""
        text = self.text
        newlines = turn.head_end or turn.open[len(turn.open.rstrip("\n")) :]
        if not newlines:
            return position, {}
        line_end = text.find("\n", position)
        line_end = len(text) if line_end < 0 else line_end
        if turn.attributes and not text[position : position + 1].isspace() and position < len(text):
            self._no_turn(position - len(turn.open), len(text))
            position = line_end
        attributes: dict[str, str] = {}
        for found in _WORD.finditer(text, position, line_end):
            if not turn.attributes:
                message = f"{found[0]!r} stands behind {turn.open.strip()}, whose content begins on the next line"
                self.lines.note(found.start(), message, "the end of the line")
                break
            if (named := read_word(turn.attributes, turn.open.strip(), found, attributes, self.lines)) is not None:
                attributes[named[0]] = self.layout.escape.remove(named[1])
        if not text.startswith(newlines, line_end):
            if line_end < len(text):
                self.lines.note(line_end, f"{turn.open.strip()} must be followed by {newlines!r}", repr(newlines))
            return line_end, attributes
        return line_end + len(newlines), attributes

    def _begin(self, turn: Turn, start: int, before: Turn | None) -> tuple[int, dict[str, str]]:
        """Read the opening of a turn behind another; gives where its text begins, and its attributes."""
        if turn.open and not turn.is_marked(before):
            self._tell(start, "approximated", f"{turn.open.strip()} is not written behind the turn before it")
        body, attributes = self._header(turn, start + len(turn.open.rstrip("\n")))
        return self._unthinking(turn, body), attributes

    def _unthinking(self, turn: Turn, position: int) -> int:
        """Return where a turn goes on behind what says that it has no thought, which it says once."""
        if not turn.no_thought or not self.text.startswith(turn.no_thought, position):
            return position
        behind, mark = position + len(turn.no_thought), turn.no_thought.strip()
        again = _BLANK.match(self.text, behind).end()  # type: ignore[union-attr]
        thoughts = [one.open.strip() for one in turn.segments if one.kind == Thinking.kind and one.open.strip()]
        if self.text.startswith((mark, *thoughts), again):
            self._tell(position, "dropped", f"{mark} says that there is no thought, and the turn goes on with one")
        return behind

    def _cut(self, turn: Turn, start: int, end: int, attributes: dict[str, str], *, after: int) -> tuple[Cut, int]:
        """Cut out a turn whose text begins at a place; gives where it ends, which is behind `after`."""
        text = self.text
        if not turn.close:
            flattened = self.document.flattened
            found = turn_labels(self.document).search(text, max(start - 1, 0) if flattened else start, end)
            stop = found.start() if found else end
            if found is not None or not flattened:
                return Cut(turn, text[start:stop], start, attributes, open=False), stop
            content = text[start:stop].rstrip()
            begun = self._begun(turn, content.strip())
            if begun is not None:
                return Cut(turn, begun, start, attributes, open=True), stop
            space = text[start + len(content) : stop].removeprefix("" if content else turn.lead)
            self.behind = stop - len(space), space.rstrip("\r\n")  # a file ends with the end of its line
            return Cut(turn, content, start, attributes, open=False), stop
        core = turn.close.strip()
        stop, behind = self._closing(turn.open.strip(), core, start, end, after)
        # A tight closing may stand right behind the opening, which has taken the newline before it.
        if stop >= 0:
            return Cut(turn, text[start:stop], start, attributes, open=False), stop + len(core)
        if behind == end:
            return Cut(turn, text[start:end], start, attributes, open=True), end
        return Cut(turn, text[start:behind].rstrip() + _space_before(turn), start, attributes, open=False), behind

    def _begun(self, turn: Turn, content: str) -> str | None:
        """Return what the last turn holds if it is only the end of a prompt, where the model goes on; else None.

        Elsewhere than in a flattened format white space is of a text.
        """
        kinds = {segment.kind: segment for segment in turn.segments}
        generation = self.document.generation
        if generation.kind in kinds and not content:
            return ""
        thought = kinds.get(generation.thinking_kind)
        return thought.open if thought is not None and content == generation.thinking_prefill else None

    def _closing(self, opening: str, close: str, start: int, end: int, after: int = 0) -> tuple[int, int]:
        """Return where what is open is closed, -1 if it is not; and where it ends without that: at the end of all.

        Where all faults are asked for, it ends where a turn begins, behind `after`, and that is one.
        """
        pattern, checks = turn_openings(self.document, protected=True), self.lines.found is not None
        begun = pattern.search(self.text, max(start, after + 1), end) if checks else None
        stop = self.text.find(close, start, end if begun is None else begun.start())
        if not checks:
            begun = pattern.search(self.text, max(start, after + 1), end if stop < 0 else stop)
        if begun is None:
            return stop, end
        message = (
            f"{begun[0]} before {close}, which closes what {opening} opened; "
            f"write that first, or write {self.layout.escape.apply(begun[0])} if this is content"
        )
        if checks and stop >= 0:
            return stop, end
        if checks:
            self.lines.note(begun.start(), message, close)
            return -1, begun.start()
        line, column = self.lines.at(begun.start())
        self._lose(start, Loss(f"line {line}, column {column}", "approximated", message))
        return stop, end

    def without_space(self, cut: Cut) -> Cut:
        """Return a turn with its text without the white space that belongs to its closing."""
        return cut if cut.open else replace(cut, text=cut.text.removesuffix(_space_before(cut.turn)))

    def read(self, cut: Cut, request: Request, first: bool) -> None:
        """Read the items of a turn, and add them to the request."""
        self._unread_items.clear()
        if cut.turn.segments[0].kind == System.kind:
            items = self._system(cut, request, first)
        else:
            items = self._inside(cut, cut.text, cut.start, {tool.name or "": tool for tool in request.tools})
        if not items:
            if cut.turn.segments[0].kind != System.kind and (cut.turn.open or cut.text.strip()):
                self._tell(cut.start, "dropped", f"a turn that {cut.turn.open.strip()} opens says nothing")
            return
        for position, loss in self._unread_items:
            self._lose(position, Loss(f"line {self.lines.at(position)[0]}{loss.path}", loss.kind, loss.detail))
        joined = self._last is not None and (self._last.kind, items[0].kind) in self.document.joints
        if (joined and self._before is cut.turn) or (self._unsaid and isinstance(items[0], System)):
            items[0].turn = "new"
        self._unsaid = False
        spoken = next((item for item in items if item.kind in SPOKEN), None)
        for key, value in cut.attributes.items():
            path = next(attribute.path for attribute in cut.turn.attributes if attribute.key == key)
            if spoken is not None:
                setattr(spoken, path, value)
            else:
                items[0].envelope = {**(items[0].envelope or {}), path: json_of(value)}
        self._end(cut, items)
        request.items.extend(items)
        self._before, self._last = cut.turn, items[-1]

    def _end(self, cut: Cut, items: list[Item]) -> None:
        """Say of the last item of a turn whether it goes on, and report where the turn says otherwise."""
        opening, close = cut.turn.open.strip(), cut.turn.close.strip()
        end = cut.start + len(cut.text.rstrip())
        if cut.open and isinstance(items[-1], Thinking) and not self._ending.stays_open:
            items.append(Assistant(content=[Text(text="")], at=items[-1].at))  # a thought is over, its answer to come
        answered = cut.open and self._ending.between and isinstance(items[-1], ToolResult)  # the model is to go on
        items[-1].open = (cut.open and not answered) or (cut.last and self._ending.stays_open)
        if answered:
            self._tell(
                end, "approximated", f"the turn that {opening} opened is not finished: {close} is written behind it"
            )
        elif items[-1].open and not cut.open and close:  # for who asks for all that is wrong, `doubts` says it
            detail = f"a text in the last turn has no end, so it goes on, and {close} is left out"
            self.unread.append(Loss(self.lines.place(end), "dropped", detail))
        elif self._ending.missing and not cut.open:
            self._tell(end, "approximated", f"{self._ending.missing} is missing, and is read as if it stood here")

    def _inside(self, cut: Cut, text: str, start: int, tools: Mapping[str, Tool]) -> list[Item]:
        """Return any turn's text as items, by its segments."""
        turn = cut.turn
        if turn.lead:
            text, start = (
                (text[len(turn.lead) :], start + len(turn.lead)) if text.startswith(turn.lead) else (text, start)
            )
        named = named_call(turn)
        names = lines_before(named.open, text) if named is not None else ()
        states = states_of(self.document, turn, True, (), "tagged", names)
        faults: list[Malformed] = []
        kept = None if self.lines.found is None else faults
        # The lead is gone; more white space is of the text.
        parser = TurnParser(states, tools, lead="", may_stay_open=cut.last, faults=kept)
        events: list[Event] = []
        try:
            events = [*parser.feed(text), *parser.close()]
            self._ending = parser.ending
        except Malformed as error:
            faults = [error]
        for fault in faults:
            self.lines.note(start + fault.at, f"{fault.detail}, in a turn that {turn.open.strip()} opened", "")
        for issue in parser.issues:
            if isinstance(issue, Dropped) and not faults:
                at = start + issue.end - len(text[issue.start : issue.end].lstrip())
                self._lose(at, Loss(f"line {self.lines.at(at)[0]}", "dropped", issue.detail))
        if self.document.flattened and not faults and not parser.issues:
            self._lose_space(events, start)
        last = next((one for one in reversed(events) if isinstance(one, PartEnd)), None)
        unclosed = last if parser.ending.stays_open and turn.close and not (cut.open or faults) else None
        return list(self._parts(events, parser.unread, start, unclosed, looks_for_marks=not faults))

    def _lose_space(self, events: list[Event], start: int) -> None:
        """Report white space around the segments of a turn that the format does not write there: no item holds it."""
        joints = {**self.document.joints, **self.document.also_joined}
        at, before = start, ""
        for event in events:
            space = _BLANK.match(event.raw)[0]  # type: ignore[index]
            if isinstance(event, PartStart):
                self.lose_blank(at, space.removeprefix(joints.get((before, event.part.kind), "")))
                before = event.part.kind
            elif isinstance(event, MessageEnd):
                self.lose_blank(at, space)
            at += len(event.raw)

    def lose_blank(self, position: int, space: str) -> None:
        """Report white space that no item holds."""
        if space:
            self._tell(position, "dropped", f"white space around a text is not of it here ({space[:20]!r})")

    def _tell(self, position: int, kind: LossKind, detail: str) -> None:
        """Report a loss of what stands at a place."""
        line, column = self.lines.at(position)
        self._lose(position, Loss(f"line {line}, column {column}", kind, detail))

    def _parts(
        self,
        events: list[Event],
        unread: list[tuple[Item, Loss]],
        start: int,
        unclosed: PartEnd | None,
        looks_for_marks: bool,
    ) -> Iterator[Item]:
        """Give what events told, read by the bodies of its kinds. `start`: where what was parsed stands. `unclosed`:
        the end of what is open in a turn that is closed, which has taken all marks behind its opening for text."""
        at = opened = said = start  # what was told so far, the opening of what goes on, and its content
        for event in events:
            if isinstance(event, PartStart):
                said = at + len(event.raw)
                opened = said - len(event.raw.lstrip())
            elif isinstance(event, PartDelta) and at == said and event.raw[:1] == "\n" != event.text[:1]:
                said += 1  # the newline of the opening
            elif isinstance(event, PartEnd) and event.part is not None:
                event.part.at = self.lines.place(opened)
            if isinstance(event, PartEnd) and isinstance(event.part, ToolCall):
                self._unread_items += [(opened, loss) for item, loss in unread if item is event.part]
                yield event.part
            elif isinstance(event, PartEnd) and event.part is not None:
                self._read_part(event.part, opened, said)
                if event is unclosed:
                    self._note_unclosed(event.part, opened)
                elif looks_for_marks and self.layout.places[event.part.kind].body.plain:
                    self._note_marks(event.part.kind, said, at)
                yield event.part
            at += len(event.raw)

    def _read_part(self, part: Any, opened: int, said: int) -> None:
        """Read a text by the body of its kind. `opened`, `said`: where its opening stands, and where itself."""
        payload = Payload("".join([one.text for one in part.content]), {}, 1, _NO_ESCAPE)
        try:
            for field, value in self.layout.places[part.kind].body.read(payload).items():
                setattr(part, field, value)
        except InvalidTranscript as error:
            self.lines.keep(self.lines.within(said, error))
        self._unread_items += [(opened, loss) for loss in payload.unread]

    def _note_unclosed(self, part: Item, opened: int) -> None:
        """Keep what is not closed in a turn that is, where all is asked for."""
        opened_by = [one for turn in self.document.turns for one in turn.segments if one.kind == part.kind]
        it = next((one for one in opened_by if one.of and one.of == getattr(part, "of", "")), opened_by[0])
        message = f"{it.close.strip()} is missing: what {it.open.strip()} opened here goes on to the end of the turn"
        self.lines.warn(opened, message)

    def _note_marks(self, kind: str, start: int, end: int) -> None:
        """Keep each mark of the format that stands in a text, where all is asked for."""
        if self.lines.found is None:
            return
        escape = self.layout.places[kind].escape
        for place, mark in escape.bare(self.text[start:end]):
            message = f"{mark} stands in a text; the format writes {escape.apply(mark)}"
            self.lines.found.all.append(Finding(*self.lines.at(start + place), UNESCAPED, message))

    def _system(self, cut: Cut, request: Request, first: bool) -> list[Item]:
        text, start = cut.text, cut.start
        lead = cut.turn.lead
        if lead and text.startswith(lead):
            text, start = text[len(lead) :], start + len(lead)
        place = None if self._apart else self.document.tools_place
        escape = self.layout.places[System.kind].escape
        rest: str | None = None
        has_tools = moved = False
        text, trailing = self._flags(text) if first else (text, [])
        end = start + len(text)
        if first and place is not None:
            found = tool_list_opening(place, self.document.flattened).search(text)
            if found is not None and place.order == BEFORE and not found.start():
                behind = self._tools_before(start, place, text[found.end() :], request)
                has_tools, text = behind is not None, text if behind is None else behind
            elif found is not None:
                has_tools, moved = True, bool(trailing)
                text, rest = self._tools(start, place, text, found, request)
        text, flagged = self._flags(text) if first else (text, [])
        self._ask(flagged + trailing, end, request, moved)
        asks = has_tools or flagged or trailing
        nothing = not text and rest is None and (asks or (first and self.document.always_system))
        if nothing and not cut.attributes and not cut.open:
            self._unsaid = not (has_tools and place is not None and place.order == ALONE)
            return []
        for one in (text, rest or ""):
            at = start if self.text.startswith(one, start) else end - len(one)
            self._note_marks(System.kind, at, at + len(one))
            self._note_flags(at, at + len(one))
        content = [escape.remove(one) for one in (text, rest) if one is not None]
        parts = [Text(text=one) for one in content]
        self._note_other(cut)
        return [System(content=list(parts), at=self.lines.place(start))]

    def _note_other(self, cut: Cut) -> None:
        """Report instructions that stand in a turn in which the format writes none."""
        if cut.turn in self.document.also_read:
            written = self.layout.places[System.kind].turn.open.strip()
            detail = f"what {cut.turn.open.strip()} opened is read as instructions, which {written} opens"
            self._lose(cut.start, Loss(f"line {self.lines.at(cut.start)[0]}", "approximated", detail))

    def _tools(
        self, start: int, place: ToolsPlace, text: str, found: re.Match[str], request: Request
    ) -> tuple[str, str | None]:
        """Read the tool list; gives the text before it, and the text behind it if there is any."""
        inner = text[found.end() :]
        rest: str | None = None
        if self.document.flattened:
            lines = found[0].count("\n") - f"{place.joint if found.start() else ''}{place.open}".count("\n")
            self.lose_blank(start + found.start(), "\n" * lines)
        if place.close:
            inner = self._closed(start + found.end(), place, inner)
        elif place.continued:
            end = values_end(inner)
            after = inner[end:]
            inner = inner[:end]
            rest = after.removeprefix(place.continued) if after.strip() else None
        request.conversation.tools = self._defined(place, inner, start + found.end())
        return text[: found.start()], rest

    def _tools_before(self, start: int, place: ToolsPlace, inner: str, request: Request) -> str | None:
        """Read the tool list that stands before the text; gives the text, None if no tool stands there. What is no tool
        any more is of the text."""
        tools, end = request.conversation.tools, 0
        while behind := value_end(inner, end):
            try:
                tools += self._defined(place, inner[end:behind], start, len(tools))
            except InvalidTranscript:
                break
            end = behind
        if not tools:
            return None
        rest = inner[end:]
        if not rest.startswith(place.close.rstrip()):
            self.lines.fail(start, f"the tool list has no {place.close.strip()}", place.close.strip())
        return rest.removeprefix(place.close).removeprefix(place.joint)

    def _closed(self, start: int, place: ToolsPlace, inner: str) -> str:
        """Return a tool list up to its closing. Behind that nothing may stand but what is known."""
        patterns = tool_list_closings(place, self.document.flattened)
        found = next((last for last in (_last_match(one, inner) for one in patterns) if last is not None), None)
        close = place.close.strip()
        if found is None:
            self.lines.fail(start, f"the tool list has no {close}", close)
        behind = inner[found.end() :]
        if behind.strip():
            at = start + len(inner) - len(behind.lstrip())
            self.lines.fail(
                at, "text behind the tool list has no place here; move it before the list", "the end of the turn"
            )
        return inner[: found.start()]

    def _flags(self, text: str) -> tuple[str, list[str]]:
        """Return the text without the flags at its end, and the kinds of thought that these ask for."""
        tags = {} if self.document.flags is None else self.document.flags.tags
        found: list[str] = []
        while kind := next((kind for kind, tag in tags.items() if text.endswith(tag)), None):
            found.insert(0, kind)
            text = text.removesuffix(tags[kind])
        return text, found

    def _ask(self, kinds: list[str], position: int, request: Request, moved: bool) -> None:
        """Keep which kinds of thought are flagged. `moved`: some flags stand behind the tools."""
        if self.document.flags is None or not kinds:
            return
        request.settings.thoughts = kinds
        if moved or kinds != [kind for kind in self.document.flags.tags if kind in kinds]:
            detail = "flags of thoughts are written behind the first system text, in the format's order, each once"
            self._lose(position, Loss(f"line {self.lines.at(position)[0]}", "approximated", detail))

    def _note_flags(self, start: int, end: int) -> None:
        """Report each flag inside a text."""
        tags = [] if self.document.flags is None else map(re.escape, self.document.flags.tags.values())
        for found in re.finditer("|".join(tags) or r"(?!)", self.text[start:end]):
            line = self.lines.at(start + found.start())[0]
            detail = f"{found[0]} is a word of a text here; a flag stands at the end of the first system text"
            self._lose(start + found.start(), Loss(f"line {line}", "approximated", detail))


def _unix_lines(document: Document, text: str) -> str:
    """Return the text with LF line ends if its first tag line ends in CRLF; else CR is content (requirements D-X-8)."""
    first = text.find("\n")
    tag_line = tag_line_end(document)
    if first > 0 and tag_line is not None:
        found = tag_line.search(text)
        first = -1 if found is None else found.end() - 1
    return text.replace("\r\n", "\n") if first > 0 and text[first - 1] == "\r" else text


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
