"""Owns arrangements: how messages are changed, as little as can be, so that a template that refuses them takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnscript.core.losses import Loss
from turnscript.engine.template.messages import Marked, Message

Arrangement = Callable[[Marked], list[Loss]]
"""Changes messages in place and tells what it changed; nothing where it has nothing to change."""


def short_ids(marked: Marked) -> list[Loss]:
    """Give calls the ids that Mistral's templates insist on: nine letters and digits."""
    known: dict[str, str] = {}
    losses = []
    for at, message in enumerate(marked.messages):
        calls = [dict(call) for call in message.get("tool_calls", ())]
        for one, key in (*((call, "id") for call in calls), (message, "tool_call_id")):
            if one is message and message["role"] != "tool":
                continue
            said = one.get(key) or f"\0{len(known)}"
            one[key] = known.setdefault(said, f"{len(known) + 1:09d}")
            if one[key] != said:
                losses.append(_loss(marked, at, "the template refuses this id of a call; it is written as a number"))
        if calls:
            message["tool_calls"] = calls
    return losses


def developers(marked: Marked) -> list[Loss]:
    """Make the instructions of a developer those of the system."""
    return _renamed(marked, "developer", "system")


def leading(marked: Marked) -> list[Loss]:
    """Join the instructions at the beginning."""
    return _merged(marked, lambda before, message, at: at > 0 and message["role"] == before["role"] == "system")


def later_system(marked: Marked) -> list[Loss]:
    """Give instructions that come later to the user."""
    return _renamed(marked, "system", "user", first=1)


def system_to_user(marked: Marked) -> list[Loss]:
    """Give all instructions to the user."""
    return _renamed(marked, "system", "user")


def neighbours(marked: Marked) -> list[Loss]:
    """Join neighbouring messages of one role."""
    return _merged(marked, _mergeable)


def results_to_user(marked: Marked) -> list[Loss]:
    """Give what tools say to the user, and write calls as the text of the answer."""
    losses = _renamed(marked, "tool", "user")
    for at, message in enumerate(marked.messages):
        calls = message.pop("tool_calls", None)
        if calls:
            losses.append(_loss(marked, at, "the template takes no calls; they are left out"))
            message["content"] = message.get("content") or ""
    return losses


def _renamed(marked: Marked, role: str, other: str, first: int = 0) -> list[Loss]:
    losses = []
    for at, message in enumerate(marked.messages):
        if at >= first and message["role"] == role:
            message["role"] = other
            for key in ("name", "tool_call_id"):
                message.pop(key, None)
            losses.append(
                _loss(marked, at, f"the template refuses a message of the {role} here; it became the {other}'s")
            )
    return losses


def _mergeable(before: Message, message: Message, at: int) -> bool:
    same = message["role"] == before["role"] in ("user", "assistant", "system")
    return same and "tool_calls" not in message and "tool_calls" not in before


def _merged(marked: Marked, joins: Callable[[Message, Message, int], bool]) -> list[Loss]:
    messages: list[Message] = []
    spans: list[tuple[int, int]] = []
    losses = []
    for at, (message, span) in enumerate(zip(marked.messages, marked.spans, strict=True)):
        if messages and joins(messages[-1], message, at):
            before = messages[-1]
            before["content"] = _text(before.get("content")) + "\n\n" + _text(message.get("content"))
            spans[-1] = (spans[-1][0], span[1])
            losses.append(
                _loss(
                    marked, at, f"the template refuses two messages of the {message['role']} in a row; they became one"
                )
            )
            continue
        messages.append(message)
        spans.append(span)
    marked.messages, marked.spans = messages, spans
    return losses


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""


def _loss(marked: Marked, at: int, detail: str) -> Loss:
    return Loss(marked.path(at), "approximated", detail)


ARRANGEMENTS: tuple[Arrangement, ...] = (
    short_ids,
    developers,
    leading,
    later_system,
    neighbours,
    system_to_user,
    neighbours,
    results_to_user,
    neighbours,
)
"""In the order in which they are tried, each on top of those before it."""
