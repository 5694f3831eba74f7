"""Owns the law of damage: one member changed in what a server sends is told, or changes nothing of what it has said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests.damage import GONE, Path, damaged
from tests.strategies import events as drawn
from turnscript.apis.api import Api
from turnscript.core.errors import InvalidRequest, UpstreamError
from turnscript.core.json_text import Json
from turnscript.core.sse import SseReader, frame

Frames = list[tuple[str, str]]

THOUGHT = ts.Thinking(content=[ts.Text(text="Hm. No")])
SAID = ts.Assistant(content=[ts.Text(text="Hello you")])
CALLS = [ts.ToolCall(name=f"f{at}", arguments=said, id=f"call_{at}") for at, said in enumerate(('{"a": 1}', "{}"))]
ANSWERS = {
    "all": ts.Response(items=[THOUGHT, SAID, *CALLS], finish_reason="tool_calls"),
    "cut": ts.Response(items=[SAID], finish_reason="length"),
    "free": ts.Response(
        items=[ts.ToolCall(name="patch", arguments="*** x", id="call_1", custom=True)], finish_reason="tool_calls"
    ),
    "refused": ts.Response(items=[ts.Assistant(content=[ts.Refusal(text="No, sorry")])], finish_reason="stop"),
}
for _answer in ANSWERS.values():
    _answer.id, _answer.usage = "r1", ts.Usage(9, 5, 1, 2, 3)
ASKED = ts.Request(settings=ts.Settings(model="m", stream=True, stream_options=Json(b'{"include_usage":true}')))

OPTIONAL: dict[str, frozenset[str]] = {
    "openai-chat": frozenset({"content", "refusal", "reasoning_content"}),
    "openai-responses": frozenset({"content"}),
    "gemini": frozenset({"candidates", "content", "parts", "text", "thought", "functionCall", "args", "finishReason"})
    | {"candidatesTokenCount", "thoughtsTokenCount"},
}
"""Members that an API lets a server leave out, and that say what nothing else does: nobody can miss them."""
ALSO = frozenset({"content", "refusal", "stop_sequence"})
"""Members that may be null or a string, as a server likes; a string instead of null says more, and nothing wrong."""


def cannot_be_known(api: str, path: Path, value: Any) -> bool:
    """Whether an API takes the damaged body for a good one that says something else."""
    name = str(path[-1])
    if "input" in path[:-1] or "args" in path[:-1]:
        return True  # what stands in the arguments of a call is anybody's
    if value is GONE or value in (None, []):
        return name in OPTIONAL.get(api, frozenset())
    return isinstance(value, str) and name in ALSO


# What a server sends.


def whole(api: Api, answer: ts.Response) -> Any:
    """A whole answer."""
    return api.render_response(answer, ASKED).value


def streamed(api: Api, answer: ts.Response) -> Frames:
    """The same as a stream: the name and the text of each event."""
    renderer = api.stream_renderer(ASKED)
    data = renderer.send(drawn.told(answer, drawn.in_pieces(4))) + renderer.close()
    reader = SseReader()
    return reader.feed(data) + reader.close()


def read(api: Api, frames: Frames) -> ts.Response:
    """What a stream says."""
    parser = api.stream_parser()
    data = b"".join([frame(text, name) if name else frame(text) for name, text in frames])
    return ts.fold([*parser.feed(data), *parser.close()])


def said(response: ts.Response) -> tuple[Any, ...]:
    """What must not change unsaid: texts, thoughts, refusals, calls, and how it ended."""
    items: list[tuple[Any, ...]] = []
    for item in response.items:
        if isinstance(item, ts.ToolCall):
            items.append((item.kind, item.name, item.arguments.strip(), item.custom, item.namespace))
        else:
            parts = getattr(item, "content", [])
            items.append((item.kind, *[(type(part), getattr(part, "text", None)) for part in parts]))
    return items, response.finish_reason, response.stop_sequence


def is_told_or_right(ask: Callable[[], ts.Response], right: ts.Response) -> bool:
    """Whether damage is an error or an issue, or changed nothing. Any other exception is the test's failure."""
    try:
        response = ask()
    except (UpstreamError, InvalidRequest):
        return True
    if response.issues:
        return True
    cost, known = response.usage, right.usage
    return said(response) == said(right) and (cost is None or known is None or cost.output == known.output)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_damaged_answer_is_told_or_still_right(api_name: str, answer: str) -> None:
    api = ts.get_api(api_name)
    body = whole(api, ANSWERS[answer])
    right = api.parse_response(json.dumps(body))
    assert [] == right.issues
    wrong = [
        (path, value)
        for path, value, changed in damaged(body)
        if not is_told_or_right(lambda changed=changed: api.parse_response(json.dumps(changed)), right)  # type: ignore[misc]
        and not cannot_be_known(api_name, path, value)
    ]
    assert [] == wrong


@pytest.mark.deep
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_damaged_stream_is_told_or_still_right(api_name: str, answer: str) -> None:
    api = ts.get_api(api_name)
    frames = streamed(api, ANSWERS[answer])
    right = read(api, frames)
    assert [] == right.issues
    wrong = []
    for at, (name, text) in enumerate(frames):
        if text.startswith("["):
            continue
        body = json.loads(text)
        for path, value, changed in damaged(body):
            sent = [*frames[:at], (name, json.dumps(changed)), *frames[at + 1 :]]
            told = is_told_or_right(lambda sent=sent: read(api, sent), right)  # type: ignore[misc]
            if not told and not cannot_be_known(api_name, path, value):
                wrong.append((at, path, value))
    assert [] == wrong
