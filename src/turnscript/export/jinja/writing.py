"""Owns what the writers of payloads share: a place in a template, where control and content are written."""

from __future__ import annotations

from msgspec import Struct

from turnscript.core.losses import Loss, LossKind
from turnscript.engine.escape import Escape
from turnscript.engine.layout import Layout
from turnscript.export.jinja.code import Code
from turnscript.export.jinja.macros import Library


class Payloads(Struct):
    """Where payloads are written: the template, its macros, what differs so far, and whose text it is."""

    layout: Layout
    code: Code
    library: Library
    losses: list[Loss]
    escape: Escape
    of_model: bool = False

    def control(self, literal: str) -> None:
        """A literal of the format."""
        self.code.write(literal, self.of_model)

    def content(self, expression: str, *, flat: bool = False) -> None:
        """Somebody's text. `flat`: it has no empty lines."""
        expression = expression if flat else self.flat(expression)
        self.code.say(self.library.protected(expression, self.escape), self.of_model)

    def flat(self, expression: str) -> str:
        """A text as it is written where texts have no empty lines."""
        document = self.layout.document
        if not document.flattened:
            return expression
        return self.library.call("flat" if document.blank == "empty" else "flat_lines", expression)

    def lose(self, path: str, detail: str, kind: LossKind = "approximated") -> None:
        """Say what differs, once."""
        loss = Loss(path, kind, detail)
        if loss not in self.losses:
            self.losses.append(loss)
