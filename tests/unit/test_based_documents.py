"""Owns documents with a base model's own strings around them, in a format that has stand-ins for those."""

import pytest

import turnscript as ts
from tests.cli.running import run

STARTS = ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<｜begin▁of▁sentence｜>")
ENDS = ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>")
FORMAT = ts.get_format("openchatml")
TURNS = "<|im_start|>user name=Eric\nHi\n<|im_end|>\n<|im_start|>assistant\nHello.\n<|im_end|>"
ITEMS = FORMAT.parse(f"[BOS]{TURNS}[EOS]").items


def told(text: str) -> list[tuple[str, str]]:
    return [(loss.path, loss.detail) for loss in FORMAT.parse(text).unread]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("end", ["", "[EOS]", "\n</s>\n"])
def test_a_base_models_start_is_read_as_the_start(start: str, end: str) -> None:
    text = f"{start}{TURNS}{end}"
    assert ITEMS == FORMAT.parse(text).items
    losses = [("line 1", f"{start}, which is a base model's own, is read as [BOS]")]
    losses += [("line 7", "</s>, which is a base model's own, is read as [EOS]")] if "</s>" in end else []
    assert losses == told(text)
    found = [(f"line {one.line}", one.message) for one in FORMAT.check(text)[1].all]
    assert losses == found
    converted = ts.convert(text, "auto", "openai-chat")
    assert losses == [(loss.path, loss.detail) for loss in converted.losses]
    assert "Eric" == converted.value["messages"][0]["name"]


@pytest.mark.parametrize("end", ENDS)
def test_a_base_models_end_is_read_as_the_end(end: str) -> None:
    for start in ("", "[BOS]"):
        assert ITEMS == FORMAT.parse(f"{start}{TURNS}{end}").items
        assert [("line 6", f"{end}, which is a base model's own, is read as [EOS]")] == told(f"{start}{TURNS}{end}")


def test_only_what_stands_at_the_ends_is_read_so() -> None:
    """Not before a text, not in one, and nothing that no base model has."""
    for text in (f"<s>Hi {TURNS}", f"<x>{TURNS}", f"{TURNS}<s>{TURNS}", f"{TURNS} end</s>"):
        with pytest.raises(ts.InvalidTranscript):
            FORMAT.parse(text)
    said = FORMAT.parse(f"[BOS]{TURNS.replace('Hello.', '<s> and </s>')}[EOS]")
    assert ("<s> and </s>", []) == (said.items[1].content[0].text, said.unread)  # type: ignore[attr-defined]
    own = FORMAT.with_ends("<s>", "</s>")
    assert [] == own.parse(f"<s>{TURNS}</s>").unread


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ('name="Eric"', '1:23: warning: the quotes are read as a part of the value "Eric"; leave them out'),
        (
            'name="Ann B"',
            "1:33: fault: 'B\"' is no attribute of <|im_start|>user; a value holds no white space, in quotes",
        ),
        ("Name=Eric", "1:23: fault: 'Name=Eric' is no attribute of <|im_start|>user; write name=..."),
    ],
)
def test_what_is_odd_about_a_name_is_said(head: str, words: str) -> None:
    said = run(
        "check", "-", "--format", "openchatml", stdin=f"[BOS]<|im_start|>user {head}\nHi\n<|im_end|>[EOS]"
    ).stdout
    assert words in said
