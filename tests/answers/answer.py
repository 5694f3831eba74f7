"""Owns the shape of the answers that SDKs judge: the steps that tell one, what the client asked, what it covers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from msgspec import Struct
from msgspec.structs import replace

from tests.strategies import events as drawn
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Refusal,
    Request,
    Response,
    Settings,
    Text,
    Thinking,
    ThinkingMode,
    Tool,
    ToolCall,
    Usage,
    User,
)
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import Json

MODEL = "the-client's own/model:name"
"""What the client calls the model. Every answer must call it that."""

# Steps.


class Idle(Struct, frozen=True):
    """The model has nothing to say for a while: a sign of life is due."""


class Fail(Struct, frozen=True):
    """The backend fails."""

    error: TurnscriptError


class Gone(Struct, frozen=True):
    """The server is gone, in the middle of all."""


Step = Event | Idle | Fail | Gone
Steps = Callable[[], list[Step]]
"""Makes the steps anew each time: writers note in items where they stood."""


class Asked(Struct, frozen=True, kw_only=True):
    """What the client asked, as far as it matters to the answer."""

    usage: bool = True
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    display: str | None = None
    summary: str | None = None

    def of(self, origin: str) -> Request:
        """The request, as it came in over the API of that origin."""
        settings = Settings(model=MODEL, stream=True, stop=list(self.stop) or None, reasoning_summary=self.summary)
        if self.usage:
            settings.stream_options = Json(b'{"include_usage":true}')
        if self.display is not None:
            settings.thinking = ThinkingMode("enabled", budget=1024, display=self.display)
        conversation = Conversation(items=[User(content=[Text(text="Hi")])], tools=list(self.tools))
        return Request(conversation=conversation, settings=settings, origin=origin)


class Answer(Struct, frozen=True, kw_only=True):
    """One answer. `covers`: the rows and traits that it is here for. `ending`: its row in the table of endings."""

    name: str
    steps: Steps
    covers: tuple[str, ...]
    ending: str = "natural end"
    asked: Asked = Asked()

    def events(self) -> list[Event]:
        """The steps that are events."""
        return [step for step in self.steps() if isinstance(step, Event)]

    def response(self) -> Response:
        """What it says as a whole."""
        return fold(self.events())

    def begun(self) -> list[Item]:
        """Its parts in the order in which they began; in the response they are in the order in which they ended. Calls
        that are not whole are among them, as far as they were told."""
        events = self.events()
        said: dict[int, Item] = {event.index: event.part for event in events if isinstance(event, PartStart)}
        for event in events:
            if isinstance(event, PartEnd) and event.part is not None:
                said[event.index] = event.part
            elif isinstance(event, PartEnd) and isinstance(call := said[event.index], ToolCall):
                pieces = [one.text for one in events if isinstance(one, PartDelta) and one.index == event.index]
                said[event.index] = replace(call, arguments="".join(pieces), open=True)
        return [part for _, part in sorted(said.items())]

    def error(self) -> TurnscriptError | None:
        """What the backend failed with, if it did and said so."""
        return next((step.error for step in self.steps() if isinstance(step, Fail)), None)

    def is_gone(self) -> bool:
        """Whether the server is gone before it could say an end."""
        return any(isinstance(step, Gone) for step in self.steps())


# Answers in short.

USAGE = Usage(11, 7)


def text(said: str) -> Assistant:
    """A text."""
    return Assistant(content=[Text(text=said)])


def refusal(said: str) -> Assistant:
    """A text in which the model declines."""
    return Assistant(content=[Refusal(text=said)])


def thought(said: str, signature: str | None = None, encrypted: str | None = None) -> Thinking:
    """A thought, with or without a proof."""
    return Thinking(content=[Text(text=said)], signature=signature, encrypted=encrypted)


def call(arguments: str = '{"city":"Oslo"}', name: str = "get_weather", id_: str | None = "call_a1") -> ToolCall:
    """A call of a function."""
    return ToolCall(name=name, arguments=arguments, id=id_)


def free(said: str, name: str = "apply_patch", id_: str | None = "call_f1") -> ToolCall:
    """A call of free text."""
    return ToolCall(name=name, arguments=said, id=id_, custom=True)


def told(
    *items: Item, reason: str | None = "stop", size: int = 3, cut: ToolCall | None = None, **more: object
) -> Steps:
    """The steps of an answer with those parts, in pieces of `size` characters. `cut`: a call that the limit ended."""
    fields = {"usage": USAGE} | more
    response = Response(items=list(items), finish_reason=reason, **fields)  # type: ignore[arg-type]
    return lambda: [*drawn.told(deepcopy(response), drawn.in_pieces(size), cut)]


def until(steps: Steps, count: int, *then: Step) -> Steps:
    """The first steps of an answer, and then something else."""
    return lambda: [*steps()[:count], *then]


def with_pauses(steps: Steps) -> Steps:
    """An answer with a pause before everything that it says."""
    return lambda: [one for step in steps() for one in (Idle(), step)]
