"""Owns rows in the words of a model's own chat template: the format of a plan's template, and whether a row is as the
template itself writes it.

What a server shows a model is what its template makes of the messages as they came. A row is that too, but where the
template refused the conversation, where something had no place in it, or where a content held a control string.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from turnscript.convert.registry import get_format
from turnscript.core.conversation import Request, Tool, ToolsChange
from turnscript.datasets.problems import difference
from turnscript.datasets.tokenizers import get_tokenizer, parts_of
from turnscript.detection.place import TemplateSource, read_place
from turnscript.detection.specialtokens import tokens_of_folder
from turnscript.detection.template_format import format_of
from turnscript.engine.escape import Escape
from turnscript.engine.template.messages import Marked
from turnscript.engine.template.program import InvalidTemplate, TemplateRefused
from turnscript.engine.template.template import Template
from turnscript.engine.template.tools import functions_of
from turnscript.formats.format import Format

_NOTHING = Escape()
"""Protects nothing: a template is shown contents as they are."""


class Words(NamedTuple):
    """A format that a template writes. `facts`: all of the template that decides a text. `dated`: it writes a date."""

    format: Format
    facts: Mapping[str, Any]
    dated: bool


def words_of(place: str, format_: str, tokenizer: str) -> Words:
    """Return the format of a template. `format_`: the table to be tried first as the one that reads it, if any.

    Where the place tells no tokens, they are those beside the tokenizer. Raises InvalidInput.
    """
    path = Path(place.partition("#")[0])
    return _words(place, format_, tokenizer, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=4)
def _words(place: str, format_: str, tokenizer: str, _changed: int) -> Words:
    source = _with_tokens(read_place(place), tokenizer)
    found = format_of(source, own=[get_format(format_)] if format_ else [])
    facts = {
        "text": source.text,
        "tools_text": source.tools_text,
        "tokens": {"bos_token": source.bos, "eos_token": source.eos, **source.tokens},
        "control": list(source.control),
    }
    return Words(found, facts, "strftime_now" in source.text + source.tools_text)


def _with_tokens(source: TemplateSource, spec: str) -> TemplateSource:
    """Return a template with the control tokens of the tokenizer, and with those that it may name."""
    control = tuple(dict.fromkeys((*source.control, *get_tokenizer(spec).controls)))
    if source.bos or source.eos or source.tokens:
        return replace(source, control=control)
    named = _named_beside(spec)
    bos, eos = named.pop("bos_token", ""), named.pop("eos_token", "")
    return replace(source, control=control, bos=bos, eos=eos, tokens=named)


def with_ends_of(format_: Format, spec: str) -> Format:
    """Return a format whose documents stand between the tokens that the model of a tokenizer has for that.

    The last one is not written where the tokenizer separates documents by itself. Raises InvalidInput.
    """
    if not format_.document.stand_ins:
        return format_
    named, tokenizer = _named_beside(spec), get_tokenizer(spec)
    end = named.get("eos_token", "") if tokenizer.end is None else ""
    return format_.with_ends(named.get("bos_token", ""), end)


def _named_beside(spec: str) -> dict[str, str]:
    """Return the tokens that have names beside a tokenizer. RWKV's has one number for both ends, and no text for it."""
    base, path = parts_of(get_tokenizer(spec).spec)
    return dict(tokens_of_folder(Path(os.path.abspath(path)).parent).named) if base.startswith("hf:") else {}


class _Plain(Marked):
    """Messages with their contents as they are, as transformers is given them."""

    def content(self, text: str, owner: int, signs: str = "") -> str:
        return text

    def name(self, text: str, owner: int) -> str:
        return text


class Likeness:
    """Tells how rows differ from what a template makes of them as they are. `now`: the date that it writes."""

    def __init__(self, template: Template, now: datetime | None) -> None:
        self._template = template
        self._now = now

    def difference(self, request: Request, text: str) -> str:
        """Return what is another in the text of a row; empty if the template itself writes just that."""
        template = self._template
        changes = [item for item in request.items if isinstance(item, ToolsChange)]
        tools: list[Tool] = [*request.tools, *(tool for change in changes for tool in change.added)]
        functions = functions_of(tools, _NOTHING)
        plain = _Plain(template.traits.manner, functions, bool)
        plain.add(request.items)
        for loss in (*functions.losses, *plain.losses):
            return f"{loss.path}: {loss.detail}"
        asked, _ = template.asked(request, None, False, self._now)
        try:
            own = template.run(plain.messages, functions.shown, told=asked.told, now=asked.now)
        except (InvalidTemplate, TemplateRefused) as refusal:
            return str(refusal)
        return "" if own == text else difference(own, text)


__all__ = ["Likeness", "Words", "words_of"]
