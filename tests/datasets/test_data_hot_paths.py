"""Owns checks of short ways: each gives what the long way gives."""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
from pathlib import Path

import pytest

import turnscript as ts
from turnscript.convert.registry import formats, get_format
from turnscript.core.conversation import Assistant, Conversation, Part, Request, System, Text, User
from turnscript.core.json_text import Json, respace
from turnscript.datasets.chat_rows import chat_api
from turnscript.datasets.clean_rows import read_said
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.expansion import beginning
from turnscript.datasets.form import Example, Form, Spoken
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.forms.sharegpt import _ROLES, _spoken_in
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import prepare
from turnscript.datasets.problems import BadRow
from turnscript.datasets.shard import Stopped, run_shard
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.tokenizers.rwkv import read_vocabulary, world_path
from turnscript.datasets.train import parse_train

_ALPHABET = ['"', '"', ",", ":", "{", "}", "[", "]", " ", "\n", "1", "a", "é", "-1.5e3", "true", "\u2028"]
_ESCAPING = ['""', r'"\""', r'"\\"', r'"a\\\", :"', r'"\n\u0022{"', r'"\"\\\\"', *_ALPHABET[2:]]
_STRING_OR_NOT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')


def test_white_space_is_changed_piece_by_piece_as_it_is_token_by_token() -> None:
    rng = random.Random(1)
    spacing = {",": ", ", ":": ": "}
    for turn in range(20_000):
        text = "".join(rng.choices((_ALPHABET, _ESCAPING)[turn % 2], k=rng.randrange(25)))
        assert "".join([spacing.get(token, token) for token in _STRING_OR_NOT.findall(text)]) == respace(text)


@pytest.mark.parametrize("name", formats())
def test_a_first_text_has_the_spans_of_the_same_text_written_the_long_way(name: str) -> None:
    """An unnamed member sends an item the long way, and a prompt does not show it."""
    format_ = get_format(name)
    for first in (System, User, Assistant):
        short, long = [
            Request(conversation=Conversation(items=[first(content=content), User(content=_plain("b"))]))
            for content in (_plain("a <x>"), _plain("a <x>", k=Json(b"1")))
        ]
        assert format_.spans(long) == format_.spans(short)


def _plain(text: str, **extra: Json) -> list[Part]:
    return [Text(text=text, extra=extra)]


_WORDS = ["a", " b", "\n", "\n\n", "\r", "\u3000", "é", "世界", '"', "\\", "<think>", "\x00", "\u2028"]


def _said(rng: random.Random) -> str:
    return "".join(rng.choices(_WORDS, k=rng.randrange(6)))


def _answer(rng: random.Random) -> str:
    """A text that does not begin with a thought, or with half of one."""
    text = _said(rng)
    return f"a{text}" if text.lstrip().startswith("<think>") else text


def test_runs_of_newlines_become_one_as_by_a_pattern() -> None:
    rng, pieces = random.Random(2), ["\n", "\n", "\n\n", "\r", "\r\n", "a", " "]
    texts = ["".join(rng.choices(pieces, k=rng.randrange(20))) for _ in range(5_000)]
    written = [""] * len(texts)
    items: list[ts.Item] = [ts.User(content=[ts.Text(text=text)]) for text in texts]
    for span in ts.get_format("rwkv-goose").spans(ts.Request(conversation=ts.Conversation(items=items))):
        if not span.control:
            written[span.item] += span.text
    assert [re.sub(r"\n{2,}", "\n", re.sub(r"\r\n?", "\n", text)).strip() for text in texts] == written


def test_messages_that_say_one_text_are_read_as_the_api_reads_them() -> None:
    rng = random.Random(3)
    for _ in range(1_000):
        said = [(rng.choice(["system", "user", "assistant"]), _answer(rng)) for _ in range(rng.randrange(1, 6))]
        messages = [{"role": role, "content": text} for role, text in [*said, ("user", "a")]]
        data = json.dumps({"messages": messages}, ensure_ascii=rng.random() < 0.5).encode()
        expected, found = chat_api().parse_request(data), read_said(data)
        assert found is not None
        assert expected.items == found.items()
        assert [item.at for item in expected.items] == [item.at for item in found.items()]
        assert [expected] == [example.request for example in get_form("messages").read(data)]


def test_thoughts_are_taken_apart_as_in_a_row_that_is_read_with_care() -> None:
    """A note on a row sends it the long way, and nothing else."""
    rng, form = random.Random(5), get_form("messages")
    seen = set[str]()
    for _ in range(2_000):
        said = [(rng.choice(["user", "assistant"]), _thought(rng)) for _ in range(rng.randrange(1, 4))]
        row = {"messages": [{"role": role, "content": text} for role, text in [*said, ("user", "a")]]}
        short, long = [_read(form, json.dumps(one).encode()) for one in (row, row | {"note": 1})]
        assert long == short
        seen.add(type(short).__name__)
    assert {"tuple", "list"} == seen


def _thought(rng: random.Random) -> str:
    return "".join(rng.choices(["<think>", "<think>a</think>", "</think>", "b", "\n"], [1, 6, 1, 6, 6], k=3))


def _read(form: Form, data: bytes) -> object:
    try:
        (example,) = form.read(data)
    except BadRow as error:
        return error.code, error.path, error.message
    assert not example.weights
    return [(item, item.at) for item in example.request.items]


@pytest.mark.parametrize(
    "odd",
    [
        {"role": "user", "content": "a", "name": "Ann"},
        {"role": "user", "content": "a", "weight": 0},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "reasoning_content": "a"},
        {"role": "developer", "content": "a"},
        {"role": "tool", "content": "a"},
        {"role": "User", "content": "a"},
        {"role": "user"},
    ],
)
def test_a_message_that_says_more_than_one_text_is_left_to_the_api(odd: dict[str, object]) -> None:
    plain = {"role": "user", "content": "a"}
    assert read_said(json.dumps({"messages": [plain, odd]}).encode()) is None
    assert read_said(json.dumps({"messages": [plain], "tools": []}).encode()) is None
    assert read_said(b'{"messages":[{"role":"user","content":"\xff"}]}') is None
    assert read_said(b'{"messages":[{"role":"user","content":"\\ud800"}]}') is None


def test_turns_that_say_a_text_are_read_at_once_as_with_care() -> None:
    """A member that says nothing sends a row the careful way."""
    rng = random.Random(4)
    speakers = [word for word, kind in _ROLES.items() if kind not in ("call", "result")]
    for _ in range(1_000):
        said = [(rng.choice([*speakers, "GPT"]), _answer(rng)) for _ in range(rng.randrange(1, 6))]
        turns = [{"from": who, "value": text} for who, text in [*said, ("human", "a")]]
        key = rng.choice(["conversations", "conversation"])
        at_once, with_care = [
            get_form("sharegpt").read(json.dumps({key: [*turns[:-1], turns[-1] | more]}).encode())[0]
            for more in ({}, {"note": None})
        ]
        assert at_once.but(at_once.request) == with_care
        assert [item.at for item in with_care.request.items] == [item.at for item in at_once.request.items]


@pytest.mark.parametrize("name", [name for name in formats() if get_format(name).document.flattened])
@pytest.mark.parametrize("train", ["assistant", "user", "all"])
def test_a_text_with_blank_lines_has_the_mask_of_the_same_text_without(name: str, train: str) -> None:
    encoder = Encoder(get_format(name), get_tokenizer("rwkv-world"), parse_train(train))
    samples = []
    for blank in ("\n", "\n\n\n"):
        texts = [f"{blank}{who}{blank}says <x>{blank}" if blank != "\n" else f"{who}\nsays <x>" for who in "abcd"]
        items = [
            kind(content=_plain(text), at=f"$[{at}]")
            for at, (kind, text) in enumerate(zip([System, User, Assistant, User], texts, strict=True))
        ]
        sample = encoder.encode([Example(Request(conversation=Conversation(items=list(items))))])[0]
        assert isinstance(sample, Sample)
        samples.append(sample)
    flat, lined = samples
    assert (flat.ids.tolist(), flat.weights.tolist(), flat.digest) == (
        lined.ids.tolist(),
        lined.weights.tolist(),
        lined.digest,
    )
    assert flat.losses == []
    assert [f"$[{at}]" for at in range(4)] == [loss.path for loss in lined.losses]


def test_the_world_file_says_the_sizes_of_its_tokens_itself(tmp_path: Path) -> None:
    world = get_tokenizer("rwkv-world")
    tokens = read_vocabulary(world_path(), Path(world_path()).read_bytes())
    assert world.lengths is not None
    assert {number: len(token) for number, token in tokens.items()} == {
        number: size for number, size in enumerate(world.lengths.tolist()) if size
    }
    copy = Path(shutil.copy(world_path(), tmp_path / "copy.txt"))
    other = get_tokenizer(f"rwkv:{copy}")
    ids = world.encode(["Grüße, 世界!\n\n"])
    assert ids == other.encode(["Grüße, 世界!\n\n"])
    assert "Grüße, 世界!\n\n".encode() == other.decode(ids[0])


@pytest.mark.parametrize("bad", [False, True])
def test_the_garbage_collector_looks_as_often_after_a_shard_as_before(tmp_path: Path, bad: bool) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n' + "{}\n" * bad)
    plan = Plan(inputs=(str(rows),), format="rwkv-goose", tokenizer="bytes", form="messages", on_bad="stop")
    prepared = prepare(plan, tmp_path / "out")
    before = gc.get_threshold()
    if bad:
        with pytest.raises(Stopped):
            run_shard(prepared, tmp_path / "out", 0)
    else:
        run_shard(prepared, tmp_path / "out", 0)
    assert before == gc.get_threshold()


@pytest.mark.parametrize(
    "more", ["system", "tools", "messages", "label", "kto_tag", "weight", "train_detail", "masked"]
)
def test_a_row_of_turns_that_may_say_more_is_read_with_care(more: str) -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    notes = {"id": 1, "note": {"more": []}}
    assert _spoken_in(json.dumps({"conversations": turns, **notes, more: None}).encode()) is not None
    assert _spoken_in(json.dumps({"conversations": turns, **notes, more: 1}).encode()) is None
    escaped = f'{{"conversations":{json.dumps(turns)},"\\u{ord(more[0]):04x}{more[1:]}":1}}'
    assert _spoken_in(escaped.encode()) is None


@pytest.mark.parametrize(
    "odd",
    [
        b'{"conversations":[{"from":"human","value":""}]}',
        b'{"conversations":[],"conversation":[{"from":"human","value":"a"}]}',
        b'{"conversations":[{"from":"human","value":"a"}],"note":"\xff"}',
        b'{"conversations":[{"from":"gpt","value":"a \\u003cthink>"}]}',
        b'{"conversations":[{"from":"gpt","value":"a \\u003ctool_call>"}]}',
        b'{"conversations":[{"from":"Human","value":"a"}]}',
        b'{"conversations":[{"from":"human","value":"a"}]} 1',
    ],
)
def test_an_odd_row_of_turns_is_read_with_care(odd: bytes) -> None:
    assert _spoken_in(odd) is None


def test_what_is_spoken_is_made_to_items_once_and_forgotten_with_another_conversation() -> None:
    spoken = Spoken((User, Assistant, User), ["a", "b", "c"], ["$[0]", "$[1]", "$[2]"])
    example = Example(None, spoken=spoken)
    shorter = beginning(example, 2)
    assert example.request is example.request
    assert [User(content=[Text(text="a")]), Assistant(content=[Text(text="b")])] == shorter.request.items
    assert ["$[0]", "$[1]"] == [item.at for item in shorter.request.items]
