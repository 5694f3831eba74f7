"""Owns what turnscript writes and reads with one template."""

import json
import re
from pathlib import Path
from typing import Any

import turnscript as ts
from tools.parity.conversations import Conversation

_THINKING = {"default": None, "on": "enabled", "off": "disabled"}

# A fault of ours is a line of the table and does not end it.
_FAULTS = (ts.TurnscriptError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

# The folder that the template was written to, which is another one each time.
_FOLDER = re.compile(r" in \S*/parity-[\w-]+/\S+")


class Failed(Exception):
    """turnscript does not write or read it; the text says why."""


def loaded(folder: Path) -> ts.Format:
    """Return the format that a model's folder brings. Raises Failed."""
    try:
        return ts.get_format(str(folder))
    except _FAULTS as error:
        raise Failed(_told(error)) from error


def asked(conversation: Conversation, mode: str) -> ts.Request:
    """Return the request that a client's body is, with its wish about thinking."""
    request = ts.parse(json.dumps(conversation.body, ensure_ascii=False), "openai-chat")
    wish = _THINKING[mode]
    request.settings.thinking = None if wish is None else ts.ThinkingMode(mode=wish)
    return request


def wishes(fmt: ts.Format, mode: str) -> dict[str, Any]:
    """Return the variables in which a template is told of a wish about thinking, as turnscript found them."""
    anything = Conversation("any", [{"role": "user", "content": "Hi."}])
    asked_for = None if fmt.template is None else fmt.template.asked(asked(anything, mode), None, False, None)
    return {} if asked_for is None else dict(asked_for[0].told)


def text(fmt: ts.Format, conversation: Conversation, mode: str, generates: bool) -> str:
    """Return the prompt, or the conversation as it stands behind no opening. Raises Failed."""
    try:
        request = asked(conversation, mode)
        if generates:
            return fmt.prompt(request).text
        return str(fmt.render(request, view="prompt").value)
    except _FAULTS as error:
        raise Failed(_told(error)) from error


def prompt(fmt: ts.Format, conversation: Conversation, mode: str) -> ts.Prompt:
    """Return the prompt of a conversation. Raises Failed."""
    try:
        return fmt.prompt(asked(conversation, mode))
    except _FAULTS as error:
        raise Failed(_told(error)) from error


def read(parser: ts.TurnParser, answer: str) -> ts.Response:
    """Read what a model wrote. Raises Failed."""
    try:
        return ts.fold([*parser.feed(answer), *parser.close(finish_reason="stop")])
    except _FAULTS as error:
        raise Failed(_told(error)) from error


def reading(fmt: ts.Format) -> str:
    """Name the table that reads what a model of this template writes."""
    template = fmt.template
    if template is None:
        return fmt.name
    return "learned from it" if template.learned else template.read_as


def _told(error: BaseException) -> str:
    sentence = _FOLDER.sub("", f"{error}".splitlines()[0])[:160] if f"{error}" else ""
    return sentence if isinstance(error, ts.TurnscriptError) else f"{type(error).__name__}: {sentence}"
