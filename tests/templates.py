"""Owns rendering chat templates as transformers does, and the conversations that its inputs can carry.

The settings are those of transformers 5 (`utils/chat_template_utils.py`): a sandbox, blocks without their lines, loop
controls, `tojson` without HTML's escapes, and a tag that marks what the model writes.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

import turnscript as ts
from turnscript.core.json_text import is_object

Body = dict[str, Any]


class Marker(Extension):
    """The tag `generation`: it remembers where in the text its blocks stand."""

    tags = {"generation"}  # noqa: RUF012 (as the class above has it)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.blocks: list[str] = []
        self.spans: list[tuple[int, int]] = []

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        """A block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        said = caller()
        start = len("".join(self.blocks))
        self.spans.append((start, start + len(said)))
        return said


class Template:
    """A chat template."""

    def __init__(self, source: str) -> None:
        self._environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Marker, loopcontrols]
        )
        self._environment.filters["tojson"] = _to_json
        self._environment.globals |= {"raise_exception": _raise, "strftime_now": datetime.now().strftime}
        self._marker = next(one for one in self._environment.extensions.values() if isinstance(one, Marker))
        self._template = self._environment.from_string(source)

    def render(self, body: Body, **inputs: Any) -> str:
        """The text of a conversation."""
        self._marker.blocks, self._marker.spans = [], []
        given = {"messages": body["messages"], "tools": body.get("tools"), "add_generation_prompt": True}
        for block in self._template.generate(**given | inputs):
            self._marker.blocks.append(block)
        return "".join(self._marker.blocks)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where in the text that was rendered last the model's own stands."""
        return self._marker.spans


def _to_json(  # as transformers spells it
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def chat(request: ts.Request) -> Body:
    """The conversation as Chat's body, arguments spelled as Python spells what they mean."""
    body: Body = json.loads(json.dumps(ts.render(request, "openai-chat").value).replace("call_auto_", "made_"))
    for message in body["messages"]:
        if message.get("content") == "" and (message.get("tool_calls") or message.get("reasoning_content") is not None):
            message["content"] = None
        for call in message.get("tool_calls") or []:
            function = call.get("function")
            if function and is_object(function["arguments"]):
                function["arguments"] = json.dumps(json.loads(function["arguments"]), ensure_ascii=False)
    return body


def with_objects(body: Body) -> Body:
    """The same with arguments as objects, as transformers and servers give them to templates."""
    found: Body = json.loads(json.dumps(body))
    for message in found["messages"]:
        for call in message.get("tool_calls") or []:
            function = call.get("function")
            if function and is_object(function["arguments"]):
                function["arguments"] = json.loads(function["arguments"])
    return found


def parsed(body: Mapping[str, Any]) -> ts.Request:
    """The request that a body is."""
    return ts.parse(json.dumps(body, ensure_ascii=False), "openai-chat")
