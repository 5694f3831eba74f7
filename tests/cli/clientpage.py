"""Owns the part of docs/clients.md that is made from the recipes: a section for each client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from turnscript.cli.agents import clients
from turnscript.cli.agents.gateway import DEFAULT_URL
from turnscript.cli.agents.recipe import Client, Gateway, program, settings_text
from turnscript.cli.launch import recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
SHOWN = Gateway(DEFAULT_URL, "turnscript", "default", 65536)
"""The gateway that the page's recipes are for."""

_MADE = re.compile(r"(<!-- clients: start, .* -->\n).*?(<!-- clients: end -->)", re.DOTALL)
_SHELL = "sh"


def renewed(page: str) -> str:
    """The page with the sections that the recipes give now."""
    sections = "\n".join(map(section, clients()))
    return _MADE.sub(lambda found: f"{found[1]}\n{sections}\n{found[2]}", page)


def section(client: Client) -> str:
    """One client: how to start it, how to do the same by hand, what was tested, and its limits."""
    versions = ", ".join(f"`{package}` {version}" for package, version in client.versions.items())
    parts = [f"### {client.title}", *_how(client), f"Tested with {versions}."]
    if client.notes:
        parts.append("\n".join(f"- {note}" for note in client.notes))
    return "\n\n".join(parts) + "\n"


def _how(client: Client) -> Iterator[str]:
    yield f"`{client.install}`"
    for path, text in client.code.items():
        yield f"Over `{path}`:"
        yield _block(client.language, program(text, SHOWN))
    if not client.command:
        return
    yield _block(_SHELL, f"turnscript launch {client.name}\n")
    settings = client.settings
    if settings is None:
        yield "By hand:"
    else:
        yield f"By hand, with this in `{settings.home}`:"
        yield _block(settings.home.rsplit(".", 1)[1], settings_text(settings, SHOWN))
    yield _block(_SHELL, recipe(replace(client, settings=None), SHOWN, Path()))


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}```"
