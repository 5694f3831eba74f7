"""Owns efforts that change in the middle of a conversation: the last one holds, whatever the request itself says.

A client leaves the effort of its requests as it was and says the new one where it begins, so that what its server has
read stays as it was, too.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from msgspec.structs import replace

from turnscript.conversation import Conversation, Item, Request
from turnscript.serving import EffortChange


def settled(request: Request, change: Callable[[Item], EffortChange | None]) -> Request:
    """The request with the effort that holds at its end, and items without what they say of it. The one that is given
    is not changed."""
    changes = [change(item) for item in request.items]
    last = next((at for at in reversed(range(len(changes))) if changes[at] is not None), None)
    if last is None:
        return request
    found = changes[last]
    assert found is not None
    left = [item if said is None else said.rest for item, said in zip(request.items, changes, strict=True)]
    whole = copy(request)
    whole.settings = replace(request.settings, effort=found.effort)
    whole.paths = {**request.paths, "effort": request.items[last].at}
    whole.conversation = Conversation(items=[item for item in left if item is not None], tools=request.tools)
    return whole


__all__ = ["settled"]
