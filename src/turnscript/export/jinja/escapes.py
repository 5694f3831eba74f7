"""Owns the escape in a template: a macro that puts one backslash into each tag, as `engine.escape` does.

A template has no patterns. A text is cut at what tags go on with; where the piece before ends with what begins the tag,
and backslashes that stand there already, one more is put in.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnscript.engine.escape import Escape
from turnscript.export.jinja.code import quoted

BROKEN = """\
{%- macro broken(text, tags) -%}
  {%- set ns = namespace(text=text, out="") -%}
  {%- for lead, rest in tags -%}
    {%- if rest in ns.text -%}
      {%- set ns.out = "" -%}
      {%- for piece in ns.text.split(rest) -%}
        {%- set before = piece if loop.first else rest ~ piece -%}
        {%- set ns.out = ns.out ~ before -%}
        {%- if not loop.last and before.rstrip("\\\\").endswith(lead) -%}
          {%- set ns.out = ns.out ~ "\\\\" -%}
        {%- endif -%}
      {%- endfor -%}
      {%- set ns.text = ns.out -%}
    {%- endif -%}
  {%- endfor -%}
  {{- ns.text -}}
{%- endmacro -%}"""
"""The macro that all escapes of a template share."""


def protecting(name: str, escape: Escape) -> list[str]:
    """The macro of an escape, which knows its tags."""
    tags = ", ".join([f"[{quoted(lead)}, {quoted(rest)}]" for lead, rest in tags_of(escape)])
    return [
        f"{{%- macro {name}(text) -%}}",
        f"  {{{{- broken(text, [{tags}]) -}}}}",
        "{%- endmacro -%}",
    ]


def refusing(name: str, escape: Escape) -> list[str]:
    """The macro of the policy `reject`: what would have to be changed is an error."""
    first, say, last = protecting(name, escape)
    say = say.replace("{{- broken", "{%- set found = broken").replace("-}}", "-%}")
    message = quoted("a text holds a tag of the format; remove it")
    refusal = f"{{{{- raise_exception({message}) if found != text else text -}}}}"
    return [first, say, f"  {refusal}", last]


def tags_of(escape: Escape) -> Iterator[tuple[str, str]]:
    """What begins a tag and what goes on, without what begins as another one does: no right boundary is looked for."""
    for lead, rests in escape.rules:
        for rest in sorted(rests):
            if not any(rest != other and rest.startswith(other) for other in rests):
                yield lead, rest


def is_simple(escape: Escape) -> bool:
    """Whether no two tags can mean one place, so that one after the other is the same as all at once."""
    tags = list(tags_of(escape))
    return not any(
        one is not other
        and one[0] != other[0]
        and (one[0].endswith(other[0]) or other[0].endswith(one[0]))
        and (one[1].startswith(other[1]) or other[1].startswith(one[1]))
        for one in tags
        for other in tags
    )


def breaks_strings(escape: Escape) -> bool:
    """Whether tags of it may stand in a JSON string that has neither `<` nor `>`."""
    return any(not set(f"{lead}{rest}") & set('<>"\\') for lead, rest in tags_of(escape))
