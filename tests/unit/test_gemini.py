"""Owns the shapes of Gemini: its golden conversations, its spellings, schemas, results, settings, streams and ends."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import turnscript as ts
from tests import goldens
from turnscript.core.errors import UpstreamError
from turnscript.core.json_text import plain

GEMINI = ts.get_api("gemini")
CONVERSATIONS = {"c1": goldens.c1, "c2": goldens.c2, "c3": goldens.c3}


def parts_said(*parts: dict[str, Any], role: str = "user", **members: Any) -> dict[str, Any]:
    """A body with one content."""
    return {"contents": [{"role": role, "parts": list(parts)}], **members}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_golden_conversation_is_written_as_its_file_shows(name: str, request: pytest.FixtureRequest) -> None:
    asked = ts.Request(conversation=ts.Conversation(items=CONVERSATIONS[name](), tools=[goldens.WEATHER]))
    body = json.dumps(ts.render(asked, "gemini").value, indent=1, ensure_ascii=False)
    path = goldens.FOLDER / f"gemini_{name}.json"
    if request.config.getoption("--update-golden"):
        path.write_text(body + "\n", encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(body)
    back = ts.convert(path.read_bytes(), "gemini", "gemini")
    assert (json.loads(body), []) == (back.value, back.losses)


def test_both_spellings_of_members_are_read_and_the_first_is_written_anew() -> None:
    body = {
        "system_instruction": {"parts": [{"text": "Be kind."}]},
        "contents": [
            {
                "role": "model",
                "parts": [{"function_call": {"name": "f", "args": {"a_b": 1}}, "thought_signature": "x"}],
            },
            {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "aGk="}}]},
        ],
        "generation_config": {"max_output_tokens": 7, "thinking_config": {"thinking_budget": 5}},
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"type": "object"}}]}],
    }
    request = ts.parse(body, "gemini")
    assert ["system", "tool_call", "user"] == [item.kind for item in request.items]
    assert (7, 5) == (request.settings.max_tokens, request.settings.thinking and request.settings.thinking.budget)
    kept: Any = ts.render(request, "gemini", strict=True).value
    assert body["contents"] == kept["contents"]
    assert request == ts.parse(kept, "gemini")
    request.source = None
    written = ts.render(request, "gemini").data.decode()
    assert '"args":{"a_b":1}' in written
    assert [] == [name for name in ("function_call", "mime_type", "thinking_budget", "thought_sig") if name in written]


def test_a_schema_of_the_apis_own_dialect_is_json_schema_to_others_and_comes_back() -> None:
    own = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True, "maxLength": "9"}}}
    body = parts_said({"text": "Hi"}, tools=[{"functionDeclarations": [{"name": "f", "parameters": own}]}])
    body["generationConfig"] = {"responseMimeType": "application/json", "responseSchema": own}
    chat: Any = ts.convert(body, "gemini", "openai-chat").value
    expected = {"type": "object", "properties": {"a": {"type": ["string", "null"], "maxLength": 9}}}
    assert expected == chat["tools"][0]["function"]["parameters"]
    assert expected == chat["response_format"]["json_schema"]["schema"]
    assert body == ts.convert(body, "gemini", "gemini").value


def test_what_is_changed_is_written_as_from_anywhere_and_all_else_as_it_came() -> None:
    tools = [{"googleSearch": {}, "functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}]
    body: Any = {
        "systemInstruction": {"role": "system", "parts": [{"text": "Be kind."}]},
        "contents": [
            {"parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"text": ""}]},
            {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]},
        ],
        "tools": tools,
    }
    request = ts.parse(body, "gemini")
    result = request.items[-1]
    assert isinstance(result, ts.ToolResult)
    result.content = [ts.Text(text="y")]
    rendered = ts.render(request, "gemini")
    value: Any = rendered.value
    answer = {"functionResponse": {"name": "f", "response": {"output": "y"}}}
    assert body | {"contents": [*body["contents"][:2], {"role": "user", "parts": [answer]}]} == value
    request.tools.append(ts.Tool(name="g"))
    value = ts.render(request, "gemini").value
    functions = [{"name": "f", "parametersJsonSchema": {"type": "object"}}, {"name": "g"}]
    assert [{"googleSearch": {}}, {"functionDeclarations": functions}] == json.loads(
        json.dumps(value["tools"], default=plain)
    )
    assert [] == rendered.losses


@pytest.mark.parametrize(
    ("response", "text", "status"),
    [
        ({"output": "28 C"}, "28 C", None),
        ({"error": "no such city"}, "no such city", "error"),
        ({"temperature": 28}, '{"temperature":28}', None),
        ({"output": '{"a": 1}'}, '{"output":"{\\"a\\": 1}"}', None),
        ({"output": 5}, '{"output":5}', None),
    ],
)
def test_a_result_is_its_text_or_the_object_that_it_is(response: Any, text: str, status: str | None) -> None:
    body = parts_said({"functionResponse": {"name": "f", "response": response}})
    [result] = ts.parse(body, "gemini").items
    assert isinstance(result, ts.ToolResult)
    assert (text, status) == (result.content[0].text, result.status)  # type: ignore[attr-defined]
    assert body == ts.convert(body, "gemini", "gemini").value


@pytest.mark.parametrize(
    ("calling", "mode", "name"),
    [
        ({"mode": "AUTO"}, "auto", None),
        ({"mode": "NONE"}, "none", None),
        ({"mode": "ANY"}, "required", None),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, "named", "f"),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["f", "g"]}, "allowed", None),
    ],
)
def test_a_choice_of_tools_has_each_of_its_modes(calling: Any, mode: str, name: str | None) -> None:
    body = parts_said({"text": "Hi"}, toolConfig={"functionCallingConfig": calling})
    choice = ts.parse(body, "gemini").settings.tool_choice
    assert choice is not None
    assert (mode, name) == (choice.mode, choice.name)
    assert body == ts.convert(body, "gemini", "gemini").value


def test_a_mode_that_is_no_choice_of_others_is_kept_and_lost_with_its_place() -> None:
    body = parts_said({"text": "Hi"}, toolConfig={"functionCallingConfig": {"mode": "VALIDATED"}})
    losses = ts.convert(body, "gemini", "openai-chat").losses
    assert ["$.toolConfig.functionCallingConfig.mode"] == [loss.path for loss in losses]


def test_signatures_stay_on_the_parts_that_have_them() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "Hm", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "Hi", "thoughtSignature": "dGV4dA=="},
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "Y2FsbA=="},
    ]
    body = parts_said(*parts, role="model")
    assert body == ts.convert(body, "gemini", "gemini").value
    paths = [loss.path for loss in ts.convert(body, "gemini", "openai-chat").losses]
    assert {f"$.contents[0].parts[{index}].thoughtSignature" for index in range(3)} <= set(paths)


ENDS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "MALFORMED_FUNCTION_CALL": "MALFORMED_FUNCTION_CALL",
}


@pytest.mark.parametrize("reason", ENDS)
def test_an_end_is_one_of_a_closed_table_and_comes_back(reason: str) -> None:
    content = {"role": "model", "parts": [{"text": "Hi"}]}
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 10}
    body = {"candidates": [{"content": content, "finishReason": reason, "index": 0}], "usageMetadata": counts}
    body |= {"modelVersion": "m", "responseId": "r"}
    response = ts.parse_response(body)
    assert (ENDS[reason], "m", "r") == (response.finish_reason, response.model, response.id)
    assert response.usage is not None
    assert (5, 5, 3) == (response.usage.input, response.usage.output, response.usage.reasoning)
    rendered = ts.render(response, "gemini")
    assert (body, []) == (rendered.value, rendered.losses)


def test_a_blocked_prompt_is_an_answer_that_was_filtered() -> None:
    response = ts.parse_response(
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    )
    assert ("content_filter", []) == (response.finish_reason, response.items)


def test_a_huge_string_in_an_array_that_never_ends_is_read_in_linear_time() -> None:
    def seconds(size: int) -> float:
        parser, piece = GEMINI.stream_parser(), b"a" * 4096
        parser.feed(b'[{"candidates":[{"content":{"parts":[{"text":"')
        begun = time.perf_counter()
        for _ in range(size):
            parser.feed(piece)
        return time.perf_counter() - begun

    small = min(seconds(800) for _ in range(3))
    assert min(seconds(3200) for _ in range(3)) < 12 * small


def test_an_array_that_breaks_off_is_an_error_and_one_with_an_error_too() -> None:
    chunk = b'[{"candidates":[{"content":{"parts":[{"text":"He"}]}}]}'
    for rest in (b"", b",", b'\n,{"error":{"code":503,"message":"gone","status":"UNAVAILABLE"}}]'):
        parser = GEMINI.stream_parser()
        parser.feed(chunk + rest)
        with pytest.raises(UpstreamError):
            parser.close()


def test_several_candidates_are_as_many_answers() -> None:
    one = {"content": {"parts": [{"text": "A"}], "role": "model"}, "finishReason": "STOP", "index": 0}
    two = {"content": {"parts": [{"text": "B"}], "role": "model"}, "finishReason": "STOP", "index": 1}
    exchange = ts.parse_exchange({"candidates": [one, two]}, "gemini")
    assert ["A", "B"] == [
        ts.render(each, "gemini").value["candidates"][0]["content"]["parts"][0]["text"]
        for each in (exchange.response, *exchange.others)
    ]
