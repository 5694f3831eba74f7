"""Owns a check of conversations with tools: whether their turns come in the order that training should show (R-U-38).

The order is: user, a word of the model, its call, the result, the model's final answer. Other orders are no errors:
they are counted, and people decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnscript.core.conversation import Assistant, Item, Request, Thinking, ToolCall, ToolResult, User
from turnscript.datasets.answer_beginnings import AnswerBeginnings
from turnscript.datasets.train import MODEL
from turnscript.formats.format import Format

CALL_FIRST = "W_CALL_BEFORE_USER"
"""A tool is called before any user said something."""
CALL_ALONE = "W_CALL_UNANNOUNCED"
"""A tool is called, and the model said no word about it to the user before."""
NO_RESULT = "W_CALL_WITHOUT_RESULT"
"""A user speaks, or the conversation ends, before a call has its result."""
NO_ANSWER = "W_RESULT_WITHOUT_ANSWER"
"""A user speaks, or the conversation ends, and the model said nothing after a result."""
SHOWN_ANEW = "W_SHOWN_ANEW"
"""A turn before the last has a thought, or begins with a call, and later prompts may show it in another way."""
OWN_WORDS = "W_OWN_WORDS"
"""Tools are declared or called in a row that no chat template wrote."""
TRAINED_WHOLE = "W_TRAINED_WHOLE"
"""Nearly every token is trained by a plan that trains what a model says in chats."""
MOST_TRAINED = 0.95
"""The share of the tokens above which the warning comes: in chats somebody asks, and that is not trained."""
WARNINGS = {
    CALL_FIRST: "a tool is called before any user said something",
    CALL_ALONE: "a tool is called without a word to the user before",
    NO_RESULT: "a call has no result before the user speaks again, or at the end",
    NO_ANSWER: "a result is not followed by an answer",
    SHOWN_ANEW: "a turn before the last thinks or calls at once, which later prompts of this format may show "
    "otherwise; `--expand turns` makes a sample of each turn, as its own prompt leads to it",
    OWN_WORDS: "tools are told in the words of the format, not in those of the model's own chat template, with which "
    "it may be served; `--template` takes those",
    TRAINED_WHOLE: f"more than {MOST_TRAINED:.0%} of all tokens are trained, as in plain text; `turnscript data "
    "preview` shows them; `--from FORM` says which chats the rows hold, or that they are texts",
}


def has_tools(request: Request) -> bool:
    """Return whether tools are declared or called."""
    return bool(request.tools) or ToolCall in map(type, request.items)


def order_warnings(items: Sequence[Item]) -> set[str]:
    """Return what is unusual in a conversation, each warning once."""
    if ToolCall not in map(type, items):
        return set()
    return set(_warnings(items))


class Changes(NamedTuple):
    """What of a conversation a format shows in another way once it has gone on: `thoughts`, and `calls` at once."""

    thoughts: bool
    calls: bool

    @classmethod
    def of(cls, format_: Format, *, bare_calls: bool) -> Changes:
        """Return what a format changes, if it says that it does. `bare_calls`: calls stand without what the model
        writes before them, as later prompts have them.
        """
        document = format_.document
        if format_.template is not None:
            return cls(thoughts=bool(format_.template.traits.grows), calls=False)
        if not document.grows:
            return cls(thoughts=False, calls=False)
        segments = [segment for turn in document.turns for segment in turn.segments if segment.model]
        left_out = any(not segment.prompt or segment.until for segment in segments)
        asked = bool(document.flags or document.generation.hints)
        return cls(thoughts=left_out or asked, calls=bare_calls and bool(AnswerBeginnings(format_).kinds))


def shown_anew(items: Sequence[Item], shown: Changes) -> bool:
    """Return whether the model calls a tool at once and goes on, or thinks and goes on after the user's next word.

    `shown`: which of these turns the format shows in another way once they are past.
    """
    kinds = {kind for kind, changes in ((Thinking, shown.thoughts), (ToolCall, shown.calls)) if changes}
    if kinds.isdisjoint(map(type, items)):
        return False
    speaks = thought = changes = False
    for item in items:
        spoke, speaks = speaks, item.kind in MODEL
        if changes and speaks and not spoke:
            return True
        thought |= shown.thoughts and isinstance(item, Thinking)
        changes |= (thought and isinstance(item, User)) or (shown.calls and isinstance(item, ToolCall) and not spoke)
    return False


def _warnings(items: Sequence[Item]) -> Iterator[str]:
    spoken = announced = False  # by a user at all; by the model since the user spoke
    open_calls, owed = 0, False  # calls without a result; whether a result waits for an answer
    for item in items:
        if isinstance(item, User):
            yield from _left_open(open_calls, owed)
            spoken, announced, open_calls, owed = True, False, 0, False
        elif isinstance(item, Assistant):
            announced, owed = True, False
        elif isinstance(item, ToolCall):
            if not spoken:
                yield CALL_FIRST
            elif not announced:
                yield CALL_ALONE
            open_calls += 1
        elif isinstance(item, ToolResult):
            open_calls, owed = max(open_calls - 1, 0), True
    yield from _left_open(open_calls, owed)


def _left_open(open_calls: int, owed: bool) -> Iterator[str]:
    if open_calls:
        yield NO_RESULT
    elif owed:
        yield NO_ANSWER
