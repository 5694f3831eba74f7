"""Owns the tests of the synthetic conversations: phrases, values, tools, and rows that the product reads whole."""

from __future__ import annotations

import hashlib
import json
from random import Random
from typing import Any

import jsonschema_rs
import pytest

import turnscript
from tests.every import every
from tiny import recipe, rows
from tiny.dialogs import values
from tiny.dialogs.phrases import Node, parsed, say, slots_of
from tiny.dialogs.shapes import shaped
from tiny.dialogs.tools import Call, ask, invented, offer
from tiny.dialogs.topics import MORE, TOPICS, UNSEEN, Topic

EVERY = (*TOPICS, *MORE, *UNSEEN)
# The first 1,000 rows that the model was trained on. Whoever changes the rows trains a model on them, too.
ROWS = "7ef1854c551f5f16a1e841458528a17f3eaf33b7021b8d08bdd3430c2dee0bf6"


# Phrases.


def test_brackets_are_alternatives_and_braces_are_slots() -> None:
    texts = {say("[a|b[c|]] {x}!", {"x": "[d]"}, Random(number)) for number in range(50)}
    assert {"a [d]!", "b [d]!", "bc [d]!"} == texts
    assert {"x", "y"} == slots_of("[{x}|a] {y}")


@pytest.mark.parametrize(("line", "what"), [("[a|b", "missing"), ("a]", "too many"), ("a|b", "too many")])
def test_brackets_that_do_not_match_are_refused(line: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parsed(line)


def always(nodes: tuple[Node, ...]) -> set[str]:
    """The slots that are in every text of a line."""
    found: set[str] = set()
    for node in nodes:
        found |= slots_of(node) if isinstance(node, str) else set.intersection(*(always(choice) for choice in node))
    return found


@every("topic", EVERY, lambda topic: topic.name)
def test_every_request_fills_what_the_tool_requires_and_names_nothing_else(topic: Topic) -> None:
    required = {one.slot for one in topic.parameters if not one.optional}
    known = {one.slot for one in topic.parameters}
    for line in (*topic.asks, *topic.asks_zh):
        assert required <= always(parsed(line)), line
        assert slots_of(line) <= known, line


@every("topic", EVERY, lambda topic: topic.name)
def test_a_slot_has_one_parameter_and_no_two_parameters_can_have_one_name(topic: Topic) -> None:
    slots = [one.slot for one in topic.parameters]
    assert len(slots) == len(set(slots))
    assert not topic.several or topic.several in slots


# Values.


@pytest.mark.parametrize("kind", values.KINDS)
@every("held", [False, True])
@every("zh", [False, True])
def test_a_value_is_a_text_on_one_line_without_brackets(kind: str, zh: bool, held: bool) -> None:
    random = Random(7)
    for _ in range(200):
        value = values.draw(kind, random, zh=zh, held=held)
        assert value.strip() == value != ""
        assert not set(value) & set('[]{}|"\n')


def test_held_names_are_drawn_where_they_are_asked_for_and_never_else() -> None:
    random = Random(1)
    for kind, held in (("city", values.HELD_CITIES), ("person", values.HELD_PEOPLE)):
        assert {values.draw(kind, random, held=True) for _ in range(500)} == set(held)
        assert not {values.draw(kind, random) for _ in range(2000)} & set(held)


def test_several_values_differ() -> None:
    for seed in range(100):
        assert 3 == len(set(values.draw_several("room", Random(seed), 3)))


# Tools.


def arguments_fit(declared: dict[str, Any], arguments: str) -> None:
    schema = {"additionalProperties": False, **declared["function"]["parameters"]}
    jsonschema_rs.validator_for(schema).validate(json.loads(arguments))


def unsaid(call: Call, text: str) -> list[str]:
    """The values of a call that are not in a request; a Chinese user says a switch in Chinese."""
    said = {"on": "打开", "off": "关闭"}
    given = map(str, json.loads(call.arguments).values())
    return [value for value in given if value not in text and said.get(value, value) not in text]


@pytest.mark.parametrize("topic", EVERY, ids=lambda topic: topic.name)
def test_a_call_holds_what_was_said_and_fits_its_schema(topic: Topic) -> None:
    for seed in range(100):
        random = Random(f"{topic.name}:{seed}")
        tool = offer(topic, random)
        zh = bool(topic.asks_zh) and seed % 2 == 1
        text, calls = ask(tool, random, zh=zh, held=False, several=seed % 4 > 1)
        for call in calls:
            arguments_fit(tool.declared, call.arguments)
            assert [] == unsaid(call, text)
        assert bool(topic.several and seed % 4 > 1) == (len(calls) > 1)


def test_an_invented_tool_is_asked_as_it_is_declared() -> None:
    for seed in range(300):
        random = Random(seed)
        tool = offer(invented(random, held=seed % 2 == 1), random)
        text, (call,) = ask(tool, random, zh=False, held=False, several=False)
        arguments_fit(tool.declared, call.arguments)
        assert [] == unsaid(call, text)


def test_a_shaped_tool_is_asked_for_what_it_declares() -> None:
    for seed in range(500):
        random = Random(seed)
        tool = offer(shaped(random), random)
        text, calls = ask(tool, random, zh=False, held=False, several=seed % 3 == 1)
        assert not set(text) & set("{}[]|")
        for call in calls:
            arguments_fit(tool.declared, call.arguments)
            assert [] == unsaid(call, text)


def test_what_a_name_does_not_say_a_description_does() -> None:
    for topic in (*TOPICS, *MORE):
        for seed in range(100):
            tool = offer(topic, Random(seed), strange=1.0)
            function = tool.declared["function"]
            assert any(function["description"].startswith(about) for about in topic.about)
            properties = function["parameters"]["properties"]
            known = {name for one in topic.parameters for name in one.names}
            told = [
                name in known or bool(schema.keys() & {"description", "enum"}) for name, schema in properties.items()
            ]
            assert len(told) == 1 or all(told)


# Rows.


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The first training rows."""
    return list(rows.rows(1000))


@pytest.mark.deep
def test_rows_are_read_and_rendered_without_a_loss(lines: list[str]) -> None:
    known, chat = turnscript.get_format(recipe.FORMAT), turnscript.get_api("openai-chat")
    for line in lines:
        request = turnscript.parse(line.encode(), "openai-chat")
        assert [] == known.render(request, view="prompt").losses
        again = chat.render_request(request)
        assert [] == again.losses
        assert isinstance(again.value, dict)
        assert json.loads(line) == again.value


def test_calls_of_rows_fit_the_schemas_and_results_answer_them(lines: list[str]) -> None:
    for line in lines:
        row = json.loads(line)
        declared = {tool["function"]["name"]: tool for tool in row.get("tools", ())}
        open_ids: list[str] = []
        used: set[str] = set()
        for message in row["messages"]:
            if message["role"] == "tool":
                open_ids.remove(message["tool_call_id"])
                continue
            assert [] == open_ids
            for call in message.get("tool_calls", ()):
                arguments_fit(declared[call["function"]["name"]], call["function"]["arguments"])
                assert call["id"] not in used
                used.add(call["id"])
                open_ids.append(call["id"])


def test_the_seed_decides_what_is_in_a_row(lines: list[str]) -> None:
    assert lines[:50] == list(rows.rows(50))
    assert set() == set(lines) & set(rows.rows(200, "another"))
    assert ROWS == hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def test_rows_have_everything_that_is_promised(lines: list[str]) -> None:
    every = [json.loads(line) for line in lines]
    counts = {len(row.get("tools", ())) for row in every}
    assert {0, 1, 2, 3, 4, 5, 6, 8} <= counts
    messages = [message for row in every for message in row["messages"]]
    assert any("reasoning_content" in message for message in messages)
    assert any(len(message.get("tool_calls", ())) > 2 for message in messages)
    assert any("That did not work" in (message["content"] or "") for message in messages)
    assert any("我" in (message["content"] or "") for message in messages)


def test_the_written_file_is_the_rows(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr("sys.argv", ["tiny.rows", "--count", "20", "--out", str(out)])
    rows.main()
    assert [*lines[:20], ""] == out.read_bytes().decode().split("\n")
