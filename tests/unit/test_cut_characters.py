"""Owns the law of cut characters: an emoji in two events is one in the text, and half of one is never lost unsaid."""

from __future__ import annotations

import pytest

import turnscript as ts
from tests.strategies import events as drawn
from turnscript.convert.verbs import left_out
from turnscript.core.json_text import Json
from turnscript.core.split_characters import Halves

ASKED = ts.Request(settings=ts.Settings(model="m", stream=True, stream_options=Json(b'{"include_usage":true}')))
TEXTS = "before", "behind"
WHOLE = "Hi \U0001f600!"


def sent(api: ts.Api, first: str, second: str) -> bytes:
    """A stream of a server that tells its text in two pieces, given as JSON has them between quotation marks."""
    answer = ts.Response(items=[ts.Assistant(content=[ts.Text(text="".join(TEXTS))])], finish_reason="stop", id="r")
    renderer = api.stream_renderer(ASKED)
    data = renderer.send(drawn.told(answer, lambda _: list(TEXTS))) + renderer.close()
    said = data.decode().replace("".join(TEXTS), first + second)
    return said.replace(f'"{TEXTS[0]}"', f'"{first}"').replace(f'"{TEXTS[1]}"', f'"{second}"').encode()


def read(api: ts.Api, data: bytes, size: int) -> ts.Response:
    parser = api.stream_parser()
    events = [event for at in range(0, len(data), size) for event in parser.feed(data[at : at + size])]
    return ts.fold([*events, *parser.close()])


def said(response: ts.Response) -> str:
    return "".join(part.text for item in response.items for part in getattr(item, "content", []))


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ts.apis())
@pytest.mark.parametrize(("first", "second"), [(r"Hi \ud83d", r"\ude00!"), (r"Hi \uD83D", r"\uDE00!")])
def test_a_character_in_two_events_is_one(name: str, first: str, second: str, size: int) -> None:
    api = ts.get_api(name)
    response = read(api, sent(api, first, second), size)
    assert (WHOLE, "stop", []) == (said(response), response.finish_reason, response.issues)


@pytest.mark.parametrize("name", [name for name in ts.apis() if name != "openai-responses"])
def test_half_of_one_is_left_out_and_said(name: str) -> None:
    """An API whose events tell the whole text once more has half of a character there too, which is an error."""
    api = ts.get_api(name)
    response = read(api, sent(api, r"Hi \ud83d", "!"), 100)
    assert "Hi !" == said(response)
    assert ["half_character"] == [issue.kind for issue in response.issues]
    assert ["dropped"] == [loss.kind for loss in left_out(response.issues)]


@pytest.mark.parametrize("behind", [r'{"a":"\ud83d"}', r'{"a":"\ude00"}', '{"a":"b"}'])
@pytest.mark.parametrize("first", ["Hi", r"Hi \ud83d"])
@pytest.mark.parametrize("name", [name for name in ts.apis() if name != "openai-responses"])
def test_what_is_said_of_halves_does_not_hang_on_how_bytes_were_cut(name: str, first: str, behind: str) -> None:
    """Also where what stands behind the end of the answer has half of a character, or the other half."""
    api = ts.get_api(name)
    data = sent(api, first, "!") + f"data: {behind}\n\n".encode()
    [issues] = {tuple(read(api, data, size).issues) for size in (1, 7, 100, len(data))}
    assert "behind_the_end" in [issue.kind for issue in issues]


@pytest.mark.parametrize(
    ("data", "joined"),
    [
        (
            [r'{"a":"\ud83d"}', '{"type":"ping"}', r'{"a":"\ude00"}'],
            ['{"a":""}', '{"type":"ping"}', r'{"a":"\ud83d\ude00"}'],
        ),
        ([r'["\ud83d"]', r'["\ude00\ud83d"]', r'["\ude01"]'], ['[""]', r'["\ud83d\ude00"]', r'["\ud83d\ude01"]']),
        (
            [r'["\ud83d\ude00"]', r'["\\ud83d"]', r'["\\\\ud83d"]'],
            [r'["\ud83d\ude00"]', r'["\\ud83d"]', r'["\\\\ud83d"]'],
        ),
        ([r'["\\\ud83d"]', r'["\"\ude00"]', r'["\ude00"]'], [r'["\\"]', r'["\"\ude00"]', r'["\ud83d\ude00"]']),
        ([r'["\ud83d","\ud83d"]', r'["\ude00"]'], [r'["\ud83d","\ud83d"]', r'["\ude00"]']),
        ([r'["\ude00"]'], [r'["\ude00"]']),
    ],
    ids=["over others", "in a row", "none cut", "behind backslashes", "in doubt", "the other half alone"],
)
def test_only_halves_at_the_ends_of_strings_are_joined(data: list[str], joined: list[str]) -> None:
    halves = Halves()
    assert joined == [halves.joined(one) for one in data]
