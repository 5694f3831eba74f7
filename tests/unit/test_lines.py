"""Owns the checks of line and column: right in any order of asking, and counted once where the order is rising."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnscript.engine.lines import Lines


@given(text=st.text(alphabet="ab\n\r"), data=st.data())
def test_line_and_column_are_right_in_any_order_of_asking(text: str, data: st.DataObject) -> None:
    lines = Lines(text)
    for position in data.draw(st.lists(st.integers(0, len(text)))):
        before = text[:position].split("\n")
        assert (len(before), len(before[-1]) + 1) == lines.at(position)


class _Watched(str):
    """A text that counts how many of its characters are looked at."""

    looked = 0

    def count(self, *args: Any) -> int:
        self.looked += args[2] - args[1]
        return super().count(*args)

    def rfind(self, *args: Any) -> int:
        found = super().rfind(*args)
        self.looked += args[2] - max(found, args[1])
        return found


def test_places_asked_for_in_order_cost_each_character_a_few_looks_however_many_there_are() -> None:
    for text in (_Watched("word\n" * 2_000), _Watched("word " * 2_000)):
        lines = Lines(text)
        for position in range(0, len(text), 5):
            lines.at(position)
            lines.at(max(position - 2, 0))
        assert text.looked < 5 * len(text)
