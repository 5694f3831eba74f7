"""A conversation in one text with `USER:`, `ASSISTANT:` and `FUNCTION RESPONSE:`: Glaive's function calling.

    {"system": "SYSTEM: You are ... with access to the following functions. Use them if required -\\n{...}",
     "chat": "USER: Hi\\n\\n\\nASSISTANT: <functioncall> {\\"name\\": \\"w\\", \\"arguments\\": '{...}'} <|endoftext|>"}

Spec: https://huggingface.co/datasets/glaiveai/glaive-function-calling-v2.

Quirks: a turn begins on a line behind an empty one, or behind `<|endoftext|>`. Arguments stand in single quotes, which
is no JSON; they become the text between them. The functions become tools, and the sentence that announces them is left
out of the system text. White space around turns is not kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from turnscript.core.conversation import Tool
from turnscript.core.json_text import Json
from turnscript.datasets.chat_rows import read_tools, spelled_list
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import check_unread, json_in, quoted, record, required_text, text_member, unread
from turnscript.datasets.members import spelled as object_text
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight_of_row

_END = "<|endoftext|>"
_CALL = "<functioncall>"
_LABEL = re.compile(r"(?:(?<!\S)|(?<=<\|endoftext\|>))(USER|ASSISTANT|FUNCTION RESPONSE):")
_QUOTED = re.compile(r"\{\s*\"name\"\s*:\s*(\"[^\"]*\")\s*,\s*\"arguments\"\s*:\s*'(.*)'\s*\}", re.DOTALL)
_FUNCTIONS = re.compile(r",? with access to the following functions\. Use them if required -\s*")
_COMMA = re.compile(r"\s*,?\s*")
_DECODER = json.JSONDecoder()
_READS = ("system", "chat")


class Glaive(Form):
    """Rows of a system text with functions and a chat in one text."""

    name = "glaive"
    members = frozenset({"chat"})
    title = "Glaive function calling: system and chat as texts"
    fields = "system: SYSTEM: ..., chat: USER: ... ASSISTANT: ... FUNCTION RESPONSE: ..."

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for a `chat` that begins with `USER:` or `ASSISTANT:`."""
        chat = record.get("chat")
        if not isinstance(chat, str) or not _LABEL.match(chat.lstrip()) or unread(record, _READS):
            return 0, ""
        return 1, "chat as a text with USER: and ASSISTANT:"

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        check_unread(members, _READS, self.name)
        turns = Turns()
        tools = _add_system(turns, text_member(members, "system") or "")
        chat = required_text(members, "chat")
        for label, said in _turns(chat):
            _add_turn(turns, label, said)
        return [turns.example(tools, weight=take_weight_of_row(members))]


def _add_system(turns: Turns, said: str) -> list[Tool]:
    said = said.strip().removeprefix("SYSTEM:").strip()
    found = _FUNCTIONS.search(said)
    if found is None:
        if said:
            turns.system(said, "$.system")
        return []
    turns.system(f"{said[: found.start()]}.", "$.system")
    return read_tools(spelled_list(_objects(said[found.end() :])), "$.system")


def _turns(chat: str) -> Iterator[tuple[str, str]]:
    """Give each turn as its label and text. A label that begins no turn makes it doubtful where the turns are."""
    marks = list(_LABEL.finditer(chat))
    if not marks or chat[: marks[0].start()].strip():
        raise BadRow(Code.SHAPE, "the chat does not begin with USER: or ASSISTANT:", path="$.chat")
    ends = [mark.start() for mark in marks[1:]] + [len(chat)]
    for mark, end in zip(marks, ends, strict=True):
        said = chat[mark.end() : end]
        text = said.rstrip()
        if end < len(chat) and not text.endswith(_END) and said.count("\n", len(text)) < 2:
            message = f"a turn of {mark[1]} holds the beginning of another, so its own end cannot be told"
            raise BadRow(Code.SHAPE, message, path="$.chat")
        yield mark[1], text.lstrip()


def _objects(inside: str) -> list[Json]:
    """Return the JSON objects that stand behind one another in a text, and nothing else."""
    found, at, inside = [], 0, inside.rstrip()
    while (at := _COMMA.match(inside, at).end()) < len(inside):  # type: ignore[union-attr]
        try:
            _, end = _DECODER.raw_decode(inside, at)
        except (ValueError, RecursionError):
            message = f"neither a function nor its end: {inside[at : at + 40]!r}"
            raise BadRow(Code.SHAPE, message, path="$.system") from None
        found.append(json_in(inside[at:end], "$.system"))
        at = end
    return found


def _add_turn(turns: Turns, label: str, said: str) -> None:
    if label == "ASSISTANT":
        said = said.removesuffix(_END).rstrip()
    if _END in said:
        message = f"a turn of {label} holds the end of another, so its own end cannot be told"
        raise BadRow(Code.SHAPE, message, path="$.chat")
    if label == "USER":
        turns.user(said, "$.chat")
    elif label == "ASSISTANT":
        _add_answer(turns, said)
    else:
        turns.result(said, "$.chat")


def _add_answer(turns: Turns, said: str) -> None:
    text, *calls = said.split(_CALL)
    if text.strip() or not calls:
        turns.assistant(text.strip(), "$.chat")
    for call in calls:
        turns.call(_call(call.strip().removesuffix("</functioncall>").strip()), "$.chat")


def _call(inside: str) -> Json:
    found = _QUOTED.fullmatch(inside)
    if found is None:
        try:
            return json_in(inside, "$.chat")
        except BadRow as error:
            raise BadRow(Code.ARGS, error.message, path=error.path) from None
    # The quotes are Python's, but only they: what is between them was pasted as it was.
    arguments = found[2].replace("\\'", "'")
    return object_text({"name": json_in(found[1], "$.chat"), "arguments": quoted(arguments)})


FORMS = (Glaive(),)
