"""Owns the chat template of the model behind a server: the one that the server shows, else one that lies here.

What a server shows counts, because it may have been started with another template than the model's own. Most servers
show none but name their model, by the path of its folder or as it is called at Hugging Face. If that folder is on this
machine, or in its cache, the template is read there, and so are the model's control tokens, which no server tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backend import Facts
from turnscript.detection.place import TemplateSource, in_hub_cache, is_place, of_server, read_place
from turnscript.errors import InvalidInput


class Sought(Struct, frozen=True):
    """The chat template of a model, None if there is none to be had. `troubles`: why what is there cannot be read."""

    source: TemplateSource | None = None
    troubles: tuple[str, ...] = ()


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
