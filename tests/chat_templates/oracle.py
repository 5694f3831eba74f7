"""Owns what transformers makes of a conversation with a chat template, by jinja2 alone, and the bundled templates."""

from pathlib import Path
from typing import Any

import jinja2

from tests.templates import Template
from tools.parity.conversations import Conversation, Message

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.jinja"))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "enabled": {"enable_thinking": True, "thinking": True},
    "disabled": {"enable_thinking": False, "thinking": False},
}
# A template raises of its own wish, or because it meets what it does not expect.
REFUSALS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


def written(template: Template, conversation: Conversation, mode: str, generates: bool) -> str | None:
    """Return what a template writes, and None where it does not take the conversation."""
    body = {"messages": [_prepared(one) for one in conversation.messages], "tools": conversation.tools}
    inputs: dict[str, Any] = TOKENS | MODES[mode]
    try:
        return template.render(body, documents=None, add_generation_prompt=generates, **inputs)
    except REFUSALS:
        return None


def _prepared(message: Message) -> Message:
    """Return a message without members that are null, and with its thought under each name that templates read."""
    message = {key: value for key, value in message.items() if value is not None}
    thought = next((message[name] for name in _THOUGHTS if name in message), None)
    return message if thought is None else {"thinking": thought, **message, "reasoning_content": thought}
