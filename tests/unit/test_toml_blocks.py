"""Owns declared formats of blocks, as dialects of the Universal template: whatever shape calls have, they are read."""

import re
from pathlib import Path

import pytest

import turnscript as ts
from turnscript.convert.registry import load_formats
from turnscript.core.errors import InvalidTranscript
from turnscript.formats.format import Format
from turnscript.tableio import dump_format
from turnscript.tableio.tables import InvalidFormat


def dialect(folder: Path, kind: str, body: str) -> Format:
    """The Universal template with another shape for the items of a kind."""
    text = dump_format(ts.get_format("rwkv-universal")).replace('name = "rwkv-universal"', 'name = "mine"', 1)
    before, opening, after = text.partition(f'kind = "{kind}"\n')
    path = folder / "mine.toml"
    path.write_text(before + opening + re.sub("body = .*", f"body = {body}", after, count=1), encoding="utf-8")
    [found] = load_formats(path)
    return found


def talk(arguments: str) -> ts.Request:
    items: list[ts.Item] = [
        ts.User(content=[ts.Text(text="Hi")]),
        ts.ToolCall(name="f", id="c1", arguments=arguments),
        ts.ToolResult(name="f", id="c1", content=[ts.Text(text="[1]")]),
    ]
    return ts.Request(conversation=ts.Conversation(items=items))


CALLS = {"json-call": '{"a":1,"b":"x y"}', "python-call": '{"a": 1, "b": "x y"}'}


@pytest.mark.parametrize("view", ["archive", "prompt"])
@pytest.mark.parametrize("body", CALLS)
def test_calls_of_every_shape_are_read_from_their_blocks(tmp_path: Path, body: str, view: str) -> None:
    format_ = dialect(tmp_path, "tool_call", f'"{body}"')
    request = talk(CALLS[body])
    text = format_.render(request, view=view).value
    assert request.items == format_.parse(text).items


@pytest.mark.parametrize(
    ("body", "old", "new", "words"),
    [
        ("json-call", '"name"', '"label"', "a tool call must be one JSON object with"),
        ("json-call", "{", "[", "a tool call must be one JSON object with"),
        ("python-call", '"a"=1', '"a":1', 'the arguments of a call must be written "key"=value'),
    ],
)
def test_a_call_that_is_broken_is_an_error_at_its_line(
    tmp_path: Path, body: str, old: str, new: str, words: str
) -> None:
    format_ = dialect(tmp_path, "tool_call", f'"{body}"')
    text = format_.render(talk(CALLS[body]), view="prompt").value
    start = text.index("<<TOOL_CALL")
    assert old in text[start:]
    with pytest.raises(InvalidTranscript, match=re.escape(words)) as caught:
        format_.parse(text[:start] + text[start:].replace(old, new, 1))
    assert text[:start].count("\n") + 2 == caught.value.line


def test_results_as_json_are_read_from_their_blocks(tmp_path: Path) -> None:
    format_ = dialect(tmp_path, "tool_result", '"json-result"')
    text = format_.render(talk("{}"), view="prompt").value
    assert talk("{}").items == format_.parse(text).items
    with pytest.raises(InvalidTranscript, match='one JSON object with "name" and "content"'):
        format_.parse(text.replace('"content"', '"contents"'))


def test_a_shape_that_no_block_is_read_in_is_refused(tmp_path: Path) -> None:
    body = '{ name = "xml-parameters", open = "<parameter", close = "</parameter>" }'
    with pytest.raises(InvalidFormat):
        dialect(tmp_path, "tool_call", body)
