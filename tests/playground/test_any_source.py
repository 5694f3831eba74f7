"""Owns the law that nothing which somebody pastes makes the playground fail: it is a result, or a fault."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from turnscript.playground.conversion import Conversion, converted
from turnscript.playground.examples import examples
from turnscript.playground.play import Play, played
from turnscript.playground.prompts import Ask, prompted
from turnscript.playground.telling import encoded

SOURCES = [example.text for example in examples()]
NAMES = [*ts.apis(), *ts.formats()]
ODD: list[Any] = [
    None,
    0,
    -1,
    True,
    "",
    "\ud800",
    "<<USER>>",
    [],
    {},
    [None],
    {"type": "text"},
    {"text": 1},
    1e300,
    10**400,
]
TEXTS = ["<<", ">>", '"', "\\ud800", "\U0001f600", "{", "]", "\n", "data: ", "1e999", "<|im_end|>", "null", "\x00"]


@st.composite
def sources(draw: st.DrawFn) -> str:
    """An example in which a value is another one, or a stretch is another text."""
    source = draw(st.sampled_from(SOURCES))
    if draw(st.booleans()) and source.startswith("{"):
        return json.dumps(changed(draw, json.loads(source)))
    start = draw(st.integers(0, len(source)))
    end = draw(st.integers(start, min(len(source), start + 40)))
    return source[:start] + draw(st.sampled_from(TEXTS)) + source[end:]


def changed(draw: st.DrawFn, value: Any) -> Any:
    """The same value with one inside it replaced, at random."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(ODD))
    key = draw(st.sampled_from(keys))
    value[key] = changed(draw, value[key])
    return value


@given(sources(), st.sampled_from(NAMES), st.sampled_from(["auto", *NAMES]))
def test_a_conversion_is_a_value_or_a_fault(source: str, to: str, from_: str) -> None:
    told = converted(Conversion(source, to, from_))
    assert (told.value is None) == (told.losses is None)
    assert told.value is not None or told.fault is not None
    assert json.loads(encoded(told))


@given(sources(), st.sampled_from(ts.formats()), st.sampled_from(["", "bytes", "rwkv-world"]), st.booleans())
def test_a_prompt_is_pieces_or_a_fault(source: str, format_: str, tokenizer: str, thinking: bool) -> None:
    told = prompted(Ask(source, format_, thinking=thinking, tokenizer=tokenizer))
    assert (told.losses is None) == (told.fault is not None)
    assert json.loads(encoded(told))


@given(sources(), st.sampled_from(ts.formats()), st.none() | sources(), st.integers(1, 50))
def test_a_text_is_played_or_there_is_a_fault(source: str, format_: str, text: str | None, size: int) -> None:
    told = played(Play(format_, source, text=text, size=size))
    assert bool(told.steps) == (told.fault is None)
    assert json.loads(encoded(told))
