"""Owns what transformers writes: a tokenizer made in memory with one template, and nothing of turnscript between."""

from importlib import import_module
from typing import Any

from jinja2 import Environment, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import Node
from jinja2.parser import Parser
from tokenizers import Tokenizer, models

from tools.parity.conversations import Conversation
from tools.parity.places import Place

# What is told to a template about thinking; most know one of the two words.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "on": {"enable_thinking": True, "thinking": True},
    "off": {"enable_thinking": False, "thinking": False},
}

# What a template raises: by its own wish, or because it meets what it does not expect.
_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Refused(Exception):
    """A template does not take a conversation; the text is its own sentence, or that of the error it ran into."""


class _Marked(Extension):
    """The tag around what the model writes, which changes nothing here."""

    tags = {"generation"}  # noqa: RUF012 (as the class above has it)

    def parse(self, parser: Parser) -> list[Node]:
        """Return what stands in it."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Oracle:
    """transformers' writer of one template."""

    def __init__(self, place: Place) -> None:
        # By name and late: it is in one environment alone, and takes seconds.
        transformers: Any = import_module("transformers")
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({})), **place.tokens
        )
        self._tokenizer.chat_template = place.source
        self._modes = dict(MODES)

    def tell(self, mode: str, variables: dict[str, Any]) -> None:
        """Use another word in a mode, if the template reads neither of the usual ones: what turnscript found there."""
        source = self._tokenizer.chat_template
        known = find_undeclared_variables(Environment(extensions=[_Marked, loopcontrols]).parse(source))
        if known.isdisjoint(MODES["on"]):
            self._modes[mode] = MODES[mode] | variables

    def text(self, conversation: Conversation, mode: str, generates: bool) -> str:
        """Return the prompt, or the conversation as it stands where nothing is opened behind it. Raises Refused."""
        wishes: dict[str, Any] = {"add_generation_prompt": generates} | self._modes[mode]
        try:
            written = self._tokenizer.apply_chat_template(
                conversation.messages, tools=conversation.tools, tokenize=False, **wishes
            )
        except _FAILURES as error:
            raise Refused(_sentence(error)) from error
        return str(written)


def _sentence(error: BaseException) -> str:
    return f"{error}".splitlines()[0][:120] if f"{error}" else type(error).__name__
