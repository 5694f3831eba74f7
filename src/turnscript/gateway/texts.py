"""Owns what a completion of a bare text asks beside its text: the prompt before it, a hole in it, the best of several.

Servers differ in what they do about either, and some that do nothing say nothing. So the prompt is put before the text
here, and the best of several is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Part, Request, System, Text, User, text_content
from turnscript.core.errors import InvalidRequest, UnknownName, Unsupported
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import plain
from turnscript.core.losses import Loss
from turnscript.core.wire import mismatch
from turnscript.engine.files import Fill, FillPrompt
from turnscript.formats.format import Format
from turnscript.gateway.forcing import PRESET
from turnscript.gateway.states import MEMBER

ECHO, BEST = "echo", "best_of"
HANDLED = ("suffix", "prompt", MEMBER, PRESET, ECHO, BEST)
"""Unnamed members that are read here."""


class Echo:
    """A stage that puts a prompt before the text of an answer."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._told = False

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, the prompt before the first text or, where there is none, before the end."""
        return [told for event in events for told in self._with_prompt(event)]

    def _with_prompt(self, event: Event) -> Sequence[Event]:
        if isinstance(event, PartEnd) and isinstance(event.part, Assistant):
            content: list[Part] = [Text(text=self._prompt), *event.part.content]
            whole = "".join([part.text for part in content if isinstance(part, Text)])
            event = replace(event, part=replace(event.part, content=[Text(text=whole)]))
        if self._told or not isinstance(event, PartStart | MessageEnd):
            return [event]
        self._told = True
        delta = PartDelta(0, self._prompt)
        if isinstance(event, PartStart):
            return [event, delta]
        return [PartStart(0, Assistant()), delta, PartEnd(0, Assistant(content=[Text(text=self._prompt)])), event]


def filled(format_: Format, prompt: str | list[int], suffix: str, order: str | None) -> FillPrompt:
    """The prompt for a text with a hole. Raises Unsupported where the format has no words for one, or not in the order
    that the settings of the model name: a server may have told its format since they were read."""
    name = f"the format {format_.name!r}"
    if not isinstance(prompt, str):
        raise Unsupported("a hole", name, "a hole is filled between two texts, and this prompt is tokens", "$.suffix")
    if not format_.document.files:
        message = f"{name} has no words for a hole in a text; leave the suffix out, or choose a format that fills holes"
        raise Unsupported("a hole", name, message, "$.suffix")
    try:
        return format_.fill_prompt(Fill(prompt, suffix), order=order or "")
    except UnknownName as error:
        raise Unsupported("a hole", name, f"{error} (`fill_order` of the model)", "$.suffix") from None


def echoed(request: Request, prompt: str | list[int], *, fills: bool, losses: list[Loss]) -> str | None:
    """What stands before the text for a client that wants its prompt back. `fills`: the text is to stand in a hole."""
    if not _wants_echo(request):
        return None
    why = ""
    if not isinstance(prompt, str):
        why = "a prompt of tokens has no text that is known here"
    elif fills:
        why = "the text stands in a hole of the prompt"
    elif request.settings.logprobs:
        why = "a prompt has no log probabilities here, and those of the text would seem to be its"
    if why:
        losses.append(Loss(f"$.{ECHO}", "dropped", why))
        return None
    return prompt if isinstance(prompt, str) and prompt else None


def best_of(request: Request) -> list[Loss]:
    """The loss where the best of several texts is wanted. Raises InvalidRequest for what is no number of them."""
    value = request.extra.get(BEST)
    wanted = None if value is None else plain(value)
    if wanted in (None, 1) and not isinstance(wanted, bool):
        return []
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        assert value is not None
        raise mismatch(value, f"$.{BEST}", "a number of texts, at least 1")
    return [Loss(f"$.{BEST}", "dropped", "the first text that a model writes is the one that is told")]


def _wants_echo(request: Request) -> bool:
    value = request.extra.get(ECHO)
    wanted = None if value is None else plain(value)
    if value is not None and wanted is not None and not isinstance(wanted, bool):
        raise mismatch(value, f"$.{ECHO}", "true or false")
    return wanted is True


def prompt(request: Request) -> str | list[int]:
    """Return the text to go on from, or its tokens. Raises InvalidRequest."""
    said = request.extra.get("prompt")
    if said is None:
        return "".join([text_content(item.content) for item in request.items if isinstance(item, System | User)])
    value = plain(said)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]  # a batch of one
    if isinstance(value, list) and value and all(type(one) is int and one >= 0 for one in value):
        return value
    several = isinstance(value, list) and any(isinstance(one, str | list) for one in value)
    message = "one prompt is answered at a time: send a request for each" if several else "this is no prompt"
    raise InvalidRequest(message, path="$.prompt", expected="a string, or an array of token ids")


def string(request: Request, key: str) -> str | None:
    """Return a member that is a text, None where it is not there. Raises InvalidRequest for another."""
    value = request.extra.get(key)
    if value is None or bytes(value) == b"null":
        return None
    said = plain(value)
    if not isinstance(said, str):
        raise InvalidRequest(f"{key} is a string", path=f"$.{key}", expected="a string or null")
    return said
