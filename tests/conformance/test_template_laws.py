"""Owns the laws of chat templates: exported as Jinja, a format writes the same bytes, or says where it does not."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.conformance.examples import fewer
from tests.strategies import jsontext, text
from tests.templates import Body, Template, chat, parsed, with_objects
from turnscript.convert.registry import load_formats
from turnscript.core.json_text import is_json, is_object
from turnscript.formats.format import Format

FEWER = fewer()
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "formats"
OTHERS = {one.name: one for path in sorted(FOLDER.glob("*.toml")) for one in load_formats(path)} | {
    name: ts.get_format(name) for name in ts.model_formats()
}
NAMES = st.sampled_from(["get_weather", "now", 'q"uote', "é", "x y", "<<USER>>", "a>>b", "[INST]"])


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls of one message, ids not given yet."""
    arguments = draw(st.lists(jsontext.json_objects(), min_size=1, max_size=3))
    return [
        {
            "id": "",
            "type": "function",
            "function": {"name": draw(NAMES), "arguments": json.dumps(one, ensure_ascii=False)},
        }
        for one in arguments
    ]


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """A message of the model: a thought, a text, calls, or several of these."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | text.texts())}
    if draw(st.booleans()):
        message["reasoning_content"] = draw(text.texts())
    if draw(st.booleans()):
        message["tool_calls"] = draw(calls())
    if message["content"] == "" and len(message) > 2:
        message["content"] = None
    return message


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message of anybody."""
    role = draw(st.sampled_from(["system", "developer", "user", "user", "assistant", "assistant", "tool", "tool"]))
    parts = st.lists(text.texts().map(lambda said: {"type": "text", "text": said}), min_size=1, max_size=2)
    message = draw(answers()) if role == "assistant" else {"role": role, "content": draw(text.texts() | parts)}
    if role == "tool":
        message["tool_call_id"] = ""
    elif draw(st.integers(0, 4)) == 0:
        message["name"] = draw(st.sampled_from(["Eric", "", 'q"uote', "a  b", "<|im_end|>"]))
    return message


@st.composite
def tools(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Tools that are offered, whose schemas say more or less."""
    kinds = st.sampled_from(
        [
            {},
            {"type": "string", "description": "A city"},
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"enum": ["a"]},
            {"type": "array", "items": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}},
        ]
    )
    found = []
    for name in draw(st.lists(NAMES, max_size=2, unique=True)):
        function: dict[str, Any] = {"name": name}
        if draw(st.booleans()):
            function["description"] = draw(text.texts())
        if draw(st.booleans()):
            properties = draw(st.dictionaries(st.sampled_from(["a", "city", "items", "é"]), kinds, max_size=3))
            function["parameters"] = {"type": "object", "properties": properties, "required": list(properties)[:1]}
        found.append({"type": "function", "function": function})
    return found


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """Conversations, whose results answer calls that were made, or none."""
    body: Body = {"model": "m", "messages": draw(st.lists(messages(), min_size=1, max_size=6))}
    offered = draw(tools())
    if offered:
        body["tools"] = offered
    waiting = ["nobody"]
    for message in body["messages"]:
        for call in message.get("tool_calls", []):
            call["id"] = f"c{len(waiting)}"
            waiting.append(call["id"])
        if message["role"] == "tool":
            message["tool_call_id"] = waiting.pop() if len(waiting) > 1 else waiting[0]
    return body


@cache
def exported(name: str, generation: bool = False) -> tuple[Format, Template, list[ts.Loss]]:
    """A format, its template, and what that writes otherwise."""
    format_ = OTHERS[name] if name in OTHERS else ts.get_format(name)
    made = format_.jinja(generation=generation)
    return format_, Template(made.value), made.losses


def thinks(format_: Format) -> bool:
    return any(one.kind == "thinking" for turn in format_.document.turns for one in turn.segments)


def both(format_: Format, template: Template, body: Body) -> Iterator[tuple[str, str]]:
    """What the format writes and what the template does: prompts with and without a thought, and the whole."""
    request, given_ = parsed(body), with_objects(body)
    yield format_.prompt(request).text, template.render(given_)
    yield format_.prompt(request, thinking=False).text, template.render(given_, enable_thinking=False)
    if thinks(format_):
        yield format_.prompt(request, thinking=True).text, template.render(given_, enable_thinking=True)
    whole = format_.render(request, view="prompt").value
    yield whole, template.render(given_, add_generation_prompt=False)


# What the losses of an export mean for a conversation: its path, a word of its detail, and whether it is concerned.


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (one for inner in value.values() for one in strings(inner))


def looks(said: str) -> bool:
    """Whether a text begins and ends as JSON does."""
    said = said.strip(" \t\r\n")
    edges = said[:1] + said[-1:]
    return edges in ("{}", "[]") or (edges == '""' and len(said) > 1)


def looks_begun(content: Any) -> bool:
    """Whether parts behind the first begin as JSON does."""
    return isinstance(content, list) and "\n".join([part["text"] for part in content[1:]]).strip()[:1] in ("{", "[")


def deceives(said: str) -> bool:
    """Whether its first and last characters do not tell whether a text is JSON."""
    return looks(said) and not is_json(said)


def results(body: Body) -> list[str]:
    """The texts of results."""
    found = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return ["\n".join([part["text"] for part in one]) if isinstance(one, list) else one for one in found]


def arguments(body: Body) -> list[Any]:
    return [
        call["function"]["arguments"]
        for message in with_objects(body)["messages"]
        for call in message.get("tool_calls") or []
    ]


def called(body: Body) -> list[str]:
    return [call["function"]["name"] for message in body["messages"] for call in message.get("tool_calls") or []]


CONCERNED: list[tuple[str, str, Callable[[Body], bool]]] = [
    ("$.messages[].content", "as it came", lambda body: any(map(looks, results(body)))),
    ("$.messages[].content", "is told by", lambda body: any(map(deceives, results(body)))),
    (
        "$.messages[].tool_calls[].function.arguments",
        "is told",
        lambda body: any(deceives(said) for one in arguments(body) for said in strings(one)),
    ),
    (
        "$.messages[].tool_calls[].function.arguments",
        "is told",
        lambda body: any(isinstance(one, str) and not is_object(one) for one in arguments(body)),
    ),
    (
        "$.messages[].tool_calls[].function.name",
        "not ASCII",
        lambda body: any(not name.isascii() for name in called(body)),
    ),
    ("$.messages[0].content", "begins like JSON", lambda body: looks_begun(body["messages"][0]["content"])),
    ("$.messages[].name", "white space", lambda body: any("\x0b" in str(one.get("name")) for one in body["messages"])),
]


def excused(losses: list[ts.Loss], body: Body) -> bool:
    """Whether the list says that a conversation may differ."""
    return any(
        loss.path == path and word in loss.detail and concerned(body)
        for loss in losses
        for path, word, concerned in CONCERNED
    )


def check(name: str, body: Body) -> None:
    format_, template, losses = exported(name)
    for expected, actual in both(format_, template, body):
        assert expected == actual or excused(losses, body)


def test_a_template_writes_the_corpus(format_name: str) -> None:
    """Hard case 60."""
    for name in corpora.names():
        check(format_name, chat(corpora.load(name)))


@pytest.mark.deep
@FEWER
@given(body=bodies())
def test_a_template_writes_the_same_bytes(format_name: str, body: Body) -> None:
    check(format_name, body)


BLANK_BETWEEN = [
    {"role": "assistant", "content": " ", "reasoning_content": "Hm."},
    {"role": "assistant", "content": "Hi."},
]


@FEWER
@example(body={"model": "m", "messages": BLANK_BETWEEN})
@given(body=bodies())
def test_what_the_model_writes_is_marked_in_a_template(format_name: str, body: Body) -> None:
    format_, template, losses = exported(format_name, generation=True)
    written = template.render(with_objects(body), add_generation_prompt=False)
    assert exported(format_name)[1].render(with_objects(body), add_generation_prompt=False) == written
    expected, at = [], 0
    for span in format_.spans(parsed(body)):
        expected += [(at, at + len(span.text))] if span.trainable and span.text else []
        at += len(span.text)
    assert joined(expected) == joined(template.spans) or excused(losses, body)


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring spans as one."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        elif start < end:
            found.append((start, end))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("name", OTHERS)
def test_a_template_of_a_models_format_writes_the_corpus(name: str) -> None:
    for shown in corpora.names():
        check(name, chat(corpora.load(shown)))


@FEWER
@given(name=st.sampled_from(sorted(OTHERS)), body=bodies())
def test_a_template_of_a_models_format_writes_the_same_bytes(name: str, body: Body) -> None:
    check(name, body)
