"""Owns what a macro is, and the macros that write nested values in other spellings than JSON's.

In the text of a macro, PROTECTED stands for its argument `text` with the tags of the format broken in it.
"""

from __future__ import annotations

from msgspec import Struct


class Macro(Struct, frozen=True):
    """A macro's text, and the names of those that it calls."""

    text: str
    needs: tuple[str, ...] = ()


SPELLINGS = {
    # The type that a tag says of an argument.
    "type_of": Macro(
        """\
{%- macro type_of(value) -%}
  {%- if value is string -%}{{- "string" -}}
  {%- elif value is boolean -%}{{- "boolean" -}}
  {%- elif value is none -%}{{- "null" -}}
  {%- elif value is mapping -%}{{- "object" -}}
  {%- elif value is sequence -%}{{- "array" -}}
  {%- else -%}{{- "number" -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
    # A name or a key in braces: between marks if it could not be told from what stands around it.
    "braced_word": Macro(
        """\
{%- macro braced_word(text, mark) -%}
  {%- set ns = namespace(plain=text != "" and text.strip() == text) -%}
  {%- for one in ["{", "}", "[", "]", "<", ">", ":", ",", "\\"", "'", "\\n"] -%}
    {%- if one in text -%}{%- set ns.plain = false -%}{%- endif -%}
  {%- endfor -%}
  {%- if ns.plain -%}{{- PROTECTED -}}{%- else -%}{{- mark -}}{{- PROTECTED -}}{{- mark -}}{%- endif -%}
{%- endmacro -%}"""
    ),
    # The same of a tool's name, up to the brace before its arguments.
    "braced_name": Macro(
        """\
{%- macro braced_name(text, mark) -%}
  {%- if text != "" and text.strip() == text and "{" not in text -%}{{- PROTECTED -}}
  {%- else -%}{{- mark -}}{{- PROTECTED -}}{{- mark -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
    # A value in braces, each string between marks.
    "braced": Macro(
        """\
{%- macro braced(text, mark) -%}
  {%- if text is string -%}{{- mark -}}{{- PROTECTED -}}{{- mark -}}
  {%- elif text is mapping -%}
    {{- "{" -}}
    {%- for key, inner in text|items -%}
      {%- if not loop.first -%}{{- "," -}}{%- endif -%}
      {{- braced_word(key, mark) -}}{{- ":" -}}{{- braced(inner, mark) -}}
    {%- endfor -%}
    {{- "}" -}}
  {%- elif text is sequence -%}
    {{- "[" -}}
    {%- for inner in text -%}
      {%- if not loop.first -%}{{- "," -}}{%- endif -%}
      {{- braced(inner, mark) -}}
    {%- endfor -%}
    {{- "]" -}}
  {%- else -%}{{- text|tojson -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("braced_word",),
    ),
    # A schema in braces, its types in capitals. `kind`: a `schema`, a `map` of them, or anything. `key`: whose it is.
    "braced_schema": Macro(
        """\
{%- macro braced_schema(text, mark, kind, key) -%}
  {%- set maps = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"] -%}
  {%- set lists = ["items", "additionalProperties", "not", "anyOf", "oneOf", "allOf", "prefixItems", "contains"] -%}
  {%- if text is string and kind == "schema" and key == "type" -%}{{- braced(text.upper(), mark) -}}
  {%- elif text is mapping -%}
    {%- set known = kind == "schema" and (key == "" or key == "type" or key in maps or key in lists) -%}
    {%- set within = "schema" if kind == "map" or (known and key not in maps) else ("map" if known else "") -%}
    {{- "{" -}}
    {%- for word, inner in text|items -%}
      {%- if not loop.first -%}{{- "," -}}{%- endif -%}
      {{- braced_word(word, mark) -}}{{- ":" -}}{{- braced_schema(inner, mark, within, word) -}}
    {%- endfor -%}
    {{- "}" -}}
  {%- elif text is not string and text is sequence -%}
    {%- set known = kind == "map" or (kind == "schema" and (key == "type" or key in maps or key in lists)) -%}
    {{- "[" -}}
    {%- for inner in text -%}
      {%- if not loop.first -%}{{- "," -}}{%- endif -%}
      {{- braced_schema(inner, mark, "schema" if known else "", key) -}}
    {%- endfor -%}
    {{- "]" -}}
  {%- else -%}{{- braced(text, mark) -}}
  {%- endif -%}
{%- endmacro -%}""",
        ("braced", "braced_word"),
    ),
    # A name or a key of Python's: a JSON string if it is none.
    "python_name": Macro(
        """\
{%- macro python_name(name) -%}
  {%- set letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_" -%}
  {%- if name and not name.strip(letters ~ "0123456789.-") and not name[:1].strip(letters) -%}{{- name -}}
  {%- else -%}{{- name|tojson -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
    # A value as Python writes it.
    "python": Macro(
        """\
{%- macro python(value) -%}
  {%- if value is string -%}{{- value|tojson -}}
  {%- elif value is boolean -%}{{- "True" if value else "False" -}}
  {%- elif value is none -%}{{- "None" -}}
  {%- elif value is mapping -%}
    {{- "{" -}}
    {%- for key, inner in value|items -%}
      {{- (", " if not loop.first else "") ~ key|tojson ~ ": " ~ python(inner) -}}
    {%- endfor -%}
    {{- "}" -}}
  {%- elif value is sequence -%}
    {{- "[" -}}
    {%- for inner in value -%}
      {{- (", " if not loop.first else "") ~ python(inner) -}}
    {%- endfor -%}
    {{- "]" -}}
  {%- else -%}{{- value|tojson -}}
  {%- endif -%}
{%- endmacro -%}"""
    ),
}
