"""Owns what signs tell of a model: clues that formats declare, held against its names and its architecture.

The most telling evidence goes first. No format is known here by name. A chat template is tried instead, where it can be
(see `turnscript.detection`); the few clues that look at one are of templates that say nothing themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from turnscript.core.clues import DEFAULT, EVIDENCE, Clue, Evidence
from turnscript.detection.facts import Facts

_PLACES = {
    "template": "its chat template",
    "name": "its name",
    "stem": "its file name",
    "architecture": "its architecture",
}
UNKNOWN = "its chat template has the markers of no known format"


class Detected(Struct, frozen=True):
    """What a model takes: `format` is None if no format with a name fits, and `reason` says why in either case.

    `thinking`: whether it can think before it answers, None if that is not known. `date`: the day in its name.
    `variant`: the variant of the format that it takes, because it is as old as that, or has a template of that; None if
    it is the format itself.
    `evidence`: which kind of sign decided. `guess`: models with that sign take several formats.
    The rest is told of a model whose chat template was tried. `format` is then the table that reads what it writes;
    `learned`: no table with a name does, and one was learned. `exact`: all of the `asked` probes that it wrote are read
    as they went in, else only `right` of them. `variables`: what the template reads besides the messages. `recurrent`:
    the model has a state, which cannot go back.
    """

    format: str | None
    reason: str
    thinking: bool | None = None
    date: str | None = None
    family: str | None = None
    variant: str | None = None
    evidence: Evidence | None = None
    guess: bool = False
    learned: bool = False
    exact: bool | None = None
    right: int | None = None
    asked: int | None = None
    variables: tuple[str, ...] | None = None
    recurrent: bool | None = None


def evaluate(clues: Mapping[str, Sequence[Clue]], facts: Facts, rule: str = DEFAULT) -> Detected:
    """Return the format whose clue fits best; `clues` are those of each format by its name.

    A chat template that no clue fits ends the search: the model takes a format that is not known here, whatever its
    name may suggest.
    """
    own = [(clue.order, name, clue) for name, declared in clues.items() for clue in declared if clue.rule == rule]
    ranked = [(name, clue) for _, name, clue in sorted(own, key=lambda entry: entry[:2])]
    for evidence in EVIDENCE:
        candidates = [(name, clue) for name, clue in ranked if clue.evidence == evidence]
        texts = facts.texts(evidence)
        found = _first(candidates, texts, facts)
        if found is not None:
            return found
        if evidence == "template" and candidates and texts:
            return _foreign(evaluate(clues, msgspec.structs.replace(facts, template=""), rule))
    return Detected(None, _nothing(facts), date=facts.date)


def rules_of(clues: Mapping[str, Sequence[Clue]]) -> list[str]:
    """Return the default detection rule and those that clues belong to."""
    return sorted({DEFAULT, *(clue.rule for own in clues.values() for clue in own)})


def sign_of(clues: Mapping[str, Sequence[Clue]], name: str, facts: Facts) -> Detected:
    """Return what the clues of one format tell of a model that takes it: a family, and whether it thinks."""
    ranked = [(name, clue) for clue in sorted(clues.get(name, ()), key=lambda clue: clue.order) if clue.rule == DEFAULT]
    for evidence in EVIDENCE:
        found = _first([entry for entry in ranked if entry[1].evidence == evidence], facts.texts(evidence), facts)
        if found is not None:
            return found
    return Detected(name, "", date=facts.date)


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
    """Return the verdict on a model with a template of its own that no format here knows."""
    hint = f" ({otherwise.format} would be a guess: {otherwise.reason})" if otherwise.format else ""
    return Detected(None, f"{UNKNOWN}{hint}", date=otherwise.date)


def _nothing(facts: Facts) -> str:
    seen = [f"the name {_quoted(name)}" for name in facts.names[:1]]
    seen += [f"the architecture {_quoted(name)}" for name in facts.architectures[:1]]
    return f"no known format has a clue for {' or '.join(seen) or 'a model without a name'}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
