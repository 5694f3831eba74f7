"""Owns the laws of grammars: what a model writes by a format's grammar, the format's parser reads, and nothing else.

Texts are written by the rules at random and read behind the prompt that they are for. What a format renders for a call
that its schema allows is a text of the grammar.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.test_parser_laws import after_opening, ends_thought, written_by_model
from tests.every import every
from tests.sampling import Writer
from turnscript.convert.registry import model_formats
from turnscript.core.json_text import every_member, json_of
from turnscript.gateway.checks import check_calls as findings_of
from turnscript.grammar.nodes import Choice, Grammar, Node, Reference, Repeat, children
from turnscript.grammar.rest import behind, matches

PLACE = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "at": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["y"]},
        "kind": {"anyOf": [{"const": "a<b"}, {"type": "null"}, {"type": "integer"}]},
    },
}
SCHEMAS: dict[str, Any] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "place-of": PLACE,
    "deep": {
        "type": "object",
        "properties": {
            "flag": {"type": ["boolean", "null"]},
            "tree": {"$ref": "#/$defs/tree"},
            "any": {},
            "word": {"type": "string", "enum": ["two words", "<b>", 'a "q"', "\u5b57"]},
        },
        "required": ["tree", "word"],
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/tree"}, "leaves": {"type": "array", "items": {"$ref": "#"}}},
                "additionalProperties": {"type": "string"},
            }
        },
    },
    "free": {"type": "object"},
    "none": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [ts.Tool(name=name, parameters=json_of(schema)) for name, schema in SCHEMAS.items()]
AGAIN = re.compile(r'the argument "(.*)" is given twice', re.DOTALL)
DECLARED = {key for schema in SCHEMAS.values() for key in schema.get("properties", ())}
MOST = 2 * len(TOOLS)
"""How many calls an answer may have at most."""
ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "tests" / "formats" / name for name in ("switches.toml", "bare.toml", "marks.toml")]
FILES.append(ROOT / "examples" / "formats" / "tagged.toml")
NAMES = [*ts.formats(), *model_formats(), *map(str, FILES)]
"""All formats that there are, and some that somebody wrote into a file: they have grammars without a line more."""


def asked(choice: ts.ToolChoice | None, tools: list[ts.Tool] = TOOLS, **settings: Any) -> ts.Request:
    """A request whose answer must be calls."""
    return ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=tools),
        settings=ts.Settings(tool_choice=choice, **settings),
    )


def ends_of(format_: ts.Format) -> tuple[str, ...]:
    """What ends an answer wherever it stands, because a server stops there, or because another's turn begins."""
    document = format_.document
    generation = document.generation
    found = (*generation.stops, *generation.stops_with_tools, document.end, *(turn.open for turn in document.turns))
    return tuple({one.strip() for one in found if one.strip()})


def has_calls(format_: ts.Format) -> bool:
    """Whether a format has a place for calls."""
    return any(segment.kind == "tool_call" for turn in format_.document.turns for segment in turn.segments)


def prompts(format_: ts.Format, seed: int) -> list[ts.Prompt]:
    """Prompts whose answers a grammar tells: calls of one tool or of any, JSON, each also with a thought."""
    tool = TOOLS[seed % len(TOOLS)]
    shape = ts.ResponseFormat("json_schema", schema=tool.parameters)
    requests = [asked(None, [], response_format=shape)]
    if has_calls(format_):
        requests += [asked(ts.ToolChoice("required")), asked(ts.ToolChoice("named", name=tool.name))]
    thinks = (False, True) if format_.document.generation.thinking_kind in kinds_of(format_) else (False,)
    return [format_.prompt(request, thinking=one) for request in requests for one in thinks]


def read(prompt: ts.Prompt, written: str) -> ts.Response:
    """What the parser of a prompt makes of a text."""
    parser = prompt.parser()
    return ts.fold([*parser.feed(written), *parser.close("stop")])


def check_calls(response: ts.Response, written: str, most: int | None) -> None:
    """There are calls and nothing is wrong with them; their arguments are valid.

    A key that no schema declares may come again, which no grammar can tell.
    """
    calls = [item for item in response.items if isinstance(item, ts.ToolCall)]
    others = [item for item in response.items if not isinstance(item, ts.ToolCall | ts.Thinking)]
    assert calls, written
    assert not others, (written, others)
    twice = [AGAIN.fullmatch(one.detail) for one in response.issues]
    assert all(one is not None and one[1] not in DECLARED for one in twice), (written, response.issues)
    assert most is None or len(calls) <= most, written
    for call in calls:
        jsonschema_rs.validate(SCHEMAS[call.name], json.loads(call.arguments))


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 32))
def test_what_a_grammar_writes_is_read_as_calls(name: str, seed: int) -> None:
    """Behind every kind of prompt that leaves nothing but calls."""
    format_ = ts.get_format(name)
    if not has_calls(format_):
        return
    for tool, thinking, several in (
        ("", False, True),
        ("", False, False),
        (TOOLS[seed % len(TOOLS)].name, False, True),
    ):
        choice = ts.ToolChoice("named", name=tool) if tool else ts.ToolChoice("required")
        prompt = format_.prompt(asked(choice, parallel_tool_calls=several), thinking=thinking)
        constraint = prompt.grammar("gbnf")
        assert constraint is not None
        written = Writer(constraint.rules, seed, ends_of(format_)).text()
        most = MOST if several and not tool else 1
        check_calls(read(prompt, written), prompt.text[-200:] + "|" + written, most)


FEW: dict[str, Any] = {
    "stop": {"type": "object", "properties": {}, "additionalProperties": False},
    "lamp": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}, "room": {"type": "string", "enum": ["hall", "<b>"]}},
        "required": ["room"],
        "additionalProperties": False,
    },
}
CALL = re.compile(r"(stop|lamp|weather)_call_\d+")


def most_calls(grammar: Grammar) -> float:
    """How many calls a text of a grammar may have at most, beside one that the prompt has begun."""

    known: dict[str, float] = {}

    def count(node: Node) -> float:
        if isinstance(node, Reference):
            if CALL.fullmatch(node.name):
                return 1
            if node.name not in known:
                known[node.name] = inf  # where it leads back to itself
                known[node.name] = count(grammar.rules[node.name])
            return known[node.name]
        if isinstance(node, Repeat):
            inner = count(node.node)
            return 0 if not inner else inf if node.most is None else inner * node.most
        inside = [count(child) for child in children(node)]
        return max(inside, default=0) if isinstance(node, Choice) else sum(inside)

    return count(grammar.start)


@pytest.mark.deep
@every("name", NAMES)
@settings(max_examples=2)
@given(seed=st.integers(0, 1 << 32))
def test_calls_that_are_demanded_end_and_none_follows_itself(name: str, seed: int) -> None:
    """Of tools with few calls, which a model would write again and again; one call where one is wanted."""
    format_ = ts.get_format(name)
    if not has_calls(format_):
        return
    few = [ts.Tool(name=tool, parameters=json_of(schema)) for tool, schema in FEW.items()]
    tools = [*few, TOOLS[0]]
    one, any_ = ts.ToolChoice("named", name="lamp"), ts.ToolChoice("required")
    for choice, several, most in ((any_, True, 6), (any_, False, 1), (one, True, 1)):
        prompt = format_.prompt(asked(choice, tools, parallel_tool_calls=several), thinking=False)
        constraint = prompt.grammar("gbnf")
        assert constraint is not None
        assert most_calls(constraint.rules) <= most
        for number in range(3 if several else 1):
            written = Writer(constraint.rules, seed + number, ends_of(format_)).text()
            response = read(prompt, written)
            assert not response.issues, (written, response.issues)
            calls = [(item.name, item.arguments) for item in response.items if isinstance(item, ts.ToolCall)]
            assert 1 <= len(calls) <= most, written
            values = [(tool, json.loads(arguments)) for tool, arguments in calls]
            for tool, arguments in values:
                jsonschema_rs.validate({**SCHEMAS, **FEW}[tool], arguments)
            assert not any(first == second and first[0] in FEW for first, second in pairwise(values)), written


TWICE = ts.Tool(
    name="twice",
    parameters=json_of(
        {
            "type": "object",
            "properties": {"first": {"const": 1111}, "other": {"const": 2222}},
            "required": ["first", "other"],
            "additionalProperties": False,
        }
    ),
)


@pytest.mark.deep
@every("name", NAMES)
def test_a_key_that_comes_twice_is_kept_twice_and_found(name: str) -> None:
    """A grammar cannot tell that a free key was there before. Nothing of such a call is lost, in any API."""
    format_ = ts.get_format(name)
    if not has_calls(format_):
        return
    prompt = format_.prompt(asked(ts.ToolChoice("named", name="twice"), [TWICE]), thinking=False)
    constraint = prompt.grammar("gbnf")
    assert constraint is not None
    written = Writer(constraint.rules, 1, ends_of(format_)).text()
    response = read(prompt, written.replace("other", "first"))
    [call] = [item for item in response.items if isinstance(item, ts.ToolCall)]
    assert every_member(call.arguments) == [("first", "1111"), ("first", "2222")], written
    assert "duplicate_key" in [one.kind for one in findings_of(response, [TWICE])]
    for api in map(ts.get_api, ("openai-chat", "openai-responses", "anthropic-messages")):
        told = api.parse_response(bytes(api.render_response(response, prompt.request).data))
        [again] = [item for item in told.items if isinstance(item, ts.ToolCall)]
        assert every_member(again.arguments) == every_member(call.arguments)


@pytest.mark.deep
@every("name", NAMES)
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 32))
def test_a_thought_may_stand_before_calls(name: str, seed: int) -> None:
    """Where a prompt asks for a thought, its grammar has one; what it writes is the thought's."""
    format_ = ts.get_format(name)
    if not has_calls(format_) or format_.document.generation.thinking_kind not in kinds_of(format_):
        return
    prompt = format_.prompt(asked(ts.ToolChoice("required")), thinking=True)
    constraint = prompt.grammar("kbnf")
    assert constraint is not None
    written = Writer(constraint.rules, seed, ends_of(format_)).text()
    response = read(prompt, written)
    check_calls(response, written, MOST)
    assert matches(constraint.rules, written)


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 32))
def test_an_answer_is_json_of_its_schema(name: str, seed: int) -> None:
    """Behind every kind of prompt that asks for it, and alone."""
    format_, (_, schema) = ts.get_format(name), list(SCHEMAS.items())[seed % len(SCHEMAS)]
    shape = ts.ResponseFormat("json_schema", schema=json_of(schema))
    for thinking in (False, True):
        if thinking and format_.document.generation.thinking_kind not in kinds_of(format_):
            continue
        prompt = format_.prompt(asked(None, [], response_format=shape), thinking=thinking)
        constraint = prompt.grammar("gbnf")
        assert constraint is not None
        written = Writer(constraint.rules, seed, ends_of(format_)).text()
        response = read(prompt, written)
        assert not response.issues, (written, response.issues)
        [answer] = [item for item in response.items if not isinstance(item, ts.Thinking)]
        assert isinstance(answer, ts.Assistant)
        jsonschema_rs.validate(schema, json.loads(text_of(answer)))
    alone = format_.answer_grammar(json_of(schema), target="gbnf").rules
    place = format_.document.segment(format_.document.generation.kind)
    written = Writer(alone, seed).text().removeprefix(f"{place.open}{place.head_end}")
    jsonschema_rs.validate(schema, json.loads(written))


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 32))
def test_a_free_model_may_answer_or_call(name: str, seed: int) -> None:
    """With a choice of tools the grammar begins where calls do; with a shape, too, either is written."""
    format_ = ts.get_format(name)
    if not has_calls(format_):
        assert format_.prompt(asked(None, [])).grammar("gbnf") is None
        return
    prompt = format_.prompt(asked(None), thinking=False)
    constraint = prompt.grammar("lark")
    assert constraint is not None
    assert constraint.lazy
    written = Writer(constraint.rules, seed, ends_of(format_)).text()
    assert written.lstrip().startswith(constraint.trigger) or not constraint.trigger
    shape = ts.ResponseFormat("json_object")
    either = format_.prompt(asked(None, response_format=shape), thinking=False)
    constraint = either.grammar("gbnf")
    assert constraint is not None
    assert not constraint.lazy
    written = Writer(constraint.rules, seed, ends_of(format_)).text()
    response = read(either, written)
    assert not response.issues, (written, response.issues)
    said = [item for item in response.items if isinstance(item, ts.Assistant)]
    assert said or any(isinstance(item, ts.ToolCall) for item in response.items)
    assert all(isinstance(json.loads(text_of(item)), dict) for item in said)


RENDERED = [
    ("weather", '{"city":"Oslo"}'),
    ("weather", '{"city":"S\u00e3o Paulo <b>","unit":"celsius","days":-3}'),
    ("weather", '{"city":"","days":12}'),
    ("place-of", '{"names":["a","b"],"at":{"x":1.5,"y":-2e3},"kind":null}'),
    ("place-of", '{"at":{"y":0}}'),
    ("place-of", "{}"),
    ("deep", '{"flag":true,"tree":{"left":{"leaves":[]},"more":"x"},"word":"two words"}'),
    ("none", "{}"),
]


@every("case", RENDERED)
def test_what_a_format_renders_is_of_its_grammar(format_name: str, case: tuple[str, str]) -> None:
    """Of calls that their schema allows, with members in its order: behind the prompt that demands one, and alone.

    Alone, a grammar begins with the call: not with white space that the model writes before it.
    """
    format_ = ts.get_format(format_name)
    if not has_calls(format_):
        return
    call = ts.ToolCall(name=case[0], arguments=case[1], id="call_1")
    free, demanded = asked(ts.ToolChoice("auto")), asked(ts.ToolChoice("required"))
    written = written_by_model(format_, free, [call])
    if written is not None:
        written = written.removeprefix(ends_thought(format_, [call]))
        begun = list(dict.fromkeys([written, after_opening(format_, written)]))
        rules = format_.grammar(TOOLS).rules
        alone = [one[blank:] for one in begun for blank in range(len(one) - len(one.lstrip()) + 1)]
        assert any(matches(rules, one) for text in alone for one in without_ends(format_, text)), written
    constraint = format_.prompt(demanded, thinking=False).grammar("gbnf")
    assert constraint is not None
    written = written_by_model(format_, demanded, [call])
    if written is not None:
        behind = after_opening(format_, written)
        assert any(matches(constraint.rules, one) for one in without_ends(format_, behind)), written


def without_ends(format_: ts.Format, written: str) -> Iterator[str]:
    """A turn as it is written, without what is behind it, and without what ends it, which a server may take away."""
    yield from (written, written.rstrip())
    for end in (*ends_of(format_), format_.document.model_turn.close.strip()):
        if end and end in written:
            yield (rest := written[: written.rindex(end)])
            yield rest.rstrip("\n")


@every("case", RENDERED[2::3])
def test_every_beginning_of_a_text_leaves_its_rest(format_name: str, case: tuple[str, str]) -> None:
    """What a prompt writes may end anywhere."""
    format_ = ts.get_format(format_name)
    if not has_calls(format_):
        return
    rules = format_.grammar([tool for tool in TOOLS if tool.name == case[0]]).rules
    written = Writer(rules, len(case[1])).text()
    for end in range(0, len(written), max(1, len(written) // 40)):
        rest = behind(rules, written[:end])
        assert rest is not None
        assert matches(rest, written[end:]), written[:end]
    assert behind(rules, "\x00") is None


def test_what_no_grammar_can_tell_says_so(format_name: str) -> None:
    """Formats without calls, choices without tools, and notations that nobody knows."""
    format_ = ts.get_format(format_name)
    if has_calls(format_):
        with pytest.raises(ts.InvalidRequest, match="no tool"):
            format_.grammar([])
        with pytest.raises(ts.UnknownName):
            format_.grammar(TOOLS, ts.ToolChoice("named", name="nobody"))
    else:
        with pytest.raises(ts.Unsupported, match="no place for calls"):
            format_.grammar(TOOLS)
    with pytest.raises(ts.UnknownName, match="gbnf"):
        format_.answer_grammar(target="gbnff")


def kinds_of(format_: ts.Format) -> set[str]:
    """The kinds of segments that a format has."""
    return {segment.kind for turn in format_.document.turns for segment in turn.segments}


def text_of(item: ts.Assistant) -> str:
    """What an answer says."""
    return "".join(part.text for part in item.content if isinstance(part, ts.Text))
