"""Owns the checks of the three verbs and of telling an unlabelled source (requirements D-U-21)."""

from pathlib import Path
from typing import Any

import pytest

import turnscript as ts

SAY: dict[str, Any] = {"role": "user", "content": "hi"}
BLOCKS: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": "s"}

DETECTED: list[tuple[Any, str]] = [
    ({"model": "m", "input": "hi"}, "openai-responses"),
    ({"model": "m", "input": [SAY], "messages": []}, "openai-responses"),
    ({"model": "m", "messages": [SAY]}, "openai-chat"),
    ({"model": "m", "messages": [BLOCKS]}, "openai-chat"),
    ({"model": "m", "messages": [SAY], "system": "s"}, "anthropic-messages"),
    ({"model": "m", "messages": [{"role": "assistant", "content": [THOUGHT]}]}, "anthropic-messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]},
        "anthropic-messages",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]},
        "anthropic-messages",
    ),
    ({"messages": [SAY], "tools": [{"name": "f", "input_schema": {}}]}, "anthropic-messages"),
    ({"messages": [SAY], "anthropic_version": "v"}, "anthropic-messages"),
    ({"model": "m", "prompt": "hi"}, "openai-completions"),
    ([SAY], "openai-chat"),
    (b'\xef\xbb\xbf [{"role": "user", "content": "hi"}]', "openai-chat"),
    ("<<USER>>\nhi\n<<USER_END>>", "rwkv-universal"),
    ("\n\n<<SYS>>\r\nhi\r\n<<SYS_END>>", "rwkv-universal"),
    ("[BOS]<|im_start|>user\nhi\n<|im_end|>[EOS]", "openchatml"),
    (b"\xef\xbb\xbf\n[BOS]<|im_start|>user name=Eric\nhi\n<|im_end|>", "openchatml"),
    ('[{"role": "user", "content": "[BOS]<|im_start|>user"}]', "openai-chat"),
]


@pytest.mark.parametrize(("source", "name"), DETECTED, ids=[str(row[0])[:60] for row in DETECTED])
def test_an_unlabelled_source_is_told(source: Any, name: str) -> None:
    assert name == ts.detect_api(source)
    assert ts.parse(source, "auto").items


@pytest.mark.parametrize("name", ts.formats())
def test_what_a_format_writes_is_told_from_json(name: str) -> None:
    """Another format may begin alike, but its reader takes that, too."""
    written = str(ts.render(ts.parse({"messages": [SAY]}), name, view="prompt").value)
    for source in (written, written.encode()):
        assert ts.detect_api(source) in ts.formats()
        assert ["user"] == [item.kind for item in ts.parse(source).items]
        assert (
            ts.convert(source, "auto", "openai-chat").value
            == ts.convert({"messages": [SAY]}, "auto", "openai-chat").value
        )


@pytest.mark.parametrize("source", [{}, {"model": "m"}, "hello there", "", b"17", '"text"'])
def test_what_nobody_claims_is_an_error_that_says_what_was_looked_for(source: Any) -> None:
    with pytest.raises(ts.InvalidInput) as caught:
        ts.detect_api(source)
    assert caught.value.expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "line 1, column 1: the input is empty"),
        (b" \n", "line 1, column 1: the input is empty"),
        ('"hello"', "$: expected an object, got a string"),
        (b"null", "$: expected an object, got null"),
        ("3.5", "$: expected an object, got a number"),
    ],
)
def test_what_is_json_or_nothing_at_all_is_not_said_to_be_neither(source: str | bytes, message: str) -> None:
    with pytest.raises(ts.InvalidInput) as told:
        ts.parse(source)
    assert message == str(told.value)


def test_words_about_blocks_inside_a_text_do_not_mislead() -> None:
    text = 'say {"type": "tool_use"} or {"type":"thinking"}'
    assert "openai-chat" == ts.detect_api({"messages": [{"role": "user", "content": text}]})


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ts.UnknownName, match="'openai-chat'"):
        ts.convert({}, "openai-chta", "rwkv-universal")
    with pytest.raises(ts.UnknownName, match="profile"):
        ts.convert({"messages": [SAY]}, "openai-chat", "openai-chat", profile="officail")
    with pytest.raises(ts.UnknownName, match="option"):
        ts.convert({"messages": [SAY]}, "openai-chat", "rwkv-universal", views="prompt")


def test_strict_raises_one_error_that_lists_every_loss() -> None:
    body = {"model": "m", "messages": [{**SAY, "name": "ada"}], "seed": 1, "n": 2}
    with pytest.raises(ts.LossyConversion) as caught:
        ts.convert(body, "openai-chat", "anthropic-messages", strict=True)
    paths = {loss.path for loss in caught.value.losses}
    assert {"$.messages[0].name", "$.seed", "$.n"} <= paths
    assert all(path in str(caught.value) for path in paths)


def test_an_archive_has_typed_settings_again() -> None:
    body = {"model": "m", "max_tokens": 64, "messages": [SAY], "stop_sequences": ["x"], "new_member": 1.50}
    archive = ts.convert(body, "anthropic-messages", "rwkv-universal").value
    request = ts.parse(str(archive), "rwkv-universal")
    assert (64, ["x"]) == (request.settings.max_tokens, request.settings.stop)
    assert ["new_member"] == list(request.extra)
    chat = ts.render(request, "openai-chat")
    assert ["$.new_member"] == [loss.path for loss in chat.losses]


def test_a_request_built_by_hand_goes_everywhere() -> None:
    request = ts.Request(
        conversation=ts.Conversation(
            items=[ts.User(content=[ts.Text(text="hi")]), ts.ToolCall(name="f"), ts.ToolResult(name="f")]
        ),
        settings=ts.Settings(model="m", max_tokens=5),
    )
    for name in [*ts.apis(), *ts.formats()]:
        assert b"hi" in ts.render(request, name).data
    again = ts.parse(ts.render(request, "rwkv-universal").data, "rwkv-universal")
    assert request.settings == again.settings


def test_an_edited_setting_arrives() -> None:
    request = ts.parse({"model": "m", "messages": [SAY], "temperature": None, "max_tokens": 1}, "openai-chat")
    request.settings.temperature = 0.5
    value: Any = ts.render(request, "openai-chat").value
    assert (0.5, 1) == (value["temperature"], value["max_tokens"])


def test_each_value_is_a_dict_of_its_own() -> None:
    """So nobody changes what somebody else was given, or what is sent."""
    rendered = ts.convert({"model": "m", "messages": [SAY]}, "openai-chat", "openai-chat")
    first, data = rendered.value, rendered.data
    assert isinstance(first, dict)
    first["messages"].clear()
    assert {"model": "m", "messages": [SAY]} == rendered.value
    assert data == rendered.data


def test_a_text_with_half_a_surrogate_pair_is_an_error_and_not_a_crash() -> None:
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="\ud800")])]))
    for name in [*ts.apis(), *ts.formats()]:
        with pytest.raises(ts.InvalidConversation, match="surrogate"):
            ts.render(request, name).data  # noqa: B018 - the property does the work


def test_a_prefill_is_an_open_block_and_comes_back() -> None:
    body = {
        "model": "m",
        "max_tokens": 64,
        "metadata": {"user_id": "u"},
        "messages": [
            {"role": "user", "content": "Q? (A) (B)"},
            {"role": "assistant", "content": "The best answer is ("},
        ],
    }
    archive = ts.convert(body, "anthropic-messages", "rwkv-universal")
    example = Path(__file__).parents[1] / "golden" / "rwkv_universal" / "e10_prefill.txt"
    assert example.read_text() == archive.value
    assert body == ts.convert(archive.data, "rwkv-universal", "anthropic-messages").value
    chat = ts.convert(body, "anthropic-messages", "openai-chat")
    assert "$.messages[1]" in [loss.path for loss in chat.losses]


def test_an_archive_of_before_is_read_and_its_body_has_the_usual_shapes() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Q?"}]}], "stop": "x"}
    archive: Any = ts.convert(body, "openai-chat", "rwkv-universal").value
    before = archive.replace("<<USER>>", '<<USER as="list" slot="message">>').replace('"patch"', '"before"')
    assert 'as="list"' in before
    request = ts.parse(before)
    rendered = ts.render(request, "openai-chat")
    assert body | {"messages": [{"role": "user", "content": "Q?"}]} == rendered.value
    assert "as=" not in ts.render(request, "rwkv-universal").value


def test_a_patch_of_an_archive_that_was_edited_by_hand_changes_nothing_but_shapes() -> None:
    one = [{"type": "text", "text": "a text that is as long as one is that counts"}]
    messages = [
        {"role": "user", "content": one},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": one},
    ]
    archive: Any = ts.convert({"messages": messages}, "openai-chat", "rwkv-universal").value
    edited = archive.replace("is as long as", "was as long as", 1)
    first = {"role": "user", "content": [{"type": "text", "text": "a text that was as long as one is that counts"}]}
    assert [first, *messages[1:]] == ts.convert(edited, "rwkv-universal", "openai-chat").value["messages"]
    shorter = archive.replace("<<ASSISTANT>>\nb\n<<ASSISTANT_END>>\n\n", "")
    (_, last) = ts.convert(shorter, "rwkv-universal", "openai-chat").value["messages"]
    assert {"role": "user", "content": one[0]["text"]} == last  # the patch is for a message that is the third


def test_a_finished_answer_at_the_end_is_listed_where_it_would_be_continued() -> None:
    body = {"model": "m", "messages": [SAY, {"role": "assistant", "content": "done"}]}
    losses = ts.convert(body, "openai-chat", "anthropic-messages").losses
    assert ("$.messages[1]", "approximated") in [(loss.path, loss.kind) for loss in losses]


def test_an_archive_keeps_settings_that_its_origin_has_no_word_for() -> None:
    request = ts.parse({"model": "m", "messages": [SAY], "seed": 7, "other": 1}, "openai-chat")
    request.settings.top_k = 40
    request.settings.thinking = ts.ThinkingMode(mode="enabled", budget=2000)
    archive = ts.render(request, "rwkv-universal")
    assert [] == archive.losses
    again = ts.parse(archive.data, "rwkv-universal")
    assert (40, 7, 2000) == (again.settings.top_k, again.settings.seed, again.settings.thinking.budget)  # type: ignore[union-attr]
    assert ["other"] == list(again.extra)


def test_options_of_an_archive_that_their_api_does_not_take_are_an_error_with_their_path() -> None:
    archive = '<<META>>\n{"v": 1, "origin": "anthropic", "options": {"max_tokens": "many"}}\n<<META_END>>'
    with pytest.raises(ts.InvalidTranscript, match=r"\$\.max_tokens: expected an integer"):
        ts.parse(archive, "rwkv-universal")


@pytest.mark.parametrize("name", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_generated_ids_are_taken_off_on_the_way_back(name: str) -> None:
    transcript = "\n\n".join(
        [
            "<<USER>>\nnow?\n<<USER_END>>",
            '<<TOOL_CALL name="now">>\n{}\n<<END_TOOL_CALL>>',
            '<<TOOL_CALL name="zone">>\n{"of": "here"}\n<<END_TOOL_CALL>>',
            '<<TOOL_RESULT name="now">>\n{"hour": 0}\n<<END_TOOL_RESULT>>',
            '<<TOOL_RESULT name="zone" format="text">>\nUTC\n<<END_TOOL_RESULT>>',
            "<<USER>>\nthanks\n<<USER_END>>",
        ]
    )
    body = ts.convert(transcript, "rwkv-universal", name)
    assert b"call_auto_002" in body.data
    assert transcript == ts.convert(body.data, name, "rwkv-universal", view="prompt").value


def test_an_answer_that_comes_last_only_because_the_rest_has_no_place_is_listed_too() -> None:
    turns = [SAY, {"role": "assistant", "content": "done"}, {"role": "developer", "content": []}]
    losses = ts.convert({"model": "m", "messages": turns}, "openai-chat", "anthropic-messages").losses
    assert ("$.messages[1]", "approximated") in [(loss.path, loss.kind) for loss in losses]


@pytest.mark.parametrize("name", ["anthropic-messages", "openai-chat", "openai-responses"])
@pytest.mark.parametrize(
    "last",
    [
        '<<TOOL_CALL name="f" id="c">>\n{"a": 1',
        '<<TOOL_CALL name="f" id="c">>\n{"a": 1}',
        '<<TOOL_RESULT id="c" format="text">>\nr',
        "<<THINK>>\nt",
        "<<USER>>\nq",
    ],
)
def test_that_the_last_block_is_not_finished_is_told_by_each_api(last: str, name: str) -> None:
    losses = ts.convert(last, "rwkv-universal", name).losses
    assert [loss for loss in losses if loss.kind == "approximated" and "unfinished" in loss.detail]
