"""Owns the checks of tool choices whose word is spelled as another API spells it: `{"type": "auto"}`, and `any`."""

from typing import Any

import pytest

import turnscript as ts

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    },
    "openai-responses": {"input": "Hi", "tools": [FUNCTION | {"strict": None}]},
}
SPELLED = [
    ({"type": "auto"}, "auto"),
    ({"type": "none"}, "none"),
    ({"type": "required"}, "required"),
    ({"type": "any"}, "required"),
    ("any", "required"),
]


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize(("spelled", "mode"), SPELLED)
def test_a_word_is_read_however_it_is_spelled(api: str, spelled: Any, mode: str) -> None:
    body = BODIES[api] | {"tool_choice": spelled}
    request = ts.parse(body, api)
    assert ts.ToolChoice(mode) == request.settings.tool_choice
    assert body == ts.render(request, api, strict=True).value


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize(("spelled", "mode"), SPELLED)
def test_another_api_is_told_in_its_own_words(api: str, spelled: Any, mode: str) -> None:
    (other,) = BODIES.keys() - {api}
    body = BODIES[api] | {"tool_choice": spelled}
    assert mode == ts.convert(body, api, other, strict=True).value["tool_choice"]
    messages = {"auto": "auto", "none": "none", "required": "any"}
    assert {"type": messages[mode]} == ts.convert(body, api, "anthropic-messages").value["tool_choice"]


@pytest.mark.parametrize("api", BODIES)
def test_what_stands_beside_the_word_is_kept_or_told(api: str) -> None:
    body = BODIES[api] | {"tool_choice": {"type": "auto", "mood": "good"}}
    assert body == ts.convert(body, api, api, strict=True).value
    losses = ts.convert(body, api, "anthropic-messages").losses
    assert "$.tool_choice.mood" in [loss.path for loss in losses]


@pytest.mark.parametrize("api", BODIES)
def test_a_changed_choice_is_written_in_the_usual_words(api: str) -> None:
    request = ts.parse(BODIES[api] | {"tool_choice": {"type": "any"}}, api)
    request.settings.tool_choice = ts.ToolChoice("auto")
    assert "auto" == ts.render(request, api).value["tool_choice"]


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("strange", [{"type": "perhaps"}, {"type": 3}, {"kind": "auto"}])
def test_no_other_object_is_taken_for_a_word(api: str, strange: Any) -> None:
    try:
        request = ts.parse(BODIES[api] | {"tool_choice": strange}, api)
    except ts.TurnscriptError:
        return
    assert request.settings.tool_choice is None


def test_an_archive_keeps_the_spelling() -> None:
    for api, body in BODIES.items():
        said = body | {"tool_choice": {"type": "any"}}
        transcript = ts.render(ts.parse(said, api), "rwkv-universal", strict=True).value
        assert said == ts.convert(transcript, "rwkv-universal", api, strict=True).value
