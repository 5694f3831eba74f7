"""Owns the checks of the test data: the corpus says what it needs and reads strictly, hard cases hold together."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import turnscript as ts
from tests import corpora, goldens
from tests.corpora import HardCase
from tests.every import every
from tests.strategies.text import CONTROLS
from turnscript.core.conversation import text_content
from turnscript.core.json_text import plain

GOLDENS = {"c1": (goldens.c1(), True), "c2": (goldens.c2(), False), "c3": (goldens.c3(), True)}
# A code fence is a marker only around a call.
MARKERS = tuple(literal for literal in CONTROLS if not literal.startswith("```"))
MODEL = (ts.Assistant, ts.Thinking, ts.ToolCall)
PLAIN_PROPERTY = {"type", "description"}
LONG = 3000
CASES = corpora.hard_cases().cases


# What a conversation needs, read off its items: the same words that its file says.


def pairs(request: ts.Request, first: type[ts.Item], second: type[ts.Item]) -> bool:
    """Whether an item of the one kind stands directly before one of the other."""
    return any(isinstance(a, first) and isinstance(b, second) for a, b in pairwise(request.items))


def calls(request: ts.Request) -> list[ts.ToolCall]:
    return [item for item in request.items if isinstance(item, ts.ToolCall)]


def results(request: ts.Request) -> list[ts.ToolResult]:
    return [item for item in request.items if isinstance(item, ts.ToolResult)]


def exchanges(request: ts.Request) -> list[ts.ToolCall | ts.ToolResult]:
    """Calls and results: all that has an id."""
    return [*calls(request), *results(request)]


def texts(request: ts.Request) -> Iterator[str]:
    """The text contents."""
    for item in request.items:
        if isinstance(item, ts.System | ts.User | ts.Assistant | ts.Thinking | ts.ToolResult):
            yield text_content(item.content)


def strings(request: ts.Request) -> Iterator[str]:
    """Every string that may hold a marker."""
    yield from texts(request)
    for call in calls(request):
        yield from (call.name, call.arguments, call.id or "")
    for item in request.items:
        yield getattr(item, "name", None) or ""
    for tool in request.tools:
        yield from (tool.name or "", tool.description or "", bytes(tool.parameters or b"").decode())


def after_the_instructions(request: ts.Request) -> list[ts.Item]:
    rest = list(request.items)
    while rest and isinstance(rest[0], ts.System):
        rest.pop(0)
    return rest


def is_rich(tool: ts.Tool) -> bool:
    """Whether the parameters say more than a type and a description each, all of them required."""
    if tool.parameters is None:
        return False
    schema = plain(tool.parameters)
    properties = schema.get("properties", {})
    usual = {"type": "object", "properties": properties, "required": list(properties)}
    return schema != usual or any(
        not set(each) <= PLAIN_PROPERTY or not isinstance(each.get("type"), str) for each in properties.values()
    )


def is_unanswered(request: ts.Request) -> bool:
    """Whether something other than calls and results comes after a call, before a result; or nothing comes."""
    waiting = 0
    for item in request.items:
        if isinstance(item, ts.ToolResult):
            waiting -= 1
        elif isinstance(item, ts.ToolCall):
            waiting += 1
        elif waiting > 0:
            return True
    return waiting > 0


def is_shuffled(request: ts.Request) -> bool:
    asked = [call.id for call in calls(request)]
    order = [asked.index(result.id) for result in results(request) if result.id in asked]
    return order != sorted(order)


def is_an_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except json.JSONDecodeError:
        return False


def is_respelled(arguments: str) -> bool:
    """Whether reading and writing the JSON would change it."""
    return is_an_object(arguments) and arguments != json.dumps(json.loads(arguments), ensure_ascii=False)


RULES: dict[str, Callable[[ts.Request], bool]] = {
    "system": lambda r: isinstance(r.items[0], ts.System),
    "system_runs": lambda r: pairs(r, ts.System, ts.System),
    "mid_system": lambda r: any(isinstance(item, ts.System) for item in after_the_instructions(r)),
    "developer": lambda r: any(isinstance(item, ts.System) and item.role == "developer" for item in r.items),
    "names": lambda r: any(isinstance(item, ts.User) and item.name for item in r.items),
    "leading_assistant": lambda r: isinstance(next(iter(after_the_instructions(r)), None), MODEL),
    "user_runs": lambda r: pairs(r, ts.User, ts.User),
    "assistant_runs": lambda r: pairs(r, ts.Assistant, ts.Assistant),
    "open": lambda r: any(item.open for item in r.items),
    "thinking": lambda r: any(isinstance(item, ts.Thinking) for item in r.items),
    "thinking_kinds": lambda r: any(isinstance(item, ts.Thinking) and item.of != "reason" for item in r.items),
    "thinking_runs": lambda r: pairs(r, ts.Thinking, ts.Thinking),
    "late_thinking": lambda r: pairs(r, ts.Assistant, ts.Thinking) or pairs(r, ts.ToolCall, ts.Thinking),
    "tools": lambda r: bool(r.tools),
    "bare_tools": lambda r: any(tool.description is None or tool.parameters is None for tool in r.tools),
    "rich_schemas": lambda r: any(is_rich(tool) for tool in r.tools),
    "calls": lambda r: bool(calls(r)),
    "parallel": lambda r: pairs(r, ts.ToolCall, ts.ToolCall),
    "text_and_calls": lambda r: pairs(r, ts.Assistant, ts.ToolCall),
    "unanswered": is_unanswered,
    "unknown_tools": lambda r: bool({call.name for call in calls(r)} - {tool.name for tool in r.tools}),
    "ids": lambda r: any(item.id for item in exchanges(r)),
    "missing_ids": lambda r: any(item.id is None for item in exchanges(r)),
    "duplicate_ids": lambda r: len({call.id for call in calls(r) if call.id}) < sum(bool(c.id) for c in calls(r)),
    "odd_ids": lambda r: any(re.search(r"[^\w-]", item.id or "") for item in exchanges(r)),
    "results": lambda r: bool(results(r)),
    "unnamed_results": lambda r: any(result.name is None for result in results(r)),
    "shuffled_results": is_shuffled,
    "orphans": lambda r: bool({result.id for result in results(r)} - {call.id for call in calls(r)}),
    "status": lambda r: any(result.status for result in results(r)),
    "invalid_arguments": lambda r: any(not is_an_object(call.arguments) for call in calls(r)),
    "exact_arguments": lambda r: any(is_respelled(call.arguments) for call in calls(r)),
    "blank_lines": lambda r: any("\n\n" in text.replace("\r\n", "\n").strip("\n") for text in texts(r)),
    "outer_space": lambda r: any(text != text.strip() for text in texts(r)),
    "empty_text": lambda r: "" in texts(r),
    "carriage_returns": lambda r: any("\r" in text for text in texts(r)),
    "markers": lambda r: any(literal in string for string in strings(r) for literal in MARKERS),
}


# The corpus.


def test_every_need_has_a_meaning_and_a_rule() -> None:
    assert list(corpora.NEEDS) == list(RULES)


@corpora.on_every
def test_a_conversation_says_what_it_needs(name: str) -> None:
    request = corpora.load(name)
    assert {need for need, rule in RULES.items() if rule(request)} == corpora.needs(name)


def test_every_need_is_there_and_is_missing_somewhere() -> None:
    kinds = [corpora.needs(name) for name in corpora.names()]
    assert set(corpora.NEEDS) == set().union(*kinds)
    assert frozenset() == frozenset.intersection(*kinds)


def test_a_conversation_is_made_afresh_each_time() -> None:
    first = corpora.load("c1")
    first.items.clear()
    assert goldens.c1() == corpora.load("c1").items


@pytest.mark.parametrize("name", GOLDENS)
def test_the_golden_conversations_are_in_the_corpus(name: str) -> None:
    items, has_tools = GOLDENS[name]
    tools = [goldens.WEATHER] if has_tools else []
    assert ts.Request(conversation=ts.Conversation(items=items, tools=tools)) == corpora.load(name)


def test_no_two_conversations_are_the_same() -> None:
    requests = [corpora.load(name) for name in corpora.names()]
    assert [] == [(a, b) for a in range(len(requests)) for b in range(a) if requests[a] == requests[b]]


def test_conversations_are_small_but_for_the_ones_that_are_meant_to_be_long() -> None:
    sizes = {name: sum(map(len, strings(corpora.load(name)))) for name in corpora.names()}
    assert {"long_text", "many_turns"} == {name for name, size in sizes.items() if size > 1200}
    assert sizes["long_text"] > LONG


@corpora.on_every
def test_a_file_is_written_so_that_every_character_can_be_seen(name: str) -> None:
    text = (corpora.CORPUS / f"{name}.json").read_bytes().decode()
    assert [] == sorted({character for character in text if not character.isprintable()} - {"\n"})


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ('{"user": "a", "nickname": "b"}', "unknown field `nickname`"),
        ('{"user": "a", "role": "b"}', "unknown field `role`"),
        ('{"call": {"name": "f", "arguments": {}}}', "Expected `str`, got `object`"),
        ('{"call": {"name": "f"}}', "missing required field `arguments`"),
        ('{"result": {"text": "", "call_id": "c"}}', "unknown field `call_id`"),
        ('{"name": "b", "user": "a"}', "begins with its kind"),
        ("{}", "begins with its kind"),
    ],
)
def test_a_wrong_item_is_refused(entry: str, complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        corpora.parse(f'{{"title": "t", "needs": [], "items": [{entry}]}}'.encode())


def test_a_wrong_file_is_refused() -> None:
    assert [] == corpora.parse(b'{"title": "t", "needs": [], "items": []}').items
    with pytest.raises(msgspec.ValidationError, match="unknown field `note`"):
        corpora.parse(b'{"title": "t", "needs": [], "items": [], "note": ""}')
    with pytest.raises(msgspec.ValidationError, match="no such need: magic"):
        corpora.parse(b'{"title": "t", "needs": ["magic"], "items": []}')
    with pytest.raises(msgspec.ValidationError, match="unknown field `strict`"):
        corpora.parse(b'{"title": "t", "needs": [], "items": [], "tools": [{"name": "f", "strict": true}]}')


# The hard cases.


def label(case: HardCase) -> str:
    return f"{case.case:02}-{case.format}-{case.title.replace(' ', '_')}"


def test_hard_cases_have_labels_of_their_own() -> None:
    labels = [label(case) for case in CASES]
    assert sorted(set(labels)) == sorted(labels)


@every("case", CASES, label)
def test_a_hard_case_holds_together(case: HardCase) -> None:
    it_names_known_tools_and_issues(case)
    it_expects_what_an_outline_can_say(case)
    it_ends_as_its_calls_and_its_backend_say(case)
    the_arguments_that_it_expects_are_an_object(case)


def it_names_known_tools_and_issues(case: HardCase) -> None:
    assert case.tools == [tool.name for tool in corpora.hard_cases().offered(case)]
    assert set(case.expect.issues) <= corpora.hard_cases().issues.keys()


@pytest.mark.parametrize("case", [case for case in CASES if case.chunks], ids=label)
def test_the_chunks_of_a_hard_case_are_its_output(case: HardCase) -> None:
    assert case.output == "".join(case.chunks)


def it_expects_what_an_outline_can_say(case: HardCase) -> None:
    shapes: dict[str, Callable[[dict[str, Any]], ts.Item]] = {
        "text": lambda item: ts.Assistant(content=[ts.Text(text=item["text"])]),
        "thinking": lambda item: ts.Thinking(content=[ts.Text(text=item["thinking"])], of=item.get("of", "reason")),
        "call": lambda item: ts.ToolCall(**item["call"]),
    }
    items = [shapes[next(iter(item))](item) for item in case.expect.items]
    assert corpora.outline(items) == case.expect.items


def it_ends_as_its_calls_and_its_backend_say(case: HardCase) -> None:
    called = any("call" in item for item in case.expect.items)
    cut = "unclosed_call" in case.expect.issues and case.finish == "length"
    usual = "tool_calls" if called and not cut else case.finish or "stop"
    assert usual == case.expect.finish_reason


def the_arguments_that_it_expects_are_an_object(case: HardCase) -> None:
    arguments = [item["call"]["arguments"] for item in case.expect.items if "call" in item]
    assert all(isinstance(json.loads(text), dict) for text in arguments)


def test_every_kind_of_issue_is_expected_somewhere() -> None:
    assert corpora.hard_cases().issues.keys() == {kind for case in CASES for kind in case.expect.issues}
