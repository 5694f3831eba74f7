"""ChatML as batuta writes it, twice: as a Jinja template in the manner of chat templates, and as a join by hand.

Both describe the tools in the system text, put a thought before the text of its message, and give each call and each
result a message of its own. Arguments that are text are written as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.tools import JsonObject

TEMPLATE = r"""{%- if messages[0].role == 'system' %}
    {%- set base = messages[0].content %}
    {%- set said = messages[1:] %}
{%- else %}
    {%- set base = '' %}
    {%- set said = messages %}
{%- endif %}
{{- '<|im_start|>system\n' + base }}
{%- if tools %}
    {{- '\n\n## Available Tools\n\nTo use a tool, output a <tool_call> block with JSON inside. You will receive the ' }}
    {{- 'result in a <tool_result> block.\n\nFormat:\n```\n<tool_call>\n' }}
    {{- '{"name": "tool_name", "input": {"param": "value"}}\n</tool_call>\n```\n\n' }}
    {%- for tool in tools %}
        {%- set function = tool.function %}
        {{- '### ' + function.name + '\n' + function.description + '\n' }}
        {%- if function.parameters.properties is defined %}
            {{- 'Parameters: {' }}
            {%- for key, schema in function.parameters.properties | items %}
                {{- key }}
                {%- set type = schema.type if schema.type is string else 'string' %}
                {%- if schema.description is string and schema.description %}
                    {{- ' (' + type + '): ' + schema.description }}
                {%- else %}
                    {{- ': ' + type }}
                {%- endif %}
                {{- '' if loop.last else ', ' }}
            {%- endfor %}
            {{- '}\n\n' }}
        {%- else %}
            {{- '\n' }}
        {%- endif %}
    {%- endfor %}
    {{- 'After receiving a <tool_result>, analyze it and either use another tool or respond to the user.\n' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in said %}
    {%- if message.role == 'assistant' %}
        {%- if message.content %}
            {{- '<|im_start|>assistant\n' }}
            {%- if message.reasoning_content %}
                {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
            {%- endif %}
            {{- message.content + '<|im_end|>\n' }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {{- '<|im_start|>assistant\n<tool_call>\n{"name":' }}
                {{- call.function.name | tojson }}
                {{- ',"input":' }}
                {%- if call.function.arguments is string %}
                    {{- call.function.arguments }}
                {%- else %}
                    {{- call.function.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call><|im_end|>\n' }}
            {%- endfor %}
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_result>' + message.content + '</tool_result><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""

OPENING = "<|im_start|>assistant\n"
"""How a prompt ends."""

_BEFORE_TOOLS = (
    "\n\n## Available Tools\n\nTo use a tool, output a <tool_call> block with JSON inside. You will receive the "
    "result in a <tool_result> block.\n\nFormat:\n```\n<tool_call>\n"
    '{"name": "tool_name", "input": {"param": "value"}}\n</tool_call>\n```\n\n'
)
_AFTER_TOOLS = "After receiving a <tool_result>, analyze it and either use another tool or respond to the user.\n"


def _property(key: str, schema: JsonObject) -> str:
    kind = schema.get("type")
    if not isinstance(kind, str):
        kind = "string"
    description = schema.get("description")
    return f"{key} ({kind}): {description}" if description else f"{key}: {kind}"


def tool_text(tools: list[JsonObject]) -> str:
    """What the system text says about the tools."""
    pieces = [_BEFORE_TOOLS]
    for tool in tools:
        function = tool["function"]
        properties = function["parameters"].get("properties")
        pieces.append(f"### {function['name']}\n{function['description']}\n")
        if properties is None:
            pieces.append("\n")
        else:
            listed = ", ".join([_property(key, schema) for key, schema in properties.items()])
            pieces.append(f"Parameters: {{{listed}}}\n\n")
    pieces.append(_AFTER_TOOLS)
    return "".join(pieces)


def message_text(message: JsonObject) -> str:
    """One message that is not the system's, by hand."""
    role = message["role"]
    if role == "tool":
        return f"<|im_start|>user\n<tool_result>{message['content']}</tool_result><|im_end|>\n"
    if role != "assistant":
        return f"<|im_start|>{role}\n{message['content']}<|im_end|>\n"
    text = ""
    if message.get("content"):
        thought = message.get("reasoning_content")
        before = f"<think>\n{thought}\n</think>\n\n" if thought else ""
        text = f"<|im_start|>assistant\n{before}{message['content']}<|im_end|>\n"
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text += (
            f'<|im_start|>assistant\n<tool_call>\n{{"name":"{function["name"]}","input":{function["arguments"]}}}\n'
            "</tool_call><|im_end|>\n"
        )
    return text


_LITERAL = re.compile(r"<(\\*)(?=\|im_(?:start|end)\|>|/?(?:tool_call|tool_result|think)>)")


def _escaped(text: str) -> str:
    return _LITERAL.sub(r"<\1\\", text) if "<" in text else text


def safe_message_text(message: JsonObject) -> str:
    """The same, but a text that holds a marker gets a backslash inside it, so that no content opens or ends a turn."""
    role, content = message["role"], _escaped(message.get("content") or "")
    if role == "tool":
        return f"<|im_start|>user\n<tool_result>{content}</tool_result><|im_end|>\n"
    if role != "assistant":
        return f"<|im_start|>{role}\n{content}<|im_end|>\n"
    text = ""
    if content:
        thought = message.get("reasoning_content")
        before = f"<think>\n{_escaped(thought)}\n</think>\n\n" if thought else ""
        text = f"<|im_start|>assistant\n{before}{content}<|im_end|>\n"
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], _escaped(call["function"]["arguments"])
        text += f'<|im_start|>assistant\n<tool_call>\n{{"name":"{name}","input":{arguments}}}\n</tool_call><|im_end|>\n'
    return text


def join(messages: list[JsonObject], described: str, write: Callable[[JsonObject], str] = message_text) -> str:
    """The whole prompt by hand; `described` is the text of the tools."""
    pieces = [f"<|im_start|>system\n{messages[0]['content']}{described}<|im_end|>\n"]
    pieces += [write(message) for message in messages[1:]]
    pieces.append(OPENING)
    return "".join(pieces)
