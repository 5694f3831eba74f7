"""What a token is for: its state, its neighbours of the same kind, and the page that shows them."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.running import EXAMPLES, run
from tests.datasets.test_data_stats import read
from turnscript.core.errors import InvalidInput
from turnscript.datasets.explaining import Token
from turnscript.datasets.page import MEANINGS, preview_page
from turnscript.datasets.preview import MARKS, Preview, Shown, State, preview, runs, state_of
from turnscript.datasets.problems import Code, Problem


def token(text: bytes, *, weight: int = 0, item: int = 0, kind: str = "user", **rest: bool) -> Token:
    flags = {"control": False, "straddles": False} | rest
    return Token(text=text, id=len(text) + 1, weight=weight, kind=kind, item=item, **flags)


def of(*tokens: Token, problem: Problem | None = None) -> Preview:
    shown = Shown("", list(tokens), problem)
    return Preview("rows.jsonl", 3, "a form", "a format", "a tokenizer", "text", [shown])


TOKENS = st.lists(
    st.builds(
        token,
        st.sampled_from([b"a", b" b", b"\n\n", "é".encode(), "é".encode()[:1], "é".encode()[1:], b"<b>&", b"\x1b[2J"]),
        weight=st.integers(0, 1),
        item=st.integers(-1, 2),
        kind=st.sampled_from(["user", "assistant"]),
        control=st.booleans(),
        straddles=st.booleans(),
    ),
    max_size=12,
)


@pytest.mark.parametrize("row", [99, 11])
def test_a_row_that_is_not_there_is_told_with_the_last_one(row: int) -> None:
    rows = EXAMPLES / "training_rows.jsonl"
    result = run("data", "preview", rows, "--to", "rwkv-goose", "--tokenizer", "bytes", "--row", str(row))
    told = f"turnscript: error: {rows}: there is no row {row}: the last one is row 10\n"
    assert (1, f"{told}  expected a row from 1 to 10\n") == (result.exit_code, result.stderr)


def test_a_row_is_the_one_that_errors_call_so(tmp_path: Path) -> None:
    chat = '{{"messages": [{{"role": "user", "content": "{0}"}}, {{"role": "assistant", "content": "{0}"}}]}}'
    lines, array = tmp_path / "rows.jsonl", tmp_path / "rows.json"
    lines.write_text("\n".join(["", chat.format("two"), "", "", "{", chat.format("six")]), encoding="utf-8")
    array.write_text(f"[{chat.format('one')}, {{}},\n\n {chat.format('three')}]", encoding="utf-8")

    def shown(path: Path, row: int) -> tuple[int, str]:
        found = preview(str(path), row, format="rwkv-goose", tokenizer="bytes", form="messages")
        return found.number, found.problem.code if found.problem else found.examples[0].runs[1].text

    assert [(2, "two")] * 2 == [shown(lines, 1), shown(lines, 2)]
    assert [(5, "E_JSON")] * 3 == [shown(lines, row) for row in (3, 4, 5)]
    assert [(6, "six"), (3, "three")] == [shown(lines, 6), shown(array, 3)]
    for path, last in ((lines, 6), (array, 3)):
        with pytest.raises(InvalidInput, match=f"there is no row 7: the last one is row {last}"):
            shown(path, 7)


@pytest.mark.parametrize("row", [0, -1])
def test_a_row_before_the_first_is_told_without_a_count(row: int) -> None:
    """Nobody has counted: the file is not read for it."""
    with pytest.raises(InvalidInput, match=f"there is no row {row}: rows are counted from 1"):
        preview(str(EXAMPLES / "training_rows.jsonl"), row, format="rwkv-goose", tokenizer="bytes")


def test_every_state_has_a_mark_of_its_own_and_a_meaning() -> None:
    assert set(State) == set(MARKS) == set(MEANINGS)
    assert len(State) == len(set(MARKS.values()))


def test_the_weight_and_the_control_flag_decide_the_state() -> None:
    assert State.TRAINED == state_of(token(b"x", weight=1))
    assert State.TRAINED_CONTROL == state_of(token(b"x", weight=255, control=True))
    assert State.CONTEXT == state_of(token(b"x"))
    assert State.CONTROL == state_of(token(b"x", control=True))


def test_a_token_that_straddles_is_that_whatever_else_it_is() -> None:
    for weight in (0, 1):
        for control in (False, True):
            assert State.STRADDLING == state_of(token(b"x", weight=weight, control=control, straddles=True))


@given(TOKENS)
def test_runs_hold_every_token_once_and_neighbours_differ(tokens: list[Token]) -> None:
    found = list(runs(tokens))
    assert tokens == [one for run in found for one in run.tokens]
    keys = [(run.state, run.kind, run.item) for run in found]
    assert all(before != after for before, after in pairwise(keys))
    assert all(state_of(one) == run.state for run in found for one in run.tokens)


@given(TOKENS)
def test_the_counts_of_all_states_add_up(tokens: list[Token]) -> None:
    shown = Shown("", tokens)
    assert len(tokens) == sum(shown.counts.values())
    assert sum(1 for one in tokens if one.weight) == shown.trained


def test_a_run_is_named_by_its_item() -> None:
    (run,) = runs([token(b"a", item=3), token(b"b", item=3)])
    assert ("user 3", "ab") == (run.name, run.text)
    (run,) = runs([token(b"", item=-1, kind="end")])
    assert "end" == run.name


@given(TOKENS)
def test_a_page_is_whole_and_nothing_of_a_row_becomes_a_tag(tokens: list[Token]) -> None:
    reader = read(preview_page(of(*tokens)))
    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "p", "ul", "li", "span", "div", "b", "i"}
    assert set(reader.tags) <= allowed
    assert not [text for text in reader.said if "\x1b" in text]


def test_a_character_cut_in_two_is_shown_whole_with_both_ids() -> None:
    first, second = token("é".encode()[:1]), token("é".encode()[1:])
    page = preview_page(of(first._replace(id=7), second._replace(id=9)))
    assert 'title="id 7, weight 0, id 9, weight 0; context; user 0">é</b>' in page


def test_each_token_says_its_own_id_and_weight() -> None:
    page = preview_page(of(token(b"a", weight=1)._replace(id=7), token(b"bc", weight=1)._replace(id=9)))
    assert ['title="id 7, weight 1; trained; user 0">a</b>', 'title="id 9, weight 1; trained; user 0">bc</b>'] == [
        f"title={found}</b>" for found in re.findall(r"<b [^>]*title=(.*?)</b>", page)
    ]


def test_newlines_are_seen_and_break_the_line() -> None:
    assert "<i>↵</i>\n<i>↵</i>\n</b>" in preview_page(of(token(b"\n\n", weight=1)))


def test_the_page_of_a_refused_row_says_why() -> None:
    problem = Problem(Code.ROLE, "there is no <robot> here", "$.messages[1].role")
    said = read(preview_page(of(problem=problem))).said
    assert "E_ROLE" in said
    assert ": there is no <robot> here" in said
    assert "$.messages[1].role" in said
    whole = read(preview_page(of()._replace(examples=[], problem=problem))).said
    assert ": there is no <robot> here" in whole
