"""Owns what a model sees of a conversation beside its text: pictures and sounds, for a server that takes them.

In the prompt a word stands in the place of each, between the texts where it stood. Nobody else can write that word, so
no text is taken for a picture. What the server wants there is put in when the prompt is sent to it, because each server
may want something else.
"""

from __future__ import annotations

from copy import copy
from hashlib import blake2b
from typing import Any

from turnscript.backends.backend import Facts
from turnscript.core.conversation import Audio, Conversation, Image, Part, Request, Text


class Seeing:
    """What one prompt shows to a server that says these facts of itself. `key`: what makes marks nobody else's."""

    def __init__(self, facts: Facts, key: bytes) -> None:
        self._kinds = tuple(kind for kind, sees in ((Image, facts.sees), (Audio, facts.hears)) if sees)
        self._key = key
        self._data: dict[str, str] = {}

    def marked(self, request: Request) -> Request:
        """Return the request with a mark in place of each picture and sound that the server takes; others stay."""
        if not self._kinds or not any(self._takes(part) for item in request.items for part in _content(item)):
            return request
        asked = copy(request)
        items = [self._marked(item) for item in request.items]
        asked.conversation = Conversation(items=items, tools=request.tools)
        return asked

    def _marked(self, item: Any) -> Any:
        content = _content(item)
        if not any(map(self._takes, content)):
            return item
        shown = copy(item)
        shown.content = [self._mark(part) if self._takes(part) else part for part in content]
        return shown

    def _takes(self, part: Part) -> bool:
        data: str = getattr(part, "data", None) or ""
        return isinstance(part, self._kinds) and data != "" and not _is_webp(data)

    def _mark(self, part: Any) -> Text:
        """The same data has the same mark in each turn, so that prompts only grow."""
        mark = f"media-{blake2b(part.data.encode(), key=self._key[:64], digest_size=16).hexdigest()}"
        self._data[mark] = part.data
        return Text(text=mark)

    def media(self, prompt: str) -> dict[str, str]:
        """Return the base64 of what a prompt shows, by its mark there."""
        return {mark: data for mark, data in self._data.items() if mark in prompt}


def _is_webp(data: str) -> bool:
    """Return whether base64 is a picture that llama.cpp cannot read: it would refuse every turn with it."""
    return data.startswith("UklGR") and data[12:16] == "RUJQ"  # `RIFF`, then `EBP` of `WEBP`


def _content(item: Any) -> list[Part]:
    content: list[Part] = getattr(item, "content", None) or []
    return content
