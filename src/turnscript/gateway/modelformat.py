"""Owns which prompt format a model takes: the one that its settings name or make, else the one that its names tell.

The model behind a server may have a chat template: the one that the server shows counts, else one that lies here. What
a server shows counts, because it may have been started with another template than the model's own. Most servers show
none but name their model, by the path of its folder or as it is called at Hugging Face. If that folder is on this
machine, or in its cache, the template is read there, and so are the model's control tokens, which no server tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Facts
from turnscript.convert.registry import get_format, is_format, named_formats
from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.detection import Detected, day_of, detect, detect_told
from turnscript.detection.place import TemplateSource, in_hub_cache, is_place, of_server, read_place
from turnscript.detection.template_format import format_of
from turnscript.engine.template_prompt import History
from turnscript.export.jinja import format_of_template
from turnscript.formats.format import Format
from turnscript.tableio.prompts import SECTION, read_prompts
from turnscript.tableio.tables import Table

NONE: Mapping[str, Format] = {}
DETECTED = "detected: "
"""How the reason begins where a sign told the format, and nobody said it."""


class Found(Struct, frozen=True):
    """A format, if there is one, and how it was found."""

    format: Format | None
    why: str
    guessed: bool = False
    """Whether names alone tell it: a chat template would be a surer sign."""
    guess: bool = False
    """Whether these names say too little, so that it is called a guess."""
    older: str = ""
    """What people are told of a model that is too old for all that its format has."""
    undated: Format | None = None
    """The format without regard to the age of its model, where that was looked at."""

    @property
    def settled(self) -> bool:
        """Return whether the settings say it."""
        return self.format is not None and not self.why.startswith(DETECTED)

    def dated(self, names: Iterable[str]) -> Found:
        """Return it with the variant that models as old as the day in their names take (requirements R-G-8, D-G-6)."""
        aged = _aged(self.format, day_of(names)) if self.format is not None else None
        format_, older = aged or (self.format, "")
        return replace(self, format=format_, older=older, undated=self.format)

    def finished(self, variant: str | None, first_token: str | None) -> Found:
        """With a variant of the format, and another token before each document. Raises UnknownName."""
        if self.format is None:
            return self
        format_ = self.format if variant is None else self.format.variant(variant)
        if first_token is not None and format_.template is None:
            format_ = format_.begun_with(first_token)
        return replace(self, format=format_)


def check_fill_order(format_: Format | None, order: str | None) -> None:
    """Raise UnknownName, Unsupported or InvalidInput for an order in which prompts of the format cannot have a hole."""
    if order is None or format_ is None:  # which a server may tell yet
        return
    files = format_.document.files
    if files is None:
        raise InvalidInput(f"the format {format_.name!r} has no words for a hole in a text; leave `fill_order` out")
    files.prompt_order(order)


def named(name: str, own: Mapping[str, Format] = NONE) -> Found:
    """The format of that name; `own` go before others of the same name. Raises UnknownName and InvalidInput."""
    return Found(own.get(name) or get_format(name), "set")


def detected(names: Iterable[str], own: Mapping[str, Format] = NONE) -> Found:
    """The format that the first telling name stands for; a name may be a model's file or folder. `own` have a say.

    Raises InvalidInput for a file that is none of a model, OSError for one that cannot be read.
    """
    why = "no name tells it"
    for name in filter(None, names):
        told = detect(name, own=own.values())
        if told.format is not None:
            return _found(told, own)
        why = told.reason
    return Found(None, why)


def told(names: Iterable[str], template: str, own: Mapping[str, Format] = NONE) -> Found:
    """The format that a server's names for its model, and the chat template that it shows, stand for."""
    return _found(detect_told(names, template, own=own.values()), own)


def _found(told: Detected, own: Mapping[str, Format]) -> Found:
    if told.format is None:
        return Found(None, told.reason)
    format_, older = own.get(told.format) or get_format(told.format), ""
    if told.variant in format_.variants:
        aged = _aged(format_, told.date)
        format_ = format_.variant(str(told.variant))
        older = aged[1] if aged is not None and aged[0] == format_ else ""
    guessed = told.evidence != "template" or told.exact is False
    return Found(format_, f"{DETECTED}{told.reason}", guessed, told.guess, older)


def _aged(format_: Format, day: str | None) -> tuple[Format, str] | None:
    """Return the variant of a format that models of that day take, and why; None where it is the format itself."""
    for clue in format_.clues:
        if day is not None and day < clue.thinks_from and clue.older in format_.variants:
            why = f"its name says {day}, and models from before {clue.thinks_from} were not trained to think when asked"
            return format_.variant(clue.older), f"{why} (variant {clue.older})"
    return None


def prompted(prompts: Mapping[str, Any], path: str = SECTION) -> Found:
    """The format that a table of ai00's `[prompts]` makes. Raises InvalidFormat with the key below `path`."""
    return Found(read_prompts(Table(prompts, path), named_formats()), f"[{path}]")


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
