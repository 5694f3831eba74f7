"""Owns model detection: which prompt format a model takes, told by its chat template, else by its names.

A chat template is tried: what it writes is read back, and the table that gives exactly what went in is the one. Clues
by pattern decide only between tables that read equally well, and where there is no template: then names come first,
after them the architecture. No format is known here by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

import msgspec

from turnscript.convert.registry import clues as declared
from turnscript.core.clues import DEFAULT, Clue
from turnscript.core.errors import InvalidInput, TurnscriptError, UnknownName
from turnscript.detection.evidence import UNKNOWN, Detected, evaluate, rules_of, sign_of
from turnscript.detection.facts import Facts, facts_of_name, gather
from turnscript.detection.place import TemplateSource, is_place, read_place
from turnscript.detection.reading_table import Reading
from turnscript.detection.template_format import made_of, read_template
from turnscript.engine.template.program import InvalidTemplate
from turnscript.engine.template.template import Template
from turnscript.formats.format import Format


def detect(model: str | PathLike[str], *, rule: str = DEFAULT, own: Iterable[Format] = ()) -> Detected:
    """Return which prompt format a model takes, and why.

    `model`: a GGUF file, a folder with `tokenizer_config.json` or `config.json`, one of their files, a chat template,
    the name of a model in the local Hugging Face cache, or just a name; what is no file or folder is taken for a name.
    `rule`: whose clues to go by, of `rules(own)`. `own`: more formats whose clues of that rule count, each in place of
    a registered one of its name.
    Raises InvalidInput for a file that is not what its name says or a template that is broken, UnknownName for an
    unknown rule, OSError for a file that cannot be read.

    >>> print(detect("no-such-family-7b").format)
    None
    """
    formats = list(own)
    clues = _clues(formats)
    if rule not in rules_of(clues):
        raise UnknownName("detection rule", rule, rules_of(clues))
    only_name = all(clue.evidence == "stem" for own in clues.values() for clue in own if clue.rule == rule)
    facts = facts_of_name(model) if only_name else gather(model)
    if rule != DEFAULT:
        return evaluate(clues, facts, rule)
    source = _source_of(model, facts)
    if source is None:
        return evaluate(clues, facts)
    facts = msgspec.structs.replace(facts, template=source.text or source.tools_text)
    source = msgspec.structs.replace(source, names=tuple(dict.fromkeys([*facts.names, *source.names])))
    return _tried(clues, facts, source, formats)


def detect_told(names: Iterable[str], template: str = "", *, own: Iterable[Format] = ()) -> Detected:
    """Return which prompt format a model takes of which a server tells these names, and maybe its chat template.

    What lies here under a name counts too, if it can be read. A template that no format reads leaves it to the names,
    and what they tell is then a guess.
    """
    formats = list(own)
    known = _clues(formats)
    found = [_seen(name) for name in names if name]
    templates = [text for text in (template, *(one.template for one in found)) if text.strip()]
    facts = Facts(
        names=tuple(dict.fromkeys(name for one in found for name in one.names)),
        template=next(iter(templates), ""),
        architectures=tuple(dict.fromkeys(word for one in found for word in one.architectures)),
    )
    told = Detected(None, UNKNOWN, date=facts.date)
    if not _is_jinja(facts.template):
        told = evaluate(known, facts)
    else:
        try:
            told = _tried(known, facts, TemplateSource(text=facts.template, names=facts.names), formats)
        except TurnscriptError as error:  # a server may show anything
            told = msgspec.structs.replace(told, reason=f"its chat template cannot be tried: {error}")
    if told.format is not None or not facts.template:
        return told
    named = evaluate(known, msgspec.structs.replace(facts, template=""))
    if named.format is None:
        return told
    return msgspec.structs.replace(named, guess=True, reason=f"{named.reason} ({UNKNOWN})")


def day_of(names: Iterable[str]) -> str | None:
    """Return the day in the first of a model's names that has one, as yyyymmdd; what lies here under a name counts too,
    if it can be read."""
    return next((day for name in names if name and (day := _seen(name).date)), None)


def rules(own: Iterable[Format] = ()) -> list[str]:
    """Return the default detection rule and the others that formats have clues for. `own`: more formats."""
    return rules_of(_clues(own))


def _clues(own: Iterable[Format]) -> dict[str, tuple[Clue, ...]]:
    return declared() | {format_.name: format_.clues for format_ in own}


def _seen(name: str) -> Facts:
    """Return the facts under a name that somebody else gave: what cannot be read here is a name all the same."""
    try:
        return gather(name)
    except (InvalidInput, OSError):
        return facts_of_name(name)


def _is_jinja(text: str) -> bool:
    """Tell a template from the name of one that comes with a server, such as `chatml`."""
    return "{{" in text or "{%" in text


def _source_of(model: str | PathLike[str], facts: Facts) -> TemplateSource | None:
    """Return the chat template of a model that can be tried, None if it has none. Raises InvalidInput."""
    if facts.template.strip() and not _is_jinja(facts.template):
        return None
    place = str(model)
    if not is_place(place):
        return None
    try:
        return read_place(place)
    except InvalidInput:
        if facts.template.strip():
            raise
        return None


def _tried(
    clues: Mapping[str, Sequence[Clue]], facts: Facts, source: TemplateSource, own: Sequence[Format]
) -> Detected:
    """Return what a template shows when it is tried. Raises InvalidTemplate for one that is broken."""
    made, option = made_of(source.text, clues)
    if made is not None:
        told = sign_of(clues, made, facts)
        reason = "its chat template says that turnscript made it of this format"
        told = msgspec.structs.replace(told, format=made, reason=reason, evidence="template", guess=False)
        return msgspec.structs.replace(told, variant=option) if option else told
    shared = evaluate(_named_only(clues), facts)
    if shared.format is not None:
        return shared
    try:
        template, reading = read_template(source, own=own)
    except TurnscriptError as error:
        if isinstance(error, InvalidTemplate):
            raise
        told = evaluate(clues, facts)
        if told.format is None:
            told = evaluate(clues, msgspec.structs.replace(facts, template=""))
        return msgspec.structs.replace(told, guess=told.format is not None, reason=_untried(told, error))
    return _read(clues, facts, source, template, reading)


def _untried(told: Detected, error: TurnscriptError) -> str:
    return f"its chat template cannot be tried: {error}" + (f"; {told.reason}" if told.format else "")


def _named_only(clues: Mapping[str, Sequence[Clue]]) -> dict[str, list[Clue]]:
    """Return the clues of templates that models of several formats have, so that only a name can tell which."""
    return {name: [clue for clue in own if clue.evidence == "template" and clue.named] for name, own in clues.items()}


def _read(
    clues: Mapping[str, Sequence[Clue]],
    facts: Facts,
    source: TemplateSource,
    template: Template,
    reading: Reading,
) -> Detected:
    """Return what is told of a model by the table that reads what its template writes."""
    name = None if reading.learned else reading.format.name
    sign = sign_of(clues, name, facts) if name is not None else Detected(None, "", date=facts.date)
    thinks = True if reading.thinks or template.traits.switches or template.traits.effort else None
    return Detected(
        format=name,
        reason=reading.sentence.replace("this template", "its chat template", 1),
        thinking=sign.thinking if sign.thinking is not None else thinks,
        date=facts.date,
        family=sign.family,
        variant=sign.variant,
        evidence="template",
        learned=bool(reading.learned),
        exact=reading.exact,
        right=reading.right,
        asked=reading.asked,
        variables=template.wishes,
        recurrent=source.recurrent,
    )


__all__ = ["Detected", "day_of", "detect", "detect_told", "evaluate", "rules"]
