"""Owns the chat template of the model behind a server: the one that the server shows, else one that lies here.

What a server shows counts, because it may have been started with another template than the model's own. Most servers
show none but name their model, by the path of its folder or as it is called at Hugging Face. If that folder is on this
machine, or in its cache, the template is read there, and so are the model's control tokens, which no server tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Facts
from turnscript.convert.registry import is_format
from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.detection.place import TemplateSource, in_hub_cache, is_place, of_server, read_place
from turnscript.detection.template_format import format_of
from turnscript.engine.template_prompt import History
from turnscript.export.jinja import format_of_template
from turnscript.formats.format import Format
from turnscript.gateway.modelformat import Found

_NOTHING = Facts()


class Wishes(Struct, frozen=True):
    """What the settings say of a chat template: the `history`, the `first_token` of a prompt, the formats that they
    declare, and the one that is to read what the template writes."""

    history: History | None = None
    first_token: str | None = None
    own: tuple[Format, ...] = ()
    reads: Format | None = None


class Sought(Struct, frozen=True):
    """The chat template of a model, None if there is none to be had. `troubles`: why what is there cannot be read."""

    source: TemplateSource | None = None
    troubles: tuple[str, ...] = ()


NOT_SOUGHT = Sought()
"""Where nobody has looked for a template."""


def template_of(facts: Facts, url: str, names: Iterable[str] = ()) -> Sought:
    """Look for the chat template of the model that the server at `url` runs. `names`: what else the model is called.

    It reads files, of which the vocabulary of a large model takes a tenth of a second.
    """
    here = _lying_here([facts.file or "", facts.root or "", facts.model or "", *names])
    if not (facts.template or "").strip():
        return here
    try:
        shown = of_server(
            facts.template or "",
            facts.tools_template or "",
            bos=facts.bos_token or "",
            eos=facts.end_token or "",
            model=facts.file or facts.root or facts.model or "",
            told_by=f"what {url} shows",
        )
    except InvalidInput as error:
        return Sought(here.source, (str(error), *here.troubles))
    return Sought(_completed(replace(shown, context=facts.context), here.source), here.troubles)


def written(source: TemplateSource, wishes: Wishes, facts: Facts = _NOTHING, *, strict: bool = False) -> Found:
    """Return the format of a chat template; without one and with the reason where it cannot be used.

    Servers put the first token before each prompt, so a template writes it only where one says that it does not. With
    `strict` it raises InvalidInput, and Unsupported where the library for templates is not installed.
    """
    bos = source.bos if facts.adds_bos is False else ""
    bos = bos if wishes.first_token is None else wishes.first_token
    own = [wishes.reads] if wishes.reads is not None else wishes.own
    try:
        format_ = replace(format_of(replace(source, bos=bos), own=own, history=wishes.history), words=True)
    except (TurnscriptError, RecursionError) as error:
        if strict:
            raise
        return Found(None, f"the chat template of {source.told_by} cannot be used: {error}")
    return Found(format_, f"the model's own chat template: {source.told_by}")


def begins_otherwise(source: TemplateSource, facts: Facts) -> bool:
    """Return whether what a server tells changes what its template is to write before a prompt."""
    return facts.adds_bos is False and "bos_token" in source.text + source.tools_text


def told_apart(format_: Format) -> str:
    """Return what tells a template and how it is used from others, in few characters; nothing for a table."""
    template = format_.template
    if template is None:
        return ""
    said = "\0".join((template.source, template.tools_source, repr(template.tokens), template.read_as, format_.history))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_made(source: TemplateSource) -> bool:
    """Return whether a chat template says that it was made of a format: that writes the same, and more exactly."""
    name, _ = format_of_template(source.text)
    return is_format(name) if name else False


def unused(source: TemplateSource | None) -> tuple[str, ...]:
    """Return what people are told where a format is set, and the model has a chat template besides."""
    if source is None or is_made(source):
        return ()
    return (f"there is a chat template ({source.told_by}), which is not used, because a format is set",)


def _completed(shown: TemplateSource, here: TemplateSource | None) -> TemplateSource:
    """Return the template that a server shows, with what only the model's own files tell."""
    if here is None:
        return shown
    return replace(
        shown,
        tokens=here.tokens,
        control=tuple(dict.fromkeys([*shown.control, *here.control])),
        added=here.added,
        recurrent=here.recurrent,
        names=tuple(dict.fromkeys([*shown.names, *here.names])),
    )


def _lying_here(names: Iterable[str]) -> Sought:
    """Read the first of these names that is a place here. A word alone is none, unless the cache has it."""
    troubles: list[str] = []
    for name in dict.fromkeys(filter(None, names)):
        is_path = "/" in name or "\\" in name
        if not is_place(name) if is_path else in_hub_cache(name) is None:
            continue
        try:
            return Sought(read_place(name), tuple(troubles))
        except InvalidInput as error:
            troubles.append(str(error))
    return Sought(None, tuple(troubles))
