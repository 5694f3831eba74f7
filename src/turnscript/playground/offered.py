"""Owns the formats that the page offers: those with names, and those of the chat templates that it was started with.

Only who starts the page names files. Who asks it names one of the formats that are offered.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.convert.registry import get_format
from turnscript.detection import template_format
from turnscript.formats.format import Format

_TEMPLATES: dict[str, Format] = {}


def offer(place: str) -> Format:
    """Offer the format of a chat template, by the name of its model. Raises InvalidInput for a bad place."""
    format_ = template_format.get_format(place)
    _TEMPLATES[format_.name] = format_
    return format_


def templates() -> Mapping[str, Format]:
    """Return the formats of chat templates by name."""
    return _TEMPLATES


def format_named(name: str) -> Format:
    """Return the format of a name that the page offers. Raises UnknownName."""
    return _TEMPLATES.get(name) or get_format(name)
