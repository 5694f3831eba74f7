"""Owns the check that JSON in samples is spelled with characters: how a row escapes them changes nothing."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.datasets.samples import WITH_FILES, rows_of
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.form_registry import get_form

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat_template.jinja"
FORMATS = ("openchatml", "rwkv-universal", "rwkv-goose", str(EXAMPLE))


def spelled(value: Any, *, escaped: bool) -> str:
    """JSON, and JSON in its strings, with all letters as escapes or as they are."""
    if isinstance(value, dict):
        members = (f"{string(key, escaped=False)}: {spelled(one, escaped=escaped)}" for key, one in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spelled(one, escaped=escaped) for one in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    inner = nested(value)
    return string(value if inner is None else spelled(inner, escaped=escaped), escaped=escaped)


def nested(text: str) -> Any:
    """What a text says that is an object or array of JSON."""
    try:
        found = json.loads(text) if text[:1] in ("{", "[") else None
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def string(text: str, *, escaped: bool) -> str:
    """A string of JSON. Words such as roles and types are nobody's text, and stay."""
    if not escaped or not re.search("[A-Z ]", text):
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join([f"\\u{ord(one):04x}" if one.isalpha() else json.dumps(one)[1:-1] for one in text]) + '"'


def texts(form: str, row: bytes, name: str) -> Iterator[str]:
    format_ = ts.get_format(name)
    for example in get_form(form).read(row):
        if example.text is None and not example.mask:
            yield format_.write(example.request).text


@pytest.mark.parametrize("name", FORMATS, ids=lambda name: Path(name).name)
@pytest.mark.parametrize("form", WITH_FILES)
def test_escapes_of_a_row_are_in_no_sample(form: str, name: str) -> None:
    for row in rows_of(form):
        lines = row.splitlines() if get_form(form).row == "the whole file" else [row]
        try:
            values = [json.loads(line) for line in lines if line.strip()]
        except ValueError:
            continue
        plain, escaped = ("\n".join(spelled(one, escaped=way) for one in values).encode() for way in (False, True))
        try:
            expected = list(texts(form, plain, name))
        except TurnscriptError:
            continue
        assert expected == list(texts(form, escaped, name))
