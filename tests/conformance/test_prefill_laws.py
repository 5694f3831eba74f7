"""Owns the laws of prefills: an answer is what was generated, wherever the prompt's own part of the turn ends."""

import itertools

import pytest

import turnscript as ts
from tests.conformance.contents import Said, escaped
from turnscript.core.events import PartDelta, raw_text

TAILS = [
    "```json\n",
    "Answer: <",
    "a <|",
    "a <<",
    "a [",
    "a `",
    "a ``",
    "a\n\n",
    "a\n<",
    "a \\",
    "a <\\",
    "\n",
    "<",
    "a",
]
GENERATED = ['{"a": 1}', "b>7</b>", "x", "1\n2", "\\x", "字👍", "7 <"]
TOOL = ts.Tool(name="f")


def read(parser: ts.TurnParser, pieces: list[str]) -> list[str]:
    """The texts of an answer in pieces. Every character that was generated is on one event."""
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
    assert "".join(pieces) == raw_text(events)
    deltas = "".join(event.text for event in events if isinstance(event, PartDelta))
    items = [item for item in ts.fold(events).items if isinstance(item, ts.Assistant | ts.Thinking)]
    said = [part.text for item in items for part in item.content if isinstance(part, ts.Text)]
    assert deltas == "".join(said)
    return said


def asked(tail: str) -> ts.Request:
    """A request whose answer goes on from a text."""
    items = [ts.User(content=[ts.Text(text="Hi")]), ts.Assistant(content=[ts.Text(text=tail)], open=True)]
    return ts.Request(conversation=ts.Conversation(items=items, tools=[TOOL]))


def opening_of(format_: ts.Format, kind: type[Said]) -> str:
    """What opens a text of a kind. Of several kinds of thought it is the last that a prompt opens unasked."""
    turn = format_.document.model_turn
    segment = [one for one in turn.segments if one.kind == kind.kind][-1]
    return f"{segment.open}{segment.head_end}"


def texts(format_: ts.Format) -> list[tuple[type[Said], str]]:
    """An answer, and a thought where the format has any, that stand open, with what opens each."""
    kinds: list[type[Said]] = [ts.Assistant, ts.Thinking] if format_.features.thinking else [ts.Assistant]
    return [(kind, opening_of(format_, kind)) for kind in kinds]


@pytest.mark.parametrize("tail", TAILS)
def test_an_answer_is_what_was_generated_after_any_prefill(format_name: str, tail: str) -> None:
    """No end of the client's own text comes back in the answer, though it may begin a literal."""
    prompt = ts.get_format(format_name).prompt(asked(tail))
    for generated in GENERATED:
        assert [generated] == read(prompt.parser(), [generated])
        assert [generated] == read(prompt.parser(), list(generated))


def test_half_a_literal_in_a_prefill_is_not_of_the_answer(format_name: str) -> None:
    """However much of a literal the prompt ends in, what makes it none is all that was generated."""
    format_ = ts.get_format(format_name)
    literals = [literal for literal in format_.seen.literals if literal.strip()]
    for (_, opening), literal in itertools.product(texts(format_), literals):
        for end in range(1, len(literal)):
            prefill = f"{opening}I see{literal[:end]}"
            if format_.protects(literal[:end]):
                break  # no content holds so much of it
            for pieces in (["7!"], ["7", "!"]):
                assert ["7!"] == read(format_.parser([], prefill=prefill), pieces), prefill


def test_an_escape_across_the_end_of_a_prefill_is_removed_once(format_name: str) -> None:
    """The backslash of an escaped tag is taken from the part in which it stands, and from no other."""
    format_ = ts.get_format(format_name)
    literals = [literal for literal in format_.seen.literals if literal.strip()]
    for kind, opening in texts(format_):
        for written in escaped(format_, [f"\\{literal.strip()}!" for literal in literals], kind):
            if written.count("\\") != 2:
                continue
            at = written.rfind("\\")
            for end in range(1, len(written)):
                rest = written[end:] if end > at else written[end:at] + written[at + 1 :]
                for pieces in ([written[end:]], list(written[end:])):
                    prefill = f"{opening}a {written[:end]}"
                    assert [rest] == read(format_.parser([], prefill=prefill), pieces), prefill


@pytest.mark.about("calls")
def test_what_begins_as_a_call_in_a_prefill_and_is_none_comes_back_without_it(format_name: str) -> None:
    """A call that began in the prompt and is none after all is text from where the model went on."""
    format_ = ts.get_format(format_name)
    call = format_.document.segment("tool_call").open.strip()
    for (_, opening), end, rest in itertools.product(texts(format_), range(1, len(call)), ('{"nam', "7!")):
        generated = call[end:] + rest
        for pieces in ([generated], list(generated)):
            said = read(format_.parser([TOOL], prefill=f"{opening}a {call[:end]}"), pieces)
            assert generated == "".join(said), call[:end]


@pytest.mark.parametrize(
    ("tail", "stop", "generated", "text"),
    [
        ("Step 1:\nAnswer:", ["\n"], "one\ntwo", "one"),
        ("To", ["To", "<"], "day", "day"),
        ("To", ["To", "<"], "day <b>", "day "),
        ("a (b", ["bc"], "cbc d", "c"),
        ("T", ["To"], "o be To", "o be "),
        ("a <", ["<"], "x", "x"),
        ("a <", ["<b"], "b", "b"),
        ("a <|", ["|"], "x|y", "x"),
    ],
)
def test_a_stop_of_the_clients_ends_only_what_was_generated(
    format_name: str, tail: str, stop: list[str], generated: str, text: str
) -> None:
    """What the client wrote itself may hold its stop, or begin it."""
    request = asked(tail)
    request.settings.stop = stop
    for pieces in ([generated], list(generated), ["", generated[:2], "", generated[2:]]):
        parser = ts.get_format(format_name).prompt(request).parser()
        answer = ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())
        assert [text] == [item.content[0].text for item in answer.items]  # type: ignore[attr-defined]
        assert (answer.stop_sequence is None) == (text == generated)
        assert generated == answer.raw


@pytest.mark.about("thinking")
def test_a_stop_of_the_clients_may_stand_in_what_opens_a_thought(format_name: str) -> None:
    """The prompt has written it, or a part of it."""
    format_ = ts.get_format(format_name)
    request = asked("x")
    request.conversation.items = request.items[:1]
    opening = opening_of(format_, ts.Thinking)
    for stop in {opening[:1], opening[:3], opening.strip()[-1:]}:
        request.settings.stop = [stop]
        prompt = format_.prompt(request, thinking=True)
        rest = opening.removeprefix(prompt.prefill.lstrip())
        for pieces in ([f"{rest}hm"], list(f"{rest}hm")):
            parser = prompt.parser()
            answer = ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())
            assert ["hm"] == [item.content[0].text for item in answer.items], stop  # type: ignore[attr-defined]
            assert answer.stop_sequence is None


@pytest.mark.parametrize("prefill", ["<", "<<", "<|", "``", "[", "\n\nUs", "</", " <"])
def test_issues_stand_in_what_was_generated_in_any_pieces(format_name: str, prefill: str) -> None:
    """Also where half a tag of the prompt turns out to be none, and what follows is behind the end."""
    for generated in ("</p> x", "x", "  y<", "er: z", "|>\n"):
        answers = []
        for pieces in ([generated], list(generated)):
            parser = ts.get_format(format_name).parser([TOOL], prefill=prefill)
            answers.append(ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close()))
            issues = answers[-1].issues
            assert all(0 <= issue.start <= issue.end <= len(generated) for issue in issues), issues
        assert answers[0] == answers[1]


@pytest.mark.parametrize("mode", ["required", "named"])
def test_what_is_left_of_a_demanded_call_is_all_that_was_generated(format_name: str, mode: str) -> None:
    """The prompt has begun the call: issues count from behind that, and where nothing came there is no text."""
    request = asked("x")
    request.conversation.items = request.items[:1]
    request.settings.tool_choice = ts.ToolChoice(mode=mode, name="f" if mode == "named" else None)
    for generated in ("", "<", "no"):
        for pieces in ([generated], list(generated)):
            parser = ts.get_format(format_name).prompt(request).parser()
            answer = ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())
            texts = [item.content[0].text for item in answer.items]  # type: ignore[attr-defined]
            assert [generated] * bool(generated) == texts
            assert all(0 == issue.start <= issue.end <= len(generated) for issue in answer.issues), answer.issues
