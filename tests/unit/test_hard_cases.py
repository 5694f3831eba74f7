"""Owns the hard cases: what models really write, and what each format's parser makes of it (spec hard-cases)."""

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
