"""Owns telling what an unlabelled source is: of which API or format, a request or an answer (requirements D-U-21)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnscript.apis.api import leftover
from turnscript.convert.recording import api_of
from turnscript.convert.registry import (
    apis,
    formats,
    get_api,
    get_format,
    is_stream,
    model_formats,
    openings,
)
from turnscript.core.conversation import Conversation, System, text_content
from turnscript.core.error_object import upstream_error
from turnscript.core.errors import InvalidInput, InvalidRequest, InvalidTranscript
from turnscript.core.json_text import Json, is_json, read_list, read_object, utf8
from turnscript.core.payloads import Source, body_bytes, is_error
from turnscript.engine.nearly import opening_meant

_FILE = re.compile(r"[/\\]|\.(json|jsonl|txt|md|sse)$")
"""What the last word of a file's name has, where one is given in place of what it holds."""

_MARK = "\ufeff"
_BEGINNING = 4096
"""So many characters of a list are looked at to tell it from a transcript."""

_SHORT = 40
"""So many characters of a mark are shown."""

AUTO = "auto"
REQUEST, ANSWER = "request", "response"
SIDES = (AUTO, REQUEST, ANSWER)
"""What a source may be said to be, or which part of an exchange is wanted."""

ONE_SIDE = "a request or an answer, not both"
"""What is expected of a source that is both."""

ONE_REQUEST = "a request"
"""What is expected of a source that is an answer where none can be."""


def detect_api(source: Source) -> str:
    """The name of the API or format that an unlabelled request is in, by requirements D-U-21.

    Raises InvalidInput when nothing fits, naming what was looked for.
    """
    if is_stream(source):
        message = f"this is no request but a recorded stream of {api_of(source).name}; parse_response reads it"
        raise InvalidRequest(message, path="$", expected="a request", got="a stream")
    members = _members_of(source)
    if isinstance(members, str):
        return members
    name = _claimed(members)
    if name:
        return name
    answer = _claimed(members, answers=True)
    if answer:
        message = f"this is no request but an answer of {answer}; parse_response reads it"
        raise InvalidRequest(message, path="$", expected=ONE_REQUEST, got="an answer")
    raise _nobodys(members, "'messages', 'input' or 'prompt'")


def detect_answer(source: Source) -> str:
    """The name of the API that an unlabelled answer is of, whole or as a recorded stream, or of the format that holds
    one. Raises InvalidInput, and UpstreamError for a body that is an error."""
    if is_stream(source):
        return api_of(source).name
    members = _members_of(source)
    if isinstance(members, str):
        return members
    name = _claimed(members, answers=True)
    if name:
        return name
    _refuse_error(members)
    raise _nobodys(members, "'choices', 'output', or 'content' with 'stop_reason'")


def recognised(source: Source) -> tuple[str, bool]:
    """The name of what a source is in, and whether it is an answer. Raises InvalidInput, also if it may be both, and
    UpstreamError for a body that is an error."""
    if is_stream(source):
        return api_of(source).name, True
    members = _members_of(source)
    if isinstance(members, str):
        return members, False
    request, answer = _claimed(members), _claimed(members, answers=True)
    if request and answer:
        message = f"this is a request of {request} and an answer of {answer} in one; say which of them is meant"
        raise InvalidRequest(message, path="$", expected=ONE_SIDE, got="both")
    if not request and not answer:
        _refuse_error(members)
        raise _nobodys(members, "'messages', 'input' or 'prompt' of a request, 'choices', 'output' or 'content'")
    return request or answer, not request


def wrapped(source: Source) -> Source:
    """A bare list of messages as a body that holds it; any other source as it is. Raises InvalidRequest for a list that
    is not JSON, with the line and column that it has there."""
    if isinstance(source, list | tuple):
        return {"messages": source}
    if not isinstance(source, bytes | str) or not _is_list(source):
        return source
    data = body_bytes(source)
    read_list(data)
    return b'{"messages":%b}' % data


def _is_list(source: bytes | str) -> bool:
    """Whether a text begins as a JSON array does, and not as a transcript does that begins with a bracket (`[BOS]`)."""
    if isinstance(source, bytes):
        start = source.removeprefix(_MARK.encode()).lstrip()[:_BEGINNING].decode("utf-8", "ignore")
    else:
        start = source.removeprefix(_MARK).lstrip()[:_BEGINNING]
    return start.startswith("[") and not _claiming(start)


def _members_of(source: Source) -> dict[str, Json] | str:
    """The members of a body; of a transcript the name of its format."""
    if isinstance(source, bytes | str) and not _is_list(source):
        text = source if isinstance(source, str) else utf8(source).decode()
        text = text.removeprefix(_MARK)
        if not text.lstrip().startswith("{"):
            return _detect_format(text)
    return read_object(body_bytes(wrapped(source)))


def _claimed(members: Mapping[str, Json], *, answers: bool = False) -> str:
    """The API that claims a body most surely; empty if none does."""
    best, most = "", 0
    for name in apis():
        api = get_api(name)
        claim = api.claims_response(members) if answers else api.claims(members)
        if claim > most:
            best, most = name, claim
    return best


def _refuse_error(members: Mapping[str, Json]) -> None:
    if is_error(members):
        raise upstream_error(members["error"], leftover(members))


def _nobodys(members: Mapping[str, Json], expected: str) -> InvalidRequest:
    keys = ", ".join(map(repr, list(members)[:8])) or "no member"
    message = f"cannot tell which API this body is for (it has {keys}); name it, one of: {', '.join(apis())}"
    return InvalidRequest(message, path="$", expected=expected, got=keys)


class Recognised(NamedTuple):
    """The format of a transcript, and why it is that one: the rest of a sentence, for people."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"read as {self.name}: {self.reason}"


def recognised_transcript(source: Source) -> Recognised | None:
    """Return the format of an unlabelled source and why it is that; None for a body, a list and a stream, which name
    themselves."""
    if not isinstance(source, bytes | str) or is_stream(source) or _is_list(source):
        return None
    text = (source if isinstance(source, str) else utf8(source).decode()).removeprefix(_MARK)
    return None if text.lstrip().startswith("{") else recognise(text)


def recognise(text: str) -> Recognised | None:
    """Return which format a text is a transcript of, None if it begins as one of none that is registered.

    Of several that it may be in, that is the one whose marks stand around what is said; the format of a well-known
    model only where it has all marks that a registered one has, and more. Where none has a mark that the others lack,
    it is the first of those that read it, if they read the same. Raises InvalidInput if they do not.
    """
    claiming = _claiming(text)
    if not claiming:
        return None
    of_models = [name for name in model_formats() if _may_begin(name, text) and get_format(name).claims(text)]
    left, better, marks = _fitting(claiming, of_models, text)
    cores = {name: {mark.strip() for mark in found} for name, found in marks.items()}
    alike = [one for one in of_models if any(cores[one] == cores[name] for name in left)]
    meant = {name: get_format(name).unescaped(text) for name in (*left, *alike)}
    if len(set(meant.values())) == 1:
        alike = []  # no escape in the text is one to some of them alone
    own = {meant[name] for name in left}
    alike = [one for one in alike if meant[one] not in own or any(marks[one] == marks[name] for name in left)]
    groups = _read_alike([*left, *better, *alike], text)
    first, *others = [group for group in groups if not {*group}.isdisjoint(better)] or groups
    if others:
        known = [name for group in groups for name in group if name in left or name == group[0]]
        names = " or ".join(known)
        message = f"this may be {names}, which read it differently; say which of them it is"
        raise InvalidInput(message, line=1, column=1, expected=names, got="what begins as any of them")
    return Recognised(first[0], _reason(first, marks, text))


def _fitting(
    claiming: list[str], of_models: list[str], text: str
) -> tuple[list[str], list[str], dict[str, frozenset[str]]]:
    """Return the formats of which no other has all the marks in a text, and more; those of models that have more; and
    the marks of all. Marks that stand only in what is said count for none that is returned."""
    marks = {name: get_format(name).marks_in(text) for name in (*claiming, *of_models)}
    common = frozenset.intersection(*marks.values())
    read: set[str] = set()
    while True:
        left = _most_marked(claiming, marks)
        better = _most_marked([one for one in of_models if all(marks[name] < marks[one] for name in left)], marks)
        unread = [name for name in (*left, *better) if name not in read and marks[name] != common]
        if not unread:
            return left, better, marks
        for name in unread:
            marks[name] = common | get_format(name).marks_around(text, marks[name] - common)
        read.update(unread)


def _most_marked(names: list[str], marks: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the formats of which no other has all the marks in a text, and more."""
    return [name for name in names if not any(marks[name] < marks[other] for other in names)]


def most_marked(names: list[str], text: str) -> list[str]:
    """Return which of these formats a text begins as a transcript of, without those whose marks in it others have all
    of, and more."""
    marks = {name: get_format(name).marks_in(text) for name in names if get_format(name).claims(text)}
    return _most_marked([*marks], marks)


def _of_models(text: str) -> list[str]:
    """Return the formats of well-known models that a text may be a transcript of."""
    return most_marked([name for name in model_formats() if _may_begin(name, text)], text)


def _reason(chosen: list[str], marks: Mapping[str, frozenset[str]], text: str) -> str:
    """Return why a text is in the formats that were chosen, and not in others that it begins as."""
    lesser = [found for found in marks.values() if found < marks[chosen[0]]]
    alone = marks[chosen[0]].difference(*lesser)
    if not lesser or not alone:
        return "no other format begins so" if len(marks) == 1 else "no other format has more of what stands in it"
    shown = min(alone, key=lambda mark: (len(mark) > _SHORT, text.index(mark), mark))
    more = f", and {' and '.join(chosen[1:])} would read it alike" if chosen[1:] else ""
    return f"it has {shown[:_SHORT]!r}{more}"


def _may_begin(name: str, text: str) -> bool:
    """Return whether what opens the turns of a format stands near the beginning of a text. No table is built for it."""
    begun = text[:_BEGINNING]
    return any(opening in begun for opening in openings(name) if opening)


def _read_alike(names: list[str], text: str) -> list[list[str]]:
    """Return the formats that can read a text, those that read the same together; all together if none can."""
    if len(names) == 1:
        return [names]
    readings: list[tuple[Conversation, list[str]]] = []
    for name in names:
        try:
            said = _without_empty_instructions(get_format(name).parse(text).conversation)
        except InvalidTranscript:
            continue
        alike = next((group for other, group in readings if (other.items, other.tools) == (said.items, said.tools)), [])
        if not alike:
            readings.append((said, alike))
        alike.append(name)
    return [alike for _, alike in readings] or [names]


def _without_empty_instructions(said: Conversation) -> Conversation:
    """Return what is said. Some formats always write instructions, and read empty ones as none."""
    first = said.items[0] if said.items else None
    empty = isinstance(first, System) and not first.open and not text_content(first.content)
    return Conversation(said.items[1:], said.tools) if empty else said


def _claiming(text: str) -> list[str]:
    """Return the formats that a text begins as a transcript of; where no turn of one begins, those that begin so."""
    known = {name: get_format(name) for name in formats()}
    begun, starts = text.removeprefix(_MARK).lstrip(), {name: one.document.start for name, one in known.items()}
    claiming = [name for name, one in known.items() if one.claims(text)]
    return claiming or [name for name, start in starts.items() if start and begun.startswith(start)]


def nearest(text: str) -> tuple[str, str]:
    """Return the format that a text nearly begins as a transcript of, and the opening that it nearly begins with; empty
    if there is none, or if it is one of a well-known model."""
    if _of_models(text):
        return "", ""
    known = {name: opening_meant(get_format(name).document, text) for name in formats()}
    return next(((name, opening) for name, opening in known.items() if opening), ("", ""))


def _detect_format(text: str) -> str:
    found = recognise(text)
    if found is not None:
        return found.name
    if not text.strip() or is_json(text):
        read_object(text)  # says that it is empty, or what it is instead of an object
    first, *more = text.strip().split("\n", 1)
    word = first.rsplit(None, 1)[-1]
    is_name = not more and "://" not in word and "<" not in word and _FILE.search(word)
    remedy = "give what a file holds, not its name" if is_name else "name the format"
    name, opening = nearest(text)
    remedy = f"that is nearly {opening!r} of {name}; correct it, or name the format" if name else remedy
    known = _of_models(text)
    remedy = f"it begins as a transcript of {' or '.join(known)} does; name the format" if known else remedy
    first = first[:40]
    message = f"neither JSON nor a transcript of a known format (it begins {first!r}); {remedy}"
    raise InvalidInput(message, line=1, column=1, expected=f"JSON or one of: {', '.join(formats())}", got=first)
