"""Owns what holds for every trace: forms tell their rows apart, and a broken row is refused with a code and a place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.trace_rows import FILES, FOLDER, FORMS, fault, form_of, lines, records, rows
from tests.growth import assert_grows_below
from turnscript.datasets.form import WHOLE, Form
from turnscript.datasets.problems import BadRow

OTHERS: list[Any] = [
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
    {"messages": [], "tools": [], "task_id": 3, "id": "x"},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Action: none"}]},
    {"conversations": [{"from": "user", "value": "Action: f\nAction Input: {}"}]},
    {"prompt": "Hi", "completion": "Hello"},
    {"instruction": "Hi", "input": "", "output": "Hello", "history": [["a", "b"]]},
    {"question": "Hi", "answer": "Hello"},
    {"id": "x", "text": "Hi", "type": "message", "role": "user"},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "model": "m"},
    {"model": "m", "messages": [], "max_tokens": 5},
    {"input": [{"type": "message", "role": "user", "content": "Hi"}], "model": "m"},
    {"chosen": [], "rejected": []},
    {"history": [["Hi", "Hello"]], "trajectory": None, "utterances": "x", "traj": "x", "type": 5, "role": []},
    {},
]
VALUES: list[Any] = [None, 5, -1, 1.5, True, "x", "", [], {}, [1], [[]], [{}], {"type": "x"}, "\ud800", 2**70]
DELETED = object()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is DELETED and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def read_or_refused(form: Form, row: bytes) -> bool:
    """Whether a row gives conversations, or an error that says what and where."""
    try:
        examples = form.read(row)
    except BadRow as error:
        return bool(error.reason and error.message and error.where)
    return bool(examples) and all(example.request.items for example in examples)


@pytest.mark.parametrize("file", FILES)
def test_each_form_knows_its_own_records_and_no_other_does(file: str) -> None:
    own = form_of(file)
    for record in records(file):
        scores = {name: form.score(record)[0] for name, form in FORMS.items()}
        assert 0.9 <= scores.pop(own.name), record
        assert {0.0} == set(scores.values()), (scores, record)


@pytest.mark.parametrize("record", OTHERS)
def test_rows_of_other_datasets_are_none_of_these(record: Any) -> None:
    found = {name: form.score(record) for name, form in FORMS.items()}
    assert {} == {name: score for name, score in found.items() if score[0] > 0.6}


@pytest.mark.parametrize("file", FILES)
@given(st.data())
def test_a_row_with_any_value_changed_is_read_or_refused_with_a_code_and_a_place(
    file: str, data: st.DataObject
) -> None:
    form, found = form_of(file), records(file)
    number = data.draw(st.integers(0, len(found) - 1))
    path = data.draw(st.sampled_from(list(places(found[number]))))
    new = data.draw(st.sampled_from(VALUES + ([DELETED] if path else [])))
    found[number] = changed(found[number], path, new)
    if isinstance(found[number], dict):
        assert 0 <= form.score(found[number])[0] <= 1
    row = list(rows(form, found))[0 if form.row == WHOLE else number]
    assert read_or_refused(form, row)


@pytest.mark.parametrize("file", FILES)
@given(st.data())
def test_a_row_that_is_cut_off_or_damaged_is_refused_with_a_place(file: str, data: st.DataObject) -> None:
    form = form_of(file)
    row = data.draw(st.sampled_from(list(rows(form, records(file)))))
    at = data.draw(st.integers(0, len(row) - 1))
    damaged = data.draw(st.sampled_from([row[:at], row[:at] + b"\xff" + row[at:], row[:at] + b"\x00" + row[at + 1 :]]))
    assert read_or_refused(form, damaged)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_no_record_is_refused(name: str) -> None:
    for data in (b"", b"  ", b"[]", b'"x"', b"5", b"{", b"\xff\xfe", b"{}", b"[" * 5000, b'{"a":' * 5000):
        code, _ = fault(name, data)
        assert code in {"E_JSON", "E_SHAPE", "E_UTF8", "E_EMPTY"}, data[:20]


@pytest.mark.parametrize("file", FILES)
def test_a_byte_order_mark_and_crlf_change_nothing(file: str) -> None:
    form = form_of(file)
    for row in rows(form, records(file)):
        plain = form.read(row)
        marked = form.read(b"\xef\xbb\xbf" + row.replace(b"\n", b"\r\n\r\n"))
        assert [example.request for example in plain] == [example.request for example in marked]


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.row != WHOLE])
def test_more_of_a_conversation_than_the_form_reads_is_refused(name: str) -> None:
    for file in FILES:
        for record in records(file) if form_of(file).name == name else ():
            assert ("E_FORM", "$.response") == fault(name, record | {"response": "And then?"})
            assert ("", "") == fault(name, record | {"response": None, "my_note": "x"})


def test_half_of_a_surrogate_pair_is_named_as_that() -> None:
    row = b'{"task_id":1,"traj":[{"role":"user","content":"\\ud800"}]}'
    assert "E_UTF8" == fault("tau-bench", row)[0]
    session = (FOLDER / "claude-code.jsonl").read_bytes().replace(b"Read both.", b"\\ud800")
    assert "E_UTF8" == fault("claude-code", session)[0]


def session(length: int) -> bytes:
    """A long session: each question has an answer in two lines, a call, and a result that hangs under it."""
    found = []
    last = None
    for number in range(length):
        ids = [f"{kind}{number}" for kind in "uabr"]
        parents = [last, *ids[:3]]
        contents: list[Any] = [
            "Hi",
            [{"type": "text", "text": "Wait"}],
            [{"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}],
            [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "x"}],
        ]
        for id_, parent, content in zip(ids, parents, contents, strict=True):
            role = "assistant" if id_[0] in "ab" else "user"
            message = {"role": role, "id": f"m{number}", "content": content}
            found.append({"type": role, "uuid": id_, "parentUuid": parent, "message": message})
        last = ids[3]
    return lines(*found)


def rollout(length: int) -> bytes:
    turns = [{"type": "message", "role": role, "content": "Hi"} for role in ("user", "assistant")]
    return lines(*[{"type": "response_item", "payload": turn} for _ in range(length) for turn in turns])


def tree(length: int) -> bytes:
    ids = [{"message_id": str(n), "parent_id": str(n - 1) if n else None} for n in range(length)]
    return lines(*[one | {"text": "Hi", "role": ("prompter", "assistant")[n % 2]} for n, one in enumerate(ids)])


@pytest.mark.parametrize(
    ("name", "write", "size"), [("claude-code", session, 800), ("codex", rollout, 1500), ("oasst-messages", tree, 4000)]
)
def test_twice_as_many_lines_take_about_twice_as_long(name: str, write: Any, size: int) -> None:
    assert_grows_below(4, lambda lines: partial(FORMS[name].read, write(lines)), size, 2 * size, least=0.01)


def test_a_very_deep_tree_is_refused_or_read_but_never_overflows() -> None:
    deep = '{"prompt":' + '{"text":"x","role":"prompter","replies":[' * 3000 + "]}" * 3000 + "}"
    assert fault("oasst", deep.encode())[0] in {"", "E_JSON"}
    deep = '{"prompt":' + '{"text":"x","role":"prompter","replies":[' * 200 + "]}" * 200 + "}"
    assert ("", "") == fault("oasst", deep.encode())
    assert json.loads(deep)
