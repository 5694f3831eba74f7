"""What holds of every prompt that a template writes: nothing is forged, prompts grow, and spans say who wrote what."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.chat_templates.oracle import SAMPLES

PLACES = ("system", "user", "thought", "text", "value", "key", "result", "last", "question", "description", "property")
CALL = "call12345"


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def fmt(request: pytest.FixtureRequest) -> ts.Format:
    """The format of each bundled template in turn."""
    return of_sample(request.param)


@cache
def of_sample(path: Path) -> ts.Format:
    return ts.get_format(str(path))


def text(said: str) -> list[Any]:
    return [ts.Text(text=said)]


def conversation(place: str, said: str) -> ts.Request:
    """Return a conversation that says something at one place, and harmless words everywhere else."""

    def at(name: str) -> str:
        return said if name == place else f"plain {name}"

    call = ts.ToolCall(name="get_it", arguments=json.dumps({"a": at("value"), at("key"): 1}), id=CALL)
    items: list[ts.Item] = [
        ts.System(content=text(at("system"))),
        ts.User(content=text(at("user"))),
        ts.Thinking(content=text(at("thought"))),
        ts.Assistant(content=text(at("text"))),
        call,
        ts.ToolResult(content=text(at("result")), id=CALL, name="get_it"),
        ts.Assistant(content=text(at("last"))),
        ts.User(content=text(at("question"))),
    ]
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": at("property")}}}
    parameters = msgspec.Raw(json.dumps(schema).encode())
    tool = ts.Tool(name="get_it", description=at("description"), parameters=parameters)
    return ts.Request(conversation=ts.Conversation(items=items, tools=[tool]))


def control_strings(fmt: ts.Format) -> list[str]:
    assert fmt.template is not None
    labels = [f"{lead}{label}" for lead, rest in fmt.template.traits.labels for label in rest]
    return list(dict.fromkeys([*fmt.special_tokens, *labels]))


@pytest.mark.parametrize("place", PLACES)
def test_no_control_string_comes_from_a_content(fmt: ts.Format, place: str) -> None:
    harmless = fmt.prompt(conversation(place, "a word")).text
    for tag in control_strings(fmt):
        for hostile in (tag, f"before{tag}behind", f"\n{tag}\n", f"{tag}{tag}"):
            written = fmt.prompt(conversation(place, hostile)).text
            assert harmless.count(tag) == written.count(tag), (tag, hostile)


def test_spans_are_the_text_and_know_contents(fmt: ts.Format) -> None:
    for place in ("user", "result", "value"):
        prompt = fmt.prompt(conversation(place, "Zanzibar"))
        assert prompt.text == "".join(span.text for span in prompt.spans)
        holding = [span for span in prompt.spans if "Zanzibar" in span.text]
        assert [] == [span for span in holding if span.control]
        dropped = any(loss.kind in ("dropped", "approximated") for loss in prompt.losses)
        assert holding or dropped


def test_contents_of_others_are_never_trained(fmt: ts.Format) -> None:
    request = conversation("user", "Zanzibar")
    mine = {index for index, item in enumerate(request.items) if item.kind in ("thinking", "assistant", "tool_call")}
    spans = fmt.spans(request)
    assert [] == [span for span in spans if span.trainable and span.item not in mine]
    assert any(span.trainable for span in spans)


@pytest.mark.parametrize("place", ["description", "result", "value", "question"])
def test_tools_in_words_forge_nothing_either(fmt: ts.Format, place: str) -> None:
    told = replace(fmt, words=True)
    harmless = told.prompt(conversation(place, "a word"))
    assert not any(loss.path == "$.tools" and loss.kind == "dropped" for loss in harmless.losses)
    for tag in control_strings(fmt):
        assert harmless.text.count(tag) == told.prompt(conversation(place, f"before{tag}behind")).text.count(tag), tag


def test_tools_in_words_stand_where_a_template_has_no_place_for_them() -> None:
    without = [one for one in map(of_sample, SAMPLES) if one.template and not one.template.traits.tools]
    with_place = [one for one in without if one.document.tools_place is not None]
    assert with_place
    for fmt in with_place:
        assert "a word" in replace(fmt, words=True).prompt(conversation("description", "a word")).text
        assert "a word" not in fmt.prompt(conversation("description", "a word")).text


def turns() -> Iterator[tuple[list[ts.Item], list[ts.Item]]]:
    """Give what a model says turn by turn, and what comes next."""

    def call(number: int) -> ts.ToolCall:
        return ts.ToolCall(name="get_it", arguments=json.dumps({"a": f"v{number}"}), id=f"call1234{number}")

    def result(number: int) -> ts.ToolResult:
        return ts.ToolResult(content=text(f"result {number}"), id=f"call1234{number}", name="get_it")

    yield [call(1)], [result(1)]
    yield [ts.Assistant(content=text("Fine."))], [ts.User(content=text("And more?"))]
    yield [ts.Assistant(content=text("Look.")), call(2)], [result(2)]
    yield [call(3)], [result(3)]
    yield [ts.Assistant(content=text("Done."))], [ts.User(content=text("Bye?"))]


def generated(fmt: ts.Format, before: list[ts.Item], said: list[ts.Item], tools: list[ts.Tool], opened: str) -> str:
    """Return what a model that writes as the template does generates for a turn."""
    request = ts.Request(conversation=ts.Conversation(items=[*before, *said], tools=tools))
    own = range(len(before), len(before) + len(said))
    written = "".join(span.text for span in fmt.spans(request) if span.trainable and span.item in own)
    assert fmt.template is not None
    for end in fmt.template.traits.ends:
        written = written.rstrip().removesuffix(end) if written.rstrip().endswith(end) else written
    return written.removeprefix(opened)


def test_prompts_grow_by_what_was_generated(fmt: ts.Format) -> None:
    tools = conversation("", "").tools
    items: list[ts.Item] = [ts.System(content=text("Be nice.")), ts.User(content=text("Go."))]
    kept, replays = replace(fmt, history="generated"), list[Any]()
    prompt = fmt.prompt(ts.Request(conversation=ts.Conversation(items=list(items), tools=tools)))
    before = prompt
    for said, new in turns():
        raw = generated(fmt, items, said, tools, prompt.opened)
        response = ts.Response(items=said, raw=raw, finish_reason="stop")
        turn = prompt.generated(response)
        assert turn is not None
        replays.append((len(items), len(items) + len(said), turn))
        longer = prompt.extend(response, new)
        assert longer is not None
        assert longer.text.startswith(prompt.text + raw)
        items += [*said, *new]
        request = ts.Request(conversation=ts.Conversation(items=list(items), tools=tools))
        assert longer.text == kept.prompt(request, replays=replays).text
        before = check_history(fmt, request, replays, before, raw)
        prompt = longer


def check_history(
    fmt: ts.Format, request: ts.Request, replays: list[tuple[int, int, ts.Generated]], before: Any, raw: str
) -> Any:
    """Hold that the template's own history begins with the prompt before, where the format does not say why not."""
    again = fmt.prompt(request, replays=replays)
    if not fmt.document.grows:
        assert again.text.startswith(before.text + raw)
    return again


def test_some_templates_grow_and_others_say_why_not() -> None:
    reasons = {of_sample(path).document.grows for path in SAMPLES}
    assert "" in reasons
    assert len(reasons) > 1


@pytest.mark.parametrize(
    ("arguments", "key"),
    [('{"a": "x", "a": "y"}', "a"), ('{"b": {"a": "x", "c": 1, "c": {}}}', "c"), ('{"a": "x", "b": {"a": "y"}}', "")],
)
def test_a_key_that_is_there_twice_is_told(fmt: ts.Format, arguments: str, key: str) -> None:
    request = conversation("", "")
    items = [replace(item, arguments=arguments) if isinstance(item, ts.ToolCall) else item for item in request.items]
    losses = fmt.prompt(replace(request, conversation=ts.Conversation(items=items, tools=request.tools))).losses
    told = [loss.detail for loss in losses if "twice" in loss.detail]
    assert ([f"the key {key!r} is there twice; the last one counts"] if key else []) == told
