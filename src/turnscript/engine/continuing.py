"""Owns the end of a prompt: what is opened there for the model to write, or the text that it is to continue."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from turnscript.core.conversation import Assistant, Request, ToolCall, ToolChoice
from turnscript.core.losses import Loss
from turnscript.engine.attributes import attribute_text
from turnscript.engine.correlate import Earlier
from turnscript.engine.layout import Layout, Place
from turnscript.engine.names import name_line
from turnscript.engine.render import Composer
from turnscript.engine.spans import ITEM, TRAINABLE, Literal, Writer
from turnscript.engine.table import Document, Turn

LEAST_BUDGET = 1024
"""Tokens. Messages refuses a smaller budget of thinking (D-X-13)."""
_LOW = ("low", "minimal")
_HIGH = ("high", "xhigh", "max")


def continued(composer: Composer, request: Request) -> tuple[str, str, str]:
    """Go on with a last assistant text that is open: its own text is the prefill. Returns what `opened` does."""
    index = composer.earlier.count + len(request.items) - 1
    spans = [span for span in composer.out.spans if span.item == index]
    text = "".join([span.text for span in spans if not span.control])
    turn = composer.layout.places[Assistant.kind].turn
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
    payload = place.body.prefill(name, place.escape.apply) or ("" if place.open else place.body.begins)
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
