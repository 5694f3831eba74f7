"""Owns judging an answer: which calls a task expects, with a checker for each argument, and why an answer is wrong.

All systems are judged by their parsed calls, whichever API carried these. A checker is a JSON value:

    "Paris", 5, true, ...   equal; texts without regard to case and to spaces around them
    {"exact": value}        equal, to the letter
    {"any": [values]}       equal to one of them
    {"has": [texts]}        a text that contains one of them
    {"match": pattern}      a text that a regular expression matches as a whole
    {"type": name}          any value of this type of JSON Schema
    {"fields": {checkers}}  an object of these members
    {"list": [checkers]}    an array of these elements in this order; {"set": [...]}: in any order

`"optional": true` beside one: the argument may be missing. An argument that no checker is for is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Call(Struct, frozen=True):
    """A call: as a task expects it, with a checker for each argument, or as it stands in the history."""

    name: str
    arguments: dict[str, Any] = {}


class Made(Struct, frozen=True):
    """A call that an answer made. `arguments` are the text that came."""

    name: str
    arguments: str


class Verdict(Struct, frozen=True):
    """`why` is empty if an answer is right. `order`: which expected call each one of the answer is."""

    why: str = ""
    order: tuple[int, ...] = ()

    @property
    def right(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.why


def fits(checker: Any, value: Any) -> bool:
    """Tell whether a value is one that a checker takes."""
    if not isinstance(checker, dict):
        return _same(checker, value)
    operation = _operation(checker)
    return _OPERATIONS[operation](checker[operation], value)


def check(checker: Any) -> None:
    """Raise ValueError for what is no checker, however deep it stands."""
    if isinstance(checker, dict):
        operation = _operation(checker)
        inner = checker[operation]
        if operation in ("fields", "list", "set"):
            for one in inner.values() if operation == "fields" else inner:
                check(one)


def _operation(checker: Mapping[str, Any]) -> str:
    operations = [name for name in checker if name != "optional"]
    if len(operations) != 1 or operations[0] not in _OPERATIONS:
        raise ValueError(f"a checker has one of {', '.join(_OPERATIONS)}, not {json.dumps(checker)}")
    return operations[0]


def judge_calls(expected: Sequence[Call], made: Sequence[Made]) -> Verdict:
    """Judge an answer that must make exactly these calls, in any order."""
    if not made:
        return Verdict("no call")
    values: list[Any] = []
    for call in made:
        try:
            values.append(json.loads(call.arguments))
        except ValueError:
            return Verdict(f"the arguments of {call.name} are no JSON: {call.arguments}")
    if len(made) != len(expected):
        return Verdict(f"{len(made)} calls instead of {len(expected)}: {', '.join(call.name for call in made)}")
    faults = [[_fault(wanted, call, value) for wanted in expected] for call, value in zip(made, values, strict=True)]
    order = _assigned([[not fault for fault in row] for row in faults])
    if order is not None:
        return Verdict(order=order)
    row = next((row for row in faults if all(row)), faults[0])
    return Verdict(min((fault for fault in row if fault), key=lambda fault: fault.startswith("calls "), default="?"))


def judge_text(
    expected: Sequence[Sequence[str]], made: Sequence[Made], text: str, tools: Sequence[str], *, markup: bool = True
) -> Verdict:
    """Judge an answer that must be text and hold a word of each of some groups.

    A call that was written out as text is none of the right answers: a reader that does not see calls would win.
    """
    if made:
        return Verdict(f"calls {', '.join(call.name for call in made)} instead of text")
    if not text.strip():
        return Verdict("neither a call nor text")
    if markup and (name := _written_out(text, tools)):
        return Verdict(f"a call of {name} written as text")
    shown = text.casefold()
    lacking = [group for group in expected if not any(word.casefold() in shown for word in group)]
    return Verdict(f"the text lacks {' or '.join(lacking[0])}" if lacking else "")


def _fault(wanted: Call, made: Made, value: Any) -> str:
    """Return what is wrong with a call, empty if nothing is."""
    if made.name != wanted.name:
        return f"calls {made.name} instead of {wanted.name}"
    if not isinstance(value, dict):
        return f"the arguments of {made.name} are no object: {made.arguments}"
    return _fields_fault(wanted.arguments, value, made.name)


def _fields_fault(checkers: Mapping[str, Any], value: Mapping[str, Any], place: str) -> str:
    for name, checker in checkers.items():
        if name in value and not fits(checker, value[name]):
            return f"{place}.{name} is {json.dumps(value[name], ensure_ascii=False)}"
        if name not in value and not (isinstance(checker, dict) and checker.get("optional")):
            return f"{place}.{name} is missing"
    others = [name for name in value if name not in checkers]
    return f"{place}.{others[0]} was not asked for" if others else ""


def _assigned(fitting: Sequence[Sequence[bool]], taken: tuple[int, ...] = ()) -> tuple[int, ...] | None:
    """A column for each row, each once, where the rows say that it fits; None if there is no such choice."""
    if len(taken) == len(fitting):
        return taken
    for column, fit in enumerate(fitting[len(taken)]):
        if fit and column not in taken and (found := _assigned(fitting, (*taken, column))) is not None:
            return found
    return None


def _written_out(text: str, tools: Sequence[str]) -> str | None:
    """The offered tool whose call stands in a text: as the name in an object of JSON, in a tag, or with brackets."""
    for name in tools:
        said = re.escape(name)
        if re.search(rf'["\']name["\']\s*:\s*["\']{said}["\']|<[^<>]*\b{said}>|\b{said}\(', text):
            return name
    return None


def _same(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.strip().casefold() == value.strip().casefold()
    return _equal(wanted, value)


def _equal(wanted: Any, value: Any) -> bool:
    """JSON knows no True that is 1."""
    return isinstance(wanted, bool) == isinstance(value, bool) and bool(wanted == value)


def _has(words: Sequence[str], value: Any) -> bool:
    return isinstance(value, str) and any(word.casefold() in value.casefold() for word in words)


def _typed(name: str, value: Any) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean") == isinstance(value, bool)


def _in_any_order(checkers: Sequence[Any], value: Any) -> bool:
    if not isinstance(value, list) or len(value) != len(checkers):
        return False
    return _assigned([[fits(checker, one) for checker in checkers] for one in value]) is not None


def _in_order(checkers: Sequence[Any], value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(checkers) and all(map(fits, checkers, value))


_OPERATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "exact": _equal,
    "any": lambda values, value: any(_same(one, value) for one in values),
    "has": _has,
    "match": lambda pattern, value: isinstance(value, str) and re.fullmatch(pattern, value) is not None,
    "type": _typed,
    "fields": lambda checkers, value: isinstance(value, dict) and not _fields_fault(checkers, value, "it"),
    "list": _in_order,
    "set": _in_any_order,
}
