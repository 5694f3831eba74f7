"""Owns the words that `Hints.slot` holds for this API, and the ids that reasoning items get when they have none.

| word | meaning |
|--|--|
| `instructions` | a system item given as the string `instructions` |
| `instructions_list` | an item of an `instructions` list |
| `message` | a message that says `"type": "message"`, which is usually left out |
| `named` | a result that says its tool's `name` although its call already does |
| `tool_search_call`, `tool_search_output` | a call of a search for tools that the client runs, and what it found |
| `shell_call`, `shell_call_output`, ... | a call of a tool of OpenAI's own that the client runs, and what it answered |
| `no_id` | a call or result without `call_id`, a reasoning item without `id` |
| `tool_call`, `tool_result` | a call or result as a content part, the Universal document's form |
| `tool_call_no_id`, `tool_result_no_id` | the same without an id |
"""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.core.conversation import Item, Thinking
from turnscript.core.message_groups import slot_of

INSTRUCTIONS = "instructions"
INSTRUCTIONS_LIST = "instructions_list"
MESSAGE = "message"
NAMED = "named"
NO_ID = "no_id"
STRING = "string"
"""The shape of a search's arguments that are no object: what a model wrote is told as it is."""
EMPTY = "empty-arguments"
"""The shape of a call whose arguments are an empty text, which servers and models mean as an empty object."""
TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT = "tool_search_call", "tool_search_output"
LOCAL_SHELL_CALL, LOCAL_SHELL_OUTPUT = "local_shell_call", "local_shell_call_output"
SHELL_CALL, SHELL_OUTPUT = "shell_call", "shell_call_output"
PATCH_CALL, PATCH_OUTPUT = "apply_patch_call", "apply_patch_call_output"
SEED_CALL, SEED_CALL_NO_ID = "tool_call", "tool_call_no_id"
SEED_RESULT, SEED_RESULT_NO_ID = "tool_result", "tool_result_no_id"

WITHOUT_ID = frozenset({NO_ID, SEED_CALL_NO_ID, SEED_RESULT_NO_ID})
CLIENT_CALLS = frozenset({LOCAL_SHELL_CALL, SHELL_CALL, PATCH_CALL})
CLIENT_OUTPUTS = frozenset({LOCAL_SHELL_OUTPUT, SHELL_OUTPUT, PATCH_OUTPUT})
SEED_SLOTS = frozenset({SEED_CALL, SEED_CALL_NO_ID, SEED_RESULT, SEED_RESULT_NO_ID})


def reasoning_ids(items: Sequence[Item]) -> dict[int, str]:
    """An id for every reasoning item without one, by position: `rs_auto_NNN`, NNN counting reasoning items, ids in use
    skipped. Deterministic, so that the reader can take them off again."""
    used = {item.id for item in items if isinstance(item, Thinking) and item.id is not None}
    ids: dict[int, str] = {}
    number = 0
    for index, item in enumerate(items):
        if isinstance(item, Thinking) and is_written(item):
            number += 1
            if item.id is None and slot_of(item) != NO_ID:
                ids[index] = _free(number, used)
    return ids


def is_written(thinking: Thinking) -> bool:
    """Whether there is anything to say of a thought: one that only another API can read has no item here."""
    return bool(thinking.content or thinking.summary or thinking.encrypted or not thinking.redacted)


def _free(number: int, used: set[str]) -> str:
    while (candidate := f"rs_auto_{number:03d}") in used:
        number += 1
    used.add(candidate)
    return candidate
