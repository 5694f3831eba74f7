"""Rows with a hole, and files: only what fills the hole is trained, in the order in which the format's prompts are."""

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import rows as lines_of
from tests.cli.running import run
from tests.datasets.jobs import built, plan_for, rejects
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import BadRow, Code, Problem
from turnscript.datasets.sample_checks import Checker
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import parse_train

HOLE = {"prefix": "2 + 2 = ", "suffix": ".", "middle": "4"}
FILES = {"files": ["x = 4", HOLE]}
WORLD = get_tokenizer("rwkv-world")


def example(row: object) -> Example:
    [found] = get_form("fill").read(json.dumps(row).encode())
    return found


def sample(row: object, name: str = "openchatml", tokenizer: str = "rwkv-world", **wishes: Any) -> tuple[str, str, int]:
    """The text of a sample, what of it is trained, and the weight of the token behind it."""
    encoder = Encoder(ts.get_format(name), get_tokenizer(tokenizer), parse_train(wishes.pop("train", "")), **wishes)
    [made] = encoder.encode([example(row)])
    assert isinstance(made, Sample), made
    assert [] == Checker(encoder).faults(example(row), made)
    tokens = encoder.explain(example(row))
    assert [made.ids.tolist(), made.weights.tolist()] == [[one.id for one in tokens], [one.weight for one in tokens]]
    trained = b"".join([one.text for one in tokens if one.weight])
    return b"".join([one.text for one in tokens]).decode(), trained.decode(), tokens[-1].weight


@pytest.mark.parametrize("tokenizer", ["rwkv-world", "bytes"])
@pytest.mark.parametrize(
    ("name", "order", "text", "end"),
    [
        ("openchatml", "", "<|fim_prefix|>2 + 2 = <|fim_suffix|>.<|fim_middle|>4", 1),
        ("openchatml", "psm", "<|fim_prefix|>2 + 2 = <|fim_suffix|>.<|fim_middle|>4", 1),
        ("openchatml", "spm", "<|fim_prefix|><|fim_suffix|>.<|fim_middle|>2 + 2 = 4", 1),
        ("openchatml", "rwkv", "✿prefix✿✿suffix✿.✿middle✿2 + 2 = 4", 1),
        ("rwkv-goose", "", "✿prefix✿✿suffix✿.✿middle✿2 + 2 = 4", 1),
    ],
)
def test_what_fills_the_hole_is_trained_and_the_end_behind_it(
    name: str, order: str, text: str, end: int, tokenizer: str
) -> None:
    """All else is what a server is given, and the middle has the tokens that it has behind that."""
    assert (text, "4", end) == sample(HOLE, name, tokenizer, order=order)


def test_where_the_middle_does_not_come_last_no_end_is_learnt() -> None:
    """So in the order that documents have: the middle has a token of its own only where it falls so."""
    text, trained, end = sample(HOLE, order="spec", tokenizer="bytes")
    assert ("<|fim_prefix|>2 + 2 = <|fim_middle|>4<|fim_suffix|>.", "4", 0) == (text, trained, end)


def test_the_ids_before_a_hole_are_those_of_its_prompt() -> None:
    for name in ("openchatml", "rwkv-goose"):
        format_ = ts.get_format(name)
        encoder = Encoder(format_, WORLD, parse_train(""))
        [made] = encoder.encode([example(HOLE)])
        assert isinstance(made, Sample)
        [ids] = WORLD.encode([format_.fill_prompt(ts.Fill("2 + 2 = ", ".")).text])
        assert ids == made.ids[: len(ids)].tolist()
        assert [0] * len(ids) + [1] * (len(made.ids) - len(ids)) == made.weights.tolist()


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2 + 2 = ", "suffix": ".", "completion": "4"},
        {"prompt": "2 + 2 = ", "suffix": ".", "middle": "4", "label": True, "id": 7},
        {"files": [HOLE]},
    ],
)
def test_other_spellings_are_the_same_row(row: object) -> None:
    assert example(HOLE).files == example(row).files


def test_files_before_a_hole_are_context() -> None:
    expected = "x = 4\n<|file_separator|>\n<|fim_prefix|>2 + 2 = <|fim_suffix|>.<|fim_middle|>4"
    assert (expected, "4", 1) == sample(FILES)


def test_files_without_a_hole_are_trained_as_texts_are() -> None:
    text = "<|file_separator|>\none\n<|file_separator|>\ntwo"
    assert (text, text, 0) == sample({"files": ["one", "two"], "leading": True})


def test_every_token_is_trained_where_the_plan_says_so() -> None:
    text, trained, _ = sample(HOLE, train="all")
    assert text == trained


def test_tags_in_texts_are_broken_or_refused() -> None:
    row = HOLE | {"suffix": "<|fim_middle|>"}
    assert "<\\|fim_middle|>" in sample(row)[0]
    assert "<|fim_suffix|><|fim_middle|>" in sample(row, escape="none")[0]
    [refused] = Encoder(ts.get_format("openchatml"), WORLD, parse_train(""), escape="reject").encode([example(row)])
    assert isinstance(refused, Problem)
    assert Code.TAG_IN_TEXT == refused.code


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"prefix": "a", "suffix": "b"}, "$.middle"),
        ({"prefix": "a", "middle": "b"}, "$.suffix"),
        ({"prefix": "a", "suffix": None, "middle": "b"}, "$.suffix"),
        ({"prefix": "a", "prompt": "a", "suffix": "c", "middle": "b"}, "$.prompt"),
        ({"prefix": "a", "suffix": "c", "middle": "b", "completion": "d"}, "$.completion"),
        ({"prefix": "a", "suffix": "c", "middle": "b", "messages": [{}]}, "$.messages"),
        ({"files": ["a", 3]}, "$.files[1]"),
        ({"files": ["a"], "suffix": "b"}, "$.suffix"),
        ({"files": [HOLE, "a"]}, "$.files[0]"),
        (HOLE | {"label": False}, "$.label"),
    ],
)
def test_a_row_that_is_not_of_the_form_is_refused_with_its_place(row: object, path: str) -> None:
    with pytest.raises(BadRow) as caught:
        example(row)
    assert path == caught.value.path


@pytest.mark.parametrize(
    ("name", "row", "code", "said"),
    [
        ("rwkv-universal", HOLE, Code.FORMAT, "choose a format that has"),
        ("rwkv-goose", FILES, Code.FORMAT, "nothing that stands between files"),
        (
            "openchatml",
            {"files": [{"prefix": "a", "suffix": "b"}]},
            Code.NO_TRAINED_TOKEN,
            "nobody has filled its hole",
        ),
        ("openchatml", HOLE | {"middle": ""}, Code.NO_TRAINED_TOKEN, "what fills the hole is empty"),
        ("openchatml", {"files": [""]}, Code.EMPTY, "empty"),
    ],
)
def test_what_no_sample_can_be_made_of_is_said(name: str, row: object, code: Code, said: str) -> None:
    [found] = Encoder(ts.get_format(name), WORLD, parse_train("")).encode([example(row)])
    assert isinstance(found, Problem)
    assert (code, True) == (found.code, said in found.message)


def test_an_order_that_the_format_does_not_have_is_refused_before_a_row_is_read() -> None:
    for name, order, error in (("openchatml", "smp", ts.UnknownName), ("ai00-v1", "psm", ts.InvalidInput)):
        with pytest.raises(error):
            Encoder(ts.get_format(name), WORLD, parse_train(""), order=order)


# From files.


def written(folder: Path, *rows: object, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(lines_of(*rows))
    return path


def test_rows_with_a_hole_are_told_by_their_members(tmp_path: Path) -> None:
    path = written(tmp_path, HOLE, FILES, {"prompt": "a", "suffix": "b", "completion": "c"})
    plan = plan_for(path, format="openchatml", form="auto", order="spm")
    report = built(plan, tmp_path / "out")
    assert ({}, 3) == (report.rejected, report.samples)
    verified = run("data", "verify", tmp_path / "out")
    assert (0, True) == (verified.exit_code, "everything is as it should be" in verified.output)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert "spm" == manifest["encoding"]["order"]


def test_a_prompt_with_nothing_behind_it_is_no_hole(tmp_path: Path) -> None:
    path = written(tmp_path, *[{"prompt": "a", "completion": "b", "suffix": ""}] * 3)
    assert "prompt-completion" in run("data", "inspect", path).output


def test_a_suffix_beside_another_form_is_set_aside(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    path = written(tmp_path, *[chat] * 9, chat | {"suffix": "c"})
    assert {Code.FORM: 1} == built(plan_for(path, format="openchatml"), tmp_path / "out").rejected
    assert "$.suffix" == rejects(tmp_path / "out")[0]["pointer"]


def test_texts_of_a_format_with_files_are_read_as_what_they_are(tmp_path: Path) -> None:
    """A conversation beside them stays one; what could have two holes is set aside."""
    texts = [
        "<|fim_prefix|>2 + 2 = <|fim_middle|>4<|fim_suffix|>.",
        "one\n<|file_separator|>\ntwo",
        "<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant\nHello.\n<|im_end|>",
        "<|fim_prefix|><|fim_suffix|>.<|fim_middle|>4",
        "<|fim_prefix|>a<|fim_suffix|>b",
    ]
    path = written(tmp_path, *[{"text": text} for text in texts])
    plan = plan_for(path, format="openchatml", form="openchatml")
    report = built(plan, tmp_path / "out")
    assert 3 == report.samples
    said = [reject["message"] for reject in rejects(tmp_path / "out")]
    assert ["psm or spm" in said[0], "<|fim_middle|> is missing" in said[1]] == [True, True], report.rejected


def test_a_text_that_is_files_is_not_taken_for_plain_text(tmp_path: Path) -> None:
    path = written(tmp_path, *[{"text": "<|fim_prefix|>a<|fim_middle|>b<|fim_suffix|>c"}] * 3)
    result = run("data", "check", path, "--to", "openchatml", "--tokenizer", "bytes")
    assert (1, True) == (result.exit_code, "--from openchatml" in result.output)


def test_a_preview_shows_what_is_trained(tmp_path: Path) -> None:
    options = ("--to", "rwkv-goose", "--tokenizer", "rwkv-world")
    result = run("data", "preview", written(tmp_path, HOLE), *options)
    assert ["+      4", "* end"] == [line for line in result.output.splitlines() if line.startswith(("+", "*"))]
