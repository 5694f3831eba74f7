"""Exchanges: a conversation as a list of what was said, each with its answer.

    {"system": "Be kind.", "conversation": [{"human": "Hi", "assistant": "Hello."}, ...]}
    {"conversation": [{"system": "Be kind.", "input": "Hi", "output": "Hello."}, {"input": ..., "output": ...}]}

Spec: https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html (its ShareGPT),
https://github.com/InternLM/xtuner, `docs/zh_cn/legacy/user_guides/dataset_format.md`.

Quirks: instructions stand beside the list, or in its exchanges, before what is said there. One exchange in which nobody
asks anything is a text, as XTuner's rows for pre-training are; in a conversation it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Request
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    check_unread,
    check_wanted,
    is_null,
    list_of,
    object_of,
    record,
    required_text,
    text_member,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight, take_weight_of_row

_LISTS = ("conversation", "conversations")
_UNTRAINED = "the row says that its only text is not trained"
_PAIRS = (("human", "assistant"), ("input", "output"))
_READS = (*_LISTS, "system")


class Exchanges(Form):
    """Rows of exchanges."""

    name = "exchanges"
    members = frozenset(_LISTS)
    title = "Exchanges of ms-swift and XTuner: what was said, each with its answer"
    fields = "conversation: [{human, assistant}, or {system, input, output}], system"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for objects with one of the pairs of members."""
        found = next((record[key] for key in _LISTS if isinstance(record.get(key), list)), None)
        if not found or not all(isinstance(one, dict) for one in found):
            return 0, ""
        for pair in _PAIRS:
            if all(isinstance(one.get(key), str) for one in found for key in pair):
                extra = unread(record, _READS)
                why = f"exchanges of {pair[0]} and {pair[1]}"
                return (0.2, f"{why}, but also {extra[0]}") if extra else (1, why)
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        key = next((name for name in _LISTS if not is_null(members.get(name))), _LISTS[0])
        check_unread(members, (key, "system"), self.name)
        check_wanted(members)
        if key not in members:
            raise absent(f"$.{key}", "an array of exchanges")
        turns, weight = Turns(), take_weight_of_row(members)
        if said := text_member(members, "system"):
            turns.system(said, "$.system")
        entries = list_of(members[key], f"$.{key}")
        for index, entry in enumerate(entries):
            at = f"$.{key}[{index}]"
            exchange = object_of(entry, at)
            if len(entries) == 1 and not turns.items and (text := _alone(exchange, at)):
                if weight == 0:
                    raise BadRow(Code.UNWANTED, _UNTRAINED, path="$")
                return [Example(Request(), text=text)]
            _add(turns, exchange, at)
        return [turns.example(weight=weight)]


def _alone(exchange: Members, at: str) -> str | None:
    """Return the text of an exchange in which nothing was said before the answer; None if something was."""
    asked, answered = _pair(exchange)
    if asked not in exchange or text_member(exchange, "system", at) or text_member(exchange, asked, at):
        return None
    check_unread(exchange, ("system", asked, answered), "exchanges", at)
    if take_weight(exchange, at) == 0:
        raise BadRow(Code.UNWANTED, _UNTRAINED, path=at)
    return text_member(exchange, answered, at)


def _pair(exchange: Members) -> tuple[str, str]:
    return next((pair for pair in _PAIRS if pair[1] in exchange), _PAIRS[0])


def _add(turns: Turns, exchange: Members, at: str) -> None:
    asked, answered = _pair(exchange)
    check_unread(exchange, ("system", asked, answered), "exchanges", at)
    if said := text_member(exchange, "system", at):
        turns.system(said, f"{at}.system")
    question = required_text(exchange, asked, at)
    if not question:
        raise BadRow(Code.EMPTY, "nothing is said before this answer", path=f"{at}.{asked}")
    turns.user(question, f"{at}.{asked}")
    first = len(turns.items)
    turns.assistant(required_text(exchange, answered, at), f"{at}.{answered}")
    turns.weigh(first, take_weight(exchange, at))


FORMS = (Exchanges(),)
