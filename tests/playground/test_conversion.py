"""Owns the checks of what the playground says of a source: what it was taken for, what became of it, what was lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import turnscript as ts
from turnscript.convert.recording import Recording, read_recording
from turnscript.playground.conversion import Conversion, Converted, converted
from turnscript.playground.examples import examples
from turnscript.playground.telling import MOST_LOSSES, encoded

EXAMPLES = {example.name: example.text for example in examples()}
TARGETS = [*ts.apis(), *ts.formats()]


def shown(source: str, to: str, **more: str) -> Converted:
    return converted(Conversion(source, to, **more))


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_becomes_what_the_library_makes_of_it(name: str, to: str) -> None:
    source = EXAMPLES[name]
    told = shown(source, to)
    assert told.recognised is not None
    if told.fault is not None:
        assert "broken_request" == name
        return
    expected = ts.convert(source, "auto", to)
    value = json.loads(told.value or "") if to in ts.apis() else told.value
    assert expected.value == value
    assert told.losses is not None
    assert [str(loss) for loss in expected.losses] == [
        f"{one.path}: {one.kind}: {one.detail}" for one in told.losses.listed
    ]


@pytest.mark.parametrize(
    ("name", "api", "what"),
    [
        ("chat_request", "openai-chat", "request"),
        ("messages_request", "anthropic-messages", "request"),
        ("responses_request", "openai-responses", "request"),
        ("chat_answer", "openai-chat", "answer"),
        ("messages_stream", "anthropic-messages", "recorded stream"),
        ("transcript", "rwkv-universal", "transcript"),
        ("broken_request", "openai-chat", "request"),
    ],
)
def test_an_example_is_recognised(name: str, api: str, what: str) -> None:
    told = shown(EXAMPLES[name], "openai-responses").recognised
    assert told is not None
    assert (api, what) == (told.name, told.what)
    named = shown(EXAMPLES[name], "openai-responses", from_=api)
    assert named.recognised is not None
    assert (api, "" if named.fault else what) == (named.recognised.name, named.recognised.what)


def test_a_loss_says_where_it_stands() -> None:
    source = EXAMPLES["messages_request"]
    told = shown(source, "openai-chat")
    assert told.losses is not None
    (loss,) = [one for one in told.losses.listed if one.path == "$.top_k"]
    assert loss.place is not None
    data = source.encode("utf-16-le")[2 * loss.place.start : 2 * loss.place.end]
    assert '"top_k": 40' == data.decode("utf-16-le")


def test_a_fault_says_where_it_is() -> None:
    told = shown(EXAMPLES["broken_request"], "anthropic-messages")
    assert told.fault is not None
    assert "$.messages[1].content" == told.fault.where
    assert told.fault.place is not None
    assert '"content": 42' == EXAMPLES["broken_request"][slice(*told.fault.place)]
    told = shown('{"messages": [],\n "n" 1}', "anthropic-messages")
    assert told.fault is not None
    assert ("line 2, column 6", (22, 24)) == (told.fault.where, told.fault.place)


def test_only_so_many_losses_are_listed() -> None:
    body = {"messages": [{"role": "user", "content": "Hi", f"odd_{number}": 1} for number in range(MOST_LOSSES + 7)]}
    told = shown(json.dumps(body), "anthropic-messages", from_="openai-chat").losses
    assert told is not None
    assert (MOST_LOSSES, 8) == (len(told.listed), told.more)  # `max_tokens` is invented


@pytest.mark.parametrize("option", ["to", "from_"])
def test_no_file_is_read_for_a_name(option: str, tmp_path: Path) -> None:
    """Elsewhere a path of a file of formats is a name."""
    path = tmp_path / "own.toml"
    path.write_text('[format]\nname = "own"\nbased_on = "rwkv-universal"\n', encoding="utf-8")
    names = {"to": "openai-chat", "from_": "auto"} | {option: str(path)}
    told = converted(Conversion(EXAMPLES["transcript"], names["to"], names["from_"]))
    assert told.fault is not None
    assert "unknown_name" == told.fault.code


def test_half_of_a_surrogate_pair_is_told_as_an_escape() -> None:
    told = shown(EXAMPLES["chat_request"], "rwkv-universal")
    told.value = "\ud800"
    assert {"value": "\ud800"} == {"value": json.loads(encoded(told))["value"]}


@pytest.mark.parametrize("view", ["archive", "prompt"])
def test_a_view_is_that_of_a_format(view: str) -> None:
    source = EXAMPLES["chat_request"]
    expected = ts.convert(source, "auto", "rwkv-universal", view=view).value
    assert expected == shown(source, "rwkv-universal", view=view).value


def test_a_side_is_chosen_of_what_holds_both() -> None:
    both = ts.render(
        ts.Exchange(ts.parse(EXAMPLES["chat_request"]), ts.parse_response(EXAMPLES["chat_answer"])), "rwkv-universal"
    ).value
    assert shown(both, "openai-chat").fault is not None
    assert '"messages"' in (shown(both, "openai-chat", side="request").value or "")
    assert '"choices"' in (shown(both, "openai-chat", side="response").value or "")


def read_so_far(source: str) -> ts.Exchange:
    recording = Recording()
    response = read_recording([source.encode()], recording)
    assert response is not None
    return ts.Exchange(ts.Request(origin=response.origin), response)


def test_what_a_stream_told_before_it_broke_off_is_kept() -> None:
    source = "\n".join(EXAMPLES["messages_stream"].split("\n")[:14])
    told = shown(source, "openai-chat")
    assert told.fault is not None
    assert "line 14" == told.fault.where
    assert "kept: 1 text" in told.fault.message
    assert told.fault.place is not None
    assert source.endswith(source[slice(*told.fault.place)])
    (choice,) = json.loads(told.value or "")["choices"]
    assert ("Let me look.", "length") == (choice["message"]["content"], choice["finish_reason"])
    assert shown(source, "rwkv-universal").value == ts.render(read_so_far(source), "rwkv-universal").value
    assert told.losses is not None
    assert any("broke off" in one.detail for one in told.losses.listed)


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("data: 7\n\n", {}),
        ("data: x\n\n", {"from_": "openai-chat"}),
        (":", {}),
        (EXAMPLES["messages_stream"], {"side": "request"}),
    ],
)
def test_a_stream_that_tells_nothing_is_a_fault(source: str, more: dict[str, str]) -> None:
    told = shown(source, "openai-chat", **more)
    assert told.fault is not None
    assert told.value is None
