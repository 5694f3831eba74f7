"""Owns the laws of where a model's turn ends: what is somebody else's is in no later prompt, and what it said is."""

import pytest

import turnscript as ts
from turnscript.formats.format import Format


def said(text: str) -> list[ts.Part]:
    """A content of one text."""
    return [ts.Text(text=text)]


NEXT: list[ts.Item] = [ts.User(content=said("next"))]


def others(format_: Format) -> list[str]:
    """The openings of turns that are not the model's, as they stand behind one of the model's."""
    document = format_.document
    turns = [turn for turn in document.turns if turn.role not in ("", "assistant") and turn.open]
    if document.anchored:
        return [f"\n{segment.open}" for turn in document.turns for segment in turn.segments if not segment.model]
    return [turn.open.rstrip() if turn.close else f"{document.separator}{turn.open.rstrip()}" for turn in turns]


def asked(tools: bool) -> ts.Request:
    """A question, with a tool or without."""
    offered = [ts.Tool(name="f")] if tools else []
    return ts.Request(conversation=ts.Conversation(items=[ts.User(content=said("q"))], tools=offered))


@pytest.mark.about("resumes")
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("behind", ["", "\n", " "], ids=repr)
def test_the_opening_of_a_strangers_turn_is_in_no_later_prompt(format_name: str, tools: bool, behind: str) -> None:
    """A model goes on as somebody else, and is cut off there: that is no part of its turn, whoever writes the next."""
    format_ = ts.get_format(format_name)
    lead = " " if format_.document.flattened else ""
    request = asked(tools)
    prompt = format_.prompt(request, thinking=False)
    for opening in others(format_):
        parser = prompt.parser()
        answer = ts.fold(parser.feed(f"{lead}Hello.{opening}{behind}") + parser.close())
        assert ["Hello."] == [part.text for item in answer.items for part in item.content]  # type: ignore[attr-defined]
        anew = ts.Request(conversation=ts.Conversation([*request.items, *answer.items, *NEXT], request.tools))
        turn = prompt.generated(answer)
        assert turn is not None
        longer = prompt.extend(answer, NEXT)
        prompts = [format_.prompt(anew, replays=[(1, 2, turn)], thinking=False), *([] if longer is None else [longer])]
        for one in prompts:
            assert format_.prompt(anew, thinking=False).text == one.text


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
def test_an_answer_that_ends_with_the_word_for_a_speaker_says_it(format_name: str, tools: bool) -> None:
    """Without the line before it, a label or a tag is a word, and a later prompt has it where the client has it."""
    format_ = ts.get_format(format_name)
    lead = " " if format_.document.flattened else ""
    request = asked(tools)
    prompt = format_.prompt(request, thinking=False)
    for opening in others(format_):
        text = f"{lead}A turn begins with {opening.strip()}"
        parser = prompt.parser()
        answer = ts.fold(parser.feed(text) + parser.close("stop"))
        [item] = answer.items
        if not item.content[0].text.endswith(opening.strip()):  # type: ignore[attr-defined]
            continue  # the tag counts wherever it stands
        turn = prompt.generated(answer)
        assert turn is not None
        assert text == turn.text
        anew = ts.Request(conversation=ts.Conversation([*request.items, item, *NEXT], request.tools))
        assert format_.prompt(anew, replays=[(1, 2, turn)], thinking=False).text.startswith(prompt.text + text)
