"""Owns formats that come with a template: it writes, and the table that reads what it writes is found by trying."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from turnscript.convert.registry import clues as declared
from turnscript.convert.registry import get_format as registered
from turnscript.convert.registry import is_format
from turnscript.detection.evidence import evaluate
from turnscript.detection.facts import Facts
from turnscript.detection.growth import with_growth
from turnscript.detection.learned_table import PLACEHOLDERS
from turnscript.detection.place import TemplateSource, in_hub_cache, read_place
from turnscript.detection.reading_table import Reading, choose
from turnscript.engine.table import Document
from turnscript.engine.template.template import Template
from turnscript.export.jinja import format_of_template
from turnscript.formats.format import Format

_SUFFIXES = (".jinja", ".jinja2", ".j2", ".json", ".gguf")


def get_format(name: str) -> Format:
    """Return the format of a name, of a TOML file, or of a place where a model's own chat template is.

    A place is a .jinja file, a tokenizer_config.json, a model's folder, a .gguf file, or the name of a model in the
    local Hugging Face cache, with `#NAME` behind it for one of several templates. Raises UnknownName with the nearest
    names, and InvalidInput for a file that is not as it should be.
    """
    if not is_place(name):
        return registered(name)
    path = Path(name.partition("#")[0])
    return _of_place(name, path.stat().st_mtime_ns if path.exists() else 0)


def is_place(name: str) -> bool:
    """Return whether a name is that of a place where a template may be, and not that of a format."""
    if type(name) is not str or not name or is_format(name):
        return False
    path = name.partition("#")[0]
    if path.lower().endswith(_SUFFIXES) or os.path.exists(path):
        return True
    return "/" in path and in_hub_cache(path) is not None


@lru_cache(maxsize=16)
def _of_place(place: str, changed: int) -> Format:
    return format_of(read_place(place))


def format_of(source: TemplateSource, *, own: Sequence[Format] = (), history: str | None = None) -> Format:
    """Return the format of a template: it writes, and the table that reads back what it writes reads.

    `own`: formats that are tried before all others. `history`: how turns of the model are kept in prompts; by default
    as they were generated where the model has a state that cannot go back, else as the template writes them.
    """
    template, reading = read_template(source, own=own)
    document = template.read_by(_without_placeholders(reading.format.document))
    kept = history or ("generated" if source.recurrent else "template")
    name = next(iter(source.names), "") or "template"
    made = Format(name=name, title=source.told_by, document=document, template=template, history=kept)  # type: ignore[arg-type]
    return with_growth(made)


def _without_placeholders(document: Document) -> Document:
    """Return a table without the stops that a learned one has where nothing is known to end an answer."""
    generation = document.generation
    stops, with_tools = (
        tuple(stop for stop in row if stop not in PLACEHOLDERS)
        for row in (generation.stops, generation.stops_with_tools)
    )
    return replace(document, generation=replace(generation, stops=stops, stops_with_tools=with_tools))


def read_template(source: TemplateSource, *, own: Sequence[Format] = ()) -> tuple[Template, Reading]:
    """Return a template, and the table that reads what it writes: of several that read equally well, the likely one."""
    template = Template(
        source.text or source.tools_text,
        tools_source=source.tools_text if source.text else "",
        tokens={"bos_token": source.bos, "eos_token": source.eos, **source.tokens},
        control=source.control,
        told_by=source.told_by or "the chat template",
    )

    def render(messages: Any, tools: Any = None, add_generation_prompt: bool = False, **told: Any) -> str:
        return template.run(messages, tools, generation=add_generation_prompt, told=told)

    switches = template.traits.switches
    wishes = [{one.variable: value} for one in switches for value in (one.on, one.off)]
    first = [*own, *_likely(source, own)]
    reading = choose(render, template.source, eos=source.eos, own=first, wishes=wishes)
    template.read_as, template.learned = reading.format.name, reading.learned
    template.exact, template.sentence = reading.exact, reading.sentence
    template.reads_calls = reading.calls or not reading.takes["calls"]
    if not reading.takes["calls"] and reading.format in first:
        template.sentence += f"; those of the model are read as {reading.format.title}, by the signs of its family"
    return template, reading


def made_of(text: str, known: Container[str]) -> tuple[str | None, str]:
    """Return the format that a template says it was made of, and the option; None if it is none of the known ones."""
    name, option = format_of_template(text)
    return (name, option) if name in known else (None, "")


def _likely(source: TemplateSource, own: Sequence[Format]) -> list[Format]:
    """Return the format that a template's own word, its signs or the model's names speak for: it is tried first."""
    known = declared() | {format_.name: format_.clues for format_ in own}
    name = made_of(source.text, known)[0]
    for template in (source.text, ""):
        name = name or evaluate(known, Facts(names=source.names, template=template)).format
    mine = {format_.name: format_ for format_ in own}
    return [] if name is None else [mine.get(name) or registered(name)]
