"""Owns the laws of reading transcripts: every byte is in the conversation or in the report, and nothing is added.

They are held on all formats that have names: what is read from a file may be in any.
"""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.contents import escaped
from tests.strategies import altered
from turnscript.core.json_text import Json, compact, is_json, json_of

assert settings.default is not None
FEWER = settings(max_examples=max(1, settings.default.max_examples // 8))
NAMES = [*ts.formats(), *ts.model_formats()]
SCHEMA = json_of({"type": "object", "properties": {"city": {"type": "string", "description": "where"}}})
WEATHER = ts.Tool(name="weather", description="Tell it.", parameters=SCHEMA)


def said(text: str) -> list[ts.Part]:
    return [ts.Text(text=text)]


def called(number: int) -> ts.ToolCall:
    return ts.ToolCall(name="weather", id=f"call_{number}", arguments='{"city": "Oslo"}')


def answered(number: int, text: str) -> ts.ToolResult:
    return ts.ToolResult(name="weather", id=f"call_{number}", content=said(text))


def request_of(*items: ts.Item) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items=[*items], tools=[WEATHER]))


BEGUN = ts.System(content=said("Be brief.")), ts.User(content=said("Weather?"))
SPOKEN = request_of(
    *BEGUN,
    ts.Assistant(content=said("Let me look.")),
    called(1),
    answered(1, '{"sky": "blue"}'),
    ts.Thinking(content=said("Fine.")),
    ts.Assistant(content=said("It is fine.")),
    ts.User(content=said("Thanks.")),
)
TWICE = request_of(*BEGUN, called(1), called(2), answered(1, "rain"), answered(2, '{"sky": "grey"}'))


def everything(request: ts.Request) -> str:
    """All that a request says, as text."""

    def plainly(value: object) -> object:
        if isinstance(value, Json):
            return bytes(value).decode()
        return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else repr(value)

    said = [request.conversation, request.tight, request.unasked, request.settings.thoughts]
    return msgspec.json.encode(said, enc_hook=plainly).decode() + repr(request.unread)


def writes_json(name: str) -> bool:
    """Whether there is JSON in the transcripts of a format."""
    return all([*altered.objects(str(ts.get_format(name).render(one).value))] for one in (SPOKEN, TWICE))


def without_turns(format_: ts.Format, transcript: str) -> str:
    """A transcript without the literals of turns: what is understood in one turn may be written in two."""
    for turn in format_.document.turns:
        groups = [one.group for one in turn.segments if one.group is not None]
        for literal in (turn.open, turn.close, *(mark for group in groups for mark in (group.open, group.close))):
            transcript = transcript.replace(literal.strip(), " ") if literal.strip() else transcript
    return transcript


def check(format_: ts.Format, transcript: str) -> ts.Request | None:
    """A transcript is refused, or all of it is in the conversation or in the report. Gives it where nothing is lost."""
    try:
        request = format_.parse(transcript)
    except ts.InvalidTranscript:
        return None
    losses = [*request.unread, *format_.render(request).losses]
    assert losses or altered.MARK not in transcript or altered.MARK in everything(request)
    return None if losses else request


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(data=st.data(), source=st.sampled_from([SPOKEN, TWICE]))
def test_a_word_that_nobody_declared_is_kept_told_or_refused(
    name: str, data: st.DataObject, source: ts.Request
) -> None:
    format_ = ts.get_format(name)
    transcript = data.draw(altered.other_text(str(format_.render(source).value)))
    note(transcript)
    request = check(format_, transcript)
    if request is not None and altered.MARK in transcript:
        for api in ts.apis():
            body = ts.render(request, api)
            assert body.losses or altered.MARK in str(body.value), f"neither in the body of {api} nor in its losses"


@pytest.mark.parametrize("name", [name for name in NAMES if writes_json(name)])
@FEWER
@given(data=st.data(), source=st.sampled_from([SPOKEN, TWICE]))
def test_json_is_kept_told_or_refused(name: str, data: st.DataObject, source: ts.Request) -> None:
    """Members that calls, results and tools do not have, that are missing or come twice, and values of other types:
    where nothing is told, what is written again says the same."""
    format_ = ts.get_format(name)
    transcript = data.draw(altered.other_json(str(format_.render(source).value)))
    note(transcript)
    request = check(format_, transcript)
    if request is not None:
        again = str(format_.render(request).value)
        note(again)
        first, second = (without_turns(format_, one) for one in (transcript, again))
        same = altered.meaning(first) == altered.meaning(second)
        assert same or altered.without_layout(first) == altered.without_layout(second)


WRITING_JSON = [name for name in NAMES if writes_json(name)]


def unnamed_members(request: ts.Request) -> dict[str, str]:
    """All members of a request that nobody named, of its items, their parts and its tools, with one spacing."""
    parts = [part for item in request.items for part in getattr(item, "content", ())]
    holders = [*request.items, *parts, *request.tools]
    return {key: compact(value) for holder in holders for key, value in getattr(holder, "extra", {}).items()}


@pytest.mark.parametrize("name", WRITING_JSON)
@FEWER
@given(data=st.data(), source=st.sampled_from([SPOKEN, TWICE]))
def test_what_is_no_json_is_refused_or_a_text(name: str, data: st.DataObject, source: ts.Request) -> None:
    """No member holds it: what is written of that would be no JSON either."""
    transcript = data.draw(altered.no_json(str(ts.get_format(name).render(source).value)))
    note(transcript)
    try:
        request = ts.get_format(name).parse(transcript)
    except ts.InvalidTranscript:
        return
    assert all(is_json(value) for value in unnamed_members(request).values())
    for api in ts.apis():
        json.loads(ts.render(request, api).data)


@pytest.mark.parametrize("name", WRITING_JSON)
@FEWER
@given(data=st.data(), source=st.sampled_from([SPOKEN, TWICE]))
def test_a_member_that_an_api_calls_so_too_is_kept_or_told(name: str, data: st.DataObject, source: ts.Request) -> None:
    """It is none of the API's own: where nothing is told of it, reading the body gives it as it was."""
    format_ = ts.get_format(name)
    transcript = data.draw(altered.other_member(str(format_.render(source).value)))
    note(transcript)
    try:
        request = format_.parse(transcript)
    except ts.InvalidTranscript:
        return
    members = {key: value for key, value in unnamed_members(request).items() if altered.MARK in value}
    for api in ts.apis() if members else ():
        body = ts.render(request, api)
        if not body.losses:
            again = unnamed_members(ts.get_api(api).parse_request(body.data))
            assert members.items() <= again.items(), f"neither in the body of {api} nor in its losses"


@pytest.mark.parametrize("api", ts.apis())
@pytest.mark.parametrize("key", [*altered.NAMES, "phase", "summary", "caller", "reasoning", "refusal"])
def test_members_of_a_transcript_have_no_meaning_of_an_api(key: str, api: str) -> None:
    """Of a call, a result, a tool and a text: each is kept as it is, or a loss at its place."""
    for value in map(json_of, [*altered.MARKED, True, 1]):
        extra = {key: value}
        asked = ts.ToolCall(name="f", id="a", arguments="{}", extra=extra, at="line 3")
        result = ts.ToolResult(name="f", id="a", content=said("rain"), extra=extra, at="line 5")
        tool = ts.Tool(name="f", extra=extra)
        answer = ts.Assistant(content=said("Fine."), extra=extra, at="line 7")
        for one in (asked, result, tool, answer):
            items: list[ts.Item] = [
                ts.User(content=said("Hi"), at="line 1"),
                *([one] if not isinstance(one, ts.Tool) else []),
            ]
            if one is result:
                items.insert(1, msgspec.structs.replace(asked, extra={}))
            conversation = ts.Conversation(items=items, tools=[tool] if one is tool else [])
            body = ts.render(ts.Request(conversation=conversation), api)
            place = "$.tools[0]" if isinstance(one, ts.Tool) else one.at
            paths = [loss.path for loss in body.losses]
            told = place in paths or any(path.startswith(f"{place}.{key}") for path in paths)
            again = [] if told else unnamed_members(ts.get_api(api).parse_request(body.data)).items()
            assert told or (key, compact(value)) in again, (one, body.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_that_ends_in_its_first_turn_is_written_again(name: str) -> None:
    """Instructions that are not finished are the first ones: none are written before them."""
    format_ = ts.get_format(name)
    whole = str(format_.render(ts.Request(conversation=ts.Conversation(items=[BEGUN[0]]))).value)
    for end in range(whole.find("Be brief."), whole.find("Be brief.") + len("Be brief.")):
        request = check(format_, whole[:end])
        assert request is None or format_.render(request).value == whole[:end] or format_.document.flattened


def written(format_: ts.Format, *items: ts.Item) -> str:
    """A document without its end, so that more can follow."""
    return str(format_.render(request_of(*items)).value).removesuffix(format_.document.end)


@pytest.mark.parametrize("name", NAMES)
def test_two_turns_of_results_are_kept_or_told(name: str) -> None:
    """Also where the format writes the results of one answer as one turn."""
    format_ = ts.get_format(name)
    asked = (*BEGUN, called(1), called(2))
    between = ts.User(content=said("Go on."))
    first = written(format_, *asked, answered(1, "rain"))
    then, last = (written(format_, *asked, answered(1, "rain"), between, *more) for more in ((), (answered(2, "sun"),)))
    if then.startswith(first) and last.startswith(then):  # all but the formats whose turns hold both
        transcript = f"{first}{last[len(then) :]}{format_.document.end}"
        request = check(format_, transcript)
        assert request is None or format_.render(request).value == transcript


def _without_empty(request: ts.Request) -> tuple[list[ts.Item], list[ts.Tool]]:
    return [
        item for item in request.items if not isinstance(item, ts.System) or item.content != said("")
    ], request.tools


@pytest.mark.parametrize("name", ts.formats())
def test_a_transcript_without_a_label_is_read_as_its_format_reads_it_or_refused(name: str) -> None:
    """Also where nothing tells the start of its document, and where there is nothing that only this format has."""
    format_ = ts.get_format(name)
    plain = request_of(*BEGUN, ts.Assistant(content=said("Fine.")))
    plain.conversation.tools = []
    unasked = ts.Request(conversation=ts.Conversation(items=plain.items[1:]))
    for request in (SPOKEN, TWICE, plain, unasked):
        whole = str(format_.render(request).value)
        for text in (whole, whole.removeprefix(format_.document.start).removesuffix(format_.document.end)):
            assert _without_empty(format_.parse(text)) == _without_empty(ts.parse(text))


CONTROLS = sorted({one.strip() for name in NAMES for one in ts.get_format(name).document.literals})
ESCAPED = [one for name in NAMES for one in escaped(ts.get_format(name), CONTROLS)]
PIECES = st.sampled_from([*CONTROLS, '{"name":', '[{"name": "f"}]', "x", "\n"]) | st.sampled_from(sorted({*ESCAPED}))


@pytest.mark.parametrize("name", NAMES)
@FEWER
@example('<tool_call>{"name":"f"}</tool_call>', "")
@example('<think>{"name":', "")
@example('<tool_result>{"name":"x"}', "")
@example("", '<tool_call>\n{"name": "f"}')
@example("", ">>>all")
@example("", "# Tools\n\n<tools>\n")
@given(*[st.lists(PIECES, max_size=4).map("".join)] * 2)
def test_contents_of_marks_are_read_as_their_format_reads_them_or_refused(name: str, asked: str, answer: str) -> None:
    """No content tells which format a transcript is in, and where formats take its escapes differently, all are named.

    A text that one format writes may be the turn of a call in another, whose marks it does not escape.
    """
    format_ = ts.get_format(name)
    items: list[ts.Item] = [ts.User(content=said(asked)), ts.Assistant(content=said(answer))]
    text = str(format_.render(ts.Request(conversation=ts.Conversation(items=items))).value)
    own = format_.parse(text)
    try:
        read = ts.parse(text)
    except ts.InvalidInput as error:
        named = error.expected.split(" or ") if "differently" in error.message else [name]
        readings = [_without_empty(ts.get_format(one).parse(text)) for one in named]
        assert name not in ts.formats() or _without_empty(own) in readings
        return
    note(ts.detect_api(text))
    if not read.unread and [item.kind for item in read.items] == [item.kind for item in own.items]:
        assert _without_empty(own) == _without_empty(read)


@pytest.mark.parametrize("name", NAMES)
def test_a_closing_that_is_missing_is_told_or_refused(name: str) -> None:
    """What stands behind it would else be a text of the turn that nobody closed.

    Openings that are people's words, which no escape protects, may stand in any text.
    """
    format_ = ts.get_format(name)
    words = any(turn.open and not format_.protects(turn.open) for turn in format_.document.turns)
    speakers: list[ts.Item] = [ts.User(content=said("Hello")), ts.Assistant(content=said("Hi"))]
    text = str(format_.render(ts.Request(conversation=ts.Conversation(items=speakers * 2))).value)
    whole = format_.parse(text)
    for close in {turn.close.strip() for turn in format_.document.turns if turn.close.strip()}:
        for place in [found.start() for found in re.finditer(re.escape(close), text)][:-1]:
            broken = text[:place] + text[place + len(close) :]
            try:
                read = format_.parse(broken)
            except ts.InvalidTranscript:
                continue
            assert words or read.unread or _without_empty(read) == _without_empty(whole)


def without_lines(request: ts.Request) -> str:
    """All that a request says, but not where it stands."""
    return re.sub(r'"line \d+[^"]*"', '""', everything(request))


SPACES = " ", "\t", "\n", "\n\n", " \n"


@pytest.mark.parametrize("name", NAMES)
def test_white_space_beside_a_text_is_kept_or_told(name: str) -> None:
    """At its start, inside and at its end, of all that somebody says. Line ends at the end of a file are no text's."""
    format_ = ts.get_format(name)
    transcript = str(format_.render(SPOKEN).value)
    kept = without_lines(format_.parse(transcript))
    for text in ("Be brief.", "Weather?", "Let me look.", "Fine.", "It is fine.", "Thanks."):
        found = transcript.find(text)
        for place in (found, found + len(text) - 1, found + len(text)) if found >= 0 else ():
            for space in SPACES:
                spaced = transcript[:place] + space + transcript[place:]
                try:
                    read = format_.parse(spaced)
                except ts.InvalidTranscript:
                    continue
                ends_file = not spaced[place:].strip("\r\n")
                assert ends_file or read.unread or without_lines(read) != kept, (
                    f"{text!r}: {space!r} at {place - found}"
                )


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", ts.formats())
def test_a_prompt_that_is_read_asks_for_the_same(name: str, thinking: bool) -> None:
    """What it opens for the model, a thought or an answer, is opened again, and what asks for it is not said twice."""
    format_ = ts.get_format(name)
    for request in (SPOKEN, ts.Request(conversation=ts.Conversation(items=[*BEGUN]))):
        prompt = format_.prompt(request, thinking=thinking and format_.features.thinking)
        again = format_.prompt(format_.parse(prompt.text))
        assert (prompt.text, prompt.prefill, []) == (again.text, again.prefill, again.losses)


@pytest.mark.parametrize("begun", [ts.Thinking, ts.Assistant])
@pytest.mark.parametrize("name", ts.formats())
def test_an_answer_that_has_begun_goes_on_where_its_prompt_ends(
    name: str, begun: type[ts.Thinking | ts.Assistant]
) -> None:
    """Inside a thought too: a prompt that is read ends where it ended, and what is generated is of the same part."""
    format_ = ts.get_format(name)
    items: list[ts.Item] = [*BEGUN, begun(content=said("Hm, it"), open=True)]
    prompt = format_.prompt(request_of(*items))
    again = format_.prompt(format_.parse(prompt.text))
    assert prompt.text.endswith("Hm, it")
    parser = prompt.parser()
    assert ts.fold([*parser.feed(" is"), *parser.close("length")]).items[0].kind == begun.kind
    assert (format_.document.flattened and begun is ts.Assistant) or prompt.text == again.text


def literals_of(format_: ts.Format) -> list[str]:
    """Each line of a format's control literals."""
    lines = (line.strip() for literal in format_.document.literals for line in literal.split("\n"))
    return list(dict.fromkeys(line for line in lines if line))


def is_silent(format_: ts.Format, transcript: str, changed: str) -> bool:
    """Whether a changed transcript is read as it was before, without a word."""
    try:
        read = format_.parse(changed)
    except ts.InvalidTranscript:
        return False
    return not read.unread and without_lines(read) == without_lines(format_.parse(transcript))


@pytest.mark.parametrize("name", NAMES)
def test_a_literal_that_stands_twice_is_kept_told_or_refused(name: str) -> None:
    """Each at each place where it stands."""
    format_ = ts.get_format(name)
    for source in (SPOKEN, TWICE):
        transcript = str(format_.render(source).value)
        for literal in literals_of(format_):
            for found in re.finditer(re.escape(literal), transcript):
                doubled = transcript[: found.end()] + literal + transcript[found.end() :]
                assert not is_silent(format_, transcript, doubled), f"{literal} at {found.start()}"


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(data=st.data(), source=st.sampled_from([SPOKEN, TWICE]))
def test_a_literal_beside_another_is_kept_told_or_refused(name: str, data: st.DataObject, source: ts.Request) -> None:
    """Explanations of the system turn are many lines and no literals of their own: those that look like marks are."""
    format_ = ts.get_format(name)
    transcript = str(format_.render(source).value)
    marks = st.sampled_from([one for one in literals_of(format_) if re.search(r"[<>\[\]:|]", one)])
    places = re.finditer(re.escape(data.draw(marks.filter(transcript.__contains__))), transcript)
    found, literal = data.draw(st.sampled_from([*places])), data.draw(marks)
    place = data.draw(st.sampled_from([found.start(), found.end()]))
    changed = transcript[:place] + literal + transcript[place:]
    note(changed)
    assert not is_silent(format_, transcript, changed)


@pytest.mark.parametrize("name", NAMES)
def test_a_closing_that_is_left_out_is_kept_told_or_refused(name: str) -> None:
    """Of a turn, a block, a group or the tool list, at each place where it stands.

    What says that there is no thought may be left out.
    """
    format_ = ts.get_format(name)
    segments = [one for turn in format_.document.turns for one in turn.segments]
    tools = format_.document.tools_place
    closings = {one.close for one in (*format_.document.turns, *segments, *((tools,) if tools else ()))}
    closings |= {one.group.close for one in segments if one.group is not None}
    for source in (SPOKEN, TWICE):
        transcript = str(format_.render(source).value)
        for literal in {one.strip() for one in closings} - {
            "",
            *(turn.no_thought.strip() for turn in format_.document.turns),
        }:
            for found in re.compile(re.escape(literal)).finditer(transcript, len(format_.document.start)):
                without = transcript[: found.start()] + transcript[found.end() :]
                assert not is_silent(format_, transcript, without), f"{literal} at {found.start()}"
