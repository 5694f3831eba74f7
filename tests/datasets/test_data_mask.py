"""Owns the checks of the mask: which tokens count and how much, by plan and by row, and what lies across a border."""

import itertools
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tokenizers import normalizers

import turnscript as ts
from tests import corpora
from tests.datasets import tinytokenizers
from tests.datasets.beginnings import spans_of
from tests.growth import assert_grows_below
from turnscript.core.conversation import text_content
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import MODEL, Train, parse_train

WORLD = get_tokenizer("rwkv-world")
FORMATS = ts.formats()
EMPTY = ts.Request()
MASKS = st.lists(
    st.tuples(st.sampled_from(["a", "ab", " the", "\n", "\n\n", "。", "é", "\U0001f600", ""]), st.booleans())
)


def sample(encoder: Encoder, example: Example) -> Sample:
    found = encoder.encode([example])[0]
    assert isinstance(found, Sample), found
    return found


def trained_text(encoder: Encoder, example: Example) -> str:
    return b"".join(token.text for token in encoder.explain(example) if token.weight).decode()


def reference(pieces: list[tuple[str, bool]]) -> tuple[list[int], int]:
    """The rule, token by token: one counts if the byte that it begins with does."""
    worth = [trained for text, trained in pieces for _ in text.encode()]
    text = "".join(text for text, _ in pieces)
    ids = WORLD.encode([text])[0]
    ends = [0, *WORLD.ends(text, ids).tolist()]
    tokens = [worth[start:end] for start, end in itertools.pairwise(ends)]
    return [int(one[0]) for one in tokens], sum(len(set(one)) > 1 for one in tokens)


@given(st.lists(MASKS, min_size=1, max_size=6), st.booleans())
def test_a_token_counts_if_it_begins_where_it_is_trained(masks: list[list[tuple[str, bool]]], end: bool) -> None:
    encoder = Encoder(ts.get_format("rwkv-goose"), WORLD, Train(end=end))
    rows = [Example(EMPTY, mask=[*mask, ("x", True)]) for mask in masks]
    for example, found in zip(rows, encoder.encode(rows), strict=True):
        weights, across = reference(example.mask)
        if not any(weights):
            assert isinstance(found, Problem)
            assert Code.NO_TRAINED_TOKEN == found.code
            continue
        assert isinstance(found, Sample)
        assert [*weights, int(end)] == found.weights.tolist()
        assert (across, sum(weights) + end) == (found.straddling, found.trained)


def test_a_token_across_the_end_is_trained_and_one_across_the_beginning_is_not() -> None:
    """`。` and a newline are one token, and so are two newlines."""
    encoder = Encoder(ts.get_format("rwkv-goose"), WORLD, Train())
    whole = [("问", False), ("答。", True), ("\n\n", False), ("再", False), ("。", False), ("\n答", True)]
    found = encoder.explain(Example(EMPTY, mask=whole))
    across = [(token.text.decode(), token.weight) for token in found if token.straddles]
    assert [("。\n", 1), ("。\n", 0)] == across
    assert 2 == sample(encoder, Example(EMPTY, mask=whole)).straddling


@pytest.mark.parametrize("name", FORMATS)
def test_in_text_mode_what_is_trained_is_what_a_model_writes_up_to_straddling_tokens(name: str) -> None:
    format_ = ts.get_format(name)
    encoder = Encoder(format_, WORLD, Train(), mode="text")
    for case in corpora.names():
        example = Example(corpora.load(case))
        found = encoder.encode([example])[0]
        if isinstance(found, Problem):
            continue
        tokens = encoder.explain(example)
        worth = [span.trainable for span in spans_of(format_, example.request) for _ in span.text.encode()]
        at = 0
        for token in tokens[:-1]:
            assert (case, worth[at]) == (case, bool(token.weight))
            assert token.straddles == (len(set(worth[at : at + len(token.text)])) > 1)
            at += len(token.text)
        assert at == len(worth)


TALK = corpora.load("thinking_text_call")


def said(train: str, example: Example | None = None) -> str:
    """The text that is trained."""
    encoder = Encoder(ts.get_format("batuta-chatml"), WORLD, parse_train(train), mode="text")
    return trained_text(encoder, example or Example(TALK))


def test_the_plan_chooses_parts_of_the_models_turn() -> None:
    marks = {"thinking": "</think>", "calls": "</tool_call>", "answers": "Tokyo is warmer.<|im_end|>"}
    for word, mark in marks.items():
        assert mark in said("assistant")
        assert mark in said(word)
        assert mark not in said(f"no-{word}")
        assert not any(other in said(word) for key, other in marks.items() if key != word)


def test_only_the_last_turn_of_the_model_counts_where_that_is_asked() -> None:
    request = corpora.load("many_turns")
    last = said("last", Example(request))
    assert said("assistant", Example(request)).endswith(last)
    assert 1 == last.count("<|im_end|>")


def test_what_others_say_counts_with_its_end_and_without_its_header() -> None:
    request = corpora.load("plain")
    users = [item for item in request.items if item.kind == "user"]
    text = said("user", Example(request))
    assert len(users) == text.count("<|im_end|>")
    assert "<|im_start|>" not in text
    assert text.startswith(text_content(users[0].content))  # type: ignore[attr-defined]


ENDS = {
    "rwkv-goose": ("One\n\nTwo\n\n", "5\n\n"),
    "rwkv-goose-hermes": ("One\n\nTwo\n\n", "5\n</tool_response>\n\n"),
    "ai00-v1": (
        "One\n</ai00:user>Two\n</ai00:user>",
        "    5\n  </result>\n</ai00:function_results>",
    ),
    "batuta-chatml": ("One<|im_end|>Two<|im_end|>", "5</tool_result><|im_end|>"),
    "openchatml": ("One\n<|im_end|>Two\n<|im_end|>", '{\n  "name": "f",\n  "content": "5"\n}\n<|im_end|>'),
    "rwkv-universal": ("One\n<<USER_END>>Two\n<<USER_END>>", "5\n<<END_TOOL_RESULT>>"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_closes_a_text_of_others_is_trained_with_it_and_nothing_else_is(name: str) -> None:
    """A turn without a closing of its own ends with what stands between turns, so that is trained with its text."""
    items = [
        ts.User(content=[ts.Text(text="One")]),
        ts.User(content=[ts.Text(text="Two")]),
        ts.ToolCall(name="f", id="c1"),
        ts.ToolResult(content=[ts.Text(text="5")], id="c1", name="f"),
        ts.Assistant(content=[ts.Text(text="A")]),
    ]
    request = ts.Request(conversation=ts.Conversation(items=items))
    bytewise = get_tokenizer("bytes")
    for word, expected in zip(("user", "results"), ENDS[name], strict=True):
        encoder = Encoder(ts.get_format(name), bytewise, parse_train(word), mode="text")
        for example in (Example(request), Example(_beside(request))):
            assert expected == trained_text(encoder, example)


def test_instructions_are_trained_without_the_tools_that_stand_among_them() -> None:
    """Of the list of tools nothing is the instruction's, and the end of its turn is."""
    instructions = ts.System(content=[ts.Text(text="Be brief.")])
    question = ts.User(content=[ts.Text(text="Hi")])
    request = ts.Request(conversation=ts.Conversation([instructions, question], [ts.Tool(name="f")]))
    for name, expected in (("ai00-v1", "Be brief.\n</ai00:system>"), ("rwkv-goose", "Be brief.\n\n")):
        encoder = Encoder(ts.get_format(name), get_tokenizer("bytes"), parse_train("system"), mode="text")
        assert expected == trained_text(encoder, Example(request))


def _beside(request: ts.Request) -> ts.Request:
    """The same with a member without a name on every other item, and a slot on the rest."""
    items = [copy(item) for item in request.items]
    for at, item in enumerate(items):
        if at % 2:
            item.extra = {**item.extra, "x-more": Raw(b"1")}
        else:
            item.slot = "instructions"
    return ts.Request(conversation=ts.Conversation(items=items, tools=request.tools))


TRAINS = ("assistant", "user,system,results", "all", "answers,user")


@pytest.mark.deep
@pytest.mark.parametrize("name", FORMATS)
def test_a_mask_does_not_hang_on_what_the_text_does_not_show(name: str) -> None:
    """Members without a name and slots change no weight, by plan or by row; none of them is in the text."""
    format_ = ts.get_format(name)
    encoders = {word: Encoder(format_, WORLD, parse_train(word), mode="text") for word in TRAINS}
    for case in corpora.names():
        request = corpora.load(case)
        other = _beside(request)
        assert format_.write(request).text == format_.write(other).text
        spread = range(len(request.items))
        marked: list[dict[str, Any]] = [
            {},
            {"weights": {at: at % 2 for at in spread}},
            {"context": frozenset(spread[::2])},
        ]
        examples = [Example(one, **changes) for one in (request, other) for changes in marked]
        for word, encoder in encoders.items():
            seen = [one if isinstance(one, Problem) else one.weights.tolist() for one in encoder.encode(examples)]
            assert len(examples) == len(seen)
            assert (case, word, seen[:3]) == (case, word, seen[3:])


def test_all_is_every_token_and_end_is_the_one_behind() -> None:
    format_ = ts.get_format("batuta-chatml")
    found = sample(Encoder(format_, WORLD, parse_train("all,end")), Example(TALK))
    assert {1} == set(found.weights.tolist())
    assert 0 == found.ids[-1]
    without = sample(Encoder(format_, WORLD, parse_train("all"), end=False), Example(TALK))
    assert found.ids[:-1].tolist() == without.ids.tolist()


def test_a_row_says_what_counts_unless_the_plan_does_not_listen() -> None:
    request = corpora.load("plain")
    at = next(at for at, item in enumerate(request.items) if item.kind in MODEL)
    example = Example(request, weights={at: 0.0, at - 1: 1.0})
    assert said("user", Example(request)).startswith(said("assistant", example))
    assert said("last", Example(request)) not in said("assistant", example)
    assert said("assistant", Example(request)) == said("assistant,no-flags", example)


def test_what_a_form_makes_context_is_never_trained() -> None:
    request = corpora.load("plain")
    at = next(at for at, item in enumerate(request.items) if item.kind in MODEL)
    others = said("assistant", Example(request, weights={at: 0.0}))
    example = Example(request, weights={at: 1.0}, context=frozenset({at}))
    for train in ("assistant", "assistant,no-flags"):
        assert others == said(train, example)
    assert said("assistant", Example(request)) not in said("all,no-flags", example)
    everything = frozenset(range(len(request.items)))
    (found,) = Encoder(ts.get_format("batuta-chatml"), WORLD, Train()).encode([Example(request, context=everything)])
    assert isinstance(found, Problem)
    assert (Code.NO_TRAINED_TOKEN, True) == (found.code, "context" in found.message)


def test_weights_between_0_and_1_become_bytes() -> None:
    request = corpora.load("plain")
    at = next(at for at, item in enumerate(request.items) if item.kind in MODEL)
    encoder = Encoder(ts.get_format("rwkv-universal"), WORLD, Train(), weights="scaled")
    assert 255 == encoder.scale
    assert {0, 255} == set(sample(encoder, Example(request)).weights.tolist())
    assert {0, 128} == set(sample(encoder, Example(request, weights={at: 0.5})).weights.tolist())
    assert {0, 1} == set(sample(encoder, Example(request, weights={at: 1e-9})).weights.tolist())


@pytest.mark.parametrize("weight", [0.5, -1, 1.5, float("nan")])
def test_a_weight_that_the_mask_cannot_hold_is_a_problem_of_its_row(weight: float) -> None:
    encoder = Encoder(ts.get_format("rwkv-universal"), WORLD, Train())
    found = encoder.encode([Example(TALK, weights={1: weight}), Example(TALK), Example(TALK, weights={99: 1})])
    assert [Code.WEIGHT, None, Code.WEIGHT] == [getattr(one, "code", None) for one in found]


def test_two_weights_in_one_text_are_told_apart_where_control_tokens_are_used(tmp_path: Path) -> None:
    """A thought, an answer and a call are encoded as one text, and each has the weight of its own item."""
    items = [
        ts.User(content=[ts.Text(text="Hi")]),
        ts.Thinking(content=[ts.Text(text="Hm hm.")]),
        ts.Assistant(content=[ts.Text(text="好。")]),
        ts.ToolCall(name="now"),
    ]
    example = Example(ts.Request(conversation=ts.Conversation(items=items)), weights={1: 0.2, 2: 0.8, 3: 0.4})
    encoder = Encoder(ts.get_format("rwkv-goose-observation"), WORLD, Train(), mode="text", weights="scaled")
    apart = Encoder(
        ts.get_format("rwkv-goose-observation"), get_tokenizer(_controls(tmp_path)), Train(), weights="scaled"
    )
    assert "ids" == apart.mode
    for one in (encoder, apart):
        worth = {(token.item, token.weight) for token in one.explain(example) if not token.control}
        assert {(1, 51), (2, 204), (3, 102)} == worth
        across = [
            (token.text.decode(), token.weight) for token in one.explain(example) if token.straddles and token.item > 0
        ]
        assert [("。\n", 204)] == across
        assert sample(one, example).straddling == sum(token.straddles for token in one.explain(example))


def _controls(folder: Path) -> str:
    path = folder / "c.json"
    path.write_text('{"controls": {"<tool_call>": 65530, "<think>": 65531}}')
    return f"rwkv-world+{path}"


def test_an_unfinished_text_has_no_end_to_learn() -> None:
    request = corpora.load("prefill")
    assert request.items[-1].open
    encoder = Encoder(ts.get_format("batuta-chatml"), WORLD, Train(end=True), mode="text")
    found = sample(encoder, Example(request))
    assert 0 == found.weights[-1]
    assert not WORLD.decode(found.ids.tolist()).rstrip().endswith(b"<|im_end|>")
    request.items[-1].open = False
    closed = sample(encoder, Example(request))
    assert 1 == closed.weights[-1]
    assert WORLD.decode(closed.ids.tolist()).rstrip().endswith(b"<|im_end|>")


def test_settings_of_a_request_change_nothing() -> None:
    encoder = Encoder(ts.get_format("rwkv-universal"), WORLD, Train())
    plain = sample(encoder, Example(TALK))
    asked = ts.Request(conversation=TALK.conversation, settings=ts.Settings(max_tokens=5, effort="high", stop=["x"]))
    assert plain.digest == sample(encoder, Example(asked)).digest
    assert plain.losses == sample(encoder, Example(asked)).losses


def test_a_digest_tells_texts_and_weights_apart_and_nothing_else() -> None:
    encoder = Encoder(ts.get_format("batuta-chatml"), WORLD, Train())
    other = corpora.load("thinking_text_call")
    for at, item in enumerate(other.items):
        item.at = f"items[{at}]"
        item.turn = "join"  # the renderer takes another way, and writes the same
    same = sample(encoder, Example(TALK)).digest
    assert same == sample(encoder, Example(other)).digest
    assert (
        same
        == sample(
            encoder, Example(TALK, weights={at: 1 for at, one in enumerate(TALK.items) if one.kind in MODEL})
        ).digest
    )
    assert (
        same != sample(encoder, Example(TALK, weights={len(TALK.items) - 1: 0})).digest
        or TALK.items[-1].kind not in MODEL
    )
    assert same != sample(encoder, Example(corpora.load("plain"))).digest
    assert 16 == len(same)
    pieces = ([("a", True), ("bc", False)], [("ab", True), ("c", False)], [("ab", False), ("c", True)], [("abc", True)])
    bytewise = Encoder(ts.get_format("batuta-chatml"), get_tokenizer("bytes"), Train())
    assert len(pieces) == len({sample(bytewise, Example(EMPTY, mask=mask)).digest for mask in pieces})
    assert same == sample(bytewise, Example(TALK)).digest


def test_tokens_without_bytes_of_their_own_stay_in_their_row(tmp_path: Path) -> None:
    """Where an accent changed the text, the first piece of a character has all of its bytes."""
    tokenizer = get_tokenizer(tinytokenizers.byte_level(tmp_path / "t.json", normalizer=normalizers.NFC()))
    encoder = Encoder(ts.get_format("batuta-chatml"), tokenizer, Train(), mode="text")
    masks: list[list[tuple[str, bool]]] = [
        [("ab", True), ("n\u0301\U0001f600", False)],
        [("x", True)],
        [("y", True), ("z", False)],
    ]
    rows = [Example(EMPTY, mask=mask) for mask in masks]
    for found, example in zip(encoder.encode(rows), rows, strict=True):
        assert isinstance(found, Sample)
        assert sample(encoder, example).weights.tolist() == found.weights.tolist()
    assert [0, 0] == sample(encoder, rows[0]).weights[-2:].tolist()


@pytest.mark.parametrize("mode", ["ids", "text"])
def test_the_cost_grows_with_the_length_and_not_with_its_square(mode: str, tmp_path: Path) -> None:
    format_ = ts.get_format("rwkv-goose-hermes")
    encoder = Encoder(format_, get_tokenizer(_controls(tmp_path)), Train(last=True), mode=mode)

    def work(turns: int) -> Callable[[], object]:
        turn = [ts.User(content=[ts.Text(text="Say it again.")]), ts.Assistant(content=[ts.Text(text="It, again.")])]
        example = Example(ts.Request(conversation=ts.Conversation(items=turn * turns)))
        return lambda: sample(encoder, example)

    assert_grows_below(24, work, 500, 4000)


@pytest.mark.deep
def test_tokens_are_explained_in_time_in_proportion_to_their_number() -> None:
    """However many borders of what is trained there are."""
    encoder = Encoder(ts.get_format("batuta-chatml"), get_tokenizer("bytes"), Train(), mode="text")

    def work(pieces: int) -> Callable[[], object]:
        example = Example(EMPTY, mask=[("ab", True), ("c", False)] * pieces)
        return lambda: encoder.explain(example)

    assert_grows_below(20, work, 10_000, 80_000)
