"""Owns writing parts as content blocks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from turnscript.apis.anthropic_messages.blocks import content_text
from turnscript.apis.anthropic_messages.settings import is_native
from turnscript.apis.api import Body, Rendering
from turnscript.core.conversation import Audio, Document, Image, Item, Part, Raw, Refusal, Text
from turnscript.core.data_urls import data_url, is_data_url, taken_apart
from turnscript.core.json_text import Json, read_object
from turnscript.core.source_paths import part_path

_PLAIN = "text/plain"
Media = TypeVar("Media", Image, Document)


def is_plain_block(block: Any) -> bool:
    """Whether a written block is a text and nothing else, so that a string can say it."""
    return type(block) is dict and len(block) == 2 and block["type"] == "text"


class PartWriter:
    """Writes the parts of one request; `place` tells where an item stood in its source."""

    def __init__(self, rendering: Rendering, place: Callable[[Item], str]) -> None:
        self.rendering = rendering
        self.place = place

    def write(self, part: Part, item: Item, index: int) -> Any:
        """The block for a part, or None when there is none (reported)."""
        if type(part) is Text:
            block: Body = {"type": "text", "text": part.text}
            if part.extra:
                self.rendering.put_extra(block, part.extra, self.path(item, index))
            return block
        return _PARTS[type(part)](self, part, self.path(item, index))

    def path(self, item: Item, index: int) -> str:
        """Where a part stood in its source."""
        return part_path(item, index) if item.at else f"{self.place(item)}.content[{index}]"

    def _image(self, given: Image, path: str) -> Body | None:
        part = self._apart(given, path)
        source = self._source(part, path, "image/png")
        if source is None:
            return None
        block: Body = {"type": "image", "source": source}
        if part.detail is not None:
            self.rendering.lose_member(path, "image.detail", "dropped", "a picture has no detail level here")
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _document(self, given: Document, path: str) -> Body | None:
        part = self._apart(given, path)
        structure = None if self.rendering.foreign else _structure(part)
        source: Any = structure
        if structure is None and part.text is not None:
            plain = _PLAIN if part.media_type is None else part.media_type
            source = {"type": "text", "media_type": plain, "data": part.text}
        elif structure is None:
            source = self._text_source(part, path) or self._source(part, path, "application/pdf")
        if source is None:
            return None
        block: Body = {"type": "document", "source": source}
        title = self._title(part, path)
        if title is not None:
            block["title"] = title
        if part.context is not None:
            block["context"] = part.context
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _text_source(self, part: Document, path: str) -> Body | None:
        """A text that came as bytes, as a text: bytes are taken of PDF alone. None for any other document."""
        kind, own = part.media_type or "", self.rendering.request.origin == self.rendering.origin
        if own or part.data is None or not kind.startswith("text/"):
            return None
        try:
            text = b64decode(part.data, validate=True).decode()
        except ValueError:
            return None
        if kind != _PLAIN:
            self.rendering.lose(path, "approximated", f"a text of type {kind!r} is a plain text here")
        source = self._source(part, path, kind)  # what else is given of it is reported
        return source and {"type": "text", "media_type": _PLAIN, "data": text}

    def _title(self, part: Document, path: str) -> str | None:
        if part.filename is None:
            return part.title
        if part.title is not None:
            why = "a document has a title here, no file name"
            self.rendering.lose_member(path, "document.filename", "dropped", why)
            return part.title
        self.rendering.lose_member(path, "document.filename", "renamed", "the file name becomes the title")
        return part.filename

    def _apart(self, part: Media, path: str) -> Media:
        """The part with its media type and its base64 text in two places, where another API says both in one string."""
        said = part.data if part.data is not None else part.url
        if said is None or not is_data_url(said) or part.media_type is not None or is_native(self.rendering):
            return part
        found = taken_apart(said)
        if found is None:
            self.rendering.lose(path, "approximated", "a data URL without base64 is no address that can be asked here")
            return part
        media_type, data = found
        if data_url(media_type, data) != said:
            self.rendering.lose(path, "approximated", "of a data URL the media type and the base64 text are sent")
        url = None if part.data is None else part.url
        return replace(part, media_type=media_type or None, data=data, url=url)

    def _source(self, part: Image | Document, path: str, media_type: str) -> Body | None:
        """Where the bytes are: the first of data, URL and file id that is given."""
        given = [name for name in ("data", "url", "file_id") if getattr(part, name) is not None]
        for name in given[1:]:
            member = f"{type(part).__name__.lower()}.{name}"
            self.rendering.lose_member(path, member, "dropped", f"only its {given[0]} is sent")
        if not given:
            self.rendering.lose(path, "dropped", "it has no data, no URL and no file id")
            return None
        if part.data is not None:
            if part.media_type is None:
                self.rendering.lose(path, "invented", f"no media type is given: {media_type!r}")
            said = media_type if part.media_type is None else part.media_type
            return {"type": "base64", "media_type": said, "data": part.data}
        if part.media_type is not None:
            self.rendering.lose(path, "dropped", "a media type is said with data only")
        if part.url is not None:
            return {"type": "url", "url": part.url}
        self.rendering.lose_file_id(path)
        return {"type": "file", "file_id": part.file_id}

    def _refusal(self, part: Refusal, path: str) -> Body:
        self.rendering.lose(path, "approximated", "a refusal becomes text")
        block: Body = {"type": "text", "text": part.text}
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _audio(self, part: Audio, path: str) -> None:
        self.rendering.lose(path, "dropped", f"{self.rendering.target} takes no sound")

    def _raw(self, part: Raw, path: str) -> Json | None:
        if self.rendering.foreign:
            self.rendering.lose(path, "dropped", f"{self.rendering.target} has nothing like {part.type!r}")
            return None
        return part.value


def _structure(part: Document) -> Json | None:
    """The `content` source that the document was read from, unless its text has been changed since."""
    source = part.extra.get("source")
    if source is None or part.text is None:
        return None
    content = read_object(source).get("content")
    return source if content is not None and content_text(content) == part.text else None


_PARTS: dict[type, Callable[[PartWriter, Any, str], Any]] = {
    Image: PartWriter._image,
    Document: PartWriter._document,
    Refusal: PartWriter._refusal,
    Audio: PartWriter._audio,
    Raw: PartWriter._raw,
}
