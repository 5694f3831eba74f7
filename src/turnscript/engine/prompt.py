"""Owns prompts: a document cut where the model goes on, the parser of what it writes there, and the next prompt.

At its end something is opened there for the model to write, or there is the text that it is to continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolsChange,
    User,
    single_text,
)
from turnscript.core.errors import Unsupported
from turnscript.core.json_spelling import Spelling, respelled, respelled_items, shown, shown_items
from turnscript.core.losses import Loss, summary
from turnscript.core.source_paths import in_source_words
from turnscript.core.validation import MISTAKES, refuse_mistakes
from turnscript.engine.attributes import attribute_text
from turnscript.engine.constraint import Constraint, Demand, calls_demanded, constraint_behind, told
from turnscript.engine.correlate import Earlier, ids_of, names_of
from turnscript.engine.escape import AUTO
from turnscript.engine.files import unfilled
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.names import name_line
from turnscript.engine.parse import TurnParser
from turnscript.engine.render import Composer
from turnscript.engine.replay import Generated, Replays, Strangers, kept, stranger_behind
from turnscript.engine.spans import ITEM, TRAINABLE, Literal, Span, Writer
from turnscript.engine.states import Calls, looks_for_names, states_of
from turnscript.engine.system import unflagged
from turnscript.engine.table import Document, Turn
from turnscript.grammar.notations import writer_of

LEAST_BUDGET = 1024
"""Tokens. Messages refuses a smaller budget of thinking (D-X-13)."""
_LOW = ("low", "minimal")
_HIGH = ("high", "xhigh", "max")


def continued(composer: Composer, request: Request) -> tuple[str, str, str]:
    """Go on with a last assistant text that is open: its own text is the prefill. Returns what `opened` does."""
    index = composer.earlier.count + len(request.items) - 1
    spans = [span for span in composer.out.spans if span.item == index]
    text = "".join([span.text for span in spans if not span.control])
    place = composer.layout.place_for(request.items[-1])
    turn = (place or composer.layout.places[Assistant.kind]).turn
    opening = "".join([span.text for span in spans if span.control])
    seed = opening[opening.rfind(turn.open) + len(turn.open) :] + text if turn.open else opening + text
    missing = _strip_end(composer.out) if composer.document.generation.stripped else ""
    return (seed.rstrip(), text.rstrip(), missing) if missing else (seed, text, "")


def opened(composer: Composer, request: Request, thinks: bool, forced: ToolChoice | None) -> tuple[str, str, str]:
    """Open what the model is to write; returns its parser's seed, the prefill, and the white space left out."""
    generation = composer.document.generation
    hint = _hint(composer.document, request) if thinks else ""
    if hint:
        composer.out.control(hint)
        composer.out.losses += _odd_wishes(request)
    kind = generation.thinking_kind if thinks else ToolCall.kind if forced is not None else generation.kind
    place = _first_flagged(composer) if thinks else composer.layout.places[kind]
    before = composer.place
    known = None
    if forced is None and before is not None and not composer.separated:
        known = _opening_behind(composer.layout, before, place)
    if known is not None and known.literals:
        composer.write_literals(known.literals)
        if known.ended is not None:
            composer.unclosed, composer.ended = known.unclosed, known.ended
        written, missing = known.written, known.missing
    else:
        said = composer.earlier.then(request.items)
        seed = _opening(place, composer.document) if forced is None else _call_opening(place, said, forced)
        written, missing = _written(composer, place, seed)
    composer.place, composer.model = None, False
    says_nothing = kind == generation.kind and not generation.prefill
    return written, "" if says_nothing else written, missing


def _first_flagged(composer: Composer) -> Place:
    """Return the place of the first kind of thought that is flagged. A model writes them in the order of the format, so
    that none could come which stands before the one that is opened."""
    layout = composer.layout
    usual = layout.places[layout.document.generation.thinking_kind]
    return layout.thoughts.get(composer.flags[0], usual) if composer.flags else usual


class _Opening(NamedTuple):
    """What a prompt opens behind an item whose turn stands open: all its literals, and what of them is `written` of the
    answer. `missing`: the white space left out at their end; no literals, where some of what stands before is left out
    with it. `ended`: the turn that ends by that, None if the answer goes on in it; `unclosed` as a composer has it.
    """

    literals: list[Literal]
    written: str
    missing: str
    ended: Turn | None
    unclosed: Place | None


@lru_cache(maxsize=256)
def _opening_behind(layout: Layout, before: Place, place: Place) -> _Opening:
    """Return what opens an answer behind an item of a place: the same for every one, so it is written once."""
    composer = Composer(layout, Writer(layout.escape, archive=False))
    composer.place, composer.model, composer.last, composer.separated = before, before.model, 0, False
    written, missing = _written(composer, place, _opening(place, layout.document))
    marked = zip(*composer.out.flat(), strict=True)
    literals = [(text, bool(mark & TRAINABLE), mark // ITEM == composer.last) for text, mark in marked]
    if layout.document.generation.stripped and not all(text for text, _, _ in literals):
        literals = []
    return _Opening(literals, written, missing, composer.ended, composer.unclosed)


def _written(composer: Composer, place: Place, seed: str) -> tuple[str, str]:
    """Open a segment, `seed` its own opening; returns what of it is written, and the white space left out."""
    out, before = composer.out, composer.place
    joined = before is not None and before.turn is place.turn and (before.kind, place.kind) in composer.layout.joints
    if before is not None and joined and not before.model:
        composer.join(place, grouped=False)
        lead = ""
    else:
        composer.end_turn()
        composer.model = False  # whoever wrote what stands before
        composer.begin_turn(place, None, grouped=False)
        lead = place.lead
    written, missing = f"{lead}{seed}" if seed else "", ""
    if composer.document.generation.stripped and written:
        written, missing = _stripped(written)
    elif composer.document.generation.stripped:
        missing = _strip_end(out)
    if written:
        out.control(written)
    return written, missing


def _strip_end(out: Writer) -> str:
    """Take the white space at the end off what is written; returns it."""
    missing = ""
    for at in reversed(range(len(out.pieces))):
        out.pieces[at], space = _stripped(out.pieces[at])
        missing = space + missing
        if out.pieces[at]:
            break
    return missing


def _stripped(text: str) -> tuple[str, str]:
    """Return a text without the white space at its end, and that."""
    core = text.rstrip()
    return core, text[len(core) :]


def _opening(place: Place, document: Document) -> str:
    """Return what is written of a segment's opening."""
    generation = document.generation
    if place.kind == generation.thinking_kind and generation.thinking_prefill is not None:
        return generation.thinking_prefill
    if place.kind == generation.kind:
        return f"{answer_opening(document)}{generation.prefill}"
    return f"{place.open}{place.head_end}"


def _call_opening(place: Place, said: Earlier, forced: ToolChoice) -> str:
    name = forced.name if forced.mode == "named" else None
    opening = f"{place.group_open}{place.open}"
    if place.segment.named:
        return "" if name is None else f"{name_line(name)}\n{opening}"
    for attribute in place.segment.attributes_shown:
        if attribute.path == "name" and name is None:
            return f'{opening} {attribute.key}="'
        if attribute.path == "name" and name is not None:
            opening += f" {attribute.key}={place.escape.spelled(attribute_text(name))}"
        elif attribute.path == "id":
            opening += f" {attribute.key}={attribute_text(said.next_id())}"
    payload = place.body.prefill(name, place.escape.apply, said.calls) or ("" if place.open else place.body.begins)
    return f"{opening}{place.head_end}{payload}"


@lru_cache(maxsize=64)
def answer_opening(document: Document) -> str:
    """Return what a prompt writes of an answer's opening."""
    answer, prefill = document.segment(document.generation.kind), document.generation.answer_prefill
    return f"{answer.open}{answer.head_end}" if prefill is None else prefill


def _hint(document: Document, request: Request) -> str:
    """Return what a format adds to the last user text so that the model thinks: more for more effort."""
    hints = document.generation.hints
    if not hints or not request.items or request.items[-1].kind != "user":
        return ""
    return hints[_tier(request)]


def _odd_wishes(request: Request) -> list[Loss]:
    """Return what a tier stands for that nobody may ask for: a budget below the least one, an effort without a name."""
    mode, effort = request.settings.thinking, request.settings.effort
    if mode is not None and mode.budget is not None:
        detail = f"a budget is at least {LEAST_BUDGET} tokens; the word for the least thinking asks for it"
        path = request.paths.get("thinking", "$.thinking")
        return [Loss(path, "approximated", detail)] if mode.budget < LEAST_BUDGET else []
    if effort is None or effort in (*_LOW, *_HIGH, "medium", "none"):
        return []
    return [Loss(request.paths.get("effort", "$.effort"), "approximated", f"{effort!r} is no effort; taken for medium")]


def _tier(request: Request) -> str:
    """Return how much thinking is asked for: `low`, `medium` or `high` (requirements R-G-10..12, D-X-13)."""
    mode, effort = request.settings.thinking, request.settings.effort
    if mode is not None and mode.budget is not None:
        return "low" if mode.budget < 4096 else "medium" if mode.budget < 16384 else "high"
    if effort in _LOW:
        return "low"
    return "high" if effort in _HIGH else "medium"


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
        self._goes_on = begun = goes_on(items, composer.layout)
        self._items = tuple(items[:-1] if begun else items)  # the request may grow meanwhile
        self._thinks = thinks
        self._start = start
        self._earlier = composer.earlier
        self._told: int | None = None  # how many losses are its own, once a longer prompt may have more
        self.spelling: Spelling | None = spelling
        # How many pieces stand before what opens the answer, and the kind of the segment before it.
        self._begun, self._before = (
            composer.opened if begun else (len(out.pieces), "" if composer.place is None else composer.place.kind)
        )
        self.replayed: tuple[int, ...] = tuple(composer.replayed)
        self.offered: dict[str, Tool] = offered
        if begun:
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
        states = states_of(document, document.model_turn, False, self.client_stops, calls, names)
        turn = TurnParser(states, self.offered, stops=self.stops, lead=self._missing or None)
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
    states = states_of(document, document.model_turn, False, tuple(stops), calls, names)
    turn = TurnParser(states, offered)
    turn.seed("" if prefill is None else prefill or answer_opening(document))
    return turn


@lru_cache(maxsize=64)
def _strangers(document: Document, calls: bool) -> Strangers:
    """Return what ends the model's turn and belongs to somebody else's. `calls`: whether tools are offered."""
    literals = tuple(states_of(document, document.model_turn, False, (), "tagged" if calls else "none").strangers)
    return Strangers(literals, tuple(map(str.strip, literals)))


def _names(document: Document, offered: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that may stand before a call, where a format names its tool there."""
    names = tuple(offered)
    return tuple(map(name_line, names)) if names and looks_for_names(document.model_turn) else ()


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
    if (
        thinking is not False
        and _opens_thought(request)
        and document.generation.thinking_kind in composer.layout.places
    ):
        request, thinks = _asking_again(document, request), True
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


def _opens_thought(request: Request) -> bool:
    """Return whether the last item is a thought that is opened and says nothing: a prompt's end, as it is read."""
    last = request.items[-1] if request.items else None
    if not isinstance(last, Thinking) or not last.open or last.of != "reason":
        return False
    more = last.summary or last.signature or last.redacted or last.encrypted or last.extra
    return not more and (not last.content or single_text(last.content) == "")


def _asking_again(document: Document, request: Request) -> Request:
    """Return the request of a prompt that opens a thought: without that, and with an effort in place of the word for it
    at the end of its last text, which is written again."""
    items, settings = request.items[:-1], request.settings
    last = items[-1] if items else None
    said = (single_text(last.content) or "") if isinstance(last, User) else ""
    hints = document.generation.hints
    effort = max((one for one in hints if said.endswith(hints[one])), key=lambda one: len(hints[one]), default=None)
    if effort is not None and isinstance(last, User):
        items[-1] = replace(last, content=[Text(text=said.removesuffix(hints[effort]))])
        settings = replace(settings, effort=effort)
    return replace(request, conversation=replace(request.conversation, items=items), settings=settings)


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


def goes_on(items: Sequence[Item], layout: Layout) -> bool:
    """Return whether the last item is a text that the answer goes on from, or a thought, where the format has those."""
    last = items[-1] if items else None
    if isinstance(last, Thinking) and last.open:
        return bool(last.content) and layout.place_for(last) is not None
    return continues(items)


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
