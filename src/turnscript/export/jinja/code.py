"""Owns the source of a template: Jinja statements line by line, and which of them write what the model writes.

Every tag takes the white space on both its sides, so a template reads the same whatever an engine does with lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A text as a Jinja string, between the quotes that it has not."""
    plain = '"' in text and "'" not in text
    escaped = "".join([one if plain and one == '"' else _ESCAPES.get(one, one) for one in text])
    return f"'{escaped}'" if plain else f'"{escaped}"'


def listed(texts: Iterable[str]) -> str:
    """Texts as a Jinja list."""
    return f"[{', '.join(map(quoted, texts))}]"


def among(variable: str, words: Sequence[str]) -> str:
    """The condition that a variable is one of these words."""
    return f"{variable} == {quoted(words[0])}" if len(words) == 1 else f"{variable} in {listed(words)}"


def none_of(variable: str, words: Sequence[str]) -> str:
    """The condition that it is none of them."""
    return f"{variable} != {quoted(words[0])}" if len(words) == 1 else f"{variable} not in {listed(words)}"


def all_of(conditions: Iterable[str]) -> str:
    """The condition that all of these hold."""
    return " and ".join([one for one in conditions if one])


class Text(str):
    """A literal among expressions."""

    __slots__ = ()


def concatenated(*parts: str | Text) -> str:
    """Expressions and literals one behind another, neighbouring literals as one."""
    runs: list[str | Text] = []
    for part in parts:
        if runs and isinstance(part, Text) and isinstance(runs[-1], Text):
            runs[-1] = Text(runs[-1] + part)
        elif part != "":
            runs.append(part)
    return " ~ ".join([quoted(one) if isinstance(one, Text) else one for one in runs])


class Code:
    """A template as it grows. `generation`: what the model writes stands in `{% generation %}`."""

    def __init__(self, generation: bool) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self.generation = generation
        self._said: list[str | Text] = []
        self._variables: dict[str, str] = {}
        self._of_model = False

    def say(self, expression: str | Text, of_model: bool = False) -> None:
        """Write the value of an expression, or a literal. What is said one behind another is one tag."""
        of_model = of_model and self.generation
        if of_model != self._of_model:
            self._tell()
        self._of_model = of_model
        self._said.append(expression)

    def write(self, text: str, of_model: bool = False) -> None:
        """Write a literal."""
        if text:
            self.say(Text(text), of_model)

    def note(self, words: str) -> None:
        """A comment."""
        self._tell()
        self._line(f"{{#- {words} -#}}")

    def statement(self, statement: str) -> None:
        """A statement that stands alone."""
        self._tell()
        self._line(f"{{%- {statement} -%}}")

    def variable(self, name: str, value: str) -> None:
        """A variable, which is left out if nothing asks for it."""
        self.statement(f"set {name} = {value}")
        self._variables[self.lines[-1]] = name

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """A statement with a body: `if ...`, `for ...`."""
        self.statement(opening)
        self._depth += 1
        yield
        self._tell()
        self._depth -= 1
        self.statement(f"end{opening.split(maxsplit=1)[0]}")

    def otherwise(self, statement: str = "else") -> None:
        """Another branch of the block that is open."""
        self._tell()
        self._depth -= 1
        self.statement(statement)
        self._depth += 1

    def add(self, lines: Iterable[str]) -> None:
        """Lines as they are."""
        self._tell()
        self.lines += lines

    @property
    def text(self) -> str:
        """The template."""
        self._tell()
        lines = self.lines
        unused = [""]
        while unused:  # what one asks for another may not need
            unused = [line for line, name in self._variables.items() if line in lines and not _asks(lines, line, name)]
            lines = [line for line in lines if line not in unused]
        return "\n".join(lines)

    def _tell(self) -> None:
        if not self._said:
            return
        said, self._said = concatenated(*self._said), []
        tag = f"{{{{- {said} -}}}}"
        self._line(f"{{%- generation -%}}{tag}{{%- endgeneration -%}}" if self._of_model else tag)

    def _line(self, text: str) -> None:
        self.lines.append(f"{'  ' * self._depth}{text}")


def _asks(lines: Iterable[str], line: str, name: str) -> bool:
    """Whether a line other than those that set a variable asks for it."""
    word = re.compile(rf"(?<![\w.]){name}(?![\w=])")
    setting = re.compile(rf"^\s*{{%- set {name} = ")
    return any(word.search(_STRING.sub("", setting.sub("", one))) for one in lines if one != line)
