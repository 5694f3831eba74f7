"""Owns transcripts that end as a prompt does: an answer that is only opened is no message, and nothing is lost."""

from typing import Any

import pytest

import turnscript as ts

CHATS = ("openai-chat", "openai-responses", "anthropic-messages")
USER: ts.Item = ts.User(content=[ts.Text(text="Hi")])
NAMED = "[BOS]<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant name=Bob\n"


def request(*items: ts.Item) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items=[*items]))


def messages(api: str, text: str, name: str) -> tuple[list[Any], list[str]]:
    """The messages that a transcript becomes, and what is lost."""
    rendered = ts.convert(text, name, api)
    value: Any = rendered.value
    return value["input"] if "input" in value else value["messages"], [str(loss.path) for loss in rendered.losses]


@pytest.mark.parametrize("api", CHATS)
@pytest.mark.parametrize("name", ts.formats())
def test_the_end_of_a_prompt_is_no_message(name: str, api: str) -> None:
    text = ts.get_format(name).prompt(request(USER)).text
    said, lost = messages(api, text, name)
    assert (1, "user") == (len(said), said[0]["role"])
    assert lost == (["$.max_tokens"] if api == "anthropic-messages" else [])


@pytest.mark.parametrize("api", CHATS)
@pytest.mark.parametrize("name", ["ai00-v1", "rwkv-goose", "rwkv-universal"])
def test_a_thought_that_is_only_opened_is_told(name: str, api: str) -> None:
    text = ts.get_format(name).prompt(request(USER), thinking=True).text
    assert ts.get_format(name).parse(text).items[-1].open
    rendered = ts.convert(text, name, api)
    value: Any = rendered.value
    assert 1 == len(value["input"] if "input" in value else value["messages"])
    assert any("a thought is only opened here" in loss.detail for loss in rendered.losses)


def test_what_is_said_of_an_answer_stays() -> None:
    """A finished answer that is empty, one that has begun, and the name of who is to answer."""
    finished = "<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\n\n<<ASSISTANT_END>>"
    begun = "<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\nWell"
    for text, content in ((finished, ""), (begun, "Well")):
        said, _ = messages("openai-chat", text, "rwkv-universal")
        assert {"role": "assistant", "content": content} == said[-1]
    said, _ = messages("openai-chat", NAMED, "openchatml")
    assert {"role": "assistant", "content": "", "name": "Bob"} == said[-1]


@pytest.mark.parametrize("name", ts.formats())
def test_in_a_format_the_prompt_stays_one(name: str) -> None:
    format_ = ts.get_format(name)
    prompt = format_.prompt(request(USER)).text
    assert prompt == format_.prompt(format_.parse(prompt)).text
