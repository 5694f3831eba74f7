"""Owns a model that speaks a format: for any prompt it writes what a model trained on that format would write.

    speaker = Speaker(get_format("rwkv-goose"), [WEATHER])
    speaker.say(call("get_weather", city="Paris"))
    with speaking(speaker) as talk: ...

Nothing is written down here of any format. A small conversation is made that ends as the prompt does, the wanted items
are put behind it, and what the format renders behind that prompt, up to its stop string, is what the model writes.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, Scripted, said
from tests.gateway.stage import Threaded
from tests.gateway.wires import WIRES, Wire, Written
from turnscript.core.conversation import (
    Assistant,
    Item,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    User,
    text_content,
)
from turnscript.gateway.config import Config

_MARK = "Where does this end"
_NEXT = "Here is more."
_LEAST = 3


class Unspeakable(ValueError):
    """The items are no single turn of this format's models, or do not follow such a prompt."""


def text(words: str) -> Assistant:
    """The model says something."""
    return Assistant(content=[Text(text=words)])


def thought(words: str) -> Thinking:
    """The model thinks something."""
    return Thinking(content=[Text(text=words)])


def call(name: str, /, **arguments: Any) -> ToolCall:
    """The model calls a tool."""
    return ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def odd(written: str) -> str:
    """JSON in a spelling that no program would write."""
    return written.replace('": "', '" :   "').replace('":"', '" :   "').replace('"Tokyo"', '"To\\u006byo"')


@dataclass
class Turn:
    """What is to be written once. `change`: something done to it, `stop`: whether the server leaves the stop string in
    the text (`echo`), takes it out (`cut`), or the model ends without one (`none`)."""

    items: Sequence[Item]
    change: Callable[[str], str] = str
    stop: str = "cut"
    raw: str | None = None


@dataclass
class Spoken:
    """What was asked once, and what was written: the text that left the server, in tokens of three characters."""

    prompt: str
    written: str
    asked: Asked = field(repr=False)
    finish: str = "stop"


class Speaker:
    """A model server. `said`: everything so far. A turn after the last one is an error, in the test and on the wire."""

    def __init__(self, format_: ts.Format, tools: Sequence[Tool] = (), wire: Wire = WIRES["completions"]) -> None:
        self.format = format_
        self.tools = list(tools)
        self.wire = wire
        self.said: list[Spoken] = []
        self.failures: list[str] = []
        self.answering: Callable[[str], Sequence[Item] | Turn] | None = None
        self._turns: list[Turn] = []
        self._lock = threading.Lock()

    def say(self, *items: Item, change: Callable[[str], str] = str, stop: str = "cut", raw: str | None = None) -> None:
        """The next turn. `raw`: the text itself."""
        self._turns.append(Turn(items, change, stop, raw))

    def clear(self) -> None:
        """Forget what was said and what was to be said."""
        self._turns.clear()
        self.said.clear()
        self.failures.clear()
        self.answering = None

    @property
    def left(self) -> int:
        """How many turns nobody has asked for yet."""
        return len(self._turns)

    def __call__(self, asked: Asked) -> Script:
        """The answer to a request."""
        facts = self.wire.facts(asked)
        if facts is not None:
            return facts
        with self._lock:
            try:
                return self._answer(asked)
            except (Unspeakable, IndexError, KeyError, TypeError) as error:
                self.failures.append(repr(error))
                return said({"error": {"message": f"the speaker cannot: {error!r}"}}, status=400)

    def _answer(self, asked: Asked) -> Script:
        body = asked.json
        prompt = body["prompt"]
        turn = self._turn(prompt)
        whole = written(self.format, prompt, turn, self.tools) if turn.raw is None else turn.change(turn.raw)
        shown = as_served(whole, self.wire.stops(body), self.wire.limit(body), echo=turn.stop == "echo")
        self.said.append(Spoken(prompt, shown.text, asked, shown.finish))
        return self.wire.answer(asked, shown)

    def _turn(self, prompt: str) -> Turn:
        if self.answering is not None:
            made = self.answering(prompt)
            return made if isinstance(made, Turn) else Turn(made)
        if not self._turns:
            raise IndexError("nothing is left to say")
        return self._turns.pop(0)


def as_served(whole: str, stops: Sequence[str], limit: int, *, echo: bool) -> Written:
    """What a server lets out of a text: to the first stop string, and no more tokens than were asked for.

    A line end behind a turn comes in one piece with what it ends: whether the gateway still reads a piece that comes
    after the end of the turn is a matter of time, and no test could say what it has seen.
    """
    found = [(at, stop) for stop in stops if (at := whole.find(stop)) >= 0]
    at, stop = min(found, default=(len(whole), ""))
    let = whole[: at + (len(stop) if echo else 0)]
    tokens = ["".join(letters) for letters in itertools.batched(let, 3)] if hasattr(itertools, "batched") else _cut(let)
    if len(tokens) > limit:
        return Written(tokens[:limit], "length")
    while len(tokens) > 1 and tokens[-1].isspace():
        tokens[-2:] = ["".join(tokens[-2:])]
    return Written(tokens, "stop", stop or None)


def _cut(let: str) -> list[str]:
    return [let[at : at + 3] for at in range(0, len(let), 3)]


# The text of a turn.


def written(format_: ts.Format, prompt: str, turn: Turn, tools: Sequence[Tool]) -> str:
    """What a model writes behind a prompt, with the stop string that it ends in and a little behind it."""
    like, thinks = _like(format_, prompt, turn.items, tools)
    items = list(turn.items)
    if thinks and not isinstance(items[0], Thinking):
        items.insert(0, thought("So."))
    for wanted in _numbered(items):
        begun = _behind(format_, like, wanted)
        if begun is None:
            continue
        stop_at = min((at for stop in like.stops if (at := begun.find(stop)) >= 0), default=len(begun))
        if _kinds(like, begun[:stop_at]) != [item.kind for item in items]:
            continue
        if turn.stop == "none":
            return turn.change(begun[:stop_at])
        return turn.change(begun[:stop_at]) + begun[stop_at:]
    raise Unspeakable(f"{format_.name} has no turn of {[item.kind for item in items]} behind {prompt[-40:]!r}")


def speakable(format_: ts.Format, items: Sequence[Item], tools: Sequence[Tool] = ()) -> bool:
    """Whether a model can write the items in one turn, after the user's."""
    try:
        written(format_, format_.prompt(_request([_user()], tools)).text, Turn(items), tools)
    except Unspeakable:
        return False
    return True


def _user() -> User:
    return User(content=[Text(text=_MARK)])


def _request(items: list[Item], tools: Sequence[Tool]) -> Request:
    return Request(conversation=ts.Conversation(items=items, tools=list(tools)))


def _like(format_: ts.Format, prompt: str, items: Sequence[Item], tools: Sequence[Tool]) -> tuple[ts.Prompt, bool]:
    """The prompt of a small conversation that ends as a prompt does, and whether it opens a thought."""
    contexts: list[list[Item]] = [[_user()]]
    if tools:
        first = ToolCall(name=tools[0].name or "", arguments="{}", id="c1")
        contexts.append([_user(), first, ToolResult(content=[Text(text=_MARK)], id="c1", name=first.name)])
    prefills = [None, *_beginnings(items, prompt)]
    names = [item.name for item in items if isinstance(item, ToolCall)][:1]
    choices = [
        None,
        *([ToolChoice(mode="required")] if tools else []),
        *[ToolChoice(mode="named", name=n) for n in names],
    ]
    best: tuple[int, ts.Prompt, bool] | None = None
    for context, thinks, choice, prefill in itertools.product(contexts, (False, True), choices, prefills):
        if thinks and (choice is not None or prefill is not None):
            continue
        begun = [] if prefill is None else [Assistant(content=[Text(text=prefill)], open=True)]
        request = _request([*context, *begun], tools)
        request.settings.tool_choice = choice
        made = format_.prompt(request, thinking=thinks)
        alike = len(os.path.commonprefix([made.text[::-1], prompt[::-1]]))  # noqa: RUF071
        if best is None or alike > best[0]:
            best = alike, made, thinks
    assert best is not None
    return best[1], best[2]


def _beginnings(items: Sequence[Item], prompt: str) -> list[str]:
    """How much of a wanted text the prompt ends with, if the client has begun it."""
    if not items or not isinstance(items[0], Assistant):
        return []
    words = text_content(items[0].content)
    return [words[:length] for length in range(len(words), 0, -1) if prompt.endswith(words[:length])][:1]


def _numbered(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items as they are, and with the ids that a prompt may have given their first call."""
    yield list(items)
    calls = [at for at, item in enumerate(items) if isinstance(item, ToolCall)]
    for number in (1, 2) if calls else ():
        named = copy(items[calls[0]])
        assert isinstance(named, ToolCall)
        named.id = f"call_auto_{number:03d}"
        yield [*items[: calls[0]], named, *items[calls[0] + 1 :]]


def _behind(format_: ts.Format, like: ts.Prompt, items: Sequence[Item]) -> str | None:
    """What the format writes for the items behind a prompt, and the beginning of what follows them."""
    said_before = [item for item in like.request.items if not (isinstance(item, Assistant) and item.open)]
    whole = _request([*said_before, *items, User(content=[Text(text=_NEXT)])], like.request.tools)
    document = str(format_.render(whole, view="prompt").value)
    behind = document[document.rindex(_MARK) + len(_MARK) : document.rindex(_NEXT)]
    opened = like.text[like.text.rindex(_MARK) + len(_MARK) :]
    if behind.startswith(opened):
        return behind[len(opened) :]
    overlap = max((at for at in range(len(behind) + 1) if opened.endswith(behind[:at])), default=0)
    if overlap >= _LEAST:
        return behind[overlap:]
    shared = os.path.commonprefix([behind, opened]).rpartition("\n")[0]  # noqa: RUF071
    return behind[len(shared) :].lstrip("\n") if shared else None


def _kinds(like: ts.Prompt, begun: str) -> list[str]:
    parser = like.parser()
    response = ts.fold(parser.feed(begun) + parser.close("stop"))
    return [item.kind for item in response.items]


# A gateway before it.


@dataclass
class Talk:
    """A gateway, the speaker behind it, and where it listens."""

    gateway: Running
    speaker: Speaker
    server: Scripted

    @property
    def url(self) -> str:
        """The gateway's address."""
        return self.gateway.url


def prompt_of(speaker: Speaker) -> str:
    """The prompt that it has answered last."""
    return speaker.said[-1].prompt


@contextmanager
def speaking(speaker: Speaker, *, change: Callable[[Config], Config] | None = None, **model: Any) -> Iterator[Talk]:
    """A gateway before a speaker."""
    with Threaded() as thread, thread.server(speaker) as server:
        url = f"{server.url}{speaker.wire.path}"
        config = Config.for_backend(url, speaker.format.name, **({"kind": speaker.wire.kind} | model))
        with Running(change(config) if change is not None else config) as gateway:
            yield Talk(gateway, speaker, server)
    assert [] == speaker.failures
