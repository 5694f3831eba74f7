"""Owns the laws of thoughts: whatever a client is shown of one, and sends back, its text is whole in the next request.

The clients are the official SDKs, over a real connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given

import turnscript as ts
from tests.clients import ChatClient, Client, MessagesClient, ResponsesClient, thinks
from tests.conformance.examples import fewer
from tests.loopback import Loopback
from tests.sdks import anthropic_sdk, openai_sdk
from tests.strategies import events as strategies
from turnscript.core.events import Event, fold, unfold
from turnscript.core.sealed_thoughts import restore_thoughts, sealed

FEWER = fewer()
KEY = b"a key of the server's"
AGENT = frozenset({"type", "summary", "encrypted_content"})


def sealed_answer(response: ts.Response, key: bytes = KEY) -> ts.Response:
    """A whole answer with its thoughts sealed, as its events are."""
    found = fold(sealed(unfold(response), key))
    found.raw = None
    return found


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    with (
        Loopback() as server,
        openai_sdk(server.url) as first,
        anthropic_sdk(server.url) as second,
    ):
        yield {
            "chat": ChatClient(server, first),
            "responses": ResponsesClient(server, first),
            "responses with summaries": ResponsesClient(server, first, reasoning={"summary": "auto"}),
            "an agent": ResponsesClient(server, first, AGENT, store=False, reasoning={"summary": "auto"}),
            "an agent without summaries": ResponsesClient(server, first, AGENT, store=False),
            "messages": MessagesClient(server, second, **thinks("summarized")),
            "messages without thoughts": MessagesClient(server, second, **thinks("omitted")),
        }


NAMES = [
    "chat",
    "responses",
    "responses with summaries",
    "an agent",
    "an agent without summaries",
    "messages",
    "messages without thoughts",
]
PROOFS = NAMES[1:]


def complete(told: list[Event]) -> list[Event]:
    """The events with an end that is complete: of a stream with another one, two SDKs give nothing."""
    end = told[-1]
    assert isinstance(end, ts.MessageEnd)
    if end.finish_reason in ("length", "content_filter"):
        end.finish_reason = "stop"
    return told


STREAMS = strategies.event_lists(cut=False).map(complete)


def thoughts(items: list[ts.Item]) -> list[str]:
    return [strategies.content_of(item) for item in items if isinstance(item, ts.Thinking)]


def restored(request: ts.Request) -> list[str]:
    """The thoughts of a request that was made whole, which must be possible without any loss."""
    assert [] == restore_thoughts(request, KEY)
    return thoughts(request.items)


@pytest.mark.parametrize("name", PROOFS)
@FEWER
@given(response=strategies.responses())
def test_the_thoughts_of_a_whole_answer_come_back(clients: dict[str, Client], name: str, response: ts.Response) -> None:
    request = clients[name].next_request(sealed_answer(response))
    assert thoughts(response.items) == restored(request)
    assert all(item.seal is not None for item in request.items if isinstance(item, ts.Thinking))


@pytest.mark.parametrize("name", PROOFS)
@FEWER
@given(told=STREAMS)
def test_the_thoughts_of_a_stream_come_back(clients: dict[str, Client], name: str, told: list[Event]) -> None:
    expected = thoughts(ts.fold(told).items)
    assert expected == restored(clients[name].next_request_streamed(sealed(told, KEY)))


@FEWER
@given(response=strategies.responses(), told=STREAMS)
def test_an_api_without_proofs_carries_the_text_itself(
    clients: dict[str, Client], response: ts.Response, told: list[Event]
) -> None:
    chat = clients["chat"]
    assert "".join(thoughts(response.items)) == "".join(restored(chat.next_request(sealed_answer(response))))
    expected = "".join(thoughts(ts.fold(told).items))
    assert expected == "".join(restored(chat.next_request_streamed(sealed(told, KEY))))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_client_is_shown_is_what_it_asked_for(clients: dict[str, Client], name: str) -> None:
    """Without the key, so that only what is shown counts."""
    response = ts.Response(items=[ts.Thinking(content=[ts.Text(text="Hm.")])], finish_reason="stop")
    response.items.append(ts.Assistant(content=[ts.Text(text="Hi")]))
    shown = thoughts(clients[name].next_request(sealed_answer(response)).items)
    assert ([""] if "without" in name or "agent" in name else ["Hm."]) == shown
