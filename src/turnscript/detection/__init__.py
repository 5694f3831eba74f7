"""Owns model detection: which prompt format a model takes, told from its name, its GGUF header or its HF files.

First the facts are gathered, then the clues that the formats declare are held against them, the most telling evidence
first: the chat template, then the names, then the architecture. No format is known here by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

import msgspec
from msgspec import Struct

from turnscript.clues import DEFAULT, EVIDENCE, Clue, Evidence
from turnscript.detection.facts import Facts, facts_of_name, gather
from turnscript.errors import InvalidInput, UnknownName
from turnscript.format import Format
from turnscript.jinja import format_of_template
from turnscript.registry import clues as declared

_PLACES = {
    "template": "its chat template",
    "name": "its name",
    "stem": "its file name",
    "architecture": "its architecture",
}
_UNKNOWN = "its chat template has the markers of no known format"


class Detected(Struct, frozen=True):
    """What a model takes: `format` is None if nothing known fits, and `reason` says why in either case.

    `thinking`: whether it can think before it answers, None if that is not known. `date`: the day in its name.
    `variant`: the variant of the format that it takes, because it is as old as that, or has a template of that; None if
    it is the format itself.
    `evidence`: which kind of sign decided. `guess`: it tells a wide family, or goes against the model's chat template.
    """

    format: str | None
    reason: str
    thinking: bool | None = None
    date: str | None = None
    family: str | None = None
    variant: str | None = None
    evidence: Evidence | None = None
    guess: bool = False


def detect(model: str | PathLike[str], *, rule: str = DEFAULT, own: Iterable[Format] = ()) -> Detected:
    """Which prompt format a model takes, and why.

    `model`: a GGUF file, a folder with `tokenizer_config.json` or `config.json`, one of their files, or just a name;
    what is no file or folder is taken for a name. `rule`: whose clues to go by, of `rules(own)`. `own`: more formats
    whose clues of that rule count, each in place of a registered one of its name.
    Raises InvalidInput for a file that is not what its name says, UnknownName for an unknown rule, OSError for a file
    that cannot be read.

    >>> print(detect("no-such-family-7b").format)
    None
    """
    clues = declared() | {format_.name: format_.clues for format_ in own}
    if rule not in _rules(clues):
        raise UnknownName("detection rule", rule, _rules(clues))
    only_name = all(clue.evidence == "stem" for own in clues.values() for clue in own if clue.rule == rule)
    return evaluate(clues, facts_of_name(model) if only_name else gather(model), rule)


def detect_told(names: Iterable[str], template: str = "", *, own: Iterable[Format] = ()) -> Detected:
    """Which prompt format a model takes of which a server tells these names, and maybe its chat template.

    What lies here under a name counts too, if it can be read. A template that no format knows leaves it to the names:
    what a server shows need not be the model's own.
    """
    known = declared() | {format_.name: format_.clues for format_ in own}
    found = [_seen(name) for name in names if name]
    templates = [text for text in (template, *(one.template for one in found)) if text.strip()]
    facts = Facts(
        names=tuple(dict.fromkeys(name for one in found for name in one.names)),
        template=next(iter(templates), ""),
        architectures=tuple(dict.fromkeys(word for one in found for word in one.architectures)),
    )
    told = evaluate(known, facts)
    if told.format is not None or not facts.template:
        return told
    named = evaluate(known, msgspec.structs.replace(facts, template=""))
    if named.format is None:
        return told
    return msgspec.structs.replace(named, reason=f"{named.reason} ({_UNKNOWN})", guess=True)


def _seen(name: str) -> Facts:
    """The facts under a name that somebody else gave: what cannot be read here is a name all the same."""
    try:
        return gather(name)
    except (InvalidInput, OSError):
        return facts_of_name(name)


def rules(own: Iterable[Format] = ()) -> list[str]:
    """The default detection rule and the others that formats have clues for. `own`: more formats."""
    return _rules(declared() | {format_.name: format_.clues for format_ in own})


def evaluate(clues: Mapping[str, Sequence[Clue]], facts: Facts, rule: str = DEFAULT) -> Detected:
    """The format whose clue fits best; `clues` are those of each format by its name.

    A chat template that no clue fits ends the search: the model takes a format that is not known here, whatever its
    name may suggest.
    """
    own = [(clue.order, name, clue) for name, declared in clues.items() for clue in declared if clue.rule == rule]
    ranked = [(name, clue) for _, name, clue in sorted(own, key=lambda entry: entry[:2])]
    made, option = format_of_template(facts.template)
    if made in clues and rule == DEFAULT:
        told = _made_of(made, [entry for entry in ranked if entry[0] == made], facts)
        return msgspec.structs.replace(told, variant=option) if option else told
    for evidence in EVIDENCE:
        candidates = [(name, clue) for name, clue in ranked if clue.evidence == evidence]
        texts = facts.texts(evidence)
        found = _first(candidates, texts, facts)
        if found is not None:
            return found
        if evidence == "template" and candidates and texts:
            return _foreign(evaluate(clues, msgspec.structs.replace(facts, template=""), rule))
    return Detected(None, _nothing(facts), date=facts.date)


def _made_of(name: str, own: Sequence[tuple[str, Clue]], facts: Facts) -> Detected:
    """For a chat template that was made of a format, as it says. Whether its models think, other clues may tell."""
    found = _first([entry for entry in own if entry[1].evidence == "template"], facts.texts("template"), facts)
    known = found or Detected(name, "", date=facts.date)
    reason = "its chat template says that turnscript made it of this format"
    return msgspec.structs.replace(known, reason=reason, evidence="template")


def _rules(clues: Mapping[str, Sequence[Clue]]) -> list[str]:
    return sorted({DEFAULT, *(clue.rule for own in clues.values() for clue in own)})


def _first(candidates: Iterable[tuple[str, Clue]], texts: Sequence[str], facts: Facts) -> Detected | None:
    day = facts.date
    for name, clue in candidates:
        for text in texts:
            mark = clue.mark(text, facts.names)
            if mark is not None:
                reason = f"{_PLACES[clue.evidence]} has {_quoted(mark)}: {clue.reason}" if mark else clue.reason
                variant = clue.older if clue.thinks_from and day and day < clue.thinks_from else ""
                thinks, family = _thinks(clue, text, day), clue.family or None
                return Detected(name, reason, thinks, day, family, variant or None, clue.evidence, clue.guess)
    return None


def _thinks(clue: Clue, text: str, day: str | None) -> bool | None:
    if clue.thinks_from and day:
        return day >= clue.thinks_from
    return True if clue.thinks and re.search(clue.thinks, text) else None


def _foreign(otherwise: Detected) -> Detected:
    """For a model with a template of its own that no format here knows."""
    hint = f" ({otherwise.format} would be a guess: {otherwise.reason})" if otherwise.format else ""
    return Detected(None, f"{_UNKNOWN}{hint}", date=otherwise.date)


def _nothing(facts: Facts) -> str:
    seen = [f"the name {_quoted(name)}" for name in facts.names[:1]]
    seen += [f"the architecture {_quoted(name)}" for name in facts.architectures[:1]]
    return f"no known format has a clue for {' or '.join(seen) or 'a model without a name'}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
