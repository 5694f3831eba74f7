"""Owns content: wire parts to model parts and back, and the string, list, null or absent that holds them.

| wire | model |
| --- | --- |
| `text` | `Text` |
| `image_url{url, detail}`, or the URL alone | `Image`, a base64 data URL split into `media_type` and `data` |
| `input_audio{data, format}` | `Audio` |
| `file{file_data, file_id, filename}` | `Document` |
| `refusal` | `Refusal` |
| any other | `Raw` |

Thoughts stand in a content, too, as Mistral's models say them: in a part of type `thinking` that holds parts.

    {"type": "thinking", "thinking": [{"type": "text", "text": "..."}]}

Each is a `Thinking` with the slot `WITHIN`, and the text before and behind it an `Assistant` each, in their order; in
a body of this API it stands where it was again. A part of that type that holds no list of parts is another maker's,
and stays a `Raw`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import UNSET

from turnscript.apis.api import Body, Rendering
from turnscript.apis.openai_chat.objects import (
    AnyPart,
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    RefusalPart,
    TextPart,
    with_inner,
)
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Document,
    Extra,
    Image,
    Item,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    readable,
)
from turnscript.core.data_urls import data_url, split_data_url
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, read_object
from turnscript.core.source_paths import content_path, part_path
from turnscript.core.validation import kind_of
from turnscript.core.wire import Reader, Verbatim, extra_of, given

BREAKPOINT = "prompt_cache_breakpoint"
_SHARED = (BREAKPOINT,)
_PLAIN_TEXT = {"type", "text"}


# Reading.


def parts_of(content: Any) -> list[Part]:
    """The parts of a content that is no string; none for null and absent."""
    if not content:
        return []
    return [_READERS[type(part)](part) for part in content]


def _read_text(part: TextPart) -> Part:
    if part.rest is None and part.cache_control is UNSET and part.prompt_cache_breakpoint is UNSET:
        return Text(text=part.text)
    return Text(text=part.text, extra=extra_of(part, "cache_control", BREAKPOINT))


def _read_image(part: ImagePart) -> Part:
    if isinstance(part.image_url, str):
        image, extra = ImageUrl(url=part.image_url), extra_of(part, BREAKPOINT)
    else:
        image, extra = part.image_url, with_inner(extra_of(part, BREAKPOINT), "image_url", part.image_url)
    detail = given(image.detail)
    media_type, data = split_data_url(image.url) or (None, None)
    if data is None:
        return Image(url=image.url, detail=detail, extra=extra)
    return Image(media_type=media_type, data=data, detail=detail, extra=extra)


def _read_audio(part: AudioPart) -> Part:
    extra = with_inner(extra_of(part, BREAKPOINT), "input_audio", part.input_audio)
    return Audio(data=part.input_audio.data, format=part.input_audio.format, extra=extra)


def _read_file(part: FilePart) -> Part:
    extra = with_inner(extra_of(part, BREAKPOINT), "file", part.file)
    file = part.file
    media_type, data = None, given(file.file_data)
    if data is not None:
        media_type, inner = split_data_url(data) or (None, None)
        data = data if inner is None else inner
    return Document(
        data=data, media_type=media_type, file_id=given(file.file_id), filename=given(file.filename), extra=extra
    )


def _read_refusal(part: RefusalPart) -> Part:
    return Refusal(text=part.refusal, extra=extra_of(part))


def _read_verbatim(part: Verbatim) -> Part:
    return Raw(type=part.tag, value=part.value)


_READERS: dict[type, Callable[[Any], Part]] = {
    TextPart: _read_text,
    ImagePart: _read_image,
    AudioPart: _read_audio,
    FilePart: _read_file,
    RefusalPart: _read_refusal,
    Verbatim: _read_verbatim,
}


# Writing. What a role may hold by the API's types; a request of this API itself is written back as it came.

SYSTEM_PARTS: frozenset[type] = frozenset({Text})
TOOL_PARTS = SYSTEM_PARTS
USER_PARTS: frozenset[type] = frozenset({Text, Image, Audio, Document})
ASSISTANT_PARTS: frozenset[type] = frozenset({Text, Refusal})


def contents(rendering: Rendering, item: Item, parts: list[Part], allowed: frozenset[type] | None) -> Any:
    """The content of a message: a string for one plain text, else a list. `allowed` None: any part."""
    if len(parts) == 1:
        part = parts[0]
        if type(part) is Text and not part.extra:
            return part.text
    return collapsed(written_parts(rendering, item, enumerate(parts), allowed), rendering, item, parts)


def collapsed(written: list[Any], rendering: Rendering, item: Item, parts: list[Part]) -> Any:
    """Written parts as a content. One that lost all that made it more than a text is a string again.

    A content without parts becomes an empty text: servers refuse an empty list.
    """
    if len(written) == 1 and type(written[0]) is dict and written[0].keys() == _PLAIN_TEXT:
        return written[0]["text"]
    if not written and not parts:
        rendering.lose(content_path(item), "approximated", "a content without parts is written as an empty text")
    return written or ""


def written_parts(
    rendering: Rendering, item: Item, parts: Iterable[tuple[int, Part]], allowed: frozenset[type] | None
) -> list[Any]:
    """Each part as a wire object; those that have no place are left out and reported. Indexes count in the item."""
    written: list[Any] = []
    value: Any
    for index, part in parts:
        if allowed is not None and type(part) is Document and part.text is not None:
            value = _write_plain_document(rendering, part, part_path(item, index))
        elif allowed is not None and type(part) not in allowed:
            value = _write_misfit(rendering, part, part_path(item, index))
        else:
            value = _WRITERS[type(part)](rendering, part, item, index)
        if value is not None:
            written.append(value)
    return written


def _write_text(rendering: Rendering, part: Text, item: Item, index: int) -> Body:
    body: Body = {"type": "text", "text": part.text}
    if part.extra:
        rendering.put_extra(body, part.extra, part_path(item, index), _SHARED)
    return body


def _write_image(rendering: Rendering, part: Image, item: Item, index: int) -> Body | None:
    at = part_path(item, index)
    url = part.url
    if url is None:
        if part.data is None:
            rendering.lose(at, "dropped", "an image by file id has no form here")
            return None
        if part.media_type is None:
            rendering.lose(at, "invented", "the media type of the image is not known: image/png")
        url = data_url("image/png" if part.media_type is None else part.media_type, part.data)
    else:
        if part.data is not None:
            rendering.lose_member(part, "data", "dropped", "an image is a URL or data here: the URL is kept", at)
        if rendering.foreign and split_data_url(url):
            rendering.lose(at, "approximated", "a data URL is read as data here")
    if part.file_id is not None:
        rendering.lose_member(
            part, "file_id", "dropped", "an image by file id has no form here: its content is kept", at
        )
    image: Body = {"url": url}
    if part.detail is not None:
        image["detail"] = part.detail
    body: Body = {"type": "image_url", "image_url": image}
    rendering.put_extra(body, part.extra, at, _SHARED)
    return body


def _write_audio(rendering: Rendering, part: Audio, item: Item, index: int) -> Body | None:
    at = part_path(item, index)
    if part.data is None or part.format is None:
        rendering.lose(at, "dropped", "sound without data or format has no form here")
        return None
    body: Body = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    rendering.put_extra(body, part.extra, at, _SHARED)
    return body


def _write_document(rendering: Rendering, part: Document, item: Item, index: int) -> Body | None:
    at = part_path(item, index)
    file: Body = {}
    if part.data is not None:
        file["file_data"] = part.data if part.media_type is None else data_url(part.media_type, part.data)
    if part.file_id is not None:
        file["file_id"] = part.file_id
        rendering.lose_file_id(at)
    if part.url is not None and not file:
        rendering.lose(at, "dropped", "a file by URL has no form here")
        return None
    if part.url is not None:
        rendering.lose_member(part, "url", "dropped", "a file by URL has no form here", at)
    filename = part.filename
    if part.title is not None:
        rendering.lose_member(
            part, "title", "dropped" if filename else "renamed", "a file has a filename, not a title", at
        )
        filename = filename or part.title
    rendering.lose_unplaced(part, at)
    if filename is not None:
        file["filename"] = filename
    if not file and rendering.foreign:
        rendering.lose(at, "dropped", "this document has no form here")
        return None
    body: Body = {"type": "file", "file": file}
    rendering.put_extra(body, part.extra, at, _SHARED)
    return body


def _write_plain_document(rendering: Rendering, part: Document, at: str) -> Body:
    rendering.lose(at, "approximated", "a plain text document is written as a text part")
    for name in ("title", "context", "filename"):
        if getattr(part, name) is not None:
            rendering.lose_member(part, name, "dropped", "a text part has none", at)
    rendering.put_extra({}, part.extra, at)
    return {"type": "text", "text": part.text}


def _write_misfit(rendering: Rendering, part: Part, at: str) -> Body | None:
    """A part that the message cannot hold: the text of a search result, nothing of any other."""
    text = readable(part) if type(part) is Raw else None
    if text is not None:
        rendering.lose(at, "approximated", "a search result is written as its text")
        return {"type": "text", "text": text}
    kind = part.type if type(part) is Raw else kind_of(part)
    rendering.lose(at, "dropped", f"this message cannot hold a part of kind {kind!r}")
    return None


def _write_refusal(rendering: Rendering, part: Refusal, item: Item, index: int) -> Body:
    body: Body = {"type": "refusal", "refusal": part.text}
    rendering.put_extra(body, part.extra, part_path(item, index))
    return body


def _write_raw(rendering: Rendering, part: Raw, item: Item, index: int) -> Json:
    return part.value


_WRITERS: dict[type, Callable[[Rendering, Any, Item, int], Any]] = {
    Text: _write_text,
    Image: _write_image,
    Audio: _write_audio,
    Document: _write_document,
    Refusal: _write_refusal,
    Raw: _write_raw,
}


WITHIN = "content.thinking"
"""The slot of such a thought."""

_TYPE = "thinking"
_read: Reader[list[Any]] = Reader(list[AnyPart])


def thought_of(part: Part, at: str) -> Thinking | None:
    """The thought that a part is; None for any other part."""
    if type(part) is not Raw or part.type != _TYPE:
        return None
    members = read_object(part.value)
    said = members.pop(_TYPE, None)
    if said is None or bytes(said).lstrip()[:1] != b"[":
        return None
    try:
        content = parts_of(_read(said, f"{at}.{_TYPE}"))
    except InvalidRequest:
        return None
    del members["type"]
    return Thinking(content=content, extra=members, slot=WITHIN, at=at)


def apart(parts: Sequence[Part], at: str) -> list[Item]:
    """A content as items, if there is a thought in it: thoughts and what stands between them; else nothing."""
    thoughts = [thought_of(part, f"{at}.content[{index}]") for index, part in enumerate(parts)]
    if not any(thoughts):
        return []
    found: list[Item] = []
    for index, (part, thought) in enumerate(zip(parts, thoughts, strict=True)):
        if thought is not None:
            found.append(thought)
        elif found and isinstance(found[-1], Assistant):
            found[-1].content.append(part)
        else:
            found.append(Assistant(content=[part], at=f"{at}.content[{index}]"))
    return found


def is_within(item: Item) -> bool:
    """Whether a thought stood in a content."""
    return item.slot == WITHIN and isinstance(item, Thinking)


def is_plain(item: Thinking) -> bool:
    """Whether a thought is texts and nothing else, so that it may come in pieces."""
    return all(type(part) is Text and not part.extra for part in item.content)


def entry(rendering: Rendering, item: Thinking) -> Body:
    """A thought as a part of a content."""
    return piece(written_parts(rendering, item, enumerate(item.content), None), item.extra)


def piece(parts: list[Any], extra: Extra) -> Body:
    """A part of a content that says some of a thought."""
    return {"type": _TYPE, _TYPE: parts, **extra}
