"""Owns the contract of an API: reading its request bodies into a `Request` and writing one back.

An API is a subclass of `Api` in `turnscript/apis/`. It says three things: how its messages become items (`read`), how
items become its messages (`write`), and which of its other members are generation settings (`options`, a table).
Everything else is here and the same for all: finding unnamed members, putting them back, and reporting what is lost.

Five rules keep a body whole (requirements D-X-1, L2):
- A member with a name in the conversation or the settings is typed. Everything else goes verbatim to the `extra` of the
  nearest item, part, tool or request, and is written back there when the target is the API it came from.
- What is unchanged goes back to the API it came from as it came, whatever its shape (`Request.source`).
- Unnamed members of a nested object wait in `extra` as an object under its key, and are merged into it again.
- Typed values win over `extra`: a setting that is not None replaces a member of the same name in `extra`.
- To another API, every `extra` member and every setting that it does not know is a `Loss` with its source path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec import Raw as RawJson
from msgspec.structs import replace

from turnscript.apis.serving import Serving
from turnscript.apis.streams import Answer, StreamParser, StreamRenderer
from turnscript.core import source_paths
from turnscript.core.call_pairing import call_ids, told
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Extra,
    Item,
    Request,
    Response,
    Settings,
    SourceBody,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from turnscript.core.error_kinds import fault_of, retry_headers
from turnscript.core.errors import InvalidRequest, LossyConversion, TurnscriptError, UnknownName
from turnscript.core.framing import SSE, Framing
from turnscript.core.json_patch import are_equal, difference, patched
from turnscript.core.json_spelling import objects_in_one_spelling
from turnscript.core.json_text import NULL, Json, plain, read_object
from turnscript.core.losses import Loss, LossKind
from turnscript.core.message_groups import attribute_losses, only_opened
from turnscript.core.payloads import Rendered, Source, body_bytes
from turnscript.core.validation import MISTAKES, check_words, refuse_mistakes
from turnscript.core.wire import Reader, mismatch

Body = dict[str, Any]
"""A wire object to be encoded: plain values, with `Json` wherever text is kept verbatim."""

OFFICIAL = "official"
SEED = "seed"

PATCH = "patch"
"""The member of an archive's metadata that says how the body differs from what is written for the conversation."""

# Options: the members of a body that are generation settings.


class Option(Struct, frozen=True):
    """One member of a request body and the settings it holds.

    `read(request, value, path)` stores the typed form (and may leave a remainder in `request.extra[key]`);
    `write(rendering)` gives the member's value, or None when there is nothing to say. `plain` names the setting whose
    value is written as it stands, which needs no call. `wire`: the type that it is read as with the body around it.
    """

    key: str
    fields: tuple[str, ...]
    read: Callable[[Request, Json, str], None]
    write: Callable[[Rendering], Any]
    plain: str = ""
    wire: Any = RawJson


def setting(key: str, field: str, type_: Any) -> Option:
    """An option whose value is one setting as it stands."""
    reader: Reader[Any] = Reader(type_)

    def read(request: Request, value: Json, path: str) -> None:
        setattr(request.settings, field, reader(value, path))
        if key != field:
            request.paths[field] = path

    def write(rendering: Rendering) -> Any:
        return getattr(rendering.request.settings, field)

    return Option(key, (field,), read, write, field, type_ if type_ is RawJson else type_ | None)


def object_setting(key: str) -> Option:
    """An option whose value is an object, kept as text in the setting of the same name."""
    plain = setting(key, key, RawJson)

    def read(request: Request, value: Json, path: str) -> None:
        if bytes(value)[:1] != b"{":
            raise mismatch(value, path, "an object")
        plain.read(request, value, path)

    return Option(key, plain.fields, read, plain.write, plain.plain)


def own_setting(key: str, field: str, type_: Any) -> Option:
    """An option that no official API has, and servers such as ours take: it is sent only if it came that way."""
    plain = setting(key, field, type_)

    def write(rendering: Rendering) -> Any:
        value = plain.write(rendering)
        if value is None or rendering.request.origin == rendering.origin:
            return value
        rendering.lose_setting(field, "dropped", f"{rendering.target} has no such setting")
        return None

    return Option(key, (field,), plain.read, write)


THOUGHTS = own_setting("thoughts", "thoughts", list[str])
"""The kinds of thought that are asked for, as all APIs of conversations have it here."""


class Rendering:
    """One request on its way to one API: what is asked for, and the losses so far.

    `foreign` says that the request came from another API, so that its `extra` members mean nothing here, and `proved`
    that the proofs of its thoughts are this API's. `extra`: the unnamed members of the request that are still to be
    written. `begun`: whether the end of a prompt, an answer that is only opened, was left out behind the items.
    `slices`: the body that it was read from, where what is unchanged goes back as it came.
    """

    __slots__ = (
        "_ids",
        "_nameless",
        "_unnamed",
        "begun",
        "extra",
        "flags",
        "foreign",
        "losses",
        "origin",
        "profile",
        "proved",
        "request",
        "slices",
        "target",
        "unplaced",
    )

    def __init__(self, request: Request, api: Api, profile: str, flags: Mapping[str, str]) -> None:
        self.request = request
        self.begun = False
        self.slices = source_paths.NO_SLICES
        self._ids: dict[int, str] = {}
        self.extra = request.extra
        self.target = api.name
        self.origin = api.origin
        self.foreign = request.origin is not None and request.origin != api.origin
        self.proved = not self.foreign or request.proofs == api.origin
        self.profile = profile
        self.flags = flags
        self.losses: list[Loss] = []
        self._unnamed = source_paths.Unnamed(api.name, request)
        self._nameless = source_paths.Nameless(api.name, api.words)
        self.unplaced = api.unplaced

    def call_id(self, item: ToolCall | ToolResult) -> str:
        """The id of a call or of a result, or a generated one (requirements D-X-7)."""
        if item.id is not None:
            return item.id
        if not self._ids:
            items = self.request.items
            self._ids = {id(items[index]): found for index, found in call_ids(items).items()}
        return self._ids[id(item)]

    def told_id(self, item: ToolCall | ToolResult, detail: str = "") -> str:
        """The same, and what has to be told of one that is generated. In a request of this API it was so before."""
        if item.id is not None:
            return item.id
        found = self.call_id(item)
        if self.request.origin != self.origin:
            detail = told(self.request, item, found) or detail
        if detail:
            self.lose(item.at, "invented", detail)
        return found

    def lose(self, path: str, kind: LossKind, detail: str) -> None:
        """Report a difference."""
        self.losses.append(Loss(path, kind, detail))

    def lose_setting(self, field: str, kind: LossKind, detail: str) -> None:
        """Report a difference in a setting, at its path in the source."""
        self.lose(self.request.paths.get(field, f"$.{field}"), kind, detail)

    def drop(self, body: Body, key: str, detail: str) -> None:
        """Leave out a member of the body, whether it is a setting or unnamed, and report it."""
        if body.pop(key, None) is not None or key in self.extra:
            self.extra = {name: value for name, value in self.extra.items() if name != key}
            if all(loss.path != self.request.paths.get(key, f"$.{key}") for loss in self.losses):  # of one member
                self.lose_setting(key, "dropped", detail)

    def lose_member(self, thing: Struct, field: str, kind: LossKind, detail: str, at: str = "") -> None:
        """Report a difference in a field of an item, or of what stood at a path."""
        self.lose(source_paths.member_path(self.request.words, thing, at, field), kind, detail)

    def lose_unplaced(self, thing: Struct, at: str = "") -> None:
        """Report all that an item says and that has no place here, or a part, a tool or a setting from a path."""
        for field, kind, detail in self.unplaced.said_by(thing):
            self.lose_member(thing, field, kind, detail, at)

    def lose_file_id(self, at: str) -> None:
        """Report the id of a file that another provider gave. The origins of a provider's APIs begin alike."""
        origin = self.request.origin
        if origin is not None and origin.partition("-")[0] != self.origin.partition("-")[0]:
            self.lose(at, "approximated", "a file id means something only to the API that gave it")

    def lose_end(self) -> None:
        """Report that a last item is not finished, which no API can say but of an answer."""
        last = self.request.items[-1] if self.request.items else None
        if last is not None and last.open and not isinstance(last, Assistant):
            kind = last.kind.replace("_", " ")
            self.lose(last.at, "approximated", f"an unfinished {kind} is written as a finished one")

    def put_extra(self, body: Body, extra: Extra, at: str, shared: Container[str] = ()) -> None:
        """Write unnamed members into `body` where they came from, or report each when the target is another API.

        `shared`: those that mean the same there as here, whichever API they came from; a null says nothing.
        What items and tools from no API say means nothing here: what this API has a meaning for is reported.
        """
        if self.request.origin is None and (at[:1] != "$" or at.startswith("$.tools[")):
            self._nameless.put(body, extra, at, self.losses)
        elif not self.foreign:
            merge(body, extra)
        else:
            for key, value in extra.items():
                if key in shared and value != NULL:
                    body[key] = value
                else:
                    self._unnamed.lose(key, value, at, self.losses)

    def put_envelope(self, message: Body, item: Item, *, named: bool = False) -> None:
        """Write the unnamed members of the message around an item. `named`: it may have a name, which a transcript
        gives a turn without a text, too. That of another message written as one with it stays."""
        if not item.envelope:
            return
        envelope, at = item.envelope, source_paths.message_path(item.at)
        if self.request.origin is None and "name" in envelope:
            name = plain(envelope["name"])
            named = named and isinstance(name, str)
            if not named or message.setdefault("name", name) != name:
                detail = "one message has one name" if named else f"{self.target} has no name for such a turn"
                self.lose(f"{at}.name", "dropped", detail)
            envelope = {key: value for key, value in envelope.items() if key != "name"}
        self.put_extra(message, envelope, at)


# The contract.


Calls = Literal["live", "whole"]


class Reply(Struct, frozen=True):
    """How an answer is told: what a server decides, and neither the request nor the model says.

    `id` and `created` (Unix seconds): those of the response; else they are what the response says, or made from what
    it holds, so that the same response is the same bytes. `completed`: asked when the answer was complete, None as long
    as it is not; for an API that says so. `usage`: what is known before the model begins, the tokens of
    the prompt, for an API whose streams begin with it. `reasoning_name`: the member for thoughts, where an API has no
    official one. `incomplete_as`: the status of an answer that met a limit; some clients take only `completed` for an
    end. `request_id`: that of errors, where a body holds one. `choice`: which of several answers to a request this is,
    for an API that numbers them. `any_stop`: a stop string that was met is the client's, though the request lists none.
    `direct`: the model made its calls itself, and no program did for it, for an API that says so. `sampling`: what the
    model samples with, by the names of settings, as far as that is known, for an API that says so. `members`: more.
    `calls`: whether a stream tells the arguments of calls as they come, or each call when it is complete.
    """

    id: str | None = None
    created: int | None = None
    completed: Callable[[], int | None] | None = None
    usage: Usage | None = None
    reasoning_name: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    incomplete_as: Literal["incomplete", "completed"] = "incomplete"
    request_id: str | None = None
    choice: int = 0
    any_stop: bool = False
    direct: bool = False
    sampling: Mapping[str, Any] = {}
    members: Mapping[str, Any] = {}
    calls: Calls = "live"


PLAIN = Reply()
"""An answer about which nobody has decided anything."""


class Api(ABC):
    """An API. Subclasses set the class attributes and write `read` and `write` for requests, `reader` and `writer` for
    answers.

    `origin` is the API's name in the META block of an archived transcript; `request_id` is the header that names a
    request. `flags` maps the names of render options to their allowed values, default first. `typed` gives the wire
    types of large members, which are then decoded together with the body in one pass; `read` must take them as JSON
    too, because a body with any odd member is read in two. `serving`: what a server of it does beside answering.
    `words`: what members of the model are called in its bodies, where that is something else. `unplaced`: fields of the
    model that its bodies have no member for. `signs`: members that only its request bodies have, and how surely, and
    `answer_signs` those of its answers and their events. `has_objects`: arguments are an object there, and no text.
    `framings`: how a stream is framed, by what a request says as its member `stream`, in JSON; the first of them is the
    one that other programs write.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    endpoint: ClassVar[str]
    origin: ClassVar[str]
    serving: ClassVar[Serving]
    request_id: ClassVar[str] = "x-request-id"
    profiles: ClassVar[tuple[str, ...]] = (OFFICIAL,)
    flags: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    options: ClassVar[Sequence[Option]]
    typed: ClassVar[Mapping[str, Any]] = {}
    words: ClassVar[source_paths.Words] = {}
    unplaced: ClassVar[source_paths.Unplaced] = source_paths.Unplaced({})
    signs: ClassVar[Mapping[str, int]] = {}
    answer_signs: ClassVar[Mapping[str, int]] = {}
    has_objects: ClassVar[bool] = False
    framings: ClassVar[Mapping[bytes, Framing]] = {b"true": SSE}

    def __init__(self) -> None:
        types = {option.key: option.wire for option in self.options} | dict(self.typed)
        members = [(name, type_ | UnsetType, UNSET) for name, type_ in types.items()]
        self._decode = msgspec.json.Decoder(
            msgspec.defstruct("Body", members, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False)
        ).decode
        self._defaults = {name: values[0] for name, values in self.flags.items()}
        self._by_key = {option.key: option for option in self.options}
        places = {field: index for index, field in enumerate(Settings.__struct_fields__)}
        self._writers = [(option.key, places.get(option.plain, -1), option.write) for option in self.options]
        known = {field for option in self.options for field in option.fields}
        self._foreign_fields = [(index, field) for field, index in places.items() if field not in known]

    @abstractmethod
    def read(self, members: dict[str, Any], request: Request) -> None:
        """Turn messages and tools into items and tools. Removes from `members` what it has read.

        A member named in `typed` is JSON or of its type.
        """

    @abstractmethod
    def write(self, body: Body, rendering: Rendering) -> None:
        """Write items and tools into `body`."""

    def claims(self, members: Mapping[str, Json]) -> int:
        """How surely a body without a label is one of this API, from its members: 0 no, more is surer (D-U-21)."""
        return max((sure for name, sure in self.signs.items() if name in members), default=0)

    def claims_response(self, members: Mapping[str, Json]) -> int:
        """The same of a body that may be an answer of this API: 0 no, more is surer."""
        return max((sure for name, sure in self.answer_signs.items() if name in members), default=0)

    def claims_event(self, name: str, members: Mapping[str, Json]) -> int:
        """The same of an event of a stream, from its name, if it has one, and the members of its data."""
        return self.claims_response(members)

    def parse_request(self, source: Source) -> Request:
        """A request body (bytes, str or a dict) as a `Request`. Raises InvalidRequest with the place."""
        data = body_bytes(source)
        try:
            said = dict(self._decode(data).__rich_repr__())  # the members said: nothing else finds them as fast
        except (msgspec.DecodeError, RecursionError):
            said = read_object(data)
        request = self.parse_members(said)
        request.source = SourceBody(data)
        return request

    def parse_members(self, members: dict[str, Any]) -> Request:
        """The same from a body whose top level is read already. Takes the members apart."""
        members, request = self.named(members), Request(origin=self.origin, words=self.words)
        self.read(members, request)
        self.read_options(members, request)
        return request

    def named(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members of a body under the names that `read` knows, where a body may have others."""
        return members

    def read_options(self, members: dict[str, Any], request: Request) -> None:
        """Settings from the members that the options table names; every other member goes to `request.extra`."""
        by_key, extra, settings = self._by_key, request.extra, request.settings
        for key, value in members.items():
            option = by_key.get(key)
            if option is None:
                extra[key] = value
            elif type(value) is RawJson:
                if value == NULL:
                    extra[key] = NULL
                else:
                    option.read(request, value, f"$.{key}")
            elif value is None:
                extra[key] = NULL
            else:  # read with the body around it
                plain = option.plain
                setattr(settings, plain, value)
                if key != plain:
                    request.paths[plain] = f"$.{key}"

    def render_request(
        self, request: Request, *, profile: str = OFFICIAL, strict: bool = False, **flags: str
    ) -> Rendered[Body]:
        """The request as a body of this API, with the losses. `strict` raises LossyConversion if there are any.

        Raises InvalidConversation for a request that a program has put together wrongly.
        """
        body: Body = {}
        try:
            check_words(request.settings)
            if request.origin != self.origin:
                items = objects_in_one_spelling(request.items)
                if items is not request.items:
                    request = replace(request, conversation=Conversation(list(items), request.tools))
            opened = only_opened(request)
            if opened is not None:
                request = replace(request, conversation=Conversation(request.items[:-1], request.tools))
            rendering = self.rendering(request, profile, flags)
            rendering.begun = opened is not None
            if isinstance(opened, Thinking):
                detail = f"a thought is only opened here; a setting of {self.name} asks for one"
                rendering.lose(opened.at or f"items[{len(request.items)}]", "dropped", detail)
            self.write_options(body, rendering)
            self.write(body, rendering)
            rendering.put_extra(body, rendering.extra, "$")
            for key in request.archived:
                rendering.lose(f"$.{key}", "dropped", "only an archive has a place for this")
            rendering.losses += attribute_losses(request.items)
            losses = source_paths.at_source(request, rendering.losses)
        except MISTAKES:
            refuse_mistakes(request=request)
            raise
        if strict and losses:
            raise LossyConversion(losses, self.name)
        return Rendered(body, losses)

    @abstractmethod
    def reader(self) -> Answer:
        """Return what reads one answer, whole or as a stream."""

    @abstractmethod
    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> StreamRenderer:
        """Return what writes one answer to a request: the whole of a `response`, or a stream that has yet to begin."""

    def parse_response(self, body: Source) -> Response:
        """A whole response body; of several answers the first. Raises InvalidRequest for what is none, UpstreamError
        for an error body."""
        return self.reader().whole(Json(body_bytes(body)))

    def parse_responses(self, body: Source) -> list[Response]:
        """Every answer in a response body: one, but for an API that gives several at once. Raises the same."""
        return [self.parse_response(body)]

    def render_response(
        self, response: Response, request: Request, *, strict: bool = False, reply: Reply = PLAIN
    ) -> Rendered[Body]:
        """A response as the body that a client of this API gets, with the losses.

        The model's name is the request's; ids that the response has not are made up, and always the same for the same
        response. `strict` raises LossyConversion. Raises UpstreamError for an answer that failed, InvalidConversation
        for what a program has put together wrongly.
        """
        try:
            writer = self.writer(request, reply, self.spelled(response))
            body, losses = writer.answer(), writer.losses
            losses += attribute_losses(response.items)
        except MISTAKES:
            refuse_mistakes(response=response, request=request)
            raise
        if strict and losses:
            raise LossyConversion(losses, self.name)
        return Rendered(body, losses)

    def spelled(self, response: Response) -> Response:
        """An answer with arguments that came as objects in one spelling, if it is not of this API."""
        items = response.items if response.origin == self.origin else objects_in_one_spelling(response.items)
        return response if items is response.items else replace(response, items=list(items))

    def stream_parser(self) -> StreamParser:
        """A parser for a stream of this API."""
        return StreamParser(self.reader(), tuple(self.framings.values()))

    def stream_renderer(self, request: Request, reply: Reply = PLAIN, *, calls: Calls | None = None) -> StreamRenderer:
        """A writer of the stream that answers a request. `calls`: instead of what the reply says of them."""
        try:
            return self.writer(request, reply if calls is None else replace(reply, calls=calls), None)
        except MISTAKES:
            refuse_mistakes(request=request)
            raise

    @abstractmethod
    def render_error(self, error: TurnscriptError, *, request_id: str | None = None) -> tuple[int, bytes]:
        """Status and body of an error, in the shape that clients of this API branch on."""

    def headers(self, error: TurnscriptError | None = None, *, request_id: str | None = None) -> dict[str, str]:
        """The headers that clients of this API look for, of a good answer or of an error: which request it was, when to
        try again, and whether."""
        headers = {} if request_id is None else {self.request_id: request_id}
        return headers if error is None else headers | retry_headers(fault_of(error))

    def rendering(self, request: Request, profile: str, flags: Mapping[str, str]) -> Rendering:
        """A fresh rendering with its profile and flags checked and defaults filled in.

        Who asks for a profile or a flag wants a request arranged so, and not as it came.
        """
        if profile not in self.profiles:
            raise UnknownName(f"profile of {self.name}", profile, self.profiles)
        for name, value in flags.items():
            if name not in self.flags:
                raise UnknownName(f"option of {self.name}", name, self.flags)
            if value not in self.flags[name]:
                raise UnknownName(f"value for {name} of {self.name}", value, self.flags[name])
        request.locate()
        arranged = self._defaults | flags if flags else self._defaults  # type: ignore[operator]
        rendering = Rendering(request, self, profile, arranged)
        if request.source is not None and request.origin == self.origin and profile == OFFICIAL and not flags:
            rendering.slices = self._slices(request.source)
        return rendering

    def write_options(self, body: Body, rendering: Rendering) -> None:
        """Write every setting that this API knows, and report the others."""
        values = msgspec.structs.astuple(rendering.request.settings)
        kept = rendering.slices.settings(rendering.request, self.options)
        for key, index, write in self._writers:
            if key in kept:
                value = kept[key]
            else:
                value = values[index] if index >= 0 else write(rendering)
            if value is not None:
                body[key] = value
        for index, field in self._foreign_fields:
            if values[index] is not None:
                rendering.lose_setting(field, "dropped", f"{self.name} has no such setting")

    def fold(self, request: Request) -> Request:
        """A request of this API as an archive keeps it: settings as wire members in `extra`, as they stand there, and
        as `patch` how the body that it came from differs from what is written for it.

        What this API has no word for, or would read back as something else, stays in `settings`.
        """
        request.locate()
        source = request.source
        rendering = Rendering(request, self, OFFICIAL, self._defaults)
        if source is not None:
            rendering.slices = self._slices(source, whole=False)
        body: Body = {}
        self.write_options(body, rendering)
        rendering.put_extra(body, request.extra, "$")
        extra = {key: RawJson(msgspec.json.encode(value)) for key, value in body.items()}
        folded = Request(conversation=request.conversation, extra=extra, origin=request.origin)
        folded.paths, folded.words, folded.archived = request.paths, request.words, dict(request.archived)
        if source is not None and not source.is_partial and (patch := self._patch(request, rendering.slices)):
            folded.archived[PATCH] = patch
        again = Request(extra=dict(extra))
        self._unfold_options(again)
        for field in Settings.__struct_fields__:
            if (said := getattr(request.settings, field)) != getattr(again.settings, field):
                setattr(folded.settings, field, said)
        return folded

    def _slices(self, source: SourceBody, *, whole: bool = True) -> source_paths.Slices:
        """Read the body again that a request came from. `whole`: what it says of the conversation is asked for, too."""
        members, said = self.named(read_object(source.data)), Request(origin=self.origin)
        unread: dict[str, Any] = dict(members)
        if whole and not source.is_partial:
            self.read(unread, said)
        self.read_options(unread, said)
        return source_paths.Slices(said, members, source.places)

    def _patch(self, request: Request, slices: source_paths.Slices) -> Json | None:
        """Return how the conversation as it came differs from the one that is written."""
        written = self._written(request)
        named = {option.key for option in self.options} | request.extra.keys()
        if are_equal(written, {key: value for key, value in slices.members.items() if key not in named}):
            return None  # which is soon known of most
        as_it_came: Body = {}
        self.write(as_it_came, self.rendering(request, OFFICIAL, {}))
        return difference(written, as_it_came)

    def _written(self, request: Request) -> Body:
        """Return the conversation as this API has it, whatever body it came from."""
        body: Body = {}
        self.write(body, Rendering(request, self, OFFICIAL, self._defaults))
        return body

    def unfold(self, request: Request) -> None:
        """The inverse of `fold`: settings from the members that wait untyped in `extra`, under those typed already, and
        the body that the request came from, if the patch still fits."""
        members = request.extra
        patch = request.archived.pop(PATCH, None)
        self._unfold_options(request)
        if patch is None:
            if members:
                request.source = SourceBody(msgspec.json.encode(members), is_partial=True)
            return
        try:
            written = RawJson(msgspec.json.encode(self._written(request)))
            data = msgspec.json.encode({**read_object(patched(written, patch)), **members})
            again = self.parse_members(read_object(data)).items
        except InvalidRequest:  # the archive was changed
            return
        places = {item.at: one.at for item, one in zip(request.items, again, strict=False)}
        request.source = SourceBody(data, places)

    def _unfold_options(self, request: Request) -> None:
        members, request.extra = request.extra, {}
        typed, request.settings = request.settings, Settings()
        self.read_options(members, request)
        for field in Settings.__struct_fields__:
            if (said := getattr(typed, field)) is not None:
                setattr(request.settings, field, said)


def merge(body: Body, extra: Extra) -> None:
    """Add unnamed members to a wire object. Named ones win; an object meeting an object is merged, member by member."""
    for key, value in extra.items():
        present = body.setdefault(key, value)
        if isinstance(present, dict) and bytes(value)[:1] == b"{":
            merge(present, read_object(value))


def leftover(rest: Mapping[str, Json]) -> Json:
    """The unnamed members of a nested object as one JSON object, to be kept in the `extra` around it under its key."""
    return RawJson(msgspec.json.encode(rest))
