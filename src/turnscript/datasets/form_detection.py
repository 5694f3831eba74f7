"""Owns telling the form of a file: all forms vote on its first records, and a doubtful result is none.

Each record gives each form a score. A form is taken if it fits a clear majority of the records, better than any other,
and if hardly a record fits another form better: such records would be read as what they are not. Otherwise the verdict
says what was seen and what one can do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.registry import formats
from turnscript.datasets.form import TRANSCRIPT, Form
from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.labelled_texts import style_of
from turnscript.datasets.members import record as members_of
from turnscript.datasets.near_forms import near_form
from turnscript.datasets.problems import DEFECTS, BadRow, problem_of
from turnscript.datasets.rows import RawRow
from turnscript.datasets.transcript_claims import chat_in

MOST = 200
_FITS = 0.5
_MAJORITY = 2 / 3
_MARGIN = 0.04
_CONTESTED = 0.02
_HINTS = {
    "[": 'write each row as an object, such as {"messages": [...]}',
    '"': 'write each row as an object, such as {"text": ...}',
}
_JSON = re.compile(r"\s*(?:\{|\[\s*(?:[\"\[{\]\d-]|true|false|null))")
"""How JSON begins that holds rows. `[BOS]` is none."""
_ARRAY_OF_ROWS = re.compile(r"\s*\[\s*\{")
_TEXT_FILES = frozenset({".txt", ".text", ".md"})


class Verdict(Struct, frozen=True):
    """What a file was taken for. `form` is empty where it cannot be told; then `refusal` says why, and what to do.

    `share`: of the records, how many fit the form. `reasons`: what was found in them. `runners_up`: other forms that
    fit some records, with their shares.
    """

    form: str = ""
    share: float = 0.0
    rows: int = 0
    reasons: list[str] = []
    runners_up: list[tuple[str, float]] = []
    refusal: str = ""


class _Votes(NamedTuple):
    """Of one form: its score of each record, and how often it gave which reason."""

    name: str
    scores: list[float]
    reasons: Counter[str]

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)

    @property
    def share(self) -> float:
        return sum(score >= _FITS for score in self.scores) / len(self.scores)


def detect_form(rows: Sequence[RawRow], file: str) -> Verdict:
    """Return the form of the file whose first rows these are."""
    rows = [_readable(row) for row in rows]
    good = [row for row in rows if row.problem is None and row.data.strip()][:MOST]
    if not good:
        if not any(row.data.strip() or row.problem is not None for row in rows):
            return Verdict(refusal=f"{file}: it is empty: there is no row in it")
        why = f": {rows[0].problem.message}" if rows[0].problem is not None else ""
        return Verdict(refusal=f"{file}: there is no row that can be read{why}")
    records = [record for row in good if (record := _record(row.data)) is not None]
    if not records:
        return _of_texts(good, file)
    votes = sorted(_votes(records), key=lambda vote: vote.mean, reverse=True)
    best, others, doubt = _settled(votes)
    verdict = Verdict(
        form=best.name,
        share=best.share,
        rows=len(records),
        reasons=[f"{count} of {_rows(len(records))}: {why}" for why, count in best.reasons.most_common(3)],
        runners_up=[(vote.name, vote.share) for vote in others[:3]],
    )
    if not doubt:
        return verdict
    nearest = [(vote.name, vote.share) for vote in [best, *others] if vote.share][:3]
    return replace(verdict, form="", runners_up=nearest, refusal=_refusal(file, doubt, records, votes))


def _readable(row: RawRow) -> RawRow:
    """Return a row without the values that cannot be told, which are a problem only if a form reads them."""
    return row if row.readings is None else replace(row, data=row.readings.without, problem=None)


def _record(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = _decode(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value):
        return {"messages": value}
    return value if isinstance(value, dict) else None


def _decode(data: bytes) -> Any:
    """Return a value of JSON, or of what Python takes for it, such as NaN. JSON, which most are, is read faster."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError):
        return json.loads(data)


def _votes(records: Sequence[Mapping[str, Any]]) -> list[_Votes]:
    there = set().union(*records)
    able = [form for form in map(get_form, forms()) if form.row != TRANSCRIPT]
    # A form that none of them can be is not asked, which is most forms.
    asked = [form for form in able if not form.members or not there.isdisjoint(form.members)]
    # All forms about one record before the next: some of them look at the same of it.
    given = [[_score(form, record) for form in asked] for record in records]
    votes = {form: _Votes(form.name, [0.0] * len(records), Counter()) for form in able}
    for form, answers in zip(asked, zip(*given, strict=True), strict=True):
        reasons = Counter([why for score, why in answers if why])
        votes[form] = _Votes(form.name, [float(score) for score, _ in answers], reasons)
    return list(votes.values())


def _score(form: Form, record: Mapping[str, Any]) -> tuple[float, str]:
    """Return what a form says of a record; one that fails on it, which is a defect, does not know it."""
    try:
        return form.score(record)
    except DEFECTS as error:
        return 0, problem_of(error).message


def _settled(votes: Sequence[_Votes]) -> tuple[_Votes, list[_Votes], str]:
    """Return the best form, the others, and the doubt in it. Forms that contest each other may have one that reads the
    rows of both."""
    best, others = votes[0], [vote for vote in votes[1:] if vote.share]
    doubt = _doubt(best, others)
    for vote in [vote for vote in votes if doubt and vote.share and get_form(vote.name).covers]:
        rest = [other for other in votes if other.share and other.name not in {vote.name, *get_form(vote.name).covers}]
        if not _doubt(vote, rest):
            return vote, [other for other in votes if other.share and other is not vote], ""
    return best, others, doubt


def _doubt(best: _Votes, others: Sequence[_Votes]) -> str:
    """Return why the best form may be the wrong one; nothing if it is not."""
    count = len(best.scores)
    if not best.share:
        return "no form fits"
    if best.share < _MAJORITY:
        return f"{best.name} fits best, but only {round(best.share * count)} of {_rows(count)}"
    for other in others:
        if best.mean - other.mean < _MARGIN:
            return f"{best.name} and {other.name} fit equally well"
        better = sum(theirs >= _FITS and theirs > ours for theirs, ours in zip(other.scores, best.scores, strict=True))
        if better > _CONTESTED * count:
            return f"{best.name} fits most rows, but {other.name} fits {better} of {count} better"
    return ""


def _refusal(file: str, doubt: str, records: Sequence[Mapping[str, Any]], votes: Sequence[_Votes]) -> str:
    members = Counter([key for record in records for key in record])
    shown = ", ".join(f"{key!r} ({count})" for key, count in members.most_common(8)) or "none"
    near = [f"{vote.name}: {why}" for vote in votes for why, _ in vote.reasons.most_common(1) if vote.mean > 0][:3]
    close = f"; closest: {'; '.join(near)}" if near else ""
    near_by = near_form(records, _form_of)
    typo = f"; {near_by}" if near_by else ""
    return (
        f"{file}: cannot tell the form of its rows: {doubt}; members of {_rows(len(records))}: {shown}{close}{typo}; "
        "name the form (--from FORM), or say in a map file where things are (--map FILE)"
    )


def _form_of(records: Sequence[Mapping[str, Any]]) -> str:
    """The form of records, empty where there is a doubt."""
    votes = sorted(_votes(records), key=lambda vote: vote.mean, reverse=True)
    best, _, doubt = _settled(votes)
    return "" if doubt else best.name


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _of_texts(rows: Sequence[RawRow], file: str) -> Verdict:
    """Judge a file without a JSON object: a text, which is taken for a transcript only if somebody says so."""
    texts = [row.data.decode("utf-8", "replace") for row in rows]
    if any(map(_JSON.match, texts)) or PurePath(file).suffix.lower() not in _TEXT_FILES:
        try:
            members_of(rows[0].data)
        except BadRow as error:
            if texts[0].lstrip()[:1] == "{":
                told = problem_of(error)
                refusal = f"{file}: no row is a JSON object; the first is none: {told.pointer}: {told.message}"
                return Verdict(rows=len(rows), refusal=refusal)
        first = texts[0].strip()[:40]
        remedy = _HINTS.get(first[:1], "name the form (--from FORM), a format for transcripts")
        if len(rows) == 1 and _ARRAY_OF_ROWS.match(texts[0]):
            remedy = "if it is one array of all rows, give the file a name that ends in .json"
        return Verdict(rows=len(rows), refusal=f"{file}: no row is a JSON object; it begins {first!r}; {remedy}")
    plain = next((name for name in forms() if get_form(name).row == TRANSCRIPT and name not in formats()), "")
    style = style_of(texts[0])
    if style is not None:
        scores = [get_form(style.name).score({"text": text}) for text in texts]
        if min(scores)[0] >= _FITS:
            return Verdict(form=style.name, share=1.0, rows=len(rows), reasons=[scores[0][1]])
    if found := next(filter(None, map(chat_in, texts)), ""):
        return Verdict(rows=len(rows), refusal=f"{file}: {found} (--from {plain})")
    return Verdict(form=plain, share=1.0, rows=len(rows), reasons=["a file of text, of no format that is known"])
