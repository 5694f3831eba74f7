"""Owns the part lines inside a payload: `<<PART type="image" url="...">>`, each followed by its own text.

A payload that is one plain text has no part line. Otherwise a first text without attributes stands bare, and every
other part begins with a line of its own. No text after the line means that the part has no text, which differs from an
empty one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw as RawJson
from msgspec import Struct

from turnscript.core.conversation import Audio, Document, Image, Part, Raw, Refusal, Text, unseen
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import is_json, plain, text_of, type_word
from turnscript.engine.attributes import attribute_text, read_attributes, scan_attributes, write_attributes
from turnscript.engine.spans import Writer
from turnscript.engine.table import Attribute, Payload

PART_TAG = "<<PART"
"""How a part line begins."""
NEXT_TEXT = f"\n{PART_TAG}>>\n"
"""The part line of a text, on a line of its own. It is the only one that means anything where a model writes it."""
SUMMARY = "summary"
"""The type of texts in the summary of a thought. Another part that stands there says so in an attribute."""
_IN_SUMMARY = f' in="{SUMMARY}"'
_EXTRA = Attribute("x", "extra", "object")
_LINE = re.compile(rf"^{PART_TAG}(?=[ \t>])(.*?)>>[ \t]*$", re.MULTILINE)


class PartLine(Struct, frozen=True):
    """How one class of part is written: its `type` word, its attributes, and the field that holds its text."""

    word: str
    part: type[Part]
    text: str
    attributes: tuple[Attribute, ...] = ()


PART_LINES = (
    PartLine("", Text, "text", (_EXTRA,)),
    PartLine(
        "image",
        Image,
        "data",
        (
            Attribute("url", "url", prompt=True),
            Attribute("file_id", "file_id", prompt=True),
            Attribute("media_type", "media_type", prompt=True),
            Attribute("detail", "detail"),
            _EXTRA,
        ),
    ),
    PartLine(
        "document",
        Document,
        "data",
        (
            Attribute("url", "url", prompt=True),
            Attribute("file_id", "file_id", prompt=True),
            Attribute("media_type", "media_type", prompt=True),
            Attribute("filename", "filename", prompt=True),
            Attribute("title", "title", prompt=True),
            Attribute("context", "context", prompt=True),
            _EXTRA,
        ),
    ),
    PartLine("audio", Audio, "data", (Attribute("format", "format", prompt=True), Attribute("id", "id"), _EXTRA)),
    PartLine("refusal", Refusal, "text", (_EXTRA,)),
    PartLine("raw", Raw, "value", (_EXTRA,)),  # `of` is read below: it is written only where the text does not tell
)
_BY_CLASS = {line.part: line for line in PART_LINES}
_BY_WORD = {line.word: line for line in PART_LINES} | {"file": _BY_CLASS[Document], "text": _BY_CLASS[Text]}
_BINARY = (Image, Document, Audio)


def is_plain(content: Sequence[Part], archive: bool) -> bool:
    """Return whether the content is one text alone. A prompt does not show members without a name."""
    return len(content) == 1 and type(content[0]) is Text and not (archive and content[0].extra)


def write_parts(content: Sequence[Part], out: Writer, word: str = "", first: bool = True) -> bool:
    """Write the parts of a content. `word` is the type of its texts; returns whether anything was written."""
    for index, part in enumerate(content):
        if first and not word and type(part) is Text and _bare(part, out, index):
            out.content(part.text)
            first = False
            continue
        if not first:
            out.control("\n")
        first = False
        _write_part(part, out, word, index)
    return not first


def _bare(part: Text, out: Writer, index: int) -> bool:
    """Return whether a first text may stand without a part line: always in a prompt, which shows no extra members."""
    if out.archive or not part.extra:
        return not part.extra
    _lose_extra(part, out, index)
    return True


def _write_part(part: Part, out: Writer, word_of_texts: str, index: int) -> None:
    line = _BY_CLASS[type(part)]
    member = "summary" if word_of_texts == SUMMARY else "content"
    word = line.word or word_of_texts
    place = out.place
    out.place = f"{place}.{member}[{index}]"
    attributes = write_attributes(part, line.attributes, out)
    text = getattr(part, line.text)
    if isinstance(part, Document) and part.text is not None:
        attributes += ' payload="text"'
        text = part.text
    if isinstance(part, Raw):
        text = text_of(part.value)
        if type_word(part.value) != part.type:
            attributes += f" of={attribute_text(part.type)}"
    if line.word and word_of_texts == SUMMARY:
        attributes += _IN_SUMMARY
    tag = f' type="{word}"' if word else ""
    out.control(f"{PART_TAG}{tag}{attributes}>>")
    if not out.archive and isinstance(part, _BINARY) and getattr(part, "text", None) is None:
        out.lose("", "dropped", unseen(part))
        text = None
    if text is not None:
        out.control("\n")
        out.content(text)
    out.place = place


def _lose_extra(part: Part, out: Writer, index: int) -> None:
    out.lose_unnamed(f".content[{index}]", part.extra, "a prompt has no place for members without a name")


def read_parts(payload: Payload) -> Iterator[tuple[str, Part]]:
    """Give the parts of a payload, each with its type word (empty for a plain text)."""
    text = payload.text
    lines = list(_LINE.finditer(text)) if PART_TAG in text else []
    if not lines:
        yield "", Text(text=payload.escape.remove(text))
        return
    if lines[0].start():
        yield "", Text(text=payload.escape.remove(text[: lines[0].start() - 1]))
    counted, number = 0, payload.line
    for match, following in zip(lines, [*lines[1:], None], strict=True):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        end = following.start() - 1 if following else len(text)
        own = text[match.end() + 1 : end] if match.end() < end else None
        yield _read_part(match, None if own is None else payload.escape.remove(own), number)


def _read_part(match: re.Match[str], own: str | None, number: int) -> tuple[str, Part]:
    found = scan_attributes(match.string, match.start(1), match.end(1), number, 1 + len(PART_TAG))
    word = plain(found.pop("type")) if "type" in found else ""
    line = _line_of(word)
    if line is None:
        known = ", ".join(sorted(one for one in _BY_WORD if one))
        message = f"unknown part type {word!r}; known: {known}, summary, reasoning"
        raise InvalidTranscript(message, line=number, column=1, expected=f"one of {known}", got=repr(word))
    of = {"type": str(plain(found.pop("of")))} if line.part is Raw and "of" in found else {}
    as_text = line.part is Document and found.pop("payload", None) is not None
    place = SUMMARY if line.word and _is_in_summary(found) else word
    fields, hints = read_attributes(found, line.attributes, number)
    if hints:
        fields["extra"] = {**fields.get("extra", {}), **hints.attributes}
    if line.part is Raw:
        return place, _raw_part(own, fields | of, number)
    if own is not None:
        fields["text" if as_text else line.text] = own
    elif line.text == "text":
        fields["text"] = ""
    return place, line.part(**fields)


def _line_of(word: object) -> PartLine | None:
    """Return how parts of a type are written; None for what is no known type, and maybe no text."""
    if word in (SUMMARY, "reasoning"):
        return _BY_CLASS[Text]
    return _BY_WORD.get(word) if isinstance(word, str) else None


def _is_in_summary(found: dict[str, RawJson]) -> bool:
    """Return whether the attributes say that the part stands in a summary; takes off the one that does."""
    if "in" not in found or plain(found["in"]) != SUMMARY:
        return False
    del found["in"]
    return True


def _raw_part(own: str | None, found: dict[str, Any], number: int) -> Raw:
    if own is None or not is_json(own):
        message = "the text of a raw part must be JSON"
        raise InvalidTranscript(message, line=number, column=1, expected="JSON")
    value = RawJson(own.encode())
    return Raw(value=value, **{"type": type_word(value), **found})
