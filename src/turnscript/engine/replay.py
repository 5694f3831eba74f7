"""Owns exact replay: what stood in a prompt for a turn of the model, and what of its text stands in the next prompt.

A turn that is written anew from its items differs from what the model wrote: JSON is spelled in another way, a thought
is missing, a broken call is escaped. Each such byte costs a model server all that it keeps of the conversation behind
it, and a recurrent model all of it. So the text of the turn is kept with what the prompt had opened for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from turnscript.core.conversation import Assistant, Response, Thinking, text_content
from turnscript.engine.layout import Layout, Place
from turnscript.engine.scanner import overlap
from turnscript.engine.spans import Literal

_BEHIND = frozenset({"after_end", "foreign_turn", "text_outside"})


class Generated(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A turn as a model wrote it.

    `opening`: what its prompt wrote behind the item before, its last `prefilled` characters the client's text that the
    model went on from. `text`: what it wrote. `before` and `last`: the kinds of the segment before and of the last
    one, `of` its kind of thought. `flags`: the kinds of thought that the prompt had flagged.
    """

    opening: str
    text: str
    before: str
    last: str
    of: str = ""
    prefilled: int = 0
    flags: tuple[str, ...] = ()


Replays = Sequence[tuple[int, int, Generated]]
"""Turns to be written as they were generated: position of the first item, position behind the last one, the turn."""


class Strangers(NamedTuple):
    """What ends a model's turn and belongs to somebody else's, as the parser takes it for that, such as a label behind
    a blank line; `cores` are the same without white space."""

    literals: tuple[str, ...]
    cores: tuple[str, ...]


def kept(raw: str, response: Response, strangers: Strangers) -> str:
    """Return what a generated text holds of its turn: nothing behind the end, no opening of somebody else, and not the
    string at which the client wanted it to end."""
    text = raw
    if response.issues:
        text = raw[: min([issue.start for issue in response.issues if issue.kind in _BEHIND], default=len(raw))]
    stop = response.stop_sequence
    if stop:  # which the backend may have taken away
        bare = text if text.endswith(stop) else text.rstrip()
        while bare.endswith(stop):
            text = bare = bare[: len(bare) - len(stop)]
        return text
    while stranger := stranger_behind(text, response, strangers):
        text = text.rstrip().removesuffix(stranger).rstrip()
    return text


def stranger_behind(text: str, response: Response, strangers: Strangers) -> str:
    """Return the opening of another's turn at the end of a generated text, without white space; empty if none.

    An answer that ends with the word alone says that word.
    """
    bare = text.rstrip()
    if not bare.endswith(strangers.cores):
        return ""
    core = max((one for one in strangers.cores if bare.endswith(one)), key=len)
    last = response.items[-1] if response.items else None
    said = text_content(last.content) if isinstance(last, Assistant | Thinking) else ""
    if said.rstrip().endswith(core):
        return core if any(bare.endswith(one) for one in strangers.literals if one.strip() == core) else ""
    return core


def hides(hidden: Iterable[Place], generated: Generated) -> bool:
    """Return whether the turn holds what prompts leave out where it stands, such as past thoughts."""
    said = f"{generated.opening}{generated.text}"
    for place in hidden:
        if place.turn.no_thought:  # which stands in the turn that is written anew, too
            said = said.replace(place.turn.no_thought.strip(), "")
        if place.open.strip() in said:
            return True
    return False


class Closing:
    """What follows a generated text that stops in a segment: literals, together `text`."""

    def __init__(self, layout: Layout, place: Place, after: Place | None) -> None:
        behind = place.ending if after is None else layout.joint(place, after)
        self._literals: list[Literal] = [(place.close, place.model, True), *behind]
        self._rests: dict[int, list[Literal]] = {}
        rest = "".join([literal for literal, _, _ in behind])
        group = place.segment.group.close if place.segment.group else ""
        group = group if rest.startswith(group) else ""  # the next segment may be of the same group
        self.text = ""
        self._cores: list[tuple[str, int]] = []  # what a text may end with, and how much of `text` that is
        self._cores += [(literal, len(place.close)) for literal in place.segment.also_closed_by if place.close]
        for literal in (place.close, group, rest[len(group) :]):
            self.text += literal
            if literal.strip():
                self._cores.append((self.text.strip(), len(self.text.rstrip())))

    def rest(self, shared: int) -> list[Literal]:
        """Return the literals without their first characters, which the text has already."""
        known = self._rests.get(shared)
        if known is None:
            known = self._rests[shared] = [literal for literal in _without(self._literals, shared) if literal[0]]
        return known

    def shared(self, text: str) -> int:
        """Return how much of it ends a text already. A literal is known with other white space before it."""
        bare, known = text.rstrip(), 0
        for core, size in self._cores:
            if bare.endswith(core):
                known = size
        return known + overlap(text[len(bare) :], self.text[known:])  # half a tag at the end is of the text


@lru_cache(maxsize=64)
def closing_of(layout: Layout, place: Place, after: Place | None) -> Closing:
    """Return what follows a segment, made once. `after`: where the turn's next item stands; None at its end."""
    return Closing(layout, place, after)


def _without(literals: Iterable[Literal], count: int) -> Iterator[Literal]:
    """Give literals without their first characters."""
    for text, trainable, before in literals:
        yield text[count:], trainable, before
        count = max(count - len(text), 0)
