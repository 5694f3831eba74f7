"""Owns the payloads that are somebody's text, and results: how a template writes what each body of the engine writes.

`text` is the variable of a template that holds an item's text, `content` the one that holds its content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnscript.engine.bodies import NEXT_TEXT, PART_TAG, Parts, ResultContent, Thought
from turnscript.engine.bracedcalls import BracedResult
from turnscript.engine.jsoncalls import JsonResult
from turnscript.engine.texts import IndentedText, JsonText, LabelledText, PlainText
from turnscript.export.jinja.code import Text, concatenated, quoted
from turnscript.export.jinja.writing import Payloads

RESULTS = "$.messages[].content"
PARTS = "$.messages[].content[]"


def write_text(body: Any, out: Payloads) -> None:
    """The payload of an item that is a text."""
    _WRITERS[type(body)](body, out)


def is_text(body: Any) -> bool:
    """Whether a body is one of these."""
    return type(body) in _WRITERS


def empties(body: Any) -> bool:
    """Whether nothing is written of an empty text."""
    return type(body) in (PlainText, Parts, Thought, ResultContent)


def _plain(body: PlainText, out: Payloads) -> None:
    out.content("text", flat=True)


def _indented(body: IndentedText, out: Payloads) -> None:
    out.content('"    " ~ text.replace("\\n", "\\n    ")')


def _json_text(body: JsonText, out: Payloads) -> None:
    out.content("text|tojson")


def _labelled(body: LabelledText, out: Payloads) -> None:
    mark = quoted(body.mark)
    label = "label if label is string and " + f'{mark} not in label and not label.endswith("\\r") else ""'
    text = "text|tojson" if body.json else "text"
    if body.last:
        out.content(text, flat=not body.json)
        out.control(body.mark)
        out.content(f"({label})")
    else:
        out.content(f"({label})")
        out.control(body.mark)
        out.content(text, flat=not body.json)


def _parts(body: Parts | Thought, out: Payloads) -> None:
    """One text as it is; of several the first, and behind it each with a line that says what it is."""
    code = out.code
    out.lose(PARTS, "parts that are neither texts nor refusals are left out", "dropped")
    with code.block("if content is string"):
        out.content("content")
        code.otherwise("elif content is defined and content is not none")
        code.statement("set parts = namespace(more=false)")
        with code.block("for part in content"), code.block('if part.type == "text"'):
            with code.block("if parts.more"):
                out.control(NEXT_TEXT)
            out.content("part.text")
            code.statement("set parts.more = true")
            code.otherwise('elif part.type == "refusal"')
            with code.block("if parts.more"):
                out.control("\n")
            out.control(f'{PART_TAG} type="refusal">>\n')
            out.content("part.refusal")
            code.statement("set parts.more = true")


def _thought(body: Thought, out: Payloads) -> None:
    out.content("text", flat=True)


def _json_result(body: JsonResult, out: Payloads) -> None:
    detail = "a result that is JSON is written as it came, on lines and with white space of its own"
    out.lose(RESULTS, f"{detail}; whether it is JSON is told by its first and last characters")
    looks = out.library.call("looks", "text")
    name = '(label|tojson if label is string else "null")'
    said = f'(text if {looks} in ["object", "array"] else text|tojson)'
    head, between = Text('{\n  "name": '), Text(',\n  "content": ')
    out.content(concatenated(head, name, between, said, Text("\n}")), flat=True)


def _braced_result(body: BracedResult, out: Payloads) -> None:
    out.control(body.prefix)
    with out.code.block("if label is string"):
        word = out.library.call_protecting("braced_name", out.escape, "label", quoted(body.mark))
        out.code.say(word, out.of_model)
    out.control(f"{{value:{body.mark}")
    out.content("text", flat=True)
    out.control(f"{body.mark}}}")


_WRITERS: dict[type[Any], Callable[[Any, Payloads], None]] = {
    PlainText: _plain,
    IndentedText: _indented,
    JsonText: _json_text,
    LabelledText: _labelled,
    Parts: _parts,
    Thought: _thought,
    ResultContent: _parts,
    JsonResult: _json_result,
    BracedResult: _braced_result,
}
