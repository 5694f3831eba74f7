"""Owns the laws of completion parsers: what a model writes is read back, in any pieces, and no byte is lost."""

import itertools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from copy import copy, deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.conformance.contents import escaped
from tests.conformance.examples import fewer
from tests.growth import assert_grows_below
from tests.strategies import conversations, text
from turnscript.core.conversation import Dropped
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, raw_text
from turnscript.core.json_spelling import shown_items
from turnscript.core.json_text import json_of

FEWER = fewer()
MODELS = (ts.Assistant, ts.Thinking, ts.ToolCall)
WEATHER = ts.Tool(
    name="get_weather", parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}})
)


def events_of(
    format_: ts.Format, request: ts.Request, pieces: list[str] | list[bytes], thinking: bool | None = False
) -> list[Event]:
    """All events of an answer in pieces."""
    return events_behind(format_.prompt(request, thinking=thinking), pieces)


def events_behind(prompt: ts.Prompt, pieces: list[str] | list[bytes]) -> list[Event]:
    """All events of an answer to a prompt, each with a parser of its own."""
    parser = prompt.parser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


def check_events(events: list[Event], written: str) -> ts.Response:
    """F4: parts start, grow and end in order; deltas join to the part, a call's name is told once; no byte is lost."""
    assert written == raw_text(events)
    assert isinstance(events[-1], MessageEnd)
    texts: list[str] = []
    begun: ts.Item | None = None
    expected, going_on = 0, False
    for event in events[:-1]:
        assert not isinstance(event, MessageEnd)
        assert expected == event.index
        if isinstance(event, PartStart):
            assert not going_on
            going_on, texts, begun = True, [""], event.part
        elif isinstance(event, PartDelta):
            assert going_on
            texts += [""] if isinstance(event, NextText) else []
            texts[-1] += event.text
        elif isinstance(event, PartEnd):
            assert going_on
            going_on, expected = False, expected + 1
            if event.part is not None:
                assert texts == contents_of(event.part)
                assert named(begun) == named(event.part)
    assert not going_on
    return ts.fold(events)


def named(item: ts.Item | None) -> tuple[str, str]:
    """What kind of part it is, and which tool is called."""
    assert item is not None
    return item.kind, item.name if isinstance(item, ts.ToolCall) else ""


def contents_of(item: ts.Item) -> list[str]:
    """What the deltas of an item join to, by its texts."""
    if isinstance(item, ts.ToolCall):
        return [item.arguments]
    assert isinstance(item, ts.Assistant | ts.Thinking)
    return [part.text for part in item.content if isinstance(part, ts.Text)]


def content_of(item: ts.Item) -> str:
    """The same as one."""
    return "".join(contents_of(item))


def answers(request: ts.Request) -> Iterator[tuple[ts.Request, list[ts.Item]]]:
    """Each run of the model's items in a conversation, with the request that it answers."""
    items, start = request.items, 0
    while start < len(items):
        end = start
        while end < len(items) and isinstance(items[end], MODELS):
            end += 1
        if end > start:
            asked = ts.Request(conversation=ts.Conversation(items=items[:start], tools=request.tools))
            yield asked, items[start:end]
        start = end + 1


def written_by_model(format_: ts.Format, asked: ts.Request, items: list[ts.Item]) -> str | None:
    """What the model writes for these items; None where they do not follow the prompt in one turn."""
    if says_no_thought(format_) and any(isinstance(item, ts.Thinking) for item in items):
        return None
    shown = format_.prompt(asked, thinking=False).text
    prompt = as_past(format_, shown)
    whole = ts.Request(conversation=ts.Conversation(items=[*asked.items, *items], tools=asked.tools))
    document = str(format_.render(whole, view="prompt").value).removesuffix(format_.document.end)
    opening = begun_opening(format_)
    prompt = prompt.removesuffix(opening)
    if not document.startswith(prompt):
        return None
    written = document[len(prompt) :]
    if prompt != shown and ends_thought(format_, items):
        return behind_thought(format_, items, written)
    return written if written.startswith(opening) else None


def begun_opening(format_: ts.Format) -> str:
    """What a prompt for an answer ends with of a text's opening: all of it, or its beginning."""
    opening, begun = format_.document.segment("assistant"), format_.document.generation.answer_prefill
    return f"{opening.open}{opening.head_end}" if begun is None else begun


def behind_thought(format_: ts.Format, items: Iterable[ts.Item], written: str) -> str:
    """What the model writes where every prompt begins a thought: the rest of it, or its end, and then what it says."""
    prefill, over = format_.document.generation.prefill, ends_thought(format_, items)
    return written.removeprefix(prefill) if over and written.startswith(prefill) else f"{over}{written}"


def ends_thought(format_: ts.Format, items: Iterable[ts.Item]) -> str:
    """What a model writes before items where every prompt begins a thought: the end of one that says nothing, and what
    joins the two; or only that, where a prompt ends with an empty thought."""
    document, thought = format_.document, format_.document.segment("thinking") if format_.features.thinking else None
    prefill = document.generation.prefill
    if thought is None or not prefill:
        return ""
    joint = document.joints.get((thought.kind, next(iter(items)).kind), "")
    if prefill == f"{thought.open}{thought.head_end}":
        return f"{thought.close}{joint}"
    return joint if prefill.endswith(thought.close.strip()) else ""


def as_past(format_: ts.Format, prompt: str) -> str:
    """A prompt without the thought that it writes or begins, and past turns do not have."""
    writes = says_no_thought(format_) or bool(ends_thought(format_, [ts.Assistant()]))
    return prompt.removesuffix(format_.document.generation.prefill) if writes else prompt


def says_no_thought(format_: ts.Format) -> bool:
    """Whether a prompt for an answer without a thought writes an empty one, and past turns do not have it."""
    segments = [segment for turn in format_.document.turns for segment in turn.segments]
    closings = tuple(one.close.strip() for one in segments if one.kind == "thinking" and one.close)
    return format_.document.generation.prefill.rstrip().endswith(closings)


def every_cut(written: str) -> Iterator[list[str]]:
    """F3: every way to cut a text in two, single characters, and a few regular sizes."""
    yield list(written)
    for size in (2, 3, 5, 7, 13):
        yield [written[at : at + size] for at in range(0, len(written), size)]
    for at in range(1, len(written), max(1, len(written) // 120)):
        yield [written[:at], written[at:]]


def few_cuts(written: str) -> Iterator[list[str]]:
    """Single characters, and a cut near the beginning, in the middle and near the end."""
    yield list(written)
    for at in (1, 3, len(written) // 2, len(written) - 1):
        yield [written[:at], written[at:]]


def test_the_corpus_has_answers_for_every_format(format_name: str) -> None:
    """The laws below look at what can be cut out of a document; here that is enough."""
    format_ = ts.get_format(format_name)
    found = [
        name
        for name in corpora.names()
        for asked, items in answers(corpora.load(name))
        if written_by_model(format_, asked, items) is not None
    ]
    assert len(set(found)) >= 40


@corpora.on_every
def test_an_answer_reads_back_in_any_pieces(format_name: str, name: str) -> None:
    """F2, F3: the parser reads what the renderer writes for the model, however it is cut."""
    format_ = ts.get_format(format_name)
    request = corpora.load(name)
    if any(isinstance(item, ts.ToolCall) for item in request.items) and not request.tools:
        request.conversation.tools = [WEATHER]
    for asked, items in answers(request):
        written = written_by_model(format_, asked, items)
        if written is None:
            continue
        written = after_opening(format_, written)
        whole = check_events(events_of(format_, asked, [written]), written)
        rendered = format_.render(ts.Request(conversation=ts.Conversation(items=items, tools=asked.tools)))
        lossy = any(loss.path.startswith("items[") for loss in rendered.losses)
        if not lossy and is_one_turn(format_, items):
            assert said(list(shown_items(items, lambda _: False))) == said(whole.items)
        prompt = format_.prompt(asked, thinking=False)
        for pieces in every_cut(written):
            assert whole == check_events(events_behind(prompt, pieces), written)


@FEWER
@given(data=st.data())
def test_an_answer_of_several_texts_reads_back(format_name: str, data: st.DataObject) -> None:
    """F2, F3: each as its own where the format has a line between two; where it has none, as it joins them."""
    format_ = ts.get_format(format_name)
    said_ = data.draw(st.lists(text.texts().filter(str.strip), min_size=2, max_size=3))
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    answer = ts.Assistant(content=[ts.Text(text=one) for one in said_])
    written = written_by_model(format_, asked, [answer])
    assert written is not None
    written = after_opening(format_, written)
    whole = check_events(events_of(format_, asked, [written]), written)
    if format_.document.segment("assistant").body.next_text:
        assert [said_] == [contents_of(item) for item in whole.items]
    prompt = format_.prompt(asked, thinking=False)
    size = data.draw(st.integers(1, 9))
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    assert whole == check_events(events_behind(prompt, pieces), written)


@corpora.on_every
def test_the_next_prompt_begins_with_this_one_and_its_answer(format_name: str, name: str) -> None:
    """F9: whatever the model wrote, the prompt that goes on from it begins with both, and renders what is new alone."""
    format_ = ts.get_format(format_name)
    request = corpora.load(name)
    for asked, items in answers(request):
        written = written_by_model(format_, asked, items)
        if written is None:
            continue
        prompt = format_.prompt(asked, thinking=False)
        generated = after_opening(format_, written)
        answer = ts.fold(events_of(format_, asked, [generated]))
        following = request.items[len(asked.items) + len(items) :]
        following = following[: next((at for at, one in enumerate(following) if isinstance(one, MODELS)), None)]
        longer = prompt.extend(answer, following)
        if longer is None:
            assert answer.issues or not following
            continue
        assert longer.text.startswith(prompt.text + generated)
        assert longer.text == prompt.text + generated + longer.suffix
        assert "".join(span.text for span in longer.spans) == longer.text
        again = prompt.extend(answer, following)
        assert again is not None
        assert again.text == longer.text


@pytest.mark.about("resumes")
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_request_that_grows_behind_its_prompt_changes_no_later_one(format_name: str, goes_on: bool) -> None:
    """A loop keeps its items in the request, and puts each answer there before it goes on, or behind."""
    results: list[ts.Item] = [ts.ToolResult(content=[ts.Text(text="rain")]), ts.User(content=[ts.Text(text="Thanks")])]
    longer: list[ts.Prompt | None] = []
    for grows in (False, True):
        items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
        items += [ts.Assistant(content=[ts.Text(text="Well")], open=True)] * goes_on
        request = ts.Request(conversation=ts.Conversation(items=items, tools=[WEATHER]))
        prompt = ts.get_format(format_name).prompt(request, thinking=False)
        parser = prompt.parser()
        answer = ts.fold([*parser.feed(", yes."), *parser.close()])
        if grows:
            items[1:] = [*answer.items, *results]
        longer.append(prompt.extend(answer, results))
    apart, grown = longer
    assert apart is not None
    assert grown is not None
    assert (apart.text, apart.spans, apart.losses) == (grown.text, grown.spans, grown.losses)


def after_opening(format_: ts.Format, written: str) -> str:
    """What the model writes behind the opening that the prompt ends in, if it ends in one."""
    return written.removeprefix(begun_opening(format_))


def opens_text(format_: ts.Format) -> str:
    """What a model writes of a text's opening, where a prompt writes no more than the beginning of it."""
    opening, begun = format_.document.segment("assistant"), format_.document.generation.answer_prefill
    return f"{opening.open}{opening.head_end}".removeprefix(begun) if begun else ""


def said(items: list[ts.Item]) -> list[str]:
    """The contents of items. What is only white space may be dropped, as between two calls."""
    return [content for content in map(content_of, items) if content.strip()]


def is_one_turn(format_: ts.Format, items: list[ts.Item]) -> bool:
    """Whether the items are one turn of the model, which an answer is."""
    kinds = [item.kind for item in items]
    joints = format_.document.joints
    if not joints and not format_.document.model_turn.speaks:  # a turn for each, of which an answer may be several
        joints = dict.fromkeys([("thinking", "assistant"), ("thinking", "tool_call"), ("tool_call", "tool_call")], "")
    return all(pair in joints for pair in itertools.pairwise(kinds)) and not items[-1].open


@pytest.mark.about("calls")
@pytest.mark.parametrize("mode", ["named", "required"])
def test_a_prompt_that_forces_a_call_is_a_call_that_has_begun(format_name: str, mode: str) -> None:
    """The prompt is the document up to where the model decides; its parser reads the rest as the whole call."""
    format_ = ts.get_format(format_name)
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]))
    asked.settings.tool_choice = ts.ToolChoice(mode=mode, name="get_weather" if mode == "named" else None)
    call = ts.ToolCall(name="get_weather", arguments='{"city": "Tokyo"}', id="call_auto_001")
    whole = ts.Request(conversation=ts.Conversation(items=[*asked.items, call], tools=[WEATHER]))
    document = str(format_.render(whole, view="prompt").value)
    prompt = format_.prompt(asked)
    assert document.startswith(prompt.text)
    assert prompt.text.endswith(prompt.prefill)
    written = document[len(prompt.text) :]
    for pieces in every_cut(written):
        answer = check_events(events_behind(prompt, pieces), written)
        assert "tool_calls" == answer.finish_reason
        assert [] == answer.issues
        [back] = answer.items
        assert isinstance(back, ts.ToolCall)
        assert ("get_weather", {"city": "Tokyo"}) == (back.name, json.loads(back.arguments))


def pieces_of(format_: ts.Format) -> list[str]:
    """The format's own literals, whole and broken, and what stands between them."""
    literals = [literal.strip() for literal in format_.document.literals if literal.strip()]
    segments = [one for turn in format_.document.turns for one in turn.segments]
    lines = [line for line in sorted({one.body.next_text for one in segments}) if line]
    tokens = list(dict.fromkeys([*format_.special_tokens, *literals]))
    halves = [token[: len(token) // 2] for token in tokens if len(token) > 1]
    json_text = ['{"name": "get_weather", "arguments": {"city": "Tokyo"}}', '{"city": "To', '"}', "{", "}", "[1]"]
    heads = [' name="get_weather"', ' id="c1">>\n', ">", ">\n", ">>\n", '"', "name=x"]
    words = ["a", " ", "\n", "\n\n", "\\", "<", "</", "```json\n", "é", "字👍", "true", "\x00", "User:", "\n\nUser: hi"]
    return [*tokens, *lines, *lines, *halves, *json_text, *heads, *words]


@FEWER
@given(data=st.data())
def test_no_mix_of_markers_raises_or_loses_a_byte(format_name: str, data: st.DataObject) -> None:
    """F5, F3: any text is read to its end, the same in any pieces, and every byte is in one event."""
    format_ = ts.get_format(format_name)
    chosen = data.draw(st.lists(st.sampled_from(pieces_of(format_)) | text.pieced(), max_size=10))
    written = "".join(chosen)
    tools = data.draw(st.sampled_from([[], [WEATHER]]))
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=tools))
    request.settings.stop = data.draw(st.sampled_from([None, None, ["a\n"], ["To", "<"]]))
    prompt = format_.prompt(request, thinking=data.draw(st.sampled_from([False, format_.features.thinking])))
    whole = check_events(events_behind(prompt, [written]), written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=8)))
    pieces = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert whole == check_events(events_behind(prompt, pieces), written)
    assert whole == check_events(events_behind(prompt, list(written)), written)
    data_bytes = written.encode()
    single = [data_bytes[at : at + 1] for at in range(len(data_bytes))]
    assert whole == check_events(events_behind(prompt, single), written)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_thought_may_begin_with_what_opens_a_call(name: str) -> None:
    """It is read to its end in any pieces, where the prompt has opened the thought, too."""
    format_ = ts.get_format(name)
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]))
    prompt = format_.prompt(request, thinking=format_.features.thinking)
    segments = [one for turn in format_.document.turns for one in turn.segments]
    opened = {f"{one.group.open if one.group else ''}{one.open}" for one in segments if one.kind == "tool_call"}
    closed = {one.close for one in segments if one.kind == "thinking"}
    for opening, close, lead in itertools.product(opened, closed | {""}, ("", "\n", "Hm.")):
        written = f"{lead}{opening.strip()}{close}Hello."
        whole = check_events(events_behind(prompt, [written]), written)
        for pieces in few_cuts(written):
            assert whole == check_events(events_behind(prompt, pieces), written)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_an_answer_may_begin_with_a_call_in_no_tag(name: str) -> None:
    """It is one, or none, in any pieces, whatever the prompt has begun before it."""
    format_ = ts.get_format(name)
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]))
    begun = deepcopy(request)
    begun.items.append(ts.Assistant(content=[ts.Text(text="Here: `")], open=True))
    prompts = [
        format_.prompt(begun),
        *(format_.prompt(request, thinking=on) for on in {False, format_.features.thinking}),
    ]
    for prompt, tool in itertools.product(prompts, ("get_weather", "unknown")):
        for fence in ("", "```", "```json\n"):
            written = f'{fence}{{"name": "{tool}", "arguments": {{}}}}{fence[:3]}'
            whole = check_events(events_behind(prompt, [written]), written)
            for pieces in few_cuts(written):
                assert whole == check_events(events_behind(prompt, pieces), written)


def message_of(response: ts.Response) -> str:
    """All that the items of an answer say."""
    said = []
    for item in response.items:
        said += contents_of(item)
        if isinstance(item, ts.ToolCall):
            said += [item.name, item.id or "", msgspec.json.encode(item.attributes).decode()]
    return "\n".join(said)


WITH_WORDS = (
    "%s",
    "\n%s\n",
    '{"name": "get_weather", "arguments": {"city": "Rome"}, "%s": 1}',
    '{"function": {"name": "get_weather", "arguments": "{}", "note": "%s"}}',
    '<parameter name="city" note="%s">Rome</parameter>',
    ' name="get_weather" note="%s">',
    'get_weather(city="%s")',
)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
@FEWER
@given(data=st.data())
def test_no_word_of_a_model_vanishes(name: str, data: st.DataObject) -> None:
    """Each is in an item of the answer, or an issue says that it is dropped, and where."""
    format_ = ts.get_format(name)
    markers = st.sampled_from(pieces_of(format_))
    chosen = data.draw(st.lists(markers | st.sampled_from(WITH_WORDS), max_size=9))
    words = [f"wq{at}z" for at in range(len(chosen))]
    written = "".join(one % word if one in WITH_WORDS else one for one, word in zip(chosen, words, strict=True))
    tools = data.draw(st.sampled_from([[], [WEATHER]]))
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=tools))
    parser = format_.prompt(request, thinking=data.draw(st.sampled_from([None, False]))).parser()
    answer = ts.fold([*parser.feed(written), *parser.close(data.draw(st.sampled_from([None, "stop", "length"])))])
    said = message_of(answer)
    dropped = [written[issue.start : issue.end] for issue in answer.issues if isinstance(issue, Dropped)]
    for word in words:
        assert word not in written or word in said or any(word in one for one in dropped)


@pytest.mark.parametrize("copied", [copy, deepcopy, pickle.dumps])
def test_a_parser_is_not_copied(format_name: str, copied: Callable[[object], object]) -> None:
    """The two would have texts in common, and one would tell what the other was given."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    parser = ts.get_format(format_name).prompt(request, thinking=False).parser()
    parser.feed(" Hello, w")
    with pytest.raises(TypeError, match="make a new one and give it the same again"):
        copied(parser)
    assert "orld" in raw_text([*parser.feed("orld"), *parser.close()])


@FEWER
@given(request=conversations.plain_requests(), thinking=st.booleans())
def test_a_prompt_may_be_answered_whatever_it_says(format_name: str, request: ts.Request, thinking: bool) -> None:
    """A parser is made for any prompt, and its text continues the document."""
    format_ = ts.get_format(format_name)
    prompt = format_.prompt(request, thinking=thinking and format_.features.thinking)
    parser = prompt.parser()
    events = [*parser.feed("ok"), *parser.close()]
    assert "ok" == raw_text(events)
    assert "".join(span.text for span in prompt.spans) == prompt.text
    assert prompt.prefill == "" or prompt.text.endswith(prompt.prefill)


def test_a_stop_string_of_any_length_ends_an_answer(format_name: str) -> None:
    """Also where nearly all of it has come before, and then something else."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    stop = "halt " * 1000 + "."
    request.settings.stop = [stop, "x" * 3000]
    before = f"so {stop[:-1]}, and"
    written = f"{before}{stop} more"
    events = events_of(ts.get_format(format_name), request, [written[at : at + 7] for at in range(0, len(written), 7)])
    assert before == "".join(event.text for event in events if isinstance(event, PartDelta))
    assert stop == ts.fold(events).stop_sequence


def test_a_stop_string_that_may_begin_inside_an_escape_leaves_the_escape_whole(format_name: str) -> None:
    """What waits for the rest of the stop string does not cut an escaped tag in two, which nobody would undo then."""
    format_ = ts.get_format(format_name)
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    tags = list(filter(format_.protects, [*format_.special_tokens, *(one.strip() for one in format_.seen.literals)]))
    broken = [
        one.partition("\\") for tag, one in zip(tags, escaped(format_, tags), strict=True) if one.count("\\") == 1
    ]
    for lead, _, name in dict.fromkeys(broken):
        written = f"so {lead}\\\\{name} and {lead}\\{name}"
        for begun in {name[-1:], name[-2:], name, f"\\{name}"}:
            request.settings.stop = [f"{begun}!?"]
            whole = check_events(events_of(format_, request, [written]), written)
            assert [f"so {lead}\\{name} and {lead}{name}"] == contents_of(whole.items[0])
            assert whole == check_events(events_of(format_, request, list(written)), written)


SHAPES: dict[str, Callable[[int], str]] = {
    "text": lambda n: "word " * n,
    "near misses": lambda n: "< a </ b <|im <<US \n" * (n // 4),
    "blank lines": lambda n: "\n" * (n * 2),
    "backslashes": lambda n: "<" + "\\" * n,
}
CALLED: dict[str, Callable[[ts.Format, int], str]] = {
    "one argument": lambda f, n: calls_text(f, 1, "x" * (n * 4)),
    "many parameters": lambda f, n: calls_text(f, 1, '", "'.join(f'x", "key{at}": "y' for at in range(n // 8))),
    "many calls": lambda f, n: calls_text(f, n // 32, "x"),
    "an open header": lambda f, n: opening_of(f, "tool_call") + " a" * n,
}


def begins_call(format_: ts.Format) -> str:
    """What calls of the format's own begin with, without white space around it."""
    call = format_.document.segment("tool_call")
    return ((call.group.open if call.group else "") or call.open or call.body.begins).strip()


def opening_of(format_: ts.Format, kind: str) -> str:
    """How a segment of a kind begins."""
    segment = format_.document.segment(kind)
    return (segment.group.open if segment.group else "") + segment.open


def calls_text(format_: ts.Format, count: int, city: str) -> str:
    """What a model writes for `count` calls."""
    items: list[ts.Item] = [ts.ToolCall(name="get_weather", arguments=f'{{"city": "{city}"}}') for _ in range(count)]
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]))
    whole = ts.Request(conversation=ts.Conversation(items=[*asked.items, *items], tools=[WEATHER]))
    before = str(format_.render(asked).value).removesuffix(format_.document.end)
    return str(format_.render(whole).value)[len(before) :]


def check_linear(format_name: str, written: Callable[[ts.Format, int], str]) -> None:
    """F7: four times the text takes less than ten times as long, in pieces of three characters."""
    format_ = ts.get_format(format_name)
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]))

    def parsing(size: int) -> Callable[[], object]:
        text = written(format_, size)
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
        return lambda: events_of(format_, request, pieces)

    assert_grows_below(10, parsing, 1_000, 4_000, least=0.005)


@pytest.mark.parametrize("shape", SHAPES)
def test_streaming_is_linear(format_name: str, shape: str) -> None:
    check_linear(format_name, lambda _, size: SHAPES[shape](size))


@pytest.mark.about("thinking")
def test_streaming_of_thoughts_is_linear(format_name: str) -> None:
    check_linear(format_name, lambda format_, size: opening_of(format_, "thinking") + "hm \n" * size)


@pytest.mark.about("calls")
@pytest.mark.parametrize("shape", CALLED)
def test_streaming_of_calls_is_linear(format_name: str, shape: str) -> None:
    check_linear(format_name, CALLED[shape])
