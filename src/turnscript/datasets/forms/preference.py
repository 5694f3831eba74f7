"""Two answers to one prompt, the better and the worse: DPO and reward data. Only the better one is an example.

    {"prompt": "Hi", "chosen": "Hello, how can I help?", "rejected": "What."}
    {"input": {"messages": [...], "tools": []}, "preferred_output": [...], "non_preferred_output": [...]}

Spec: https://huggingface.co/docs/trl/dataset_formats,
https://platform.openai.com/docs/guides/direct-preference-optimization,
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html.

Quirks: `chosen` and `rejected` are texts, messages (the whole conversation, or what follows the prompt's messages), or
one turn with `from` and `value` behind `conversations`. The prompt is a text, messages, or an instruction with its
input. Two lists that hold the whole conversation must begin with a `prompt` that stands beside them. `messages` beside
them is the copy of one of them that some sets have. ms-swift has the better answer at the end of `messages`, or as
`response`, and the worse as `rejected_messages` or `rejected_response`. The rejected answer is read by nobody: what a
row marks as bad is never trained. A mark of the row is that of its better answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.json_text import Json, same
from turnscript.datasets.chat_rows import (
    example_of,
    read_joined,
    read_messages,
    read_tools,
    same_text,
    score_messages,
)
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    check_unread,
    first_byte,
    is_null,
    list_of,
    object_of,
    record,
    required_text,
    spelled,
    text,
    text_member,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight, with_row

_CHOSEN = "chosen"
_ANSWERS = (_CHOSEN, "rejected")
_WORSE = ("rejected_messages", "rejected_response")
"""The worse answer beside a better one that has its usual name."""
_OUTPUTS = ("preferred_output", "non_preferred_output")
_AS_OUTPUTS = "of preferred outputs"
_ASKED = ("prompt", "question", "query", "input")
_PROMPTS = (*_ASKED, "instruction", "conversations")
_BESIDE = (*_ANSWERS, "messages", "tools")
_RESPONSE = "response"
_READS = (*_BESIDE, *_PROMPTS, "system")
_AS_WORSE = "of a worse answer beside messages"
_AS_TEXTS, _AS_MESSAGES, _AS_TURNS = "of answers as texts", "of answers as messages", "of answers as turns"
_SIDES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


class Preference(Form):
    """Rows of a chosen and a rejected answer."""

    name = "preference"
    members = frozenset({_CHOSEN, *_WORSE, *_OUTPUTS})
    title = "A chosen and a rejected answer to one prompt; the chosen one is trained"
    fields = "prompt, chosen, rejected: texts or messages (or conversations; or messages, rejected_response)"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for the members `chosen` and `rejected`."""
        if all(isinstance(record.get(key), list) for key in _OUTPUTS) and isinstance(record.get("input"), dict):
            extra = unread(record, ("input", *_OUTPUTS))
            return (0.2, f"outputs, but also {extra[0]}") if extra else (1, "a preferred output and another")
        if _CHOSEN not in record and any(record.get(key) for key in _WORSE):
            return _score_worse(record)
        chosen, rejected = record.get("chosen"), record.get("rejected")
        if type(chosen) is not type(rejected) or not isinstance(chosen, str | list | dict):
            return 0, ""
        if isinstance(chosen, str) and not any(key in record for key in _PROMPTS):
            return 0.3, "chosen and rejected, but no prompt"
        if isinstance(chosen, list) and score_messages(chosen)[0] < 0.5:
            return 0.2, "chosen and rejected, but not as messages"
        if extra := unread(record, _READS):
            return 0.2, f"chosen and rejected, but also {extra[0]}"
        return 1, "chosen and rejected"

    def read(self, data: bytes) -> list[Example]:
        """Return the chosen example. The rejected one must be there, and is left out."""
        members = record(data)
        if not members.keys().isdisjoint(_OUTPUTS):
            return [_of_outputs(members)]
        if _CHOSEN not in members and any(not is_null(members.get(key)) for key in _WORSE):
            return [_of_worse(members)]
        for key in _ANSWERS:
            if key not in members:
                raise absent(f"$.{key}", "an answer")
        copy = members.get("messages")
        if copy is not None and not is_null(copy) and not any(same(copy, members[key]) for key in _ANSWERS):
            message = "stands beside chosen and rejected, and is no copy of one of them"
            raise BadRow(Code.FORM, message, path="$.messages")
        return [_example(members)]


def _of_outputs(members: Members) -> Example:
    """Read OpenAI's: a request, and what shall be answered to it."""
    check_unread(members, ("input", *_OUTPUTS), _AS_OUTPUTS)
    for key in ("input", *_OUTPUTS):
        if key not in members:
            raise absent(f"$.{key}", "a request" if key == "input" else "an array of messages")
    asked = object_of(members["input"], "$.input")
    check_unread(asked, ("messages", "tools"), _AS_OUTPUTS, "$.input")
    if "messages" not in asked:
        raise absent("$.input.messages", "an array of messages")
    joined = {"input.messages": asked["messages"], _OUTPUTS[0]: members[_OUTPUTS[0]]}
    if not is_null(asked.get("tools")):
        joined["tools"] = asked["tools"]
    return example_of(read_joined(joined, "input.messages", _OUTPUTS[0]), take_weight(members, "$"))


def _score_worse(record: Mapping[str, Any]) -> tuple[float, str]:
    messages = record.get("messages")
    said, reads, score = "messages", ["messages", "tools"], 0.0
    if isinstance(messages, list):
        score = score_messages(messages)[0]
    elif isinstance(record.get(_RESPONSE), str):
        said, reads, score = "a response", [*_ASKED, "instruction", "system", "tools", _RESPONSE], 1
    if score and (extra := unread(record, (*reads, *_WORSE))):
        return 0.2, f"{said} and a worse answer, but also {extra[0]}"
    return score, f"{said} and a worse answer"


def _of_worse(members: Members) -> Example:
    """Read ms-swift's: a conversation or a response as it should be, and what it is better than."""
    weight = take_weight(members, "$")
    if "messages" in members:
        check_unread(members, ("messages", "tools", *_WORSE), _AS_WORSE)
        return example_of(read_messages(members["messages"], members.get("tools")), weight)
    return _of_texts(members, _RESPONSE, weight)


def _example(members: Members) -> Example:
    kind = first_byte(members[_CHOSEN])
    if kind == b"[":
        return _of_messages(members)
    if kind == b"{":
        return _of_turn(members)
    return _of_texts(members, _CHOSEN, take_weight(members, "$"))


def _of_texts(members: Members, answer: str, weight: float | None) -> Example:
    if answer not in members:
        raise absent(f"$.{answer}", "an answer")
    turns = Turns()
    _add_prompt(turns, members, answer)
    asked = len(turns.items)
    turns.assistant(text(members[answer], f"$.{answer}"), f"$.{answer}")
    turns.weigh(asked, weight)
    return turns.example(read_tools(members.get("tools")))


def _of_messages(members: Members) -> Example:
    prompt_key = next((name for name in _ASKED if not is_null(members.get(name))), "")
    check_unread(members, (*_BESIDE, prompt_key), _AS_MESSAGES)
    weight = take_weight(members, "$")
    prompt = members.get(prompt_key)
    if prompt is not None and first_byte(prompt) == b"[":
        chat = read_joined(members, prompt_key, _CHOSEN)
    else:
        answer = members[_CHOSEN]
        if prompt is not None and len(entries := list_of(answer, f"$.{_CHOSEN}")) == 1:
            said = spelled({"role": Json(b'"user"'), "content": prompt})
            joined = members | {
                prompt_key: Json(b"[" + bytes(said) + b"]"),
                _CHOSEN: Json(b"[" + bytes(entries[0]) + b"]"),
            }
            chat = read_joined(joined, prompt_key, _CHOSEN)
        else:
            chat = read_messages(answer, members.get("tools"), at=f"$.{_CHOSEN}")
            if prompt is not None and not same_text(prompt, chat.request.items, f"$.{prompt_key}"):
                message = f"is not what the first user says in {_CHOSEN}"
                raise BadRow(Code.FORM, message, path=f"$.{prompt_key}")
    return example_of(chat, weight)


def _of_turn(members: Members) -> Example:
    """Read LLaMA-Factory's: one turn behind the conversation so far."""
    check_unread(members, (*_BESIDE, "conversations", "system"), _AS_TURNS)
    turns = Turns()
    if said := text_member(members, "system"):
        turns.system(said, "$.system")
    if "conversations" not in members:
        raise absent("$.conversations", "an array of turns")
    for index, entry in enumerate(list_of(members["conversations"], "$.conversations")):
        _add_turn(turns, entry, f"$.conversations[{index}]")
    turns.context = len(turns.items)
    _add_turn(turns, members[_CHOSEN], f"$.{_CHOSEN}")
    turns.weights = with_row(turns.weights, range(turns.context, len(turns.items)), take_weight(members, "$"))
    return turns.example(read_tools(members.get("tools")))


def _add_turn(turns: Turns, value: Json, at: str) -> None:
    turn = object_of(value, at)
    check_unread(turn, (), _AS_TURNS, at)
    first, weight = len(turns.items), take_weight(turn, at)
    role = required_text(turn, "from", at)
    side = _SIDES.get(role.lower())
    if side is None:
        raise BadRow(Code.ROLE, f"the role {role!r} is not one of {', '.join(_SIDES)}", path=f"{at}.from")
    {"user": turns.user, "assistant": turns.assistant, "system": turns.system}[side](
        required_text(turn, "value", at), at
    )
    turns.weigh(first, weight)


def _add_prompt(turns: Turns, members: Members, answer: str) -> None:
    asked = next((key for key in ("instruction", *_ASKED) if not is_null(members.get(key))), "prompt")
    more = "input" if asked == "instruction" else asked
    beside = _BESIDE if answer == _CHOSEN else ("tools", answer, *_WORSE)
    check_unread(members, (*beside, asked, more, "system"), _AS_TEXTS)
    if said := text_member(members, "system"):
        turns.system(said, "$.system")
    question, given = required_text(members, asked), text_member(members, more) if more != asked else None
    turns.user(f"{question}\n{given}" if question and given else question or given or "", f"$.{asked}")


FORMS = (Preference(),)
