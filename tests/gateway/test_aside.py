"""Owns the thread for large requests by itself: what is done there, in which order, and that it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from tests.gateway.stage import CHATS, Stage, named
from turnscript.apis.api import Api
from turnscript.core.conversation import Assistant, Request, Text, User
from turnscript.gateway.aside import LARGE, Aside

PLACES: list[str] = []


class Thing:
    """Something that notes in which thread it is freed."""

    def __del__(self) -> None:
        PLACES.append(threading.current_thread().name)


def held(size: int, *, closed: bool = False) -> tuple[int, set[str]]:
    """How many of 5000 things are left after a list of them was to be freed, and where the others have gone."""
    PLACES.clear()
    aside, things = Aside(), [Thing() for _ in range(5000)]
    if closed:
        aside.close()
    aside.free(things, size)
    if not closed:
        asyncio.run(_until_done(aside))
        aside.close()
    return len(things), set(PLACES)


async def _until_done(aside: Aside) -> None:
    await aside.run(LARGE)(lambda: None)


def test_what_a_large_request_held_is_freed_in_the_thread() -> None:
    left, places = held(LARGE)
    assert 0 == left
    assert {"large requests_0"} == places


def test_what_a_small_one_held_stays_for_its_last_user() -> None:
    assert (5000, set()) == held(LARGE - 1)


def test_a_closed_thread_frees_nothing() -> None:
    assert (5000, set()) == held(LARGE, closed=True)


class Noting(Aside):
    """Notes what it is given to free."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[int, int]] = []

    def free(self, things: list[Any], size: int) -> None:
        """Free it, too."""
        self.given.append((len(things), size))
        super().free(things, size)


def long(api: Api, **members: Any) -> bytes:
    """A large request of 4001 items."""
    request = Request()
    request.settings.model, request.settings.max_tokens, request.settings.stream = "m", 64, True
    for _ in range(2000):
        request.conversation.items += [
            User(content=[Text(text="words " * 16)]),
            Assistant(content=[Text(text="words " * 16)]),
        ]
    request.conversation.items.append(User(content=[Text(text="Hello")]))
    body: Any = api.render_request(request).value
    return msgspec.json.encode(body | members)


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_the_items_of_an_answered_request_are_freed(api: Api) -> None:
    with Stage() as stage:
        stage.gateway.service.aside = aside = Noting()
        body = long(api)
        assert "Hello" == stage.post(api, body).text
        stage.until(lambda: aside.given)
        stage.gateway.run(_until_done(aside))
        [(items, size)] = aside.given
        assert 4001 == items
        assert len(body) <= size < len(body) + 100  # with what its path says of it


@pytest.mark.parametrize("api", [api for api in CHATS if api.serving.stored], ids=named)
def test_those_that_an_answer_in_the_background_is_made_of_are_not(api: Api) -> None:
    with Stage() as stage:
        stage.gateway.service.aside = aside = Noting()
        told = stage.post(api, long(api, background=True))
        assert "Hello" == told.text
        stage.until(lambda: aside.given)
        assert [(0, 0)] == aside.given
