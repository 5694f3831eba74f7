"""Owns requests that say little and mean much: what they name, go on from or unpack has the limit of a body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.gateway.stage import APIS, CHATS, Stage, Told, answer, body_of, is_refused, named
from turnscript.apis.api import Api
from turnscript.core.conversation import Item, Request, Text, Thinking, User
from turnscript.core.errors import TooLarge
from turnscript.core.signatures import seal, unpacked_size, unseal
from turnscript.gateway.aside import LARGE

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

LONGEST = 1_000_000
LONG = "word " * 120_000
STORING = [api for api in APIS if api.serving.stored]
COMPACTING = [api for api in APIS if api.serving.compacting]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"max_body": LONGEST}) as made:
        yield made


def body_with(api: Api, items: list[Item]) -> bytes:
    """A request that ends in a question, behind some items."""
    request = Request()
    request.conversation.items += [*items, User(content=[Text(text="And?")])]
    request.settings.model, request.settings.max_tokens = "m", 64
    return bytes(api.render_request(request).data)


def thought(sealed: str) -> Thinking:
    """A thought of which the client has kept little but the proof."""
    return Thinking(content=[Text(text="Hm.")], signature=sealed, encrypted=sealed)


PROVING = [api for api in CHATS if b"ts1.proof" in body_with(api, [thought("ts1.proof")])]


@pytest.mark.parametrize("api", STORING, ids=named)
def test_an_item_that_is_named_again_and_again_counts_each_time(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    kept = stage.ask(api, stream=False, text=LONG, store=True).json["id"]
    [item] = stage.client.get(f"{api.endpoint}/{kept}/input_items").json()["data"]
    reference = {"type": "item_reference", "id": item["id"]}

    def asked(count: int) -> Told:
        body: dict[str, Any] = msgspec.json.decode(body_of(api, stream=False))
        return stage.post(api, msgspec.json.encode(body | {"input": [reference] * count}))

    assert "Hello" == asked(1).text
    assert LONG.encode() in stage.asks[0][-1].body
    before = len(stage.asks[0])
    for count in (2, 1000):
        refused = asked(count)
        is_refused(refused, TooLarge(LONGEST))
        assert "with the answers and items that it names" in str(refused.json)
    assert before == len(stage.asks[0])


@pytest.mark.parametrize("api", STORING, ids=named)
def test_a_conversation_that_goes_on_is_as_long_as_one_that_is_sent_whole(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    first = stage.ask(api, stream=False, text=LONG, store=True).json["id"]
    second = stage.ask(api, stream=False, store=True, previous_response_id=first)
    assert "Hello" == second.text
    third = stage.ask(api, stream=False, text=LONG, store=True, previous_response_id=second.json["id"])
    is_refused(third, TooLarge(LONGEST))
    assert "Hello" == stage.ask(api, stream=False, previous_response_id=second.json["id"]).text


def test_some_apis_carry_proofs() -> None:
    assert 2 == len(PROVING)


@pytest.mark.parametrize("api", PROVING, ids=named)
def test_what_seals_hold_counts_as_if_it_had_been_sent(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    sealed = seal(LONG, stage.gateway.service._signing_key)
    assert 100 * len(sealed) < len(LONG)
    assert "Hello" == stage.post(api, body_with(api, [thought(sealed)])).text
    for count in (2, 100):
        body = body_with(api, [thought(sealed)] * count)
        assert len(body) < LARGE
        refused = stage.post(api, body)
        is_refused(refused, TooLarge(LONGEST))
        assert "with what is sealed in it" in str(refused.json)


@pytest.mark.parametrize("api", PROVING, ids=named)
def test_a_seal_that_somebody_else_made_counts_before_it_is_found_out(stage: Stage, api: Api) -> None:
    sealed = seal(LONG, b"another key of another server")
    assert 200 == stage.post(api, body_with(api, [thought(sealed)])).status
    is_refused(stage.post(api, body_with(api, [thought(sealed)] * 2)), TooLarge(LONGEST))


@pytest.mark.parametrize("api", COMPACTING, ids=named)
def test_summaries_count_as_if_they_had_been_sent(stage: Stage, api: Api) -> None:
    compacting = api.serving.compacting
    assert compacting is not None
    stage.play(answer(LONG))
    said = stage.client.post(compacting.path, content=body_of(api, stream=False)).json()
    [item] = [one for one in said["output"] if "encrypted_content" in one]
    stage.play(answer("Hello"))

    def asked(count: int) -> Told:
        body: dict[str, Any] = msgspec.json.decode(body_of(api, stream=False))
        return stage.post(api, msgspec.json.encode(body | {"input": [item] * count + body["input"]}))

    assert "Hello" == asked(1).text
    is_refused(asked(2), TooLarge(LONGEST))


def test_the_size_of_a_seal_is_known_without_its_key() -> None:
    sealed = seal("word " * 1000, b"a key of at least sixteen")
    assert 5000 + len('{"thinking":""}') == unpacked_size(sealed)
    assert 100 + 1 == unpacked_size(sealed, 100)
    assert 1 == unpacked_size(sealed, 0)
    for none in ("", "ts1.", "ts1.AAAA", "ts2." + sealed[4:], sealed[:40], "ts1.é"):
        assert 0 == unpacked_size(none)
        assert unseal(none, b"a key of at least sixteen") is None
