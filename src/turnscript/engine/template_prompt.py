"""Owns prompts that a model's own chat template writes, the replay of turns in them, and the next prompt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec.structs import replace

from turnscript.conversation import (
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
)
from turnscript.engine.earlier import NOTHING, Earlier
from turnscript.engine.escape import AUTO, POLICIES, Escape
from turnscript.engine.fill import unfilled
from turnscript.engine.layout import layout_of, report_unshown
from turnscript.engine.prompt import (
    Prompt,
    begin_prompt,
    continues,
    declared,
    forced_choice,
    offered_to,
)
from turnscript.engine.replay import Generated, Replays, kept
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, Writer
from turnscript.engine.table import Document
from turnscript.engine.template.template import Asked, Template
from turnscript.engine.template.tools import Functions
from turnscript.engine.template.turns import Region, Turns
from turnscript.errors import Unsupported
from turnscript.losses import Loss
from turnscript.respelling import Spelling, respelled, shown, shown_items

History = Literal["template", "generated"]
"""How turns of the model are kept in later prompts: as the `template` writes them then, or as they were `generated`."""


class TemplatePrompt(Prompt):
    """A prompt in the words of the model's own template. A table reads what the model writes behind it."""

    __slots__ = ("_asked", "_functions", "_opened", "_policy", "_template", "_turn")

    def __init__(
        self,
        document: Document,
        template: Template,
        request: Request,
        asked: Asked,
        out: Writer,
        opened: str,
        *,
        earlier: Earlier = NOTHING,
        start: int = 0,
        replayed: Sequence[int] = (),
        offered: dict[str, Tool],
        functions: Functions,
        policy: str,
        spelling: Spelling | None = None,
    ) -> None:
        self._document = document
        self._template = template
        self._out = out
        self._request = request
        self._asked = asked
        self._functions = functions
        self._policy = policy
        items = request.items
        self._goes_on = continues(items)
        self._items = tuple(items[:-1] if self._goes_on else items)
        self._thinks = bool(asked.thinking)
        self._start = start
        self._earlier = earlier
        self._told = None
        self.spelling = spelling
        self.replayed = tuple(replayed)
        self.offered = offered
        self._opened = opened
        self._seed = template.seed(opened)
        self.prefill = _said(items[-1]) if self._goes_on else self._seed
        self._missing = ""
        self._count = len(out.pieces)
        generation = document.generation
        stops = generation.stops_with_tools if offered else generation.stops
        self.stops = list(dict.fromkeys((*stops, *template.stops)))
        if forced_choice(request, offered) is not None:
            self.stops += [stop for stop in generation.stops_of_call if stop not in self.stops]

    def generated(self, response: Response) -> Generated | None:
        """What a later prompt needs to hold this turn as it was generated."""
        if response.raw is None or not response.items:
            return None
        last = response.items[-1]
        return Generated(
            opening=self._opened,
            text=kept(response.raw, response, self._strangers()),
            before="",
            last=last.kind,
            of=last.of if isinstance(last, Thinking) else "",
            prefilled=len(self.prefill) if self._goes_on else 0,
        )

    def _extend(self, response: Response, items: Sequence[Item]) -> Prompt | None:
        raw = self._replayable(response)
        if raw is None:
            return None
        text = kept(raw, response, self._strangers())
        losses = self._out.all_losses()
        self._told = len(losses) if self._told is None else self._told
        out = self._out
        if len(out.pieces) != self._count:
            out = out.copied(self._count)
            out.losses = losses[: self._told]
        return self.grown(out, text, response.items, items, self._request)

    def grown(
        self, out: Writer, text: str, said: Sequence[Item], items: Sequence[Item], request: Request
    ) -> TemplatePrompt | None:
        """Return the prompt behind this one, the text of a turn that says `said`, and new items.

        The template renders what is new behind the little that it depends on, or all where it looks far back.
        """
        template, earlier = self._template, self._earlier.then(self._items)
        first = earlier.count
        items = shown_items(items, template.escape(self._policy).forges)
        new = [*said, *items]
        before = _window(earlier) if template.traits.local else earlier.all()
        functions = self._functions
        goes_on = continues(items)
        written = template.write(
            [*before, *(said or [_NOTHING_SAID]), *items],
            functions,
            self._asked,
            generation=not goes_on,
            start=first - len(before),
        )
        turns = Turns(written.marked, template.traits, template.escape(self._policy))
        turns.lay_out(written.pieces)
        region = turns.regions.get(turns.message_at(first + max(len(said), 1) - 1))
        if region is None:
            return None
        out.item = first if said else -1
        out.generated(text)
        begun = len(out.pieces)  # behind what the model wrote
        closing = _closing(turns, region, text, said)
        if closing:
            out.trainable = True
            out.control(closing)
            out.trainable = False
        out.pieces += turns.pieces[region.end :]
        out.marks += turns.marks[region.end :]
        out.losses += [loss for loss in written.losses if loss not in out.losses]
        _report(self._document, new, first, turns, out)
        extended = Request(conversation=Conversation(new, request.tools), settings=request.settings)
        return TemplatePrompt(
            self._document,
            template,
            extended,
            self._asked,
            out,
            turns.opened(goes_on),
            earlier=earlier,
            start=begun,
            replayed=self.replayed,
            offered=offered_to(items, extended, self.offered),
            functions=functions,
            policy=self._policy,
            spelling=self.spelling,
        )


_NO_TOOLS = Loss("$.tools", "dropped", "this template has no place for tools")
_NOTHING_SAID = Assistant(content=[Text(text="")])


def _said(item: Item) -> str:
    return "".join(part.text for part in getattr(item, "content", ()) if isinstance(part, Text))


def _window(earlier: Earlier) -> list[Item]:
    """Return what a template that looks not far back depends on: the instructions at the start, and the last question."""
    items = earlier.all()
    leading = 0
    while leading < len(items) and isinstance(items[leading], System):
        leading += 1
    asked = next((item for item in reversed(items[leading:]) if isinstance(item, User)), None)
    return [*items[:leading], *([asked] if asked is not None else [])]


def _closing(turns: Turns, region: Region, text: str, said: Sequence[Item]) -> str:
    """Return what closes the last block of a turn where its text does not: a stop of the client may have cut it."""
    closing = "".join(turns.pieces[region.last : region.end])
    core = closing.strip()
    if not core or not said or not isinstance(said[-1], ToolCall) or text.rstrip().endswith(core):
        return ""
    overlap = next((size for size in range(len(closing), 0, -1) if text.endswith(closing[:size])), 0)
    return closing[overlap:]


def _report(document: Document, items: Sequence[Item], start: int, turns: Turns, out: Writer) -> None:
    """Book what the template does not show, once somebody asks: contents that it left out, members without a place."""
    missing = turns.missing(start)
    layout = layout_of(document)

    def report() -> None:
        for at, item in enumerate(items, start):
            out.item, out.place = at, item.at or f"items[{at}]"
            if at in missing:
                detail = (
                    "the template shows no thoughts here"
                    if isinstance(item, Thinking)
                    else "the template leaves it out"
                )
                out.lose("", "dropped", detail)
                continue
            place = layout.place_for(item)
            if place is not None:
                report_unshown(place, item, out)

    out.later.append(report)


def begin_template_prompt(
    document: Document,
    template: Template,
    request: Request,
    thinking: bool | None,
    policy: str = AUTO,
    replays: Replays = (),
    spelling: Spelling | None = None,
    history: History = "template",
    now: datetime | None = None,
) -> Prompt:
    """Return the prompt of a request in the words of a template.

    `replays`: turns as they were generated. By the history `template` those are taken whose every part the template
    shows where they stand; by `generated` all are, and the prompt grows from each to the next.
    """
    losses: list[Loss] = list(unfilled(request)) if request.extra else []
    if spelling is not None:
        request, asked_losses = respelled(request, spelling)
        losses = [*asked_losses, *losses]
    goes_on = continues(request.items)
    offered = offered_to(request.items, request, declared(request.tools) if request.tools else {})
    forced = None if goes_on or thinking else forced_choice(request, offered)
    asked, told = template.asked(request, thinking, forced is not None, now)
    if thinking and not template.thinks(document):
        raise Unsupported("thinking", "a template that has no place for thoughts")
    losses += told
    escape = template.escape(policy)
    request = shown(request, escape.forges)
    functions = template.functions(_tools(request), escape)
    losses += functions.losses
    if functions.shown and not template.traits.tools:
        losses.append(_NO_TOOLS)
    first = replays[0][0] if replays and history == "generated" else None
    items = request.items if first is None else request.items[:first]
    written = template.write(items, functions, asked, generation=first is not None or not goes_on)
    turns = Turns(written.marked, template.traits, escape)
    turns.lay_out(written.pieces)
    replayed: list[int] = []
    if first is None:
        for begin, end, generated in reversed(replays):
            if turns.replay(begin, end, generated.opening, generated.text):
                replayed.insert(0, begin)
    out = Writer(escape, archive=False)
    out.pieces, out.marks, out.losses = turns.pieces, [*turns.marks], [*losses, *written.losses]
    _report(document, items, 0, turns, out)
    opened = turns.opened(goes_on and first is None)
    if forced is not None and first is None:
        call = _called(document, request, opened)
        out.control(call)
        opened += call
    whole = request if first is None else replace(request, conversation=Conversation(list(items), request.tools))
    prompt = TemplatePrompt(
        document,
        template,
        whole,
        asked,
        out,
        opened,
        replayed=replayed,
        offered=offered,
        functions=functions,
        policy=policy,
        spelling=spelling,
    )
    return prompt if first is None else _replayed(prompt, request, replays, forced is not None)


def write_with_template(document: Document, template: Template, request: Request, policy: str = AUTO) -> Writer:
    """Write a whole conversation in the words of a template, without what opens an answer."""
    asked, losses = template.asked(request, None, False, None)
    escape = template.escape(policy)
    request = shown(request, escape.forges)
    functions = template.functions(_tools(request), escape)
    losses += functions.losses
    if functions.shown and not template.traits.tools:
        losses.append(_NO_TOOLS)
    written = template.write(request.items, functions, asked, generation=False)
    turns = Turns(written.marked, template.traits, escape)
    turns.lay_out(written.pieces)
    out = Writer(escape, archive=False)
    out.pieces, out.marks, out.losses = turns.pieces, [*turns.marks], [*losses, *written.losses]
    _report(document, request.items, 0, turns, out)
    return out


def _tools(request: Request) -> list[Tool]:
    """Return the tools of a request, those that come in the course of it among them: a template has one list."""
    return [*request.tools, *(tool for item in request.items if type(item) is ToolsChange for tool in item.added)]


def _replayed(prompt: TemplatePrompt, request: Request, replays: Replays, forced: bool) -> Prompt:
    """Grow a prompt by turns as they were generated, one after the other."""
    done: list[int] = []
    for at, (begin, end, generated) in enumerate(replays):
        following = replays[at + 1][0] if at + 1 < len(replays) else len(request.items)
        out = prompt._out
        for place in range(len(out.pieces) - 1, -1, -1):
            if "".join(out.pieces[place:]) == prompt._opened:
                del out.pieces[place:], out.marks[place:]
                break
        out.item = begin
        if generated.opening:
            out.control(generated.opening)
        grown = prompt.grown(out, generated.text, request.items[begin:end], request.items[end:following], request)
        if grown is None:
            break
        prompt = grown
        done.append(begin)
    prompt.replayed = tuple(done)
    return prompt


def _called(document: Document, request: Request, opened: str) -> str:
    """Return how a call that must be made is opened, as the table writes it behind what is opened already."""
    question: list[Item] = [User(content=[Text(text="?")])]
    asked = Request(
        conversation=Conversation(question, request.tools),
        settings=replace(request.settings, thinking=None, effort=None),
    )
    opening = begin_prompt(document, asked, False)._seed
    layout = layout_of(document)
    thought = layout.places.get("thinking")
    if thought is None or not opened.rstrip().endswith(thought.open.strip() or "\0"):
        return opening
    joint = document.joints.get(("thinking", "tool_call"), "")
    return f"{thought.close}{joint}{opening}"


__all__ = ["CONTROL", "ITEM", "POLICIES", "TRAINABLE", "Escape", "History", "TemplatePrompt", "begin_template_prompt"]
