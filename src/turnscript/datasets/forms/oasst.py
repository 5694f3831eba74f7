"""Owns Open Assistant's exports: trees of messages, threads, and single messages that name their parents.

    {"message_tree_id": "a", "tree_state": "ready_for_export",
     "prompt": {"message_id": "a", "text": "...", "role": "prompter", "lang": "en",
                "replies": [{"message_id": "b", "text": "...", "role": "assistant", "rank": 0, "replies": []}]}}

    {"message_id": "a", "text": "...", "role": "prompter", "replies": [...]}      (a tree by its root)

    {"thread_id": "b", "thread": [{"message_id": "a", "text": "...", "role": "prompter"}, ...]}

    {"message_id": "b", "parent_id": "a", "text": "...", "role": "assistant", ...}      (one message a record)

- Every way from a tree's root to a leaf is an example, depth first in the tree's order. Its label tells which, and the
  ranks of the replies on it: 0 is what people liked best. All of them are trained; a trained reply that several ways
  pass is in each of them.
- A message that was deleted, or that reviewers refused as spam (`review_result` is false), is left out with all its
  replies. What a model wrote (`synthetic`) stays.
- Single messages are joined by `parent_id`, in whatever order they come, so the whole file is one row. A parent that is
  not in the file is an error: replies without what they reply to teach nothing.
- Messages of Chat beside a tree are a copy of a way in it, or the row is refused.
- Labels, emojis, languages, dates, authors and events are no conversation.

Shape: https://github.com/LAION-AI/Open-Assistant/tree/main/oasst-data (2024-01).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from turnscript.core.conversation import Assistant, Item, Part, Text, User
from turnscript.datasets.form import WHOLE, Example, Form
from turnscript.datasets.members import check_decoded, unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import checked, list_at, mismatch, object_at, request_of_items, text_at, value_of

_SPEAKERS: dict[str, type[User | Assistant]] = {"prompter": User, "assistant": Assistant}


class _Node(NamedTuple):
    """A message: where it is, what it is, and its replies."""

    at: str
    message: Mapping[str, Any]
    replies: list[_Node]


class _Step(NamedTuple):
    """A message on a way from the root, and the step before it."""

    item: Item
    rank: str
    before: _Step | None


class OasstTrees(Form):
    """Trees and threads."""

    name = "oasst"
    members = frozenset({"prompt", "thread", "replies"})
    title = "Open Assistant trees"
    fields = "`prompt` with `text`, `role` and `replies`, or these without `prompt`, or a `thread` of messages"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        prompt = record.get("prompt")
        if isinstance(prompt, dict) and "replies" in prompt and "text" in prompt:
            return 1.0, "a `prompt` with `replies`"
        if isinstance(prompt, dict) and "message_tree_id" in record:
            return 1.0, "a `prompt` and a `message_tree_id`"
        if isinstance(record.get("thread"), list) and "thread_id" in record:
            return 1.0, "a `thread` and a `thread_id`"
        if _is_message(record) and _is_tree(record):
            return 1.0, "a message of Open Assistant with its `replies`"
        return 0.0, "no tree and no thread"

    def read(self, data: bytes) -> list[Example]:
        record = object_at(value_of(checked(data)), "$")
        alone = "prompt" not in record and "replies" in record
        prompt = record if alone else record.get("prompt")
        is_copy = isinstance(prompt, dict) and prompt.get("text") == record.get("text")
        reads = ("prompt", "messages", *(("text",) if is_copy else ()))
        if strange := unread(record, reads):
            raise BadRow(Code.FORM, "a tree or a thread has no such member", path=f"$.{strange[0]}")
        if "thread" in record:
            examples = _examples([_thread(list_at(record["thread"], "$.thread"))], "$.thread")
        else:
            at = "$" if alone else "$.prompt"
            examples = _examples([_tree(object_at(prompt, at), at)], at)
        if record.get("messages") and not any(_repeats(record["messages"], one.request.items) for one in examples):
            raise BadRow(Code.FORM, "these messages are on no way of the tree beside them", path="$.messages")
        return examples


class OasstMessages(Form):
    """Single messages, which name their parents."""

    name = "oasst-messages"
    members = frozenset({"message_id"})
    title = "Open Assistant messages"
    fields = "`message_id`, `parent_id`, `text`, `role` of `prompter` or `assistant`"
    row = WHOLE

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        if _is_message(record) and not _is_tree(record):
            return 1.0, "`message_id`, `text` and a `role` of Open Assistant"
        return 0.0, "no single message"

    def read(self, data: bytes) -> list[Example]:
        nodes: dict[str, _Node] = {}
        for number, line in enumerate(checked(data).split(b"\n"), 1):
            if line.strip():
                at = f"line {number}: $"
                message = object_at(value_of(line, at), at)
                if _is_tree(message):
                    raise BadRow(Code.FORM, f"this is a tree and no single message (--from {OasstTrees.name})", path=at)
                id_ = text_at(message.get("message_id"), f"{at}.message_id")
                if id_ in nodes:
                    raise BadRow(Code.SHAPE, "this message is here twice", path=f"{at}.message_id")
                nodes[id_] = _Node(at, message, [])
        return _examples(_roots(nodes), "$")


def _repeats(messages: Any, items: Sequence[Item]) -> bool:
    """Return whether messages of Chat say what the first items of a way say."""
    said = [(item.kind, getattr(item.content[0], "text", "")) for item in items if isinstance(item, User | Assistant)]
    told = [one if isinstance(one, dict) else {} for one in messages] if isinstance(messages, list) else [{}]
    return said[: len(told)] == [(one.get("role"), one.get("content")) for one in told]


def _is_message(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a message, alone or with its replies."""
    role = record.get("role")
    return "message_id" in record and "text" in record and isinstance(role, str) and role in _SPEAKERS


def _is_tree(record: Mapping[str, Any]) -> bool:
    """Return whether a record holds other messages than itself. A message without a parent is the root of a tree."""
    is_root = "replies" in record and record.get("parent_id") is None
    return "prompt" in record or "thread" in record or bool(record.get("replies")) or is_root


def _roots(nodes: Mapping[str, _Node]) -> list[_Node]:
    """Hang every message under its parent; those without one are roots."""
    roots = []
    for node in nodes.values():
        parent = node.message.get("parent_id")
        if parent is None:
            roots.append(node)
            continue
        at = f"{node.at}.parent_id"
        if text_at(parent, at) not in nodes:
            raise BadRow(Code.SHAPE, f"the parent {parent!r} is not in the file", path=at)
        nodes[parent].replies.append(node)
    _refuse_circles(nodes, roots)
    return roots


def _refuse_circles(nodes: Mapping[str, _Node], roots: list[_Node]) -> None:
    reached, waiting = 0, list(roots)
    while waiting:
        reached += 1
        waiting += waiting.pop().replies
    if reached < len(nodes):
        raise BadRow(Code.SHAPE, f"{len(nodes) - reached} messages are replies to one another in a circle", path="$")


def _tree(prompt: Mapping[str, Any], at: str) -> _Node:
    root = _Node(at, prompt, [])
    waiting = [root]
    while waiting:
        node = waiting.pop()
        replies = node.message.get("replies")
        for index, reply in enumerate([] if replies is None else list_at(replies, f"{node.at}.replies")):
            at = f"{node.at}.replies[{index}]"
            node.replies.append(_Node(at, object_at(reply, at), []))
        waiting += node.replies
    return root


def _thread(messages: list[Any]) -> _Node:
    if not messages:
        raise BadRow(Code.EMPTY, "there is no message", path="$.thread")
    nodes = [
        _Node(f"$.thread[{index}]", object_at(message, f"$.thread[{index}]"), [])
        for index, message in enumerate(messages)
    ]
    for before, node in pairwise(nodes):
        before.replies.append(node)
    return nodes[0]


def _examples(roots: list[_Node], at: str) -> list[Example]:
    examples: list[Example] = []
    for root in roots:
        name = root.message.get("message_id") if len(roots) > 1 else None
        tree = f"tree {name} " if name is not None else ""
        ends = list(_ends(root))
        for number, end in enumerate(ends, 1):
            steps = _way(end)
            ranks = ", ".join(step.rank for step in steps if step.rank)
            label = f"{tree}path {number}" + (f", ranks {ranks}" if ranks else "")
            label = label if len(ends) > 1 or ranks else tree.strip()
            examples.append(Example(request_of_items([step.item for step in steps]), label=label))
    if not examples:
        raise BadRow(Code.EMPTY, "there is no message, or all of them were deleted or refused", path=at)
    return examples


def _ends(root: _Node) -> Iterator[_Step]:
    """Give the last step of every way, depth first."""
    waiting: list[tuple[_Node, _Step | None]] = [(root, None)]
    while waiting:
        node, before = waiting.pop()
        step = _step(node, before)
        if step is None:
            continue
        replies = [reply for reply in node.replies if not _left_out(reply)]
        if not replies:
            yield step
        waiting += [(reply, step) for reply in reversed(replies)]


def _way(end: _Step) -> list[_Step]:
    steps = []
    step: _Step | None = end
    while step is not None:
        steps.append(step)
        step = step.before
    return steps[::-1]


def _left_out(node: _Node) -> bool:
    """Return whether a message does not count. Its text and role are not looked at then."""
    for name in ("deleted", "review_result"):
        if not isinstance(node.message.get(name), bool | None):
            raise mismatch(f"{node.at}.{name}", "true, false or null", node.message[name])
    return node.message.get("deleted") is True or node.message.get("review_result") is False


def _step(node: _Node, before: _Step | None) -> _Step | None:
    if before is None and _left_out(node):
        return None
    role = text_at(node.message.get("role"), f"{node.at}.role")
    if role not in _SPEAKERS:
        expected = " or ".join(map(repr, _SPEAKERS))
        raise BadRow(Code.ROLE, f"a role that is not known: {role!r}; expected {expected}", path=f"{node.at}.role")
    check_decoded(node.message, ("text",), OasstTrees.name, node.at)
    content: list[Part] = [Text(text=text_at(node.message.get("text"), f"{node.at}.text"))]
    rank = node.message.get("rank")
    if isinstance(rank, float) and rank.is_integer():
        rank = int(rank)  # a table with a null in this column has no integers in it
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool)):
        raise mismatch(f"{node.at}.rank", "an integer", rank)
    item = _SPEAKERS[role](content=content, at=node.at)
    return _Step(item, "" if rank is None else str(rank), before)


FORMS = (OasstTrees(), OasstMessages())
