"""Owns transcripts that are nearly what a format writes: members and values that nobody declared, words, attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

MARK = "zz9"
"""A word that stands in no transcript before it is altered."""
_DECODER = json.JSONDecoder()
NAMES = (
    *("args", "arguments", "call_id", "content", "custom", "format", "function", "functionCall", "functionResponse"),
    *(
        "function_call",
        "id",
        "input",
        "input_schema",
        "is_error",
        "item_id",
        "name",
        "namespace",
        "output",
        "parameters",
    ),
    *("role", "status", "strict", "text", "thought", "thoughtSignature", "tool_call_id", "tool_calls"),
    *("tool_use_id", "tools", "type", MARK),
)
"""What APIs call members of calls, results and tools, and a name that none has."""
MARKED = (MARK, [MARK], {MARK: 1}, {"name": MARK}, {"type": MARK, "arguments": "{}"})
NO_JSON = ("True", "01", f'"{MARK}\n"', f'"{MARK}\\q"', f"[{MARK}]", '{"a": 1,}', "1,", "-", "'a'", "NaN", "0x1")
"""What stands where a value of JSON should, and is none."""
_VALUES = (MARK, 22.5, True, [MARK], {MARK: 1}, f'{{"{MARK}": 1}}', f'["{MARK}"]')
_INSERTED = "\ue000"  # stands for a key while JSON is written
_LAYOUT = re.compile(r"[\s\\]+")


def objects(transcript: str) -> Iterator[tuple[int, int]]:
    """Where the JSON objects stand that are in no other."""
    at = 0
    while (at := transcript.find("{", at)) >= 0:
        try:
            end = _DECODER.raw_decode(transcript, at)[1]
        except ValueError:
            at += 1
            continue
        yield at, end
        at = end


def meaning(transcript: str) -> str:
    """A transcript without its layout: white space, escapes of tags, the order of members."""
    pieces: list[str] = []
    last = 0
    for start, end in objects(transcript):
        pairs = json.loads(transcript[start:end], object_pairs_hook=lambda pairs: sorted(pairs, key=repr))
        pieces += [transcript[last:start], json.dumps(pairs)]
        last = end
    return without_layout("".join([*pieces, transcript[last:]]))


def without_layout(text: str) -> str:
    return _LAYOUT.sub("", text)


def _below(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _below(member)


@st.composite
def other_json(draw: st.DrawFn, transcript: str) -> str:
    """A member more or less in one of the objects, one that comes twice, or one with another value."""
    start, end = draw(st.sampled_from([*objects(transcript)]))
    said = json.loads(transcript[start:end])
    places = [place for place in _below(said) if place]
    place = places[draw(st.integers(0, len(places) - 1))]
    key = draw(st.sampled_from([*place]))
    way = draw(st.sampled_from(["more", "less", "twice", "other"]))
    if way == "less":
        del place[key]
    elif way == "other":
        place[key] = draw(st.sampled_from(_VALUES))
    else:
        members, first = list(place.items()), draw(st.booleans())
        value = (_INSERTED if way == "twice" else MARK, MARK)
        place.clear()
        place.update([value, *members] if first else [*members, value])
    text = json.dumps(said, ensure_ascii=False).replace(json.dumps(_INSERTED, ensure_ascii=False), json.dumps(key))
    return f"{transcript[:start]}{text}{transcript[end:]}"


@st.composite
def other_member(draw: st.DrawFn, transcript: str) -> str:
    """A member more in an object, first or last, that may be called as one of an API is."""
    key, value = draw(st.sampled_from(NAMES)), json.dumps(draw(st.sampled_from(MARKED)))
    return _with_member(draw, transcript, key, value)


@st.composite
def no_json(draw: st.DrawFn, transcript: str) -> str:
    """A member more in an object, first or last, whose value is no JSON."""
    return _with_member(draw, transcript, draw(st.sampled_from(NAMES)), draw(st.sampled_from(NO_JSON)))


def _with_member(draw: st.DrawFn, transcript: str, key: str, value: str) -> str:
    start, end = draw(st.sampled_from([*objects(transcript)]))
    if draw(st.booleans()):
        return f'{transcript[: start + 1]}"{key}": {value}, {transcript[start + 1 :]}'
    inside = transcript[: end - 1].rstrip()
    return f'{inside}, "{key}": {value}{transcript[len(inside) :]}'


@st.composite
def other_text(draw: st.DrawFn, transcript: str) -> str:
    """A word anywhere, or an attribute in a tag."""
    ends = [found.start() for found in re.finditer(">", transcript)]
    if ends and draw(st.integers(0, 3)) == 3:
        at = draw(st.sampled_from(ends))
        return f'{transcript[:at]} {MARK}="1"{transcript[at:]}'
    at = draw(st.integers(0, len(transcript)))
    return transcript[:at] + MARK + transcript[at:]
