"""Owns reading a row as examples. A value in it that JSON does not have matters only where the form reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import arguments_of
from turnscript.datasets.problems import DEFECTS, Problem, problem_of
from turnscript.datasets.rows import RawRow


def examples_of(form: Form, row: RawRow) -> list[Example] | Problem:
    """Return what a form makes of a row, or why it cannot be used."""
    try:
        if row.problem is None:
            return [_in_one_spelling(example) for example in form.read(row.data)]
        if row.readings is None:
            return row.problem
        without = form.read(row.readings.without)
        return without if all(_says(form.read, one, without) for one in row.readings.marked) else row.problem
    except (TurnscriptError, *DEFECTS) as error:
        return problem_of(error)


def _in_one_spelling(example: Example) -> Example:
    """An example whose arguments that are objects in the row, as in logs and sessions, have one spelling."""
    if example.spoken is None and example.given is not None:
        for item in example.given.items:
            if isinstance(item, ToolCall) and item.as_object:
                item.arguments = arguments_of(item.arguments)
    return example


def _says(read: Callable[[bytes], list[Example]], marked: bytes, without: Sequence[Example]) -> bool:
    """Return whether a row says the same with something else in the place of a value as without that value."""
    try:
        found = read(marked)
    except (TurnscriptError, *DEFECTS):
        return False
    return list(map(_said, found)) == list(map(_said, without))


def _said(example: Example) -> tuple[object, ...]:
    """Return all of an example that its samples are made of."""
    if example.is_document:
        conversation: tuple[object, ...] = (example.text, example.mask, example.files)
    else:
        conversation = (example.request.items, example.request.tools)
    return (*conversation, example.weights, example.context, example.label)


__all__ = ["examples_of"]
