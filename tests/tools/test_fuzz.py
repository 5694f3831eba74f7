"""The fuzz's laws hold for what it begins with, and for all that it has found before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.fuzz.targets import TARGETS, seeds

FOUND = Path(__file__).parents[1] / "fuzz"


@pytest.mark.parametrize(("name", "target"), TARGETS.items(), ids=TARGETS)
def test_what_the_fuzz_knows_breaks_no_law(name: str, target: Callable[[bytes], None]) -> None:
    inputs = [*seeds(name), *(path.read_bytes() for path in sorted(FOUND.glob(f"{name}/*")))]
    assert len(inputs) > 20
    for data in inputs:
        target(data)
        target(data[: len(data) // 2])
