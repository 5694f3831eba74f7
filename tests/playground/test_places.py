"""Owns the checks of places: a path or a line leads to its stretch of the source, whatever else stands there."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.playground.places import Place, Places

BODY = """{
  "model": "m", "top_k" : 40,
  "messages": [{"role": "user", "content": [{"type": "text", "a b.c[1]": null}, 1.5e3]}, {}, []],
  "deep": {"deep": {"deep": true}}, "twice": 1, "twice": [2]
}"""


def units(source: str, place: Place | None) -> str | None:
    """What a browser takes for that stretch."""
    if place is None:
        return None
    return source.encode("utf-16-le")[2 * place.start : 2 * place.end].decode("utf-16-le")


def found(source: str, path: str) -> str | None:
    return units(source, Places(source, [path]).of(path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.model", '"model": "m"'),
        ("$.top_k", '"top_k" : 40'),
        ("$.messages[0].role", '"role": "user"'),
        ("$.messages[0].content[0]", '{"type": "text", "a b.c[1]": null}'),
        ("$.messages[0].content[0].a b.c[1]", '"a b.c[1]": null'),
        ("$.messages[0].content[1]", "1.5e3"),
        ("$.messages[1]", "{}"),
        ("$.messages[2]", "[]"),
        ("$.deep.deep.deep", '"deep": true'),
        ("$.twice", '"twice": [2]'),
    ],
)
def test_a_path_leads_to_its_member_with_its_name(path: str, expected: str) -> None:
    assert expected == found(BODY, path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.messages[0].content[1].detail", "1.5e3"),
        ("$.messages[2][7]", "[]"),
        ("$.top_k.more[3].and", '"top_k" : 40'),
        ("$.max_tokens", None),
        ("$", None),
        ("items[3]", None),
        ("", None),
    ],
)
def test_what_is_not_there_is_shown_by_the_nearest_thing_around_it(path: str, expected: str | None) -> None:
    assert expected == found(BODY, path)


def test_a_bare_list_of_messages_has_the_paths_of_a_body() -> None:
    assert '"role": "user"' == found('[{"role": "user"}, {}]', "$.messages[0].role")


def test_places_are_counted_as_browsers_count() -> None:
    source = '{"a": "\U0001f600\U0001f600", "b": 1}'
    assert '"b": 1' == found(source, "$.b")
    assert (source.index('"b"') + 2) == (Places(source, ["$.b"]).of("$.b") or Place(0, 0)).start


def test_a_line_and_a_column_lead_into_the_text() -> None:
    source = "one\ntwo \U0001f600 words\n\nend"
    places = Places(source)
    assert "two \U0001f600 words" == units(source, places.of("line 2.status"))
    assert "words" == units(source, places.line(2, 7))
    assert "d" == units(source, places.line(4, 9))
    assert [None, None] == [places.line(3), places.line(9, 1)]


def paths(value: Any, at: str = "$") -> list[tuple[str, Any]]:
    """All paths of a value, and what is there."""
    if isinstance(value, dict):
        inner = [(f"{at}.{key}", one) for key, one in value.items()]
    elif isinstance(value, list):
        inner = [(f"{at}[{index}]", one) for index, one in enumerate(value)]
    else:
        inner = []
    return inner + [deeper for path, one in inner for deeper in paths(one, path)]


KEYS = st.text(st.sampled_from('ab.[]"\\\n\U0001f600 {}:,'), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('x{}[]",:\\\U0001f600\n')),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(JSON, st.sampled_from([None, 2]))
def test_every_path_of_a_body_leads_to_its_value(value: Any, indent: int | None) -> None:
    """Where two members have one path, as `a.b` and `b` in `a` have, either is right."""
    body = {"body": value}
    source = json.dumps(body, ensure_ascii=False, indent=indent)
    known: dict[str, list[Any]] = {}
    for path, one in paths(body):
        known.setdefault(path, []).append(one)
    places = Places(source, list(known))
    for path, values in known.items():
        text = units(source, places.of(path)) or ""
        assert any(text.endswith(json.dumps(one, ensure_ascii=False)) or indent for one in values)
        name, _ = json.JSONDecoder().raw_decode(text)
        rest = text[json.JSONDecoder().raw_decode(text)[1] :].strip()
        assert name in values or json.loads(rest.removeprefix(":")) in values


@pytest.mark.parametrize(
    "source", ["", "{", "]", '{"a', '{"a":}', "[1 2", '{"a" 1}', "{,,}", '"', "nul", '{"\\ud800": 1}', "\ufeff{}"]
)
def test_what_is_no_json_has_no_places_and_raises_nothing(source: str) -> None:
    assert found(source, "$.b.c") is None


@pytest.mark.deep
@pytest.mark.parametrize(
    "source", ["[" * 10_000, '{"a":' * 10_000, '{"' + "k" * 10_000 + '":[' + "1," * 10_000 + "1]}"]
)
def test_a_hostile_source_takes_little_memory(source: str) -> None:
    """The paths of all that is there would take a hundred megabytes."""
    asked = ["$.a", "$.messages[0]", f"$.{'k' * 10_000}[7]", "$.a.7.b"]
    tracemalloc.start()
    try:
        places = Places(source, asked)
        for path in asked:
            places.of(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
