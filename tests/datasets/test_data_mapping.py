"""Owns the checks of map files: what they say is read and nothing else, and each fault of one is named with its key."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from turnscript.core.conversation import Item
from turnscript.core.errors import InvalidInput
from turnscript.datasets.form import Example
from turnscript.datasets.mapping import InvalidMap, map_of, read_map
from turnscript.datasets.problems import Code, problem_of

DIALOG = """
messages = "dialog.turns"
role = "meta.who"
content = "said"
weight = "ok"
calls = "actions"
name = "tool"
system = "persona.text"
tools = "functions"
[roles]
customer = "user"
agent = "assistant"
muse = "thinking"
api = "result"
note = "skip"
"""
ROW: dict[str, Any] = {
    "dialog": {
        "turns": [
            {"meta": {"who": "note"}, "said": "not for anybody"},
            {"meta": {"who": "customer"}, "said": "Cold in Oslo?"},
            {"meta": {"who": "muse"}, "said": "Look it up."},
            {"meta": {"who": "agent"}, "said": "", "actions": [{"name": "f", "arguments": {"a": 1.0}}], "ok": False},
            {"meta": {"who": "api"}, "said": "4", "tool": "f"},
            {"meta": {"who": "agent"}, "said": "Yes.", "ok": 1},
        ]
    },
    "persona": {"text": "Be brief."},
    "functions": json.dumps([{"name": "f", "parameters": {}}]),
}


def read(source: str, row: Any) -> Example:
    (example,) = map_of(source).read(json.dumps(row).encode())
    return example


def refused(source: str, row: Any) -> tuple[Code, str]:
    with pytest.raises(InvalidInput) as caught:
        read(source, row)
    problem = problem_of(caught.value)
    return problem.code, problem.pointer


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in items]


def test_turns_are_found_at_their_paths() -> None:
    example = read(DIALOG, ROW)
    assert kinds(example.request.items) == ["system", "user", "thinking", "tool_call", "tool_result", "assistant"]
    assert [tool.name for tool in example.request.tools] == ["f"]
    assert example.weights == {3: 0.0, 5: 1.0}
    assert example.request.items[1].at == "$.dialog.turns[1].said"


def test_columns_are_turns_in_their_order() -> None:
    source = """
    system = "persona"
    [[turn]]
    kind = "user"
    path = "rounds.0.question"
    [[turn]]
    kind = "thinking"
    path = "why"
    optional = true
    [[turn]]
    kind = "assistant"
    path = "answer"
    """
    row = {"rounds": [{"question": "a"}], "answer": "b"}
    assert kinds(read(source, row).request.items) == ["user", "assistant"]
    assert kinds(read(source, row | {"why": "c", "persona": "d"}).request.items) == [
        "system",
        "user",
        "thinking",
        "assistant",
    ]
    assert refused(source, {"rounds": [], "answer": "b"}) == (Code.SHAPE, "$.rounds.0.question")
    assert refused(source, row | {"answer": 7}) == (Code.SHAPE, "$.answer")


def test_a_text_is_found_at_its_path() -> None:
    assert read('text = "body.plain"', {"body": {"plain": "abc"}}).text == "abc"
    assert refused('text = "body.plain"', {"body": {"plain": ""}}) == (Code.EMPTY, "$.body.plain")
    assert refused('text = "body.plain"', {"body": "abc"}) == (Code.SHAPE, "$.body.plain")


def test_calls_may_be_turns_of_their_own() -> None:
    source = 'messages = "t"\n[roles]\nu = "user"\nc = "call"\nr = "result"'
    row = {
        "t": [{"role": "u", "content": "Hi"}, {"role": "c", "content": '{"name": "f"}'}, {"role": "r", "content": "1"}]
    }
    assert kinds(read(source, row).request.items) == ["user", "tool_call", "tool_result"]


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"meta": {"who": "stranger"}, "said": "x"}, Code.ROLE, "$.dialog.turns[0].meta.who"),
        ({"meta": {}, "said": "x"}, Code.SHAPE, "$.dialog.turns[0].meta.who"),
        ({"meta": {"who": "customer"}}, Code.SHAPE, "$.dialog.turns[0].said"),
        ({"meta": {"who": "customer"}, "said": None}, Code.SHAPE, "$.dialog.turns[0].said"),
        ({"meta": {"who": "api"}, "said": "x"}, Code.CALL, "$.dialog.turns[0].said"),
        ({"meta": {"who": "agent"}, "said": "x", "ok": 7}, Code.WEIGHT, "$.dialog.turns[0].ok"),
        (
            {"meta": {"who": "agent"}, "said": "x", "actions": [{"name": "f", "arguments": 7}]},
            Code.ARGS,
            "$.dialog.turns[0].actions[0].arguments",
        ),
        ("text", Code.SHAPE, "$.dialog.turns[0]"),
    ],
)
def test_a_row_that_is_not_as_the_map_says_is_refused(change: Any, code: Code, pointer: str) -> None:
    assert refused(DIALOG, {"dialog": {"turns": [change]}}) == (code, pointer)


@pytest.mark.parametrize("row", [{}, {"dialog": {}}, {"dialog": []}, {"dialog": {"turns": None}}])
def test_a_row_without_turns_is_refused(row: Any) -> None:
    assert refused(DIALOG, row)[0] is Code.SHAPE


@pytest.mark.parametrize(
    ("source", "key", "said"),
    [
        ("", "", "one of messages"),
        ('messages = "a"\ntext = "b"\n[roles]\nu = "user"', "", "messages and text"),
        ('messages = "a"', "roles", "what a turn of each role is"),
        ('messages = "a"\n[roles]\nu = "person"', "roles.u", "'person'"),
        ('messages = "a..b"\n[roles]\nu = "user"', "messages", "a path"),
        ('messages = "a"\nrole = ""\n[roles]\nu = "user"', "role", "a path"),
        ('text = "a"\nrole = "b"', "role", "no meaning beside text"),
        ('text = "a"\ntools = "b"', "tools", "no meaning beside text"),
        ('[[turn]]\nkind = "skip"\npath = "a"', "turn[0].kind", "'skip'"),
        ('[[turn]]\nkind = "user"\npath = ""', "turn[0].path", "a path"),
        ('[[turn]]\nkind = "user"', "", "path"),
        ('mesage_list = "a"', "", "mesage_list"),
        ("messages = 7", "", "messages"),
        ("messages = ", "", "not valid TOML"),
        (f"messages = {'7' * 5000}", "", "not valid TOML"),
        (f"messages = {'[' * 5000}", "", "not valid TOML"),
    ],
)
def test_a_fault_of_a_map_file_names_its_key(source: str, key: str, said: str) -> None:
    with pytest.raises(InvalidMap, match=r".") as caught:
        map_of(source)
    assert caught.value.path == key
    assert said in str(caught.value)


def test_a_map_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text('text = "a"', encoding="utf-8")
    assert read_map(str(path)).read(b'{"a": "b"}')[0].text == "b"
    path.write_text('txt = "a"', encoding="utf-8")
    with pytest.raises(InvalidMap, match=r"map\.toml"):
        read_map(str(path))
    with pytest.raises(InvalidMap, match="cannot read"):
        read_map(str(tmp_path / "none.toml"))
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidMap, match="UTF-8"):
        read_map(str(path))


def test_any_value_anywhere_in_a_mapped_row_is_read_or_refused() -> None:
    form = map_of(DIALOG)
    values: list[Any] = [None, 7, "x", [], {}, [None], {"a": 1}, True, "{"]
    for index in range(len(ROW["dialog"]["turns"])):
        for member in ("meta", "said", "actions", "tool", "ok"):
            for value in values:
                turns = [dict(turn) for turn in ROW["dialog"]["turns"]]
                turns[index][member] = value
                with suppress(InvalidInput):
                    assert form.read(json.dumps(ROW | {"dialog": {"turns": turns}}).encode())
