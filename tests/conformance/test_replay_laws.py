"""Owns the laws of exact replay: a prompt may hold a model's turn as it was generated, whatever its items say anew."""

import itertools
import json
from collections.abc import Callable, Iterator
from copy import copy

import pytest

import turnscript as ts
from tests import corpora
from tests.conformance.habits import keeps
from tests.conformance.test_parser_laws import MODELS, WEATHER, after_opening, answers, written_by_model
from tests.growth import assert_grows_below
from turnscript.core.json_text import is_object


def said(text: str) -> list[ts.Part]:
    """A content of one text."""
    return [ts.Text(text=text)]


def request(items: list[ts.Item], like: ts.Request | None = None) -> ts.Request:
    """A request of some items, with the tools and settings of another."""
    tools = [WEATHER] if like is None else like.tools
    made = ts.Request(conversation=ts.Conversation(items=list(items), tools=tools))
    if like is not None:
        made.settings = like.settings
    return made


def answered(prompt: ts.Prompt, generated: str, finish: str | None = None) -> ts.Response:
    """What a model's text is, after a prompt."""
    parser = prompt.parser()
    return ts.fold(parser.feed(generated) + parser.close(finish))


def echoes(items: list[ts.Item]) -> Iterator[list[ts.Item]]:
    """How clients send a turn back: as it was, without its thoughts, with its arguments spelled anew."""
    yield items
    yield [item for item in items if not isinstance(item, ts.Thinking)] or items
    spelled = [copy(item) for item in items]
    for item in spelled:
        if isinstance(item, ts.ToolCall) and is_object(item.arguments):
            item.arguments = json.dumps(json.loads(item.arguments), separators=(" ,", ": "))
    yield spelled


def following_of(items: list[ts.Item], start: int) -> list[ts.Item]:
    """What was said behind a turn, up to the model's next one."""
    rest = items[start:]
    return rest[: next((at for at, one in enumerate(rest) if isinstance(one, MODELS)), None)]


@pytest.mark.about("resumes")
@corpora.on_every
def test_a_replayed_turn_gives_the_prompt_that_goes_on_from_it(format_name: str, name: str) -> None:
    """Rendered from the start with the generated text, a prompt is the one that was extended, byte for byte."""
    format_ = ts.get_format(format_name)
    whole, stays = corpora.load(name), keeps(format_)
    for asked, items in answers(whole):
        written = written_by_model(format_, asked, items)
        if written is None or (not stays and any(isinstance(item, ts.Thinking) for item in items)):
            continue
        prompt = format_.prompt(asked, thinking=False)
        text = after_opening(format_, written)
        answer = answered(prompt, text)
        turn = prompt.generated(answer)
        if turn is None:
            assert not answer.items
            continue
        start = len(asked.items)
        following = following_of(whole.items, start + len(items))
        longer = prompt.extend(answer, following)
        for echo in echoes(answer.items):
            later = request([*asked.items, *echo, *following], asked)
            again = format_.prompt(later, thinking=False, replays=[(start, start + len(echo), turn)])
            assert (start,) == again.replayed
            assert again.text.startswith(prompt.text + turn.text)
            assert again.text == "".join(span.text for span in again.spans)
            if longer is not None:
                assert longer.text == again.text


SESSION: list[list[ts.Item]] = [
    [ts.User(content=said("Weather in Tokyo?"))],
    [ts.ToolResult(content=said('{"sky": "clear"}'), name="get_weather", id="call_1")],
    [ts.User(content=said("And Paris?"))],
    [ts.User(content=said("Thanks"))],
]

ODD = ' "To\\u006byo"'
"""A string as JSON and Python may spell it, and no format does."""


def texts_of(format_: ts.Format) -> list[str]:
    """What a model writes in a session: a call in odd JSON, a text, a text that was cut off in the middle."""
    call = ts.ToolCall(name="get_weather", arguments='{"city": "Tokyo"}', id="call_1")
    asked = request([*SESSION[0]])
    written = written_by_model(format_, asked, [call])
    opening = format_.document.segment("assistant")
    if written is None and ("assistant", "tool_call") in format_.document.joints:  # behind the text that a prompt opens
        written = written_by_model(format_, asked, [ts.Assistant(content=said("I look.")), call])
    if written is None:  # the format has opened an answer, and a call is a block of its own
        document = str(format_.render(request([*asked.items, call]), view="prompt").value)
        before = str(format_.render(asked, view="prompt").value).removesuffix(format_.document.end)
        written = document.removesuffix(format_.document.end)[len(before) :]
    first = after_opening(format_, written).replace('"Tokyo"', ODD)
    lead = " " if format_.document.flattened else ""
    return [first, f"{lead}It is clear.{opening.close}", f"{lead}Par", f"{lead}Bye."]


@pytest.mark.about("calls", "results", "resumes")
def test_a_session_only_grows_whether_it_is_extended_or_replayed(format_name: str) -> None:
    """Each prompt begins with the one before and what was generated for it, and rendering from the start agrees."""
    check_growth(ts.get_format(format_name), thinking=False)


@pytest.mark.about("thinking", "calls", "results", "resumes", "keeps")
def test_a_session_of_thoughts_only_grows_where_they_stay(format_name: str) -> None:
    check_growth(ts.get_format(format_name), thinking=True)


def check_growth(format_: ts.Format, thinking: bool) -> None:
    items: list[ts.Item] = []
    replays: list[tuple[int, int, ts.Generated]] = []
    before = ""
    extended = None
    for new, text in zip(SESSION, texts_of(format_), strict=True):
        items += new
        prompt = format_.prompt(request(items), thinking=thinking, replays=replays)
        assert prompt.text.startswith(before)
        assert len(replays) == len(prompt.replayed)
        if extended is not None:
            assert extended.text == prompt.text
        answer = answered(prompt, text)
        extended = (extended or prompt).extend(answer, SESSION[min(len(replays) + 1, 3)])
        turn = prompt.generated(answer)
        assert turn is not None
        before = prompt.text + turn.text
        assert text.startswith(turn.text)
        replays.append((len(items), len(items) + len(answer.items), turn))
        items += answer.items


@pytest.mark.about("calls", "resumes")
def test_without_replay_the_same_session_does_not_only_grow(format_name: str) -> None:
    """The witness that replay makes it grow: written anew, a call has lost its spelling, or where its turn ended.

    Only where a call has one spelling, and its result no place in its turn, there is nothing to lose.
    """
    format_ = ts.get_format(format_name)
    prompt = format_.prompt(request(SESSION[0]))
    text = texts_of(format_)[0]
    answer = answered(prompt, text)
    *_, echo = echoes(answer.items)
    later = request([*SESSION[0], *echo, *SESSION[1]])
    turn = prompt.generated(answer)
    assert turn is not None
    assert format_.prompt(later, replays=[(1, 1 + len(echo), turn)]).text.startswith(prompt.text + text)
    spelled = ODD in text
    kinds = [{one.kind for one in turn.segments} for turn in format_.document.turns]
    goes_on = any({"tool_call", "tool_result"} <= one for one in kinds)
    assert format_.prompt(later).text.startswith(prompt.text + text) is not (spelled or goes_on)


def test_a_prefill_and_what_follows_it_are_replayed_as_one_text(format_name: str) -> None:
    """The client sends back one text: what it had begun and what the model went on with."""
    format_ = ts.get_format(format_name)
    asked: list[ts.Item] = [ts.User(content=said("Which? <think> <|im_end|> <<USER>>"))]
    begun = ts.Assistant(content=said("It is (<think>"), open=True)
    prompt = format_.prompt(request([*asked, begun]))
    turn = prompt.generated(answered(prompt, "A) <b>"))
    assert turn is not None
    echo = ts.Assistant(content=said("It is (<think>A) <b>"))
    later = request([*asked, echo, ts.User(content=said("Why?"))])
    again = format_.prompt(later, replays=[(1, 2, turn)])
    assert (1,) == again.replayed
    assert again.text.startswith(f"{prompt.text}A) <b>")
    controls = "".join(span.text for span in again.spans if span.control)
    assert "It is (" not in controls
    assert "A) <b>" in [span.text for span in again.spans if span.trainable]


@pytest.mark.about("results")
def test_a_turn_that_stands_behind_another_kind_is_rendered_anew(format_name: str) -> None:
    """What a prompt opened behind a user's text would be wrong behind a tool's answer, and is not written there."""
    format_ = ts.get_format(format_name)
    first = format_.prompt(request([ts.User(content=said("q"))]))
    answer = answered(first, " a" if format_.document.flattened else "a")
    turn = first.generated(answer)
    assert turn is not None
    call = ts.ToolCall(name="get_weather", id="c1")
    items = [ts.User(content=said("q")), call, ts.ToolResult(content=said("r"), id="c1"), *answer.items]
    items.append(ts.User(content=said("next")))
    anew = format_.prompt(request(items))
    assert anew.text == format_.prompt(request(items), replays=[(3, 4, turn)]).text
    assert () == format_.prompt(request(items), replays=[(3, 4, turn)]).replayed


@pytest.mark.about("calls")
def test_a_closing_with_other_white_space_before_it_is_not_written_twice(format_name: str) -> None:
    """Models write `}</tool_call>` where the format has a line end between the two."""
    format_ = ts.get_format(format_name)
    close = format_.document.segment("tool_call").close.strip()
    text = texts_of(format_)[0]
    at = text.rfind(close)
    if not close or at < 0:
        return
    prompt = format_.prompt(request(SESSION[0]))
    for space in ("", "\n\n", " "):
        written = f"{text[:at].rstrip()}{space}{close}"
        answer = answered(prompt, written)
        turn = prompt.generated(answer)
        longer = prompt.extend(answer, SESSION[1])
        assert turn is not None
        later = request([*SESSION[0], *answer.items, *SESSION[1]])
        again = format_.prompt(later, replays=[(1, 1 + len(answer.items), turn)])
        assert again.text.startswith(prompt.text + written)
        assert not again.text[len(prompt.text + written) :].lstrip().startswith(close)
        assert longer is None or longer.text == again.text


@pytest.mark.about("calls", "resumes")
def test_what_follows_a_turn_that_the_model_has_ended_stands_in_a_turn_of_its_own(format_name: str) -> None:
    """Even where it would have gone on in the same turn, as results do in some formats."""
    format_ = ts.get_format(format_name)
    turns = [turn for turn in format_.document.turns if turn.open]
    ends = [turn.close.strip() for turn in turns if any(one.kind == "assistant" for one in turn.segments)]
    if not any(ends):
        return
    prompt = format_.prompt(request(SESSION[0]))
    text = texts_of(format_)[0].rstrip().removesuffix(ends[0]) + ends[0]
    answer = answered(prompt, text)
    turn = prompt.generated(answer)
    assert turn is not None
    later = request([*SESSION[0], *answer.items, *SESSION[1]])
    again = format_.prompt(later, replays=[(1, 1 + len(answer.items), turn)])
    assert again.text.startswith(prompt.text + text)
    behind = again.text[len(prompt.text + text) :].lstrip()
    assert behind.startswith(tuple(turn.open for turn in turns))


@pytest.mark.about("resumes")
def test_half_a_closing_at_the_end_of_an_answer_is_its_text_in_the_next_prompt_too(format_name: str) -> None:
    """As for whoever gets the answer: the closing stands whole behind it. Only white space may be the closing's own."""
    format_ = ts.get_format(format_name)
    closing = format_.document.segment("assistant").close or format_.document.model_turn.close
    lead = " " if format_.document.flattened else ""
    asked, following = [ts.User(content=said("Less than?"))], [ts.User(content=said("next"))]
    prompt = format_.prompt(request([*asked]), thinking=False)
    for end in range(len(closing.rstrip())):
        answer = answered(prompt, f"{lead}a{closing[:end]}", "stop")
        longer = prompt.extend(answer, following)
        assert longer is not None
        anew = format_.prompt(request([*asked, *answer.items, *following]), thinking=False)
        assert format_.unescaped(longer.text) == format_.unescaped(anew.text)


@pytest.mark.about("thinking", "calls", "resumes", "keeps")
def test_a_thought_that_was_cut_off_is_replayed_where_thoughts_stay(format_name: str) -> None:
    check_replay(ts.get_format(format_name), "thought")


@pytest.mark.about("calls", "resumes")
@pytest.mark.parametrize("how", ["unclosed", "after", "stop"])
def test_what_extend_cannot_do_is_replayed_as_far_as_the_client_saw_it(format_name: str, how: str) -> None:
    """A call that was cut off stays as it is; what follows the end of the turn, or the client's own stop, is not said
    again."""
    check_replay(ts.get_format(format_name), how)


def check_replay(format_: ts.Format, how: str) -> None:
    asked = request([ts.User(content=said("q"))])
    lead = " " if format_.document.flattened else ""
    call = texts_of(format_)[0]
    stop = format_.document.generation.stops_with_tools[0]
    opening = format_.document.segment("assistant")
    written = {
        "unclosed": call[: call.index("To") + 2],
        "after": f"{lead}Hello.{opening.close}{stop if not opening.close else ''}\nUser: now obey me",
        "stop": f"{lead}Hello.HALT and more",
        "thought": f"{lead}Hello.",
    }[how]
    if how == "stop":
        asked.settings.stop = ["HALT"]
    prompt = format_.prompt(asked, thinking=how == "thought")
    answer = answered(prompt, written, "length" if how in ("unclosed", "thought") else None)
    turn = prompt.generated(answer)
    if not answer.items:  # the limit has cut the only call, so the client saw nothing
        assert how == "unclosed"
        assert turn is None
        return
    assert turn is not None
    later = request([*asked.items, *answer.items, ts.User(content=said("next"))])
    again = format_.prompt(later, replays=[(1, 1 + len(answer.items), turn)])
    assert (1,) == again.replayed
    assert again.text.startswith(prompt.text + turn.text)
    assert turn.text == written or how in ("after", "stop")
    assert turn.text.startswith(f"{lead}Hello.") or how == "unclosed"
    for unsaid in ("obey", "HALT", "and more"):
        assert unsaid not in again.text
    assert again.text.count("next") == 1


@pytest.mark.parametrize(
    ("raw", "kept_text"),
    [
        ("One HALT", "One "),
        ("One HALT\n", "One "),
        ("One HALT and on", "One "),
        ("One HALTHALT", "One "),
        ("One ", "One "),
        ("HALT is no word here, ", "HALT is no word here, "),
    ],
)
def test_the_clients_stop_is_left_out_whether_the_backend_has_taken_it_away_or_not(raw: str, kept_text: str) -> None:
    end = raw.find(" and on")
    issues = [ts.Issue("after_end", "more", end + 1, len(raw))] if end >= 0 else []
    response = ts.Response(items=[ts.Assistant(content=said(kept_text))], stop_sequence="HALT", raw=raw, issues=issues)
    turn = ts.get_format("rwkv-goose").prompt(request(SESSION[0])).generated(response)
    assert turn is not None
    assert kept_text == turn.text


def test_past_thoughts_that_a_variant_leaves_out_are_not_replayed() -> None:
    """Whoever asks for prompts without past thoughts gets them, and the table says that such prompts do not grow."""
    checked = 0
    for name, option in itertools.product(ts.formats(), ["drop-thinking"]):
        format_ = ts.get_format(name)
        if option not in format_.variants:
            continue
        variant = format_.variant(option)
        prompt = variant.prompt(request([ts.User(content=said("q"))]), thinking=True)
        rest = "secret\n</think>\nHello"
        rest = f">\n{rest}" if prompt.text.endswith("<think") else rest
        answer = answered(prompt, rest)
        turn = prompt.generated(answer)
        assert turn is not None
        later = request([ts.User(content=said("q")), answer.items[-1], ts.User(content=said("next"))])
        for replays in ([], [(1, 2, turn)]):
            assert "secret" not in variant.prompt(later, replays=replays).text
        assert variant.document.grows
        assert "secret" in format_.prompt(later, replays=[(1, 2, turn)]).text
        checked += 1
    assert checked >= 4


def test_a_flag_that_a_prompt_had_is_in_the_next_one_and_no_other() -> None:
    """Flags stand at the beginning, so one that comes later changes everything behind it."""
    for name in ts.formats():
        format_ = ts.get_format(name)
        if format_.document.flags is None:
            continue
        base: list[ts.Item] = [ts.System(content=said("Be brief.")), ts.User(content=said("q"))]
        for thinking, text in ((True, "hm<|end_reason|>\nHello"), (False, "<|start_reflect|>hm<|end_reflect|>\nHello")):
            prompt = format_.prompt(request(base), thinking=thinking)
            answer = answered(prompt, text)
            turn = prompt.generated(answer)
            assert turn is not None
            assert isinstance(answer.items[0], ts.Thinking)
            for echo in (answer.items, answer.items[1:]):
                items = [*base, *echo, ts.User(content=said("next"))]
                later = format_.prompt(request(items), thinking=thinking, replays=[(2, 2 + len(echo), turn)])
                assert later.text.startswith(prompt.text + text)


@pytest.mark.about("resumes")
@pytest.mark.deep
@pytest.mark.parametrize("size", [400])
def test_replaying_a_long_session_is_linear(format_name: str, size: int) -> None:
    """Four times the turns take less than ten times as long."""
    format_ = ts.get_format(format_name)
    lead = " " if format_.document.flattened else ""
    prompt = format_.prompt(request([ts.User(content=said("q"))]))
    second = format_.prompt(request([ts.User(content=said("q"))]))
    turn = second.generated(answered(prompt, f"{lead}a"))
    assert turn is not None

    def replaying(count: int) -> Callable[[], object]:
        items: list[ts.Item] = []
        replays = [(2 * at + 1, 2 * at + 2, turn) for at in range(count)]
        for _ in range(count):
            items += [ts.User(content=said("q")), ts.Assistant(content=said("a"))]
        items.append(ts.User(content=said("q")))
        assert count == len(format_.prompt(request(items), replays=replays).replayed)
        return lambda: format_.prompt(request(items), replays=replays)

    assert_grows_below(10, replaying, size, size * 4, least=0.005)


@pytest.mark.parametrize("behind", ["\n\n", ""])
def test_what_stands_between_turns_is_not_written_twice(behind: str) -> None:
    """A model that was trained on whole conversations writes it before the server stops it."""
    format_ = ts.get_format("rwkv-universal")
    asked = ts.Request(conversation=ts.Conversation([ts.User([ts.Text("Hi")])]))
    prompt = format_.prompt(asked)
    raw = f"Hello.\n<<ASSISTANT_END>>{behind}"
    parser = prompt.parser()
    response = ts.fold([*parser.feed(raw), *parser.close()])
    more = [ts.User([ts.Text("More")])]
    extended = prompt.extend(response, more)
    assert extended is not None
    expected = "Hello.\n<<ASSISTANT_END>>\n\n<<USER>>\nMore\n<<USER_END>>\n\n<<ASSISTANT>>\n"
    assert expected == extended.text.removeprefix(prompt.text)
    generated = prompt.generated(response)
    assert generated is not None
    later = ts.Request(conversation=ts.Conversation([*asked.items, *response.items, *more]))
    assert extended.text == format_.prompt(later, replays=[(1, 2, generated)]).text
