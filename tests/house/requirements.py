"""Owns the numbers of all requirements and hard cases of the source documents, and finding those that no test names.

A test names a requirement by its number, or several by a range: for documents U, A, G, B and O, a number is written
`R-`, the document's letter, `-` and the number itself; two dots and a second number make a range. A hard case is named
by a function `test_case_` and its number, or by the member `case` of an output that a model wrote.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# These two speak about the numbers and test none of the requirements.
NOT_SEARCHED = frozenset({"requirements.py", "test_requirements.py"})

LAST = {"R-U": 45, "R-A": 26, "R-G": 23, "R-B": 47, "R-O": 44}
"""The requirements of each document are numbered from 1 to this."""

_NAMED = re.compile(r"(?<![\w-])(R-[A-Z])-(\d+)(?:\.\.(\d+))?(?![\w-])")


def all_numbers(last: Mapping[str, int] = LAST) -> list[str]:
    """Every number, in order."""
    return [f"{prefix}-{number}" for prefix, end in last.items() for number in range(1, end + 1)]


def texts() -> Iterator[str]:
    """The text of every test file and of all test data."""
    for pattern in ("*.py", "*.json"):
        for path in sorted(TESTS.rglob(pattern)):
            if path.parent.name != "house" or path.name not in NOT_SEARCHED:
                yield path.read_text(encoding="utf-8")


def named(sources: Iterable[str]) -> set[str]:
    """The numbers that stand in some texts, each member of a range included."""
    found: set[str] = set()
    for source in sources:
        for prefix, first, last in _NAMED.findall(source):
            found.update(f"{prefix}-{number}" for number in range(int(first), int(last or first) + 1))
    return found


def missing(sources: Iterable[str]) -> list[str]:
    """The numbers that no text names, in order."""
    present = named(sources)
    return [number for number in all_numbers() if number not in present]


def unknown(sources: Iterable[str]) -> list[str]:
    """What looks like a number of a requirement and is none: a slip of the pen."""
    return sorted(named(sources).difference(all_numbers()))


HARD_CASES = 60
"""The hard cases are numbered from 1 to this."""
_CASE = re.compile(r"\bdef test_case_(\d+)_|\{\"case\": (\d+),")


def cases(sources: Iterable[str]) -> list[int]:
    """The numbers of the hard cases that some texts test, in order."""
    return sorted({int(first or second) for source in sources for first, second in _CASE.findall(source)})
