"""Owns what is trained: which turns, and which parts of them, as people spell it: `assistant,no-thinking,last`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnscript.core.conversation import Item
from turnscript.core.errors import InvalidInput

WORDS = {
    "assistant": "everything that the model writes: answers, calls and thoughts (the default)",
    "answers": "the model's texts",
    "calls": "the model's tool calls",
    "thinking": "the model's thoughts",
    "user": "what users say",
    "system": "instructions",
    "results": "what tools answer",
    "all": "every token, the format's own included",
    "last": "of the model, only its last turn",
    "flags": "rows say themselves what counts, where they do (the default)",
    "end": "also the token behind each document",
}
"""The words, each with what it means. With `no-` before it, a word takes away what it stands for."""
_KINDS = {"answers": "assistant", "calls": "tool_call", "thinking": "thinking"}
_OTHERS = {"user": "user", "system": "system", "results": "tool_result"}
MODEL = frozenset(_KINDS.values())
"""Kinds of items that a model writes."""
_SWITCHES = ("all", "last", "flags", "end")


class Train(Struct, frozen=True):
    """What is trained.

    `kinds`: kinds of items. Of the model's, what it would write itself, the end of its turn included; of others, the
    text and what closes it. `everything`: every token. `last`: of the model, only its last turn: what it wrote since
    anybody else spoke. `flags`: what a row says of its items counts more than all this. `end`: the end of a document is
    trained even where the model's last turn has ended before it.
    """

    kinds: tuple[str, ...] = tuple(sorted(MODEL))
    everything: bool = False
    last: bool = False
    flags: bool = True
    end: bool = False

    @property
    def spelling(self) -> str:
        """Return the shortest text that `parse_train` reads as this."""
        names = {kind: name for name, kind in (_KINDS | _OTHERS).items()}
        kinds = set(self.kinds)
        words = ["all"] if self.everything else ["assistant"] if kinds >= MODEL else []
        words += [] if self.everything else sorted(names[kind] for kind in (kinds - MODEL if words else kinds))
        return ",".join([*words, *["last"] * self.last, *["end"] * self.end, *["no-flags"] * (not self.flags)])

    def is_plain(self) -> bool:
        """Return whether all that the model writes counts, and nothing else."""
        return not self.everything and not self.last and set(self.kinds) == MODEL

    def counts(self, items: Sequence[Item]) -> list[bool]:
        """Return for each item whether it counts."""
        kinds = frozenset(self.kinds)
        first = last_turn(items) if self.last else 0
        return [item.kind in kinds and (at >= first or item.kind not in MODEL) for at, item in enumerate(items)]


def last_turn(items: Sequence[Item]) -> int:
    """Return where the model's last turn begins; behind the last item if it has none."""
    at = next((at for at in reversed(range(len(items))) if items[at].kind in MODEL), None)
    if at is None:
        return len(items)
    while at and items[at - 1].kind in MODEL:
        at -= 1
    return at


def parse_train(text: str) -> Train:
    """Return what a list of words means. Raises InvalidInput with the word that is none.

    >>> parse_train("assistant,no-thinking,last").kinds
    ('assistant', 'tool_call')
    """
    wanted: set[str] = set()
    switches = {"all": False, "last": False, "flags": True, "end": False}
    removed: set[str] = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, positive = word.removeprefix("no-"), not word.startswith("no-")
        if name not in WORDS:
            known = ", ".join(WORDS)
            message = f"{word!r} is nothing that can be trained; write some of: {known}, or `no-` and one of them"
            raise InvalidInput(message, expected=known, got=word)
        if name in _SWITCHES:
            switches[name] = positive
        else:
            kinds = MODEL if name == "assistant" else {(_KINDS | _OTHERS)[name]}
            (wanted if positive else removed).update(kinds)
    if switches["all"] and (wanted or removed or switches["last"]):
        message = f"{text!r}: `all` is every token, so no word can add to it or take from it; take one of them out"
        raise InvalidInput(message, got=text)
    found = MODEL if switches["all"] else (wanted or MODEL) - removed
    if not found:
        raise InvalidInput(f"{text!r} leaves nothing to train; take out a word that begins with `no-`", got=text)
    return Train(tuple(sorted(found)), switches["all"], switches["last"], switches["flags"], switches["end"])
