"""Owns legacy OpenAI completions: `/v1/completions` requests, answers, streams and errors, read and written.

| wire | model |
| --- | --- |
| `prompt`: a string, or a list of one string | one `User` text |
| `system`, which is not official (requirements D-U-22) | a `System` text before it |
| `logprobs`: a number | `logprobs`, and the number as `top_logprobs` |
| members of the names in `Settings` | the same |
| `suffix` `echo` `best_of`, a `prompt` of several texts or of tokens, and all others | `extra` |

The API has no messages. Of any other conversation only its first system text and its last user text can be said: all
else is reported, item by item. To send a whole conversation to such an API, render it in the format of the model.

Spec: https://platform.openai.com/docs/api-reference/completions/create, read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from turnscript.apis.api import Body, Option, Rendering, Reply, object_setting, setting
from turnscript.apis.openai_completions.answer import OBJECT, ORIGIN, Assembly, CompletionStreamRenderer
from turnscript.apis.serving import Serving
from turnscript.apis.shared.answers import claims_choices
from turnscript.apis.shared.chunk_streams import ChoiceApi
from turnscript.apis.shared.model_lists import model_body, model_list
from turnscript.apis.shared.settings import STOP
from turnscript.core.conversation import Assistant, Item, Part, Request, Response, System, Text, User
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, plain, read_list
from turnscript.core.source_paths import Unplaced, content_path, part_path
from turnscript.core.validation import kind_of
from turnscript.core.wire import Reader

_read_integer: Reader[int] = Reader(int)


# Options.


def _read_logprobs(request: Request, value: Json, path: str) -> None:
    request.settings.top_logprobs = _read_integer(value, path)
    request.settings.logprobs = True
    request.paths["top_logprobs"] = path


def _write_logprobs(rendering: Rendering) -> Any:
    settings = rendering.request.settings
    if settings.logprobs is None and settings.top_logprobs is None:
        return None
    if settings.logprobs is not True:
        for field in ("logprobs", "top_logprobs"):
            if getattr(settings, field) is not None:
                rendering.lose_setting(field, "dropped", "here the number of alternatives also asks for them")
        return None
    if settings.top_logprobs is None:
        rendering.lose_setting("logprobs", "approximated", "written as a number of alternatives: 0")
    return settings.top_logprobs or 0


NUMBER = int | float

WORDS = {
    "response.finish_reason": "choices[0].finish_reason",
    "response.stop_sequence": "choices[0]",
    "response.choices": "choices[0]",
    "response.usage": "usage",
    "response.usage.prompt_tokens_details": "prompt_tokens_details",
    "response.usage.completion_tokens_details": "completion_tokens_details",
}
"""What members of the model are called here, for losses."""

_ALONE = dict.fromkeys(("name", "id"), "a prompt has no such member")
_ROLE = "there is no role {!r}: written as the system text"
UNPLACED = Unplaced(
    {System: {"role": ("approximated", _ROLE), **_ALONE}, User: _ALONE},
    answers={Assistant: dict.fromkeys(("name", "id", "phase"), "a text has no such member here")},
)

OPTIONS: tuple[Option, ...] = (
    setting("model", "model", str),
    setting("max_tokens", "max_tokens", int),
    setting("temperature", "temperature", NUMBER),
    setting("top_p", "top_p", NUMBER),
    setting("n", "n", int),
    STOP,
    setting("stream", "stream", bool),
    object_setting("stream_options"),
    setting("seed", "seed", int),
    setting("presence_penalty", "presence_penalty", NUMBER),
    setting("frequency_penalty", "frequency_penalty", NUMBER),
    object_setting("logit_bias"),
    Option("logprobs", ("logprobs", "top_logprobs"), _read_logprobs, _write_logprobs),
    setting("user", "user", str),
)


def _unasked(request: Request) -> InvalidRequest | None:
    """What the path of another API is asked for has no prompt here, and would get an empty answer."""
    prompt = request.extra.get("prompt")
    if request.items or (prompt is not None and bytes(prompt) != b"null"):
        return None
    message = "there is nothing to go on from: a prompt is needed; messages belong to the API that has them"
    return InvalidRequest(message, path="$.prompt", expected="a prompt")


class OpenAICompletions(ChoiceApi):
    """The legacy completions API."""

    name = "openai-completions"
    title = "OpenAI Completions (legacy)"
    endpoint = "/v1/completions"
    origin = ORIGIN
    serving = Serving(
        models=model_list, model=model_body, id_prefix="cmpl-", bare=True, unasked=_unasked, needs=("model",)
    )
    options: ClassVar[Sequence[Option]] = OPTIONS
    words = WORDS
    unplaced = UNPLACED

    def read(self, members: dict[str, Json], request: Request) -> None:
        """The prompt, and the system text before it. What is not one text stays with the unnamed members."""
        system = members.get("system")
        if system is not None and _is_string(system):
            del members["system"]
            request.items.append(System(content=[Text(text=plain(system))], at="$.system"))
        prompt = members.get("prompt")
        if prompt is None:
            return
        texts = [prompt] if _is_string(prompt) else read_list(prompt) if bytes(prompt)[:1] == b"[" else []
        if len(texts) == 1 and _is_string(texts[0]):
            del members["prompt"]
            request.items.append(User(content=[Text(text=plain(texts[0]))], at="$.prompt"))

    def write(self, body: Body, rendering: Rendering) -> None:
        """The first system text and the last user text; every other item and every tool is reported."""
        items = rendering.request.items
        system = next((item for item in items if isinstance(item, System)), None)
        user = next((item for item in reversed(items) if isinstance(item, User)), None)
        for item in items:
            if item is system or item is user:
                if item is system and "prompt" in body:
                    rendering.lose(item.at, "moved", "the system text stands before the prompt")
                self._write_text(body, rendering, item)
            else:
                _lose_item(rendering, item)
        if "prompt" in body:
            body["prompt"] = body.pop("prompt")  # behind the system text, where a reader finds it
        kept = "prompt" in rendering.request.extra and not rendering.foreign
        if user is None and not kept and rendering.request.origin != self.origin:
            body["prompt"] = ""
            rendering.lose("$.prompt", "invented", "there is no user text: the prompt is empty")
        for index in range(len(rendering.request.tools)):
            rendering.lose(f"$.tools[{index}]", "dropped", "a prompt has no tools")

    def reader(self) -> Assembly:
        """Return what reads an answer; of several choices only the first."""
        return Assembly()

    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> CompletionStreamRenderer:
        """Return what writes an answer as the choice that the reply says."""
        return CompletionStreamRenderer(self, request, reply, response)

    def claims(self, members: Mapping[str, Json]) -> int:
        """A prompt that is text or tokens, and nothing that holds messages. Answers may have one, too."""
        prompt = members.get("prompt")
        if prompt is None or "messages" in members or "input" in members or {"choices", "object"} <= members.keys():
            return 0
        return 1 if bytes(prompt)[:1] in (b'"', b"[") else 0

    def claims_response(self, members: Mapping[str, Json]) -> int:
        """Choices with a text each."""
        return claims_choices(members, OBJECT, "text")

    def _write_text(self, body: Body, rendering: Rendering, item: Item) -> None:
        assert isinstance(item, System | User)
        texts = _texts(rendering, item, item.content)
        key = "system" if isinstance(item, System) else "prompt"
        text = "\n\n".join(texts)
        if len(texts) != 1:
            rendering.lose(content_path(item), "approximated", "a prompt is one text: joined by blank lines")
        kept = rendering.slices.member(key, [item])
        body[key] = text if kept is None else kept
        _lose_members(rendering, item)


def _lose_item(rendering: Rendering, item: Item) -> None:
    """Report an item, and what of it stands beside it in the source: later blocks, and members of its message."""
    missing = f"a prompt has no place for another {item.kind.replace('_', ' ')}"
    rendering.lose(item.at, "dropped", missing)
    for index in range(len(getattr(item, "content", ()))):
        path = part_path(item, index)
        if not path.startswith(item.at):
            rendering.lose(path, "dropped", missing)
    rendering.put_envelope({}, item)


def _texts(rendering: Rendering, item: Item, content: Sequence[Part]) -> list[str]:
    texts = []
    for index, part in enumerate(content):
        if isinstance(part, Text):
            texts.append(part.text)
            rendering.put_extra({}, part.extra, part_path(item, index))
        else:
            kind = kind_of(part)
            rendering.lose(part_path(item, index), "dropped", f"a prompt has no place for a part of kind {kind}")
    return texts


def _lose_members(rendering: Rendering, item: System | User) -> None:
    """Report what a text alone does not say. This API itself gives an item none of these."""
    rendering.lose_unplaced(item)
    rendering.put_extra({}, item.extra, item.at)
    rendering.put_envelope({}, item)


def _is_string(value: Json) -> bool:
    return bytes(memoryview(value)[:1]) == b'"'


APIS = (OpenAICompletions(),)
