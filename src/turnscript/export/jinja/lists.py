"""Owns the lists of tools: how a template writes what each body of the engine writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnscript.core.json_text import compact
from turnscript.engine.bodies import ToolList
from turnscript.engine.bracedtools import BracedTools
from turnscript.engine.jsonscan import indented, pretty
from turnscript.engine.toollists import IndentedTools, JsonTools, MarkdownTools, TaggedTools
from turnscript.engine.toolxml import XmlTools
from turnscript.export.jinja.code import Text, concatenated, quoted
from turnscript.export.jinja.writing import Payloads

_FUNCTION = "set function = tool.function if tool.function is defined else tool"
_DESCRIBED = "function.description is string"
_TAKES = "function.parameters is defined and function.parameters is not none"


def write_tools(body: Any, out: Payloads) -> None:
    """All tools that a template is given, one after the other."""
    out.lose("$.tools[].function.parameters", "a schema has the numbers and escapes of the engine that renders")
    if body.__class__ is not ToolList and body.rules:
        out.escape = out.escape.plus(*body.rules)
    between = "\n" if body.__class__ is ToolList else body.between
    with out.code.block("for tool in tools"):
        out.code.statement(_FUNCTION)
        if between:
            with out.code.block("if not loop.first"):
                out.control(between)
        _WRITERS[type(body)](body, out)


def is_tools(body: Any) -> bool:
    """Whether a body is one of these."""
    return type(body) in _WRITERS


def _members(parameters: str, value: str, comma: str = ", ", colon: str = ": ") -> tuple[str, ...]:
    """The members of a tool's object, `value` that of its parameters."""
    described, takes = quoted(f'{comma}"description"{colon}'), quoted(f'{comma}"{parameters}"{colon}')
    return (
        Text(f'"name"{colon}'),
        "function.name|tojson",
        f'(({described} ~ function.description|tojson) if {_DESCRIBED} else "")',
        f'(({takes} ~ {value}) if {_TAKES} else "")',
    )


def _line(body: ToolList, out: Payloads) -> None:
    strict = quoted(', "strict": ')
    said = f'(({strict} ~ function.strict|tojson) if function.strict is boolean else "")'
    members = _members("parameters", "function.parameters|tojson")
    out.content(concatenated(Text("{"), *members, said, Text("}")), flat=True)


def _json(body: JsonTools, out: Payloads) -> None:
    tag = body.literals if body.tag else ("", "")
    out.control(tag[0])
    value = "function.parameters"
    if body.properties:
        properties = 'function.parameters["properties"]'
        value = f"({properties} if function.parameters is mapping and {properties} is mapping else {{}})"
    if body.shape is pretty:
        depth = quoted("\n    " if body.wrapped else "\n  ")
        _over_lines(body, out, out.library.call("pretty", value, depth, "false"), 2)
    elif body.shape is indented:
        depth = quoted("\n        " if body.wrapped else "\n    ")
        _over_lines(body, out, f'{value}|tojson(indent=4)|replace("\\n", {depth})', 4)
    elif body.shape is compact:
        _on_one_line(body, out, f'{value}|tojson(separators=(",", ":"))', ",", ":")
    else:
        _on_one_line(body, out, f"{value}|tojson", ", ", ": ")
    out.control(tag[1])


def _on_one_line(body: JsonTools, out: Payloads, value: str, comma: str, colon: str) -> None:
    """A tool's object on one line."""
    members = _members(body.parameters, value, comma, colon)
    wrapper = f'{{"type"{colon}"function"{comma}"function"{colon}' if body.wrapped else ""
    out.content(concatenated(Text(f"{wrapper}{{"), *members, Text("}}" if body.wrapped else "}")), flat=True)


def _over_lines(body: JsonTools, out: Payloads, value: str, width: int) -> None:
    """A tool's object over several lines, each level so many spaces further in."""
    first, second = f"\n{' ' * width}", f"\n{' ' * 2 * width}"
    if body.wrapped:
        members = _members(body.parameters, value, f",{second}")
        head, end = f'{{{first}"type": "function",{first}"function": {{{second}', f"{first}}}\n}}"
    else:
        members = _members(body.parameters, value, f",{first}")
        head, end = f"{{{first}", "\n}"
    out.content(concatenated(Text(head), *members, Text(end)), flat=True)


def _element(body: IndentedTools, out: Payloads) -> None:
    out.control("  ")
    line = "\n    "
    value = f'function.parameters|tojson(indent=2)|replace("\\n", {quoted(line)})'
    members = _members(body.parameters, value, f",{line}")
    out.content(concatenated(Text(f"{{{line}"), *members, Text("\n  }")), flat=True)


def _tagged(body: TaggedTools, out: Payloads) -> None:
    out.control("  <tool name=")
    out.code.say(out.library.call("attribute", "function.name"))
    out.control(">\n")
    line = "\n      "
    value = out.library.call("pretty", "function.parameters", quoted(line), "true")
    members = _members(body.parameters, value, f",{line}")
    out.content(concatenated(Text(f"    {{{line}"), *members, Text("\n    }")), flat=True)
    out.control("\n  </tool>\n")


def _markdown(body: MarkdownTools, out: Payloads) -> None:
    """A heading, the description, and of the parameters their names, types and descriptions."""
    code = out.code
    out.control("### ")
    code.statement("set said = namespace(text=function.name)")
    code.statement(f'set said.text = said.text ~ "\\n" ~ (function.description if {_DESCRIBED} else "") ~ "\\n"')
    properties = 'function.parameters["properties"]'
    with code.block(f"if function.parameters is mapping and {properties} is mapping"):
        code.statement('set said.text = said.text ~ "Parameters: {"')
        with code.block(f"for key, schema in {properties}|items"):
            code.statement('set type = schema["type"] if schema is mapping and schema["type"] is string else "string"')
            described = 'schema["description"] if schema is mapping and schema["description"] is string else ""'
            code.statement(f"set described = {described}")
            code.statement('set entry = (key ~ " (" ~ type ~ "): " ~ described) if described else (key ~ ": " ~ type)')
            code.statement('set said.text = said.text ~ ("" if loop.first else ", ") ~ entry')
        code.statement('set said.text = said.text ~ "}\\n\\n"')
        code.otherwise()
        code.statement('set said.text = said.text ~ "\\n"')
    out.content("said.text")


def _tags(body: XmlTools, out: Payloads) -> None:
    code = out.code
    detail = "a key that can be no tag is written as one"
    out.lose("$.tools[].function.parameters", detail)
    out.control("<function>\n<name>")
    out.content("function.name")
    out.control("</name>")
    with code.block(f"if {_DESCRIBED}"):
        out.control("\n<description>")
        out.content("function.description.strip()")
        out.control("</description>")
    out.control("\n<parameters>")
    with code.block("if function.parameters is mapping"):
        properties = 'function.parameters["properties"]'
        with code.block(f"for key, schema in ({properties} if {properties} is mapping else {{}})|items"):
            out.control("\n<parameter>\n<name>")
            out.content("key")
            out.control("</name>")
            with code.block("if schema is mapping"):
                _members_as_tags(out)
            out.control("\n</parameter>")
        others = code.block("for word, value in function.parameters|items")
        with others, code.block('if word not in ["type", "properties"]'):
            _tag(out, "(value if value is string else value|tojson)")
    out.control("\n</parameters>\n</function>")


def _members_as_tags(out: Payloads) -> None:
    code = out.code
    with code.block('for word in ["type", "description"]'), code.block("if word in schema"):
        code.statement("set value = schema[word]")
        _tag(out, "(value if value is string else value|tojson).strip()")
    others = code.block("for word, value in schema|items")
    with others, code.block('if word not in ["name", "type", "description"]'):
        _tag(out, "(value if value is string else value|tojson)")


def _tag(out: Payloads, value: str) -> None:
    out.control("\n<")
    out.code.say("word")
    out.control(">")
    out.content(value)
    out.control("</")
    out.code.say("word")
    out.control(">")


def _braced(body: BracedTools, out: Payloads) -> None:
    library, mark = out.library, quoted(body.mark)
    out.control(body.prefix)
    out.code.say(library.call_protecting("braced_name", out.escape, "function.name", mark), out.of_model)
    out.control("{")
    with out.code.block(f"if {_DESCRIBED}"):
        out.control(f"description:{body.mark}")
        out.content("function.description", flat=True)
        out.control(body.mark)
    with out.code.block(f"if {_TAKES}"):
        with out.code.block(f"if {_DESCRIBED}"):
            out.control(",")
        out.control("parameters:")
        schema = library.call_protecting("braced_schema", out.escape, "function.parameters", mark, '"schema"', '""')
        out.code.say(schema, out.of_model)
    out.control("}")


_WRITERS: dict[type[Any], Callable[[Any, Payloads], None]] = {
    ToolList: _line,
    JsonTools: _json,
    IndentedTools: _element,
    TaggedTools: _tagged,
    MarkdownTools: _markdown,
    XmlTools: _tags,
    BracedTools: _braced,
}
