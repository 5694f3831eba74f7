"""Owns how the tokens of a row are told apart for people: what is trained, what is context, and what straddles.

    sample = preview("chats.jsonl", row=12, format="rwkv-goose", tokenizer="rwkv-world")
    sample.examples[0].runs      # tokens of one state and item, joined
    sample.html()                # the same as a page

Everything comes from the encoder that the build uses, so what is shown is what will be trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.datasets.plan import Plan
from turnscript.datasets.problems import DEFECTS, Problem, problem_of

if TYPE_CHECKING:
    from turnscript.datasets.encoding import Encoder
    from turnscript.datasets.explaining import Token
    from turnscript.datasets.form import Example


class State(StrEnum):
    """What a token is for. The values are words for people and for programs."""

    TRAINED = "trained"
    """Somebody's text that the model learns to write."""
    TRAINED_CONTROL = "trained control"
    """A literal of the format that the model learns to write, such as the end of its turn."""
    CONTEXT = "context"
    """Somebody's text that the model reads and does not learn to write."""
    CONTROL = "control"
    """A literal of the format that the model reads."""
    STRADDLING = "straddling"
    """A token that holds a piece that is trained and one that is not; its weight says which side it went to."""


MARKS = {
    State.TRAINED: "+",
    State.TRAINED_CONTROL: "*",
    State.CONTEXT: "=",
    State.CONTROL: "#",
    State.STRADDLING: "~",
}
"""A mark for each state, where there are no colours. The first four are those of `turnscript prompt --spans`."""


class Run(NamedTuple):
    """Neighbouring tokens of one state that belong to one item. `item` is its position, -1 for what belongs to none."""

    state: State
    kind: str
    item: int
    tokens: list[Token]

    @property
    def data(self) -> bytes:
        """Return the bytes that they stand for."""
        return b"".join([token.text for token in self.tokens])

    @property
    def text(self) -> str:
        """Return their text. A piece of a character, where one was cut, is an escape."""
        return self.data.decode("utf-8", "backslashreplace")

    @property
    def name(self) -> str:
        """Return whose they are, as `user 3`; empty for what belongs to no item."""
        return f"{self.kind} {self.item}".strip() if self.item >= 0 else self.kind


class Shown(NamedTuple):
    """An example as its tokens. `problem`: why it cannot be used; then there may be tokens nevertheless."""

    label: str
    tokens: Sequence[Token]
    problem: Problem | None = None

    @property
    def runs(self) -> list[Run]:
        """Return the tokens, neighbours of one state and item together."""
        return list(runs(self.tokens))

    @property
    def counts(self) -> dict[State, int]:
        """Return how many tokens each state has, in the order of the states."""
        states = [state_of(token) for token in self.tokens]
        return {state: states.count(state) for state in State}

    @property
    def trained(self) -> int:
        """Return how many tokens have a weight."""
        return sum(1 for token in self.tokens if token.weight)


class Preview(NamedTuple):
    """A row taken apart. `number`: the line of JSON Lines, else its place in the file."""

    source: str
    number: int
    form: str
    format: str
    tokenizer: str
    mode: str
    examples: list[Shown]
    problem: Problem | None = None

    def html(self) -> str:
        """Return one page that needs nothing else."""
        from turnscript.datasets.page import preview_page  # noqa: PLC0415  (most previews are for a terminal)

        return preview_page(self)


def preview(path: str, row: int = 1, *, format: str, tokenizer: str, **options: Any) -> Preview:  # noqa: A002
    """Return a row of a file, the first by default, as the tokens that a build writes; `options` are a Plan's.

    `row` is the number by which errors and reports name it: the line of JSON Lines, else its place in the file. Of a
    blank line it is the next row.

    Raises InvalidInput for a file that cannot be read, or that has no such row. A row that cannot be used is a preview
    with a `problem`.
    """
    return preview_of(Plan(inputs=(path,), format=format, tokenizer=tokenizer, **options), path, row)


def preview_of(plan: Plan, path: str, number: int = 1) -> Preview:
    """Return a row of a file by a plan."""
    from turnscript.datasets.files.listing import check_again  # noqa: PLC0415
    from turnscript.datasets.opened import RowReader  # noqa: PLC0415  (a page needs none of these)
    from turnscript.datasets.preparation import encoder_of  # noqa: PLC0415
    from turnscript.datasets.rowsamples import RowSamples  # noqa: PLC0415

    if number < 1:
        raise InvalidInput(f"{path}: there is no row {number}: rows are counted from 1", expected="1 or more")
    check_again(path)
    encoder, reader = encoder_of(plan), RowReader(path, plan.form, plan.map)
    last = 0
    for row in reader.rows():
        last = row.line
        if last >= number:
            break
    else:
        there = f"the last one is row {last}" if last else "the file has none"
        raise InvalidInput(f"{path}: there is no row {number}: {there}", expected=f"a row from 1 to {last}")
    samples = RowSamples(encoder, plan)
    examples = [_shown(encoder, part) for example in row.examples for part in samples.parts(example)]
    names = (reader.form, plan.words, plan.tokenizer)
    return Preview(row.source, row.line, *names, encoder.mode, examples, row.problem)


def _shown(encoder: Encoder, example: Example) -> Shown:
    """Return the tokens even of an example that is refused for having too many, or none to train."""
    sample = encoder.encode([example])[0]
    problem = sample if isinstance(sample, Problem) else None
    try:
        return Shown(example.label, encoder.explain(example), problem)
    except (TurnscriptError, *DEFECTS) as error:
        return Shown(example.label, [], problem or problem_of(error))


def state_of(token: Token) -> State:
    """Return what a token is for."""
    if token.straddles:
        return State.STRADDLING
    if token.control:
        return State.TRAINED_CONTROL if token.weight else State.CONTROL
    return State.TRAINED if token.weight else State.CONTEXT


def runs(tokens: Iterable[Token]) -> Iterator[Run]:
    """Give neighbours of one state and item joined."""
    for (state, kind, item), found in groupby(tokens, key=lambda one: (state_of(one), one.kind, one.item)):
        yield Run(state, kind, item, list(found))
