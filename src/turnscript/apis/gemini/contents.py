"""Owns contents: parts of the wire as items and parts of the model, and the other way, in requests and in answers.

A part is known by the one member that holds its data. One that has none of those with a name, or several of them, stays
verbatim, as does a content of an unknown role, or without parts. A result is an object: `{"output": text}` is that
text, `{"error": text}` that of a tool that failed, and any other is told as the JSON that it is.
"""

from __future__ import annotations

import mimetypes
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any

from turnscript.apis.api import Body, Rendering
from turnscript.apis.gemini.objects import is_list, is_object, kept, members_of, text_in, without
from turnscript.apis.shared.thoughts import thought_texts
from turnscript.core import message_groups as grouping
from turnscript.core.call_pairing import call_ids
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Raw,
    Refusal,
    ResponseFormat,
    System,
    Text,
    Thinking,
    ThinkingMode,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    object_arguments,
    readable,
)
from turnscript.core.data_urls import is_data_url, split_data_url
from turnscript.core.json_text import NULL, Json, read_list, read_object
from turnscript.core.json_text import is_object as is_object_text
from turnscript.core.message_groups import group, mark_turns
from turnscript.core.signatures import VERSION
from turnscript.core.source_paths import Unplaced, part_path
from turnscript.core.validation import kind_of, text_only
from turnscript.core.wire import mismatch, missing

DATA = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
]
"""The members of which a part has one."""

SIGNATURE = "thoughtSignature"
MODEL, USER = "model", "user"
_SIDES = {MODEL: "assistant", USER: "user", "function": "user"}
JOINS = grouping.JOINS | {
    ("tool_result", "tool_result"),
    ("thinking", "thinking"),
    ("assistant", "thinking"),
    ("tool_call", "thinking"),
    ("tool_call", "assistant"),
}
SIDES = {**grouping.SIDES, "tool_result": "user"}


# Reading.


def read_contents(value: Json | None, items: list[Item]) -> None:
    """Append the items of all contents."""
    if value is None:
        raise missing("$", "contents", "an array of contents")
    if not is_list(value):
        raise mismatch(value, "$.contents", "an array of contents")
    for index, content in enumerate(read_list(value)):
        mark_turns(items, read_content(content, f"$.contents[{index}]"), JOINS)


def read_content(value: Json, at: str) -> list[Item]:
    """The items of a content."""
    members = members_of(value, at)
    parts = members.get("parts")
    role = USER if members.get("role", NULL) == NULL else text_in(members, "role")
    if role not in _SIDES or not is_list(parts):
        return [Opaque(type="content", value=value, at=at)]
    side = _SIDES[role]
    items: list[Item] = []
    for index, part in enumerate(read_list(parts)):
        place = f"{at}.parts[{index}]"
        found = read_part(part, place, model=side == "assistant")
        if isinstance(found, Item):
            items.append(found)
        elif items and isinstance(items[-1], User | Assistant):
            items[-1].content.append(found)
        else:
            items.append((Assistant if side == "assistant" else User)(content=[found], at=place))
    if not items:
        return [Opaque(type="content", value=value, at=at)]
    rest = without(members, ("role", "parts"))
    if rest:
        items[0].envelope = rest
    return items


def read_system(value: Json | None, items: list[Item]) -> bool:
    """Append the instructions, if they are a content with parts; False for anything else."""
    at = "$.systemInstruction"
    if not is_object(value):
        return False
    members = members_of(value, at)
    role, parts = text_in(members, "role"), members.get("parts")
    if not is_list(parts) or (role is None and members.get("role", NULL) != NULL):
        return False
    found = [read_part(part, f"{at}.parts[{index}]", model=None) for index, part in enumerate(read_list(parts))]
    content = [part for part in found if isinstance(part, Part)]
    items.append(System(content=content, extra=without(members, ("role", "parts")), at=at))
    return True


def read_part(value: Json, at: str, model: bool | None) -> Part | Item:
    """A part, or the item that it is. `model`: the model said it; None in instructions, which hold parts alone."""
    members = members_of(value, at)
    kinds = [kind for kind in DATA if kind in members and members[kind] != NULL]
    kind = kinds[0] if len(kinds) == 1 else "part"
    if kind in _READERS:
        found = _READERS[kind](members, at, model)
        if found is not None:
            return found
    return Raw(type=kind, value=value)


def _read_text(members: dict[str, Json], at: str, model: bool | None) -> Part | Item | None:
    text = text_in(members, "text")
    if text is None:
        raise mismatch(members["text"], f"{at}.text", "a string")
    if members.get("thought", NULL) not in (NULL, Json(b"true"), Json(b"false")):
        raise mismatch(members["thought"], f"{at}.thought", "true or false")
    if not (model and members.get("thought") == Json(b"true")):
        return Text(text=text, extra=without(members, ("text",)))
    thought = Thinking(content=[Text(text=text)], extra=without(members, ("text", "thought")), at=at)
    signature = text_in(members, SIGNATURE)
    if signature is not None:
        thought.signature = _unwrapped(signature)
        del thought.extra[SIGNATURE]
    return thought


_KINDS: dict[str, type[Part]] = {"image/": Image, "audio/": Audio, "application/pdf": Document, "text/": Document}
"""Media types of data that the model has a name for begin so."""


def _kind_of(mime: str | None, data: str | None) -> type[Part] | None:
    """Return the part that data of a type are in the model; None for a film, and for a text that is no base64."""
    kind = next((kind for start, kind in _KINDS.items() if (mime or "").startswith(start)), None)
    if kind is Document and mime != "application/pdf":
        try:
            b64decode(data or "", validate=True).decode()
        except ValueError:
            return None
    return kind


def _read_blob(members: dict[str, Json], at: str, model: bool | None) -> Part | None:
    blob = members_of(members["inlineData"], f"{at}.inlineData")
    mime, data, name = (text_in(blob, key) for key in ("mimeType", "data", "displayName"))
    kind = _kind_of(mime, data)
    if mime is None or data is None or kind is None:
        return None
    extra = without(members, ("inlineData",))
    if kind is not Document:
        extra = kept(extra, "inlineData", without(blob, ("mimeType", "data")))
        if kind is Image:
            return Image(data=data, media_type=mime, extra=extra)
        return Audio(data=data, format=mime.removeprefix("audio/"), extra=extra)
    named = ("mimeType", "data") if name is None else ("mimeType", "data", "displayName")
    extra = kept(extra, "inlineData", without(blob, named))
    return Document(data=data, media_type=mime, filename=name, extra=extra)


def _read_file(members: dict[str, Json], at: str, model: bool | None) -> Part | None:
    file = members_of(members["fileData"], f"{at}.fileData")
    file = members_of(members["fileData"], f"{at}.fileData")
    uri, mime = text_in(file, "fileUri"), text_in(file, "mimeType") or ""
    if uri is None or is_data_url(uri):
        return None
    extra = kept(without(members, ("fileData",)), "fileData", without(file, ("fileUri",)))
    return (Image if mime.startswith("image/") else Document)(url=uri, extra=extra)


def _read_call(members: dict[str, Json], at: str, model: bool | None) -> Item | None:
    call = members_of(members["functionCall"], f"{at}.functionCall")
    name, id_, arguments = text_in(call, "name"), text_in(call, "id"), call.get("args")
    if not model or name is None or not (arguments in (None, NULL) or is_object(arguments)):
        return None
    item = ToolCall(name=name, id=id_, as_object=True, at=at)
    if arguments is not None and arguments != NULL:
        item.arguments = bytes(arguments).decode()
    named = ("name", "args") if id_ is None else ("name", "args", "id")
    item.extra = kept(without(members, ("functionCall",)), "functionCall", without(call, named))
    return item


def _read_result(members: dict[str, Json], at: str, model: bool | None) -> Item | None:
    result = members_of(members["functionResponse"], f"{at}.functionResponse")
    name, id_, response = text_in(result, "name"), text_in(result, "id"), result.get("response")
    if model is not False or name is None or not is_object(response):
        return None
    text, status = said_in(response)
    item = ToolResult(name=name, id=id_, status=status, content=[Text(text=text)], at=at)
    named = ("name", "response") if id_ is None else ("name", "response", "id")
    item.extra = kept(without(members, ("functionResponse",)), "functionResponse", without(result, named))
    return item


_READERS: dict[str, Callable[[dict[str, Json], str, bool | None], Part | Item | None]] = {
    "text": _read_text,
    "inlineData": _read_blob,
    "fileData": _read_file,
    "functionCall": _read_call,
    "functionResponse": _read_result,
}


def said_in(response: Json) -> tuple[str, str | None]:
    """The text of a result, and whether the tool failed."""
    members = read_object(response)
    if len(members) == 1:
        output, error = text_in(members, "output"), text_in(members, "error")
        if output is not None and not _is_bare(output) and bytes(response).count(b'"output"') == 1:
            return output, None
        if error is not None and bytes(response).count(b'"error"') == 1:
            return error, "error"
    return bytes(response).decode(), None


def _is_bare(text: str) -> bool:
    """Return whether a text is an object and nothing around it."""
    return text[:1] == "{" and text[-1:] == "}" and is_object_text(text)


def _unwrapped(signature: str) -> str:
    """A seal of ours as it was made; any other signature as it is. Signatures are base64 here, and seals are not."""
    try:
        seal = b64decode(signature, validate=True).decode("ascii")
    except ValueError:
        return signature
    return seal if seal.startswith(VERSION) and _wrapped(seal) == signature else signature


def _wrapped(signature: str) -> str:
    return b64encode(signature.encode()).decode() if signature.startswith(VERSION) else signature


# Writing.

_SILENT = {"text": ""}
_THOUGHTLESS = {"text": "", "thought": True}


def _without_place(*fields: str) -> dict[str, str]:
    return {field: f"a part has no {field} here" for field in fields}


_NAMED = _without_place("name", "id")
UNPLACED = Unplaced(
    {
        System: {"role": ("renamed", "{!r} is no role here"), **_NAMED},
        User: _NAMED,
        Assistant: {**_NAMED, **_without_place("phase")},
        Thinking: {
            **_without_place("redacted", "encrypted", "id"),
            "of": ("approximated", "{!r} becomes ordinary thinking"),
        },
        ToolCall: _without_place("item_id"),
        ToolResult: {
            "custom": ("approximated", "the result of a function: there are no free-text tools here"),
            **_without_place("item_id"),
        },
        Image: {"detail": "a picture has no detail level here"},
        Document: {"title": "a file has no title here", "context": "a file has no context here"},
        Tool: {"strict": "no function is strict here: a choice of tools may be VALIDATED"},
        ResponseFormat: dict.fromkeys(("name", "strict", "description"), "only the schema has a place here"),
        ThinkingMode: {"display": "how thinking is shown cannot be said here"},
    }
)


class Writer:
    """Writes the items of a request or of an answer. `own`: they are of this API, so that what has no name in the model
    means something here. `changes`: the changes of tools on the way, for who writes the tools."""

    def __init__(self, rendering: Rendering, items: Sequence[Item]) -> None:
        self.rendering = rendering
        self.own = rendering.request.origin == rendering.origin
        self.items = items
        self.changes: list[ToolsChange] = []
        self._called: dict[int, str] | None = None  # what the call that a result answers is called

    # A request.

    def write(self, body: Body) -> None:
        """Write `systemInstruction` and `contents`."""
        system = [item for item in self.items if isinstance(item, System)]
        others: list[Item] = []
        for item in self.items:
            if isinstance(item, ToolsChange):
                self.changes.append(item)
            elif isinstance(item, System):
                if others:
                    self.rendering.lose(item.at, "moved", "instructions stand before all contents here")
            else:
                others.append(item)
        kept = self.rendering.slices.member("systemInstruction", system)
        if kept is not None:
            body["systemInstruction"] = kept
        elif system:
            self._system(body, system)
        contents: list[Any] = []
        for value, run in self.rendering.slices.runs(others):
            contents += [value] if value is not None else map(self._content, group(run, JOINS, SIDES))
        body["contents"] = [one for one in contents if one is not None]

    def _system(self, body: Body, items: Sequence[System]) -> None:
        parts: list[Any] = []
        instruction: Body = {"parts": parts}
        for item in items:
            if len(items) > 1:
                self.rendering.lose(item.at, "approximated", "joined with the other instructions")
            self.rendering.lose_unplaced(item)
            before = len(parts)
            self._speech(item, parts, held=(Text, Refusal))
            if len(parts) == before:
                self.rendering.lose(item.at, "dropped", "instructions without a text are nothing here")
            self.rendering.put_extra(instruction, item.extra, item.at)
            self.rendering.put_envelope(instruction, item)
        if parts:
            body["systemInstruction"] = instruction

    def _content(self, items: Sequence[Item]) -> Any:
        first = items[0]
        if isinstance(first, Opaque) and not first.role:
            return self._verbatim(first)
        parts: list[Any] = []
        content: Body = {"role": MODEL if grouping.side_of(first, SIDES) == "assistant" else USER, "parts": parts}
        moved = False  # whether the last part stood in a result
        for item in items:
            if moved and isinstance(item, User):
                self.rendering.lose(item.at, "approximated", "joined with what the result before it holds")
            before = len(parts)
            self.parts(item, parts)
            moved = isinstance(item, ToolResult) and len(parts) > before + 1
            self.rendering.put_envelope(content, item)
        if not parts:
            return None
        return content

    def _verbatim(self, item: Opaque) -> Json | None:
        if self.own:
            return item.value
        self.rendering.lose(item.at, "dropped", f"{item.type}: only the API it came from knows what it is")
        return None

    # Items.

    def parts(self, item: Item, parts: list[Any]) -> None:
        """Append the parts that an item is."""
        if isinstance(item, User | Assistant):
            self.rendering.lose_unplaced(item)
            before = len(parts)
            self._speech(item, parts)
            if len(parts) == before and not item.content:
                self.rendering.lose(item.at, "dropped", "a content without parts is nothing here")
            self.rendering.put_extra({}, item.extra, item.at)
            if item.open and isinstance(item, Assistant):
                self.rendering.lose(item.at, "approximated", "a text to be continued is written as a finished one")
        elif isinstance(item, Thinking):
            self._think(item, parts)
        elif isinstance(item, ToolCall):
            self._call(item, parts)
        elif isinstance(item, ToolResult):
            self._result(item, parts)
        elif isinstance(item, Opaque) and (value := self._verbatim(item)) is not None:
            parts.append(value)

    def _speech(self, item: System | User | Assistant, parts: list[Any], held: tuple[type, ...] = ()) -> None:
        for index, part in enumerate(item.content):
            at = part_path(item, index)
            if held and not self.own and not isinstance(part, held) and readable(part) is None:
                self.rendering.lose(at, "dropped", f"instructions hold no {kind_of(part)} here")
            else:
                self.part(part, at, parts)

    def part(self, part: Part, at: str, parts: list[Any]) -> None:
        """Append a part, if it has a form here."""
        written = _WRITERS[type(part)](self, part, at)
        if part.extra:
            self.rendering.put_extra(written if isinstance(written, dict) else {}, part.extra, at)
        if written == _SILENT:
            self.rendering.lose(at, "dropped", "an empty text is no part here")
        elif written is not None:
            parts.append(written)

    def _text(self, part: Text, at: str) -> Body:
        return {"text": text_only(part.text)}

    def _refusal(self, part: Refusal, at: str) -> Body:
        self.rendering.lose(at, "approximated", "a refusal becomes text")
        return self._text(Text(text=part.text), at)

    def _image(self, part: Image, at: str) -> Body | None:
        self.rendering.lose_unplaced(part, at)
        return self._media(part, at, "image/png")

    def _audio(self, part: Audio, at: str) -> Body | None:
        if part.id is not None:
            self.rendering.lose(at, "dropped", "a sound by id means something only to the API that gave it")
        if part.data is None or part.format is None:
            self.rendering.lose(at, "dropped", "sound without data or format has no form here")
            return None
        return {"inlineData": {"mimeType": f"audio/{part.format}", "data": part.data}}

    def _document(self, part: Document, at: str) -> Body | None:
        self.rendering.lose_unplaced(part, at)
        if part.text is not None:
            self.rendering.lose(at, "approximated", "a plain text document is written as a text part")
            return self._text(Text(text=part.text), at)
        return self._media(part, at, "application/pdf")

    def _media(self, part: Image | Document, at: str, usual: str) -> Body | None:
        """A picture or a file: the first of its data and its URL that is given."""
        data, url, mime = part.data, part.url, part.media_type
        apart = split_data_url(url) if url is not None and data is None else None
        if apart is not None:
            self.rendering.lose(at, "approximated", "a data URL is data here")
            (mime, data), url = apart, None
        if part.file_id is not None or (data is None and url is None):
            self.rendering.lose(at, "dropped", "a file by id means something only to the API that gave it")
        if data is not None and url is not None:
            self.rendering.lose(at, "dropped", "a file has data or a URL here: the data are kept")
        if data is None and url is None:
            return None
        name = part.filename if isinstance(part, Document) else None
        named = {} if name is None else {"displayName": name}
        if data is None:
            if named:
                self.rendering.lose_member(part, "filename", "renamed", "a file has a displayName here", at)
            return {"fileData": {**self._type_of_url(part, at, url or ""), "fileUri": url, **named}}
        if not mime:
            self.rendering.lose(at, "invented", f"no media type is given: {usual!r}")
            mime = usual
        elif _kind_of(mime, data) is not type(part):
            self.rendering.lose(at, "approximated", f"what has the type {mime!r} is told by that alone here")
        return {"inlineData": {"mimeType": mime, "data": data, **named}}

    def _type_of_url(self, part: Image | Document, at: str, url: str) -> Body:
        """The media type of what stands at a URL; a server wants one, and takes a file without one for no picture."""
        if self.own:
            return {}
        mime = part.media_type or mimetypes.guess_type(url)[0]
        if mime is None and isinstance(part, Image):
            mime = "image/jpeg"
        if part.media_type is None and mime is not None:
            self.rendering.lose(at, "invented", f"no media type is given: {mime!r}")
        elif mime is not None:
            self.rendering.lose(at, "approximated", "the media type of a URL is a hint for the server here")
        return {} if mime is None else {"mimeType": mime}

    def _raw(self, part: Raw, at: str) -> Any:
        if self.own:
            return part.value
        text = readable(part)
        what = "is written as its text" if text else f"there is nothing like {part.type!r} here"
        self.rendering.lose(at, "approximated" if text else "dropped", what)
        return {"text": text} if text else None

    def _think(self, item: Thinking, parts: list[Any]) -> None:
        self.rendering.lose_unplaced(item)
        texts = thought_texts(self.rendering, item)
        own = self.rendering.proved or self.rendering.request.origin is None
        proof = item.seal or (item.signature if own else None)
        if item.signature is not None and proof is None:
            self.rendering.lose_member(item, "signature", "dropped", "only the API that made it can read it")
        written: Body = {"text": "".join(texts), "thought": True}
        if proof is not None:
            written[SIGNATURE] = _wrapped(proof)
        self.rendering.put_extra(written, item.extra, item.at)
        if written == _THOUGHTLESS:
            self.rendering.lose(item.at, "dropped", "a thought without text is nothing here")
        else:
            parts.append(written)

    def _call(self, item: ToolCall, parts: list[Any]) -> None:
        arguments, why = object_arguments(item)
        if why:
            self.rendering.lose(item.at, "approximated", why)
        call: Body = {"name": self._name(item, item.name), "args": Json(arguments.encode())}
        if item.id is not None:
            call["id"] = item.id
        self.rendering.lose_unplaced(item)
        self._put(item, parts, {"functionCall": call})

    def _put(self, item: Item, parts: list[Any], written: Body) -> None:
        self.rendering.put_extra(written, item.extra, item.at)
        parts.append(written)

    def _name(self, item: ToolCall | ToolResult, name: str) -> str:
        if item.namespace is None:
            return name
        self.rendering.lose_member(item, "namespace", "renamed", "tools have no namespaces here: it begins the name")
        return f"{item.namespace}__{name}"

    def _result(self, item: ToolResult, parts: list[Any]) -> None:
        name = self._name_of_call(item)
        if name is not None and item.name is not None and item.name != name:
            self.rendering.lose_member(item, "name", "dropped", "a result has the name of its call here")
        elif name is None and item.name is not None:
            name = self._name(item, item.name)
        if name is None:
            name = item.id or "tool"
            self.rendering.lose(item.at, "invented", f"a result says the name of its tool here: {name!r}")
        if item.namespace is not None and not name.startswith(f"{item.namespace}__"):
            self.rendering.lose_member(item, "namespace", "dropped", "a result has the name of its call here")
        result: Body = {"name": name, "response": self._response(item)}
        if item.id is not None:
            result["id"] = item.id
        self.rendering.lose_unplaced(item)
        self._put(item, parts, {"functionResponse": result})
        for index, part in enumerate(item.content):
            if isinstance(part, Image | Audio | Document) and readable(part) is None:
                at = part_path(item, index)
                self.rendering.lose(at, "moved", "a result holds text here: it follows as a part of its own")
                self.part(part, at, parts)

    def _name_of_call(self, item: ToolResult) -> str | None:
        if self._called is None:
            ids = call_ids(self.items)
            calls = [(ids[at], one) for at, one in enumerate(self.items) if isinstance(one, ToolCall)]
            named = {id_: call.full_name for id_, call in calls}
            self._called = {id(one): named[ids[at]] for at, one in enumerate(self.items) if ids.get(at) in named}
        return self._called.get(id(item))

    def _response(self, item: ToolResult) -> Any:
        texts: list[str] = []
        for index, part in enumerate(item.content):
            text = readable(part)
            if text is None and not isinstance(part, Image | Audio | Document):
                self.rendering.lose(part_path(item, index), "dropped", f"a result holds no {kind_of(part)} here")
            elif text is not None:
                texts.append(text)
                self.rendering.put_extra({}, part.extra, part_path(item, index))
                if not isinstance(part, Text):
                    self.rendering.lose(part_path(item, index), "approximated", "a result holds plain text here")
        if len(texts) != 1 or len(item.content) != 1:
            self.rendering.lose(item.at, "approximated", "a result is one text here")
        text = "\n\n".join(texts)
        if item.status == "error":
            return {"error": text}
        if item.status is not None:
            self.rendering.lose_member(item, "status", "dropped", "a result says here that it failed")
        if not _is_bare(text):
            return {"output": text}
        if said_in(Json(text.encode())) != (text, None):
            self.rendering.lose(item.at, "approximated", "an object of this form is read as the text in it here")
        return Json(text.encode())


_WRITERS: dict[type, Callable[[Writer, Any, str], Any]] = {
    Text: Writer._text,
    Image: Writer._image,
    Audio: Writer._audio,
    Document: Writer._document,
    Refusal: Writer._refusal,
    Raw: Writer._raw,
}
