"""Owns prompts: a document cut where the model goes on, the parser of what it writes there, and the next prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolsChange,
)
from turnscript.core.errors import Unsupported
from turnscript.core.json_spelling import Spelling, respelled, respelled_items, shown, shown_items
from turnscript.core.losses import Loss, summary
from turnscript.core.source_paths import in_source_words
from turnscript.core.validation import MISTAKES, refuse_mistakes
from turnscript.engine.constraint import Constraint, Demand, calls_demanded, constraint_behind, told
from turnscript.engine.continuing import answer_opening, continued, opened
from turnscript.engine.correlate import ids_of, names_of
from turnscript.engine.escape import AUTO
from turnscript.engine.files import unfilled
from turnscript.engine.layout import layout_of
from turnscript.engine.names import name_line
from turnscript.engine.parse import TurnParser
from turnscript.engine.render import Composer
from turnscript.engine.replay import Generated, Replays, Strangers, kept, stranger_behind
from turnscript.engine.spans import Span, Writer
from turnscript.engine.states import Calls, looks_for_names, model_turn, states_of
from turnscript.engine.system import unflagged
from turnscript.engine.table import Document
from turnscript.grammar.notations import writer_of

_HARMLESS = frozenset({"unknown_tool", "odd_call", "missing_close", "ambiguous_close"})


class Prompt:
    """Text for a model to continue.

    `stops`: strings that end the model's turn. `client_stops`: those that the client asked for. `prefill`: how much of
    the turn's own content is written already; the parser begins there. `replayed`: the first items of turns that stand
    in it as they were generated. `spelling`: how the JSON of calls and results is spelled; None: as it came.
    """

    __slots__ = (
        "_before",
        "_begun",
        "_composer",
        "_count",
        "_document",
        "_earlier",
        "_goes_on",
        "_items",
        "_missing",
        "_out",
        "_request",
        "_seed",
        "_start",
        "_thinks",
        "_told",
        "offered",
        "prefill",
        "replayed",
        "spelling",
        "stops",
    )

    def __init__(
        self,
        composer: Composer,
        request: Request,
        thinks: bool,
        offered: dict[str, Tool],
        start: int = 0,
        spelling: Spelling | None = None,
    ) -> None:
        out = composer.out
        self._composer = composer
        self._document: Document = composer.document
        self._out: Writer = out
        self._request = request
        items = request.items
        self._goes_on = goes_on = continues(items)
        self._items = tuple(items[:-1] if goes_on else items)  # the request may grow meanwhile
        self._thinks = thinks
        self._start = start
        self._earlier = composer.earlier
        self._told: int | None = None  # how many losses are its own, once a longer prompt may have more
        self.spelling: Spelling | None = spelling
        # How many pieces stand before what opens the answer, and the kind of the segment before it.
        self._begun, self._before = (
            composer.opened if goes_on else (len(out.pieces), "" if composer.place is None else composer.place.kind)
        )
        self.replayed: tuple[int, ...] = tuple(composer.replayed)
        self.offered: dict[str, Tool] = offered
        if goes_on:
            forced = None
            self._seed, self.prefill, self._missing = continued(composer, request)
        else:
            free = thinks or request.settings.tool_choice is None
            forced = None if free else _must_call(composer, request, offered)
            if items and items[-1].open:
                detail = f"an unfinished {items[-1].kind.replace('_', ' ')} is over here: the model begins behind it"
                out.losses.append(Loss(items[-1].at or f"items[{len(items) - 1}]", "approximated", detail))
            self._seed, self.prefill, self._missing = opened(composer, request, thinks, forced)
        self._count = len(out.pieces)
        generation = composer.document.generation
        self.stops: list[str] = list(generation.stops_with_tools if offered else generation.stops)
        if forced is not None:
            self.stops += generation.stops_of_call

    @property
    def request(self) -> Request:
        """Return what is asked: all by a first prompt, by a longer one the last answer and what was said since."""
        return self._request

    @property
    def losses(self) -> list[Loss]:
        """Return what the format could not show."""
        losses = self._out.all_losses()[: self._told]
        return in_source_words(self._request, losses) if losses else losses

    @property
    def client_stops(self) -> tuple[str, ...]:
        """Return the strings at which the client wants the text to end."""
        stops = self._request.settings.stop
        return tuple(stops) if stops else ()

    @property
    def opened(self) -> str:
        """Return what it has written of the model's turn already, which the model goes on from."""
        return self._seed

    @property
    def text(self) -> str:
        """Return the prompt as one string."""
        return "".join(self._pieces(0))

    @property
    def suffix(self) -> str:
        """Return what follows the prompt before and the text generated for it; all of it for a first prompt."""
        return "".join(self._pieces(self._start))

    @property
    def spans(self) -> list[Span]:
        """Return the prompt as spans."""
        return self._out.first_spans(self._count)

    def __repr__(self) -> str:
        return f"Prompt({len(self.text)} characters, {summary(self.losses)})"

    def _pieces(self, start: int) -> list[str]:
        pieces = self._out.pieces
        return pieces[start : self._count] if start or self._count != len(pieces) else pieces

    def parser(self) -> TurnParser:
        """Return a parser for what a model writes after this prompt: it knows the prefill, the tools and the stops."""
        document = self._document
        names = _names(document, self.offered) if self.offered else ()
        calls: Calls = "any" if self.offered else "none"
        states = states_of(document, model_turn(document), False, self.client_stops, calls, names)
        turn = TurnParser(states, self.offered)
        turn.stops, turn.lead = self.stops, self._missing or turn.lead
        if self._seed:
            turn.seed(self._seed)
        return turn

    def grammar(self, target: str) -> Constraint | None:
        """Return what the model may write behind this prompt, in the notation of its server: `gbnf`, `kbnf` or `lark`.

        It knows what the prompt has written already, the tools, the choice among them, and the shape of the answer.
        Where the model may call tools and need not, the grammar is for what follows its `trigger`. None where the model
        may write what it likes. Raises Unsupported where no grammar tells it, and UnknownName.
        """
        write, demand = writer_of(target), self._demand()
        if demand is None:
            return None
        document = self._document
        if demand.lazy:
            return told(document, demand).written(target, write)
        return constraint_behind(document, demand, self._seed, self._missing, self._thinks, target)

    def _demand(self) -> Demand | None:
        """Return what the request wants of the answer, if a grammar can tell it."""
        settings = self._request.settings
        several, shape = settings.parallel_tool_calls is not False, settings.response_format
        forced = forced_choice(self._request, self.offered)
        tools = tuple(self.offered.values())
        if forced is not None:
            return calls_demanded(tools, forced, several)
        if shape is not None and shape.type in ("json_object", "json_schema"):
            schema = shape.schema if shape.type == "json_schema" else None
            callable_ = tuple(enumerate(tools)) if ToolCall.kind in layout_of(self._document).places else ()
            return Demand(callable_, several, answers=True, shape=schema)
        return calls_demanded(tools, settings.tool_choice or "auto", several) if tools else None

    def offer(self, tools: Iterable[Tool]) -> None:
        """Tell of tools that its text offers in words, which nothing in the request says, before any text is read."""
        named = declared(tools)
        if named and not self.offered:
            self.stops = list(self._document.generation.stops_with_tools)
        self.offered = self.offered | named  # a longer prompt may have the same

    def generated(self, response: Response) -> Generated | None:
        """Return what a later prompt needs to hold this turn as it was generated: what this one opened, and the text.

        What goes on behind the end of the turn and the client's own stop string are left out, because no client has
        seen them. None where there is nothing to replay.
        """
        opening = "".join(self._composer.out.pieces[self._begun : self._count])
        if opening and not opening.strip():
            return None
        return self._generated(response, opening, self._before, self._composer.flags)

    def _generated(
        self, response: Response, opening: str, before: str = "", flags: tuple[str, ...] = ()
    ) -> Generated | None:
        if response.raw is None or not response.items:
            return None
        last = response.items[-1]
        return Generated(
            opening=opening,
            text=kept(response.raw, response, self._strangers()),
            before=before,
            last=last.kind,
            of=last.of if isinstance(last, Thinking) else "",
            prefilled=len(self.prefill) if self._goes_on else 0,
            flags=flags,
        )

    def _strangers(self) -> Strangers:
        return _strangers(self._document, bool(self.offered))

    def extend(self, response: Response, items: Sequence[Item]) -> Prompt | None:
        """Return the next prompt: this one, the text generated for it, then new items. Its text starts with both.

        Only what is new is rendered, so a session costs what it says and not the square of that. None where it cannot
        be: the response has no text of its own, went on behind the end of its turn or ends with the opening of
        somebody else's, or has another issue that leaves in doubt what its text says. Then render the whole again: all
        items of the session, with these.
        """
        try:
            return self._extend(response, items)
        except MISTAKES:
            refuse_mistakes(response=response, items=items)
            raise

    def _replayable(self, response: Response) -> str | None:
        """Return the text of an answer that says what its items say; None where that is in doubt."""
        raw = response.raw
        if response.issues and any(issue.kind not in _HARMLESS for issue in response.issues):
            return None
        return None if raw is None or stranger_behind(raw, response, self._strangers()) else raw

    def _extend(self, response: Response, items: Sequence[Item]) -> Prompt | None:
        raw = self._replayable(response)
        if raw is None:
            return None
        composer, losses = self._composer, self._composer.out.all_losses()
        self._told = len(losses) if self._told is None else self._told
        if len(composer.out.pieces) != self._count:
            composer = composer.copied(self._count)
            composer.out.losses = losses[: self._told]
        return _extended(self, composer, raw, response, items)


def bare_parser(
    document: Document, tools: Sequence[Tool] | None, prefill: str | None, stops: Sequence[str]
) -> TurnParser:
    """Return a parser for a turn of the model that begins with `prefill`: with None nothing of it is written yet, and
    an empty one stands for what opens an answer."""
    if isinstance(stops, str):  # each letter would be one
        raise TypeError(f"stops are a list of strings: write [{stops!r}]")
    offered = None if tools is None else declared(tools)
    names = _names(document, offered or ())
    calls: Calls = "tagged" if offered is None else "any" if offered else "none"
    states = states_of(document, model_turn(document), False, tuple(stops), calls, names)
    turn = TurnParser(states, offered)
    turn.seed("" if prefill is None else prefill or answer_opening(document))
    return turn


@lru_cache(maxsize=64)
def _strangers(document: Document, calls: bool) -> Strangers:
    """Return what ends the model's turn and belongs to somebody else's. `calls`: whether tools are offered."""
    literals = tuple(states_of(document, model_turn(document), False, (), "tagged" if calls else "none").strangers)
    return Strangers(literals, tuple(map(str.strip, literals)))


def _names(document: Document, offered: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that may stand before a call, where a format names its tool there."""
    names = tuple(offered)
    return tuple(map(name_line, names)) if names and looks_for_names(model_turn(document)) else ()


def begin_prompt(
    document: Document,
    request: Request,
    thinking: bool | None,
    policy: str = AUTO,
    replays: Replays = (),
    spelling: Spelling | None = None,
) -> Prompt:
    """Return the prompt of a request. `spelling`: that of the JSON in calls and results; None: as they came."""
    composer = Composer.of(document, archive=False, policy=policy)
    composer.replays = replays
    if request.extra:
        composer.out.losses += unfilled(request)
    asked: list[Loss] = []
    if spelling is not None:
        request, asked = respelled(request, spelling)
    request = shown(request, composer.layout.escape.forges, composer.layout.spelling)
    composer.out.losses += unflagged(document, request)
    thinks = asks_to_think(request, thinking)
    if thinks and document.generation.thinking_kind not in composer.layout.places:
        if thinking:
            raise Unsupported("thinking", "a format that has no place for thoughts")
        composer.out.losses.append(Loss("$.thinking", "dropped", "this format has no place for thoughts"))
        thinks = False
    tools = request.tools
    offered = offered_to(request.items, request, declared(tools) if tools else {})
    choice = request.settings.tool_choice
    if choice is not None and forced_choice(request, offered) and ToolCall.kind not in composer.layout.places:
        composer.out.losses.append(Loss("$.tool_choice", "dropped", "this format has no place for calls"))
    composer.write(request, "reason" if thinks else None)
    if asked:
        composer.out.losses[:0] = _of_written(asked, composer, request.items)
    return Prompt(composer, request, thinks, offered, spelling=spelling)


def _of_written(losses: list[Loss], composer: Composer, items: Sequence[Item]) -> list[Loss]:
    """Return the losses of items that are not written as generated: what was has lost no spelling."""
    replayed = [
        index for first, end, _ in composer.replays if first in composer.replayed for index in range(first, end)
    ]
    kept = tuple([f"{items[index].at or f'items[{index}]'}." for index in replayed])
    return [loss for loss in losses if not loss.path.startswith(kept)]


def _extended(prompt: Prompt, composer: Composer, raw: str, response: Response, items: Sequence[Item]) -> Prompt | None:
    layout, out = composer.layout, composer.out
    place = layout.place_for(response.items[-1]) if response.items else None
    count, marks, before = len(out.pieces), len(out.marks), len(response.items)
    asked = prompt._request
    earlier = prompt._earlier.then(prompt._items)
    first = earlier.count
    composer.place, composer.model = place or layout.places[composer.document.generation.kind], True
    composer.earlier, composer.last = earlier, first + before - 1 if before else -1
    out.item = first if before else -1
    out.generated(raw)
    start = len(out.pieces)
    shared = composer.close_generated(raw, items, first + before)
    if not shared and raw.rstrip().endswith(_cores(tuple(prompt.stops))):
        del out.pieces[count:], out.marks[marks:]
        return None
    if prompt.spelling is not None:
        items, losses = respelled_items(items, prompt.spelling)
        out.losses += losses
    items = shown_items(items, composer.layout.escape.forges, composer.layout.spelling)
    said = [*response.items, *items]
    out.names, out.ids = names_of(said, composer.document, earlier), ids_of(said, composer.document, earlier)
    composer.write_items(items, first + before)
    request = Request(conversation=Conversation(said, asked.tools), settings=asked.settings)
    offered = offered_to(items, request, prompt.offered)
    return Prompt(composer, request, prompt._thinks, offered, start, prompt.spelling)


@lru_cache(maxsize=64)
def _cores(stops: tuple[str, ...]) -> tuple[str, ...]:
    """Stop strings without white space around them."""
    return tuple(map(str.strip, stops))


def continues(items: Sequence[Item]) -> bool:
    """Return whether the last item is a text that the answer goes on from."""
    return bool(items) and items[-1].open and isinstance(items[-1], Assistant)


def declared(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools if tool.name is not None}


def offered_to(items: Sequence[Item], request: Request, known: dict[str, Tool]) -> dict[str, Tool]:
    """Return the tools that the model may call, by name. `known`: those before these items, which may change them.

    Where they do not, it is the same dictionary, and nobody changes it in place.
    """
    choice = request.settings.tool_choice
    if choice is not None and choice.mode == "none":
        return {}
    if ToolsChange not in map(type, items):
        return known
    offered = dict(known)
    for change in [item for item in items if type(item) is ToolsChange]:
        for name in change.removed:
            offered.pop(name, None)
        offered |= declared(change.added)
    return offered


def forced_choice(request: Request, offered: Mapping[str, Tool]) -> ToolChoice | None:
    """Return the tool choice, if it leaves the model no way but to call."""
    choice = request.settings.tool_choice
    if choice is None or not (request.tools or offered):
        return None
    return choice if choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required) else None


def _must_call(composer: Composer, request: Request, offered: Mapping[str, Tool]) -> ToolChoice | None:
    """Return the choice for which the prompt opens a call: the model may do nothing else, and there is a place."""
    return forced_choice(request, offered) if ToolCall.kind in composer.layout.places else None


def asks_to_think(request: Request, asked: bool | None) -> bool:
    if asked is not None:
        return asked
    mode, effort = request.settings.thinking, request.settings.effort
    if mode is not None:
        return mode.mode != "disabled"
    return effort is not None and effort not in ("none", "minimal")


__all__ = ["Prompt", "Writer", "bare_parser", "begin_prompt"]
