"""Owns what detection is tested with: the clues of every format that has a name, and templates that say no name."""

import re

import turnscript as ts
from turnscript.convert.registry import clues

TABLE = clues()
_SAYS_SO = re.compile(r"\A\{#.*?#\}\n?", re.DOTALL)


def template_of(name: str) -> str:
    """Return a chat template that writes a format, without the comment that says which it is."""
    text = ts.get_format(name).jinja().value
    assert _SAYS_SO.match(text)
    return _SAYS_SO.sub("", text)
