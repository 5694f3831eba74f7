"""Owns the marks by which rows say what is trained: `weight`, `train`, `loss` and the like, of turns and parts.

A mark is a number from 0 to 1 or a boolean; `masked` says the opposite. Several on one turn must agree. None of them
belongs to the conversation. A mark of another name, such as `loss_mask`, is refused: it could mean either, and passed
over it would train what it leaves out. Beside turns, the known marks are those of the whole row, and other names are
notes: rows have measures such as `eval_loss`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from turnscript.core.conversation import Item
from turnscript.core.json_text import Json, excerpt
from turnscript.datasets.members import Members, first_byte, is_null
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.train import MODEL

MARKS = ("weight", "train", "trainable", "training", "loss", "loss_weight", "loss_scale")
_MASKED = "masked"
_TOKENS = "input_ids"
_FINER = ("train_detail", "training_detail")
"""Marks of single characters, which are refused: a weight is that of a whole item."""

_WEIGHING = (*MARKS, _MASKED)
KNOWN_MARKS = frozenset((*_WEIGHING, *_FINER))

_USUAL = frozenset({"role", "content", "from", "value", "type", "text", "name", "tool_calls", "tool_call_id"})
"""Members that most turns and parts have, and nothing else: there no other mark is looked for."""
_LIKE_A_MARK = re.compile(r"(?:\A|_)(?:loss|mask|masked)(?:_|\Z)")
_SETTINGS = (b"t", b"f", b"[", *[b"%d" % digit for digit in range(10)])
"""How values begin that can say what is trained: texts and objects are notes."""

_decode = msgspec.json.Decoder(bool | int | float).decode


def take_weight(members: Members, at: str) -> float | None:
    """Remove the marks of a turn or part, and give what they say."""
    found = None if KNOWN_MARKS.isdisjoint(members) else _take_known(members, at)
    if at != "$" and not members.keys() <= _USUAL:
        _check_others(members, at)
    return found


def take_weight_of_row(members: Members) -> float | None:
    """Return the weight of a row by the marks beside its turns. A list beside tokens is theirs, as builds write it."""
    if _TOKENS in members:
        for mark in [mark for mark in _WEIGHING if mark in members and first_byte(members[mark]) == b"["]:
            del members[mark]
    return take_weight(members, "$")


def _take_known(members: Members, at: str) -> float | None:
    found: float | None = None
    for mark in _FINER:
        if bytes(members.pop(mark, b"null")) not in (b"null", b"[]"):
            message = "it says what of a part of a text is trained, and a weight is that of all of it"
            raise BadRow(Code.WEIGHT, f"{message}; use `segments`, or leave it out", path=f"{at}.{mark}")
    for mark in [mark for mark in _WEIGHING if mark in members]:
        value = members.pop(mark)
        if is_null(value):
            continue
        weight = weight_of(value, f"{at}.{mark}")
        weight = 1 - weight if mark == _MASKED else weight
        if found is not None and found != weight:
            raise BadRow(Code.WEIGHT, f"{mark} says {weight:g}, another mark of the same turn says {found:g}", path=at)
        found = weight
    return found


def is_mark(key: str) -> bool:
    """Return whether a member of a turn is a mark, of a known name or not."""
    return key in MARKS or key in _FINER or _LIKE_A_MARK.search(key) is not None


def _check_others(members: Members, at: str) -> None:
    for key, value in members.items():
        if _LIKE_A_MARK.search(key) and first_byte(value) in _SETTINGS:
            known = ", ".join(_WEIGHING)
            message = f"it looks like a mark of what is trained, and is none that is known ({known})"
            raise BadRow(Code.WEIGHT, message, path=f"{at}.{key}")


def weight_of(value: Json, at: str) -> float:
    """Return a mark as a weight."""
    try:
        weight = float(_decode(value))
    except (msgspec.DecodeError, OverflowError):
        weight = -1.0
    if not 0 <= weight <= 1:
        raise BadRow(Code.WEIGHT, f"expected a number from 0 to 1, true or false, got {excerpt(value)}", path=at)
    return weight


def common_weight(weights: Iterable[float | None], at: str) -> float | None:
    """Return the one weight of all parts of a turn. They must not differ: a weight is that of a whole item."""
    found = list(weights)
    if len(set(found)) > 1:
        message = "the parts of this message are weighted differently; a weight is that of the whole message"
        raise BadRow(Code.WEIGHT, message, path=at)
    return found[0] if found else None


def with_row(
    weights: Mapping[int, float], answered: Iterable[int], weight: float | None, at: str = "$"
) -> dict[int, float]:
    """Return weights with that of a row: of all that is answered in it. Its turns may only say the same."""
    found = dict(weights)
    if weight is not None:
        for index in answered:
            if found.setdefault(index, weight) != weight:
                message = f"the row says {weight:g}, a message of it says {found[index]:g}"
                raise BadRow(Code.WEIGHT, f"{message}; let both say the same", path=at)
    return found


def over_turns(weights: Mapping[int, float], items: Sequence[Item], weight: float | None) -> dict[int, float]:
    """Return weights with that of a row of turns: of all that the model says in it; 0 is that of all turns."""
    said = [index for index, item in enumerate(items) if weight == 0 or item.kind in MODEL]
    return with_row(weights, said, weight)


def weights_by_item(items: Sequence[Item], by_turn: dict[str, float]) -> dict[int, float]:
    """Return weights by the position of items, from those of turns by their JSON path (`$.messages[2]`)."""
    found = {}
    for index, item in enumerate(items):
        turn = item.at[: item.at.find("]") + 1] or item.at
        if turn in by_turn:
            found[index] = by_turn[turn]
    return found
