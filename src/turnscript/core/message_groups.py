"""Owns grouping: which neighbouring items make one message of an API (requirements 3.5), and where they do not.

Each API has a rule: pairs of kinds where the second joins the message of the first. `group` applies it when messages
are written; `mark_turns` sets the `turn` of an item wherever a body that is read departs from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnscript.core.conversation import (
    Assistant,
    Item,
    Request,
    Text,
    Thinking,
    Turn,
    text_content,
)
from turnscript.core.losses import Loss

JOINS = frozenset(
    {
        ("thinking", "assistant"),
        ("thinking", "tool_call"),
        ("assistant", "tool_call"),
        ("tool_call", "tool_call"),
    }
)
"""(kind before, kind) pairs where the second belongs to the message of the first. APIs add their own."""

SIDES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "thinking": "assistant",
    "tool_call": "assistant",
    "tool_result": "tool",
    "tools_change": "system",
}
"""Whose message an item goes to. Items of different sides never share a message."""

_ALONE = frozenset({"", "system"})
"""Sides whose items share no message, whatever `turn` says: items that were moved may have got other neighbours."""


def side_of(item: Item, sides: Mapping[str, str] = SIDES) -> str:
    """The side of an item; an opaque item knows its own."""
    return sides.get(item.kind) or str(getattr(item, "role", ""))


def group(
    items: Iterable[Item],
    joins: frozenset[tuple[str, str]] = JOINS,
    sides: Mapping[str, str] = SIDES,
) -> list[list[Item]]:
    """The items of each message, in order: the API's rule, overridden by `turn` between items of one side."""
    groups: list[list[Item]] = []
    members: list[Item] = []
    before: Item | None = None
    kind_before = ""
    for item in items:
        kind = item.kind
        turn = item.turn
        if turn:
            side = side_of(item, sides)
            joined = turn == "join" and before is not None and side_of(before, sides) == side and side not in _ALONE
        else:
            joined = (kind_before, kind) in joins
        if joined:
            members.append(item)
        else:
            members = [item]
            groups.append(members)
        before, kind_before = item, kind
    return groups


def mark_turns(items: list[Item], message: Sequence[Item], joins: frozenset[tuple[str, str]] = JOINS) -> None:
    """Append the items read from one message to `items`, with a `turn` wherever `group` would do otherwise.

    The items of one message must be of one side.
    """
    kind_before = items[-1].kind if items else ""
    turn: Turn = "new"
    for item in message:
        kind = item.kind
        would_join = (kind_before, kind) in joins
        if would_join == (turn == "new"):
            item.turn = turn
        kind_before, turn = kind, "join"
    items += message


def attribute_losses(items: Iterable[Item]) -> list[Loss]:
    """Return a loss for each attribute of a transcript's tags that no format names: a body has no tags."""
    detail = "a body has no place for the attributes of a tag"
    return [Loss(f"{item.at}.{key}", "dropped", detail) for item in items for key in item.attributes or ()]


def only_opened(request: Request) -> Item | None:
    """Return the last item of a transcript if it is only the end of a prompt: an answer or thought that has no text yet
    says no more than that the model is to go on, as every request of an API does."""
    last = request.items[-1] if request.items and request.origin is None else None
    if not isinstance(last, Assistant | Thinking) or not last.open or last.extra or text_content(last.content):
        return None
    said: tuple[object, ...] = (last.id, last.envelope)
    if isinstance(last, Assistant):
        said += (last.name, last.phase)
    else:
        said += (last.summary, last.signature, last.redacted, last.encrypted, last.seal)
    plain_texts = all(type(part) is Text and not part.extra for part in last.content)
    return last if plain_texts and not any(said) else None
