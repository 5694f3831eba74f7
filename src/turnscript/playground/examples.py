"""Owns the built-in examples: small bodies that come with the package, each with what it shows."""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct

_TITLES = {
    "chat_request.json": "A request with two calls at once",
    "messages_request.json": "A request with thoughts and a failed tool",
    "responses_request.json": "A request with reasoning items",
    "chat_answer.json": "An answer that calls a tool",
    "messages_stream.sse": "A recorded stream",
    "transcript.txt": "A transcript",
    "hostile_request.json": "A text that tries to forge turns",
    "broken_request.json": "A request with a mistake",
}


class Example(Struct):
    """A body to look at. `name` is how links call it."""

    name: str
    title: str
    text: str


def examples() -> list[Example]:
    """All of them, the one to begin with first."""
    folder = files(__package__) / "bodies"
    return [
        Example(name.partition(".")[0], title, (folder / name).read_text(encoding="utf-8"))
        for name, title in _TITLES.items()
    ]
