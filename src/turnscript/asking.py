"""Owns what a model is given to go on from: the prompt of a request, or its text with a hole, and all that is lost."""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.conversation import Request
from turnscript.engine.files import FillPrompt
from turnscript.engine.fill import Fill, fill_of
from turnscript.engine.prompt import Prompt
from turnscript.errors import Unsupported
from turnscript.format import Format
from turnscript.jsontext import Json
from turnscript.losses import Loss
from turnscript.reference import has_thoughts
from turnscript.registry import apis, get_api

Written = Prompt | FillPrompt
"""What a model goes on from: a conversation, or a text with a hole."""


def written(
    request: Request, format_: Format, thinking: bool | None = None, *, normalize_json: bool = False
) -> Written:
    """What a model is given to go on from. What stands behind a text makes a hole of it (D-U-22).

    Raises Unsupported where it shall think while it fills that.
    """
    hole = _hole(request)
    if hole is not None and (hole.suffix or format_.document.files):
        if thinking:
            raise Unsupported("thinking", "a text with a hole", "a model fills a hole without thoughts")
        return format_.fill_prompt(request)
    knows = has_thoughts(format_) or format_.template is not None  # which says itself what it cannot be told
    thinks = thinking if knows else False
    return format_.prompt(request, thinking=thinks, normalize_json=normalize_json)


def left_out(made: Written, request: Request, format_: Format) -> list[Loss]:
    """Return all that what was written does not say of the source of its request: what was not read of that, its own
    losses, and the members that nobody knows."""
    told = {loss.path for loss in made.losses}
    handled = {"suffix"} if _hole(request) is not None else set()
    said = {key: value for key, value in request.extra.items() if key not in handled and f"$.{key}" not in told}
    return [*request.unread, *made.losses, *_unnamed(request, format_, said)]


def _hole(request: Request) -> Fill | None:
    """The hole in a bare text. In a request with messages, a member of that name is a stranger."""
    bare = request.origin in apis() and get_api(request.origin).serving.bare
    return fill_of(request) if bare else None


def _unnamed(request: Request, format_: Format, said: Mapping[str, Json]) -> list[Loss]:
    """Members that are no settings, so that nobody knows what is in them: the conversation so far may be.

    Settings are no losses, because no prompt shows them, and a member without a value says nothing.
    """
    paths = {f"$.{key}" for key, value in said.items() if bytes(value) != b"null"}
    return [loss for loss in format_.render(request, view="prompt").losses if loss.path in paths] if paths else []
