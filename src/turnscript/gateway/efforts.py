"""Owns efforts that change in the middle of a conversation: the last one holds, whatever the request itself says.

A client leaves the effort of its requests as it was and says the new one where it begins, so that what its server has
read stays as it was, too.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from msgspec.structs import replace

from turnscript.apis.serving import EffortChange
from turnscript.core.conversation import Conversation, Item, Request


def settled(request: Request, change: Callable[[Item], EffortChange | None]) -> Request:
    """The request with the effort that holds at its end, and items without what they say of it. The one that is given
    is not changed."""
    changes = {at: said for at, item in enumerate(request.items) if (said := change(item)) is not None}
    if not changes:
        return request
    last = max(changes)
    left = [changes[at].rest if at in changes else item for at, item in enumerate(request.items)]
    whole = copy(request)
    whole.settings = replace(request.settings, effort=changes[last].effort)
    whole.paths = {**request.paths, "effort": request.items[last].at}
    whole.conversation = Conversation(items=[item for item in left if item is not None], tools=request.tools)
    return whole


__all__ = ["settled"]
