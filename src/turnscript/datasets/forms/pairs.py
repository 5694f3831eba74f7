"""A prompt and its completion: what TRL, older fine-tuning and sets of questions and answers have.

    {"prompt": "What is 2 + 2?", "completion": "4"}

Spec: https://huggingface.co/docs/trl/dataset_formats.

Quirks: the names of the two members may be any pair of a short list, with `system` or `system_prompt` beside it, and
`history`, earlier pairs, as ms-swift has it. Both may be lists of messages; then the messages of the prompt are not
trained. Texts are what user and model say, as they stand: nothing is trimmed, no separator is taken off. `label`
beside them says, as a boolean, whether the completion is wanted (KTO): a row with an unwanted one is refused, because
what a row marks as bad is never trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.json_text import Json
from turnscript.datasets.chat_rows import example_of, read_joined, read_tools, score_messages
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    check_unread,
    check_wanted,
    first_byte,
    is_null,
    record,
    required_text,
    text_member,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight

_PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("query", "response"),
    ("question", "answer"),
    ("question", "response"),
    ("input", "output"),
)
_NULL = Json(b"null")
_NOTHING = (b"null", b'""', b"[]")
_SYSTEM = ("system", "system_prompt")
_BESIDE = (*_SYSTEM, "history", "tools")


class Pairs(Form):
    """Rows of a prompt and a completion."""

    name = "prompt-completion"
    members = frozenset(first for first, _ in _PAIRS)
    title = "A prompt and its completion, as texts or as messages"
    fields = "prompt, completion (or query, response; question, answer; input, output), system, history, tools, label"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for a known pair of members."""
        for first, second in _PAIRS:
            if _fits(record.get(first)) and type(record.get(first)) is type(record.get(second)):
                if extra := unread(record, (first, second, *_BESIDE)):
                    return 0.2, f"{first} and {second}, but also {extra[0]}"
                return 0.85, f"{first} and {second}"
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        first, second = next((pair for pair in _PAIRS if members.keys() >= set(pair)), _PAIRS[0])
        check_unread(members, (first, second, *_BESIDE), self.name)
        check_wanted(members)
        if first_byte(members.get(first, _NULL)) == b"[":
            return [_of_messages(members, first, second)]
        turns = Turns()
        for key in _SYSTEM:
            if said := text_member(members, key):
                turns.system(said, f"$.{key}")
        if not is_null(members.get("history")):
            turns.history(members["history"], "$.history")
        turns.user(required_text(members, first), f"$.{first}")
        asked = len(turns.items)
        turns.assistant(required_text(members, second), f"$.{second}")
        turns.weigh(asked, take_weight(members, "$"))
        return [turns.example(read_tools(members.get("tools")))]


def _fits(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and score_messages(value)[0] >= 0.5)


def _of_messages(members: Members, first: str, second: str) -> Example:
    for key in (*_SYSTEM, "history"):
        if bytes(members.get(key, _NULL)) not in _NOTHING:
            message = f"{key} beside messages that are a prompt is not read; make messages of it"
            raise BadRow(Code.SHAPE, message, path=f"$.{key}")
    weight = take_weight(members, "$")
    return example_of(read_joined(members, first, second), weight)


FORMS = (Pairs(),)
