"""The comparison with transformers has what it compares, and tells what differs in few words."""

from collections import Counter
from pathlib import Path

import pytest

import turnscript as ts
from tools.parity import places, report
from tools.parity.conversations import conversations
from tools.parity.difference import cause

CONVERSATIONS = conversations()


def test_there_are_enough_conversations_and_each_has_a_name() -> None:
    assert 52 <= len(CONVERSATIONS)
    assert [1] == sorted(set(Counter(one.name for one in CONVERSATIONS).values()))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.name)
def test_a_body_says_what_the_conversation_says(conversation: object) -> None:
    one = next(known for known in CONVERSATIONS if known is conversation)
    request = ts.parse(one.body, "openai-chat")
    calls = [call["function"]["name"] for message in one.messages for call in message.get("tool_calls", [])]
    assert calls == [item.name for item in request.items if isinstance(item, ts.ToolCall)]
    assert [tool["function"]["name"] for tool in one.tools or []] == [tool.name for tool in request.tools]


def test_each_kind_of_turn_is_there() -> None:
    roles = {message["role"] for one in CONVERSATIONS for message in one.messages}
    last = {one.messages[-1]["role"] for one in CONVERSATIONS}
    calls = {len(message.get("tool_calls", [])) for one in CONVERSATIONS for message in one.messages}
    assert {"system", "developer", "user", "assistant", "tool"} == roles
    assert {"user", "assistant", "tool"} <= last
    assert {0, 1, 2, 3} <= calls
    assert {0, 1, 8} <= {len(one.tools or []) for one in CONVERSATIONS}


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        ("<a>one<b>and some more", "<a><b>and some more", "'one' is written as ''"),
        ("<a><b>and some more", "<a>7 of 12<b>and some more", "'' is written as '0 of 0'"),
        ("<a>see get_time<b>and some more", "<a><b>and some more", "'see <name>' is written as ''"),
        ("<a>x", "<a>", "'x' is written as ''"),
        ("today 12, and some more", "today 13, and some more", "'2' is written as '3'"),
    ],
)
def test_a_cause_is_what_is_missing_and_what_is_there_instead(expected: str, actual: str, told: str) -> None:
    assert told == cause(expected, actual, ["get_time"])


def test_a_page_is_written_between_its_markers_alone() -> None:
    page = f"before\n{report.START}\nold\n{report.END}\nbehind\n"
    assert f"before\n{report.START}\nnew\n{report.END}\nbehind\n" == report.put(page, "new\n")
    with pytest.raises(ValueError, match="the page needs a line"):
        report.put("no markers", "new\n")


def test_a_folder_without_templates_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no \*\.jinja"):
        places.places(tmp_path)


def test_a_place_is_a_model_folder_with_the_tokens_of_its_family(tmp_path: Path) -> None:
    (tmp_path / "Qwen-any.jinja").write_bytes(b"{{ eos_token }}\r\n")
    (place,) = places.places(tmp_path)
    folder = place.folder(tmp_path / "models")
    assert b"{{ eos_token }}\r\n" == (folder / "chat_template.jinja").read_bytes()
    assert '{"eos_token": "<|im_end|>"}' == (folder / "tokenizer_config.json").read_text(encoding="utf-8")
