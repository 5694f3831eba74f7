"""Owns a chat template as a program: compiled once, and run as transformers runs it, in bounds.

The sandbox needs jinja2, which comes with the extras `cli`, `serve` and `data`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.engine.template.frozen import frozen
from turnscript.engine.template.meter import Limits, Meter, Stop

LIMITS = Limits()
LONGEST = 65_536
"""Characters of a template. The longest known one has a quarter."""


class InvalidTemplate(InvalidInput):
    """A chat template that cannot be compiled: `name` says which, `line` where."""

    code = "invalid_template"
    name = ""

    @property
    def where(self) -> str:
        return f"{self.name}, line {self.line}" if self.line else self.name


class TemplateFailed(InvalidTemplate):
    """An error in a chat template while it wrote a conversation."""

    code = "template_failed"


class TemplateLimit(InvalidTemplate):
    """A chat template that takes too many steps, characters or seconds."""

    code = "template_limit"


class TemplateRefused(Unsupported):
    """A chat template says itself that it cannot write a conversation: `said` is what it says, word for word."""

    code = "template_refused"

    def __init__(self, said: str, name: str, line: int = 0) -> None:
        where = f"{name}, line {line}" if line else name
        super().__init__("this conversation", name, f"{where}: the template refuses this conversation: {said}")
        self.args = (said, name, line)
        self.said = said
        self.name = name
        self.line = line


class Program:
    """A chat template, compiled. Several threads may render it: each takes an idle copy, or compiles one more.

    It is to be given plain JSON data (dict, list, str, int, float, bool, None), as transformers gives it: members of
    messages that are None left out, `reasoning_content` filled from `thinking` or `reasoning`, and `thinking` from it,
    arguments of calls as objects, and always `messages`, `tools`, `documents` (None where there are none) and
    `add_generation_prompt`. What is given is never changed. Tools should be `frozen`: then their JSON is written once.

    Raises InvalidTemplate for what is no template, Unsupported where jinja2 is not installed.
    """

    def __init__(self, source: str, *, name: str = "the chat template") -> None:
        self.source = source
        self.name = name
        # Kimi K2's template keeps a list, which the sandbox allows where it can be told from what is given.
        self._appends = ".append(" in source
        if len(source) > LONGEST:
            words = f"a chat template of more than {LONGEST} characters is not read; give the one of the model"
            raise _error(InvalidTemplate, words, name, 0)
        self._sandbox, self._bounding, self._jinja = _library()
        self._idle = [self._compiled()]

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.source, self.name)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Return the names that it reads and does not set itself, without the functions that it is given."""
        environment = self._sandbox.Sandbox(Meter(LIMITS))
        found: set[str] = self._jinja.meta.find_undeclared_variables(environment.parse(self.source))
        return frozenset(found - self._sandbox.FUNCTIONS)

    def render(self, variables: Mapping[str, Any], *, now: datetime | None = None) -> str:
        """Write a conversation. `now` is the time that `strftime_now` tells, the clock's if None.

        Raises TemplateRefused, TemplateFailed or TemplateLimit.
        """
        try:
            meter, template = runner = self._idle.pop()
        except IndexError:
            meter, template = runner = self._compiled()
        meter.start(now)
        if self._appends:
            variables = {name: frozen(value) for name, value in variables.items()}
        try:
            made: str = template.render(variables)
        except self._sandbox.Refusal as error:
            raise TemplateRefused(str(error), self.name, _line(error.__traceback__)) from None
        except Stop as error:
            raise self._stopped(str(error), error) from None
        except (RecursionError, MemoryError) as error:
            raise self._stopped("it calls itself too deeply, or needs too much memory", error) from None
        except (self._jinja.TemplateError, *_FAILURES) as error:
            words = f"the template fails on this conversation ({type(error).__name__}: {error}); "
            words += "it may want another order of turns, or values that the conversation does not have"
            raise _error(TemplateFailed, words, self.name, _line(error.__traceback__)) from None
        finally:
            meter.forget()
            self._idle.append(runner)
        return made

    def _compiled(self) -> tuple[Meter, Any]:
        """Compile the template, with a meter of its own."""
        meter = Meter(LIMITS)
        environment = self._sandbox.Sandbox(meter)
        try:
            tree = self._bounding.Bounds().visit(environment.parse(self.source))
            code = environment.compile(tree, self.name, _FILE)
        except self._jinja.TemplateSyntaxError as error:
            words = f"{error.message}; mend the template there, or take the one that the model came with"
            raise _error(InvalidTemplate, words, self.name, error.lineno) from None
        except Stop as error:
            raise self._stopped(str(error), error) from None
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            words = f"the template cannot be compiled ({error}); simplify it, or take the one that the model came with"
            raise _error(InvalidTemplate, words, self.name, 0) from None
        return meter, environment.template_class.from_code(environment, code, environment.make_globals(None))

    def _stopped(self, words: str, error: BaseException) -> TemplateLimit:
        message = f"the template was stopped: {words}; use another template"
        found = _error(TemplateLimit, message, self.name, _line(error.__traceback__))
        assert isinstance(found, TemplateLimit)
        return found


_FILE = "<chat template>"
_FAILURES = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    NameError,
    AssertionError,
)


def _library() -> tuple[Any, Any, Any]:
    try:
        jinja = importlib.import_module("jinja2")
        importlib.import_module("jinja2.meta")
    except ImportError as error:
        message = f"a model's own chat template needs jinja2 ({error}): pip install 'turnscript[cli]'"
        raise Unsupported("a chat template", "this installation", message) from None
    package = __name__.rpartition(".")[0]
    return importlib.import_module(f"{package}.sandbox"), importlib.import_module(f"{package}.bounding"), jinja


def _line(traceback: TracebackType | None) -> int:
    """Return the line of the template where an error came up: jinja2 names the template's lines in its traceback."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _error(cls: type[InvalidTemplate], message: str, name: str, line: int) -> InvalidTemplate:
    error = cls(message, line=line)
    error.name = name
    return error


def _again(source: str, name: str) -> Program:
    return Program(source, name=name)
