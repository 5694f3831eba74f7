"""Owns calls whose arguments are elements named by their keys: as models write them in any pieces, and nested."""

import json
from collections.abc import Iterator
from time import process_time

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall
from turnscript.core.json_text import json_of

MARK = "]<]minimax[>["
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"$ref": "#/$defs/where"},
    },
    "$defs": {"where": {"type": "object", "properties": {"item": {"type": "string"}, "zip": {"type": "string"}}}},
}
TOOL = ts.Tool(name="f", parameters=json_of(SCHEMA))


def written(*elements: str, close: str = f"{MARK}</invoke>\n{MARK}</tool_call>[e~[") -> str:
    """An answer with one call, the mark before each tag."""
    return f'{MARK}<tool_call>\n{MARK}<invoke name="f">' + "".join(elements).replace("@", MARK) + close


def read(text: str, size: int) -> ts.Response:
    """A model's text, fed in pieces."""
    parser = ts.get_format("minimax-m3").parser([TOOL])
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return ts.fold(events + parser.close())


def outline(response: ts.Response) -> tuple[list[tuple[str, str]], list[str]]:
    calls = [(item.name, item.arguments) for item in response.items if isinstance(item, ToolCall)]
    return calls, [issue.kind for issue in response.issues]


@pytest.mark.parametrize(
    ("text", "arguments", "odd"),
    [
        (written(), "{}", []),
        (written("@<city>Oslo@</city>"), '{"city": "Oslo"}', []),
        (written("@<city>@</city>@<days>3@</days>"), '{"city": "", "days": 3}', []),
        (written("@<city> <b>5</b>\n@</city>"), '{"city": " <b>5</b>\\n"}', []),
        (written("\n@<tags>\n@<item>1@</item>@<item>@</item>@</tags>\n"), '{"tags": ["1", ""]}', []),
        (written("@<where>@<item>x@</item>@<zip>0150@</zip>@</where>"), '{"where": {"item": "x", "zip": "0150"}}', []),
        (written("@<tags>@</tags>@<where>@</where>"), '{"tags": [], "where": {}}', []),
        (written('@<tags>["a"]@</tags>'), '{"tags": ["a"]}', []),
        (
            written("@<more>@<item>@<a>1@</a>@<b>x@</b>@</item>@</more>"),
            '{"more": [{"a": 1, "b": "x"}]}',
            [],
        ),
        (written('@<"two words">1@</"two words">'), '{"two words": 1}', []),
        (written("@<city>Oslo"), '{"city": "Oslo"}', ["odd_call"]),
        (written("@<tags>@<item>a"), '{"tags": ["a"]}', ["odd_call"]),
        (written("@<city>Oslo@</city>", close=f"\n{MARK}</tool_call>[e~["), '{"city": "Oslo"}', ["missing_close"]),
    ],
)
def test_what_a_model_writes_is_read_alike_in_any_pieces(text: str, arguments: str, odd: list[str]) -> None:
    whole = read(text, len(text))
    assert ([("f", arguments)], odd) == outline(whole)
    for size in (1, 2, 3, 7):
        assert whole == read(text, size)


@pytest.mark.parametrize(
    "text",
    [
        written("text"),
        written("]<x"),
        written("@<city>Oslo@</city>]\n\ntext"),
        written("@<city>a@<b>c@</b>@</city>"),
        written("@<city>Oslo", close="[e~["),
        written("@ <city>Oslo@</city>"),
        written("@<city\n>Oslo@</city>"),
    ],
)
def test_what_is_none_stays_text(text: str) -> None:
    whole = read(text, len(text))
    calls, odd = outline(whole)
    assert (calls, odd[:1]) in (([], ["invalid_call"]), ([], ["unclosed_call"]))
    for size in (1, 3):
        assert whole == read(text, size)


def test_a_string_is_told_as_it_comes() -> None:
    parser = ts.get_format("minimax-m3").parser([TOOL])
    parser.feed(f'{MARK}<tool_call>\n{MARK}<invoke name="f">{MARK}<city>')
    told = ["".join(getattr(event, "text", "") for event in parser.feed(one)) for one in ("Os", 'l"o', f"{MARK[:5]}")]
    assert ["Os", 'l\\"o', ""] == told


def values() -> Iterator[object]:
    yield from ("", "5", "null", "[1]", " x ", MARK, f"{MARK}</city>", "]<", "[e~[", "<item>", "\ud7ff", '"q"')
    yield from (5, -1.5, 1e300, None, True, [], {}, [[]], [{}], [None, "5", ["a"]], {"item": 1}, {"item": {"a": 1}})
    yield from ({"a": {"b": [{"c": "]<]"}, 2]}}, {"two words": 1}, {"a/b": 1}, {"": 0}, {"]<]minimax[>[": 1})
    yield json.loads("[" * 200 + "]" * 200)


@pytest.mark.parametrize("value", list(values()), ids=repr)
@pytest.mark.parametrize("key", ["city", "days", "tags", "where", "other", "two words", "/x", "item", ""])
def test_a_value_comes_back_or_its_loss_is_told(key: str, value: object) -> None:
    arguments = json.dumps({key: value}, ensure_ascii=False)
    item = ToolCall(name="f", arguments=arguments)
    rendered = ts.get_format("minimax-m3").render(ts.Request(conversation=ts.Conversation(items=[item], tools=[TOOL])))
    [again] = [one for one in ts.get_format("minimax-m3").parse(str(rendered.value)).items if one.kind == "tool_call"]
    assert isinstance(again, ToolCall)
    lost = [loss for loss in rendered.losses if loss.path.endswith(".arguments")]
    assert bool(lost) == (arguments != again.arguments)
    if key not in ("city", "tags", "where"):  # no string there, and of strings no other
        assert json.loads(arguments) == json.loads(again.arguments)


@pytest.mark.deep
@pytest.mark.parametrize("element", ["@<city>{}@</city>", "@<other>{}@</other>", "@<tags>@<item>{}@</item>@</tags>"])
def test_a_long_argument_takes_time_in_proportion(element: str) -> None:
    def spent(size: int) -> float:
        text = written(element.format("a ]< b" * (size // 6)))
        start = process_time()
        [(_, arguments)] = outline(read(text, 16))[0]
        assert len(arguments) > size - 6
        return process_time() - start

    spent(16_384)
    assert spent(524_288) < 24 * max(spent(65_536), 0.01)
