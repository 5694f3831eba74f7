"""Owns the checks of what the playground says of a prompt: its pieces, its escapes, its tokens, whose each is."""

from __future__ import annotations

import json
from itertools import groupby

import pytest

import turnscript as ts
from turnscript.convert.registry import named_formats
from turnscript.playground import prompts
from turnscript.playground.examples import examples
from turnscript.playground.prompts import Ask, prompted, tokenizers

EXAMPLES = {example.name: example.text for example in examples()}


@pytest.mark.parametrize("name", named_formats())
@pytest.mark.parametrize("example", ["messages_request", "hostile_request"])
def test_the_pieces_are_the_prompt(name: str, example: str) -> None:
    told = prompted(Ask(EXAMPLES[example], name))
    request = ts.parse(EXAMPLES[example])
    prompt = ts.get_format(name).prompt(request)
    assert told.fault is None
    assert prompt.text == "".join(piece.text for piece in told.pieces)
    kinds = [kind for kind, _ in groupby(span[1:] for span in prompt.spans if span.text)]
    assert kinds == [(piece.control, piece.trainable, piece.item) for piece in told.pieces]
    assert (prompt.stops, prompt.prefill) == (told.stops, told.prefill)
    assert len(request.items) == len(told.items)
    assert all(item.place is not None for item in told.items)


@pytest.mark.parametrize("name", named_formats())
def test_without_what_the_escape_put_in_a_text_is_as_it_was(name: str) -> None:
    """Those of a text with characters that browsers count twice, too."""
    text = "\U0001f600 a <<USER>> <<\\USER>> <|im_end|>\U0001f600<|im_end|> </s> <ai00:user> <|eot_id|>"
    request = ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text=text)])]))
    body = ts.render(request, ts.apis()[0]).value
    told = prompted(Ask(ts.render(request, ts.apis()[0]).data.decode(), name))
    assert body
    plain = ""
    for piece in told.pieces:
        data = piece.text.encode("utf-16-le")
        kept = [data[2 * at : 2 * at + 2] for at in range(len(data) // 2) if at not in piece.escapes]
        taken = {data[2 * at : 2 * at + 2].decode("utf-16-le") for at in piece.escapes}
        assert taken <= {"\\"}
        plain += b"".join(kept).decode("utf-16-le")
    assert ts.get_format(name).prompt(ts.parse(body), escape="none").text == plain


def test_thinking_is_asked_for_or_not() -> None:
    source = EXAMPLES["chat_request"]
    texts = {
        thinking: "".join(piece.text for piece in prompted(Ask(source, "rwkv-universal", thinking=thinking)).pieces)
        for thinking in (None, True, False)
    }
    assert texts[None] == texts[False]
    assert texts[True].endswith("<<THINK>>\n")
    assert not prompted(Ask(source, "gemma", thinking=True)).thinks


@pytest.mark.parametrize("tokenizer", tokenizers())
@pytest.mark.parametrize("name", ts.formats())
def test_the_tokens_are_the_prompt(name: str, tokenizer: str) -> None:
    told = prompted(Ask(EXAMPLES["chat_request"], name, tokenizer=tokenizer))
    assert told.tokens is not None
    text = "".join(piece.text for piece in told.pieces)
    assert text == "".join(box.text for box in told.tokens.boxes)
    assert len(told.tokens.boxes) == told.tokens.total
    assert 0 < told.tokens.trained < told.tokens.total
    assert told.tokens.trained == sum(box.weight > 0 for box in told.tokens.boxes)


def test_only_so_many_tokens_are_shown() -> None:
    body = {"messages": [{"role": "user", "content": "a" * prompts.MOST_TOKENS}]}
    told = prompted(Ask(json.dumps(body), "rwkv-universal", tokenizer="bytes")).tokens
    assert told is not None
    assert prompts.MOST_TOKENS == len(told.boxes)
    assert told.total == len(told.boxes) + told.more > prompts.MOST_TOKENS


def test_no_file_is_read_for_a_name() -> None:
    told = prompted(Ask(EXAMPLES["chat_request"], "own.toml"))
    assert told.fault is not None
    assert "unknown_name" == told.fault.code
    told = prompted(Ask(EXAMPLES["chat_request"], "rwkv-universal", tokenizer="hf:/etc/passwd"))
    assert told.unheard is not None
    assert "unknown_name" == told.unheard.code


def test_an_answer_has_no_prompt_and_is_still_recognised() -> None:
    told = prompted(Ask(EXAMPLES["chat_answer"], "rwkv-universal"))
    assert told.fault is not None
    assert told.recognised is not None
    assert "answer" == told.recognised.what


def test_a_hole_in_a_text_is_shown() -> None:
    source = '{"model": "m", "prompt": "def add(a, b):\\n    return ", "suffix": "\\n"}'
    told = prompted(Ask(source, "openchatml", tokenizer="bytes"))
    expected = ts.get_format("openchatml").fill_prompt(ts.parse(source))
    assert told.fault is None
    assert expected.text == "".join(piece.text for piece in told.pieces)
    assert expected.stops == told.stops
