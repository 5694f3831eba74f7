"""Owns an answer while it is made: pieces of a model's text in, the events that its client is told out.

No waiting and no wire here. The text goes through the prompt's parser, its events through the stages: what checks
calls, gives names back, seals thoughts. What comes out is told and kept, so that in the end it is the response.

White space that a model puts before a call is no answer, so no client is told of it. Clients take the first text of a
stream for the answer, whatever it holds. Nothing of what was generated is lost: its `raw` is on the next event, so that
the model finds it where it wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from time import monotonic
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Piece
from turnscript.convert.recording import losses_in_source_words
from turnscript.core.conversation import Assistant, Issue, Item, Response, Thinking, Usage, dropped, text_content
from turnscript.core.events import Event, LastCall, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.finish_reasons import is_cut
from turnscript.core.losses import Loss
from turnscript.gateway.checks import CallFinding, CallGate
from turnscript.gateway.forcing import OneCall
from turnscript.gateway.scoring import Scoring
from turnscript.gateway.thinking import ThoughtMeter


class Blanks:
    """Keeps a text back while it is blank, and drops it if another part follows it."""

    def __init__(self) -> None:
        self._held: list[Event] = []
        self._told = False

    def feed(self, events: list[Event]) -> list[Event]:
        """The events without blank texts."""
        if not self._held and all(type(event) is PartDelta for event in events):
            return events  # by far the most
        out: list[Event] = []
        for event in events:
            self._take(event, out)
        return out

    def resume(self) -> None:
        """The answer goes on from what was generated so far, which is counted already."""
        for place, event in enumerate(self._held):
            self._held[place] = counted = copy(event)
            counted.raw = ""

    def _take(self, event: Event, out: list[Event]) -> None:
        if self._held:
            if type(self._held[-1]) is PartEnd:
                event = self._settle(event, out)
            elif type(event) is PartEnd or (isinstance(event, PartDelta) and not event.text.strip()):
                self._held.append(event)
                return
            else:
                self._release(out)
        if type(event) is PartStart and isinstance(event.part, Assistant) and not self._held:
            self._held.append(event)
        else:
            self._tell(event, out)

    def _settle(self, event: Event, out: list[Event]) -> Event:
        """A blank text is over, and this is what follows it: give what is to be told of that."""
        if type(event) is MessageEnd and not self._told:
            self._release(out)  # there is nothing else in the answer
            return event
        follows = copy(event)
        follows.raw = "".join([held.raw for held in self._held]) + event.raw
        self._held.clear()
        return follows

    def _release(self, out: list[Event]) -> None:
        held, self._held = self._held, []
        for event in held:
            self._tell(event, out)

    def _tell(self, event: Event, out: list[Event]) -> None:
        self._told = self._told or type(event) is PartEnd
        out.append(event)


LENGTH = "length"
LONGEST_TOKEN = 256
"""Characters that a token has at most, or nearly: a model that has written more of them ignores its limit."""
CONTEXT = "model_context_window_exceeded"
CUT = "unclosed_call"
UNREADABLE = ("invalid_call", "malformed_head", CUT)
"""What a parser says of a text that began as a call and is none."""


class Parser(Protocol):
    """Reads what a model writes, such as the parser of a prompt."""

    @property
    def ended(self) -> bool:
        """Whether whatever else comes is behind the end."""
        ...

    @property
    def client_stop(self) -> str | None:
        """The stop string of the client that it has met."""
        ...

    @property
    def issues(self) -> Sequence[Issue]:
        """What was not as it should be so far."""
        ...

    def feed(self, text: str) -> list[Event]:
        """More text."""
        ...

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """The text is over."""
        ...


class Stage(Protocol):
    """Changes events on their way to the client."""

    def feed(self, events: list[Event]) -> list[Event]:
        """What is told instead of these events."""
        ...


class Outcome(Protocol):
    """What is counted and reported of an answer, wherever it ended: when it began, what it took, what it says."""

    @property
    def first(self) -> float | None:
        """When its first text came; None if there is none."""
        ...

    @property
    def usage(self) -> Usage:
        """What it took, as far as that was counted."""
        ...

    @property
    def used(self) -> Usage:
        """The same; estimated where nobody has counted."""
        ...

    @property
    def counted(self) -> bool:
        """Whether a server has counted the prompt."""
        ...

    @property
    def text(self) -> str:
        """What was generated."""
        ...

    @property
    def response(self) -> Response:
        """What its client has."""
        ...


class Controls(Struct):
    """What an answer's events pass, in this order: ids for calls, the length of thoughts, the checks of calls, the end
    behind the first call, what drops blank texts; then what gives the client what it knows. `closing` gives the
    text that ends a kind of thought, `stops` are the client's own stop strings."""

    ids: Stage | None = None
    meter: ThoughtMeter | None = None
    gate: CallGate | None = None
    one_call: OneCall | None = None
    blanks: Blanks | None = None
    closing: Callable[[str], str] | None = None
    stops: Sequence[str] = ()
    outward: list[Stage] = []

    @property
    def watching(self) -> list[Stage]:
        """Those that may change what counts as the model's answer."""
        stages = (self.ids, self.meter, self.gate, self.one_call, self.blanks)
        return [] if stages == _NONE else [stage for stage in stages if stage is not None]


_NONE = (None, None, None, None, None)  # as where no tools are offered


class Generation:
    """One answer. `feed` and `close` give the events to tell; afterwards `response` is what the client has, and `own`
    the same in the model's names: what is remembered of it.

    `parser` makes a parser of the prompt. `prompt_tokens`: as far as they are known; a backend's own count is better.
    `estimate`: the number of tokens of a text, for backends that do not count. `scoring`: what finds the tokens of its
    texts, where log probabilities were asked for.
    """

    def __init__(
        self,
        parser: Callable[[], Parser],
        controls: Controls,
        prompt_tokens: int,
        estimate: Callable[[str], int],
        context: int | None = None,
        scoring: Scoring | None = None,
    ) -> None:
        self._new_parser = parser
        self._parser = parser()
        self._controls = controls
        self._watching = controls.watching
        self._outward = controls.outward if scoring is None else [scoring, *controls.outward]
        self.scoring = scoring
        self._estimate = estimate
        self._context = context
        self._raw: list[str] = []
        self._length = 0
        self._passed: list[str] = []
        self._last_call, self._own_call = LastCall(), LastCall()
        self.response = Response()
        self.own = Response()
        self._prompt_tokens = prompt_tokens
        self.usage = Usage(input=prompt_tokens)
        self.last: list[Event] = []

    finish: str | None = None
    first: float | None = None
    counted = False
    _stop: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the model need not go on: its turn is over, whatever else it would write."""
        one_call = self._controls.one_call
        return self._parser.ended or (one_call is not None and one_call.done)

    def ends_at(self, stops: Sequence[str]) -> bool:
        """Whether the model has ended its turn itself: a server that knows these stop strings ends there, too."""
        return self._parser.ended and self._parser.client_stop in (None, *stops)

    @property
    def paused(self) -> bool:
        """Whether the model is to be stopped, and to go on from `text` after `resume`."""
        meter = self._controls.meter
        return self.repeats or (meter is not None and meter.over)

    def overrun(self, max_tokens: int) -> bool:
        """Whether a server writes more than it was asked for. It is stopped, as if it had stopped at the limit."""
        if self._length <= LONGEST_TOKEN * (max_tokens + 1):
            return False
        self.finish = LENGTH
        return True

    @property
    def findings(self) -> list[CallFinding]:
        """What was found about its calls."""
        return self._controls.gate.findings if self._controls.gate is not None else []

    def untold(self, losses: list[Loss]) -> list[Loss]:
        """What its client could not be told, at the paths that it has where it came from. Token counts of a stream that
        nobody asked for are not lost."""
        return [loss for loss in losses_in_source_words(self.response, losses) if loss.path != "$.usage"]

    def lost(self) -> list[Loss]:
        """What of the answer is in none of its items."""
        return dropped(self.response.issues)

    @property
    def text(self) -> str:
        """What was generated so far, and still counts."""
        return "".join(self._raw)

    def feed(self, pieces: Sequence[Piece]) -> list[Event]:
        """More pieces."""
        text = pieces[0].text if len(pieces) == 1 else "".join([piece.text for piece in pieces])
        for piece in pieces:
            if piece.finish is not None or piece.usage is not None or piece.logprobs is not None:
                self._note(piece)
        if not text:
            return []
        if self.first is None:
            self.first = monotonic()
        self._raw.append(text)
        self._length += len(text)
        events = self._parser.feed(text)
        if self._controls.gate is not None:
            self._heed(self._controls.gate)
        return self._through(events)

    _heeded = 0  # issues of the parser

    def _heed(self, gate: CallGate) -> None:
        """Tell the gate where what began as a call is none: no event says so. One that was cut off was to be."""
        issues = self._parser.issues
        for issue in issues[self._heeded :]:
            if issue.kind in UNREADABLE and not (issue.kind == CUT and is_cut(self.finish)):
                gate.unreadable(issue)
        self._heeded = len(issues)

    def note(self, pieces: Sequence[Piece]) -> None:
        """Pieces behind the end: what they count is of interest, their text is not."""
        for piece in pieces:
            self._note(piece)

    def _note(self, piece: Piece) -> None:
        self.finish = piece.finish or self.finish
        if piece.stop in self._controls.stops:
            self._stop = piece.stop
        if piece.logprobs is not None and self.scoring is not None:
            self.scoring.add(piece.logprobs)
        if piece.usage is not None:
            read = self._of_prompt(piece.usage)
            self.usage = replace(read, output=read.output + self._before) if self._before else read

    def _of_prompt(self, said: Usage) -> Usage:
        """A server's counts with the input of the prompt alone: asked to go on, it has read what it wrote before, too.

        Where only that was counted, the prompt gets its share of it. That is an estimate, of which nobody may learn.
        """
        if not self._ahead:
            self.counted = said.input > 0
            return said if self.counted else replace(said, input=self.usage.input)
        if self.counted:
            first = self.usage
            return replace(said, input=first.input, cached=first.cached, cache_written=first.cache_written)
        share = self._prompt_tokens / (self._prompt_tokens + self._ahead)
        tokens = round(said.input * share) or self._prompt_tokens
        cached = min(said.cached, tokens)
        return replace(said, input=tokens, cached=cached, cache_written=min(said.cache_written, tokens - cached))

    _before = 0  # tokens of what was generated before a resumption
    _ahead = 0  # about how many tokens a server reads behind the prompt since then

    def resume(self) -> list[Event]:
        """Go on after a pause: a call once more from where it began, or behind the end of a thought. Events to tell."""
        gate = self._controls.gate
        self.finish, self._length = None, 0
        if gate is not None and gate.wants_retry:
            self._raw = [gate.kept]
            self._passed = [gate.kept]
            self._parser = self._new_parser()
            gate.resume(self._parser)
            self._heeded = len(self._parser.issues)
            if self._controls.blanks is not None:
                self._controls.blanks.resume()
            if self.scoring is not None:
                self.scoring.resume()
            self._before = self._ahead = self._estimate(gate.kept)
            return []
        self._before = self._estimate(self.text)
        meter, closing = self._controls.meter, self._controls.closing
        end = closing(meter.kind) if meter is not None and closing is not None else ""
        self._raw.append(end)
        if self.scoring is not None:
            self.scoring.insert(end)
        self._ahead = self._estimate(self.text)
        return self._through(self._parser.feed(end))

    def _through(self, events: list[Event]) -> list[Event]:
        if self._watching:
            for stage in self._watching:
                events = stage.feed(events)
            self._passed += [event.raw for event in events]
        self._keep_own(events)
        return self._outwards(events)

    def _keep_own(self, events: list[Event]) -> None:
        _keep(events, self.own.items)
        for event in events:
            self._own_call.note(event)

    def _outwards(self, events: list[Event]) -> list[Event]:
        """Events that count as the model's answer, as the client is told them."""
        if self._outward:
            for stage in self._outward:
                events = stage.feed(events)
            _keep(events, self.response.items)
        for event in events:
            self._last_call.note(event)
        return events

    @property
    def repeats(self) -> bool:
        """Whether a call is to be made once more."""
        return self._controls.gate is not None and self._controls.gate.wants_retry

    def close(self) -> list[Event]:
        """The model has stopped, or was stopped. The last event ends the message.

        Unless the answer `repeats` then, since the end of a text may complete a call: it goes on after `resume`.
        """
        ended = self._parser.ended
        events = self._parser.close(None if ended else self.finish)
        end = events[-1]
        assert isinstance(end, MessageEnd)
        if self._stop is not None and not ended:  # the server met it, and took it away
            end.finish_reason, end.stop_sequence = "stop", self._stop
        if self._controls.gate is not None:
            self._heed(self._controls.gate)
        if self._watching:
            told = self._through(events[:-1])
            if self.repeats:
                return told
            self._count(end)
            told += self._through([end])
        else:
            self._keep_own(events)
            self._count(end)
            told = self._outwards(events)
        last = told[-1]
        assert isinstance(last, MessageEnd)
        if not self._outward:
            self.response.items = self.own.items
        if self.scoring is not None:
            self.response.logprobs = self.scoring.found
        self.response.cut, self.own.cut = self._last_call.cut, self._own_call.cut
        raw = "".join(self._passed) if self._watching else self.text
        for response in (self.response, self.own):
            response.raw = raw
            response.finish_reason, response.stop_sequence = last.finish_reason, last.stop_sequence
            response.usage, response.issues, response.id = self.usage, last.issues, last.id
        return told

    @property
    def used(self) -> Usage:
        """What it took so far, whether or not it has come to its end; estimated where the backend has not counted."""
        return self.usage if self.usage.output else replace(self.usage, output=self._estimate(self.text))

    def _count(self, end: MessageEnd) -> None:
        """What the backend has not counted is estimated: all of it, or how much of it was thought. The end says so."""
        self.usage = self.used
        thought = _thought(self.own.items)
        if thought and not self.usage.reasoning and (raw := self.text):
            share = round(self.usage.output * min(1.0, len(thought) / len(raw)))
            self.usage = replace(self.usage, reasoning=share)
        end.usage = self.usage
        if end.finish_reason == LENGTH and self._context and self.usage.input + self.usage.output >= self._context:
            end.finish_reason = CONTEXT


def _keep(events: Sequence[Event], items: list[Item]) -> None:
    for event in events:
        if type(event) is PartEnd and event.part is not None:
            items.append(event.part)  # noqa: PERF401  (most batches have one event, which ends nothing)


def _thought(items: Sequence[Item]) -> str:
    if Thinking not in map(type, items):
        return ""
    return "".join([text_content(item.content) for item in items if type(item) is Thinking])
