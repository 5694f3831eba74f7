"""Owns the unit tests of where losses say that something stood: in the source, as its API calls it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.core.losses import Loss
from turnscript.core.source_paths import part_path, texts_in_source

ASK = {"role": "user", "content": "q"}
CHAT_CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[]"}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        ASK,
        {"role": "assistant", "content": "on it", "tool_calls": CHAT_CALLS, "refusal": "no"},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "new": 1}, "beside": 1}],
    "functions": [{"name": "h", "new": 1}],
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        ASK,
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "a"}]},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"b": [1.0]}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r", "is_error": True}]},
    ],
}
PICTURE = {"type": "input_image", "image_url": "https://x", "detail": "low"}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "custom_tool_call", "id": "i", "call_id": "a", "name": "f", "input": "x"},
        {"type": "custom_tool_call_output", "id": "o", "call_id": "a", "output": [PICTURE]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "g", "new": 1}]},
    ],
}

PLACES: list[tuple[dict[str, Any], str, str, set[str]]] = [
    (CHAT, "openai-chat", "openai-completions", {"$.tools[0]", "$.functions[0]"}),
    (
        CHAT,
        "openai-chat",
        "anthropic-messages",
        {
            "$.messages[1].refusal",
            "$.messages[3].content[0].image_url.detail",
            "$.tools[0].function.new",
            "$.tools[0].beside",
            "$.functions[0].new",
        },
    ),
    (
        CHAT,
        "openai-chat",
        "batuta-generic",
        {
            "$.messages[1].tool_calls[0].id",
            "$.messages[1].tool_calls[1].type",
            "$.messages[2].tool_call_id",
            "$.tools[0].function.strict",
        },
    ),
    (
        CHAT,
        "openai-chat",
        "ai00-v1",
        {"$.messages[1].tool_calls[0].function.arguments", "$.messages[1].tool_calls[1].custom.input"},
    ),
    (MESSAGES, "anthropic-messages", "ai00-v1", {"$.messages[1].content[2].input"}),
    (RESPONSES, "openai-responses", "ai00-v1", {"$.input[2].input"}),
    (
        MESSAGES,
        "anthropic-messages",
        "batuta-generic",
        {
            "$.system[0].cache_control",
            "$.messages[1].content[0].data",
            "$.messages[1].content[1].citations",
            "$.messages[2].content[0].tool_use_id",
            "$.messages[2].content[0].is_error",
        },
    ),
    (
        RESPONSES,
        "openai-responses",
        "batuta-generic",
        {
            "$.input[1].encrypted_content",
            "$.input[2].type",
            "$.input[2].id",
            "$.input[2].call_id",
            "$.input[3].id",
            "$.input[3].call_id",
            "$.input[3].output[0]",
        },
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "places"), PLACES, ids=[f"{row[1]} {row[2]}" for row in PLACES])
def test_losses_name_the_members_of_the_source(body: Any, source: str, target: str, places: set[str]) -> None:
    lost = {loss.path for loss in ts.convert(body, source, target).losses}
    assert set() == places - lost, lost


def test_tools_that_come_later_are_found_where_they_came() -> None:
    losses = ts.convert(RESPONSES, "openai-responses", "rwkv-universal", view="prompt").losses
    assert "$.input[4].tools[0].new" in [loss.path for loss in losses]


def test_a_request_built_by_hand_is_told_in_words_of_the_model() -> None:
    items: list[ts.Item] = [ts.ToolCall(name="f", id="a"), ts.ToolResult(id="a", content=[ts.Text(text="r")])]
    rendered = ts.render(ts.Request(conversation=ts.Conversation(items=items)), "batuta-generic")
    assert ["items[0].id", "items[1].id"] == [loss.path for loss in rendered.losses if loss.path.endswith(".id")]


# Whose text is one string in the body, and where the body says it.
STRINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"role": "user", "content": "a"}, "openai-chat", "$.messages[0].content"),
    ({"role": "user", "content": [{"type": "text", "text": "a"}]}, "openai-chat", "$.messages[0].content[0]"),
    ({"role": "assistant", "content": "a", "refusal": "no"}, "openai-chat", "$.messages[0].content"),
    ({"role": "tool", "tool_call_id": "c", "content": "a"}, "openai-chat", "$.messages[0].content"),
    ({"role": "user", "content": "a"}, "anthropic-messages", "$.messages[0].content"),
    ({"role": "user", "content": [{"type": "text", "text": "a"}]}, "anthropic-messages", "$.messages[0].content[0]"),
]


@pytest.mark.parametrize(("message", "source", "place"), STRINGS)
def test_a_text_is_told_where_it_stands_be_it_a_string_or_in_a_list(message: Any, source: str, place: str) -> None:
    request = ts.parse({"messages": [message]}, source)
    loss = Loss(part_path(request.items[0], 0), "dropped", "")
    assert [place] == [one.path for one in texts_in_source(request, [loss])]


@pytest.mark.parametrize(
    ("body", "source", "place"),
    [
        ({"messages": [], "system": "a"}, "anthropic-messages", "$.system"),
        ({"input": "a"}, "openai-responses", "$.input"),
        ({"prompt": "a"}, "openai-completions", "$.prompt"),
        ({"prompt": ["a"]}, "openai-completions", "$.prompt[0]"),
    ],
)
def test_a_text_that_is_a_member_of_the_body_is_told_there(body: Any, source: str, place: str) -> None:
    request = ts.parse(body, source)
    loss = Loss(part_path(request.items[0], 0), "dropped", "")
    assert [place] == [one.path for one in texts_in_source(request, [loss])]


def test_a_refusal_in_a_list_is_no_member_beside_it() -> None:
    message = {"role": "assistant", "content": [{"type": "refusal", "refusal": "a", "new": 1}], "refusal": "b"}
    losses = ts.convert({"messages": [message]}, "openai-chat", "openai-responses").losses
    assert "$.messages[0].content[0].new" in [loss.path for loss in losses]


def test_a_member_of_a_summary_is_told_in_the_summary() -> None:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b", "new": 1}]
    thought = {"type": "reasoning", "id": "r", "summary": summary}
    losses = ts.convert({"input": [thought]}, "openai-responses", "rwkv-universal", view="prompt").losses
    assert "$.input[0].summary[1].new" in [loss.path for loss in losses]


@pytest.mark.parametrize("target", ["rwkv-goose", "rwkv-universal"])
def test_an_unnamed_member_is_not_told_as_the_named_one_that_the_model_calls_so(target: str) -> None:
    result = {"type": "function_call_output", "id": None, "output": "r"}
    view: dict[str, Any] = {"view": "prompt"} if target == "rwkv-universal" else {}
    losses = ts.convert({"input": [result]}, "openai-responses", target, **view).losses
    assert ["$.input[0].id"] == [loss.path for loss in losses]


def test_an_empty_string_beside_a_refusal_is_told_at_the_string() -> None:
    message = {"role": "assistant", "content": "", "refusal": "no"}
    losses = ts.convert({"messages": [ASK, message]}, "openai-chat", "anthropic-messages").losses
    assert "$.messages[1].content" in [loss.path for loss in losses]


@pytest.mark.parametrize("key", ["", "for", "format2"])
def test_a_member_beside_a_tool_that_begins_like_one_of_it_is_not_that_one(key: str) -> None:
    grammar = {"type": "grammar", "grammar": {"definition": "", "syntax": "lark"}}
    tools = [{"type": "custom", "custom": {"name": "f", "format": grammar}, key: 0}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    losses = ts.convert(json.dumps(body), "openai-chat", "anthropic-messages").losses
    assert "$.tools[0].custom.format" in [loss.path for loss in losses]
    assert f"$.tools[0].{key}" in [loss.path for loss in losses]


PICTURE_URL = {"url": "https://x", "new": 1}
CALLED = {"name": "f", "arguments": "{}", "new": 1}
NESTED: list[tuple[dict[str, Any], str, set[str]]] = [
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": PICTURE_URL}]},
                {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": CALLED}]},
            ],
            "tool_choice": {"type": "function", "function": {"name": "f", "new": 1}},
            "response_format": {"type": "json_object", "new": {"a": 1}},
        },
        "openai-chat",
        {
            "$.messages[0].content[0].image_url.new",
            "$.messages[1].tool_calls[0].function.new",
            "$.tool_choice.function.new",
            "$.response_format.new",
        },
    ),
    (
        {
            "input": "q",
            "reasoning": {"effort": "low", "context": "auto"},
            "text": {"format": {"type": "new", "a": 1}, "verbosity": "low"},
        },
        "openai-responses",
        {"$.reasoning.context", "$.text.format"},
    ),
    (
        {
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", **PICTURE_URL}}]}],
            "metadata": {"user_id": "u", "new": 1},
            "output_config": {"effort": None},
        },
        "anthropic-messages",
        {"$.messages[0].content[0].source.new", "$.metadata.new", "$.output_config.effort"},
    ),
]


@pytest.mark.parametrize(("body", "source", "places"), NESTED, ids=[row[1] for row in NESTED])
def test_of_an_object_that_arrives_only_the_unnamed_members_are_told(body: Any, source: str, places: set[str]) -> None:
    for target in {"openai-chat", "openai-responses", "anthropic-messages"} - {source}:
        lost = {
            loss.path for loss in ts.convert(body, source, target).losses if loss.detail.endswith("such member here")
        }
        assert places == lost, target
    lost = {loss.path for loss in ts.convert(body, source, "rwkv-universal", view="prompt").losses}
    assert set() == places - lost, lost


def test_an_object_that_nothing_is_known_of_is_told_whole() -> None:
    body = {"input": "q", "tool_choice": {"type": "mcp", "server_label": "s"}, "new": {"a": 1}}
    lost = [loss.path for loss in ts.convert(body, "openai-responses", "openai-chat").losses]
    assert ["$.tool_choice", "$.new"] == lost


def test_what_a_schema_is_called_is_told_where_it_is_said() -> None:
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    chat = {"messages": [ASK], "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": schema}}
    losses = ts.convert(chat, "openai-chat", "anthropic-messages").losses
    inside = "$.response_format.json_schema"
    assert [f"{inside}.name", f"{inside}.strict"] == [loss.path for loss in losses]
    responses = {"input": "q", "max_output_tokens": 1, "text": {"format": {"type": "json_schema", **schema}}}
    losses = ts.convert(responses, "openai-responses", "anthropic-messages").losses
    assert ["$.text.format.name", "$.text.format.strict"] == [loss.path for loss in losses]


def test_the_name_of_a_result_is_told_once_and_only_where_it_has_no_place() -> None:
    result = {"role": "tool", "tool_call_id": "a", "name": "f", "content": "r"}
    body = {"messages": [ASK, result], "max_tokens": 1}
    rendered: Any = ts.convert(body, "openai-chat", "openai-responses")
    assert ("f", []) == (rendered.value["input"][1]["name"], rendered.losses)
    losses = ts.convert(body, "openai-chat", "anthropic-messages").losses
    assert ["$.messages[1].name"] == [loss.path for loss in losses]


def test_a_name_beside_a_tool_choice_that_names_no_tool_is_told() -> None:
    body = {"messages": [ASK], "max_tokens": 1, "tool_choice": {"type": "any", "name": "f"}}
    losses = ts.convert(body, "anthropic-messages", "openai-chat").losses
    assert ["$.tool_choice.name"] == [loss.path for loss in losses]


FILE = {"file_data": "QQ==", "file_id": "i", "file_url": "https://x"}
FILES: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "openai-chat",
        "anthropic-messages",
        {"type": "file", "file": {"file_data": "QQ==", "file_id": "i"}},
        [".file.file_id"],
    ),
    ("openai-responses", "anthropic-messages", {"type": "input_file", **FILE}, [".file_url", ".file_id"]),
    ("openai-responses", "openai-chat", {"type": "input_file", **FILE}, [".file_url"]),
    ("openai-responses", "openai-chat", {"type": "input_file", "file_url": "https://x"}, [""]),
]


@pytest.mark.parametrize(("source", "target", "part", "members"), FILES)
def test_of_a_file_given_twice_the_member_that_is_not_sent_is_told(
    source: str, target: str, part: dict[str, Any], members: list[str]
) -> None:
    key = "input" if source == "openai-responses" else "messages"
    losses = ts.convert({key: [{"role": "user", "content": [part]}]}, source, target).losses
    assert [f"$.{key}[0].content[0]{member}" for member in members] == [
        loss.path for loss in losses if loss.kind == "dropped" and "content" in loss.path
    ]


@pytest.mark.parametrize(("unnamed", "places"), [({}, ["input_schema"]), ({"parameters": 1}, ["parameters"])])
def test_a_schema_that_is_none_is_told_as_its_api_calls_it(unnamed: dict[str, Any], places: list[str]) -> None:
    schema = {"input_schema": 5} if not unnamed else {"input_schema": {"type": "object"}}
    body = {"messages": [ASK], "max_tokens": 1, "tools": [{"name": "f", **schema, **unnamed}]}
    losses = ts.convert(body, "anthropic-messages", "openai-chat").losses
    assert [f"$.tools[0].{place}" for place in places] == [loss.path for loss in losses]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_that_a_tool_failed_is_told_as_the_source_says_it(target: str) -> None:
    losses = ts.convert(MESSAGES, "anthropic-messages", target).losses
    assert "$.messages[2].content[0].is_error" in [loss.path for loss in losses]
    transcript = '<<TOOL_RESULT name="f" id="a" status="error" format="text">>\nr\n<<END_TOOL_RESULT>>'
    assert "line 1.status" in [loss.path for loss in ts.convert(transcript, "rwkv-universal", target).losses]


def test_the_place_of_a_loss_with_a_long_name_is_found_in_time_in_proportion() -> None:
    def converting(size: int) -> Callable[[], object]:
        body = json.dumps({"model": "m", "messages": [{**ASK, "[" * size: 1}]})
        return lambda: ts.convert(body, "openai-chat", "ai00-v1")

    assert_grows_below(10, converting, 20_000, 80_000, least=0.01)


def test_an_unnamed_member_and_the_one_that_the_model_calls_so_are_both_told() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x", "encrypted": 1}
    answer = {"id": "a", "object": "response", "status": "completed", "model": "m", "output": [thought]}
    lost = {loss.path for loss in ts.convert(answer, "openai-responses", "anthropic-messages").losses}
    assert {"$.output[0].encrypted_content", "$.output[0].encrypted"} <= lost
    call = {"type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": "{}"}
    losses = ts.convert({"input": [call]}, "openai-responses", "rwkv-goose").losses
    assert ["$.input[0].id", "$.input[0].call_id"] == [loss.path for loss in losses]
    picture = {"type": "input_image", "image_url": "https://x", "url": 1}
    body = {"input": [{"role": "user", "content": [picture]}]}
    lost = {loss.path for loss in ts.convert(body, "openai-responses", "rwkv-goose").losses}
    assert "$.input[0].content[0].url" in lost


USAGE = {"input_tokens": 3, "new": 1}
PARTLY: list[tuple[str, str, dict[str, Any]]] = [
    ("anthropic-messages", "openai-chat", {"content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}),
    ("anthropic-messages", "openai-responses", {"content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}),
    ("openai-responses", "anthropic-messages", {"object": "response", "status": "completed", "output": []}),
    ("openai-responses", "openai-completions", {"object": "response", "status": "completed", "output": []}),
]


@pytest.mark.parametrize(("source", "target", "answer"), PARTLY, ids=[f"{row[0]} {row[1]}" for row in PARTLY])
def test_why_counts_that_are_not_whole_are_not_told_is_said_at_each(source: str, target: str, answer: Any) -> None:
    said = {"id": "a", "model": "m", "type": "message", **answer, "usage": USAGE}
    losses = ts.convert(said, source, target, side="response").losses
    found = {loss.path: loss.detail for loss in losses if loss.path.startswith("$.usage.")}
    why = "not all of the counts are known, so none of what stands here is told"
    assert {"$.usage.input_tokens": why, "$.usage.new": why} == found


def test_the_loss_of_an_unnamed_member_is_a_loss_like_any_other() -> None:
    api = ts.get_api("openai-chat")
    answer = {"id": "a", "type": "message", "content": [], "stop_reason": "end_turn", "container": {"id": "c"}}
    response = ts.get_api("anthropic-messages").parse_response(json.dumps(answer).encode())
    wanted = ts.Loss("$.container", "dropped", "openai-chat has no such member here")
    lost = [loss for loss in api.render_response(response, ts.Request()).losses if loss.path == "$.container"]
    assert [wanted] == lost == [wanted]
    assert lost == lost[:]
    assert {wanted} == {*lost, wanted}
    assert repr(wanted) == repr(lost[0])
    assert lost[0] != ts.Loss("$.container", "dropped", "for another reason")
