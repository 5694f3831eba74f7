"""Owns the checks of chats in one text with labels: told from plain texts, and a quoted label moves no words."""

import json
import re
from pathlib import Path

import pytest

from tests.datasets.jobs import built, plan_for, written
from tests.datasets.samples import rows_of
from tests.every import every
from turnscript import Assistant, System, Thinking, User
from turnscript.convert.registry import get_format, named_formats
from turnscript.datasets.form_detection import Verdict, detect_form
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.labelled_texts import STYLES
from turnscript.datasets.opened import open_rows
from turnscript.datasets.ordercheck import TRAINED_WHOLE
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.rows import RawRow
from turnscript.formats.format import Format

NAMES = [style.name for style in STYLES]


def read(form: str, text: str) -> list[tuple[str, str]]:
    (example,) = get_form(form).read(json.dumps({"text": text}).encode())
    said = [item for item in example.request.items if isinstance(item, System | User | Assistant | Thinking)]
    assert len(said) == len(example.request.items)
    return [(item.kind, "".join(getattr(part, "text", "?") for part in item.content)) for item in said]


def detect(*texts: str, file: str = "rows.jsonl") -> Verdict:
    data = [text.encode() if file.endswith(".txt") else json.dumps({"text": text}).encode() for text in texts]
    return detect_form([RawRow(file, number, 0, one) for number, one in enumerate(data, 1)], file)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_such_a_text_is_told_too_and_read_alike(name: str, tmp_path: Path) -> None:
    for row in rows_of(name):
        text = json.loads(row)["text"]
        assert (name, "") == (detect(text, file="a.txt").form, detect(text, file="a.txt").refusal)
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        (found,) = open_rows(str(tmp_path / "a.txt"))
        assert found.problem is None
        assert repr(found.examples[0].request.items) == repr(get_form(name).read(row)[0].request.items)


@every(
    "text",
    [
        "Once upon a time.",
        "Human: a species of primates.",
        "### Instruction:\nno answer here",
        "[INST] nobody answers",
        "The label USER: begins no text. ASSISTANT: nor does this.",
        "A chat between friends, at length and without labels.",
        "",
    ],
)
def test_a_text_without_turns_is_none(text: str) -> None:
    assert detect(text).form in ("text", "")
    assert not any(name in detect(text).refusal for name in NAMES)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("human-assistant", "Human: Quote it.\n\nAssistant: It says:\n\nAssistant: Hi", Code.SHAPE),
        ("human-assistant", "Human: \n\nAssistant: Hi", Code.EMPTY),
        ("human-assistant", "Human: Hi\n\nAssistant:\n\nHuman: Well?\n\nAssistant: Yes", Code.EMPTY),
        ("vicuna", "USER: Hi ASSISTANT: Yo</s>more ASSISTANT: again", Code.SHAPE),
        ("vicuna", "USER: Hi ASSISTANT: Yo</s>more", Code.SHAPE),
        ("guanaco", "### Human: Hi### Human: Hello?### Assistant: Yo", Code.SHAPE),
        ("alpaca-prompt", "### Instruction:\nHi\n\n### Response:\nYo\n\n### Input:\nx", Code.SHAPE),
        ("llama2", "[INST] a [INST] b [/INST] c", Code.SHAPE),
        ("llama2", "[INST] a [/INST][TOOL_CALLS]f[ARGS]{}", Code.FORM),
        ("llama2", "Once upon a time.", Code.FORM),
    ],
)
def test_a_text_whose_turns_cannot_be_told_is_set_aside(name: str, text: str, code: Code) -> None:
    with pytest.raises(BadRow) as caught:
        read(name, text)
    assert (code, "$.text") == (caught.value.reason, caught.value.path)
    assert detect(text).form in ("", "text" if code is Code.FORM and "[" not in text else "")


def test_what_belongs_to_the_style_is_left_out_and_all_other_words_stay() -> None:
    alpaca = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
    turns = "\n\n### Instruction:\nHi\n\n### Response:\nYo"
    assert [("user", "Hi"), ("assistant", "Yo")] == read("alpaca-prompt", alpaca + turns)
    own = "Below is an instruction. Be kind."
    assert [("system", own), ("user", "Hi"), ("assistant", "Yo")] == read("alpaca-prompt", own + turns)
    assert [("user", "Hi"), ("assistant", "Yo"), ("user", "Bye")] == read(
        "vicuna", "USER: Hi ASSISTANT: Yo</s>USER: Bye ASSISTANT:"
    )


def test_a_row_says_how_much_it_counts() -> None:
    row = {"text": "Human: Hi\n\nAssistant: Yo", "weight": 0}
    (example,) = get_form("human-assistant").read(json.dumps(row).encode())
    assert {1: 0.0} == {at: weight for at, weight in example.weights.items() if at == 1}


def test_a_few_chats_among_texts_are_not_trained_whole_unsaid() -> None:
    verdict = detect("Human: Hi\n\nAssistant: Yo", *["Once upon a time."] * 9)
    assert "" == verdict.form
    assert "human-assistant" in verdict.refusal


def test_transcripts_of_a_table_are_rows_where_somebody_says_so(tmp_path: Path) -> None:
    """Such as Gemma's, which is in no list of forms."""
    text = "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
    file = written(tmp_path / "a.jsonl", [json.dumps({"text": text}).encode()])
    report = built(plan_for(file, form="gemma"), tmp_path / "out")
    assert (1, {}) == (report.written, report.warnings)
    assert 0 < report.share < 0.5


def test_no_table_is_built_for_texts_that_hold_none_of_their_openings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(name: str) -> Format:
        asked.append(name)
        return get_format(name)

    monkeypatch.setattr("turnscript.datasets.transcript_claims.get_format", counted)
    detect("Once upon a time.", "Human: Hi\n\nAssistant: Yo")
    assert set(asked) < set(named_formats())
    assert "gemma" not in asked
    assert "gemma" in re.split(r"[ ,)]+", detect("<start_of_turn>user\nHi").refusal)


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"form": "auto"}, True),
        ({"form": "text"}, False),
        ({"form": "auto", "train": "all"}, False),
    ],
)
def test_a_plan_of_chats_that_trains_nearly_everything_is_warned_of(
    fields: dict[str, str], warned: bool, tmp_path: Path
) -> None:
    file = written(tmp_path / "a.jsonl", [b'{"text": "Once upon a time there was a text."}'] * 3)
    report = built(plan_for(file, **fields), tmp_path / "out")
    assert ({TRAINED_WHOLE: 3} if warned else {}) == report.warnings
    assert warned == any(TRAINED_WHOLE in note for note in report.notes())
