"""Owns what it costs to say where things stand: lines and columns are counted once, however many are told."""

from collections.abc import Callable

import pytest

import turnscript as ts
from tests.growth import assert_grows_below


@pytest.mark.parametrize("between", ["\n", " "], ids=["lines", "one line"])
def test_many_findings_take_time_in_proportion(between: str) -> None:
    format_ = ts.get_format("batuta-chatml")

    def checking(count: int) -> Callable[[], object]:
        transcript = f"<|im_start|>user\n{between.join(['x <tool_call>'] * count)}<|im_end|>\n"
        assert count == len(format_.check(transcript)[1].all)
        return lambda: format_.check(transcript)

    assert_grows_below(20, checking, 4_000, 32_000)
