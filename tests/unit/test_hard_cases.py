"""Owns the hard cases: what models really write, and what each format's parser makes of it (spec hard-cases)."""

import re
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora
from turnscript.events import raw_text

CASES = corpora.hard_cases()


def request_of(case: corpora.HardCase) -> ts.Request:
    """What was asked before the model wrote the case's output."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.conversation.tools = CASES.offered(case)
    if case.choice == "none":
        request.settings.tool_choice = ts.ToolChoice(mode="none")
    return request


def read(case: corpora.HardCase, pieces: list[str]) -> ts.Response:
    """The output in pieces, parsed as the answer to its prompt. No byte is lost."""
    parser = ts.get_format(case.format).prompt(request_of(case), thinking=case.thinking).parser()
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.close(case.finish)
    assert case.output == raw_text(events)
    return ts.fold(events)


@pytest.mark.parametrize("case", CASES.cases, ids=lambda case: f"{case.case}-{case.format}-{case.title}")
def test_a_hard_case_reads_as_it_should(case: corpora.HardCase) -> None:
    response = read(case, [case.output])
    assert case.expect.items == corpora.outline(response.items)
    assert case.expect.finish_reason == response.finish_reason
    assert sorted(case.expect.issues) == sorted({issue.kind for issue in response.issues})


@pytest.mark.parametrize("case", CASES.cases, ids=lambda case: f"{case.case}-{case.format}-{case.title}")
def test_a_hard_case_in_pieces_reads_as_whole(case: corpora.HardCase) -> None:
    whole = read(case, [case.output])
    cuts = [[case.output[:at], case.output[at:]] for at in range(1, len(case.output))]
    for pieces in [list(case.output), *([case.chunks] if case.chunks else []), *cuts]:
        assert whole == read(case, pieces)


def test_the_page_tells_every_kind_of_issue_and_no_other() -> None:
    root = Path(__file__).resolve().parents[2]
    engine = [path.read_text("utf-8") for path in (root / "src" / "turnscript" / "engine").glob("*.py")]
    kind = re.compile(r"""(?:[Ii]ssue|_reject|issues\.append\()\(\s*"(\w+)"|_end_kind = "(\w+)\"""")
    told = {first or second for text in engine for first, second in kind.findall(text)}
    page = (root / "docs" / "formats.md").read_text("utf-8")
    assert told == set(re.findall(r"^\| `(\w+_\w+)` \|", page, re.MULTILINE)) - {"client_stops"}
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
