"""Owns what a model is given to go on from: the prompt of a request, or its text with a hole, and all that is lost."""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.convert.file_documents import hole_of
from turnscript.convert.format_reference import has_thoughts
from turnscript.core.conversation import Request
from turnscript.core.errors import Unsupported
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.engine.files import FileSequence, FillPrompt
from turnscript.engine.prompt import Prompt
from turnscript.formats.format import Format

Written = Prompt | FillPrompt
"""What a model goes on from: a conversation, or a text with a hole."""


def written(
    request: Request | FileSequence,
    format_: Format,
    thinking: bool | None = None,
    *,
    normalize_json: bool = False,
    order: str = "",
) -> Written:
    """What a model is given to go on from. What stands behind a text makes a hole of it (D-U-22), and files have one.

    `order`: how a hole is written, where that is not the format's own choice. Raises Unsupported where a model shall
    think while it fills a hole, and for an order where there is none.
    """
    hole = hole_of(request) if isinstance(request, Request) else None
    if isinstance(request, FileSequence) or (hole is not None and (hole.suffix or format_.document.files)):
        if thinking:
            raise Unsupported("thinking", "a text with a hole", "a model fills a hole without thoughts")
        return format_.fill_prompt(request, order=order)
    if order:
        message = f"the order {order!r} is for a text with a hole, and this is a conversation"
        raise Unsupported(f"the fill order {order!r}", "a conversation", message)
    knows = has_thoughts(format_) or format_.template is not None  # which says itself what it cannot be told
    thinks = thinking if knows else False
    return format_.prompt(request, thinking=thinks, normalize_json=normalize_json)


def left_out(made: Written, request: Request, format_: Format) -> list[Loss]:
    """Return all that what was written does not say of the source of its request: what was not read of that, its own
    losses, and the members that nobody knows."""
    told = {loss.path for loss in made.losses}
    handled = {"suffix"} if hole_of(request) is not None else set()
    said = {key: value for key, value in request.extra.items() if key not in handled and f"$.{key}" not in told}
    return [*request.unread, *made.losses, *_unnamed(request, format_, said)]


def _unnamed(request: Request, format_: Format, said: Mapping[str, Json]) -> list[Loss]:
    """Members that are no settings, so that nobody knows what is in them: the conversation so far may be.

    Settings are no losses, because no prompt shows them, and a member without a value says nothing.
    """
    paths = {f"$.{key}" for key, value in said.items() if bytes(value) != b"null"}
    return [loss for loss in format_.render(request, view="prompt").losses if loss.path in paths] if paths else []
