"""Owns the hard cases: what models really write, and what each format's parser makes of it (spec hard-cases)."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora
from tests.conformance.test_parser_laws import check_events
from turnscript.core.conversation import text_content
from turnscript.core.events import PartDelta, raw_text

CASES = corpora.hard_cases()


def request_of(case: corpora.HardCase) -> ts.Request:
    """What was asked before the model wrote the case's output."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.conversation.tools = CASES.offered(case)
    if case.choice == "none":
        request.settings.tool_choice = ts.ToolChoice(mode="none")
    return request


def prompt_of(case: corpora.HardCase) -> ts.Prompt:
    """The prompt that the case's output answers."""
    return ts.get_format(case.format).prompt(request_of(case), thinking=case.thinking)


def read(case: corpora.HardCase, prompt: ts.Prompt, pieces: Sequence[str | bytes]) -> ts.Response:
    """The output in pieces, parsed as the answer to its prompt. No byte is lost, and what is told is what comes out."""
    parser = prompt.parser()
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.close(case.finish)
    return check_events(events, case.output)


@pytest.mark.parametrize("case", CASES.cases, ids=lambda case: f"{case.case}-{case.format}-{case.title}")
def test_a_hard_case_reads_as_it_should(case: corpora.HardCase) -> None:
    response = read(case, prompt_of(case), [case.output])
    assert case.expect.items == corpora.outline(response.items)
    assert case.expect.finish_reason == response.finish_reason
    assert sorted(case.expect.issues) == sorted({issue.kind for issue in response.issues})


@pytest.mark.parametrize("case", CASES.cases, ids=lambda case: f"{case.case}-{case.format}-{case.title}")
def test_a_hard_case_in_pieces_reads_as_whole(case: corpora.HardCase) -> None:
    prompt = prompt_of(case)
    whole = read(case, prompt, [case.output])
    cuts = [[case.output[:at], case.output[at:]] for at in range(1, len(case.output))]
    data = case.output.encode()
    single: list[Sequence[str | bytes]] = [list(case.output), [data[at : at + 1] for at in range(len(data))]]
    for pieces in [*single, *([case.chunks] if case.chunks else []), *cuts]:
        assert whole == read(case, prompt, pieces)


def test_the_page_tells_every_kind_of_issue_and_no_other() -> None:
    root = Path(__file__).resolve().parents[2]
    engine = [path.read_text("utf-8") for path in (root / "src" / "turnscript" / "engine").glob("*.py")]
    reported = r"(?:[Ii]ssue|issue_since_opening|_reject|issues\.append\()"
    kind = re.compile(rf"""{reported}\((?:at, )?\s*"(\w+)"|end_kind = "(\w+)\"""")
    told = {first or second for text in engine for first, second in kind.findall(text)}
    page = (root / "docs" / "formats.md").read_text("utf-8")
    table = page[page.index("| issue |") :].split("\n\n", 1)[0]
    assert told == set(re.findall(r"^\| `(\w+_\w+)` \|", table, re.MULTILINE))
    assert set(CASES.issues) <= told


@pytest.mark.parametrize("name", ts.formats())
def test_case_19_a_call_ends_an_unclosed_thought_and_a_fence_does_not(name: str) -> None:
    """Whether the prompt has opened the thought or the model, and in any pieces."""
    format_ = ts.get_format(name)
    places = {segment.kind: segment for turn in format_.document.turns for segment in turn.segments}
    thought, call = places["thinking"], places["tool_call"]
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    asked.conversation.tools = [ts.Tool(name="f")]
    whole = ts.Request(conversation=ts.Conversation(items=[*asked.items, ts.ToolCall(name="f")], tools=asked.tools))
    written = str(format_.render(whole, view="prompt").value)
    start = written.rindex(call.group.open if call.group else "f\n```" if call.named else call.open)
    for thinking in (True, False):
        prompt = format_.prompt(asked, thinking=thinking)
        opening = f"{thought.open}{thought.head_end}"
        begun = opening.removeprefix(prompt.prefill.strip()).lstrip("\n") if thinking else opening
        closing = "<<ASSISTANT_END>>\n\n" if places["assistant"].open and not thinking else ""
        answer = f"{closing}{begun}hm\n{written[start:]}"
        kinds = set()
        for pieces in ([answer], list(answer)):
            parser = prompt.parser()
            items = ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close()).items
            kinds.add(tuple(item.kind for item in items))
        assert {("thinking",) if call.tentative else ("thinking", "tool_call")} == kinds


def parser_of(name: str) -> ts.TurnParser:
    """The parser of an answer where one tool is offered."""
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    asked.conversation.tools = [ts.Tool(name="f")]
    return ts.get_format(name).prompt(asked, thinking=False).parser()


@pytest.mark.parametrize("name", ts.formats())
def test_case_4_what_is_no_tag_is_told_once_that_is_certain(name: str) -> None:
    """Never more is held back than a literal may still take, and what is told is never another text."""
    longest = max(map(len, ts.get_format(name).document.literals))
    parser = parser_of(name)
    prose = "\n\n".join(["if a < b and <b>c</b>, then </ and <my-tag>", "`<`, << and <|, [ and ```"] * 20)
    told, lead = "", parser.lead
    for at, letter in enumerate(lead + prose, 1 - len(lead)):
        told += "".join(event.text for event in parser.feed(letter) if isinstance(event, PartDelta))
        assert prose.startswith(told)
        assert at - len(told) <= longest
    assert prose == told + "".join(event.text for event in parser.close() if isinstance(event, PartDelta))


@pytest.mark.parametrize("name", ts.formats())
def test_case_41_half_surrogates_in_a_text_survive(name: str) -> None:
    """They are what a decoder made of broken bytes."""
    parser = parser_of(name)
    written = f"{parser.lead}a\ud800b\udfff\x01\x02"
    events = [event for letter in written for event in parser.feed(letter)] + parser.close()
    assert written == raw_text(events)
    assert [written.strip(" ")] == [text_content(item.content) for item in ts.fold(events).items]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ts.formats())
def test_case_42_a_parser_that_is_closed_says_so_and_stays_as_it_is(name: str) -> None:
    parser = parser_of(name)
    events = [*parser.feed(""), *parser.feed(b""), *parser.feed(f"{parser.lead}Hi"), *parser.feed(""), *parser.close()]
    assert ["Hi"] == [text_content(item.content) for item in ts.fold(events).items]  # type: ignore[attr-defined]
    assert f"{parser.lead}Hi" == raw_text(events)
    for more in ("", "more", b"more"):
        with pytest.raises(ValueError, match="this parser is closed"):
            parser.feed(more)
        assert [] == parser.close()
