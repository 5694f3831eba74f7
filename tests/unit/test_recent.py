"""Owns the tests of what is kept of texts: what was made lately, in a number of bytes."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest

import turnscript as ts
from turnscript.engine.recent import MB, recent
from turnscript.engine.states import States


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """How many bytes are held that were not before."""
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def counted(held: int) -> tuple[Callable[[str], str], list[str]]:
    """A function of a text that is kept, and what it was really called with."""
    made: list[str] = []

    @recent(held)
    def double(text: str) -> str:
        made.append(text)
        return text * 2

    return double, made


def test_what_was_made_is_made_once() -> None:
    double, made = counted(MB)
    assert ["abab"] * 3 == [double("ab") for _ in range(3)]
    assert "" == double("") == double("")
    assert ["ab", ""] == made


@pytest.mark.parametrize("length", [1, 100, 1000])
def test_no_more_is_kept_than_was_allowed(length: int) -> None:
    letter = "\N{ROCKET}"
    texts = [f"{number}{letter * length}" for number in range(20_000 // length + 400)]

    @recent(200_000, weight=3)
    def double(text: str, more: tuple[str, ...]) -> str:
        return text * 2

    with measured() as held:
        for text in texts:
            double(text, (text,))
        assert 10_000 < held() < 250_000


def test_what_is_too_large_pushes_nothing_out() -> None:
    double, made = counted(100_000)
    double("a")
    for _ in range(3):
        double("b" * 50_000)
    double("a")
    assert ["a"] == [text for text in made if len(text) == 1]


def test_the_newest_stays() -> None:
    double, made = counted(10_000)
    texts = [f"{number}" * 100 for number in range(100)]
    for text in texts:
        double(text)
    made.clear()
    double(texts[-1])
    double(texts[0])
    assert [texts[0]] == made


def test_threads_may_share_it() -> None:
    double, _ = counted(20_000)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(double, [f"{number % 300}" * 20 for number in range(20_000)]))
    assert [f"{number % 300}" * 40 for number in range(20_000)] == found


def test_states_for_many_lists_of_stop_strings_are_not_kept_for_ever() -> None:
    """Every client has its own, and each character of them takes a hundred bytes of patterns."""
    format_ = ts.get_format("batuta-chatml")
    for number in range(120):
        request = ts.Request(settings=ts.Settings(stop=[f"\nstop {number} {at}" for at in range(256)]))
        format_.prompt(request).parser()
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is States and len(one._stops) == 256]
    assert 1 <= len(kept) < 60


@pytest.mark.deep
def test_large_calls_and_tools_that_nobody_shows_again_are_not_kept_for_ever() -> None:
    """Agents write whole files as arguments, and every session has other ones."""
    format_ = ts.get_format("batuta-chatml")

    def render(number: int) -> None:
        words = f"{number} words " * 100_000
        schema = {"type": "object", "properties": {"text": {"type": "string", "description": words}}}
        tool = ts.Tool(name="write", description=words, parameters=msgspec.Raw(json.dumps(schema).encode()))
        items = [ts.User(content=[]), ts.ToolCall(name="write", arguments=json.dumps({"text": words}))]
        format_.prompt(ts.Request(conversation=ts.Conversation(tools=[tool], items=items)))

    render(-1)
    with measured() as held:
        for number in range(40):
            render(number)
        gc.collect()
        assert held() < 90 * MB
