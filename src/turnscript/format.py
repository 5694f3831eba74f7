"""Owns the contract of a prompt format: a table, and what the engine derives from it.

A format has no code of its own. `render` writes a request as text, `parse` reads a transcript strictly, `prompt` cuts
the text where the model goes on. All three read the same table, so they agree by construction.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turnscript.conversation import Assistant, Request
from turnscript.engine.read import opens_block, read_document
from turnscript.engine.render import write_document
from turnscript.engine.spans import Span, Writer, text_of_spans
from turnscript.engine.table import Document
from turnscript.errors import LossyConversion, UnknownName
from turnscript.losses import Loss
from turnscript.rendered import Rendered

View = Literal["archive", "prompt"]
VIEWS = ("archive", "prompt")


class Prompt(Struct):
    """Text for a model to continue.

    `stops`: strings that end the model's turn. `prefill`: how much of the turn's own content is written already, so
    that a parser begins there. `losses`: what the format could not show.
    """

    spans: list[Span]
    stops: list[str]
    prefill: str
    losses: list[Loss]

    @property
    def text(self) -> str:
        """The prompt as one string."""
        return text_of_spans(self.spans)


class Format(Struct, frozen=True):
    """A prompt format: its name, a title for people, and its table."""

    name: str
    title: str
    document: Document

    def render(self, request: Request, *, view: str = "archive", strict: bool = False) -> Rendered:
        """The whole conversation as text.

        `archive` keeps everything and reads back equal; `prompt` is what a model may see. Settings are no part of a
        prompt and are listed among its losses. `strict` raises LossyConversion if anything is lost.
        """
        out = self._write(request, view)
        losses = out.losses if view == "archive" else [*out.losses, *_unshown(request)]
        if strict and losses:
            raise LossyConversion(losses, f"{self.name} ({view} view)")
        return Rendered(text_of_spans(out.spans), losses)

    def spans(self, request: Request, *, view: str = "prompt") -> list[Span]:
        """The same as spans: which text is control, which is content, and what the model itself would write."""
        return self._write(request, view).spans

    def parse(self, transcript: str) -> Request:
        """A transcript as a request, strictly. Raises InvalidTranscript with line and column.

        The request's options are not typed yet: they stay in `extra` as their origin spelled them.
        """
        return read_document(self.document, transcript)

    def claims(self, text: str) -> bool:
        """Whether a text looks like a transcript of this format: its first line that is not blank opens a block."""
        return opens_block(self.document, text)

    def prompt(self, request: Request, *, thinking: bool | None = None) -> Prompt:
        """The conversation cut where the model goes on.

        A last assistant text that is `open` is continued. Otherwise a turn is opened: a thought if `thinking` (default:
        if the request's settings ask for it), else an answer.
        """
        out = self._write(request, "prompt")
        generation = self.document.generation
        stops = list(generation.stops_with_tools if request.tools else generation.stops)
        last = request.items[-1] if request.items else None
        if isinstance(last, Assistant) and last.open:
            return Prompt(out.spans, stops, _opened_text(out), out.losses)
        kind = generation.thinking_kind if _thinks(request, thinking) else generation.kind
        if out.spans:
            out.control(self.document.separator)
        out.control(f"{self.document.turn(kind).open}{self.document.tag_end}\n")
        return Prompt(out.spans, stops, "", out.losses)

    def _write(self, request: Request, view: str) -> Writer:
        if view not in VIEWS:
            raise UnknownName("view", view, VIEWS)
        return write_document(self.document, request, archive=view == "archive")


def _opened_text(out: Writer) -> str:
    last = out.spans[-1].item
    texts = [span.text for span in out.spans if span.item == last and span.trainable]
    return "".join(texts)


def _thinks(request: Request, asked: bool | None) -> bool:
    if asked is not None:
        return asked
    mode, effort = request.settings.thinking, request.settings.effort
    if mode is not None:
        return mode.mode != "disabled"
    return effort is not None and effort != "none"


def _unshown(request: Request) -> list[Loss]:
    settings = request.settings
    said = [field for field in settings.__struct_fields__ if getattr(settings, field) is not None]
    paths = [request.paths.get(field, f"$.{field}") for field in said] + [f"$.{key}" for key in request.extra]
    return [Loss(path, "dropped", "a prompt carries the conversation, not the settings") for path in paths]
