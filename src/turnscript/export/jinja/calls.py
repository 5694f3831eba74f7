"""Owns the payloads of calls: how a template writes what each body of the engine writes.

`name`, `id` and `arguments` are the variables of a template that hold what a call says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from turnscript.core.conversation import ToolCall
from turnscript.engine.bodies import CallArguments
from turnscript.engine.bracedcalls import BracedCall
from turnscript.engine.elementcalls import ElementCall
from turnscript.engine.functioncalls import FunctionCall
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.namedcalls import NamedCall
from turnscript.engine.pythoncalls import PythonCall
from turnscript.engine.spans import Writer
from turnscript.engine.tagcalls import AddressedCall, TagCall
from turnscript.engine.xmlcalls import XmlParameters
from turnscript.export.jinja.code import Text, concatenated, quoted
from turnscript.export.jinja.writing import Payloads

ARGUMENTS = "$.messages[].tool_calls[].function.arguments"
_AROUND = re.compile(r'"f"|\{\}')
"""What of an example is the call's own."""
STRINGS = "a string that is JSON is told from another by its first and last characters"


def write_call(body: Any, out: Payloads) -> None:
    """The payload of a call."""
    out.lose(ARGUMENTS, "as an object they have the numbers of the engine that renders: `1e5` has become 100000.0")
    _WRITERS[type(body)](body, out)


def is_call(body: Any) -> bool:
    """Whether a body is one of these."""
    return type(body) in _WRITERS


def _arguments(body: CallArguments, out: Payloads) -> None:
    out.lose(ARGUMENTS, "whether a string is a JSON object is told by its first and last characters")
    out.content("(arguments if arguments is string else arguments|tojson)", flat=True)


def _json(body: JsonCall, out: Payloads) -> None:
    out.lose(ARGUMENTS, "a string of JSON keeps its own white space")
    argued = out.library.call("argued_tightly" if body.compact else "argued", "arguments")
    literals = _AROUND.split(body.written("f", "{}")[0])
    opening, between, end = map(Text, literals)
    first, second = (argued, "name|tojson") if body.name_last else ("name|tojson", argued)
    before = behind = ""
    if "id" in body.carries:
        comma, said = body.id_spelled()
        identified = "label" if body.numbering is not None else "id"
        if body.ids_first:
            opening = Text(literals[0][1:])
            told = f'(({quoted(said)} ~ {identified}|tojson ~ {quoted(comma)}) if {identified} is string else "")'
            before = concatenated(Text("{"), told)
        else:
            behind = f'(({quoted(comma + said)} ~ {identified}|tojson) if {identified} is string else "")'
    out.content(concatenated(before, opening, first, between, second, behind, end), flat=True)


def _named(body: NamedCall, out: Payloads) -> None:
    if body.id_first:
        with out.code.block("if id is string"):
            out.content("id")
            out.control(body.id_mark)
    if body.numbering is None:
        out.content(concatenated(Text(body.prefix), "name"))
    else:
        out.content("label")
    if body.id_mark and not body.id_first:
        with out.code.block("if id is string"):
            out.control(body.id_mark)
            out.content("id")
    out.control(body.mark)
    argued = out.library.call("argued", 'arguments.strip(" \\t\\r\\n") if arguments is string else arguments')
    out.content(argued, flat=True)


def _python(body: PythonCall, out: Payloads) -> None:
    code = out.code
    _need_object(out)
    with code.block("for key, value in arguments|items"):
        with code.block("if not loop.first"):
            out.content('", "', flat=True)
        out.content('key|tojson ~ "=" ~ value|tojson', flat=True)
    out.control(")")


def _function(body: FunctionCall, out: Payloads) -> None:
    code = out.code
    _need_object(out)
    out.content(out.library.call("python_name", "name") + ' ~ "("')
    with code.block("for key, value in arguments|items"):
        with code.block("if not loop.first"):
            out.content('", "', flat=True)
        said, written = out.library.call("python_name", "key"), out.library.call("python", "value")
        out.content(f'{said} ~ "=" ~ {written}')
    out.content('")"', flat=True)


def _braced(body: BracedCall, out: Payloads) -> None:
    _need_object(out)
    mark, code = quoted(body.mark), out.code
    out.control(body.prefix)
    code.say(out.library.call_protecting("braced_name", out.escape, "name", mark), out.of_model)
    code.say(out.library.call_protecting("braced", out.escape, "arguments", mark), out.of_model)


def _xml(body: XmlParameters, out: Payloads) -> None:
    out.lose(ARGUMENTS, STRINGS)
    _need_object(out)
    opening, close = body.literals[:2]
    example = Writer(out.escape, archive=False)
    body.write(ToolCall(name="f", arguments='{"a": 1}'), example)
    indent = example.pieces[0].partition(opening)[0]
    with out.code.block("for key, value in arguments|items"):
        out.control(f"{indent}{opening} {body.key}=")
        named = '(key|replace("&", "&amp;")|replace("\\"", "&quot;"))' if body.entities else "key"
        out.code.say(out.library.call("attribute", named), out.of_model)
        _type(body, out)
        out.control(body.head_end)
        if body.flag or body.type:
            out.content("(value if value is string else value|tojson)")
        else:
            _value(out)
        out.control(f"{close}{body.behind}")


def _type(body: XmlParameters, out: Payloads) -> None:
    """Return what a tag says of its value, between quotes."""
    said = []
    if body.flag:
        said.append((body.flag, '("true" if value is string else "false")'))
    if body.type:
        said.append((body.type, out.library.call("type_of", "value")))
    for key, word in said:
        out.control(f' {key}="')
        out.code.say(word, out.of_model)
        out.control('"')


def _tags(body: TagCall, out: Payloads) -> None:
    out.lose(ARGUMENTS, STRINGS)
    _need_object(out)
    out.control(body.name_open)
    out.content(out.library.call("word", "name"))
    out.control(body.name_close)
    if isinstance(body, AddressedCall):
        out.content(out.library.call("word", "name"))
        out.control(body.name_again)
    with out.code.block("for key, value in arguments|items"):
        out.control(body.key_open)
        out.content(out.library.call("word", "key"))
        out.control(body.value_open)
        if body.cdata:
            section = 'value is string and not whole and ("<" in value or "&" in value or "\\n" in value)'
            out.code.variable("section", section)
            with out.code.block("if section"):
                out.control("<![CDATA[")
        _value(out, nothing="None")
        if body.cdata:
            with out.code.block("if section"):
                out.control("]]>")
        out.control(body.value_close)
    out.control(body.end)


def _elements(body: ElementCall, out: Payloads) -> None:
    out.lose(ARGUMENTS, STRINGS)
    out.lose(ARGUMENTS, "what a reference in a schema leads to is not looked up")
    _need_object(out)
    protect = out.library.protected("text", out.escape).removesuffix("(text)")
    if protect == "text":
        protect = out.library.call("same").removesuffix("()")
    told = out.library.call("argument", "tools", "name", "key", "value", quoted(body.mark), protect)
    whole = out.library.call("shown_whole", "value", out.library.call("kind", "tools", "name", "key"))
    with out.code.block("for key, value in arguments|items"):
        out.code.variable("word", f'{out.library.call("word", "key")} if key[:1] != "/" else attribute(key)')
        out.control(f"{body.mark}<")
        out.content("word")
        out.control(">")
        out.code.say(f"({protect}({whole}) if whole else {told})", out.of_model)
        out.control(f"{body.mark}</")
        out.content("word")
        out.control(">")


def _value(out: Payloads, nothing: str = "") -> None:
    """Write an argument's text. `nothing`: a text that is null where null is allowed, so the string is in quotes."""
    kind = out.library.call("kind", "tools", "name", "key")
    shown, whole = out.library.call("shown", "value", kind), out.library.call("shown_whole", "value", kind)
    if nothing:
        shown = f'(value|tojson if value == {quoted(nothing)} and {kind} == "nullable" else {shown})'
    out.content(f"({whole} if whole else {shown})")


def _need_object(out: Payloads) -> None:
    """A template cannot take a string of JSON apart. One that is no object is an argument of the name `arguments`."""
    out.lose(ARGUMENTS, "a string of JSON is an error, because a template cannot read it; give an object", "dropped")
    code = out.code
    code.variable("whole", "arguments is string")
    with code.block("if arguments is string"):
        with code.block(f'if {out.library.call("looks", "arguments")} == "object"'):
            code.say('raise_exception("the arguments of a call must be an object here, not a string of JSON")')
        code.statement('set arguments = {"arguments": arguments}')


_WRITERS: dict[type[Any], Callable[[Any, Payloads], None]] = {
    CallArguments: _arguments,
    JsonCall: _json,
    NamedCall: _named,
    PythonCall: _python,
    FunctionCall: _function,
    BracedCall: _braced,
    XmlParameters: _xml,
    TagCall: _tags,
    AddressedCall: _tags,
    ElementCall: _elements,
}
