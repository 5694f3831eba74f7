"""Owns coherence: rewriting the ids of a random body so that its tool results answer calls that came before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, count
from typing import Any

from tests.strategies.shapes import Model, Options, Record, Typed

# Which field of a call is its id, and which family of answers it wants. Keys are `type`s, and Chat's roles.
CALLS: dict[str, tuple[str, str]] = {
    # Chat: a tool call; Anthropic: every kind of tool use.
    "function": ("id", "chat"),
    "custom": ("id", "chat"),
    "tool_use": ("id", "tool_result"),
    "server_tool_use": ("id", "server_tool_result"),
    "mcp_tool_use": ("id", "mcp_tool_result"),
    # Responses: each call type has an output type of its own.
    "function_call": ("call_id", "function_call_output"),
    "custom_tool_call": ("call_id", "custom_tool_call_output"),
    "computer_call": ("call_id", "computer_call_output"),
    "shell_call": ("call_id", "shell_call_output"),
    "apply_patch_call": ("call_id", "apply_patch_call_output"),
    "tool_search_call": ("call_id", "tool_search_output"),
    "program": ("call_id", "program_output"),
    "local_shell_call": ("call_id", "local_shell_call_output"),
    "mcp_approval_request": ("id", "mcp_approval_response"),
}
# Which field of an answer names its call, and its family.
ANSWERS: dict[str, tuple[str, str]] = {
    "tool": ("tool_call_id", "chat"),
    "tool_result": ("tool_use_id", "tool_result"),
    "web_search_tool_result": ("tool_use_id", "server_tool_result"),
    "web_fetch_tool_result": ("tool_use_id", "server_tool_result"),
    "code_execution_tool_result": ("tool_use_id", "server_tool_result"),
    "bash_code_execution_tool_result": ("tool_use_id", "server_tool_result"),
    "text_editor_code_execution_tool_result": ("tool_use_id", "server_tool_result"),
    "tool_search_tool_result": ("tool_use_id", "server_tool_result"),
    "advisor_tool_result": ("tool_use_id", "server_tool_result"),
    "mcp_tool_result": ("tool_use_id", "mcp_tool_result"),
    "function_call_output": ("call_id", "function_call_output"),
    "custom_tool_call_output": ("call_id", "custom_tool_call_output"),
    "computer_call_output": ("call_id", "computer_call_output"),
    "shell_call_output": ("call_id", "shell_call_output"),
    "apply_patch_call_output": ("call_id", "apply_patch_call_output"),
    "tool_search_output": ("call_id", "tool_search_output"),
    "program_output": ("call_id", "program_output"),
    # The one answer that says its call's id in `id`.
    "local_shell_call_output": ("id", "local_shell_call_output"),
    "mcp_approval_response": ("approval_request_id", "mcp_approval_response"),
}
# Where turns live. Tools also have `type: function`, so nothing else is searched.
HISTORY = ("messages", "input")


def objects(value: Any) -> Iterator[Typed]:
    """Every object of the body that has a type of its own, in document order."""
    if isinstance(value, Typed):
        yield value
    if isinstance(value, dict):
        for member in value.values():
            yield from objects(member)
    elif isinstance(value, list):
        for member in value:
            yield from objects(member)


def history(body: dict[str, Any]) -> Iterator[Typed]:
    for name in HISTORY:
        yield from objects(body.get(name))


def pairs(body: dict[str, Any]) -> list[tuple[Typed, Typed]]:
    """(call, answer) for each answer whose id an earlier call of its family has."""
    calls: dict[tuple[str, str], Typed] = {}
    found = []
    for item in history(body):
        if call := _place(item, CALLS):
            calls[call[1], str(item.get(call[0]))] = item
        elif (answer := _place(item, ANSWERS)) and (answer[1], str(item.get(answer[0]))) in calls:
            found.append((calls[answer[1], str(item.get(answer[0]))], item))
    return found


def cohere(body: dict[str, Any]) -> None:
    """Makes call ids unique and lets each answer name the earliest unanswered call of its family, in place.

    A turn that answers calls before they are made goes to the end. An answer without any call keeps its id: orphans
    occur in real histories as well.
    """
    for name in HISTORY:
        if isinstance(body.get(name), list):
            body[name] = _answers_last(body[name])
    taken: set[str] = set()
    waiting: dict[str, list[str]] = defaultdict(list)
    for item in history(body):
        if place := _place(item, CALLS):
            name, family = place
            call_id = str(item.get(name) or "call")
            others = (f"{call_id}_{number}" for number in count(1))
            unique = next(one for one in chain([call_id], others) if one not in taken)
            taken.add(unique)
            item[name] = unique
            waiting[family].append(unique)
        elif (place := _place(item, ANSWERS)) and waiting[place[1]]:
            item[place[0]] = waiting[place[1]].pop(0)


def _answers_last(turns: list[Any]) -> list[Any]:
    """The turns, those with an answer to no call so far after all others."""
    waiting: Counter[str] = Counter()
    early, late = [], []
    for turn in turns:
        counts = waiting.copy()
        for item in objects(turn):
            counts.update(place[1] for place in [_place(item, CALLS)] if place)
            counts.subtract(place[1] for place in [_place(item, ANSWERS)] if place)
        if min(counts.values(), default=0) < 0:
            late.append(turn)
        else:
            early.append(turn)
            waiting = counts
    return early + late


def places(model: Model, table: dict[str, tuple[str, str]]) -> Iterator[tuple[Record, int, str]]:
    """(record, site of its id field, family) for each record of the model that the table speaks of."""
    for record in model.records():
        fields = {member.name: member for member in record.fields}
        for kind in (fields[name] for name in ("type", "role") if name in fields):
            for value in kind.shape.values if isinstance(kind.shape, Options) else ():
                if value in table and table[value][0] in fields:
                    yield record, fields[table[value][0]].present, table[value][1]


def _place(item: Typed, table: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """The id field and family of an object whose record has that field."""
    place = table.get(str(item.get("type") or item.get("role")))
    return place if place and any(place[0] == member.name for member in item.record.fields) else None
