"""What models write: texts of several shapes and sizes to be parsed, each with what it says.

The same shape and size always give the same text. A token counts as four characters, and a piece of a stream has
as many.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.chats import tools
from benchmarks.session import CODE, lines, prose
from benchmarks.tools import JsonObject

PIECE = 4
CHATML, XML = "batuta-chatml", "ai00-v1"
Said = list[list[Any]]
"""In order: `["thinking", text]`, `["text", text]`, `["call", name, arguments]`."""


@dataclass(frozen=True, slots=True)
class Output:
    text: str
    said: Said

    @property
    def pieces(self) -> list[str]:
        return [self.text[at : at + PIECE] for at in range(0, len(self.text), PIECE)]


@dataclass(frozen=True, slots=True)
class Shape:
    """`sizes`: what `build` is called with, small, middle and large; `unit` says of what."""

    name: str
    build: Callable[[int], Output]
    sizes: tuple[int, ...] = (1000, 8000, 32_000)
    unit: str = "tokens"
    format: str = CHATML


def written(text: str, size: int) -> str:
    """Exactly so many characters, none of them blank at an end."""
    return text.strip()[: size - 1].rstrip().ljust(size, ".")


def _thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


def _call(name: str, arguments: JsonObject) -> str:
    """As the tool text of the prompt shows it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'input': arguments}, ensure_ascii=False)}\n</tool_call>"


def _with_calls(thinking: str, text: str, calls: list[tuple[str, JsonObject]]) -> Output:
    said: Said = [["thinking", thinking]] if thinking else []
    said.append(["text", text])
    said += [["call", name, arguments] for name, arguments in calls]
    before = f"{_thought(thinking) if thinking else ''}{text}\n"
    return Output(before + "\n".join(_call(name, arguments) for name, arguments in calls), said)


def mixed(tokens: int) -> Output:
    """A thought, a text and three calls; five characters of eight are in one string argument."""
    rng, eighth = Random(1), tokens * PIECE // 8
    calls: list[tuple[str, JsonObject]] = [
        ("read_file", {"path": "/workspace/src/reader.py", "offset": 1, "limit": 200}),
        (
            "write_file",
            {"path": "/workspace/src/écran.py", "content": written(lines(rng, CODE, 5 * eighth, "\n"), 5 * eighth)},
        ),
        (
            "edit_file",
            {"path": "/workspace/a.py", "old_text": "x = 1\n", "new_text": written(prose(rng, eighth, "\n"), eighth)},
        ),
    ]
    return _with_calls(written(prose(rng, eighth, " "), eighth), written(prose(rng, eighth, "\n\n"), eighth), calls)


def text_only(tokens: int) -> Output:
    text = written(prose(Random(2), tokens * PIECE, "\n\n"), tokens * PIECE)
    return Output(text, [["text", text]])


def thinking(tokens: int) -> Output:
    thought = written(prose(Random(3), tokens * PIECE, " "), tokens * PIECE)
    return Output(f"{_thought(thought)}Done.", [["thinking", thought], ["text", "Done."]])


def string_argument(kilobytes: int) -> Output:
    content = written(lines(Random(4), CODE, kilobytes * 1000, "\n"), kilobytes * 1000)
    return _with_calls("", "I write it down.", [("write_file", {"path": "/workspace/a.py", "content": content})])


def parallel_calls(count: int) -> Output:
    calls: list[tuple[str, JsonObject]] = [
        ("read_file", {"path": f"/workspace/src/file_{number}.py", "limit": number}) for number in range(count)
    ]
    return _with_calls("", "I read them all.", calls)


_NEAR = (
    "<",
    "<t",
    "<tool",
    "<tool_cal",
    "<tool_call ",
    "<toolcall>",
    "</think",
    "<thinking>",
    "<|im_",
    "<|im_end",
    "a<b",
    "<<<",
    "<\n",
)


def near_misses(tokens: int) -> Output:
    """Every third word begins like a marker and is none."""
    rng, size = Random(5), tokens * PIECE
    words: list[str] = ["Listing:"]
    total = 0
    while total < size:
        words += ["else", "value", rng.choice(_NEAR)]
        total += 11 + len(words[-1])
    text = written(" ".join(words), size)
    return Output(text, [["text", text]])


_KINDS: tuple[tuple[JsonObject, Callable[[Random], Any]], ...] = (
    ({"type": "string"}, lambda rng: prose(rng, 40, " ")),
    ({"type": "integer"}, lambda rng: rng.randrange(10**6)),
    ({"type": "boolean"}, lambda rng: rng.random() < 0.5),
    ({"type": "string"}, lambda rng: lines(rng, CODE[:4], 40, "\n")),
    ({"type": "array", "items": {"type": "string"}}, lambda rng: [f"tag-{rng.randrange(90)}", "naïve"]),
    ({"type": "number"}, lambda rng: rng.randrange(1000) / 8),
)


def xml_parameters(count: int) -> Output:
    """One call with so many parameters, strings as they are and the other types as JSON."""
    rng = Random(6)
    arguments: JsonObject = {}
    pieces = ['I set them all.\n\n<ai00:function_calls>\n  <invoke name="configure">\n']
    for number in range(count):
        schema, make = _KINDS[number % len(_KINDS)]
        value = make(rng)
        shown = value if schema["type"] == "string" else json.dumps(value, ensure_ascii=False)
        arguments[f"field_{number:03d}"] = value
        pieces.append(f'    <parameter name="field_{number:03d}">{shown}</parameter>\n')
    pieces.append("  </invoke>\n</ai00:function_calls>")
    return Output("".join(pieces), [["text", "I set them all."], ["call", "configure", arguments]])


def request(shape: Shape, size: int) -> JsonObject:
    """The Chat Completions body that such a text answers."""
    declared = tools()
    if shape.build is xml_parameters:
        properties = {f"field_{number:03d}": _KINDS[number % len(_KINDS)][0] for number in range(size)}
        parameters = {"type": "object", "properties": properties}
        function = {"name": "configure", "description": "Set everything.", "parameters": parameters}
        declared = [{"type": "function", "function": function}]
    return {"model": "local", "messages": [{"role": "user", "content": "Go on."}], "tools": declared}


MIXED = Shape("thought, text and three calls", mixed)
SHAPES = (
    MIXED,
    Shape("text", text_only),
    Shape("thought", thinking),
    Shape("one string argument", string_argument, (4, 64, 256), "KB"),
    Shape("parallel calls", parallel_calls, (125, 1000, 4000), "calls"),
    Shape("near misses of markers", near_misses),
    Shape("XML parameters", xml_parameters, (50, 200, 800), "parameters", XML),
)
