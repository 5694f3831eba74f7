"""Owns the group `turnscript export`: what a format is for other programs, one module a command."""

from __future__ import annotations

import click

from turnscript.cli import export_ai00_config, export_grammar, export_jinja, export_response_template, export_vectors

_EPILOG = """\b
Examples:
  turnscript export grammar --format rwkv-universal --tools request.json --target kbnf
  turnscript export jinja --format rwkv-goose --output chat_template.jinja
  turnscript export response-template --format rwkv-goose
  turnscript export ai00-config --format rwkv-goose
  turnscript export vectors --format rwkv-goose --output vectors.jsonl
"""


@click.group(epilog=_EPILOG, short_help="Write a format for other programs.")
def export() -> None:
    """Write what a format is in the language of another program."""


export_grammar.add(export)
export_jinja.add(export)
export_response_template.add(export)
export_vectors.add(export)
export_ai00_config.add(export)
