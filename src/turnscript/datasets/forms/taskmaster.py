"""Owns Taskmaster, 1 to 4: spoken and written dialogs of a customer and an assistant.

    {"conversation_id": "dlg-1", "instruction_id": "pizza-1", "utterances": [
      {"index": 0, "speaker": "USER", "text": "A pizza, please.", "segments": [{"start_index": 2, ...}]},
      {"index": 1, "speaker": "ASSISTANT", "text": "Which size?"}]}

    {..., "utterances": [{"index": 0, "speaker": "user", "text": "...", "apis": [
      {"name": "find_movies", "index": 0, "args": {"location": "Oakland"}, "response": {"name.movie": ["..."]}}]}]}

    {..., "utterances": [{"index": 0, "speaker": "user", "text": "...", "annotations": [
      {"name": "api_call", "value": "finish_order", "context": "api_call_0"},
      {"name": "request", "value": "{\\"order_id\\": \\"1\\"}", "context": "api_call_0"},
      {"name": "api_response", "value": "finish_order", "context": "api_response_0"},
      {"name": "response", "value": "{\\"success\\":true}", "context": "api_response_0"}]}]}

- Speakers do not alternate: each utterance is a turn of its own, in the order of the list.
- Calls of an utterance (`apis` of 3, `annotations` of 4) come behind its text: the assistant makes them because of
  it, whoever spoke. Arguments and responses keep their text.
- `segments` mark pieces of the texts, and scenarios and instructions are those of the people who wrote the dialogs:
  neither was said.

Shape: https://github.com/google-research-datasets/Taskmaster (2024-03).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnscript.core.conversation import Assistant, Item, Part, Text, ToolCall, ToolResult, User
from turnscript.core.json_text import Json, text_of
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import check_unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import (
    check,
    checked,
    elements_of,
    has,
    member,
    members_of,
    request_of_items,
    text_of_member,
)

_SPEAKERS: dict[str, type[User | Assistant]] = {"user": User, "assistant": Assistant}
_CALL, _REQUEST, _RESPONSE = "api_call", "request", "response"
_KNOWN = frozenset({_CALL, _REQUEST, "api_response", _RESPONSE})


class Taskmaster(Form):
    """The four Taskmaster datasets."""

    name = "taskmaster"
    members = frozenset({"utterances"})
    title = "Taskmaster dialogs"
    fields = "`utterances` with `speaker` and `text`, `conversation_id`"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        utterances = record.get("utterances")
        if not isinstance(utterances, list):
            return 0.0, "no list `utterances`"
        first = utterances[0] if utterances and isinstance(utterances[0], dict) else {}
        if "speaker" in first and "text" in first:
            return 1.0, "`utterances` with `speaker` and `text`"
        return (0.5 if "conversation_id" in record else 0.0), "`utterances` of another kind"

    def read(self, data: bytes) -> list[Example]:
        members = members_of(checked(data))
        # Later datasets keep the instructions of the people who wrote a dialog under this name.
        notes = ("instructions",) if "scenario" in members else ()
        check_unread(members, ("utterances", *notes), self.name)
        items: list[Item] = []
        for index, value in enumerate(elements_of(member(members, "utterances", "$"), "$.utterances")):
            at = f"$.utterances[{index}]"
            utterance = members_of(value, at)
            check_unread(utterance, ("text", "segments"), self.name, at)  # segments of the text have notes
            items.append(_turn(utterance, at))
            items += _apis(utterance, at)
            items += _annotated(utterance, at)
        check(items, "$.utterances")
        return [Example(request_of_items(items))]


def _turn(utterance: Mapping[str, Json], at: str) -> Item:
    speaker = text_of_member(utterance, "speaker", at)
    kind = _SPEAKERS.get(speaker.lower())
    if kind is None:
        expected = " or ".join(map(repr, _SPEAKERS))
        raise BadRow(Code.ROLE, f"a speaker that is not known: {speaker!r}; expected {expected}", path=f"{at}.speaker")
    return kind(content=[Text(text=text_of_member(utterance, "text", at))], at=at)


def _apis(utterance: Mapping[str, Json], at: str) -> Iterator[Item]:
    """Give calls as Taskmaster-3 has them: each with its response, as JSON."""
    if not has(utterance, "apis"):
        return
    for index, value in enumerate(elements_of(utterance["apis"], f"{at}.apis")):
        place = f"{at}.apis[{index}]"
        call = members_of(value, place)
        name = text_of_member(call, "name", place)
        members_of(member(call, "args", place), f"{place}.args")
        yield ToolCall(name=name, arguments=text_of(call["args"]), as_object=True, at=place)
        if "response" in call:
            content: list[Part] = [Text(text=text_of(call["response"]))]
            yield ToolResult(content=content, name=name, at=f"{place}.response")


def _annotated(utterance: Mapping[str, Json], at: str) -> Iterator[Item]:
    """Give calls as Taskmaster-4 has them: notes that belong together follow one another."""
    if not has(utterance, "annotations"):
        return
    call: ToolCall | None = None
    name: str | None = None
    for index, value in enumerate(elements_of(utterance["annotations"], f"{at}.annotations")):
        place = f"{at}.annotations[{index}]"
        note = members_of(value, place)
        kind = text_of_member(note, "name", place)
        if kind not in _KNOWN:
            raise BadRow(Code.SHAPE, f"a note that is not known: {kind!r}", path=f"{place}.name")
        text = text_of_member(note, "value", place)
        if kind == _CALL:
            call, name = ToolCall(name=text, at=place), text
            yield call
        elif kind == _REQUEST:
            if call is None:
                raise BadRow(Code.CALL, "arguments of no call", path=place)
            call.arguments, call = text, None
        elif kind == _RESPONSE:
            yield ToolResult(content=[Text(text=text)], name=name, at=place)


FORMS = (Taskmaster(),)
