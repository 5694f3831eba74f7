"""Owns the wire objects of an answer, whole and in chunks, and the words for why it ended.

| finish_reason | model |
| --- | --- |
| `stop` `length` `tool_calls` `content_filter` | the same |
| `function_call` | `tool_calls` |
| any other | the same: what the server said |

To write, the words of other APIs are translated and reported; one that nobody knows is `length`, unless it came
from this API: clients take an unknown word for a good end.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from turnscript.apis.api import Rendering
from turnscript.apis.openai_chat.objects import Content
from turnscript.apis.shared.answers import CUT_CALL, Counts, plain_reason
from turnscript.core.conversation import Request
from turnscript.core.finish_reasons import CALLED, LENGTH, STOP
from turnscript.core.json_text import Json
from turnscript.core.wire import Wire

ORIGIN = "openai-chat"
COUNTS = Counts("prompt_tokens", "completion_tokens")

LEGACY_CALL = "function_call"
REASONING = "reasoning"
"""The second name for thoughts: where one stood, an answer of this API has it again."""
COMPLETE = frozenset({STOP, CALLED})
"""Reasons with which nothing was cut off."""


# Objects. A whole message and a delta are of one shape, but for the places of calls.


class PieceOfFunction(Wire):
    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class PieceOfCustom(Wire):
    name: str | UnsetType | None = UNSET
    input: str | UnsetType | None = UNSET


class PieceOfCall(Wire):
    index: int | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    function: PieceOfFunction | UnsetType | None = UNSET
    custom: PieceOfCustom | UnsetType | None = UNSET


class Piece(Wire):
    """A message, or a delta of one."""

    role: Json | UnsetType = UNSET
    content: Content | UnsetType = UNSET
    refusal: str | UnsetType | None = UNSET
    tool_calls: list[PieceOfCall] | UnsetType | None = UNSET
    function_call: PieceOfFunction | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: Json | UnsetType = UNSET
    annotations: Json | UnsetType = UNSET
    audio: Json | UnsetType = UNSET


class Choice(Wire):
    """A choice of a whole answer (`message`) or of a chunk (`delta`)."""

    index: int | UnsetType | None = UNSET
    message: Piece | UnsetType | None = UNSET
    delta: Piece | UnsetType | None = UNSET
    finish_reason: str | UnsetType | None = UNSET
    logprobs: Json | UnsetType = UNSET
    stop_reason: Json | UnsetType = UNSET
    matched_stop: Json | UnsetType = UNSET


class Answer(Wire):
    """A whole answer, or a chunk of one."""

    id: str | UnsetType | None = UNSET
    object: Json | UnsetType = UNSET
    created: Json | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    choices: list[Choice] | UnsetType | None = UNSET
    usage: Json | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    system_fingerprint: Json | UnsetType = UNSET
    service_tier: Json | UnsetType = UNSET
    obfuscation: Json | UnsetType = UNSET


# Writing the reason.


def finish_word(rendering: Rendering, reason: str | None, called: bool, legacy: bool) -> str:
    """Why the answer ended, in this API's words. `called`: a call was written; `legacy`: as `function_call`."""
    if reason is None:
        word = CALLED if called else STOP
        rendering.lose("$.finish_reason", "invented", f"nobody said why the answer ended: {word}")
    else:
        word = plain_reason(rendering, reason)
    if word == CALLED and not called:
        rendering.lose("$.finish_reason", "approximated", "there is no call: said as the end")
        return STOP
    return LEGACY_CALL if word == CALLED and legacy else word


def cut_word(rendering: Rendering, word: str) -> str:
    """The same where a call that was told is not whole: then it is no good end."""
    if word not in COMPLETE and word != LEGACY_CALL:
        return word
    rendering.lose("$.finish_reason", "approximated", f"{LENGTH!r}, because {CUT_CALL}")
    return LENGTH


def is_legacy(request: Request) -> bool:
    """Whether the client knows calls only in their deprecated form: it offered `functions` and no tools."""
    return bool(request.tools) and all(tool.hints.get("slot") == "functions" for tool in request.tools)
