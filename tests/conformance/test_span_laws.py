"""Owns the laws of spans: whose each piece of a document is hangs on the conversation alone, not on how it was written.

Items that say one text are written by a short way, which is as fast as joining strings. An item that says that it goes
on in a message is sent by the long way, and no text shows that but an archive of all that a request says, which knows
only the long one.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import product

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

import turnscript as ts
from tests import corpora
from tests.conformance.examples import fewer
from tests.conformance.habits import keeps
from tests.conformance.test_parser_laws import answers, written_by_model
from tests.conformance.test_replay_laws import answered, following_of, request
from tests.strategies import conversations
from turnscript.formats.format import VIEWS

FEWER = fewer()
Choice = Callable[[int], bool]
EVERY: dict[str, Choice] = {
    "all": lambda at: True,
    "even": lambda at: at % 2 == 0,
    "odd": lambda at: at % 2 == 1,
}


def variants_of(format_: ts.Format) -> Iterator[ts.Format]:
    """The format and all its variants."""
    yield format_
    yield from map(format_.variant, format_.variants)


def views_of(format_: ts.Format) -> list[str]:
    """The views that have both ways."""
    return [view for view in VIEWS if view == "prompt" or format_.document.metadata is None]


def the_long_way(asked: ts.Request, chosen: Choice) -> ts.Request:
    """The same request, with the chosen items going on in the message before."""
    items = [copy(item) for item in asked.items]
    for at, item in enumerate(items):
        if chosen(at) and not item.turn:
            item.turn = "join"
    return replace(asked, conversation=replace(asked.conversation, items=items))


def written(format_: ts.Format, asked: ts.Request, view: str) -> tuple[list[ts.Span], list[ts.Loss]]:
    """The spans that are not empty, and what is lost, in an order that does not hang on when it is looked for."""
    out = format_.write(asked, view=view)
    losses = sorted(out.all_losses(), key=lambda loss: (loss.path, loss.kind, loss.detail))
    return [span for span in out.spans if span.text], losses


def characters(spans: Sequence[ts.Span]) -> list[tuple[str, bool, bool, int]]:
    """Each character, with what its span says of it."""
    return [(one, span.control, span.trainable, span.item) for span in spans for one in span.text]


def owners(spans: Sequence[ts.Span]) -> tuple[str, list[tuple[bool, bool, int]]]:
    """The text, and what the spans say of each character."""
    said: list[tuple[bool, bool, int]] = []
    for span in spans:
        said += [(span.control, span.trainable, span.item)] * len(span.text)
    return "".join([span.text for span in spans]), said


def shared(one: str, other: str) -> int:
    """How many characters the beginnings of two texts have in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def located(name: str) -> ts.Request:
    """A conversation of the corpus whose items know their places."""
    asked = corpora.load(name)
    asked.locate()
    return asked


def test_both_ways_of_writing_an_item_give_the_same_spans(format_name: str) -> None:
    """F8: texts, control, loss mask and item, for all items, and for those between items of the other way."""
    for format_ in variants_of(ts.get_format(format_name)):
        for name, view in product(corpora.names(), views_of(format_)):
            asked = located(name)
            expected = written(format_, asked, view)
            for case, chosen in EVERY.items():
                assert (name, case, *expected) == (name, case, *written(format_, the_long_way(asked, chosen), view))


@FEWER
@given(asked=conversations.plain_requests(), chosen=st.sets(st.integers(0, 5)))
def test_both_ways_agree_whatever_is_said(format_name: str, asked: ts.Request, chosen: set[int]) -> None:
    """F8 for any items, names, ids and texts that chat formats know."""
    asked.locate()
    format_ = ts.get_format(format_name)
    for view in views_of(format_):
        expected = written(format_, asked, view)
        assert expected == written(format_, the_long_way(asked, chosen.__contains__), view)


@given(asked=conversations.requests())
def test_both_ways_agree_whatever_an_api_may_send(asked: ts.Request) -> None:
    """F8 for all formats at once, because to draw a request takes longer than to write it."""
    asked.locate()
    for format_ in map(ts.get_format, ts.formats()):
        for view in views_of(format_):
            note(f"{format_.name}, {view}")
            assert written(format_, asked, view) == written(format_, the_long_way(asked, lambda at: True), view)


@pytest.mark.about("thinking")
def test_the_end_of_an_answer_of_which_nothing_is_written_is_its_own(format_name: str) -> None:
    """F8: also where it goes on in the turn of a thought, and nothing stands between the two."""
    format_ = ts.get_format(format_name)
    joints = {**format_.document.joints, ("thinking", "assistant"): ""}
    tight = replace(format_, document=replace(format_.document, joints=joints))
    said: list[ts.Item] = [ts.Thinking(content=[ts.Text(text="Hm.")]), ts.Assistant(content=[ts.Text(text="")])]
    asked = request([ts.User(content=[ts.Text(text="Hi")]), *said, ts.User(content=[ts.Text(text="Bye")])])
    asked.locate()
    assert written(tight, asked, "prompt") == written(tight, the_long_way(asked, lambda at: True), "prompt")


@given(tools=st.lists(conversations.functions(), min_size=1, max_size=3), at=st.integers(0, 2))
def test_a_tool_that_loses_a_member_is_written_like_any_other(tools: list[ts.Tool], at: int) -> None:
    """F8: lists of plain tools are kept as they were written once; others are written anew each time."""
    asked = request([ts.User(content=[ts.Text(text="Hi")])])
    asked.conversation.tools = tools
    more = replace(asked, conversation=replace(asked.conversation, tools=[copy(tool) for tool in tools]))
    more.tools[at % len(tools)].extra = {"x-more": Raw(b"1")}
    for format_ in map(ts.get_format, ts.formats()):
        note(format_.name)
        if format_.document.tools_place is None:
            continue
        expected, spans = written(format_, asked, "prompt"), written(format_, more, "prompt")
        lost = [loss for loss in spans[1] if not loss.path.endswith(".x-more")]
        assert expected == (spans[0], lost)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("more", ["a member", "a slot", "an envelope"])
def test_what_an_item_says_beside_its_text_changes_nothing_before_it(format_name: str, more: str, view: str) -> None:
    """F8: what stands between two turns is of the same item, whatever the next one has that no format shows."""
    format_ = ts.get_format(format_name)
    for name in corpora.names():
        asked = corpora.load(name)
        text, said = owners(format_.spans(asked, view=view))
        for at in range(len(asked.items)):
            items = list(asked.items)
            items[at] = item = copy(items[at])
            if more == "a member":
                item.extra = {**item.extra, "x-more": Raw(b"1")}
            elif more == "a slot":
                item.slot = "instructions"
            else:
                item.envelope = {"x-more": Raw(b"1")}
            changed, of_changed = owners(format_.spans(request(items, asked), view=view))
            same = shared(text, changed)
            assert (name, at, said[:same]) == (name, at, of_changed[:same])


def extensions(format_: ts.Format, name: str) -> Iterator[tuple[ts.Prompt, ts.Response, list[ts.Item], ts.Request]]:
    """Of a conversation, the prompt of each turn of the model, what it answered, what follows, and what was asked."""
    whole = corpora.load(name)
    for asked, items in answers(whole):
        text = written_by_model(format_, asked, items)
        if text is None:
            continue
        opening = format_.document.segment("assistant")
        prompt = format_.prompt(asked, thinking=False)
        answer = answered(prompt, text.removeprefix(f"{opening.open}{opening.head_end}").rstrip())
        yield prompt, answer, following_of(whole.items, len(asked.items) + len(items)), asked


@pytest.mark.about("resumes")
def test_a_prompt_that_was_extended_says_of_its_text_what_one_rendered_from_the_start_says(format_name: str) -> None:
    """F8, F9: behind the prompt that was answered, all pieces have the same mask and the same items as in a replay."""
    format_ = ts.get_format(format_name)
    stays = keeps(format_)
    for name in corpora.names():
        for prompt, answer, following, asked in extensions(format_, name):
            longer, turn = prompt.extend(answer, following), prompt.generated(answer)
            if longer is None or turn is None or len(turn.text) != len(answer.raw or ""):
                continue
            if not stays and any(isinstance(item, ts.Thinking) for item in answer.items):
                continue  # rendered from the start, a thought is not there any more
            later = request([*asked.items, *answer.items, *following], asked)
            start = len(asked.items)
            replays = [(start, start + len(answer.items), turn)]
            again = format_.prompt(later, thinking=False, replays=replays)
            cut = len(prompt.text)
            assert (name, characters(again.spans)[cut:]) == (name, characters(longer.spans)[cut:])


def test_what_ends_a_turn_that_was_generated_is_the_models_as_where_it_is_rendered(format_name: str) -> None:
    """F8: the mask does not hang on whether the turn stands there as it was generated or is written from its items."""
    format_ = ts.get_format(format_name)
    for name in corpora.names():
        for prompt, answer, following, asked in extensions(format_, name):
            longer = prompt.extend(answer, following)
            later = request([*asked.items, *answer.items, *following], asked)
            rendered = format_.prompt(later, thinking=False)
            if longer is None or longer.text != rendered.text:
                continue
            cut = len(prompt.text)
            if format_.document.generation.stripped:  # the end of the turn's opening is left to the model
                cut += len(longer.text[cut:]) - len(longer.text[cut:].lstrip())
            assert (name, _trainable(rendered.spans)[cut:]) == (name, _trainable(longer.spans)[cut:])


def _trainable(spans: Sequence[ts.Span]) -> list[tuple[str, bool]]:
    return [(one, trainable) for one, _, trainable, _ in characters(spans)]


@pytest.mark.about("resumes")
def test_a_text_to_go_on_from_is_the_prefill_of_an_extended_prompt_too(format_name: str) -> None:
    """F9: a session may be extended by the beginning of an answer, as a request may end with one."""
    format_ = ts.get_format(format_name)
    items: list[ts.Item] = [ts.System(content=[ts.Text(text="Be brief.")]), ts.User(content=[ts.Text(text="Hi")])]
    prompt = format_.prompt(request(items))
    opening = format_.document.segment("assistant")
    lead = " " if format_.document.flattened else ""
    answer = answered(prompt, f"{lead}Hello.{opening.close}")
    more = [ts.User(content=[ts.Text(text="And?")]), ts.Assistant(content=[ts.Text(text="It is")], open=True)]
    longer = prompt.extend(answer, more)
    assert longer is not None
    whole = format_.prompt(request([*items, *answer.items, *more]))
    assert (whole.text, whole.prefill) == (longer.text, longer.prefill)
    assert answered(whole, " late.") == answered(longer, " late.")
    last = longer.extend(answered(longer, f" late.{opening.close}"), more[:1])
    assert last is not None
    assert [0, 1, 2, 3, 4, 5] == sorted({span.item for span in last.spans if span.item >= 0})


def test_a_prompt_can_be_extended_twice(format_name: str) -> None:
    """The second time it is copied, because the first one has gone on in its own text; nothing else may differ."""
    format_ = ts.get_format(format_name)
    for name in corpora.names():
        for prompt, answer, following, _ in extensions(format_, name):
            before = prompt.spans, prompt.losses
            first = prompt.extend(answer, following)
            second = prompt.extend(answer, following)
            assert (name, *before) == (name, prompt.spans, prompt.losses)
            if first is None or second is None:
                assert (name, first) == (name, second)
                continue
            assert (name, first.spans, first.losses, first.stops) == (name, second.spans, second.losses, second.stops)


@pytest.mark.about("calls", "results", "resumes")
def test_an_extended_prompt_that_forces_a_call_gives_it_an_id_of_its_own(format_name: str) -> None:
    """F9: in a format that shows ids, the call that it opens is counted from the first one of the session."""
    format_ = ts.get_format(format_name)
    asked = request([ts.User(content=[ts.Text(text="Hi")])])
    asked.settings.tool_choice = ts.ToolChoice(mode="named", name="get_weather")
    prompt, items = format_.prompt(asked), asked.items
    for number in range(1, 6):
        whole = format_.prompt(request(items, asked))
        assert (number, whole.prefill) == (number, prompt.prefill)
        call = ts.ToolCall(name="get_weather", arguments='{"city": "Tokyo"}', id=f"call_auto_{number:03d}")
        document = str(format_.render(request([*items, call]), view="prompt").value)
        assert document.startswith(whole.text)
        answer = answered(prompt, document[len(whole.text) :].removesuffix(format_.document.end).rstrip())
        result = ts.ToolResult(content=[ts.Text(text="5")], name="get_weather", id=call.id)
        new: list[ts.Item] = [result, ts.User(content=[ts.Text(text="Again")])]
        longer = prompt.extend(answer, new)
        assert longer is not None
        prompt, items = longer, [*items, *answer.items, *new]


@pytest.mark.about("resumes")
def test_a_result_in_an_extended_prompt_may_answer_a_call_of_long_ago(format_name: str) -> None:
    """F9: where results show the names of their tools, and clients send ids alone."""
    format_ = ts.get_format(format_name)
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    items += [ts.ToolCall(name=name, arguments="{}", id=name) for name in ("get_weather", "run")]
    prompt = format_.prompt(request([*items, ts.ToolResult(content=[ts.Text(text="5")], id="get_weather")]))
    lead = " " if format_.document.flattened else ""
    answer = answered(prompt, f"{lead}Wait.{format_.document.segment('assistant').close}")
    late: list[ts.Item] = [ts.ToolResult(content=[ts.Text(text="6")], id="run")]
    longer = prompt.extend(answer, late)
    assert longer is not None
    assert format_.prompt(request([*prompt.request.items, *answer.items, *late])).text == longer.text
