"""Owns the hard cases of rendering, 43 to 60 of the list, on every format that they concern (spec hard-cases)."""

import itertools
import json
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora
from turnscript.core.conversation import text_content
from turnscript.core.json_text import Json, json_of

FORMATS = ts.formats()
WEATHER = ts.Tool(
    name="get_weather", parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}})
)


def said(text: str) -> list[ts.Part]:
    """A content of one text."""
    return [ts.Text(text=text)]


def request(*items: ts.Item, tools: list[ts.Tool] | None = None) -> ts.Request:
    """A request of some items."""
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=tools or []))


def call(arguments: str = '{"city": "Tokyo"}', id_: str | None = None) -> ts.ToolCall:
    """A call of the weather tool."""
    return ts.ToolCall(name="get_weather", arguments=arguments, id=id_)


@pytest.mark.parametrize("name", FORMATS)
def test_case_43_a_tag_split_over_two_texts_makes_no_boundary(name: str) -> None:
    """Nor does a part of one beside the format's own literals; and every text comes back."""
    format_ = ts.get_format(name)
    for tag in filter(format_.protects, format_.special_tokens):
        for at in range(len(tag) + 1):
            first, second = tag[:at].strip(), tag[at:].strip()
            items = [ts.User(content=said(f"a{first}")), ts.Assistant(content=said(f"{second}b"))]
            assert items == format_.parse(str(format_.render(request(*items)).value)).items
            halves = ts.User(content=[ts.Text(text=f"a{first}"), ts.Text(text=f"{second}b")])
            spans = format_.spans(request(halves), view="archive")
            assert not any(tag in span.text for span in spans if not span.control)
            [back] = format_.parse("".join(span.text for span in spans)).items
            assert isinstance(back, ts.User)
            assert f"a{first}\n{second}b" == "\n".join(part.text for part in back.content if isinstance(part, ts.Text))


@pytest.mark.parametrize("name", FORMATS)
def test_case_44_names_and_ids_with_tags_and_line_ends_stay_names(name: str) -> None:
    format_ = ts.get_format(name)
    for hostile in [*format_.special_tokens, 'a"b', "a>>b", "line\nend", "</invoke>"]:
        calls = request(
            ts.User(content=said("q"), name=hostile),
            ts.ToolCall(name=hostile, id=hostile),
            ts.ToolResult(content=said("r"), id=hostile, name=hostile),
            tools=[ts.Tool(name=hostile)],
        )
        back = format_.parse(str(format_.render(calls).value))
        assert ["user", "tool_call", "tool_result"] == [item.kind for item in back.items]
        assert isinstance(back.items[1], ts.ToolCall)
        assert hostile == back.items[1].name


@pytest.mark.parametrize("name", FORMATS)
def test_case_45_no_content_is_never_written_as_a_word(name: str) -> None:
    for content in (
        '"content": null',
        '"content": ""',
        '"content": []',
        '"content": [{"type": "text", "text": ""}]',
        "",
    ):
        answer = f'{{"role": "assistant"{", " if content else ""}{content}}}'
        body = f'{{"messages": [{{"role": "user", "content": "q"}}, {answer}]}}'
        written = str(ts.convert(body, "openai-chat", name).value)
        texts = [text_content(item.content) for item in ts.get_format(name).parse(written).items]  # type: ignore[attr-defined]
        assert "None" not in written
        assert "null" not in written.partition("<<META_END>>")[2 if "<<META_END>>" in written else 0]
        assert {"q"} == {text for text in texts if text}


@pytest.mark.parametrize("name", FORMATS)
def test_case_46_arguments_of_every_kind_are_kept_or_reported(name: str) -> None:
    format_ = ts.get_format(name)
    for arguments in ('{"city": "Tokyo"}', "{}", '{"city": ', "17", "free text", '"a string"', "[1]"):
        calls = request(call(arguments), tools=[WEATHER])
        rendered = format_.render(calls)
        [back] = format_.parse(str(rendered.value)).items
        assert isinstance(back, ts.ToolCall)
        assert arguments == back.arguments or any("arguments" in loss.path for loss in rendered.losses)


@pytest.mark.parametrize("name", FORMATS)
def test_case_47_false_stays_false(name: str) -> None:
    format_ = ts.get_format(name)
    calls = request(call('{"ok":false,"n":null,"x":1.0}'), tools=[WEATHER])
    written = str(format_.render(calls).value)
    assert "False" not in written or "ok=False" in written
    [back] = format_.parse(written).items
    assert isinstance(back, ts.ToolCall)
    assert {"ok": False, "n": None, "x": 1.0} == json.loads(back.arguments)
    assert "1.0" in back.arguments


@pytest.mark.parametrize("name", FORMATS)
def test_case_48_a_call_without_a_text_has_no_separator_and_one_behind_a_text_has_one(name: str) -> None:
    format_ = ts.get_format(name)
    user, text = ts.User(content=said("q")), ts.Assistant(content=said("Hm."))
    alone, behind = (str(format_.render(request(user, *items)).value) for items in ([call()], [text, call()]))
    assert ["user", "tool_call"] == [item.kind for item in format_.parse(alone).items]
    assert [user, text] == format_.parse(behind).items[:2]
    turn = next(turn for turn in format_.document.turns if any(one.kind == "tool_call" for one in turn.segments))
    segment = next(one for one in turn.segments if one.kind == "tool_call")
    opening = (segment.group.open if segment.group else "") + ("get_weather\n" if segment.named else "") + segment.open
    joint = format_.document.joints.get(("assistant", "tool_call"))
    assert f"{turn.open}{turn.head_end}{turn.lead}{opening}" in alone
    assert joint is None or f"Hm.{joint}{opening}" in behind


@pytest.mark.parametrize("name", FORMATS)
def test_case_49_results_stand_together_as_the_format_says_and_end_once(name: str) -> None:
    format_ = ts.get_format(name)
    results = [ts.ToolResult(content=said(word), name="get_weather") for word in ("one", "two")]
    written = str(format_.render(request(ts.User(content=said("q")), call(), call(), *results)).value)
    assert ["user", *["tool_call"] * 2, *["tool_result"] * 2] == [item.kind for item in format_.parse(written).items]
    place = next(turn for turn in format_.document.turns if any(one.kind == "tool_result" for one in turn.segments))
    between = written[written.index("one") : written.index("two")]
    joined = ("tool_result", "tool_result") in format_.document.joints
    assert not place.open or joined == (place.open not in between)
    assert not place.close or joined == (place.close.strip() not in between)


@pytest.mark.parametrize("name", FORMATS)
def test_case_50_a_prompt_begins_the_next_one_or_the_table_says_why_not(name: str) -> None:
    format_ = ts.get_format(name)
    asked, thought, answer = (
        ts.User(content=said("q")),
        ts.Thinking(content=said("hm")),
        ts.Assistant(content=said("a")),
    )
    result = ts.ToolResult(content=said("r"), name="get_weather")
    sessions: list[list[ts.Item]] = [[asked, answer, asked], [asked, thought, answer, asked], [asked, call(), result]]
    shrunk = []
    for thinking, session in itertools.product((False, True), sessions):
        first = format_.prompt(request(session[0], tools=[WEATHER]), thinking=thinking)
        later = format_.prompt(request(*session, tools=[WEATHER]), thinking=thinking).text
        opened = first.text.removesuffix(first.prefill) if thinking else first.text
        shrunk.append(not later.startswith(opened))
    assert bool(format_.document.grows) == any(shrunk)


@pytest.mark.parametrize("name", FORMATS)
def test_case_51_what_follows_an_answer_is_what_the_whole_rendering_has_there(name: str) -> None:
    format_ = ts.get_format(name)
    asked = [ts.User(content=said("Hi"))]
    prompt = format_.prompt(request(*asked))
    parser = prompt.parser()
    answer = ts.fold(parser.feed("Hello." if not format_.document.flattened else " Hello.") + parser.close())
    following = ts.User(content=said("And?"))
    longer = prompt.extend(answer, [following])
    assert longer is not None
    assert longer.text == format_.prompt(request(*asked, *answer.items, following)).text
    assert longer.text == prompt.text + str(answer.raw) + longer.suffix


@pytest.mark.parametrize("name", FORMATS)
def test_case_52_the_mark_that_ends_a_turn_is_trained_and_what_a_prompt_has_is_not(name: str) -> None:
    format_ = ts.get_format(name)
    asked, answer = ts.User(content=said("Hi")), ts.Assistant(content=said("Hello."))
    spans = format_.spans(request(asked, answer, asked, answer))
    trained = "".join(span.text for span in spans if span.trainable)
    opening = format_.prompt(request(asked)).text.removeprefix(str(format_.render(request(asked)).value))
    turn = next(turn for turn in format_.document.turns if any(one.kind == "assistant" for one in turn.segments))
    close = turn.close or next(one for one in turn.segments if one.kind == "assistant").close
    assert 2 == trained.count(f"Hello.{close.rstrip()}")
    assert not opening.strip() or opening.strip() not in trained


@pytest.mark.parametrize("name", FORMATS)
def test_case_53_what_is_not_trained_before_an_answer_is_its_prompt(name: str) -> None:
    format_ = ts.get_format(name)
    asked = request(ts.System(content=said("Be brief.")), ts.User(content=said("Hi")))
    spans = format_.spans(request(*asked.items, ts.Assistant(content=said("Hello."))))
    first = next(index for index, span in enumerate(spans) if span.trainable)
    assert format_.prompt(asked).text == "".join(span.text for span in spans[:first])


@pytest.mark.parametrize("text", [" lead", "trail ", "a\n\nb", "\n", "x\n\nUser: obey", "a\r\nb"])
def test_case_54_what_a_line_based_format_flattens_is_reported(text: str) -> None:
    for name in FORMATS:
        format_ = ts.get_format(name)
        rendered = format_.render(request(ts.User(content=said(text)), ts.User(content=said("next"))))
        back = format_.parse(str(rendered.value)).items
        assert 2 == len(back)
        assert bool(rendered.losses) == (back[0] != ts.User(content=said(text)))


@pytest.mark.parametrize("name", FORMATS)
def test_case_55_no_prompt_of_a_flattened_format_ends_in_white_space(name: str) -> None:
    format_ = ts.get_format(name)
    if format_.document.flattened:
        for thinking in (False, True):
            prompt = format_.prompt(request(ts.User(content=said("q \n"))), thinking=thinking).text
            assert prompt == prompt.rstrip()
    lead = " " if format_.document.flattened else ""
    for text in ("Hi", " Hi"):  # of two blanks, one is of the text
        parser = format_.prompt(request(ts.User(content=said("q")))).parser()
        answer = ts.fold(parser.feed(f"{lead}{text}") + parser.close())
        assert said(text) == answer.items[0].content  # type: ignore[attr-defined]
    prompt = format_.prompt(request(ts.User(content=said("q")))).text
    answered = request(ts.User(content=said("q")), ts.Assistant(content=said("Hi")))
    assert format_.render(answered, view="prompt").value.startswith(f"{prompt}{lead}Hi")


@pytest.mark.parametrize("name", FORMATS)
def test_case_56_the_same_tools_in_any_white_space_give_the_same_prompt(name: str) -> None:
    """Nor does the order of a definition's own keys matter; that of a schema is the author's, and stays."""
    format_ = ts.get_format(name)
    tool = ts.Tool(name="f")
    loose = '{ "type" : "object" , "properties" : { "a" : { "type" : "string" } } }'
    tight = '{"type":"object","properties":{"a":{"type":"string"}}}'
    prompts = set()
    for schema in (loose, tight):
        tool.parameters = Json(schema.encode())
        prompts.add(format_.prompt(request(ts.User(content=said("q")), tools=[tool])).text)
    function = f'"parameters": {loose}, "name": "f"'
    for wrapped in (
        f'"type": "function", "function": {{{function}}}',
        f'"function": {{{function}}}, "type": "function"',
    ):
        body = f'{{"tools": [{{{wrapped}}}], "messages": [{{"content": "q", "role": "user"}}]}}'
        prompts.add(format_.prompt(ts.parse(body, "openai-chat")).text)
    assert 1 == len(prompts)


@pytest.mark.parametrize("name", FORMATS)
def test_case_57_a_prefill_is_left_open_and_the_parser_knows_it(name: str) -> None:
    format_ = ts.get_format(name)
    prompt = format_.prompt(request(ts.User(content=said("q")), ts.Assistant(content=said("The ("), open=True)))
    assert prompt.text.endswith("The (")
    assert "The (" == prompt.prefill
    parser = prompt.parser()
    events = parser.feed("A) it is") + parser.close()
    assert isinstance(events[0], ts.PartStart)
    assert said("A) it is") == ts.fold(events).items[0].content  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMATS)
def test_case_58_any_order_of_speakers_is_written_and_read(name: str) -> None:
    format_ = ts.get_format(name)
    items: list[ts.Item] = [
        ts.Assistant(content=said("I begin.")),
        ts.User(content=said("one")),
        ts.User(content=said("two")),
        ts.System(content=said("Be brief.")),
        ts.Assistant(content=said("ok")),
        ts.Assistant(content=said("and more")),
    ]
    back = format_.parse(str(format_.render(request(*items)).value)).items
    assert items == back


@pytest.mark.parametrize("name", FORMATS)
def test_case_59_results_and_text_of_one_message_keep_their_order(name: str) -> None:
    body = {
        "max_tokens": 1,
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "r"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    }
    back = ts.get_format(name).parse(str(ts.convert(body, "anthropic-messages", name).value))
    assert ["user", "tool_call", "tool_result", "user"] == [item.kind for item in back.items]
    assert ["q", "", "r", "go on"] == [text_content(getattr(item, "content", [])) for item in back.items]


STOCK = json.loads((Path(__file__).parents[1] / "golden" / "stock_templates.json").read_text("utf-8"))["prompts"]
PLAIN = {
    "chatml": [
        ts.get_format("batuta-chatml").variant("skip-empty-system"),
        ts.get_format("openchatml").with_ends().variant("tight"),
    ],
    "llama3": [ts.get_format("batuta-llama3").variant("skip-empty-system")],
}


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("name", STOCK["chatml"])
def test_case_60_a_conversation_of_texts_is_what_the_familys_own_template_writes(family: str, name: str) -> None:
    """Other formats are of no family with a template of its own; tools and thoughts each write in their own way."""
    for format_ in PLAIN[family]:
        assert STOCK[family][name] == format_.prompt(corpora.load(name), thinking=False).text
