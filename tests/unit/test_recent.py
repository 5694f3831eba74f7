"""Owns the tests of what is kept of texts: what was made lately, in a number of bytes, whoever asks for it."""

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

MB = 1024 * 1024


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """How many bytes are held that were not before."""
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def asked(number: int, words: str) -> ts.Request:
    """A request with a tool, and a call of it whose argument is long."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": words}}}
    tool = ts.Tool(name=f"write{number}", description=words, parameters=msgspec.Raw(json.dumps(schema).encode()))
    items = [ts.User(content=[]), ts.ToolCall(name=f"write{number}", arguments=json.dumps({"text": words}))]
    return ts.Request(conversation=ts.Conversation(tools=[tool], items=items))


def test_threads_may_share_what_is_kept() -> None:
    requests = [asked(number % 40, f"{number % 40} words " * 20) for number in range(400)]
    formats = [ts.get_format(name) for name in ts.formats()]

    def prompted(request: ts.Request) -> list[str]:
        return [format_.prompt(request).text for format_ in formats]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(prompted, requests))
    assert [*map(prompted, requests[:40])] * 10 == found


def test_states_for_many_lists_of_stop_strings_are_not_kept_for_ever() -> None:
    """Every client has its own, and each character of them takes a hundred bytes of patterns."""
    format_ = ts.get_format("batuta-chatml")

    def parsed(number: int) -> None:
        request = ts.Request(settings=ts.Settings(stop=[f"\nstop {number} {at}" for at in range(256)]))
        format_.prompt(request).parser()

    parsed(-1)
    with measured() as held:
        for number in range(60):
            parsed(number)
        gc.collect()
        some = held()
        for number in range(60, 140):
            parsed(number)
        gc.collect()
        assert held() < 1.2 * some


@pytest.mark.deep
def test_large_calls_and_tools_that_nobody_shows_again_are_not_kept_for_ever() -> None:
    """Agents write whole files as arguments, and every session has other ones."""
    format_ = ts.get_format("batuta-chatml")
    format_.prompt(asked(-1, "words " * 100_000))
    with measured() as held:
        for number in range(40):
            format_.prompt(asked(number, f"{number} words " * 100_000))
        gc.collect()
        assert held() < 90 * MB
