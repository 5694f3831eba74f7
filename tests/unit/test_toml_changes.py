"""Owns random changes to registered tables: each gives a fault with its key, or a format that works."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

import turnscript as ts
from tests import corpora
from tests.conformance.test_format_laws import check_inverse
from turnscript.formats.format import Format
from turnscript.tableio import InvalidFormat, read_formats
from turnscript.tableio.structs import data_of
from turnscript.tableio.writing import write_toml


def load(text: str) -> list[Format]:
    return read_formats(text, {name: ts.get_format(name) for name in ts.formats()})


VALUES: list[Any] = [3, True, "", "\n", "x", "<a>", "</a>", "\n\n", [], {}, [{}], ["x"], [""], {"a": "b"}]
VALUES += ["text", "json-call", "parts", "tool_call", "thinking", "assistant", "system", "named", "hidden"]
PROBES = ["two_rounds", "thinking_two_regions", "text_and_parallel_calls", "result_orphan", "hostile_thinking"]
PROBES += ["hostile_generic", "names", "prefill", "empty_everything", "arguments_lines_and_quotes"]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside tables and lists."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def changed(data: dict[str, Any], chance: random.Random) -> None:
    """One value taken away, replaced, doubled, or put where another stood."""
    path = chance.choice(list(places(data)))
    holder, key = at(data, path[:-1]), path[-1]
    way = chance.random()
    if way < 0.3:
        del holder[key]
    elif way < 0.5:
        holder[key] = copy.deepcopy(at(data, chance.choice(list(places(data)))))
    elif way < 0.6 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif way < 0.7 and isinstance(holder, dict):
        holder[chance.choice(["opn", "without", "of", "group", "lead", "head_end"])] = chance.choice(VALUES)
    else:
        holder[key] = chance.choice(VALUES)


@pytest.mark.parametrize("seed", range(150))
def test_a_changed_table_is_refused_or_works(seed: int) -> None:
    """Whatever is declared: an InvalidFormat, or a format that writes, asks, and reads back what it wrote."""
    chance = random.Random(seed)
    data = {"format": [copy.deepcopy(data_of(ts.get_format(chance.choice(ts.formats()))))]}
    changed(data, chance)
    try:
        [format_] = load(write_toml(data)) or [ts.get_format(ts.formats()[0])]
    except InvalidFormat:
        return
    for name in PROBES:
        check_inverse(format_, corpora.load(name))
        parser = format_.prompt(corpora.load(name)).parser()
        assert parser.feed("Hi <b> ```json\n{}") + parser.close()
