"""Owns the checks of what cannot be encoded: each row its code, place and reason, and no other row is touched."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import turnscript as ts
from tests import corpora
from tests.datasets import tinytokenizers
from turnscript.core.errors import UnknownName, Unsupported
from turnscript.core.json_text import Json
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.tokenizer import Ends, Tokenizer
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import Train, parse_train

WORLD = get_tokenizer("rwkv-world")
UNIVERSAL, CHATML = ts.get_format("rwkv-universal"), ts.get_format("batuta-chatml")
GOOD = Example(corpora.load("plain"))


def talk(*items: ts.Item, tools: list[ts.Tool] | None = None) -> Example:
    return Example(ts.Request(conversation=ts.Conversation(items=list(items), tools=tools or [])))


def user(text: str = "Hi") -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def answer(text: str = "Hello.") -> ts.Assistant:
    return ts.Assistant(content=[ts.Text(text=text)])


def problem(encoder: Encoder, example: Example) -> Problem:
    """The problem of a row between two good ones, which have none."""
    before, found, behind = encoder.encode([GOOD, example, GOOD])
    assert isinstance(before, Sample)
    assert isinstance(behind, Sample)
    assert before.ids.tolist() == behind.ids.tolist()
    assert before.weights.tolist() == behind.weights.tolist()
    assert isinstance(found, Problem), found
    return found


@pytest.mark.parametrize("example", [talk(), talk(user(""), answer("")), Example(ts.Request(), text="")])
def test_nothing_to_learn_from(example: Example) -> None:
    assert Code.EMPTY == problem(Encoder(UNIVERSAL, WORLD, Train()), example).code


@pytest.mark.parametrize(
    ("example", "train", "why"),
    [
        (talk(user()), "assistant", "the model says nothing in it"),
        (talk(user(), answer()), "calls", "nothing in it of what the plan trains"),
        (Example(talk(user(), answer()).request, weights={1: 0}), "assistant", "weight 0"),
        (Example(ts.Request(), mask=[("a", False)]), "assistant", "no piece of the text"),
        (talk(user()), "assistant,end", "the model says nothing in it"),
    ],
)
def test_a_row_without_a_trained_token_says_why(example: Example, train: str, why: str) -> None:
    encoder = Encoder(UNIVERSAL, WORLD, parse_train(train))
    found = encoder.encode([example])[0]
    assert isinstance(found, Problem)
    assert Code.NO_TRAINED_TOKEN == found.code
    assert why in found.message


def test_half_of_a_surrogate_pair_is_told_with_its_item() -> None:
    found = problem(Encoder(UNIVERSAL, WORLD, Train()), talk(user(), answer("x\ud800")))
    assert (Code.UTF8, "items[1]") == (found.code, found.pointer)
    assert Code.UTF8 == problem(Encoder(UNIVERSAL, WORLD, Train()), Example(ts.Request(), text="\udc00")).code


def test_a_tag_in_a_text_is_told_where_tags_are_refused() -> None:
    example = talk(user("<|im_end|>"), answer())
    found = problem(Encoder(CHATML, WORLD, Train(), escape="reject"), example)
    assert (Code.TAG_IN_TEXT, "items[0]") == (found.code, found.pointer)
    assert isinstance(Encoder(CHATML, WORLD, Train()).encode([example])[0], Sample)


def test_a_call_of_a_tool_that_was_not_declared_is_told_where_that_is_asked() -> None:
    call, other, inner = (ts.ToolCall(name=name) for name in ("now", "later", "inner"))
    added = ts.ToolsChange(
        added=[ts.Tool(name="later"), ts.Tool(name="n", type="namespace", tools=[ts.Tool(name="inner")])]
    )
    tools = [ts.Tool(name="now")]

    def said(*items: ts.Item) -> object:
        example = Example(ts.Request(conversation=ts.Conversation(items=[user(), *items], tools=tools)))
        assert isinstance(Encoder(CHATML, WORLD, Train()).encode([example])[0], Sample)
        found = Encoder(CHATML, WORLD, Train(), declared=True).encode([example])[0]
        return found if isinstance(found, Sample) else (found.code, found.message.split(",")[0])

    assert isinstance(said(call), Sample)
    assert (Code.TOOL_UNDECLARED, "it calls 'later'") == said(call, other)
    assert isinstance(said(call, added, other, inner), Sample)
    assert (Code.TOOL_UNDECLARED, "it calls 'now'") == said(ts.ToolsChange(removed=["now"]), call)


@pytest.mark.parametrize("escape", ["auto", "reject"])
def test_what_a_format_cannot_write_is_no_tag(escape: str) -> None:
    unfinished = answer()
    unfinished.open = True
    found = problem(Encoder(CHATML, WORLD, Train(), escape=escape), talk(user(), unfinished, user(), answer()))
    assert (Code.FORMAT, "items[1]") == (found.code, found.pointer)


def test_a_loss_is_counted_or_refused() -> None:
    example = talk(ts.User(content=[ts.Text(text="a\n\n\nb")], id="u1"), answer())
    goose = ts.get_format("rwkv-goose")
    found = Encoder(goose, WORLD, Train()).encode([example])[0]
    assert isinstance(found, Sample)
    assert len(goose.render(example.request, view="prompt").losses) == len(found.losses) > 0
    strict = problem(Encoder(goose, WORLD, Train(), strict=True), example)
    assert Code.LOSSY == strict.code
    assert strict.pointer.startswith("items[0]")


@pytest.mark.parametrize("mode", ["ids", "text"])
def test_an_id_that_an_output_cannot_hold_is_told(tmp_path: Path, mode: str) -> None:
    tokenizer = get_tokenizer(tinytokenizers.byte_level(tmp_path / "t.json"))
    largest = int(max(tokenizer.encode(["Hello."])[0]))
    encoder = Encoder(CHATML, tokenizer, Train(), mode=mode, largest=largest)
    rows = [Example(ts.Request(), text="Hello."), talk(user("the weather"), answer("the weather in Paris"))]
    found = encoder.encode(rows)
    assert isinstance(found[0], Sample)
    assert isinstance(found[1], Problem)
    assert Code.ID_RANGE == found[1].code


def test_a_text_that_a_tokenizer_has_no_ends_for_is_refused_in_text_mode_only(tmp_path: Path) -> None:
    tokenizer = get_tokenizer(tinytokenizers.words(tmp_path / "w.json"))
    example = Example(ts.Request(), mask=[("the weather", True)])
    found = Encoder(CHATML, tokenizer, Train(), mode="text").encode([example])[0]
    assert isinstance(found, Problem)
    assert "use the mode 'ids'" in found.message
    assert isinstance(Encoder(CHATML, tokenizer, Train(), mode="ids").encode([example])[0], Sample)


@pytest.mark.parametrize("mode", ["ids", "text"])
def test_a_text_that_a_tokenizer_refuses_spoils_no_other_row(tmp_path: Path, mode: str) -> None:
    tokenizer = get_tokenizer(tinytokenizers.unigram(tmp_path / "u.json"))
    goose = ts.get_format("rwkv-goose")
    rows = [Example(ts.Request(), text=text) for text in ("the weather", "\U0001f9ff", "the")]
    found = Encoder(goose, tokenizer, Train(), mode="text" if mode == "text" else "auto").encode(rows)
    assert [Sample, Problem, Sample] == [type(one) for one in found]


def test_text_documents_are_trained_whole_or_in_pieces() -> None:
    encoder = Encoder(UNIVERSAL, WORLD, Train())
    whole, pieces, crooked = encoder.encode(
        [
            Example(ts.Request(), text="Hello <<USER>> there"),
            Example(ts.Request(), mask=[("Hello", False), (" there", True)]),
            Example(ts.Request(), text="Hello", mask=[("Hell", True)]),
        ]
    )
    assert isinstance(whole, Sample)
    assert isinstance(pieces, Sample)
    assert b"Hello <<USER>> there" == WORLD.decode(whole.ids.tolist())
    assert [1] * (len(whole.ids) - 1) + [0] == whole.weights.tolist()
    assert [0, 1, 0] == pieces.weights.tolist()
    assert isinstance(crooked, Problem)
    assert Code.SHAPE == crooked.code


@pytest.mark.parametrize("kind", [None, 7, {"a": 1}, [{"a": 1}], [[]], ["string", {}], [None]])
@pytest.mark.parametrize("name", ts.formats())
def test_a_schema_of_an_odd_type_spoils_no_row(name: str, kind: object) -> None:
    schema = Json(json.dumps({"type": "object", "properties": {"a": {"type": kind}}}).encode())
    call = ts.ToolCall(name="f", arguments='{"a": "x"}', id="c")
    example = talk(user(), call, tools=[ts.Tool(name="f", parameters=schema)])
    (found,) = Encoder(ts.get_format(name), WORLD, Train()).encode([example])
    assert Code.INTERNAL != getattr(found, "code", "")


class Broken(Tokenizer):
    """A tokenizer with a defect: it fails on a letter."""

    spec, size, end, controls, fingerprint = "broken", 256, None, {}, ""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[{"z": 1}[one] if one in "yz" else ord(one) for one in text] for text in texts]

    def ends(self, text: str, ids: Sequence[int]) -> Ends:
        return np.arange(1, len(ids) + 1)

    def decode(self, ids: Sequence[int]) -> bytes:
        return bytes(ids)


def test_a_defect_spoils_its_own_row_only_and_is_told_as_one() -> None:
    encoder = Encoder(UNIVERSAL, Broken(), Train())
    before, found, behind = encoder.encode([talk(user(), answer(text)) for text in ("a", "y", "a")])
    assert isinstance(before, Sample)
    assert isinstance(behind, Sample)
    assert isinstance(found, Problem)
    assert Code.INTERNAL == found.code
    assert found.message == "turnscript failed on it (KeyError: 'y'); please report this row"


def test_an_example_that_no_format_can_write_is_a_defect_too() -> None:
    odd = talk(user(), answer())
    odd.request.conversation.items[0].content = None  # type: ignore[attr-defined]
    found = problem(Encoder(UNIVERSAL, WORLD, Train()), odd)
    assert Code.INTERNAL == found.code
    assert "please report this row" in found.message


def test_no_examples_are_no_samples() -> None:
    assert [] == Encoder(UNIVERSAL, WORLD, Train()).encode([])


@pytest.mark.parametrize("wishes", [{"mode": "both"}, {"escape": "no"}, {"weights": "float"}])
def test_an_option_that_is_none_is_told(wishes: dict[str, str]) -> None:
    with pytest.raises(UnknownName, match=r"known: |did you mean"):
        Encoder(UNIVERSAL, WORLD, Train(), **wishes)  # type: ignore[arg-type]


def test_ids_without_a_control_token_are_refused() -> None:
    with pytest.raises(Unsupported, match="turnscript data tokens"):
        Encoder(UNIVERSAL, WORLD, Train(), mode="ids")


def test_the_facts_are_plain_and_tell_plans_apart(tmp_path: Path) -> None:
    tokenizer = get_tokenizer(tinytokenizers.byte_level(tmp_path / "t.json"), end="<|endoftext|>")
    facts = Encoder(CHATML, tokenizer, Train()).facts()
    assert facts == json.loads(json.dumps(facts))
    assert ("ids", tokenizer.end, "assistant") == (facts["mode"], facts["end"], facts["train"])
    assert {"<|im_start|>", "<|im_end|>"} == set(facts["controls"])
    for other in (
        Encoder(UNIVERSAL, tokenizer, Train()),
        Encoder(CHATML, WORLD, Train()),
        Encoder(CHATML, tokenizer, Train(last=True)),
        Encoder(CHATML, tokenizer, Train(), weights="scaled"),
        Encoder(CHATML, tokenizer, Train(), end=False),
    ):
        assert facts != other.facts()


def test_the_packages_for_other_tokenizers_are_loaded_only_when_named() -> None:
    code = (
        "import sys, turnscript.datasets.encoding, turnscript.datasets.vocabulary, turnscript.datasets.tokenizers as t;"
        "t.get_tokenizer('bytes');"
        "assert not {'tokenizers', 'pyrwkv_tokenizer', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
