"""Owns reading answers: a whole one, and a stream of chunks, both piece by piece in the same way.

What arrives mixed is taken apart: parts that go on side by side are told as parts one behind another. Thinking, text,
refusal and each call is a lane. One lane goes on and is told as it comes. Another one ends it and goes on instead, but
for one case: a call whose arguments may still grow cannot be ended, so what comes meanwhile waits, and is told when all
is over. Whether a call may end is asked once, when something else comes first: its arguments are then a whole JSON
object, as they are with servers that finish one call before the next, or its pieces come mixed with others'.

| finish_reason | model |
| --- | --- |
| `stop` `length` `tool_calls` `content_filter` | the same |
| `function_call` | `tool_calls` |
| any other | the same: what the server said |

Members of the message without a name wait in the `extra` of the response with those of the choice, under `choices`.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from turnscript.apis.api import leftover
from turnscript.apis.openai_chat.content import WITHIN, is_plain, parts_of, thought_of
from turnscript.apis.openai_chat.objects import BOTH, Content
from turnscript.apis.shared.answers import Counts, Gathered, nameless
from turnscript.apis.shared.chunk_streams import ChoiceAnswer, Told, ToldChoice, said_by
from turnscript.apis.streams import Parts
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Issue,
    Item,
    Opaque,
    Part,
    Refusal,
    Response,
    Text,
    Thinking,
    ToolCall,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.finish_reasons import CALLED, FILTERED, STOP
from turnscript.core.json_text import Json, is_object, json_string, members_in, plain
from turnscript.core.source_paths import says_nothing
from turnscript.core.wire import Reader, Wire, extra_of

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


class Choice(ToldChoice):
    """A choice of a whole answer (`message`) or of a chunk (`delta`)."""

    message: Piece | UnsetType | None = UNSET
    delta: Piece | UnsetType | None = UNSET


class Answer(Told):
    """A whole answer, or a chunk of one."""

    choices: list[Choice] | UnsetType | None = UNSET
    service_tier: Json | UnsetType = UNSET
    obfuscation: Json | UnsetType = UNSET


# Parts.

_MESSAGE = "$.choices[0].message"


class Lane:
    """One part that is being read. `key`: the member it comes from, and for a call its place."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.at = f"{_MESSAGE}.{key}"
        self.index = -1  # among the parts that were told, -1 while it is not told
        self.texts: list[str] = []
        self.ended = False

    def head(self) -> Item | None:
        """The part without content; None while that cannot be said."""
        if self.key == "refusal":
            return Assistant(content=[Refusal(text="")], at=self.at)
        return self.item([])

    def whole(self) -> Item | None:
        """The part with its content."""
        text = "".join(self.texts)
        return self.item([Refusal(text=text) if self.key == "refusal" else Text(text=text)])

    def item(self, content: list[Part]) -> Item:
        """The item around some content."""
        if self.key == REASONING:
            return Thinking(content=content, slot=REASONING, at=self.at)
        if self.key == "reasoning_content":
            return Thinking(content=content, at=self.at)
        return Assistant(content=content, at=self.at)

    def may_end(self) -> bool:
        """Whether nothing more can come for it."""
        return True


class PartLane(Lane):
    """A part of a kind that has no text of its own: it comes whole."""

    def __init__(self, part: Part) -> None:
        super().__init__("content")
        self._part = part

    def whole(self) -> Item | None:
        return self.item([self._part])


class ThoughtLane(Lane):
    """A thought in the content. `given`: one that came whole; else it comes in pieces, as texts."""

    def __init__(self, given: Thinking | None = None) -> None:
        super().__init__("content")
        self.given = given
        self.rest = Gathered(texts=True)

    def whole(self) -> Item | None:
        if self.given is not None:
            return replace(self.given, at=self.at)
        thought = self.item([Text(text="".join(self.texts))] if self.texts else [])
        thought.extra = self.rest.joined()
        return thought

    def item(self, content: list[Part]) -> Item:
        return Thinking(content=content, slot=WITHIN, at=self.at)


class CallLane(Lane):
    """One call. `name` is empty until it is known, and until then the call is not told."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.id: str | None = None
        self.name = ""
        self.type = ""
        self.member = ""  # the object that holds its name and its arguments
        self.said = False  # whether there was any member for its arguments
        self.rest = Gathered(texts=True)
        self.inner = Gathered(texts=True)
        self._judged = False
        self._looked = 0

    @property
    def custom(self) -> bool:
        """Whether its argument is free text."""
        return self.type == "custom"

    @property
    def opaque(self) -> bool:
        """Whether it is a call of a type that has no name here."""
        return self.type not in ("", "function", "custom")

    def head(self) -> Item | None:
        if self.opaque or not self.name:
            return None
        return self._call("")

    def whole(self) -> Item | None:
        text = "".join(self.texts)
        if self.opaque:
            named = {"id": self.id, "type": self.type} if self.id else {"type": self.type}
            entry = {key: Json(json_string(value).encode()) for key, value in named.items()}
            value = leftover(entry | self._inside(text) | self.rest.joined())
            return Opaque(type=self.type, value=value, role="assistant", at=self.at)
        call = self._call(text)
        call.extra = self.rest.joined()
        inner = self.inner.joined()
        if inner and self.key == LEGACY_CALL:  # which has no object of its own for them
            call.extra |= inner
        elif inner:
            call.extra["custom" if self.custom else "function"] = leftover(inner)
        return call

    def _inside(self, text: str) -> Extra:
        """The member that holds the name and the argument, as far as they were said."""
        if not self.member:
            return {}
        said = {"name": self.name} if self.name else {}
        if self.said:
            said["input" if self.member == "custom" else "arguments"] = text
        inside = {key: Json(json_string(value).encode()) for key, value in said.items()}
        return {self.member: leftover(inside | self.inner.joined())}

    def _call(self, arguments: str) -> ToolCall:
        call = ToolCall(name=self.name, arguments=arguments, id=self.id, custom=self.custom, at=self.at)
        if self.key == LEGACY_CALL:
            call.slot = self.key
        return call

    def may_end(self) -> bool:
        if self._judged or self.custom or self.opaque or self.index < 0:
            return False
        self._judged = True
        return is_object("".join(self.texts))

    def is_behind(self, piece: PieceOfCall) -> bool:
        """Whether a piece that was said to be of this call begins the next one: this one is whole, and it has a name.

        Some servers repeat the name in every piece, so this is looked at a few times and no more: time stays linear in
        the arguments.
        """
        name, text = _named(piece)
        repeats = not text.strip() and (name == self.name or bool(piece.id and piece.id == self.id))
        if repeats or not (name and self.name) or self.custom:
            return False
        if self._looked == _LOOKS or not (self.texts and self.texts[-1].rstrip().endswith("}")):
            return False
        self._looked += 1
        return is_object("".join(self.texts))


class Lanes:
    """All parts of one answer. `parts`: where they are told."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._current: Lane | None = None
        self._waiting: list[Lane] = []
        self._calls: dict[int, CallLane] = {}
        self._latest: CallLane | None = None

    @property
    def began(self) -> bool:
        """Whether any part was told."""
        return self.parts.count > 0

    @property
    def called(self) -> bool:
        """Whether there was any call."""
        return bool(self._calls)

    def add(self, key: str, text: str) -> None:
        """More of a text, a thought or a refusal; an empty piece says nothing."""
        if not text:
            return
        lane = self._last()
        if lane is None or lane.key != key or isinstance(lane, PartLane | ThoughtLane):
            lane = Lane(key)
            self._open(lane)
        self._more(lane, text)

    def add_part(self, part: Part) -> None:
        """A whole part that is no text."""
        self._open(PartLane(part))

    def think(self, thought: Thinking, whole: bool) -> None:
        """More of a thought in the content, or a `whole` one."""
        if whole or not is_plain(thought):
            self._open(ThoughtLane(thought))
            return
        lane = self._last()
        if not isinstance(lane, ThoughtLane) or lane.given is not None:
            lane = ThoughtLane()
            self._open(lane)
        lane.rest.add(thought.extra.items())
        text = "".join([part.text for part in thought.content if isinstance(part, Text)])
        if text:
            self._more(lane, text)

    def call(self, piece: PieceOfCall, place: int, whole: bool = False) -> None:
        """More of a call. `place` is its place in the list, and the index of `whole` calls that say none."""
        lane = self._lane_of(piece, place, whole)
        if piece.id and lane.id is None:
            lane.id = piece.id
        elif piece.id and piece.id != lane.id:
            self.issue("call_id", f"a call changed its id from {lane.id!r} to {piece.id!r}; the first one counts")
        if piece.type and not lane.type:
            lane.type = piece.type
        elif not lane.type and isinstance(piece.custom, PieceOfCustom):
            lane.type = "custom"
        lane.rest.add(extra_of(piece).items())
        if isinstance(piece.function, PieceOfFunction):
            self._inner(lane, piece.function, piece.function.arguments)
        if isinstance(piece.custom, PieceOfCustom):
            self._inner(lane, piece.custom, piece.custom.input)

    def legacy_call(self, function: PieceOfFunction) -> None:
        """More of the deprecated only call."""
        lane = self._calls.get(_LEGACY)
        if lane is None:
            lane = self._new_call(_LEGACY, LEGACY_CALL)
        self._inner(lane, function, function.arguments)

    def finish(self, reason: str | None) -> None:
        """All is over, for a reason of the API: ends every lane, and a call that was cut off without a call."""
        lanes = [*([self._current] if self._current is not None else []), *self._waiting]
        for lane in lanes:
            if lane is not self._current:
                self._begin(lane)
            self._end(lane, cut=isinstance(lane, CallLane) and self._is_cut(lane, reason))
        self._current, self._waiting = None, []

    # Calls.

    def _lane_of(self, piece: PieceOfCall, place: int, whole: bool) -> CallLane:
        index = piece.index if isinstance(piece.index, int) else place if whole else None
        if index is None:  # some servers leave it out: an id that is new begins a call
            latest = self._latest
            known = latest is not None and (not piece.id or piece.id == latest.id)
            if latest is not None and known and not (place and _named(piece)[0]) and not latest.is_behind(piece):
                return latest
            return self._new_call(len(self._calls), f"tool_calls[{len(self._calls)}]")
        lane = self._calls.get(index)
        if lane is None:
            return self._new_call(index, f"tool_calls[{index}]")
        named = isinstance(piece.function, PieceOfFunction) and bool(piece.function.name)
        if named and piece.id and lane.id and piece.id != lane.id:
            self.issue("call_index", f"two calls share the index {index}; told apart by their ids")
            return self._new_call(index, f"tool_calls[{index}]")
        if lane.is_behind(piece):
            self.issue("call_index", f"two calls share the index {index}; the first one was complete")
            return self._new_call(index, f"tool_calls[{index}]")
        return lane

    def _new_call(self, index: int, key: str) -> CallLane:
        lane = CallLane(key)
        self._calls[index] = self._latest = lane
        self._open(lane)
        return lane

    def _inner(self, lane: CallLane, piece: PieceOfFunction | PieceOfCustom, text: object) -> None:
        if piece.name and not lane.name:
            lane.name = piece.name
        elif piece.name and piece.name != lane.name:
            self.issue("call_name", f"a call changed its name from {lane.name!r} to {piece.name!r}: the first counts")
        lane.member = lane.member or ("custom" if isinstance(piece, PieceOfCustom) else "function")
        lane.inner.add(extra_of(piece).items())
        if lane is self._current and lane.index < 0:
            self._begin(lane)
        if isinstance(text, str):
            lane.said = True
            if text:
                self._more(lane, text)

    def _is_cut(self, lane: CallLane, reason: str | None) -> bool:
        """Whether the answer ended inside the call. Reports arguments that are none although it did not."""
        if lane.opaque:
            return False
        text = "".join(lane.texts)
        if not lane.name:
            found = nameless(text)
            self.parts.note(found)
            return True
        if reason in COMPLETE and not (lane.texts or (lane.custom and lane.said)):
            self.issue("missing_arguments", f"the call of {lane.name!r} came without arguments")
        well = lane is not self._latest if lane.custom else is_object(text)
        if reason in COMPLETE:
            if not (well or lane.custom) and text.strip():
                self.issue("invalid_json", f"the arguments of the call of {lane.name!r} are no JSON object")
            return False
        if not well:
            told = f"the call of {lane.name!r} was cut off after {len(text)} characters of its arguments"
            self.issue("unclosed_call", told)
        return not well

    # Lanes.

    def _last(self) -> Lane | None:
        return self._waiting[-1] if self._waiting else self._current

    def _open(self, lane: Lane) -> None:
        """A lane begins: now, or behind a call that may still grow."""
        current = self._current
        if current is not None and (self._waiting or not current.may_end()):
            self._waiting.append(lane)
            return
        if current is not None:
            self._end(current)
        self._current = lane
        self._begin(lane)

    def _more(self, lane: Lane, text: str) -> None:
        if lane.ended:
            if text.strip():
                self.issue("late_arguments", f"{len(text)} characters of arguments for a call that was complete")
            return
        lane.texts.append(text)
        if lane is self._current and lane.index >= 0:
            self.parts.append(lane.index, text)

    def _begin(self, lane: Lane) -> None:
        head = lane.head()
        if head is not None:
            lane.index = self.parts.open(head, "".join(lane.texts))

    def _end(self, lane: Lane, cut: bool = False) -> None:
        lane.ended = True
        whole = None if cut else lane.whole()
        if lane.index < 0 and whole is not None:
            lane.index = self.parts.open(whole)
        if lane.index >= 0:
            self.parts.close(lane.index, whole)

    def issue(self, kind: str, detail: str) -> None:
        """Note what is not as it should be."""
        self.parts.note(Issue(kind, detail))


def _named(piece: PieceOfCall) -> tuple[str, str]:
    """The name that a piece of a call says, and its arguments; nothing for what it does not say."""
    if isinstance(piece.function, PieceOfFunction):
        return piece.function.name or "", piece.function.arguments or ""
    if isinstance(piece.custom, PieceOfCustom):
        return piece.custom.name or "", piece.custom.input or ""
    return "", ""


_LEGACY = -1
_LOOKS = 16


_NULL = Json(b"null")
_SAYS = ("content", "refusal", "reasoning_content", "tool_calls", "function_call")
"""The members of a delta that are content; a piece that says nothing has them empty, null or not at all."""


def _says(piece: Piece | None) -> bool:
    return any(getattr(piece, member, None) for member in _SAYS)


class Assembly(ChoiceAnswer):
    """One answer, as its pieces arrive."""

    origin = ORIGIN
    read: ClassVar[Reader[Answer]] = Reader(Answer)
    counts = COUNTS
    kept = ("object", "created", "system_fingerprint", "service_tier", "error")

    def __init__(self) -> None:
        super().__init__()
        self._lanes = Lanes(self.parts)
        self._thoughts: list[str] = []  # in `reasoning_content`: some servers say all of it again in `reasoning`
        self._twice = False  # whether they did
        self._message_rest = Gathered(texts=True)

    def conclude(self) -> Extra:
        reason = self.said.finish_reason = CALLED if self.reason == LEGACY_CALL else self.reason
        self._lanes.finish(reason)
        if reason == CALLED and not self._lanes.called:
            self.note("missing_call", "the answer ended for a call of a tool, and there is none in it")
        choice, message = self.rest.joined(), self._message_rest.joined()
        self._twice = REASONING in message and plain(message[REASONING]) == "".join(self._thoughts)
        if self._twice:
            del message[REASONING]
        if message:
            choice["message"] = leftover(message)
        return choice

    def choose(self, choice: Choice) -> None:
        piece = self._told_in(choice)
        if self.reason is not None:
            self.note_late(choice.finish_reason, says=_says(piece))
        if piece is not None:
            self._piece(piece, whole=piece is choice.message)
        elif not (choice.finish_reason or choice.rest):
            self.note("missing_delta", "the server sent a chunk that says nothing")

    def completed(self, response: Response, choice: Choice) -> Response:
        message = choice.message
        if not (message or choice.finish_reason == FILTERED):  # of which Azure leaves no message
            raise InvalidRequest("required, but missing; expected a message", path="$.choices[0].message")
        if self._twice:
            next(item for item in response.items if isinstance(item, Thinking)).slot = BOTH
        if message and (message.content is None or message.content is UNSET):
            _note_null(response)
        return response

    def _told_in(self, choice: Choice) -> Piece | None:
        """What a choice says: its message in a whole answer, its delta in a chunk.

        Some servers send both: chunks with all that was said so far beside the delta, answers with an empty delta. One
        that says all at once where a stream was asked for has nothing in the delta.
        """
        first, second = (choice.message, choice.delta) if self.is_whole else (choice.delta, choice.message)
        if not isinstance(second, Piece):
            return first if isinstance(first, Piece) else None
        if not isinstance(first, Piece) or not (_says(first) or self._lanes.began or not _says(second)):
            return second
        return first

    def _piece(self, piece: Piece, whole: bool) -> None:
        lanes = self._lanes
        rest = [(name, value) for name, value in said_by(piece, "annotations", "audio") if not _no_sound(name, value)]
        if isinstance(piece.reasoning_content, str):
            lanes.add("reasoning_content", piece.reasoning_content)
            self._thoughts += [piece.reasoning_content] if piece.reasoning_content else []
        if piece.reasoning is not UNSET:
            if bytes(piece.reasoning)[:1] == b'"' and not self._thoughts:
                lanes.add("reasoning", plain(piece.reasoning))
            elif piece.reasoning != _NULL:
                rest.append(("reasoning", piece.reasoning))
        self._content(piece, whole)
        if isinstance(piece.refusal, str):
            lanes.add("refusal", piece.refusal)
        for place, call in enumerate(piece.tool_calls or ()):
            lanes.call(call, place, whole)
        if piece.function_call and (piece.function_call.name or piece.function_call.arguments):
            lanes.legacy_call(piece.function_call)
        self._message_rest.add(rest)

    def _content(self, piece: Piece, whole: bool) -> None:
        content = piece.content
        if whole and content == "" and (piece.tool_calls or piece.function_call or piece.refusal):
            self._lanes.add_part(Text(text=""))  # in a stream it is how every message begins, and says nothing
        if isinstance(content, str):
            self._lanes.add("content", content)
            return
        for part in parts_of(content):
            thought = thought_of(part, "$.choices[0].message.content")
            if thought is not None:
                self._lanes.think(thought, whole)
            elif isinstance(part, Text) and not part.extra:
                self._lanes.add("content", part.text)
            elif isinstance(part, Refusal) and not part.extra:
                self._lanes.add("refusal", part.text)
            else:
                self._lanes.add_part(part)


def _note_null(response: Response) -> None:
    """The message has no text, not even an empty one: that is kept where something else of it is."""
    items = response.items
    if all(isinstance(item, Thinking) for item in items) and (items or "choices" in response.extra):
        choice = members_in(response.extra.get("choices"))
        message = members_in(choice.get("message"))
        message["content"] = Json(b"null")
        response.extra["choices"] = leftover(choice | {"message": leftover(message)})


def _no_sound(name: str, value: Json) -> bool:
    return name == "audio" and says_nothing(value)
