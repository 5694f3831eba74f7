"""Owns the checks of files and fills: the examples' bytes, every order there and back, hostile texts, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import turnscript as ts
from tests.growth import assert_grows_below
from tests.strategies.text import texts
from turnscript.convert.registry import load_formats
from turnscript.core.errors import InvalidConversation, InvalidInput, InvalidTranscript, UnknownName, Unsupported

GOLDEN = Path(__file__).parents[1] / "golden" / "openchatml"
TABLE = (Path(__file__).parents[1] / "cases" / "fills.toml").read_text(encoding="utf-8")
[FORMAT] = load_formats(TABLE)
SEPARATOR = "<|file_separator|>"
PRE = "<|fim_prefix|>"
HOLE = "<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S"
ORDERS = {order.name: order for order in FORMAT.document.files.orders}  # type: ignore[union-attr]
JOINED = ("spm", "rwkv", "worded-spm", "two")  # the middle right after the prefix
GENERATING = [name for name, order in ORDERS.items() if order.generates]
EACH = st.sampled_from([*ORDERS])
every_order = pytest.mark.parametrize("order", ORDERS)

# The orders' own literals, whole and in halves, so that literals are made where two texts meet.
LITERALS = list(dict.fromkeys([*(each for order in ORDERS.values() for each in order.literals), SEPARATOR]))
HALVES = [half for literal in LITERALS for cut in range(1, len(literal)) for half in (literal[:cut], literal[cut:])]
PIECES = [*LITERALS, *HALVES, "\\", "\n", "\r\n", "\ufeff", "<", "✿", " ", "a", f"\n{SEPARATOR}\n"]
CONTENT = st.one_of(texts(), st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
MIDDLES = st.none() | CONTENT
FILLS = st.builds(ts.Fill, CONTENT, CONTENT, MIDDLES)


@st.composite
def sequences(draw: st.DrawFn) -> ts.FileSequence:
    """Some texts, maybe a fill after them; never none at all."""
    files: list[str | ts.Fill] = [*draw(st.lists(CONTENT, max_size=3))]
    if not files or draw(st.booleans()):
        files.append(draw(FILLS))
    return ts.FileSequence(files, draw(st.booleans()))


def example_text(name: str) -> str:
    """The bytes of an example."""
    return (GOLDEN / f"{name}.txt").read_bytes().decode()


def sequence_of(value: ts.FileSequence | ts.Fill) -> ts.FileSequence:
    return ts.FileSequence([value]) if isinstance(value, ts.Fill) else value


def written(value: ts.FileSequence | ts.Fill, order: str = "spec") -> str:
    """A sequence or a fill as text."""
    return str(FORMAT.render_files(sequence_of(value), order=order).value)


def losses_of(value: ts.FileSequence | ts.Fill, order: str) -> list[ts.Loss]:
    """What of it cannot be read back."""
    return FORMAT.render_files(sequence_of(value), order=order).losses


def read(text: str, order: str = "spec") -> ts.FileSequence:
    """The sequence that a text holds."""
    return FORMAT.parse_files(text, order=order)


def fill_of(sequence: ts.FileSequence) -> ts.Fill:
    """The fill at the end of a sequence."""
    last = sequence.files[-1]
    assert isinstance(last, ts.Fill)
    return last


def error_of(text: str, order: str = "spec", *, fill: bool = False) -> tuple[int, int, str, str]:
    """Line, column, what was expected and what was there."""
    with pytest.raises(InvalidTranscript) as caught:
        FORMAT.parse_fill(text, order=order) if fill else read(text, order)
    error = caught.value
    assert (error.expected if error.expected != "content" else "only content") in error.message
    return error.line, error.column, error.expected, error.got


def refusal(text: str, order: str) -> InvalidTranscript | None:
    """The error that a text gives, if any."""
    try:
        read(text, order)
    except InvalidTranscript as error:
        return error
    return None


def count(literal: str, text: str) -> int:
    """How often a literal occurs, overlapping ones counted too."""
    return sum(text.startswith(literal, index) for index in range(len(text)))


def without_blanks(text: str) -> list[str]:
    """The lines without blanks at their ends."""
    return [line.rstrip() for line in text.split("\n")]


# The examples of the specification.


@pytest.mark.parametrize("name", ["o08_fim", "o09_files", "o11_fim", "o11_completion", "o12_files", "o12_completion"])
def test_an_example_reads_and_is_written_again_byte_for_byte(name: str) -> None:
    """R-O-37, R-O-38, R-O-40, R-O-41."""
    assert example_text(name) == written(read(example_text(name)))


def test_the_capital_of_france_is_a_fill_without_a_middle() -> None:
    """R-O-4, R-O-5, R-O-6, R-O-24, R-O-37."""
    expected = ts.Fill("The capital of France is ", ", which is known for its famous Eiffel Tower.")
    assert ts.FileSequence([expected]) == read(example_text("o08_fim"))
    assert expected == FORMAT.parse_fill(example_text("o08_fim"))


def test_three_files_are_one_sequence() -> None:
    """R-O-7, R-O-26, R-O-38."""
    expected = [
        "This is the content from the first file.",
        "This is the content from the second file.\nAnd this is more content from the second file.",
        "Finally, this is the content from the third file.",
    ]
    assert ts.FileSequence([*expected]) == read(example_text("o09_files"))


def test_fibonacci_and_its_completion_are_the_same_fill_but_for_blanks_at_the_ends_of_lines() -> None:
    """R-O-25, R-O-40: the completion of the specification shows blanks that its task has not."""
    task, completion = fill_of(read(example_text("o11_fim"))), fill_of(read(example_text("o11_completion")))
    assert task.middle is None
    assert "for i in range(2, n):\n            fib.append(fib[i-1] + fib[i-2])\n        " == completion.middle
    assert task.prefix.endswith("fib = [0, 1]\n        ")
    assert task.suffix.startswith("\n        return fib\n")
    assert (task.prefix, task.suffix) != (completion.prefix, completion.suffix)
    assert without_blanks(task.prefix) == without_blanks(completion.prefix)
    assert without_blanks(task.suffix) == without_blanks(completion.suffix)


def test_the_black_hole_is_three_files_and_a_fill_after_a_leading_separator() -> None:
    """R-O-7, R-O-26, R-O-41: four separators, an empty prefix."""
    sequence = read(example_text("o12_files"))
    fill = fill_of(sequence)
    assert (True, 4, 4) == (sequence.leading, len(sequence.files), example_text("o12_files").count(SEPARATOR))
    assert [True, True, True] == [isinstance(file, str) for file in sequence.files[:3]]
    assert ("", None) == (fill.prefix, fill.middle)
    assert fill.suffix.startswith(" Despite their invisible interior,")


def test_the_completion_of_the_black_hole_is_a_prefix_a_middle_and_a_suffix() -> None:
    """R-O-25, R-O-41: it fills the prefix, too, so it is read and not made from its task."""
    fill = fill_of(read(example_text("o12_completion")))
    assert fill.prefix.startswith("Black holes are regions of spacetime")
    assert fill.prefix.endswith("David Finkelstein in 1958.\n")
    assert fill.middle is not None
    assert fill.middle.startswith("The existence of black holes was confirmed")
    assert fill.middle.endswith("a bright accretion disk.\n")
    assert fill_of(read(example_text("o12_files"))).suffix == fill.suffix


# The orders.


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("spec", "<|fim_prefix|>P<|fim_middle|>M<|fim_suffix|>S"),
        ("psm", "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>M"),
        ("spm", "<|fim_prefix|><|fim_suffix|>S<|fim_middle|>PM"),
        ("rwkv", "✿prefix✿✿suffix✿S✿middle✿PM"),
        ("worded", "<PRE> P <SUF>S <MID>M <EOT>"),
        ("worded-spm", "<PRE> <SUF>S <MID> PM <EOT>"),
        ("two", "[SUFFIX]S[PREFIX]PM"),
    ],
)
def test_each_order_puts_the_parts_where_its_family_has_them(order: str, expected: str) -> None:
    """R-O-24, R-O-25, and what the families write."""
    assert expected == written(ts.Fill("P", "S", "M"), order)


@every_order
def test_the_model_writes_the_middle_and_its_end(order: str) -> None:
    spans = FORMAT.file_spans(ts.FileSequence(["file", ts.Fill("P", "S", "M")]), order=order)
    assert [ts.Span(text, text != "M", True, -1) for text in ("M", ORDERS[order].end) if text] == [
        span for span in spans if span.trainable
    ]
    assert [] == [
        span for span in FORMAT.file_spans(ts.FileSequence([ts.Fill("P", "S")]), order=order) if span.trainable
    ]


@given(order=EACH, fill=FILLS)
@example(order="spm", fill=ts.Fill("<|fim_pre", "", "fix|>"))
@example(order="spm", fill=ts.Fill("<", "", "|fim_prefix|>"))
@example(order="rwkv", fill=ts.Fill("", "middle✿", None))
@example(order="rwkv", fill=ts.Fill("", "✿middle", None))
@example(order="rwkv", fill=ts.Fill("", "prefix", None))
@example(order="worded", fill=ts.Fill("P", "S", ""))
def test_a_fill_reads_back_equal_or_the_difference_is_reported(order: str, fill: ts.Fill) -> None:
    """R-O-24, R-O-25. What cannot come back is the place where a middle begins, or that it is there and empty."""
    losses = losses_of(fill, order)
    back = FORMAT.parse_fill(written(fill, order), order=order)
    if losses:
        assert [("files[0].middle", "moved" if fill.middle else "approximated")] == [
            (loss.path, loss.kind) for loss in losses
        ]
        moved = fill.middle or "" if order in JOINED else ""
        expected = ts.Fill(fill.prefix + moved, fill.suffix, "" if ORDERS[order].end else None)
        assert expected == back
        assert fill != back
    else:
        assert fill == back


@given(order=EACH, sequence=sequences())
@example(order="spec", sequence=ts.FileSequence(["", ""], leading=False))
@example(order="spec", sequence=ts.FileSequence([""], leading=True))
@example(order="spec", sequence=ts.FileSequence(["\ufeff", "a"], leading=False))
@example(order="spec", sequence=ts.FileSequence(["a\r", "\r\n"], leading=True))
def test_a_sequence_reads_back_equal_and_is_written_the_same(order: str, sequence: ts.FileSequence) -> None:
    """R-O-26."""
    text = written(sequence, order)
    if not losses_of(sequence, order):
        assert sequence == read(text, order)
    assert text == written(read(text, order), order)


@given(order=EACH, sequence=sequences())
def test_no_content_makes_a_literal_not_even_with_its_neighbours(order: str, sequence: ts.FileSequence) -> None:
    spans = FORMAT.file_spans(sequence, order=order)
    text = "".join(span.text for span in spans)
    assert all(span.text for span in spans)
    for literal in (*ORDERS[order].literals, SEPARATOR):
        assert sum(count(literal, span.text) for span in spans if span.control) == count(literal, text)
    assert {span.text.strip("\n") for span in spans if span.control} <= {*ORDERS[order].literals, SEPARATOR}


@given(order=EACH, pieces=st.lists(st.sampled_from(PIECES) | CONTENT, max_size=6), data=st.data())
def test_any_text_is_refused_with_a_place_or_written_again_as_it_is(
    order: str, pieces: list[str], data: st.DataObject
) -> None:
    """R-O-24, R-O-26. The text is a random mix, or an order's own row with unescaped content in it."""
    known = ORDERS[order]
    rows = [piece if piece in known.literals else data.draw(CONTENT) for piece in known.pieces] + [known.end]
    text = "".join(data.draw(st.sampled_from((pieces, rows, [*pieces, f"\n{SEPARATOR}\n", *rows]))))
    assume(f"{SEPARATOR}\r\n" not in text and not text.startswith("\ufeff"))
    error = refusal(text, order)
    if error is None:
        assert text == written(read(text, order), order)
    else:
        rest = text.split("\n")[error.line - 1][error.column - 1 :][:40]
        assert error.column >= 1
        assert (rest or "the end of the text") == error.got


# Prompts.


def test_a_prompt_ends_where_the_middle_begins() -> None:
    """R-O-25."""
    prompts = {order: FORMAT.fill_prompt(ts.Fill("P", "S"), order=order).text for order in GENERATING}
    expected = {
        "psm": "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
        "spm": "<|fim_prefix|><|fim_suffix|>S<|fim_middle|>P",
        "rwkv": "✿prefix✿✿suffix✿S✿middle✿P",
        "worded": "<PRE> P <SUF>S <MID>",
        "worded-spm": "<PRE> <SUF>S <MID> P",
        "two": "[SUFFIX]S[PREFIX]P",
    }
    assert expected == prompts


@given(order=st.sampled_from(GENERATING), fill=FILLS, files=st.lists(CONTENT, max_size=2))
@example(order="spm", fill=ts.Fill("a", "b", ""), files=[])
def test_a_prompt_and_what_a_model_adds_are_the_document(order: str, fill: ts.Fill, files: list[str]) -> None:
    """Unless the middle makes a literal with what stands before it: a document can break that, a prompt cannot."""
    fill.middle = fill.middle or ""
    pieces = ORDERS[order].pieces
    before = pieces[-3][-1] + fill.prefix if order in JOINED else pieces[-2][-1]
    alone = [written(ts.FileSequence([text]), order) for text in (before + fill.middle, before, fill.middle)]
    assume(alone[0] == alone[1] + alone[2])
    prompt = FORMAT.fill_prompt(ts.FileSequence([*files, ts.Fill(fill.prefix, fill.suffix)]), order=order)
    document = FORMAT.file_spans(ts.FileSequence([*files, fill]), order=order)
    added = "".join([span.text for span in document if span.trainable])
    assert "".join([span.text for span in document]) == prompt.text + added


def test_a_middle_that_has_begun_is_continued() -> None:
    prompt = FORMAT.fill_prompt(ts.Fill("P", "S", "for <|im_end|>"), order="worded")
    assert "<PRE> P <SUF>S <MID>for <\\|im_end|>" == prompt.text == "".join(span.text for span in prompt.spans)
    assert "for <\\|im_end|>" == prompt.prefill
    assert [] == prompt.losses
    assert "" == FORMAT.fill_prompt(ts.Fill("P", "S"), order="worded").prefill


def test_files_before_a_fill_are_in_its_prompt() -> None:
    """R-O-26, R-O-41."""
    prompt = FORMAT.fill_prompt(ts.FileSequence(["one", ts.Fill("P", "S")], leading=True), order="psm")
    expected = f"{SEPARATOR}\none\n{SEPARATOR}\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>"
    assert expected == prompt.text


def test_a_middle_stops_at_its_end_and_at_every_literal() -> None:
    """R-O-4 to R-O-7 are never text that a model says."""
    stops = {order: FORMAT.fill_prompt(ts.Fill("P", "S"), order=order).stops for order in GENERATING}
    assert ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", SEPARATOR, "[EOS]"] == stops["psm"]
    assert [" <EOT>", "<PRE> ", " <SUF>", " <MID>", SEPARATOR, "[EOS]"] == stops["worded"]
    assert ["✿prefix✿", "✿suffix✿", "✿middle✿", SEPARATOR, "[EOS]"] == stops["rwkv"]


def test_the_first_order_is_for_documents_and_the_first_that_ends_in_the_middle_for_prompts() -> None:
    fill = ts.Fill("P", "S")
    assert written(fill, "spec") == FORMAT.render_fill(fill).value
    assert ["psm", "rwkv"] == [FORMAT.fill_prompt(fill, order=order).order for order in ("", "rwkv")]


def test_a_model_cannot_go_on_in_an_order_that_ends_in_the_suffix() -> None:
    """The hole of the specification is for documents."""
    with pytest.raises(Unsupported, match=r"'spec'; orders that end in the middle: 'psm', 'spm'"):
        FORMAT.fill_prompt(ts.Fill("P", "S"), order="spec")
    with pytest.raises(Unsupported, match="none is declared"):
        only("spec").fill_prompt(ts.Fill("P", "S"))


def only(order: str, separator: str = SEPARATOR) -> ts.Format:
    """The format with one order."""
    head, *orders = TABLE.split("\n[[format.files.order]]\n")
    kept = next(one for one in orders if one.startswith(f'name = "{order}"'))
    files = head.replace(f'separator = "{SEPARATOR}"', f'separator = "{separator}"')
    return load_formats(f"{files}\n[[format.files.order]]\n{kept}")[0]


def test_an_unknown_order_is_named_with_the_nearest_ones() -> None:
    for ask in (FORMAT.render_fill, FORMAT.fill_prompt):
        with pytest.raises(UnknownName, match="unknown fill order 'smp'; did you mean 'spm'"):
            ask(ts.Fill("P", "S"), order="smp")


def test_a_sequence_that_no_text_could_hold_is_refused() -> None:
    hole = ts.Fill("P", "S")
    for sequence, open_, place in (
        (ts.FileSequence([]), False, "files"),
        (ts.FileSequence(["a", hole, "b"]), False, "files[1]"),
        (ts.FileSequence([hole, hole]), False, "files[0]"),
        (ts.FileSequence(["a", "b"]), True, "files[1]"),
    ):
        with pytest.raises(InvalidConversation) as caught:
            (FORMAT.fill_prompt if open_ else FORMAT.file_spans)(sequence, order="psm")
        assert place == caught.value.path


def test_a_format_without_a_separator_has_documents_of_one_file() -> None:
    """ "rwkv"'s order has nothing for the end of a file (S11): a blank line is content, and no separator."""
    alone = only("rwkv", separator="")
    for sequence in (ts.FileSequence(["a\n\nb"]), ts.FileSequence([ts.Fill("P\n\n", "S")])):
        assert sequence == alone.parse_files(str(alone.render_files(sequence).value))
    one = ts.FileSequence(["a"], leading=True)
    for sequence, place in ((ts.FileSequence(["a", "b"]), "files[1]"), (one, "leading")):
        with pytest.raises(InvalidConversation, match="nothing that stands between files") as caught:
            alone.render_files(sequence)
        assert place == caught.value.path
    literals = ["✿prefix✿", "✿suffix✿", "✿middle✿"]
    assert [*literals, "[EOS]"] == alone.fill_prompt(ts.Fill("P", "S")).stops


def test_files_are_known_by_what_no_content_has() -> None:
    marks = {
        "<|fim_prefix|>P": PRE,
        "\ufeff✿prefix✿": "✿prefix✿",
        f"a\r\n{SEPARATOR}\r\nb": SEPARATOR,
        f"{SEPARATOR}\na": SEPARATOR,
        f"a\n{SEPARATOR}": SEPARATOR,
        f"a{SEPARATOR}\nb": "",
        f"a\n{SEPARATOR} b": "",
        "a <|fim_prefix|>": "",
    }
    assert marks == {text: FORMAT.files_mark(text) for text in marks}


# Reading.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (1, 1, "<|fim_prefix|>", "the end of the text")),
        ("P", (1, 1, "<|fim_prefix|>", "P")),
        ("<|fim_suffix|>S", (1, 1, "<|fim_prefix|>", "<|fim_suffix|>S")),
        ("<|fim_prefix|>P\n", (2, 1, "<|fim_middle|>", "the end of the text")),
        ("<|fim_prefix|>P\nQ<|fim_suffix|>S", (2, 2, "<|fim_middle|>", "<|fim_suffix|>S")),
        ("<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>", (1, 16, "<|fim_middle|>", "<|fim_suffix|>S<|fim_middle|>")),
        ("<|fim_prefix|>P<|fim_middle|>M\nM", (2, 2, "<|fim_suffix|>", "the end of the text")),
        ("<|fim_prefix|>P<|fim_middle|>M<|fim_middle|>", (1, 31, "<|fim_suffix|>", "<|fim_middle|>")),
        ("<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S\n<|fim_suffix|>", (2, 1, "content", "<|fim_suffix|>")),
        ("<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S<|im_end|>", (1, 45, "content", "<|im_end|>")),
    ],
)
def test_what_is_wrong_with_a_fill_is_said_with_what_was_expected(text: str, expected: tuple[Any, ...]) -> None:
    """R-O-4, R-O-5, R-O-6, R-O-24."""
    assert expected == error_of(text, fill=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a{SEPARATOR}\nb", (1, 2, "content", SEPARATOR)),
        (f"a\n{SEPARATOR}b", (2, 1, "content", f"{SEPARATOR}b")),
        (f"a\n{SEPARATOR}", (2, 1, "a file", SEPARATOR)),
        (f"a\n{SEPARATOR}\n{SEPARATOR}\nb", (3, 1, "content", SEPARATOR)),
        (f"a\n{HOLE}", (2, 1, "content", HOLE[:40])),
        (f"{HOLE}\n{SEPARATOR}\nb", (2, 1, "the last file", SEPARATOR)),
    ],
)
def test_what_is_wrong_with_a_sequence_is_said_with_its_place(text: str, expected: tuple[Any, ...]) -> None:
    """R-O-7, R-O-26."""
    assert expected == error_of(text)


@pytest.mark.parametrize(
    ("order", "text", "expected"),
    [
        ("spm", "<|fim_prefix|>P<|fim_suffix|>S", (1, 15, "<|fim_suffix|>", "P<|fim_suffix|>S")),
        ("rwkv", "✿prefix✿✿suffix✿S", (1, 18, "✿middle✿", "the end of the text")),
        ("rwkv", "✿prefix✿✿suffix✿middle✿P", (1, 16, "✿middle✿", "✿middle✿P")),
        ("worded", "<PRE> P <SUF>S <MID>M", (1, 22, " <EOT>", "the end of the text")),
        ("worded", "<PRE> P <SUF>S <MID>M <EOT> x", (1, 28, "the end of the text", " x")),
        ("two", "[PREFIX]P[SUFFIX]S", (1, 1, "[SUFFIX]", "[PREFIX]P[SUFFIX]S")),
    ],
)
def test_each_order_names_its_own_literals(order: str, text: str, expected: tuple[Any, ...]) -> None:
    assert expected == error_of(text, order, fill=True)


def test_a_text_without_a_separator_is_one_file() -> None:
    """R-O-26."""
    assert ts.FileSequence(["only this\n"]) == read("only this\n")
    assert ts.FileSequence([""]) == read("")


def test_a_line_break_at_the_end_belongs_to_the_last_file() -> None:
    """R-O-26, R-O-38: with it or without it, what is read is what is there."""
    text = example_text("o09_files")
    with_it, without_it = read(text + "\n"), read(text)
    assert [*without_it.files[:2], f"{without_it.files[2]}\n"] == with_it.files
    assert text + "\n" == written(with_it)
    assert fill_of(read(example_text("o12_files") + "\n")).suffix.endswith("in the universe.\n")


def test_windows_line_ends_and_a_byte_order_mark_are_those_of_the_file_if_a_separator_shows_it() -> None:
    text = example_text("o09_files")
    assert read(text) == read(text.replace("\n", "\r\n"))
    assert ts.FileSequence(["a\r\nb"]) == read("a\r\nb")
    for name in ("o08_fim", "o12_files"):
        assert read(example_text(name)) == read("\ufeff" + example_text(name))
    assert FORMAT.parse_fill(example_text("o08_fim")) == FORMAT.parse_fill("\ufeff" + example_text("o08_fim"))
    assert ts.FileSequence(["\ufeffa", "b"]) == read(f"\ufeffa\n{SEPARATOR}\nb")


@pytest.mark.deep
def test_reading_takes_time_in_proportion_to_the_text() -> None:
    def reading(size: int) -> Callable[[], object]:
        near = "<|fim_prefix|x <\\|fim_middle|> ✿prefix \n<|file_separator|\n"
        text = written(ts.FileSequence([near, ts.Fill(near * size, near * size, near * size)]), "psm")
        many = f"\n{SEPARATOR}\n".join(["a"] * 20 * size)
        return lambda: (read(text, "psm"), read(many, "psm"))

    assert_grows_below(8, reading, 300, 1200, least=0.002)


# What a table may say.


def changed(name: str, key: str, value: str) -> str:
    """The table with another value of a key of an order."""
    head, *orders = TABLE.split("\n[[format.files.order]]\n")
    at = next(at for at, one in enumerate(orders) if one.startswith(f'name = "{name}"'))
    kept = [line for line in orders[at].strip().split("\n") if not line.startswith(f"{key} =")]
    orders[at] = "\n".join([*kept, f"{key} = {value}", ""])
    return "\n[[format.files.order]]\n".join([head, *orders])


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        ["A", "{prefix}", "B", "{suffix}"],
        ["A", "{prefix}", "B", "{suffix}", "C", "{middle}", "D", "{middle}"],
        ["{prefix}", "B", "{suffix}", "C", "{middle}"],
        ["A", "{prefix}", "B", "{suffix}", "C", "{middle}", "D"],
        ["A", "{prefix}", "{suffix}", "B", "{middle}"],
        ["A", "{suffix}", "B", "{middle}", "{prefix}"],
    ],
)
def test_an_order_that_could_not_be_read_is_refused(pieces: list[str]) -> None:
    with pytest.raises(InvalidInput, match="'psm' cannot be read back"):
        load_formats(changed("psm", "pieces", json.dumps(pieces)))


def test_an_end_needs_a_middle_that_comes_last() -> None:
    with pytest.raises(InvalidInput, match="an end belongs after a middle that comes last"):
        load_formats(changed("spec", "end", '"<EOT>"'))


@pytest.mark.parametrize(
    ("order", "key", "value"),
    [("rwkv", "escape", '[{ lead = "<", rest = ["|file_separator|>"] }]'), ("psm", "end", '"X"')],
)
def test_an_escape_that_misses_a_literal_is_refused(order: str, key: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"the escape of the fill order '{order}' does not protect"):
        load_formats(changed(order, key, value))
    with pytest.raises(InvalidInput, match="does not protect '<separator>'"):
        only("spec", separator="<separator>")
