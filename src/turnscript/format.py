"""Owns the contract of a prompt format: a table, and what the engine derives from it.

A format has no code of its own. `render` writes a request as text, `parse` reads a transcript strictly, `prompt` cuts
the text where the model goes on, and the prompt's parser reads what the model writes. All read the same table, so they
agree by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from turnscript.clues import Clue
from turnscript.conversation import Request, Tool
from turnscript.engine.layout import document_literals, layout_of
from turnscript.engine.prompt import Parser, Prompt, bare_parser, begin_prompt
from turnscript.engine.read import claims_document, read_document
from turnscript.engine.render import write_document
from turnscript.engine.spans import Span, Writer
from turnscript.engine.table import Document
from turnscript.errors import LossyConversion, UnknownName
from turnscript.losses import Loss
from turnscript.rendered import Rendered

View = Literal["archive", "prompt"]
VIEWS = ("archive", "prompt")


class Format(Struct, frozen=True):
    """A prompt format: its name, a title for people, its table, and what tells that a model wants it."""

    name: str
    title: str
    document: Document
    clues: tuple[Clue, ...] = ()

    def render(self, request: Request, *, view: str = "archive", strict: bool = False) -> Rendered:
        """The whole conversation as text.

        `archive` keeps everything that the format can and reads back equal; `prompt` is what a model may see. Settings
        are no part of a prompt and are listed among its losses. `strict` raises LossyConversion if anything is lost.
        """
        out = self._write(request, view)
        losses = out.all_losses() if out.archive else [*out.all_losses(), *_unshown(request)]
        if strict and losses:
            raise LossyConversion(losses, f"{self.name} ({view} view)")
        return Rendered(out.text, losses)

    def spans(self, request: Request, *, view: str = "prompt") -> list[Span]:
        """The same as spans: which text is control, which is content, and what the model itself would write."""
        return self._write(request, view).spans

    def parse(self, transcript: str) -> Request:
        """A transcript as a request, strictly. Raises InvalidTranscript with line and column.

        The request's options are not typed yet: they stay in `extra` as their origin spelled them.
        """
        return read_document(self.document, transcript)

    def claims(self, text: str) -> bool:
        """Whether a text looks like a transcript of this format, by how it begins."""
        return claims_document(self.document, text)

    def prompt(self, request: Request, *, thinking: bool | None = None) -> Prompt:
        """The conversation cut where the model goes on.

        A last assistant text that is `open` is continued. Otherwise a turn is opened: a thought if `thinking` (default:
        if the request's settings ask for it), a call if the tool choice demands one, else an answer.
        """
        return begin_prompt(self.document, request, thinking)

    def parser(self, tools: Sequence[Tool] | None = None, *, prefill: str = "", stops: Sequence[str] = ()) -> Parser:
        """A parser for a model's text without its prompt. `tools`: what was offered; None takes any call for one."""
        return bare_parser(self.document, tools, prefill, stops)

    @property
    def stops(self) -> list[str]:
        """The strings that end the model's turn where no tools are offered."""
        return list(self.document.generation.stops)

    @property
    def special_tokens(self) -> list[str]:
        """The control literals, without white space around them: what a tokenizer may have a token of its own for."""
        return special_tokens(document_literals(self.document))

    def protects(self, literal: str) -> bool:
        """Whether content never holds this literal as it stands, wherever it is."""
        return layout_of(self.document).escape.holds(literal)

    def _write(self, request: Request, view: str) -> Writer:
        if view not in VIEWS:
            raise UnknownName("view", view, VIEWS)
        return write_document(self.document, request, archive=view == "archive")


def special_tokens(literals: Iterable[str]) -> list[str]:
    """Tags in the order of the table, each once."""
    return list(dict.fromkeys(literal.strip() for literal in literals if literal.strip()))


def _unshown(request: Request) -> list[Loss]:
    settings = request.settings
    said = [field for field in settings.__struct_fields__ if getattr(settings, field) is not None]
    paths = [request.paths.get(field, f"$.{field}") for field in said] + [f"$.{key}" for key in request.extra]
    return [Loss(path, "dropped", "a prompt carries the conversation, not the settings") for path in paths]
