"""Owns content parts: reading `input_text`, `output_text`, images, files and the like, and writing them back.

The type of a text follows from where it stands: `output_text` in an assistant message, `summary_text` in a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from turnscript.apis.api import Body, Rendering, leftover
from turnscript.apis.openai_responses.objects import (
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    OutputRefusal,
    OutputText,
    PlainText,
    ReasoningText,
    SummaryText,
)
from turnscript.core.conversation import Audio, Document, Image, Item, Part, Raw, Refusal, Text, readable
from turnscript.core.data_urls import data_url, split_data_url
from turnscript.core.source_paths import part_path
from turnscript.core.wire import Verbatim, extra_of, given

INPUT, OUTPUT, SUMMARY, REASONING = "input_text", "output_text", "summary_text", "reasoning_text"
REFUSAL = "refusal"
_BREAKPOINT = "prompt_cache_breakpoint"
_SHARED = (_BREAKPOINT,)
"""Members of what goes in that another API has as well, and that mean the same there."""


# Reading.


def read_parts(content: list[Any]) -> list[Part]:
    """The parts of a list of content."""
    return [_READ[part.__class__](part) for part in content]


def _text(part: PlainText | SummaryText | ReasoningText) -> Part:
    return Text(text=part.text, extra=extra_of(part))


def _input_text(part: InputText) -> Part:
    if part.rest is None and part.prompt_cache_breakpoint is UNSET:
        return Text(text=part.text)
    return Text(text=part.text, extra=extra_of(part, _BREAKPOINT))


def _output_text(part: OutputText) -> Part:
    if part.rest is None and part.annotations is UNSET and part.logprobs is UNSET:
        return Text(text=part.text)
    return Text(text=part.text, extra=extra_of(part, "annotations", "logprobs"))


def _refusal(part: OutputRefusal) -> Part:
    return Refusal(text=part.refusal, extra=extra_of(part))


def _image(part: InputImage) -> Part:
    image = Image(extra=extra_of(part, _BREAKPOINT))
    if part.image_url is not UNSET:
        split = split_data_url(part.image_url)
        if split:
            image.media_type, image.data = split
        else:
            image.url = part.image_url
    image.file_id, image.detail = given(part.file_id), given(part.detail)
    return image


def _file(part: InputFile) -> Part:
    document = Document(extra=extra_of(part, "detail", _BREAKPOINT))
    if part.file_data is not UNSET:
        split = split_data_url(part.file_data)
        if split:
            document.media_type, document.data = split
        else:
            document.data = part.file_data
    document.file_id, document.url = given(part.file_id), given(part.file_url)
    document.filename = given(part.filename)
    return document


def _audio(part: InputAudio) -> Part:
    audio = Audio(data=part.input_audio.data, format=given(part.input_audio.format), extra=extra_of(part))
    if part.input_audio.rest:
        audio.extra["input_audio"] = leftover(part.input_audio.rest)
    return audio


_READ: dict[type, Callable[[Any], Part]] = {
    InputText: _input_text,
    OutputText: _output_text,
    SummaryText: _text,
    ReasoningText: _text,
    PlainText: _text,
    OutputRefusal: _refusal,
    InputImage: _image,
    InputFile: _file,
    InputAudio: _audio,
    Verbatim: lambda part: Raw(type=part.tag, value=part.value),
}


# Writing.


class Place:
    """Holds where parts are being written: the rendering, their item, and the text type that belongs there."""

    __slots__ = ("item", "rendering", "usual")

    def __init__(self, rendering: Rendering, item: Item, usual: str) -> None:
        self.rendering = rendering
        self.item = item
        self.usual = usual

    def path(self, index: int) -> str:
        """The source path of a part."""
        return part_path(self.item, index)


def write_parts(place: Place, content: list[Part]) -> list[Any]:
    """Content as a list of wire parts. What has no place here is left out and reported."""
    written: list[Any] = []
    for index, part in enumerate(content):
        if type(part) is Text and not part.extra:
            written.append({"type": place.usual, "text": part.text})
            continue
        body = _WRITE[part.__class__](place, part, index)
        if body is not None:
            written.append(body)
    return written


def _write_text(place: Place, part: Text, index: int) -> Any:
    body: Body = {"type": place.usual, "text": part.text}
    place.rendering.put_extra(body, part.extra, place.path(index), _SHARED if place.usual == INPUT else ())
    return body


def _write_refusal(place: Place, part: Refusal, index: int) -> Any:
    body: Body = {"type": "refusal", "refusal": part.text}
    if part.extra:
        place.rendering.put_extra(body, part.extra, place.path(index))
    return body


def _write_image(place: Place, part: Image, index: int) -> Any:
    body: Body = {"type": "input_image"}
    if part.data is not None:
        body["image_url"] = data_url(_media_type(place, part, index), part.data)
        if part.url is not None:
            place.rendering.lose_member(part, "url", "dropped", "the image is sent as base64 text", place.path(index))
    elif part.url is not None:
        body["image_url"] = part.url
        if place.rendering.foreign and split_data_url(part.url):
            place.rendering.lose(place.path(index), "approximated", "a data URL is read as data here")
    if part.file_id is not None:
        body["file_id"] = part.file_id
        place.rendering.lose_file_id(place.path(index))
    if len(body) == 1 and place.rendering.foreign:
        place.rendering.lose(place.path(index), "dropped", "an image that neither a URL, an id nor base64 text gives")
        return None
    if part.detail is not None:
        body["detail"] = part.detail
    if part.extra:
        place.rendering.put_extra(body, part.extra, place.path(index), _SHARED)
    return body


def _media_type(place: Place, part: Image, index: int) -> str:
    if part.media_type is not None:
        return part.media_type
    place.rendering.lose(place.path(index), "invented", "the media type of the image: image/png")
    return "image/png"


def _write_document(place: Place, part: Document, index: int) -> Any:
    rendering, path = place.rendering, place.path(index)
    if part.text is not None:
        return _write_text_document(place, part, index)
    body: Body = {"type": "input_file"}
    if part.data is not None:
        body["file_data"] = data_url(part.media_type, part.data) if part.media_type is not None else part.data
    if part.file_id is not None:
        body["file_id"] = part.file_id
        rendering.lose_file_id(path)
    if part.url is not None:
        body["file_url"] = part.url
    if len(body) == 1 and rendering.foreign:
        rendering.lose(path, "dropped", "a document that neither a URL, an id nor base64 text gives")
        return None
    if part.filename is not None:
        body["filename"] = part.filename
    _lose_title(place, part, path, body)
    rendering.put_extra(body, part.extra, path, _SHARED)
    return body


def _lose_title(place: Place, part: Document, path: str, body: Body | None) -> None:
    """A document's title takes the place of a missing file name."""
    if part.title is not None and body is not None and "filename" not in body:
        body["filename"] = part.title
        place.rendering.lose_member(part, "title", "renamed", "the title became the file name", path)
    elif part.title is not None:
        place.rendering.lose_member(part, "title", "dropped", "an input_file has no title", path)
    place.rendering.lose_unplaced(part, path)


def _write_text_document(place: Place, part: Document, index: int) -> Any:
    path = place.path(index)
    body: Body = {"type": place.usual, "text": part.text}
    place.rendering.lose(path, "approximated", "a document of plain text became a text part")
    if part.filename is not None:
        place.rendering.lose_member(part, "filename", "dropped", "a text part has no file name", path)
    _lose_title(place, part, path, None)
    place.rendering.put_extra(body, part.extra, path)
    return body


def _write_audio(place: Place, part: Audio, index: int) -> Any:
    """Sound. The API's types have it, but no message may hold it, so only a request that came with it keeps it."""
    if place.rendering.foreign:
        place.rendering.lose(place.path(index), "dropped", "no message here may hold sound")
        return None
    if part.data is None:
        place.rendering.lose(place.path(index), "dropped", "audio that only an id of an earlier answer gives")
        return None
    if part.id is not None:
        place.rendering.lose_member(part, "id", "dropped", "the sound itself is sent", place.path(index))
    audio: Body = {"data": part.data}
    if part.format is not None:
        audio["format"] = part.format
    body: Body = {"type": "input_audio", "input_audio": audio}
    if part.extra:
        place.rendering.put_extra(body, part.extra, place.path(index))
    return body


def _write_raw(place: Place, part: Raw, index: int) -> Any:
    if not place.rendering.foreign:
        return part.value
    text = readable(part)
    if text is not None:
        place.rendering.lose(place.path(index), "approximated", f"a part {part.type!r} is written as its text")
        return {"type": place.usual, "text": text}
    place.rendering.lose(place.path(index), "dropped", f"{place.rendering.target} has no part {part.type!r}")
    return None


_WRITE: dict[type, Callable[[Place, Any, int], Any]] = {
    Text: _write_text,
    Refusal: _write_refusal,
    Image: _write_image,
    Document: _write_document,
    Audio: _write_audio,
    Raw: _write_raw,
}


# Parts as they are told piece by piece.


def blank_part(kind: str, text: str = "") -> Body:
    """A content part with that text and nothing else."""
    if kind == REFUSAL:
        return {"type": REFUSAL, "refusal": text}
    body: Body = {"type": kind, "text": text}
    return body | {"annotations": [], "logprobs": []} if kind == OUTPUT else body


def type_of_part(body: Any) -> str:
    """The type of a written part; empty for what is kept as it was."""
    return str(body.get("type", "")) if isinstance(body, dict) else ""


def text_of_part(body: Any) -> str:
    """What a written part says."""
    return str(body.get("text", body.get("refusal", "")))
