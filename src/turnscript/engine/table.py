"""Owns the vocabulary of a format's table: what a format declares so that the engine can write and read it.

Every format has the same two levels. A document is turns joined by a separator. A turn is an opening, segments with
joints between them, and a closing. A segment is one item: an opening, a payload, a closing; of the plain text of a turn
only the payload is left. What differs between formats is data, and the data is here. A payload's shape is a `Body`.

Where a turn belongs to a speaker, its segments follow each other as long as the table has a joint for the two; what has
none opens a turn of its own. Where every item is a block by itself, a turn has no literals and there are no joints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from turnscript.core.conversation import Item, Tool, ToolCall
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss, LossKind
from turnscript.engine.escape import Escape, Rule
from turnscript.engine.files import Files
from turnscript.engine.spans import Writer

AttributeType = Literal["text", "flag", "number", "json", "object", "names"]


class Attribute(Struct, frozen=True):
    """One `key="value"` of an opening tag and the field that it holds.

    `path` is a field of the item; empty for one that says nothing now. `prompt`:
    also written for a model to see; the others appear in an archive only. `default`: the value that is not written.
    `fallback`: the field that is shown where `path` says nothing. `written`: false where it is only understood.
    `words`: how values are written, where not as they are; other values have no place.
    """

    key: str
    path: str
    type: AttributeType = "text"
    prompt: bool = False
    default: str | None = None
    fallback: str = ""
    written: bool = True
    words: tuple[tuple[str, str], ...] = ()


class Payload(Struct):
    """What stood between an opening and its closing, to be read by a body: raw text, attributes, and the place.

    `text` is still escaped. `line` is the line number of the payload's first line. `open`: there is no closing, so the
    text may end anywhere. `unread`: where a body says what it could not keep, at members of what it reads.
    """

    text: str
    attributes: dict[str, Json]
    line: int
    escape: Escape
    open: bool = False
    unread: list[Loss] = []

    def lose(self, member: str, kind: LossKind, detail: str) -> None:
        """Say that a member of what is read is not kept as it stands."""
        self.unread.append(Loss(member, kind, detail))


class Body(Protocol):
    """A payload shape: writes an item's payload, and reads it back into the item's fields.

    `literals`: tags inside the payload. `carries`: the item's fields that the payload holds beside its content.
    `begins`: how the payload of every call begins; `openings`: how it may begin where nothing opens it.
    `next_text`: the line between two texts, where a model may write several in one payload; the newline at its end is
    also that before what follows.
    `says_name`: whether it says which tool is called; `name_last`: whether its arguments stand before that.
    `formats`: whether an attribute `format` of the opening tag tells how the payload is written. `plain`: the payload
    of an item that says one text is that text. `compact`: it writes JSON without white space between the tokens.
    """

    literals: tuple[str, ...]
    carries: tuple[str, ...]
    formats: bool
    plain: bool
    begins: str
    openings: tuple[str, ...]
    next_text: str
    says_name: bool
    name_last: bool
    compact: bool

    def attributes_read(self, form: Json | None) -> dict[str, Any]:
        """Return fields from the attribute `format` of an opening tag."""
        ...

    def only_text(self, silent: Callable[[Any], bool]) -> Callable[[Any, Writer], str | None]:
        """Return a function that gives the payload of an item that says nothing else, as text; None for all others."""
        ...

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the beginning of the payload of a call that must be made, up to where the model decides.

        `protect` breaks the tags of the format in what is written of the name. `number`: how many calls were made
        before, of which an id may be made.
        """
        ...

    def machine(self, reading: Any) -> Any:
        """Return a reader for the payload in pieces; None where it is text."""
        ...

    def shows(self, item: Any, out: Writer) -> bool:
        """Return whether there is anything to write; books what is lost if not."""
        ...

    def is_empty(self, item: Any, flattened: bool = False) -> bool:
        """Return whether what is written is the empty text."""
        ...

    def attributes(self, item: Any, archive: bool) -> Mapping[str, str]:
        """Return attributes of the opening tag that tell how the payload is written, as JSON text."""
        ...

    def write(self, item: Any, out: Writer) -> None:
        """Write the payload."""
        ...

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the item's fields. Takes the attributes that it understands out of `payload.attributes`."""
        ...

    def grammar(self, call: Any) -> Any:
        """Return what the payload of a call of a tool may be, as nodes of a grammar; None where that cannot be told."""
        ...


class Group(Struct, frozen=True):
    """Literals around neighbouring segments of one kind: several calls in one `<function_calls>`."""

    open: str
    close: str


class Segment(Struct, frozen=True):
    """How one kind of item is written: `open` (attributes, `head_end`), payload, `close`.

    `item` is the class that a reader makes. `head_end` ends an opening that takes attributes. `required`: an attribute
    that must be there. `model`: the model writes such segments itself. `prompt`: a prompt shows them. `also_closed_by`:
    other spellings of the closing that a reader accepts. `local`: its tags mean something in its own turn only, so
    other turns need not protect them. `escape`: what is protected in its text, where that is not what the table says.
    `protects`: what is protected beside that. `of`: which kind of thought it is, where a format has several.
    `tentative`: it counts only if it is a call of an offered tool, because its opening is ordinary text too.
    `named`: the tool's name stands on a line of its own before the opening; only names of offered tools are looked for.
    In a group, an object of JSON needs no `open`: it shows where it begins. A group may be tentative, too.
    `until`: a prompt shows it until an item of this kind follows: thoughts until the `user` speaks.
    """

    kind: str
    item: type[Item]
    body: Body
    open: str = ""
    head_end: str = ""
    close: str = ""
    attributes: tuple[Attribute, ...] = ()
    also_closed_by: tuple[str, ...] = ()
    required: str = ""
    group: Group | None = None
    tentative: bool = False
    named: bool = False
    model: bool = False
    prompt: bool = True
    until: str = ""
    local: bool = False
    of: str = ""
    protects: tuple[Rule, ...] = ()
    escape: Escape | None = None

    @property
    def bare(self) -> bool:
        """Return whether it is the plain text of its turn."""
        return not self.open and self.kind != ToolCall.kind

    @property
    def literals(self) -> tuple[str, ...]:
        """Return all its literals: its tags, those of its payload, and those of its group."""
        group = (self.group.open, self.group.close) if self.group else ()
        return (self.open, self.close, *self.also_closed_by, *self.body.literals, *group)

    @property
    def lists_names(self) -> bool:
        """Return whether it is a list of calls whose bracket is ordinary text, but for the name of a tool behind it."""
        return self.tentative and self.group is not None

    @property
    def attributes_shown(self) -> tuple[Attribute, ...]:
        """Return the attributes that a model sees."""
        return tuple(one for one in self.attributes if one.prompt and one.written)


START = "start"
"""The word for the start of the document, where a turn may begin without an opening."""


class Turn(Struct, frozen=True):
    """A speaker's turn: `open`, its segments, `close`. Both literals are empty where each item stands by itself.

    `head_end` ends an opening that takes attributes; they are fields of the turn's first item. `lead` is written
    between the opening and what is not empty; the model writes it itself. A turn without `close` ends where the next
    one begins. `also_read`: segments that are understood and never written.
    `behind`: where the turn begins without its opening: right behind the closings of these roles, or at the START of
    the document. One that has no opening at all begins nowhere else.
    `no_thought`: what stands behind the opening where no thought does, such as an empty one. A prompt writes it.
    `several`: one answer of the model may be several such turns, one behind another, and it opens all but the first.
    """

    segments: tuple[Segment, ...]
    role: str = ""
    open: str = ""
    head_end: str = ""
    close: str = ""
    lead: str = ""
    attributes: tuple[Attribute, ...] = ()
    also_read: tuple[Segment, ...] = ()
    behind: tuple[str, ...] = ()
    no_thought: str = ""
    several: bool = False

    __hash__ = object.__hash__

    @property
    def speaks(self) -> bool:
        """Return whether it is a speaker's, and not what holds blocks that stand by themselves."""
        return bool(self.open or self.behind)

    def is_marked(self, before: Turn | None) -> bool:
        """Return whether its opening is written behind another turn, or with None at the start of the document."""
        return (START if before is None else before.role) not in self.behind


class ToolsBody(Protocol):
    """How tool definitions are written. `literals`: tags inside."""

    literals: tuple[str, ...]

    def write(self, tools: list[Tool], out: Writer) -> None:
        """Write the definitions."""
        ...

    def read(self, payload: Payload) -> list[Tool]:
        """Return the definitions."""
        ...


class Section(Struct, frozen=True):
    """A block of a document that is no item: request metadata, or the list of tools."""

    open: str
    close: str
    also_closed_by: tuple[str, ...] = ()


class ToolsPlace(Struct, frozen=True):
    """Where tool definitions stand in a system turn: after its text and `joint`, between `open` and `close`.

    `order`: whether they stand `behind` the text, `before` it, `alone` in a system turn of their own before it, or
    `apart` from all turns, behind those of the first instructions, or `first` of all, before any turn.
    `continued`: what stands between the definitions and more text of the same turn, where a format allows it.
    `footer` belongs to `close`, and a reader does not insist on it. `also_behind`: texts that others write behind
    `close`; a reader looks over them.
    """

    body: ToolsBody
    open: str
    close: str = ""
    joint: str = ""
    continued: str = ""
    footer: str = ""
    also_behind: tuple[str, ...] = ()
    order: Literal["behind", "before", "alone", "apart", "first"] = "behind"

    @property
    def apart(self) -> bool:
        """Return whether they stand in no turn."""
        return self.order in ("apart", "first")


class Flags(Struct, frozen=True):
    """Tags at the end of the first system text that ask for a kind of thought: `{"reason": "<|reason|>"}`."""

    tags: Mapping[str, str]


class Generation(Struct, frozen=True):
    """How a prompt ends so that the model goes on, and the strings that end what it writes.

    `stops_with_tools`: those strings where tools are offered; the same ones unless it says otherwise.
    `kind` and `thinking_kind`: the segment that is opened. `thinking_prefill`: what is written of a thought's opening,
    where that is not all of it, and `answer_prefill` of an answer's. `prefill`: what is written of an answer without a
    thought, where that is something.
    `hints`: what is added to the last user text, by effort (`low`, `medium`, `high`). `stops_of_call`: what ends the
    model's turn besides where it must call. `stripped`: a prompt ends without white space, which the model writes then.
    """

    stops: tuple[str, ...]
    stops_with_tools: tuple[str, ...] = ()
    kind: str = "assistant"
    thinking_kind: str = "thinking"
    thinking_prefill: str | None = None
    hints: Mapping[str, str] = {}
    prefill: str = ""
    stops_of_call: tuple[str, ...] = ()
    stripped: bool = False
    answer_prefill: str | None = None

    def __post_init__(self) -> None:
        if not self.stops_with_tools:
            force_setattr(self, "stops_with_tools", self.stops)


class Document(Struct, frozen=True):
    """A whole format: turns, what stands between them and around them, and how content is kept apart from tags.

    `joints`: what stands between two kinds of segments of one turn; two kinds without a joint are two turns. Two texts
    that are joined become one, which is a loss.
    `also_joined`: more of them that a reader understands.
    `metadata` and `tools` are sections of their own (metadata first, the tool list after the leading system turns);
    `tools_place` puts the tool list into the system turn instead. `anchored`: tags count only when they fill a line.
    `flattened`: runs of newlines in content become one, and its ends are stripped, because a blank line ends a turn.
    `blank`: which lines are blank then: those without a character (`empty`), or also those of white space.
    `start` and `end` stand around it; with `stand_ins` they only stand for those of whatever model is trained on it, so
    that people see them and no model does, until `with_ends` says which they are.
    `always_system`: a system turn is written even if there is nothing to say. `thoughts`: the kinds of thought.
    `also_read`: turns that a reader understands and that are never written. `results`: how ids of calls and results are
    shown, where not both show theirs (`correlate`). `with_ids`: the variant that shows the ids of calls as well.
    `gives_up`: once something that began as a call was none, the rest of an answer is text. `wraps`: a text to go on
    from, without messages, is what a user says.
    `grows`: why a prompt may not begin the next one; empty if it always does. `files`: how documents that are files and
    no conversation are written, and texts with a hole.
    """

    turns: tuple[Turn, ...]
    generation: Generation
    joints: Mapping[tuple[str, str], str] = {}
    also_joined: Mapping[tuple[str, str], str] = {}
    metadata: Section | None = None
    tools: Section | None = None
    tools_place: ToolsPlace | None = None
    escape: Escape | None = None
    tag_end: str = ">>"
    separator: str = "\n\n"
    start: str = ""
    end: str = ""
    stand_ins: bool = False
    anchored: bool = False
    flattened: bool = False
    blank: Literal["empty", "whitespace"] = "empty"
    always_system: bool = False
    flags: Flags | None = None
    results: str = ""
    with_ids: str = ""
    gives_up: bool = False
    wraps: bool = False
    grows: str = ""
    files: Files | None = None
    also_read: tuple[Turn, ...] = ()

    __hash__ = object.__hash__

    @property
    def known_turns(self) -> tuple[Turn, ...]:
        """Return every turn that a reader understands."""
        return (*self.turns, *self.also_read)

    @property
    def model_turn(self) -> Turn:
        """Return the turn that the model writes."""
        kind = self.generation.kind
        return next(turn for turn in self.turns if any(one.kind == kind for one in turn.segments))

    @property
    def literals(self) -> tuple[str, ...]:
        """Return every control literal, white space around it included."""
        found = [self.start, self.end]
        for turn in self.turns:
            found += (turn.open, turn.no_thought, turn.close)
            found += (literal for segment in turn.segments for literal in segment.literals)
        for section in (self.metadata, self.tools):
            found += (section.open, section.close, *section.also_closed_by) if section else ()
        if self.tools_place:
            found += (self.tools_place.open, self.tools_place.close, *self.tools_place.body.literals)
        found += self.flags.tags.values() if self.flags else ()
        found += self.files.literals if self.files else ()
        return tuple(found)

    def segment(self, kind: str) -> Segment:
        """Return the segment of a kind of item."""
        return next(segment for turn in self.turns for segment in turn.segments if segment.kind == kind)


@lru_cache(maxsize=64)
def with_ends(document: Document, start: str, end: str) -> Document:
    """Return a document with other strings around it, the same one every time."""
    return replace(document, start=start, end=end, stand_ins=False)


def as_seen(document: Document) -> Document:
    """Return a document as a model sees it: without ends that only stand for those of a model."""
    return with_ends(document, "", "") if document.stand_ins else document


def shown_whole(document: Document) -> Document:
    """Return a document whose prompts show all that a model writes, also what it forgets."""
    turns = [
        replace(turn, segments=tuple(replace(one, prompt=one.prompt or one.model) for one in turn.segments))
        for turn in document.turns
    ]
    return replace(document, turns=tuple(turns))
