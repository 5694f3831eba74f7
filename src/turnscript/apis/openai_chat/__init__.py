"""Owns OpenAI Chat Completions: `/v1/chat/completions` requests, answers, streams and errors, read and written.

| wire | model |
| --- | --- |
| message of role `system`, `developer` | `System` with that role |
| message of role `user` | `User` |
| message of role `assistant`: its `reasoning_content` or `reasoning` | `Thinking` |
| its `content`, `refusal`, `audio` | `Assistant` |
| thoughts in its `content` (`thoughts`) | `Thinking`, among the texts around it |
| its `tool_calls`, `function_call` | a `ToolCall` each |
| message of role `tool`, `function` | `ToolResult` |
| message of any other role, tool call of any other type | `Opaque` |
| `tools`, `functions` | tools |
| `max_completion_tokens`, `max_tokens` | `max_tokens` |
| `reasoning_effort` | `effort` |
| `tool_choice`, `function_call` | `tool_choice` |
| members of the names in `Settings` | the same |
| `audio` `modalities` `prediction` `web_search_options`, and all others | `extra` |

Profile `seed` is the table of the Universal document (requirements R-U-17..21): each call is a `function_call` in a
message of its own, results carry the tool's name, tools are not written. Both profiles read both forms.

Flag `reasoning`: the member that thinking is written to; there is no official one, servers use two. For answers
`Reply.reasoning_name` says it.

Spec: https://platform.openai.com/docs/api-reference/chat/create, read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from turnscript.apis.api import OFFICIAL, SEED, Body, Option, Rendering, Reply
from turnscript.apis.openai_chat.objects import WORDS, AnyTool, Message
from turnscript.apis.openai_chat.options import DEPRECATED, OPTIONS
from turnscript.apis.openai_chat.reading import read_messages
from turnscript.apis.openai_chat.response import OBJECTS, is_legacy
from turnscript.apis.openai_chat.stream_reading import ORIGIN, Assembly
from turnscript.apis.openai_chat.stream_writing import ChatStreamRenderer, join_choices
from turnscript.apis.openai_chat.tools import read_tools, write_tools
from turnscript.apis.openai_chat.writing import UNPLACED, Target, write_messages
from turnscript.apis.serving import Serving, unasked, unseen
from turnscript.apis.shared.answers import claims_choices
from turnscript.apis.shared.chunk_streams import ChoiceApi
from turnscript.apis.shared.model_lists import model_body, model_list
from turnscript.core.conversation import Assistant, Request, Response
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json


def _unasked(request: Request) -> InvalidRequest | None:
    items = request.items
    return unseen(items) if items else unasked("$.messages", "message")


class OpenAIChat(ChoiceApi):
    """The Chat Completions API."""

    name = "openai-chat"
    title = "OpenAI Chat Completions"
    endpoint = "/v1/chat/completions"
    origin = ORIGIN
    serving = Serving(
        models=model_list,
        model=model_body,
        id_prefix="chatcmpl-",
        unasked=_unasked,
        together=join_choices,
        call_ids=lambda request: not is_legacy(request),
        needs=("model",),
    )
    profiles = (OFFICIAL, SEED)
    flags: ClassVar[Mapping[str, tuple[str, ...]]] = {"reasoning": ("reasoning_content", "reasoning")}
    options: ClassVar[Sequence[Option]] = OPTIONS

    typed: ClassVar[Mapping[str, Any]] = {"messages": list[Message], "tools": list[AnyTool]}
    words = WORDS
    unplaced = UNPLACED

    def read(self, members: dict[str, Any], request: Request) -> None:
        """Messages and tools."""
        read_messages(members.pop("messages", None), request)
        read_tools(members, request)
        _mark_open(request, members)

    def read_options(self, members: dict[str, Any], request: Request) -> None:
        """Deprecated members last: where their successor stands beside them, they stay unnamed."""
        for key in DEPRECATED:
            if key in members:
                members[key] = members.pop(key)
        super().read_options(members, request)

    def write(self, body: Body, rendering: Rendering) -> None:
        """Messages and tools."""
        target = Target(rendering, self.origin)
        body["messages"] = write_messages(target)
        rendering.lose_end()
        if rendering.request.tools or target.changes:
            write_tools(body, target)
        for key in ("tool_choice", "function_call") if target.seed else ():
            rendering.drop(body, key, "the seed profile has no tools to choose from")

    def reader(self) -> Assembly:
        """Return what reads an answer; of several choices only the first."""
        return Assembly()

    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> ChatStreamRenderer:
        """Return what writes an answer as the choice that the reply says."""
        return ChatStreamRenderer(self, request, reply, response)

    def claims(self, members: Mapping[str, Json]) -> int:
        """Any body with messages, unless another API knows its own signs in it."""
        return 1 if "messages" in members else 0

    def claims_response(self, members: Mapping[str, Json]) -> int:
        """Choices with a message each."""
        return claims_choices(members, OBJECTS[0], "message")

    def claims_event(self, name: str, members: Mapping[str, Json]) -> int:
        """Choices with a delta each. An error without a type says the same in every API that has chunks."""
        bare = "error" in members and "type" not in members and "choices" not in members
        return 1 if bare else claims_choices(members, OBJECTS[1], "delta")


def _mark_open(request: Request, members: Mapping[str, Any]) -> None:
    """Mark a last text that the model shall continue. Servers that offer this want one of two members for it."""
    items = request.items
    last = items[-1] if items else None
    if isinstance(last, Assistant):
        asked = members.get("continue_final_message") or last.extra.get("prefix")
        last.open = asked is not None and bytes(asked) == b"true"


APIS = (OpenAIChat(),)
