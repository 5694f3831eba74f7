"""Owns citations of web pages in answers: what one API says of them, in the words that others have for it.

`url_citation` says which characters a page stands behind: on a text, or on a message, and then its members are wrapped
once more. `web_search_result_location` stands on a text, is about all of it, and says what was read on the page, too.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnscript.apis.api import Body, Rendering
from turnscript.core.conversation import Assistant, Item, Response, Text
from turnscript.core.events import Event, MessageEnd, PartEnd
from turnscript.core.json_text import elements_in, members_in, plain, read_list

_PAGE, _FOUND = "url_citation", "web_search_result_location"
_RANGED, _WHOLE = "annotations", "citations"
_SAID = frozenset({"type", "url", "title", "start_index", "end_index"})


def take_pages(rendering: Rendering, part: Text, at: str, start: int = 0) -> tuple[list[Body], Text]:
    """The pages that a text of another API's answer cites, each with its place behind `start` characters, and the text
    without its citations. What cannot be told of them is reported."""
    extra, pages = dict(part.extra), list[Body]()
    for key in (_RANGED, _WHOLE):
        if key not in extra or bytes(extra[key])[:1] != b"[":
            continue
        for number, entry in enumerate(read_list(extra.pop(key))):
            page, whole = _page(plain(entry), len(part.text))
            where = f"{at}.{key}[{number}]"
            if page is None:
                rendering.lose(where, "dropped", "of what is cited, web pages alone have a place here")
                continue
            if not whole:
                rendering.lose(where, "approximated", "a page is cited with its address, its title and a place")
            pages.append(page | {name: page[name] + start for name in ("start_index", "end_index")})
    return pages, replace(part, extra=extra)


def wrapped(pages: list[Body]) -> list[Body]:
    """Pages as a message cites them."""
    return [{"type": _PAGE, _PAGE: {key: page[key] for key in page if key != "type"}} for page in pages]


def with_pages_on_text(response: Response) -> Response:
    """An answer whose one message cites pages, with the citations on its one text; any other as it is."""
    choice = members_in(response.extra.get("choices"))
    message = members_in(choice.get("message"))
    texts = [part for item in response.items if isinstance(item, Assistant) for part in item.content]
    cited = message.get(_RANGED)
    if choice.keys() != {"message"} or message.keys() != {_RANGED} or cited is None or len(texts) != 1:
        return response
    text, entries = texts[0], elements_in(cited)
    if not isinstance(text, Text) or not entries or not all(_page(plain(one), len(text.text))[1] for one in entries):
        return response
    said = replace(text, extra=text.extra | {_RANGED: cited})
    items = [
        replace(item, content=[said]) if isinstance(item, Assistant) and item.content else item
        for item in response.items
    ]
    return replace(response, items=items, extra={key: one for key, one in response.extra.items() if key != "choices"})


def with_pages_on_ends(events: list[Event], said: list[Item]) -> list[Event]:
    """The same in a stream whose end cites pages: on the end of its one text, where nothing but that end follows it. So
    whatever the pieces are, the two come together. `said`: the items that have ended before these events."""
    last, end = events[-2:] if len(events) > 1 else (None, None)
    if not isinstance(end, MessageEnd) or "choices" not in end.extra or not isinstance(last, PartEnd):
        return events
    items = [event.part for event in events if isinstance(event, PartEnd) and event.part is not None]
    told = with_pages_on_text(Response(items=[*said, *items], extra=end.extra))
    if last.part is None or told.items[-1] is last.part:
        return events
    return [*events[:-2], replace(last, part=told.items[-1]), replace(end, extra=told.extra)]


def _page(said: Any, length: int) -> tuple[Body | None, bool]:
    """A citation as that of a page, and whether this is all of it."""
    members = said if isinstance(said, dict) else {}
    kind, inner = members.get("type"), members.get(_PAGE)
    if kind == _PAGE and isinstance(inner, dict) and members.keys() == {"type", _PAGE}:
        members = {"type": kind} | inner
    if kind == _FOUND:
        members = members | {"start_index": 0, "end_index": length}
    url, title = members.get("url"), members.get("title")
    places = [members.get(name) for name in ("start_index", "end_index")]
    if kind not in (_PAGE, _FOUND) or not isinstance(url, str) or any(type(one) is not int for one in places):
        return None, False
    title = title if isinstance(title, str) else url
    page: Body = {"type": _PAGE, "start_index": places[0], "end_index": places[1], "url": url, "title": title}
    return page, members.keys() == _SAID and members["title"] == title
