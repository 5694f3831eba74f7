"""Owns prompts that a model's own chat template writes, the replay of turns in them, and the next prompt."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolsChange,
    User,
    text_content,
)
from turnscript.core.errors import Unsupported
from turnscript.core.json_spelling import Spelling, respelled, shown, shown_items
from turnscript.core.losses import Loss
from turnscript.engine.correlate import NOTHING
from turnscript.engine.escape import AUTO
from turnscript.engine.files import unfilled
from turnscript.engine.layout import layout_of, report_unshown
from turnscript.engine.prompt import (
    Prompt,
    asks_to_think,
    begin_prompt,
    continues,
    declared,
    forced_choice,
    offered_to,
)
from turnscript.engine.replay import Generated, Replays, kept
from turnscript.engine.scanner import overlap
from turnscript.engine.spans import Writer
from turnscript.engine.system import unflagged
from turnscript.engine.table import Document
from turnscript.engine.template.messages import Marked
from turnscript.engine.template.study import Traits
from turnscript.engine.template.template import Asked, Template, Words, Written
from turnscript.engine.template.tools import Functions
from turnscript.engine.template.turns import Region, Turns
from turnscript.engine.template.wording import put_in_words

History = Literal["template", "generated"]
"""How turns of the model are kept in later prompts: as the `template` writes them then, or as they were `generated`."""

_TAG = re.compile(r"<[^<>\s]+>|\[/[A-Z_]+\]")
_NO_TOOLS = Loss("$.tools", "dropped", "this template has no place for tools")
_NOTHING_SAID = Assistant(content=[Text(text="")])


class Wanted(Struct, frozen=True):
    """What a caller wants of a prompt beside the request.

    `thinking` and `spelling` as for `Format.prompt`, `policy` is that of the escape. `replays`: turns as they were
    generated, kept by `history`. `words`: tools for which the template has no
    place stand in texts, in the table's words. `now`: the date that the template may write.
    """

    thinking: bool | None = None
    policy: str = AUTO
    replays: Replays = ()
    spelling: Spelling | None = None
    history: History = "template"
    words: bool = False
    now: datetime | None = None


class Session(Struct, frozen=True):
    """What the prompts of a session have in common: who writes and reads them, what is told and offered."""

    document: Document
    template: Template
    asked: Asked
    functions: Functions
    policy: str
    spelling: Spelling | None
    words: Words | None = None


class Opened(Struct, frozen=True):
    """Where a prompt leaves off: from piece `at` on it has written `text` of the model's turn.

    `start`: where what is new in it begins. `replayed`: the first items of turns that stand as they were generated.
    """

    text: str
    at: int
    start: int = 0
    replayed: tuple[int, ...] = ()


class TemplatePrompt(Prompt):
    """A prompt in the words of the model's own template. A table reads what the model writes behind it."""

    __slots__ = ("_leading", "_opened", "_question", "_session")

    def __init__(
        self,
        session: Session,
        request: Request,
        out: Writer,
        opened: Opened,
        offered: dict[str, Tool],
        before: TemplatePrompt | None = None,
    ) -> None:
        template, items = session.template, request.items
        self._session = session
        self._document = session.document
        self._out = out
        self._request = request
        self._goes_on = continues(items)
        self._items = tuple(items[:-1] if self._goes_on else items)
        self._thinks = bool(session.asked.thinking)
        self._start = opened.start
        self._earlier = NOTHING if before is None else before._earlier.then(before._items)
        self._told = None
        self.spelling = session.spelling
        self.replayed = opened.replayed
        self.offered = offered
        self._opened = opened
        self._seed = template.seed(opened.text)
        held = template.prefill(opened.text)
        said = text_content(getattr(items[-1], "content", ())) if self._goes_on else held
        self.prefill = said if self._goes_on or held.strip() else ""
        self._missing = template.missing(opened.text)
        self._count = len(out.pieces)
        generation = session.document.generation
        stops = generation.stops_with_tools if offered else generation.stops
        self.stops = list(dict.fromkeys((*stops, *template.stops)))
        if forced_choice(request, offered) is not None:
            self.stops += [stop for stop in generation.stops_of_call if stop not in self.stops]
        # What a template that looks not far back depends on: the instructions at the start, and the last question.
        self._leading: tuple[Item, ...] = _leading(items) if before is None else before._leading
        asked = next((item for item in reversed(self._items) if isinstance(item, User)), None)
        self._question: Item | None = asked or (before._question if before is not None else None)

    @property
    def opened(self) -> str:
        """Return what it has written of the model's turn already, which the model goes on from."""
        return self._opened.text

    def generated(self, response: Response) -> Generated | None:
        """Return what a later prompt needs to hold this turn as it was generated."""
        return self._generated(response, self._opened.text)

    def _extend(self, response: Response, items: Sequence[Item]) -> Prompt | None:
        raw = self._replayable(response)
        if raw is None:
            return None
        losses = self._out.all_losses()
        self._told = len(losses) if self._told is None else self._told
        out = self._out
        if len(out.pieces) != self._count:
            out = out.copied(self._count)
            out.losses = losses[: self._told]
        return self.grown(out, kept(raw, response, self._strangers()), response.items, items)

    def grown(self, out: Writer, text: str, said: Sequence[Item], items: Sequence[Item]) -> TemplatePrompt | None:
        """Return the prompt behind this one, the text of a turn that says `said`, and new items.

        The template renders what is new behind the little that it depends on, or behind all where it looks far back.
        None where it does not show the turn.
        """
        session, earlier = self._session, self._earlier.then(self._items)
        template, first = session.template, earlier.count
        escape = template.escape(session.policy)
        items = shown_items(items, escape.forges)
        spoken = list(said) or [_NOTHING_SAID]
        before = [*self._leading, *([self._question] if self._question else [])]
        if not template.traits.local:
            before = earlier.all()
        goes_on = continues(items)
        written = template.write(
            [*before, *spoken, *items],
            session.functions,
            session.asked,
            generation=not goes_on,
            words=session.words,
        )
        turns = written.filled(escape, first - len(before))
        region = turns.region_of(first + len(spoken) - 1)
        if region is None:
            return None
        opened = turns.opened(goes_on)
        out.item = first if said else -1
        out.generated(text)
        start = len(out.pieces)
        closing = _closing(turns, region, text, said)
        if closing:
            out.trainable = True
            out.control(closing)
            out.trainable = False
        behind = len(out.pieces) - region.end
        out.pieces += turns.pieces[region.end :]
        out.marks += turns.marks[region.end :]
        out.losses += [loss for loss in written.losses if loss not in out.losses]
        new = [*said, *items]
        _report(session.document, new, first, turns.missing(written.marked), out)
        asked = self._request
        request = Request(conversation=Conversation(new, asked.tools), settings=asked.settings)
        place = Opened(opened, turns.opened_at(goes_on) + behind, start, self.replayed)
        return TemplatePrompt(session, request, out, place, offered_to(items, request, self.offered), self)


def _leading(items: Sequence[Item]) -> tuple[Item, ...]:
    count = next((at for at, item in enumerate(items) if not isinstance(item, System)), len(items))
    return tuple(items[:count])


def _closing(turns: Turns, region: Region, text: str, said: Sequence[Item]) -> str:
    """Return what closes the last block of a turn where its text does not: a stop of the client may have cut it."""
    closing = "".join(turns.pieces[region.last : region.end])
    tags = list(_TAG.finditer(closing))
    if not tags or not said or not isinstance(said[-1], ToolCall):
        return ""
    written = text.rstrip()
    for tag in reversed(tags):
        if written.endswith(tag[0]):
            return closing[tag.end() :].rstrip()
    return closing[max(overlap(text, closing), len(closing[: tags[0].start()].rstrip())) :]


def _report(document: Document, items: Sequence[Item], start: int, missing: Collection[int], out: Writer) -> None:
    """Book what the template does not show, once somebody asks: contents that are missing, members without a place."""
    layout = layout_of(document)

    def report() -> None:
        for at, item in enumerate(items, start):
            out.item, out.place = at, item.at or f"items[{at}]"
            place = layout.place_for(item)
            if at in missing:
                thought = isinstance(item, Thinking)
                detail = "the template shows no thoughts here" if thought else "the template leaves it out"
                out.lose("", "dropped", detail)
            elif place is not None:
                report_unshown(place, item, out)

    out.later.append(report)


class _Prepared(Struct):
    """A request as a template gets it: what is told and offered, and the losses of that."""

    session: Session
    request: Request
    losses: list[Loss]


def _prepared(document: Document, template: Template, request: Request, wanted: Wanted, forced: bool) -> _Prepared:
    losses: list[Loss] = list(unfilled(request)) if request.extra else []
    losses += unflagged(document, request)
    if wanted.spelling is not None:
        request, respellings = respelled(request, wanted.spelling)
        losses = [*respellings, *losses]
    escape = template.escape(wanted.policy)
    request = shown(request, escape.forges)
    asked, untold = template.asked(request, wanted.thinking, forced, wanted.now)
    functions = template.functions(_tools(request), escape)
    losses += [*untold, *functions.losses]
    words = partial(_in_words, document, template.traits, _tools(request)) if wanted.words else None
    if functions.shown and not template.traits.tools and words is None:
        losses.append(_NO_TOOLS)
    session = Session(document, template, asked, functions, wanted.policy, wanted.spelling, words)
    return _Prepared(session, request, losses)


def _in_words(document: Document, traits: Traits, tools: Sequence[Tool], marked: Marked, items: Sequence[Item]) -> None:
    put_in_words(marked, items, tools, document, traits)


def _tools(request: Request) -> list[Tool]:
    """Return the tools of a request, those that come in the course of it among them: a template has one list."""
    return [*request.tools, *(tool for item in request.items if type(item) is ToolsChange for tool in item.added)]


def _written(prepared: _Prepared, items: Sequence[Item], generation: bool) -> Written:
    session = prepared.session
    return session.template.write(items, session.functions, session.asked, generation=generation, words=session.words)


def _writer(prepared: _Prepared, items: Sequence[Item], written: Written, turns: Turns) -> Writer:
    session = prepared.session
    out = Writer(session.template.escape(session.policy), archive=False)
    out.pieces, out.losses = turns.pieces, [*prepared.losses, *written.losses]
    out.marks += turns.marks
    _report(session.document, items, 0, turns.missing(written.marked), out)
    return out


def _begun(prepared: _Prepared, request: Request, offered: dict[str, Tool], replays: Replays = ()) -> TemplatePrompt:
    """Write a prompt at once, turns that fit where they stand as they were generated."""
    goes_on, session = continues(request.items), prepared.session
    written = _written(prepared, request.items, not goes_on)
    turns = written.filled(session.template.escape(session.policy))
    kept = [
        begin
        for begin, end, one in reversed(replays)
        if turns.replay(written.marked, begin, end, (one.opening, one.text))
    ]
    out = _writer(prepared, request.items, written, turns)
    opened = Opened(turns.opened(goes_on), turns.opened_at(goes_on), replayed=tuple(reversed(kept)))
    return TemplatePrompt(session, request, out, opened, offered)


def write_with_template(
    document: Document, template: Template, request: Request, policy: str = AUTO, now: datetime | None = None
) -> Writer:
    """Write a whole conversation in the words of a template, without what opens an answer."""
    prepared = _prepared(document, template, request, Wanted(policy=policy, now=now), False)
    items = prepared.request.items
    written = _written(prepared, items, False)
    return _writer(prepared, items, written, written.filled(template.escape(policy)))


def begin_template_prompt(document: Document, template: Template, request: Request, wanted: Wanted) -> Prompt:
    """Return the prompt of a request in the words of a template.

    By the history `template` those turns stand as they were generated whose every part the template shows where they
    stand; by `generated` all do, and the prompt grows from each to the next.
    """
    offered = offered_to(request.items, request, declared(request.tools) if request.tools else {})
    goes_on = continues(request.items)
    free = goes_on or asks_to_think(request, wanted.thinking) or request.settings.tool_choice is None
    must_call = not free and forced_choice(request, offered) is not None and _has_calls(document)
    if wanted.thinking and not template.thinks(document):
        raise Unsupported("thinking", "a template that has no place for thoughts")
    prepared = _prepared(document, template, request, wanted, must_call)
    request = prepared.request
    if wanted.replays and wanted.history == "generated":
        return _grown_by(prepared, wanted.replays, offered, must_call)
    return _calling(prepared, request, _begun(prepared, request, offered, wanted.replays), must_call)


def _grown_by(prepared: _Prepared, replays: Replays, offered: dict[str, Tool], must_call: bool) -> Prompt:
    """Begin before the first turn that is known as it was generated, and grow by one turn after the other."""
    request = prepared.request
    first = replays[0][0]
    head = replace(request, conversation=Conversation(list(request.items[:first]), request.tools))
    prompt = _begun(prepared, head, offered)
    out = prompt._out
    done: list[int] = []
    for at, (begin, end, generated) in enumerate(replays):
        following = replays[at + 1][0] if at + 1 < len(replays) else len(request.items)
        del out.pieces[prompt._opened.at :], out.marks[prompt._opened.at :]
        if generated.opening:  # that of its own prompt, which may have asked for a thought where this one does not
            out.item = -1
            out.control(generated.opening)
        grown = prompt.grown(out, generated.text, request.items[begin:end], request.items[end:following])
        if grown is None:  # the template shows no such turn: then all is written anew
            return _calling(prepared, request, _begun(prepared, request, offered), must_call)
        prompt = grown
        done.append(begin)
    prompt.replayed = tuple(done)
    return _calling(prepared, request, prompt, must_call)


def _has_calls(document: Document) -> bool:
    return ToolCall.kind in layout_of(document).places


def _calling(prepared: _Prepared, request: Request, prompt: TemplatePrompt, must_call: bool) -> TemplatePrompt:
    """Open a call behind what a prompt has opened, as the table writes it, where the model must call."""
    if not must_call:
        return prompt
    document, opened = prepared.session.document, prompt._opened
    question: list[Item] = [User(content=[Text(text="?")])]
    settings = replace(request.settings, thinking=None, effort=None)
    asked = Request(conversation=Conversation(question, request.tools), settings=settings)
    call = begin_prompt(document, asked, False)._seed
    thought = layout_of(document).places.get(Thinking.kind)
    if thought is not None and thought.open.strip() and opened.text.rstrip().endswith(thought.open.strip()):
        call = f"{thought.close}{document.joints.get((Thinking.kind, ToolCall.kind), '')}{call}"
    prompt._out.item = -1
    prompt._out.control(call)
    before = prompt._opened
    prompt._opened = replace(before, text=before.text + call)
    prompt._seed = prepared.session.template.seed(prompt._opened.text)
    prompt.prefill = prepared.session.template.prefill(prompt._opened.text)
    prompt._count = len(prompt._out.pieces)
    return prompt
