"""Owns the order of losses: that of the members in the source, and not one of Python's hashes, which change by run."""

import turnscript as ts

STRANGE = {f"strange_{number}": number for number in (7, 3, 0, 9, 1, 8, 2, 6, 5, 4)}


def test_the_members_of_a_system_text_that_becomes_a_string_are_told_in_their_order() -> None:
    body = {"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "a", **STRANGE}], "messages": []}
    told = ts.convert(body, "anthropic-messages", "anthropic-messages", profile="seed").losses
    assert [f"$.system[0].{key}" for key in STRANGE] == [loss.path for loss in told]


def test_options_of_a_cache_that_another_api_has_not_are_told_in_their_order() -> None:
    body = {"model": "m", "input": "a", "prompt_cache_options": {**STRANGE, "mode": "auto"}}
    told = ts.convert(body, "openai-responses", "openai-chat").losses
    assert [f"$.prompt_cache_options.{key}" for key in STRANGE] == [loss.path for loss in told]
