"""Owns what a program can say of turnscript's values with `turnscript`'s own names; mypy reads each claim here."""

import copy
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, assert_type

import pytest

import turnscript as ts
from turnscript import datasets

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def events_of(prompt: ts.Prompt, pieces: Iterable[str]) -> Iterator[ts.Event]:
    parser: ts.TurnParser = prompt.parser()
    for piece in pieces:
        yield from parser.feed(piece)
    yield from parser.close()


def retold(chunks: Iterable[bytes], source: ts.Api, target: ts.Api, request: ts.Request) -> bytes:
    parser: ts.StreamParser = source.stream_parser()
    renderer: ts.StreamRenderer = target.stream_renderer(request)
    try:
        told = [renderer.send(parser.feed(chunk)) for chunk in chunks]
        return b"".join([*told, renderer.send(parser.close()), renderer.close()])
    except ts.UpstreamError as error:
        return renderer.fail(error)


def said(event: ts.Event) -> str:
    """A match over all events is known to be whole."""
    match event:
        case ts.PartStart():
            return event.part.kind
        case ts.PartDelta():
            return event.text
        case ts.PartEnd():
            return "end"
        case ts.MessageEnd():
            return str(event.finish_reason)


def test_an_agent_can_be_annotated() -> None:
    format_: ts.Format = ts.get_format("ai00-v1")
    prompt: ts.Prompt = format_.prompt(ts.parse(BODY))
    spans: list[ts.Span] = prompt.spans
    assert prompt.text == "".join([span.text for span in spans])
    assert ["assistant", "He", "llo", "end", "stop"] == [said(event) for event in events_of(prompt, ["He", "llo"])]


def test_a_proxy_can_be_annotated() -> None:
    chat = ts.get_api("openai-chat")
    answer = ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])], finish_reason="stop")
    renderer = chat.stream_renderer(ts.parse(BODY))
    piece = renderer.send([ts.PartStart(0, ts.Assistant()), ts.PartEnd(0, answer.items[0]), ts.MessageEnd("stop")])
    told = retold([piece, renderer.close()], chat, ts.get_api("anthropic-messages"), ts.parse(BODY))
    assert b'"Hello"' in told
    assert b"event: error" in retold([piece[:99]], chat, ts.get_api("anthropic-messages"), ts.parse(BODY))


def test_a_value_is_a_dict_of_an_api_and_a_text_of_a_format() -> None:
    source: ts.Source = BODY
    request = ts.parse(source)
    api, format_ = ts.get_api("openai-chat"), ts.get_format("rwkv-universal")
    assert BODY == assert_type(api.render_request(request).value, dict[str, Any])
    assert "<<USER>>" in assert_type(format_.render(request, view="prompt").value, str)
    answer = ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])], finish_reason="stop")
    assert "choices" in assert_type(api.render_response(answer, request).value, dict[str, Any])


def test_a_value_is_what_its_name_means() -> None:
    """Which of both it is, only the name says: so nothing has to be asserted of it."""
    made: ts.Rendered[Any] = ts.convert(BODY, "openai-chat", "anthropic-messages")
    roles = [message["role"] for message in made.value["messages"]]
    assert ["user"] == roles
    text: str = ts.render(ts.parse(BODY), "rwkv-universal", view="prompt").value
    assert text.startswith("<<USER>>")


def test_what_a_fill_and_a_bad_table_give_has_a_name() -> None:
    fill: ts.FillPrompt = ts.get_format("openchatml").fill_prompt(ts.Fill(prefix="a", suffix="b"))
    assert fill.stops
    with pytest.raises(ts.InvalidFormat, match="cannot read the format file"):
        ts.get_format("no-such-file.toml")


def test_what_is_replayed_and_what_is_found_has_a_name() -> None:
    prompt = ts.get_format("ai00-v1").prompt(ts.parse(BODY))
    turn: ts.Generated | None = prompt.generated(ts.fold(events_of(prompt, ["Hello"])))
    assert turn is not None
    assert "Hello" == turn.text
    found: list[ts.Finding] = ts.get_format("rwkv-universal").check("Hello")[1].all
    assert [(1, "fault")] == [(one.line, one.kind) for one in found]


def test_values_are_copied_and_pickled() -> None:
    request = ts.parse(BODY)
    events = list(events_of(ts.get_format("ai00-v1").prompt(request), ["Hello"]))
    for value in (
        request,
        ts.fold(events),
        events,
        ts.Loss("$", "dropped", "why"),
        ts.Exchange(request, ts.Response()),
    ):
        assert value == pickle.loads(pickle.dumps(value)) == copy.deepcopy(value)


def test_a_prompt_shows_how_long_it_is() -> None:
    prompt = ts.get_format("ai00-v1").prompt(ts.parse(BODY))
    assert f"Prompt({len(prompt.text)} characters, no losses)" == repr(prompt)


def test_a_shell_completes_public_names_alone() -> None:
    assert sorted(ts.__all__) == [name for name in dir(ts) if not name.startswith("_")]


def test_only_a_part_of_a_build_may_have_no_report(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "One."}\n{"text": "Two."}\n')
    plan = datasets.Plan(inputs=(str(rows),), format="rwkv-goose", tokenizer="bytes", outputs=("jsonl",))
    report: datasets.Report = datasets.build(plan, tmp_path / "whole")
    part: datasets.Report | None = datasets.build(plan, tmp_path / "part", executor=datasets.Shard(1, 2))
    assert (2, None) == (report.rows, part)
