"""Owns the laws of documents: what is written reads back, content never becomes control, and nothing is lost unsaid."""

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests import corpora
from tests.conformance.examples import fewer
from tests.growth import assert_grows_below
from tests.strategies import conversations, text
from turnscript.core.json_text import Json, json_of

_PLACE = re.compile(r"items\[(\d+)\]")


def check_inverse(format_: ts.Format, request: ts.Request) -> None:
    """What comes back is what was written; each item that differs, or is gone, or is a part of another, is named by a
    loss."""
    request.locate()
    rendered = format_.render(request)
    back = format_.parse(str(rendered.value))
    gone = {loss.path for loss in rendered.losses if loss.kind in ("dropped", "moved")}
    lossy = {int(match[1]) for loss in rendered.losses if (match := _PLACE.match(loss.path))}
    kept = [index for index in range(len(request.items)) if f"items[{index}]" not in gone]
    assert len(kept) == len(back.items)
    for index, item in zip(kept, back.items, strict=True):
        assert index in lossy or _bare(request.items[index], format_) == _bare(item, format_)
    if not any(loss.path.startswith("$.tools") for loss in rendered.losses):
        if format_.document.metadata is None:
            for tool in request.tools:
                tool.slot = ""
        assert request.tools == back.tools


def as_read(format_: ts.Format, request: ts.Request, read: ts.Request) -> ts.Request:
    """Return a request with what a reader of its prompt knows of its calls: which arguments are free text, which are
    laid out for objects, and whether the last one goes on."""
    items = [*map(replace, request.items)]
    calls, told = ([one for one in some if isinstance(one, ts.ToolCall)] for some in (items, read.items))
    for call, seen in zip(calls if format_.features.calls else [], told, strict=True):
        call.custom, call.open, call.as_object = seen.custom, seen.open, seen.as_object
    return replace(request, conversation=ts.Conversation(items, request.tools))


def _bare(item: ts.Item, format_: ts.Format) -> ts.Item:
    """An item without how it stood in its source and generated text, in formats that keep no archive of those."""
    if format_.document.metadata is None:
        item.turn, item.slot, item.envelope, item.attributes, item.raw = "", "", None, None, None
    return item


@corpora.on_every
def test_a_conversation_reads_back(format_name: str, name: str) -> None:
    """F2, F10: parse(render(c)) == c, or the difference is in the losses."""
    check_inverse(ts.get_format(format_name), corpora.load(name))


@corpora.on_every
def test_a_transcript_is_written_again_byte_for_byte(format_name: str, name: str) -> None:
    """L3: render(parse(t)) == t where t is what the format writes."""
    transcript = str(ts.get_format(format_name).render(corpora.load(name)).value)
    assert transcript == ts.get_format(format_name).render(ts.get_format(format_name).parse(transcript)).value


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("texts", ["|", "||", "a|", "|a", "a||b", "\n|", "a| "], ids=repr)
def test_instructions_in_several_texts_read_back(format_name: str, texts: str, tools: bool) -> None:
    """F2, L3: also where some or all of them are empty, and a format puts its tools behind or among them."""
    items: list[ts.Item] = [ts.System(content=[ts.Text(text=text) for text in texts.split("|")])]
    offered = [ts.Tool(name="f", parameters=Json(b'{"type":"object"}'))] if tools else []
    check_document(ts.get_format(format_name), ts.Request(conversation=ts.Conversation(items=items, tools=offered)))


@pytest.mark.parametrize("kind", ["", "string", "integer"])
@pytest.mark.parametrize(
    "arguments", ['"text"', ' "text"', '""', '"7"', "[1]", "7", "text", "  ", '{"a"', "null"], ids=repr
)
def test_arguments_that_are_no_object_read_back(format_name: str, arguments: str, kind: str) -> None:
    """F2, L3: whatever the tool's schema says of a parameter `arguments`, in which some formats put them."""
    schema = Json(b'{"type":"object","properties":{"arguments":{"type":"%s"}}}' % kind.encode())
    tools = [ts.Tool(name="f", parameters=schema)] if kind else []
    items: list[ts.Item] = [ts.ToolCall(name="f", id="call_1", arguments=arguments)]
    check_document(ts.get_format(format_name), ts.Request(conversation=ts.Conversation(items=items, tools=tools)))


def shows_line_ends(format_: ts.Format, transcript: str) -> bool:
    """Whether no content begins in the first line, or a line ends with a mark behind which none begins."""
    turns, tools = format_.document.turns, format_.document.tools_place
    openings = [f"{turn.open}{turn.head_end}" for turn in turns]
    if format_.document.flattened or all(one.endswith("\n") for one in openings):
        return True
    begun = {role for turn in turns for role in turn.behind}
    marks = [turn.close for turn in turns if turn.close and turn.role not in begun]
    begins = [one.open for turn in turns for one in turn.segments] + [turn.open for turn in turns]
    marks += [one for one in begins if one.endswith("\n")]
    marks += filter(format_.protects, tools.open.split("\n")[:-1] if tools else ())
    labels = [
        f"{turn.open}{turn.head_end}" for turn in turns if any("\n" in one.body.literals for one in turn.segments)
    ]
    lines, ends = transcript.split("\n")[:-1], tuple(mark.strip() for mark in marks)
    return any(line.rstrip().endswith(ends) or any(label in line for label in labels) for line in lines)


@pytest.mark.parametrize("name", ["c1", "c2", "c3"])
def test_a_file_with_other_line_ends_and_blank_lines_around_it_reads_alike(format_name: str, name: str) -> None:
    """D-X-8: a byte order mark says nothing, and line ends are those of the first line that ends with a tag or is a
    label's, if there is one. Blank lines at the end are of a turn that nothing closes, unless it can hold none."""
    format_ = ts.get_format(format_name)
    document = format_.document
    transcript = str(format_.render(corpora.load(name)).value)
    read = format_.parse(transcript)
    windows = transcript.replace("\n", "\r\n")
    closings = tuple(turn.close for turn in document.turns if turn.close)
    closed = document.flattened or document.anchored or transcript.endswith(closings)
    others = [f"\ufeff{transcript}", f"\n{transcript}", *([f"{transcript}\n \n"] if closed else [])]
    if shows_line_ends(format_, transcript):
        others += [windows, f"\ufeff{windows}", *([f"\ufeff{windows}\r\n"] if closed else [])]
    for other in others:
        again = format_.parse(other)
        assert (read.items, read.tools) == (again.items, again.tools)


FEWER = fewer()


def check_document(format_: ts.Format, request: ts.Request) -> None:
    """All laws of one document: honest (F2, F10), canonical (L3), its spans (F8), and its prompt view."""
    transcript = str(format_.render(request).value)
    assert transcript == format_.render(format_.parse(transcript)).value
    check_spans(format_, request, transcript)
    check_inverse(format_, request)
    prompt = str(format_.render(request, view="prompt").value)
    read = format_.parse(prompt)
    once = format_.render(read, view="prompt").value
    assert format_.render(as_read(format_, request, read), view="prompt").value == once
    assert format_.render(format_.parse(str(once)), view="prompt").value == once


def check_spans(format_: ts.Format, request: ts.Request, transcript: str) -> None:
    """F8: the spans are the document, and a trainable one belongs to an item that a model writes."""
    spans = format_.spans(request, view="archive")
    assert transcript == "".join(span.text for span in spans)
    models = (ts.Assistant, ts.Thinking, ts.ToolCall)
    assert all(isinstance(request.items[span.item], models) for span in spans if span.trainable and span.item >= 0)
    assert not any(span.trainable for span in spans if span.item < 0)


@FEWER
@given(request=conversations.plain_requests())
def test_any_conversation_reads_back(format_name: str, request: ts.Request) -> None:
    """F2, F8, F10, L3 for any items, names, ids and texts that chat formats know."""
    check_document(ts.get_format(format_name), request)


@given(request=conversations.requests())
def test_whatever_an_api_may_send_reads_back_or_is_a_loss(request: ts.Request) -> None:
    """L1: the whole typed request where the format keeps an archive; elsewhere nothing is lost unsaid.

    All formats get the same requests: to draw one takes many times as long as to hold the law on it.
    """
    for format_ in map(ts.get_format, ts.formats()):
        note(format_.name)
        check_document(format_, request)
        if format_.document.metadata is not None:
            rendered = format_.render(request)
            assert rendered.losses == []
            assert format_.parse(str(rendered.value)) == request


@FEWER
@example(texts=["<<SYS>>"], kind="both")
@given(texts=st.lists(text.hostile() | text.pieced(), min_size=1, max_size=3), kind=st.sampled_from(["user", "both"]))
def test_hostile_content_never_makes_a_control_span(format_name: str, texts: list[str], kind: str) -> None:
    """F6: no literal of the format occurs in a content, and each content reads back equal or changed as reported."""
    items: list[ts.Item] = []
    for one in texts:
        items.append(ts.User(content=[ts.Text(text=one)], name=None))
        if kind == "both":
            items.append(ts.Thinking(content=[ts.Text(text=one)]))
            items.append(ts.Assistant(content=[ts.Text(text=one)]))
            items.append(ts.ToolCall(name=one, arguments=f'{{"a": {text.quoted(one)}}}', id=one))
            items.append(ts.ToolResult(content=[ts.Text(text=one)], id=one, name=one))
    format_ = ts.get_format(format_name)
    request = ts.Request(conversation=ts.Conversation(items=items, tools=[ts.Tool(name=one) for one in texts]))
    tags = [token for token in format_.special_tokens if token.startswith("<") and token.endswith(">")]
    tags = [token for token in tags if format_.protects(token)]
    for span in format_.spans(request, view="archive"):
        assert span.control or not any(tag in span.text for tag in tags)
    check_inverse(format_, request)


@FEWER
@given(texts=st.lists(text.hostile() | text.plain(), min_size=1, max_size=3))
def test_tags_in_texts_are_broken_refused_or_left_alone_as_the_policy_says(format_name: str, texts: list[str]) -> None:
    """D-X-4: `auto` changes a text only where it holds a tag; `reject` raises there, with a place; `none` never."""
    format_ = ts.get_format(format_name)
    items: list[ts.Item] = [ts.User(content=[ts.Text(text=one)]) for one in texts]
    request = ts.Request(conversation=ts.Conversation(items=items))
    safe = "".join(span.text for span in format_.spans(request) if not span.control)
    bare = "".join(span.text for span in format_.spans(request, escape="none") if not span.control)
    if not format_.document.flattened:
        assert bare == "".join(texts)
    if safe == bare:
        shown = format_.render(request, view="prompt").value
        assert shown == format_.render(request, view="prompt", escape="reject").value
    else:
        with pytest.raises(ts.InvalidConversation, match=r"items\[\d\]"):
            format_.render(request, view="prompt", escape="reject")


@pytest.mark.about("resumes")
def test_the_model_is_trained_on_all_that_it_writes(format_name: str) -> None:
    """F8: behind the prompt, everything up to the end of the turn is trainable, its end marker included."""
    format_ = ts.get_format(format_name)
    asked: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    answer: list[ts.Item] = [ts.Assistant(content=[ts.Text(text="Hello.")])]
    prompt = format_.prompt(ts.Request(conversation=ts.Conversation(items=asked))).text
    spans = format_.spans(ts.Request(conversation=ts.Conversation(items=asked + answer)))
    trained = "".join(span.text for span in spans if span.trainable)
    whole = "".join(span.text for span in spans)
    assert whole.startswith(prompt + trained)
    assert trained.strip().startswith("Hello.")
    rest = whole[len(prompt + trained) :]
    assert rest.strip() == format_.seen.end


@pytest.mark.about("keeps")
@FEWER
@given(request=conversations.plain_requests(), cut=st.integers(0, 6))
def test_documents_only_grow(format_name: str, request: ts.Request, cut: int) -> None:
    """F9: the document of the first items begins the document of all, up to the end of its last turn."""
    format_ = ts.get_format(format_name)
    for item in request.items:
        item.open = False
    leading = sum(1 for item in request.items[:cut] if isinstance(item, ts.System))
    head = ts.Request(conversation=ts.Conversation(items=request.items[:cut], tools=request.tools))
    if format_.document.flags or (cut <= leading and cut < len(request.items)):
        return  # the tool list stands with the leading instructions, and those are not complete yet
    assert str(format_.render(request, view="prompt").value).startswith(_undone(format_, head))


def _undone(format_: ts.Format, request: ts.Request) -> str:
    """A document without what closes it."""
    text = str(format_.render(request, view="prompt").value).removesuffix(format_.document.end)
    turns = format_.document.turns
    groups = [segment.group.close for turn in turns for segment in turn.segments if segment.group]
    closings = sorted({turn.close for turn in turns}, key=len, reverse=True)  # one may be the end of another
    for close in [*closings, *groups]:
        text = text.removesuffix(close) if close else text
    return text


@pytest.mark.parametrize("before", [[], [ts.Assistant(content=[ts.Text(text="a")])]], ids=["alone", "behind another"])
def test_an_empty_answer_before_a_call_only_grows(format_name: str, before: list[ts.Item]) -> None:
    """F9: where it opens a turn, the call behind it stands in that turn, though nothing be left of the answer."""
    format_ = ts.get_format(format_name)
    items = [ts.User(content=[ts.Text(text="Hi")]), *before, ts.Assistant(content=[ts.Text(text="")])]
    whole = [*items, ts.ToolCall(name="f", id="call_1", arguments="{}")]
    shorter, longer = (ts.Request(conversation=ts.Conversation(items=one)) for one in (items, whole))
    assert str(format_.render(longer, view="prompt").value).startswith(_undone(format_, shorter))


@pytest.mark.parametrize("name", ["", "bob"])
def test_a_name_of_what_is_not_written_is_not_written(format_name: str, name: str) -> None:
    """L3: an answer of a picture alone has no place in most formats, and then its turn has no name."""
    items = [ts.Thinking(content=[ts.Text(text="Hm.")]), ts.Assistant(content=[ts.Image(file_id="f")], name=name)]
    check_document(ts.get_format(format_name), ts.Request(conversation=ts.Conversation(items=items)))


def _results(count: int) -> Iterator[ts.Item]:
    for number in range(count // 2):
        yield ts.ToolCall(name="f", id=f"c{number}")
        yield ts.ToolResult(content=[ts.Text(text="x")], id=f"c{number}", name="f")


SHAPES: dict[str, Callable[[int], list[ts.Item]]] = {
    "text": lambda n: [ts.User(content=[ts.Text(text="word << word\n" * n)])],
    "blocks": lambda n: [ts.User(content=[ts.Text(text="a")]) for _ in range(n)],
    "near misses": lambda n: [ts.User(content=[ts.Text(text="<<USER <\n<<\\\\\\\n<|im_<ai00:" * n)])],
    "parts": lambda n: [ts.User(content=[ts.Text(text="a") for _ in range(n)])],
    "calls": lambda n: [ts.ToolCall(name="f", id=f"c{i}", arguments='{"a": 1}') for i in range(n)],
    "results": lambda n: [*_results(n)],
}


@pytest.mark.deep
@pytest.mark.parametrize("shape", SHAPES)
def test_reading_and_writing_are_linear(format_name: str, shape: str) -> None:
    """F7: four times the text takes less than ten times as long, for long texts, many blocks and near misses."""
    format_ = ts.get_format(format_name)

    def work(count: int) -> Callable[[], object]:
        request = ts.Request(conversation=ts.Conversation(items=SHAPES[shape](count)))
        return lambda: format_.parse(str(format_.render(request).value))

    assert_grows_below(10, work, 1_000, 4_000, least=0.002)


@pytest.mark.deep
def test_reading_many_turns_takes_time_in_proportion(format_name: str) -> None:
    """F7: eight times the turns of ordinary length take less than twenty times as long to read."""
    format_ = ts.get_format(format_name)
    turn = ts.User(content=[ts.Text(text="some words, and more of them\n" * 35)])

    def reading(turns: int) -> Callable[[], object]:
        items: list[ts.Item] = [turn] * turns
        text = str(format_.render(ts.Request(conversation=ts.Conversation(items=items))).value)

        def read() -> None:
            assert turns == len(format_.parse(text).items)

        return read

    assert_grows_below(20, reading, 500, 4_000)


def described(description: str, member: str) -> list[ts.Tool]:
    """A tool with a parameter, and what is said of each."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": member}}}
    return [ts.Tool(name="f", description=description, parameters=json_of(schema))]


TOOL_LISTS: dict[str, Callable[[int], list[ts.Tool]]] = {
    "many": lambda n: described("a", "b") * n,
    "commas": lambda n: described("a", ", " * n * 32),
    "lists in a text": lambda n: [ts.Tool(name="f", description="\nParameters: {" * n)],
}


@pytest.mark.deep
@pytest.mark.parametrize("shape", TOOL_LISTS)
def test_tools_are_read_in_time_in_proportion(format_name: str, shape: str) -> None:
    """F7: eight times as many, or as long a text, take less than twenty times as long to read."""
    format_ = ts.get_format(format_name)
    system = ts.System(content=[ts.Text(text="a")])

    def reading(size: int) -> Callable[[], object]:
        conversation = ts.Conversation(items=[system], tools=TOOL_LISTS[shape](size))
        text = str(format_.render(ts.Request(conversation=conversation)).value)

        def read() -> None:
            tools = format_.parse(text).tools
            assert text.count("\n") < 7 or tools

        return read

    assert_grows_below(20, reading, 1_000, 8_000, least=0.002)


@pytest.mark.parametrize("place", ["schema", "arguments", "object", "array"])
@pytest.mark.parametrize("depth", [500, 900])
def test_json_of_any_depth_that_is_read_is_written(format_name: str, depth: int, place: str) -> None:
    """F7: what Python's stack allows to be read is written; where it is too deep for a format, an error says so."""
    deep = '{"a":' * depth + "1" + "}" * depth
    value = "[" * depth + "1" + "]" * depth if place == "array" else deep
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    items.append(ts.ToolCall(name="f", id="c", arguments=deep if place == "arguments" else "{}"))
    items.append(ts.ToolResult(name="f", id="c", content=[ts.Text(text=value)]))
    tools = [ts.Tool(name="f", parameters=Json(deep.encode()))] if place == "schema" else []
    format_ = ts.get_format(format_name)
    try:
        written = str(format_.render(ts.Request(conversation=ts.Conversation(items=items, tools=tools))).value)
        assert "Hi" in written
        assert format_.parse(written).items
    except ts.TurnscriptError:
        assert depth > 500


@pytest.mark.parametrize("value", ["5", '{"a": 1}', "null", r'"\ud800"'])
@pytest.mark.parametrize("word", ["a-name", "a-description", "an-answerer"])
def test_a_name_that_is_read_is_a_text(format_name: str, word: str, value: str) -> None:
    """Where JSON has another value for a name or a description, the error names the line."""
    format_ = ts.get_format(format_name)
    items: list[ts.Item] = [ts.System(content=[ts.Text(text="Hi")]), ts.User(content=[ts.Text(text="Hi")])]
    items.append(ts.ToolCall(name="an-answerer", id="c"))
    items.append(ts.ToolResult(name="an-answerer", id="c", content=[ts.Text(text="ok")]))
    tools = [ts.Tool(name="a-name", description="a-description", parameters=Json(b"{}"))]
    text = str(format_.render(ts.Request(conversation=ts.Conversation(items=items, tools=tools))).value)
    before, found, behind = text.rpartition(f'"{word}"')
    said: list[object] = []
    line: int | None = 1
    try:
        request = format_.parse(before + value + behind if found else text)
    except ts.InvalidTranscript as refused:
        line = refused.line
    else:
        said += [one for tool in request.tools for one in (tool.name, tool.description)]
        said += [item.name for item in request.items if isinstance(item, ts.ToolCall | ts.ToolResult)]
    assert line
    assert all(one is None or (isinstance(one, str) and one.encode()) for one in said)


READABLE: list[ts.Part] = [
    ts.Document(text="found it", title="T"),
    ts.Raw(
        type="search_result", value=Json(b'{"title":"T","source":"s","content":[{"type":"text","text":"found it"}]}')
    ),
]


@pytest.mark.about("results")
@pytest.mark.parametrize("part", READABLE, ids=lambda part: type(part).__name__)
def test_a_model_reads_the_text_of_what_a_tool_found(format_name: str, part: ts.Part) -> None:
    """Where only text has a place, that text has; what else the part says is a loss."""
    asked = ts.ToolCall(name="find", id="c1", arguments="{}")
    items = [ts.User(content=[ts.Text(text="Where?")]), asked, ts.ToolResult(content=[part], id="c1", name="find")]
    tools = [ts.Tool(name="find", parameters=Json(b'{"type":"object"}'))]
    prompt = ts.get_format(format_name).prompt(ts.Request(conversation=ts.Conversation(items=items, tools=tools)))
    assert "found it" in prompt.text
