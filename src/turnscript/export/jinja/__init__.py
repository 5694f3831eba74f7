"""Owns the export of a format as a chat template in Jinja, for servers and libraries that render prompts themselves."""

from turnscript.export.jinja.template import format_of_template, write_template

__all__ = ["format_of_template", "write_template"]
