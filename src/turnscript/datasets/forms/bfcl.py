"""Owns the Berkeley function calling leaderboard: questions with functions, and answers where the record has them.

    {"id": "simple_1", "question": [[{"role": "user", "content": "..."}]],
     "function": [{"name": "math.factorial", "description": "...", "parameters": {"type": "dict", ...}}],
     "ground_truth": [{"math.factorial": {"number": [5]}}]}

- `question` is a list of turns, each a list of messages. Older files have one list of messages, or one text.
- The schemas of functions stay as they are, though they say `dict` and `float` where JSON Schema says `object` and
  `number`.
- The answers come in files of their own, which are not joined here: a record without one has nothing to train. Where a
  record has `ground_truth`, the first value that counts as right is the answer; a parameter whose first value is the
  empty text may be left out, and is. A list of texts holds answers in words, of which the first is taken.
- Of several turns, `ground_truth` has a list for each, with calls as Python writes them: `ls(a=True)`. They have no
  results.

Shape: https://github.com/ShishirPatil/gorilla/tree/main/berkeley-function-call-leaderboard (2026-04).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Assistant, Item, Request, Text, ToolCall
from turnscript.core.json_text import Json, json_of, text_of
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import check_unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import (
    CHAT,
    check,
    checked,
    elements_of,
    has,
    list_at,
    member,
    members_of,
    message_index,
    mismatch,
    object_at,
    of_list,
    relocate,
    request_of,
    value_of,
)

_TRUTH = "ground_truth"


class Bfcl(Form):
    """The leaderboard's questions."""

    name = "bfcl"
    members = frozenset({"question"})
    title = "Berkeley function calling questions"
    fields = "`question` with turns of messages, `function` with schemas, `id`, `ground_truth` with the answers"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        question = record.get("question")
        nested = isinstance(question, list) and bool(question) and isinstance(question[0], list | dict)
        if nested and ("function" in record or "involved_classes" in record):
            return 1.0, "a `question` with messages, and functions"
        if nested and "id" in record:
            return 0.9, "a `question` with turns of messages"
        if isinstance(question, str) and "function" in record:
            return 0.7, "a `question` and a `function`"
        return 0.0, "no `question` with messages"

    def read(self, data: bytes) -> list[Example]:
        members = members_of(checked(data))
        check_unread(members, ("question",), self.name)
        turns = _turns(member(members, "question", "$"))
        messages = [message for turn in turns for _, message in turn]
        places = [at for turn in turns for at, _ in turn]
        body = {"messages": b"[" + b",".join(messages) + b"]", **_functions(members)}
        request = request_of(CHAT, body, of_list(places))
        if has(members, _TRUTH):
            _answer(request, turns, list_at(value_of(members[_TRUTH], f"$.{_TRUTH}"), f"$.{_TRUTH}"))
        relocate(request, lambda at: at if at.startswith(f"$.{_TRUTH}") else of_list(places)(at))
        check(request.items, "$.question")
        return [Example(request)]


def _turns(value: Json) -> list[list[tuple[str, bytes]]]:
    """Return the messages of each turn, with their places."""
    first = bytes(memoryview(value)[:1])
    if first == b'"':
        return [[("$.question", b'{"role":"user","content":%s}' % bytes(value))]]
    elements = elements_of(value, "$.question")
    if elements and bytes(elements[0])[:1] == b"{":
        return [[(f"$.question[{index}]", bytes(message)) for index, message in enumerate(elements)]]
    turns = []
    for index, turn in enumerate(elements):
        at = f"$.question[{index}]"
        turns.append([(f"{at}[{number}]", bytes(one)) for number, one in enumerate(elements_of(turn, at))])
    return turns


def _functions(members: Mapping[str, Json]) -> dict[str, bytes]:
    """Return the functions: a list, one alone, or an empty text."""
    if not has(members, "function") or bytes(members["function"]) == b'""':
        return {}
    value = bytes(members["function"])
    if value[:1] == b"{":
        return {"functions": b"[%s]" % value}
    elements_of(value, "$.function")
    return {"functions": value}


# Answers.


def _answer(request: Request, turns: list[list[tuple[str, bytes]]], truth: list[Any]) -> None:
    at = f"$.{_TRUTH}"
    if truth and isinstance(truth[0], str):
        request.items.append(Assistant(content=[Text(text=truth[0])], at=f"{at}[0]"))
    elif truth and isinstance(truth[0], dict):
        request.items.extend(_call(value, f"{at}[{index}]") for index, value in enumerate(truth))
    elif truth:
        _answer_turns(request, turns, truth)


def _answer_turns(request: Request, turns: list[list[tuple[str, bytes]]], truth: list[Any]) -> None:
    """Put the calls of each turn behind its messages."""
    at = f"$.{_TRUTH}"
    if len(truth) != len(turns):
        raise BadRow(Code.SHAPE, f"answers to {len(truth)} turns, but there are {len(turns)}", path=at)
    owners = [turn for turn, messages in enumerate(turns) for _ in messages]
    items: list[list[Item]] = [[] for _ in turns]
    for item in request.items:
        items[owners[message_index(item.at)]].append(item)
    for index, calls in enumerate(truth):
        for number, call in enumerate(list_at(calls, f"{at}[{index}]")):
            items[index].append(_python_call(call, f"{at}[{index}][{number}]"))
    request.conversation.items = [item for turn in items for item in turn]


def _call(value: object, at: str) -> ToolCall:
    """Return `{"name": {"parameter": [values that count as right]}}` as a call."""
    call = object_at(value, at)
    if len(call) != 1:
        raise BadRow(Code.CALL, f"expected one function, got {len(call)}", path=at)
    ((name, parameters),) = call.items()
    return ToolCall(name=name, arguments=text_of(json_of(_chosen(parameters, f"{at}.{name}"))), at=at)


def _chosen(parameters: object, at: str) -> dict[str, Any]:
    arguments = {}
    for name, values in object_at(parameters, at).items():
        place = f"{at}.{name}"
        if not isinstance(values, list):
            raise mismatch(place, "an array of values", values)
        if values and values[0] != "":
            arguments[name] = _value(values[0], f"{place}[0]")
    return arguments


def _value(value: object, at: str) -> object:
    """Return a right value: objects hold lists of right values again, also in an array."""
    if isinstance(value, dict):
        return _chosen(value, at)
    if isinstance(value, list):
        return [_value(one, f"{at}[{index}]") for index, one in enumerate(value)]
    return value


def _python_call(value: object, at: str) -> ToolCall:
    """Return `ls(a=True)` as a call."""
    if not isinstance(value, str):
        raise mismatch(at, "a call as text", value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its strings that Python does not know
            call = ast.parse(value.strip(), mode="eval").body
            if not isinstance(call, ast.Call) or call.args or any(one.arg is None for one in call.keywords):
                raise ValueError("no call with named arguments")
            arguments = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
            return ToolCall(name=ast.unparse(call.func), arguments=text_of(json_of(arguments)), at=at)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise BadRow(Code.ARGS, "no call with named arguments, such as `ls(a=True)`", path=at) from None


FORMS = (Bfcl(),)
