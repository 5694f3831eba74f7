"""Owns the checks of files and fills: the examples' bytes, every order there and back, hostile texts, and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from tests.strategies.text import texts
from turnscript.core.errors import InvalidConversation, InvalidInput, InvalidTranscript, UnknownName, Unsupported
from turnscript.engine.escape import Escape
from turnscript.engine.files import (
    Files,
    FileSequence,
    Fill,
    FillOrder,
    prompt_of,
    read_files,
    read_fill,
    sequence_losses,
    write_files,
)
from turnscript.engine.spans import Span, text_of_spans

GOLDEN = Path(__file__).parents[1] / "golden" / "openchatml"
SEPARATOR = "<|file_separator|>"
ENDS = ("[EOS]",)
PIPES = ("<", ("|fim_prefix|>", "|fim_suffix|>", "|fim_middle|>", "|file_separator|>", "|im_start|>", "|im_end|>"))
FLOWERS = ("✿", ("prefix✿", "suffix✿", "middle✿"))
ESCAPE = Escape(PIPES)
WORDS = Escape(PIPES, ("<", ("PRE>", "SUF>", "MID>", "EOT>")))

PRE, SUF, MID = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
SPEC = FillOrder("spec", (PRE, "{prefix}", MID, "{middle}", SUF, "{suffix}"), ESCAPE)
PSM = FillOrder("psm", (PRE, "{prefix}", SUF, "{suffix}", MID, "{middle}"), ESCAPE)
SPM = FillOrder("spm", (PRE, SUF, "{suffix}", MID, "{prefix}", "{middle}"), ESCAPE)
RWKV = FillOrder(
    "rwkv", ("✿prefix✿", "✿suffix✿", "{suffix}", "✿middle✿", "{prefix}", "{middle}"), Escape(PIPES, FLOWERS)
)
WORDED = FillOrder("worded", ("<PRE> ", "{prefix}", " <SUF>", "{suffix}", " <MID>", "{middle}"), WORDS, " <EOT>")
WORDED_SPM = FillOrder(
    "worded-spm", ("<PRE>", " <SUF>", "{suffix}", " <MID> ", "{prefix}", "{middle}"), WORDS, " <EOT>"
)
TWO_WORDS = Escape(PIPES, ("[", ("SUFFIX]", "PREFIX]")))
TWO = FillOrder("two", ("[SUFFIX]", "{suffix}", "[PREFIX]", "{prefix}", "{middle}"), TWO_WORDS)
HOLE = "<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S"
FILES = Files((SPEC, PSM, SPM, RWKV, WORDED, WORDED_SPM, TWO), SEPARATOR, ENDS)
JOINED = (SPM, RWKV, WORDED_SPM, TWO)  # the middle right after the prefix
ORDERS = st.sampled_from(FILES.orders)
every_order = pytest.mark.parametrize("order", FILES.orders, ids=lambda order: order.name)

# The orders' own literals, whole and in halves, so that literals are made where two texts meet.
LITERALS = FILES.literals
HALVES = [half for literal in LITERALS for cut in range(1, len(literal)) for half in (literal[:cut], literal[cut:])]
PIECES = [*LITERALS, *HALVES, "\\", "\n", "\r\n", "\ufeff", "<", "✿", " ", "a", f"\n{SEPARATOR}\n"]
CONTENT = st.one_of(texts(), st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
MIDDLES = st.none() | CONTENT
FILLS = st.builds(Fill, CONTENT, CONTENT, MIDDLES)


@st.composite
def sequences(draw: st.DrawFn) -> FileSequence:
    """Some texts, maybe a fill after them; never none at all."""
    files: list[str | Fill] = [*draw(st.lists(CONTENT, max_size=3))]
    if not files or draw(st.booleans()):
        files.append(draw(FILLS))
    return FileSequence(files, draw(st.booleans()))


def example_text(name: str) -> str:
    """The bytes of an example."""
    return (GOLDEN / f"{name}.txt").read_bytes().decode()


def written(value: FileSequence | Fill, order: FillOrder = SPEC) -> str:
    """A sequence or a fill as text."""
    sequence = FileSequence([value]) if isinstance(value, Fill) else value
    return text_of_spans(write_files(FILES, sequence, order))


def read(text: str, order: FillOrder = SPEC) -> FileSequence:
    """The sequence that a text holds."""
    return read_files(FILES, text, order)


def fill_of(sequence: FileSequence) -> Fill:
    """The fill at the end of a sequence."""
    last = sequence.files[-1]
    assert isinstance(last, Fill)
    return last


def error_of(text: str, order: FillOrder = SPEC, *, fill: bool = False) -> tuple[int, int, str, str]:
    """Line, column, what was expected and what was there."""
    with pytest.raises(InvalidTranscript) as caught:
        read_fill(order, text) if fill else read(text, order)
    error = caught.value
    assert (error.expected if error.expected != "content" else "only content") in error.message
    return error.line, error.column, error.expected, error.got


def refusal(text: str, order: FillOrder) -> InvalidTranscript | None:
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
    expected = Fill("The capital of France is ", ", which is known for its famous Eiffel Tower.")
    assert FileSequence([expected]) == read(example_text("o08_fim"))
    assert expected == read_fill(SPEC, example_text("o08_fim"))


def test_three_files_are_one_sequence() -> None:
    """R-O-7, R-O-26, R-O-38."""
    expected = [
        "This is the content from the first file.",
        "This is the content from the second file.\nAnd this is more content from the second file.",
        "Finally, this is the content from the third file.",
    ]
    assert FileSequence([*expected]) == read(example_text("o09_files"))


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
        (SPEC, "<|fim_prefix|>P<|fim_middle|>M<|fim_suffix|>S"),
        (PSM, "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>M"),
        (SPM, "<|fim_prefix|><|fim_suffix|>S<|fim_middle|>PM"),
        (RWKV, "✿prefix✿✿suffix✿S✿middle✿PM"),
        (WORDED, "<PRE> P <SUF>S <MID>M <EOT>"),
        (WORDED_SPM, "<PRE> <SUF>S <MID> PM <EOT>"),
        (TWO, "[SUFFIX]S[PREFIX]PM"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_each_order_puts_the_parts_where_its_family_has_them(order: FillOrder, expected: str) -> None:
    """R-O-24, R-O-25, and what the families write."""
    assert expected == written(Fill("P", "S", "M"), order)


@every_order
def test_the_model_writes_the_middle_and_its_end(order: FillOrder) -> None:
    spans = write_files(FILES, FileSequence(["file", Fill("P", "S", "M")]), order)
    assert [Span(text, text != "M", True, -1) for text in ("M", order.end) if text] == [
        span for span in spans if span.trainable
    ]
    assert [] == [span for span in write_files(FILES, FileSequence([Fill("P", "S")]), order) if span.trainable]


@given(order=ORDERS, fill=FILLS)
@example(order=SPM, fill=Fill("<|fim_pre", "", "fix|>"))
@example(order=SPM, fill=Fill("<", "", "|fim_prefix|>"))
@example(order=RWKV, fill=Fill("", "middle✿", None))
@example(order=RWKV, fill=Fill("", "✿middle", None))
@example(order=RWKV, fill=Fill("", "prefix", None))
@example(order=WORDED, fill=Fill("P", "S", ""))
def test_a_fill_reads_back_equal_or_the_difference_is_reported(order: FillOrder, fill: Fill) -> None:
    """R-O-24, R-O-25. What cannot come back is the place where a middle begins, or that it is there and empty."""
    losses = sequence_losses(FileSequence([fill]), order)
    back = read_fill(order, written(fill, order))
    if losses:
        assert [("files[0].middle", "moved" if fill.middle else "approximated")] == [
            (loss.path, loss.kind) for loss in losses
        ]
        moved = fill.middle or "" if order in JOINED else ""
        expected = Fill(fill.prefix + moved, fill.suffix, "" if order.end else None)
        assert expected == back
        assert fill != back
    else:
        assert fill == back


@given(order=ORDERS, sequence=sequences())
@example(order=SPEC, sequence=FileSequence(["", ""], leading=False))
@example(order=SPEC, sequence=FileSequence([""], leading=True))
@example(order=SPEC, sequence=FileSequence(["\ufeff", "a"], leading=False))
@example(order=SPEC, sequence=FileSequence(["a\r", "\r\n"], leading=True))
def test_a_sequence_reads_back_equal_and_is_written_the_same(order: FillOrder, sequence: FileSequence) -> None:
    """R-O-26."""
    text = written(sequence, order)
    if not sequence_losses(sequence, order):
        assert sequence == read(text, order)
    assert text == written(read(text, order), order)


@given(order=ORDERS, sequence=sequences())
def test_no_content_makes_a_literal_not_even_with_its_neighbours(order: FillOrder, sequence: FileSequence) -> None:
    spans = write_files(FILES, sequence, order)
    text = text_of_spans(spans)
    assert all(span.text for span in spans)
    for literal in (*order.literals, SEPARATOR):
        assert sum(count(literal, span.text) for span in spans if span.control) == count(literal, text)
    assert {span.text.strip("\n") for span in spans if span.control} <= {*order.literals, SEPARATOR}


@given(order=ORDERS, pieces=st.lists(st.sampled_from(PIECES) | CONTENT, max_size=6), data=st.data())
def test_any_text_is_refused_with_a_place_or_written_again_as_it_is(
    order: FillOrder, pieces: list[str], data: st.DataObject
) -> None:
    """R-O-24, R-O-26. The text is a random mix, or an order's own row with unescaped content in it."""
    rows = [piece if piece in order.literals else data.draw(CONTENT) for piece in order.pieces] + [order.end]
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
    prompts = {
        order.name: text_of_spans(write_files(FILES, FileSequence([Fill("P", "S")]), order, open_=True))
        for order in FILES.orders
        if order.generates
    }
    expected = {
        "psm": "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
        "spm": "<|fim_prefix|><|fim_suffix|>S<|fim_middle|>P",
        "rwkv": "✿prefix✿✿suffix✿S✿middle✿P",
        "worded": "<PRE> P <SUF>S <MID>",
        "worded-spm": "<PRE> <SUF>S <MID> P",
        "two": "[SUFFIX]S[PREFIX]P",
    }
    assert expected == prompts


@given(order=ORDERS.filter(lambda order: order.generates), fill=FILLS, files=st.lists(CONTENT, max_size=2))
@example(order=SPM, fill=Fill("a", "b", ""), files=[])
def test_a_prompt_and_what_a_model_adds_are_the_document(order: FillOrder, fill: Fill, files: list[str]) -> None:
    """Unless the middle makes a literal with what stands before it: a document can break that, a prompt cannot."""
    fill.middle = fill.middle or ""
    before = order.pieces[-3][-1] + fill.prefix if order in JOINED else order.pieces[-2][-1]
    assume(order.escape.apply(before + fill.middle) == order.escape.apply(before) + order.escape.apply(fill.middle))
    prompt = write_files(FILES, FileSequence([*files, Fill(fill.prefix, fill.suffix)]), order, open_=True)
    document = write_files(FILES, FileSequence([*files, fill]), order)
    added = "".join([span.text for span in document if span.trainable])
    assert text_of_spans(document) == text_of_spans(prompt) + added


def test_a_middle_that_has_begun_is_continued() -> None:
    prompt = prompt_of(FILES, FileSequence([Fill("P", "S", "for <|im_end|>")]), WORDED)
    assert "<PRE> P <SUF>S <MID>for <\\|im_end|>" == prompt.text == text_of_spans(prompt.spans)
    assert "for <\\|im_end|>" == prompt.prefill
    assert (FILES.stops(WORDED), []) == (prompt.stops, prompt.losses)
    assert "" == prompt_of(FILES, FileSequence([Fill("P", "S")]), WORDED).prefill


def test_files_before_a_fill_are_in_its_prompt() -> None:
    """R-O-26, R-O-41."""
    spans = write_files(FILES, FileSequence(["one", Fill("P", "S")], leading=True), PSM, open_=True)
    expected = f"{SEPARATOR}\none\n{SEPARATOR}\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>"
    assert expected == text_of_spans(spans)


def test_a_middle_stops_at_its_end_and_at_every_literal() -> None:
    """R-O-4 to R-O-7 are never text that a model says."""
    expected = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", SEPARATOR, "[EOS]"]
    assert expected == FILES.stops(PSM)
    assert [" <EOT>", "<PRE> ", " <SUF>", " <MID>", SEPARATOR, "[EOS]"] == FILES.stops(WORDED)
    assert ["✿prefix✿", "✿suffix✿", "✿middle✿", SEPARATOR, "[EOS]"] == FILES.stops(RWKV)


def test_the_first_order_is_for_documents_and_the_first_that_ends_in_the_middle_for_prompts() -> None:
    assert (SPEC, PSM, RWKV) == (FILES.order(), FILES.prompt_order(), FILES.prompt_order("rwkv"))


def test_a_model_cannot_go_on_in_an_order_that_ends_in_the_suffix() -> None:
    """The hole of the specification is for documents."""
    with pytest.raises(Unsupported, match=r"'spec'; orders that end in the middle: 'psm', 'spm'"):
        FILES.prompt_order("spec")
    with pytest.raises(Unsupported, match="none is declared"):
        Files((SPEC,), SEPARATOR).prompt_order()


def test_an_unknown_order_is_named_with_the_nearest_ones() -> None:
    for ask in (FILES.order, FILES.prompt_order):
        with pytest.raises(UnknownName, match="unknown fill order 'smp'; did you mean 'spm'"):
            ask("smp")


def test_a_sequence_that_no_text_could_hold_is_refused() -> None:
    hole = Fill("P", "S")
    for sequence, open_, place in (
        (FileSequence([]), False, "files"),
        (FileSequence(["a", hole, "b"]), False, "files[1]"),
        (FileSequence([hole, hole]), False, "files[0]"),
        (FileSequence(["a", "b"]), True, "files[1]"),
    ):
        with pytest.raises(InvalidConversation) as caught:
            write_files(FILES, sequence, PSM, open_=open_)
        assert place == caught.value.path


def test_a_format_without_a_separator_has_documents_of_one_file() -> None:
    """RWKV's order has nothing for the end of a file (S11): a blank line is content, and no separator."""
    alone = Files((RWKV,))
    for sequence in (FileSequence(["a\n\nb"]), FileSequence([Fill("P\n\n", "S")])):
        assert sequence == read_files(alone, text_of_spans(write_files(alone, sequence, RWKV)), RWKV)
    for sequence, place in ((FileSequence(["a", "b"]), "files[1]"), (FileSequence(["a"], leading=True), "leading")):
        with pytest.raises(InvalidConversation, match="nothing that stands between files") as caught:
            write_files(alone, sequence, RWKV)
        assert place == caught.value.path
    assert (("✿prefix✿", "✿suffix✿", "✿middle✿"), [*RWKV.literals]) == (alone.literals, alone.stops(RWKV))


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
    assert marks == {text: FILES.mark_in(text) for text in marks}


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
        (SPM, "<|fim_prefix|>P<|fim_suffix|>S", (1, 15, "<|fim_suffix|>", "P<|fim_suffix|>S")),
        (RWKV, "✿prefix✿✿suffix✿S", (1, 18, "✿middle✿", "the end of the text")),
        (RWKV, "✿prefix✿✿suffix✿middle✿P", (1, 16, "✿middle✿", "✿middle✿P")),
        (WORDED, "<PRE> P <SUF>S <MID>M", (1, 22, " <EOT>", "the end of the text")),
        (WORDED, "<PRE> P <SUF>S <MID>M <EOT> x", (1, 28, "the end of the text", " x")),
        (TWO, "[PREFIX]P[SUFFIX]S", (1, 1, "[SUFFIX]", "[PREFIX]P[SUFFIX]S")),
    ],
)
def test_each_order_names_its_own_literals(order: FillOrder, text: str, expected: tuple[Any, ...]) -> None:
    assert expected == error_of(text, order, fill=True)


def test_a_text_without_a_separator_is_one_file() -> None:
    """R-O-26."""
    assert FileSequence(["only this\n"]) == read("only this\n")
    assert FileSequence([""]) == read("")


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
    assert FileSequence(["a\r\nb"]) == read("a\r\nb")
    for name in ("o08_fim", "o12_files"):
        assert read(example_text(name)) == read("\ufeff" + example_text(name))
    assert read_fill(SPEC, example_text("o08_fim")) == read_fill(SPEC, "\ufeff" + example_text("o08_fim"))
    assert FileSequence(["\ufeffa", "b"]) == read(f"\ufeffa\n{SEPARATOR}\nb")


@pytest.mark.deep
def test_reading_takes_time_in_proportion_to_the_text() -> None:
    def reading(size: int) -> Callable[[], object]:
        near = "<|fim_prefix|x <\\|fim_middle|> ✿prefix \n<|file_separator|\n"
        text = written(FileSequence([near, Fill(near * size, near * size, near * size)]), PSM)
        many = f"\n{SEPARATOR}\n".join(["a"] * 20 * size)
        return lambda: (read(text, PSM), read(many, PSM))

    assert_grows_below(8, reading, 300, 1200, least=0.002)


# What a table may say.


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        ("A", "{prefix}", "B", "{suffix}"),
        ("A", "{prefix}", "B", "{suffix}", "C", "{middle}", "D", "{middle}"),
        ("{prefix}", "B", "{suffix}", "C", "{middle}"),
        ("A", "{prefix}", "B", "{suffix}", "C", "{middle}", "D"),
        ("A", "{prefix}", "{suffix}", "B", "{middle}"),
        ("A", "{suffix}", "B", "{middle}", "{prefix}"),
    ],
)
def test_an_order_that_could_not_be_read_is_refused(pieces: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="'bad' cannot be read back"):
        FillOrder("bad", pieces, ESCAPE)


def test_an_end_needs_a_middle_that_comes_last() -> None:
    with pytest.raises(InvalidInput, match="an end belongs after a middle that comes last"):
        FillOrder("bad", SPEC.pieces, ESCAPE, "<EOT>")


@pytest.mark.parametrize("order", [FillOrder("bare", RWKV.pieces, ESCAPE), FillOrder("bare", PSM.pieces, ESCAPE, "X")])
def test_an_escape_that_misses_a_literal_is_refused(order: FillOrder) -> None:
    with pytest.raises(InvalidInput, match="the escape of the fill order 'bare' does not protect"):
        Files((order,), SEPARATOR)
    with pytest.raises(InvalidInput, match="does not protect '<separator>'"):
        Files((SPEC,), "<separator>")
