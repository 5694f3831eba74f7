"""Owns the laws of APIs: a body comes back whole, through the archive too; to another API, what is lost is listed."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import jsontext, judge
from tests.strategies.marks import Marks, above
from tests.strategies.sdk import bodies
from tests.strategies.unknown import with_unknown
from turnscript.core.conversation import Extra
from turnscript.core.json_spelling import objects_in_one_spelling
from turnscript.core.losses import part_path
from turnscript.core.source_paths import Words, telling

EXAMPLES = settings.default.max_examples if settings.default else 100
MANY = max(EXAMPLES, min(5 * EXAMPLES, 500))
"""Five times as many as other laws draw, but for searches that draw thousands: all laws share these bodies."""


class Body:
    """A drawn body with its bytes and what they say. Every law reads them, and to write them takes as long as a law."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn
        self.data = jsontext.dumps(drawn)
        self.said = jsontext.loads(self.data)
        self.spelled = list(jsontext.spelled_places(drawn))

    def is_in(self, data: bytes) -> None:
        """Assert that `data` is JSON-equal to the body, and that spelled arguments are equal byte for byte."""
        assert "" == jsontext.difference(self.said, jsontext.loads(data))
        for path, spelled in self.spelled:
            assert spelled.text.strip() == jsontext.raw_at(data, path)


def archives() -> list[str]:
    """The formats that keep everything."""
    return [name for name in ts.formats() if ts.get_format(name).document.metadata is not None]


@pytest.mark.long
@settings(max_examples=MANY)
@given(data=st.data())
def test_every_law_of_bodies_holds(api_name: str, data: st.DataObject) -> None:
    """The laws below, on the same bodies: to draw one takes ten times as long as to hold a law on it."""
    drawn = data.draw(bodies(api_name))
    body = Body(drawn)
    a_body_comes_back_whole(body, api_name)
    for archive_name in archives():
        a_body_comes_back_whole_through_an_archive(body, api_name, archive_name)
    source, before = ts.parse(body.data, api_name), ts.parse(body.data, api_name)
    for other_name in ts.apis():
        rendered = ts.render(source, other_name)
        assert before == source, "rendering must not change the request"
        what_another_api_cannot_carry_is_listed(source, rendered, api_name, other_name)
        if other_name != api_name:
            what_is_written_for_another_api_is_what_its_sdk_takes(body, rendered, other_name)
    each_text_arrives_or_a_loss_names_its_place(drawn, api_name)
    stranger = Body(data.draw(with_unknown(drawn)))
    for archive_name in archives():
        unknown_members_and_blocks_survive(stranger, api_name, archive_name)
    a_wrong_value_is_kept_or_an_error_with_a_path(data.draw(with_wrong_value(drawn)), api_name)


def a_body_comes_back_whole(body: Body, api_name: str) -> None:
    """L2: to_X(from_X(p)) == p for every body that the official SDK's types allow, and nothing is called lost."""
    rendered = ts.convert(body.data, api_name, api_name)
    assert [] == rendered.losses
    body.is_in(rendered.data)


def a_body_comes_back_whole_through_an_archive(body: Body, api_name: str, archive_name: str) -> None:
    """API -> transcript (archive) -> API gives an equal body."""
    archive = ts.convert(body.data, api_name, archive_name)
    assert [] == archive.losses
    body.is_in(ts.convert(archive.data, archive_name, api_name).data)


def unknown_members_and_blocks_survive(body: Body, api_name: str, archive_name: str) -> None:
    """A9: members and blocks that nobody has heard of come back where they were, directly and through an archive."""
    a_body_comes_back_whole(body, api_name)
    archive = ts.convert(body.data, api_name, archive_name)
    body.is_in(ts.convert(archive.data, archive_name, api_name).data)


def what_another_api_cannot_carry_is_listed(
    source: ts.Request, rendered: ts.Rendered[Any], api_name: str, other_name: str
) -> None:
    """A8: read back from API b, each item, tool, setting and unnamed member of a is equal, or a loss names its path."""
    paths = [loss.path for loss in rendered.losses]
    target = ts.parse(rendered.data, other_name)
    _items_arrive(source, target, paths)
    arrived = [bare_tool(one) for one in target.tools]
    for index, tool in enumerate(source.tools):
        path = source.paths.get(f"$.tools[{index}]", f"$.tools[{index}]")
        if not _named(path, paths):
            assert bare_tool(tool) in arrived, f"{path} changed, unlisted"
    for field in source.settings.__struct_fields__:
        path = source.paths.get(field, f"$.{field}")
        expected, actual = getattr(source.settings, field), getattr(target.settings, field)
        if expected == actual or _named(path, paths):
            continue
        # A setting that was not said may follow from one that was and is listed: an effort from a budget.
        assert (expected is None and paths) or _no_thinking(source, target, field), f"{path} changed, unlisted"
    if api_name != other_name:
        for key in source.extra:
            assert _named(f"$.{key}", paths), f"$.{key} dropped, unlisted"


def each_text_arrives_or_a_loss_names_its_place(drawn: Any, api_name: str) -> None:
    """L4, text by text: A8 compares items, and a loss that names one may say nothing of what else is missing in it."""
    marks = Marks()
    marked = jsontext.dumps(marks.put(drawn))
    for other_name in ts.apis():
        rendered = ts.convert(marked, api_name, other_name)
        written = rendered.data.decode()
        named = {loss.path for loss in rendered.losses if loss.kind != "moved"}
        lost = [path for path, mark in marks.places.items() if mark not in written and named.isdisjoint(above(path))]
        assert [] == lost, f"unlisted in {other_name}"


def what_is_written_for_another_api_is_what_its_sdk_takes(
    body: Body, rendered: ts.Rendered[Any], other_name: str
) -> None:
    """A5: a body converted from any other API has the members and types of the target's SDK, required ones included."""
    value: Any = rendered.value
    given_model = value if "model" in body.said else {"model": "m", **value}
    assert [] == judge.misfits(other_name, given_model)


def a_wrong_value_is_kept_or_an_error_with_a_path(drawn: Any, api_name: str) -> None:
    """Any value of a body replaced by any other: the body still comes back whole, or the error names the place."""
    body = Body(drawn)
    request = _parsed(body, api_name)
    if isinstance(request, ts.InvalidRequest):
        assert request.path.startswith("$")
        assert request.expected
        return
    body.is_in(ts.render(request, api_name).data)
    for other in ts.apis():
        ts.render(request, other)
    assert ts.parse(body.data, api_name) == request, "rendering must not change the request"


@fewer()
@given(data=st.data())
def test_a_loss_names_a_place_of_the_body(api_name: str, data: st.DataObject) -> None:
    """Whoever reads a report finds what it speaks of in the body that went in, in the words of that body's API."""
    kinds = (bodies(api_name), bodies(api_name).flatmap(with_unknown), bodies(api_name).map(with_empty_texts))
    body = data.draw(kinds[data.draw(st.integers(0, 2))])
    source = json.loads(jsontext.dumps(body))
    for name in (*ts.apis(), *ts.formats()):
        options: dict[str, Any] = {"view": "prompt"} if name in archives() else {}
        try:
            losses = ts.convert(jsontext.dumps(body), api_name, name, **options).losses
        except ts.InvalidConversation:  # a format says what it cannot hold
            continue
        for loss in losses:
            assert loss.kind == "invented" or _leads_somewhere(source, loss.path.removeprefix("$")), str(loss)


def with_empty_texts(body: Any) -> Any:
    """The body with nothing in its texts: what an API refuses or a format has no form for is told part by part."""
    empty = copy.deepcopy(body)
    for holder, key in list(_places(empty)):
        if key in ("content", "text", "refusal") and isinstance(holder[key], str):
            holder[key] = ""
    return empty


def _leads_somewhere(value: Any, path: str) -> bool:
    """Whether a path ends at a value, or at one of the members that a body may leave to its reader."""
    if path == "" or (isinstance(value, dict) and path in (".content", ".name")):
        return True
    if isinstance(value, list):
        index, _, rest = path.removeprefix("[").partition("]")
        return index.isdigit() and int(index) < len(value) and _leads_somewhere(value[int(index)], rest)
    if not isinstance(value, dict):
        return False
    return any(_leads_somewhere(value[key], path[len(key) + 1 :]) for key in value if path.startswith(f".{key}"))


def _no_thinking(source: ts.Request, target: ts.Request, field: str) -> bool:
    """Thinking disabled and effort none are two words for one thing (apis A8.5)."""
    silent = [one.effort == "none" or _mode(one) == "disabled" for one in (source.settings, target.settings)]
    return field in ("thinking", "effort") and all(silent)


def _mode(settings: ts.Settings) -> str:
    return settings.thinking.mode if settings.thinking else ""


def _items_arrive(source: ts.Request, target: ts.Request, paths: list[str]) -> None:
    """Items that no loss names arrive equal and in order; an item that was not sent needs a loss to explain it."""
    arrived = [bare(item, source.words) for item in target.items]
    sent = [bare(item, source.words) for item in source.items]
    listed = [_is_listed(item, paths) for item in source.items]
    joined = sum(len(getattr(item, "content", ())) for item, named in zip(sent, listed, strict=True) if named)
    position = 0
    for item in [item for item, named in zip(sent, listed, strict=True) if not named]:
        while position < len(arrived) and not _is_same(item, arrived[position], joined):
            position += 1
        assert position < len(arrived), f"{item.at} changed or moved, unlisted: {item}\narrived: {target.items}"
        position += 1
    spelled = [*sent, *objects_in_one_spelling(sent)]
    assert paths or all(item in spelled for item in arrived), "an item was invented, unlisted"


def _is_listed(item: ts.Item, paths: list[str]) -> bool:
    parts = [part_path(item.at, index) for index in range(len(getattr(item, "content", ())))]
    return any(_named(path, paths) for path in [item.at, *parts])


def _is_same(sent: ts.Item, arrived: ts.Item, joined: int) -> bool:
    """Whether an item arrived as it was. Up to `joined` parts behind its own are those of others, which losses name."""
    if isinstance(sent, ts.Assistant | ts.User) and isinstance(arrived, ts.Assistant | ts.User):
        own = len(sent.content)
        if own < len(arrived.content) <= own + joined:
            return replace(arrived, content=arrived.content[:own]) == sent
    return arrived == sent or [arrived] == [*objects_in_one_spelling([sent])]


def _said(extra: Extra, words: Words) -> Extra:
    """The members that say something. What is passed over without a loss is empty, whatever the product calls so."""
    told = telling(extra, words)
    for name in extra.keys() - told.keys():
        value = json.loads(bytes(extra[name]))
        usual = name == "caller" and value == {"type": "direct"}  # the model itself, as where it is missing
        assert usual or not (any(value.values()) if isinstance(value, dict) else value), f"{name} says {value}"
    return told


def bare(item: ts.Item, words: Words) -> ts.Item:
    """An item without the shape that it had on the wire, without members that say nothing in answers (a null for the
    refusal that it is not), and without an id of ours (requirements D-X-7)."""
    item = copy.copy(item)
    item.turn, item.slot, item.envelope, item.attributes = "", "", None, None
    item.extra = _said(item.extra, words)
    if hasattr(item, "content"):
        item.content = [replace(part, extra=_said(part.extra, words)) for part in item.content]
    if isinstance(item, ts.ToolCall | ts.ToolResult) and item.id and item.id.startswith("call_auto_"):
        item.id = None
    if isinstance(item, ts.ToolResult):
        item.name = None  # the name of its call, which is compared there
    if isinstance(item, ts.Thinking):
        item.signature = item.signature or None  # one API has a place for it that is never missing
    return item


def bare_tool(tool: ts.Tool) -> ts.Tool:
    """A tool without the shape that it had on the wire."""
    tool = copy.copy(tool)
    tool.slot = ""
    return tool


def _named(path: str, losses: list[str]) -> bool:
    """Whether a loss names the path, something below it, or something that holds it."""
    return any(_holds(path, loss) or _holds(loss, path) for loss in losses)


def _holds(outer: str, inner: str) -> bool:
    return inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in ("", ".", "[")


WRONG: tuple[Any, ...] = (
    None,
    7,
    1.5,
    True,
    "word",
    "",
    [],
    {},
    [None],
    {"type": 5},
    {"a": {}},
    [[]],
    [{}],
    {"role": "user"},
)


@st.composite
def with_wrong_value(draw: st.DrawFn, body: Any) -> Any:
    """The body with one of its values, at any depth, replaced."""
    wrong = copy.deepcopy(body)
    places = list(_places(wrong))
    holder, key = places[draw(st.integers(0, len(places) - 1))] if places else (wrong, "model")
    holder[key] = draw(st.sampled_from(WRONG))
    return wrong


def _parsed(body: Body, api_name: str) -> ts.Request | ts.InvalidRequest:
    try:
        return ts.parse(body.data, api_name)
    except ts.InvalidRequest as error:
        return error


def _places(value: Any) -> Any:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield value, key
        yield from _places(member)


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_truncated_body_is_an_error_with_line_and_column(api_name: str, cut: int) -> None:
    """A file that ends too early: never a traceback, never half a request."""
    whole = b'{"model": "m", "prompt": "p",\n "input": "p",\n "messages": [{"role": "user", "content": "hi"}]}'
    with pytest.raises(ts.InvalidInput) as caught:
        ts.parse(whole[: len(whole) * cut // 100], api_name)
    assert caught.value.line >= 1
    assert caught.value.column >= 1
