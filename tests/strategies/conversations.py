"""Owns Hypothesis strategies for typed conversations: every item, part, tool and setting that the model has.

Each strategy is made once: to make one, and to check it, takes longer than to draw from it. What can be changed is made
for each draw, so that no two conversations share it.
"""

from functools import cache
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from tests.strategies import jsontext, text
from turnscript import (
    Assistant,
    Audio,
    Conversation,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Raw,
    Refusal,
    Request,
    Settings,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.conversation import Turn

EMPTY = st.just(())
Maybe = st.none() | text.words()
MAYBE_TEXT = st.none() | text.texts()
NAMES = text.words() | st.sampled_from(["get_weather", 'q"uote', "<<USER>>", "a>>b", "é", "x y", "\\", "\n"])


@cache
def json_texts() -> st.SearchStrategy[msgspec.Raw]:
    """JSON values as they might be spelled on a wire."""
    return jsontext.json_texts().map(lambda value: msgspec.Raw(value.encode()))


@cache
def json_objects() -> st.SearchStrategy[msgspec.Raw]:
    """JSON objects as they might be spelled on a wire."""
    return jsontext.argument_objects().map(lambda value: msgspec.Raw(value.encode()))


@cache
def extras() -> st.SearchStrategy[dict[str, msgspec.Raw]]:
    """Unnamed members; most objects have none."""
    keys = st.sampled_from(["x", "cache_control", "type", "extra", "é", "a b", "<<SYS>>"])
    return EMPTY.map(dict) | EMPTY.map(dict) | st.dictionaries(keys, json_texts(), max_size=2)


@cache
def _attributes() -> st.SearchStrategy[dict[str, msgspec.Raw]]:
    return EMPTY.map(dict) | st.dictionaries(st.sampled_from(["mood", "x-y", "_z.1"]), json_texts())


@cache
def parts() -> st.SearchStrategy[Part]:
    """A part of any kind."""
    return st.one_of(
        st.builds(Text, text=text.texts(), extra=extras()),
        st.builds(Text, text=text.texts()),
        st.builds(Refusal, text=text.texts(), extra=extras()),
        st.builds(Image, url=Maybe, data=Maybe, media_type=Maybe, file_id=Maybe, detail=Maybe, extra=extras()),
        st.builds(Audio, data=Maybe, format=Maybe, id=Maybe, extra=extras()),
        st.builds(Document, url=Maybe, data=Maybe, media_type=Maybe, file_id=Maybe, filename=Maybe, extra=extras()),
        st.builds(Document, text=text.texts(), title=Maybe, context=Maybe, extra=extras()),
        st.builds(Raw, type=text.words(), value=json_texts(), extra=extras()),
    )


@cache
def contents() -> st.SearchStrategy[list[Part]]:
    """The content of an item."""
    one_text: st.SearchStrategy[list[Part]] = st.builds(Text, text=text.texts()).map(lambda part: [part])
    return one_text | st.lists(parts(), max_size=3)


@cache
def _texts(maximum: int = 2) -> st.SearchStrategy[list[Part]]:
    return st.lists(st.builds(Text, text=text.texts(), extra=extras()), max_size=maximum)


@st.composite
def hinted(draw: st.DrawFn, items: st.SearchStrategy[Item]) -> Item:
    """An item, perhaps with unnamed members and what stood around it."""
    item = draw(items)
    if draw(st.booleans()):
        return item
    item.extra = draw(extras())
    item.turn = draw(st.sampled_from(get_args(Turn)))
    item.slot = draw(st.sampled_from(["", "instructions"]))
    item.envelope, item.attributes = draw(extras()) or None, draw(_attributes()) or None
    item.raw = draw(MAYBE_TEXT)
    return item


@cache
def items() -> st.SearchStrategy[Item]:
    """An item of any kind."""
    arguments = jsontext.argument_objects() | jsontext.broken_arguments() | text.texts()
    call = {"name": NAMES, "arguments": arguments, "id": Maybe, "item_id": Maybe, "namespace": Maybe}
    return hinted(
        st.one_of(
            st.builds(System, content=contents(), role=st.sampled_from(["system", "developer"]), name=Maybe, id=Maybe),
            st.builds(User, content=contents(), name=Maybe, id=Maybe),
            st.builds(Assistant, content=contents(), name=Maybe, id=Maybe, phase=Maybe),
            st.builds(
                Thinking, content=_texts(), summary=_texts(), of=st.sampled_from(["reason", "reflect"]), id=Maybe
            ),
            st.builds(Thinking, content=_texts(1), signature=Maybe, encrypted=Maybe),
            st.builds(Thinking, redacted=text.words()),
            st.builds(ToolCall, **call, custom=st.booleans()),
            st.builds(
                ToolResult, content=contents(), id=Maybe, name=Maybe, status=Maybe, item_id=Maybe, custom=st.booleans()
            ),
            st.builds(ToolsChange, added=st.lists(tools(), max_size=2), removed=st.lists(text.words(), max_size=2)),
            st.builds(Opaque, type=text.words(), value=json_objects(), role=st.sampled_from(["", "user", "assistant"])),
        )
    )


@cache
def tools() -> st.SearchStrategy[Tool]:
    """A tool: a function, free text, a namespace or one that an API runs."""
    return st.builds(
        Tool,
        name=st.none() | NAMES,
        description=st.none() | text.texts(),
        parameters=st.none() | json_objects(),
        type=st.sampled_from(["function", "function", "custom", "web_search_20250305"]),
        format=st.none() | json_objects(),
        strict=st.sampled_from([None, True, False]),
        tools=EMPTY.map(list) | st.lists(st.builds(Tool, name=NAMES), max_size=2),
        extra=extras() | st.just({"x": msgspec.Raw(b"1"), "name": msgspec.Raw(b"null")}).map(dict),
        envelope=extras(),
        slot=st.sampled_from(["", "elsewhere"]),
    )


@cache
@st.composite
def requests(draw: st.DrawFn, settings: bool = True) -> Request:
    """A request built by hand: only its last item may be open."""
    drawn: list[Item] = draw(st.lists(items(), max_size=6))
    unfinished: bool = draw(st.booleans())
    if drawn and unfinished:
        drawn[-1].open = True
    request = Request(conversation=Conversation(items=drawn, tools=draw(st.lists(tools(), max_size=3))))
    if settings:
        request.extra = draw(extras())
        request.settings = draw(_settings())
    return request


@cache
def plain_items() -> st.SearchStrategy[Item]:
    """An item as chat formats know it: one text, a call, a result. Texts, names and ids may be hostile."""
    said = text.texts().map(lambda one: [Text(text=one)])
    names = st.sampled_from(["get_weather", "run", "search-web"]) | NAMES
    ids = st.none() | st.sampled_from(["call_1", "call_2", "toolu_01abc"]) | text.words()
    arguments = jsontext.argument_objects() | jsontext.broken_arguments()
    return st.one_of(
        st.builds(System, content=said),
        st.builds(User, content=said, name=st.none() | st.none() | text.words()),
        st.builds(User, content=said),
        st.builds(Assistant, content=said, name=st.none() | st.none() | text.words()),
        st.builds(Assistant, content=said),
        st.builds(Thinking, content=said, of=st.sampled_from(["reason", "reason", "reflect", "introspect"])),
        st.builds(ToolCall, name=names, arguments=arguments, id=ids),
        st.builds(ToolCall, name=names, arguments=st.just("{}"), id=ids),
        st.builds(ToolResult, content=said, id=ids, name=st.none() | names, status=st.sampled_from([None, "error"])),
    )


@cache
def functions() -> st.SearchStrategy[Tool]:
    """A function with a schema that types its parameters, or without one."""
    names = st.sampled_from(["get_weather", "run", "search-web"]) | NAMES
    return st.builds(
        Tool, name=names, description=st.none() | text.texts(), parameters=st.none() | json_objects() | schemas()
    )


@cache
def schemas() -> st.SearchStrategy[msgspec.Raw]:
    """The schema of an object, its members typed in every way, or not."""
    types = st.sampled_from(
        [{"type": "string"}, {"type": "integer"}, {"type": ["string", "null"]}, {}, {"enum": ["a", "b"]}]
    )
    keys = st.sampled_from(["city", "a", "b", "", "x y"])
    properties = st.dictionaries(keys, types | st.just({"type": "string", "description": "what, then, why"}))
    return properties.map(lambda one: msgspec.Raw(msgspec.json.encode({"type": "object", "properties": one})))


@cache
@st.composite
def plain_requests(draw: st.DrawFn) -> Request:
    """A request that any chat format can mostly carry."""
    drawn: list[Item] = draw(st.lists(plain_items(), max_size=6))
    unfinished: bool = draw(st.booleans())
    if drawn and unfinished and isinstance(drawn[-1], Assistant):
        drawn[-1].open = True
    return Request(conversation=Conversation(items=drawn, tools=draw(st.lists(functions(), max_size=3))))


@cache
def _settings() -> st.SearchStrategy[Settings]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "model": Maybe,
        "max_tokens": st.none() | st.integers(0, 2**40),
        "temperature": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "stop": st.none() | st.lists(text.texts(), max_size=2),
        "metadata": st.none() | json_objects(),
    }
    return st.builds(Settings) | st.builds(Settings, **fields)
