"""Owns what a model sees of a conversation beside its text: pictures and sounds, for a server that takes them.

In the prompt each has a mark in its place, between the texts where it stood, and the server gets what the marks stand
for in the order of the text. While the prompt is written a mark is a word that nobody else can write, so a text that
looks like the server's own mark is told from one: there it is broken by a character that nobody sees.
"""

from __future__ import annotations

import re
from copy import copy
from hashlib import blake2b
from typing import Any

from turnscript.backend import Facts
from turnscript.conversation import Audio, Conversation, Image, Part, Request, Text

_BREAK = "\u200b"
"""A space without width."""


class Seeing:
    """What one prompt shows to a server that says these facts of itself. `key`: what makes marks nobody else's.

    `media`: the base64 of what stands at the marks, once the `text` is made.
    """

    def __init__(self, facts: Facts, key: bytes) -> None:
        self._marker = facts.marker
        self._kinds = tuple(kind for kind, sees in ((Image, facts.sees), (Audio, facts.hears)) if sees)
        self._key = key
        self._data: dict[str, str] = {}
        self.media: tuple[str, ...] = ()

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
        return isinstance(part, self._kinds) and bool(getattr(part, "data", None))

    def _mark(self, part: Any) -> Text:
        """The same data has the same mark in each turn, so that prompts only grow."""
        mark = f"media-{blake2b(part.data.encode(), key=self._key[:64], digest_size=16).hexdigest()}"
        self._data[mark] = part.data
        return Text(text=mark)

    def text(self, prompt: str) -> str:
        """Return the text of a prompt with the server's marks, and keep in `media` what they stand for, in order."""
        if not self._data:
            return prompt
        marks = re.compile("|".join(self._data))
        self.media = tuple(self._data[mark] for mark in marks.findall(prompt))
        broken = f"{self._marker[:1]}{_BREAK}{self._marker[1:]}"
        return marks.sub(lambda _: self._marker, prompt.replace(self._marker, broken))


def _content(item: Any) -> list[Part]:
    content: list[Part] = getattr(item, "content", None) or []
    return content
