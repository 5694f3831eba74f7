"""Owns the macros that templates call: each is written into a template that needs it, behind those that it needs."""

from __future__ import annotations

from turnscript.core.conversation import Audio, Document, Image, shown
from turnscript.engine.escape import Escape
from turnscript.export.jinja.code import quoted
from turnscript.export.jinja.escapes import BROKEN, protecting, refusing
from turnscript.export.jinja.spellings import SPELLINGS, Macro

_NAMED = str(shown(Document(filename="?"))).split('"?"')
MACROS = {
    **SPELLINGS,
    # What stands for a part that no text can show; nothing for any other part.
    "unseen": Macro(
        f"""\
{{%- macro unseen(part) -%}}
  {{%- if part.type in ["image_url", "input_image", "image"] -%}}{{{{- {quoted(str(shown(Image())))} -}}}}
  {{%- elif part.type in ["input_audio", "audio"] -%}}{{{{- {quoted(str(shown(Audio())))} -}}}}
  {{%- elif part.type in ["file", "input_file", "document"] -%}}
    {{%- if part.file is defined and part.file.filename is defined and part.file.filename is string -%}}
      {{{{- {quoted(_NAMED[0])} ~ part.file.filename|tojson ~ {quoted(_NAMED[1])} -}}}}
    {{%- else -%}}{{{{- {quoted(str(shown(Document())))} -}}}}
    {{%- endif -%}}
  {{%- endif -%}}
{{%- endmacro -%}}"""
    ),
    # The text of a content: a string, or parts of which those that are texts are joined by newlines.
    "texts": Macro(
        """\
{%- macro texts(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content is defined and content is not none -%}
    {%- set ns = namespace(more=false) -%}
    {%- for part in content -%}
      {%- if part.type in ["text", "refusal"] -%}
        {%- if ns.more -%}{{- "\\n" -}}{%- endif -%}
        {%- set ns.more = true -%}
        {%- if part.type == "text" -%}{{- part.text -}}{%- else -%}{{- part.refusal -}}{%- endif -%}
      {%- elif unseen(part) -%}
        {%- if ns.more -%}{{- "\\n" -}}{%- endif -%}
        {%- set ns.more = true -%}
        {{- unseen(part) -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}""",
        ("unseen",),
    ),
    # The thoughts among the parts of a content, as Mistral's API has them, and llama.cpp for its models.
    "thoughts": Macro(
        """\
{%- macro thoughts(content) -%}
  {%- if content is not string and content is sequence -%}
    {%- for part in content -%}
      {%- if part.type == "thinking" -%}{{- texts(part.thinking) -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}""",
        ("texts",),
    ),
    # A text without empty lines and without white space at its ends.
    "flat": Macro(
        """\
{%- macro flat(text) -%}
  {%- set ns = namespace(text="") -%}
  {%- for line in text.replace("\\r\\n", "\\n").replace("\\r", "\\n").split("\\n") -%}
    {%- if line -%}
      {%- set ns.text = ns.text ~ ("\\n" if ns.text else "") ~ line -%}
    {%- endif -%}
  {%- endfor -%}
  {{- ns.text.strip() -}}
{%- endmacro -%}"""
    ),
    # The same where a line of white space is empty, too.
    "flat_lines": Macro(
        """\
{%- macro flat_lines(text) -%}
  {%- set ns = namespace(text="") -%}
  {%- for line in text.replace("\\r\\n", "\\n").replace("\\r", "\\n").split("\\n") -%}
    {%- if line.strip() -%}
      {%- set ns.text = ns.text ~ ("\\n" if ns.text else "") ~ line -%}
    {%- endif -%}
  {%- endfor -%}
  {{- ns.text.strip() -}}
{%- endmacro -%}"""
    ),
    # A value behind `key=` in an opening tag.
    "attribute": Macro(
        """\
{%- macro attribute(value) -%}
  {{- value|tojson|replace("<", "\\\\u003c")|replace(">", "\\\\u003e") -}}
{%- endmacro -%}"""
    ),
    # A name without white space.
    "bare": Macro(
        """\
{%- macro bare(value) -%}
  {%- set ns = namespace(text=value.replace("\\n", " ").replace("\\r", " ").replace("\\t", " ")) -%}
  {%- for run in ["        ", "    ", "  ", "  "] -%}
    {%- set ns.text = ns.text.replace(run, " ") -%}
  {%- endfor -%}
  {{- ns.text.replace(" ", "_") -}}
{%- endmacro -%}"""
    ),
    # The name of the tool that a result comes from: that of the call with its id.
    "called": Macro(
        """\
{%- macro called(before, id) -%}
  {%- set ns = namespace(name="") -%}
  {%- for message in before -%}
    {%- for entry in (message.tool_calls if message.tool_calls else []) -%}
      {%- if entry.id == id -%}
        {%- set ns.name = entry.function.name if entry.function is defined else entry.name -%}
      {%- endif -%}
    {%- endfor -%}
  {%- endfor -%}
  {{- ns.name -}}
{%- endmacro -%}"""
    ),
    # The id of a call that is made of its tool's name and its number; its own, if it is one of these.
    "numbered": Macro(
        """\
{%- macro numbered(prefix, mark, name, id, number) -%}
  {%- set begin = prefix ~ name ~ mark -%}
  {%- if id is string and id.startswith(begin) and digits(id[begin|length:]) -%}{{- id -}}
  {%- else -%}{{- begin ~ number -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("digits",),
    ),
    # The same for a result, which has the id of its call.
    "renumbered": Macro(
        """\
{%- macro renumbered(prefix, mark, before, id) -%}
  {%- set ns = namespace(id=id, number=0) -%}
  {%- for message in before -%}
    {%- for entry in (message.tool_calls if message.tool_calls else []) -%}
      {%- if entry.id == id -%}
        {%- set function = entry.function if entry.function is defined else entry -%}
        {%- set ns.id = numbered(prefix, mark, function.name, id, ns.number) -%}
      {%- endif -%}
      {%- set ns.number = ns.number + 1 -%}
    {%- endfor -%}
  {%- endfor -%}
  {{- ns.id if ns.id is string else "" -}}
{%- endmacro -%}""",
        ("numbered",),
    ),
    # An id that is a number alone: one that was given, or the number of the call.
    "indexed": Macro(
        """\
{%- macro indexed(id, number) -%}
  {%- if id is string and digits(id) -%}{{- id -}}{%- else -%}{{- number -}}{%- endif -%}
{%- endmacro -%}""",
        ("digits",),
    ),
    # The same for a result, which has the id of its call.
    "reindexed": Macro(
        """\
{%- macro reindexed(before, id) -%}
  {%- set ns = namespace(id=id, number=0) -%}
  {%- for message in before -%}
    {%- for entry in (message.tool_calls if message.tool_calls else []) -%}
      {%- if entry.id == id -%}{%- set ns.id = indexed(id, ns.number) -%}{%- endif -%}
      {%- set ns.number = ns.number + 1 -%}
    {%- endfor -%}
  {%- endfor -%}
  {{- ns.id if ns.id is string else "" -}}
{%- endmacro -%}""",
        ("indexed",),
    ),
    # Whether a text is digits and nothing else.
    "digits": Macro(
        """\
{%- macro digits(text) -%}
  {%- if text and not text.strip("0123456789") -%}{{- "yes" -}}{%- endif -%}
{%- endmacro -%}"""
    ),
    # Whether a text is a number as JSON writes it.
    "numeric": Macro(
        """\
{%- macro numeric(text) -%}
  {%- set halves = text.replace("E", "e").split("e") -%}
  {%- set power = halves[1] if halves|length > 1 else "0" -%}
  {%- set power = power[1:] if power[:1] in ["+", "-"] else power -%}
  {%- set parts = (halves[0][1:] if halves[0][:1] == "-" else halves[0]).split(".") -%}
  {%- set whole = digits(parts[0]) and (parts[0] == "0" or parts[0][:1] != "0") -%}
  {%- set decimals = parts|length == 1 or (parts|length == 2 and digits(parts[1])) -%}
  {%- if halves|length < 3 and whole and decimals and digits(power) -%}{{- "yes" -}}{%- endif -%}
{%- endmacro -%}""",
        ("digits",),
    ),
    # Whether a text looks like JSON: `object`, `array`, another `value`, or nothing.
    "looks": Macro(
        """\
{%- macro looks(text) -%}
  {%- set said = text.strip(" \\t\\r\\n") -%}
  {%- if said[:1] == "{" and said[-1:] == "}" -%}{{- "object" -}}
  {%- elif said[:1] == "[" and said[-1:] == "]" -%}{{- "array" -}}
  {%- elif said|length > 1 and said[:1] == "\\"" and said[-1:] == "\\"" -%}{{- "value" -}}
  {%- elif said in ["true", "false", "null"] or numeric(said) -%}{{- "value" -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("numeric",),
    ),
    # The arguments of a call as JSON: a string is what the model wrote.
    "argued": Macro(
        """\
{%- macro argued(arguments) -%}
  {%- if arguments is not string -%}{{- arguments|tojson -}}
  {%- elif looks(arguments) == "object" -%}{{- arguments -}}
  {%- else -%}{{- arguments|tojson -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("looks",),
    ),
    # The same without white space between the tokens.
    "argued_tightly": Macro(
        """\
{%- macro argued_tightly(arguments) -%}
  {%- if arguments is not string -%}{{- arguments|tojson(separators=(",", ":")) -}}
  {%- elif looks(arguments) == "object" -%}{{- arguments -}}
  {%- else -%}{{- arguments|tojson -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("looks",),
    ),
    # What the schema of a tool says of a parameter: `string`, `json`, `nullable` or `either`.
    "kind": Macro(
        """\
{%- macro kind(tools, name, key) -%}
  {%- set ns = namespace(kind="either") -%}
  {%- for tool in (tools if tools else []) -%}
    {%- set function = tool.function if tool.function is defined else tool -%}
    {%- if function.name == name and function.parameters is mapping and function.parameters["properties"] is mapping -%}
      {%- set ns.kind = "either" -%}
      {%- for known, schema in function.parameters["properties"]|items -%}
        {%- if known == key and schema is mapping -%}
          {%- set ns.kind = kind_of(schema) -%}
        {%- endif -%}
      {%- endfor -%}
    {%- endif -%}
  {%- endfor -%}
  {{- ns.kind -}}
{%- endmacro -%}""",
        ("kind_of",),
    ),
    "kind_of": Macro(
        """\
{%- macro kind_of(schema) -%}
  {%- set json = ["integer", "number", "boolean", "null", "object", "array"] -%}
  {%- set type = schema["type"] -%}
  {%- set ns = namespace(strings=true, json=true) -%}
  {%- if type is string -%}
    {{- "string" if type == "string" else ("json" if type in json else "either") -}}
  {%- elif type is defined and type is not none and type is not mapping -%}
    {%- for one in type -%}
      {%- if one not in json -%}{%- set ns.json = false -%}{%- endif -%}
    {%- endfor -%}
    {%- set other = "nullable" if "string" in type and "null" in type else "either" -%}
    {{- "string" if type == ["string"] else ("json" if type and ns.json else other) -}}
  {%- elif schema["enum"] is defined and schema["enum"] is not none and schema["enum"] is not mapping -%}
    {%- for one in schema["enum"] -%}
      {%- if one is not string -%}{%- set ns.strings = false -%}{%- endif -%}
    {%- endfor -%}
    {{- "string" if ns.strings else "either" -}}
  {%- else -%}
    {{- "either" -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
    # An argument as the text of a parameter: a string as it is, unless it would be read as other JSON.
    "shown": Macro(
        """\
{%- macro shown(value, kind) -%}
  {%- if value is not string or kind == "json" or (kind != "string" and looks(value)) -%}{{- value|tojson -}}
  {%- else -%}{{- value -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("looks",),
    ),
    # The same for arguments that are no object: what is JSON stays as it is.
    "shown_whole": Macro(
        """\
{%- macro shown_whole(text, kind) -%}
  {%- if kind != "string" and looks(text) -%}{{- text.strip() -}}
  {%- elif kind == "json" -%}{{- text|tojson -}}
  {%- else -%}{{- text -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("looks",),
    ),
    # Whether elements say a value, so that it comes back as it is.
    "fits": Macro(
        """\
{%- macro fits(value, schema, levels) -%}
  {%- set kind = kind_of(schema) if schema is mapping else "either" -%}
  {%- set type = schema["type"] if schema is mapping and schema["type"] is string else "" -%}
  {%- set ns = namespace(fits=true) -%}
  {%- if value is mapping -%}
    {%- set known = schema["properties"] if schema is mapping and schema["properties"] is mapping else {} -%}
    {%- set more = schema["additionalProperties"] if schema is mapping else none -%}
    {%- set ns.fits = levels > 0 and value and type != "array" and kind != "string" -%}
    {%- for key, one in value|items -%}
      {%- set plain = word(key) == key and "/" not in key and "\\\\" not in key -%}
      {%- set inner = known[key] if key in known else more -%}
      {%- if not plain or (key == "item" and type != "object") or not fits(one, inner, levels - 1) -%}
        {%- set ns.fits = false -%}
      {%- endif -%}
    {%- endfor -%}
  {%- elif value is sequence and value is not string -%}
    {%- set ns.fits = levels > 0 and value and type != "object" and kind != "string" -%}
    {%- for one in value -%}
      {%- if not fits(one, schema["items"] if schema is mapping else none, levels - 1) -%}
        {%- set ns.fits = false -%}
      {%- endif -%}
    {%- endfor -%}
  {%- elif kind == "string" and value is not string -%}
    {%- set ns.fits = false -%}
  {%- endif -%}
  {%- if ns.fits -%}{{- "yes" -}}{%- endif -%}
{%- endmacro -%}""",
        ("kind_of", "word"),
    ),
    # A value inside an element: elements, or a text. `protect`: the macro that breaks the tags of a text.
    "element": Macro(
        """\
{%- macro element(value, schema, mark, protect) -%}
  {%- set kind = kind_of(schema) if schema is mapping else "either" -%}
  {%- if kind != "string" and value is mapping and fits(value, schema, 50) -%}
    {%- set known = schema["properties"] if schema is mapping and schema["properties"] is mapping else {} -%}
    {%- set more = schema["additionalProperties"] if schema is mapping else none -%}
    {%- for key, one in value|items -%}
      {{- mark ~ "<" ~ protect(key) ~ ">" ~ element(one, known[key] if key in known else more, mark, protect) -}}
      {{- mark ~ "</" ~ protect(key) ~ ">" -}}
    {%- endfor -%}
  {%- elif kind != "string" and value is sequence and value is not string and fits(value, schema, 50) -%}
    {%- for one in value -%}
      {{- mark ~ "<item>" ~ element(one, schema["items"] if schema is mapping else none, mark, protect) -}}
      {{- mark ~ "</item>" -}}
    {%- endfor -%}
  {%- else -%}
    {{- protect(shown(value, kind)) -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("kind_of", "fits", "shown"),
    ),
    # The same for an argument of a tool.
    "argument": Macro(
        """\
{%- macro argument(tools, name, key, value, mark, protect) -%}
  {%- set ns = namespace(schema=none) -%}
  {%- for tool in (tools if tools else []) -%}
    {%- set function = tool.function if tool.function is defined else tool -%}
    {%- if function.name == name -%}{%- set ns.schema = function.parameters -%}{%- endif -%}
  {%- endfor -%}
  {%- set known = ns.schema["properties"] if ns.schema is mapping and ns.schema["properties"] is mapping else {} -%}
  {%- set more = ns.schema["additionalProperties"] if ns.schema is mapping else none -%}
  {{- element(value, known[key] if key in known else more, mark, protect) -}}
{%- endmacro -%}""",
        ("element",),
    ),
    # A text as it is.
    "same": Macro("{%- macro same(text) -%}{{- text -}}{%- endmacro -%}"),
    # A name or a key in tags: a JSON string if it is no single word.
    "word": Macro(
        """\
{%- macro word(name) -%}
  {%- set ns = namespace(plain=name != "") -%}
  {%- for one in [" ", "\\t", "\\n", "\\r", "<", ">", "\\""] -%}
    {%- if one in name -%}{%- set ns.plain = false -%}{%- endif -%}
  {%- endfor -%}
  {%- if ns.plain -%}{{- name -}}{%- else -%}{{- attribute(name) -}}{%- endif -%}
{%- endmacro -%}""",
        ("attribute",),
    ),
    # A name on a line of its own: a JSON string if it is no single word.
    "line": Macro(
        """\
{%- macro line(name) -%}
  {%- if name and not name.strip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-") -%}
    {{- name -}}
  {%- else -%}
    {{- name|tojson -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
    # JSON over several lines. Arrays of scalars stay on one, and so do objects of scalars where `objects` says it.
    "pretty": Macro(
        """\
{%- macro pretty(value, newline, objects) -%}
  {%- if value is mapping or (value is sequence and value is not string) -%}
    {%- set ns = namespace(line=objects or value is not mapping) -%}
    {%- for one in value -%}
      {%- set inner = value[one] if value is mapping else one -%}
      {%- if inner is mapping or (inner is sequence and inner is not string) -%}
        {%- set ns.line = false -%}
      {%- endif -%}
    {%- endfor -%}
    {%- set space = "" if ns.line or not value else newline ~ "  " -%}
    {%- set edge = space if space else (" " if value is mapping and value else "") -%}
    {{- "{" if value is mapping else "[" -}}
    {%- for one in value -%}
      {{- edge if loop.first else ("," ~ (space if space else " ")) -}}
      {%- if value is mapping -%}{{- one|tojson ~ ": " -}}{%- endif -%}
      {{- pretty(value[one] if value is mapping else one, newline ~ "  ", objects) -}}
    {%- endfor -%}
    {{- newline if space else edge -}}
    {{- "}" if value is mapping else "]" -}}
  {%- else -%}
    {{- value|tojson -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
}


class Library:
    """The macros of one template. `policy`: what its texts are protected by."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._lines: list[str] = []
        self._known: set[str] = set()
        self._escapes: dict[tuple[tuple[str, tuple[str, ...]], ...], str] = {}
        self.escapes: list[Escape] = []
        self._protected_text = "text"

    @property
    def lines(self) -> list[str]:
        """All macros that were asked for."""
        return self._lines

    def call(self, name: str, *arguments: str) -> str:
        """The call of a macro."""
        self._need(name)
        return f"{name}({', '.join(arguments)})"

    def call_protecting(self, name: str, escape: Escape, *arguments: str) -> str:
        """The call of a macro that protects the texts which it writes. A template has such macros for one escape."""
        self._protected_text = self.protected("text", escape)
        return self.call(name, *arguments)

    def protected(self, expression: str, escape: Escape) -> str:
        """A text with the tags in it broken."""
        if self._policy == "none" or not escape.rules:
            return f"({expression})" if " if " in expression else expression
        name = self._escapes.get(escape.rules)
        if name is None:
            name = "protect" if not self._escapes else f"protect_{len(self._escapes) + 1}"
            self._escapes[escape.rules] = name
            self.escapes.append(escape)
            if len(self.escapes) == 1:
                self._lines += BROKEN.split("\n")
            self._lines += (refusing if self._policy == "reject" else protecting)(name, escape)
        return f"{name}({expression})"

    def _need(self, name: str) -> None:
        if name in self._known:
            return
        self._known.add(name)
        for other in MACROS[name].needs:
            self._need(other)
        self._lines += MACROS[name].text.replace("PROTECTED", self._protected_text).split("\n")
