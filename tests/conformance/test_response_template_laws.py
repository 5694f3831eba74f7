"""Owns the laws of response templates: by them, transformers reads of an answer what a prompt's parser reads of it."""

import json
from collections.abc import Iterator
from typing import Any

import turnscript as ts
from tests import corpora, hfresponses
from tests.conformance.test_parser_laws import as_past
from tests.templates import Body, chat, parsed, with_objects

# What the lists of losses name: tags in texts, which are protected; calls that are none; a fence inside an argument.
ODD = ("hostile", "arguments_invalid", "arguments_fence", "markdown_fenced", "thinking_tags", "thinking_kinds")
# Where a call holds a tag of its format, that is protected, too; and in tags, a string or a key in quotes keeps them.
TAGS = (
    "arguments_call_tags",
    "arguments_parameter_tag",
    "arguments_json_like_without_schema",
    "arguments_empty_strings",
)


def answers(body: Body) -> Iterator[tuple[Body, Body, dict[str, Any]]]:
    """What stands before each message of the model, what stands up to its end, and the message."""
    messages = body["messages"]
    for at, message in enumerate(messages):
        if at and message["role"] == "assistant" and messages[at - 1]["role"] != "assistant":
            yield {**body, "messages": messages[:at]}, {**body, "messages": messages[: at + 1]}, message


def asked(name: str) -> list[tuple[Body, Body, dict[str, Any]]]:
    return [] if name.startswith((*ODD, *TAGS)) else list(answers(chat(corpora.load(name))))


def generated(format_: ts.Format, before: Body, whole: Body) -> tuple[str, str] | None:
    """The prompt, and what a model wrote behind it: one turn. None where the prompt is not how the whole begins."""
    prompt = as_past(format_, format_.prompt(parsed(before), thinking=False).text)
    text = "".join([span.text for span in format_.spans(parsed(whole))])
    ends = {one.strip() for one in (format_.stops[0], format_.document.model_turn.close) if one.strip()}
    if not text.startswith(prompt) or any(text.count(end, len(prompt)) > 1 for end in ends):
        return None
    return prompt, text[len(prompt) :]


def kinds(format_: ts.Format) -> set[str]:
    return {segment.kind for turn in format_.document.turns for segment in turn.segments}


def said(message: dict[str, Any], shown: set[str]) -> dict[str, Any]:
    """A message as transformers gives it: without empty members, and texts without white space at their ends."""
    content = message.get("content") or ""
    text = "\n".join([part.get("text", "") for part in content]) if isinstance(content, list) else content
    thought = (message.get("reasoning_content") or "") if "thinking" in shown else ""
    calls = [call["function"] for call in message.get("tool_calls") or []] if "tool_call" in shown else []
    found = {"role": "assistant", "content": text.strip(), "reasoning_content": thought.strip(), "calls": calls}
    return {key: value for key, value in found.items() if value}


def flat(value: Any) -> Any:
    """Without what formats change of texts: empty lines, and the line between two texts."""
    if isinstance(value, dict):
        return {key: flat(one) for key, one in value.items()}
    if isinstance(value, list):
        return [flat(one) for one in value]
    lines = value.replace("\r\n", "\n").replace("\r", "\n").replace("<<PART>>", "").split("\n")
    return "\n".join([line for line in lines if line.strip()])


def as_text(value: Any) -> Any:
    """Arguments as texts, whichever type they have."""
    if not isinstance(value, dict):
        return value
    return {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in value.items()}


def check(format_: ts.Format) -> int:
    """Read all answers of the corpus; returns how many there were."""
    spec, shown, count = format_.response_template().value, kinds(format_), 0
    for name in corpora.names():
        for before, whole, message in asked(name):
            made = generated(format_, before, whole)
            if made is None:
                continue
            found = hfresponses.parse(made[1], spec, made[0])
            found["calls"] = [call["function"] for call in found.pop("tool_calls", [])]
            [given] = with_objects({"messages": [message]})["messages"]
            expected = said(given, shown)
            for one in (expected, found):
                for call in one.get("calls", []):
                    call["arguments"] = as_text(call["arguments"])
            expected.setdefault("calls", [])
            if expected.get("reasoning_content", "").split("\n")[0] not in made[1]:
                del expected["reasoning_content"]  # which no later prompt shows
            assert flat(expected) == flat(found), name
            count += 1
    return count


def test_a_template_reads_what_the_format_writes(format_name: str) -> None:
    format_ = ts.get_format(format_name)
    if format_.response_template().value["fields"].keys() >= {"tool_calls"}:
        assert check(format_) > 80
