"""Owns payloads that are text: an item's text as it is, behind a label, every line indented, or as one JSON string."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from turnscript.core.conversation import Assistant, Part, Refusal, Text, Thinking, readable, shown, unseen
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import Json, is_json, safe_json_string, string_of
from turnscript.engine.machine import PlainBody
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload

_INDENT = "    "
_LEAST_INDENT = re.compile(r"^[ ]*(?=[^ \n])", re.MULTILINE)


class PlainText(PlainBody):
    """The text of an item, exactly. Several texts are joined by newlines, other parts have no place: losses, both."""

    plain = True

    def shows(self, item: Any, out: Writer) -> bool:
        """Return whether it is written: no thought without any text is, nor an answer of parts without a place here."""
        content = item.content
        if len(content) == 1 and type(content[0]) is Text:
            return True
        if isinstance(item, Thinking) and not content:
            for field in ("summary", "signature", "redacted", "encrypted"):
                if getattr(item, field):
                    out.lose(f".{field}", "dropped", "this format shows the text of thoughts only")
            out.lose("", "dropped", "a thought without text")
            return False
        if isinstance(item, Assistant) and content and all(shown(part) is None for part in content):
            self._texts(item, out)
            out.lose("", "dropped", "no part of it is text")
            return False
        return True

    def is_empty(self, item: Any, flattened: bool = False) -> bool:
        """Return whether nothing would be written."""
        texts = [text for part in item.content if (text := shown(part)) is not None]
        if flattened:
            return not any(text.strip() for text in texts)
        return len(texts) < 2 and not any(texts)  # two empty ones are a line end

    def write(self, item: Any, out: Writer) -> None:
        """Write the text."""
        content = item.content
        if len(content) == 1 and type(content[0]) is Text and not content[0].extra:
            out.content(content[0].text)
        else:
            out.content(self.text(item, out))

    def text(self, item: Any, out: Writer) -> str:
        """Return the texts joined, and book what is lost by that."""
        texts = self._texts(item, out)
        if not texts:
            out.lose(".content", "approximated", "no text at all is written like an empty one")
        elif len(texts) > 1:
            out.lose(".content", "approximated", f"{len(texts)} texts are joined by newlines")
        return "\n".join(texts)

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return one text."""
        return {"content": [Text(text=payload.escape.remove(payload.text))]}

    def _texts(self, item: Any, out: Writer) -> list[str]:
        texts: list[str] = []
        for index, part in enumerate(item.content):
            text = shown(part)
            if text is not None:
                texts.append(text)
            _report_part(part, text is not None, index, out)
        return texts


def _report_part(part: Part, read: bool, index: int, out: Writer) -> None:
    path = f".content[{index}]"
    kind = type(part).__name__.lower()
    if isinstance(part, Refusal):
        out.lose(path, "approximated", "a refusal is written as text")
    elif read and readable(part) is None:
        out.lose(path, "dropped", unseen(part))
    elif read and not isinstance(part, Text):
        out.lose(path, "approximated", f"of a {kind} part only the text is written")
    elif not read:
        out.lose(path, "dropped", f"this format has no place for {kind} parts")
    out.lose_unnamed(path, part.extra, "this format has no place for members without a name")


class IndentedText(PlainText):
    """The text of an item, four spaces before every line (requirements D-A-4)."""

    plain = False

    def write(self, item: Any, out: Writer) -> None:
        """Write the text, indented."""
        content = item.content
        plain = len(content) == 1 and type(content[0]) is Text and not content[0].extra
        text = content[0].text if plain else self.text(item, out)
        out.content(_INDENT + text.replace("\n", "\n" + _INDENT))

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return one text; four spaces are taken off every line, or what all lines have if that is less."""
        lines = payload.text.split("\n")
        if all(line.startswith(_INDENT) for line in lines):
            width = len(_INDENT)
        else:
            width = min((len(found) for found in _LEAST_INDENT.findall(payload.text)), default=0)
        text = "\n".join([line[width:] if line[:width].isspace() or not width else line.lstrip(" ") for line in lines])
        return {"content": [Text(text=payload.escape.remove(text))]}


class JsonText(PlainText):
    """The text of an item as one JSON string. A payload that is none is read as it stands."""

    plain = False

    def is_empty(self, item: Any, flattened: bool = False) -> bool:
        """Return that it never is: of the empty text there are two quotes."""
        return False

    def write(self, item: Any, out: Writer) -> None:
        """Write the text between quotes."""
        out.content(safe_json_string(self.text(item, out)))

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return one text."""
        return {"content": [Text(text=_unquoted(payload, payload.escape.remove(payload.text)))]}


class LabelledText(PlainText):
    """The text of a result behind its id, or behind the name of its tool, and a mark: `a1b2c3d4e[TOOL_CONTENT]rain`.

    `json`: the text is one JSON string, and any other JSON there is read as it stands. `last`: the text comes first,
    and the label behind the mark.
    """

    plain = False

    def __init__(self, mark: str, label: str = "id", json: bool = False, last: bool = False) -> None:
        self.mark, self.label, self.json, self.last = mark, label, json, last
        self.literals = (mark,)
        self.carries = (label,)

    def is_empty(self, item: Any, flattened: bool = False) -> bool:
        """Return that it never is: the mark is always written."""
        return False

    def write(self, item: Any, out: Writer) -> None:
        """Write label, mark and text."""
        label = getattr(item, self.label)
        if self.label == "id":
            label = out.ids.get(out.item, label)
        elif label is None:
            label = out.names.get(out.item)
        if label is not None and not self.holds(label):
            detail = f"an empty one, or one that holds {self.mark!r} or ends with a line end, reads as another"
            out.lose(f".{self.label}", "dropped", detail)
            label = None
        if self.last:
            self._write_text(item, out)
            out.control(self.mark)
            out.content(label or "")
        else:
            out.content(label or "")
            out.control(self.mark)
            self._write_text(item, out)

    def _write_text(self, item: Any, out: Writer) -> None:
        if self.json:
            out.content(safe_json_string(self.text(item, out)))
        else:
            super().write(item, out)

    def holds(self, label: str) -> bool:
        """Return whether a label reads back as it is."""
        return bool(label) and self.mark not in label and not label.endswith("\r")

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return label and text."""
        said = payload.escape.remove(payload.text)
        first, mark, second = said.rpartition(self.mark) if self.last else said.partition(self.mark)
        label, text = (second, first) if self.last else (first, second)
        if not mark:
            message = f"a result must begin with its {self.label} and {self.mark}"
            raise InvalidTranscript(message, line=payload.line, column=1, expected=self.mark)
        return {self.label: label or None, "content": [Text(text=_unquoted(payload, text) if self.json else text)]}


def _unquoted(payload: Payload, text: str) -> str:
    """Return the text that a JSON string stands for; what is none stands for itself, but is written as one."""
    if is_json(text):
        with suppress(InvalidRequest):  # other JSON
            return string_of(Json(text.encode()))
    payload.lose(".content", "approximated", "what is no JSON string is read as its text")
    return text
