"""Owns what to try for an input that could not be read, where its error does not say it."""

from __future__ import annotations

from turnscript.cli.lookalikes import by_answer, by_beginning, by_content, by_elements, by_slip
from turnscript.convert.file_documents import ONE_FORMAT, holds_files
from turnscript.convert.recognition import AUTO, ONE_REQUEST, ONE_SIDE, recognised
from turnscript.core.errors import InvalidConversation, InvalidInput, InvalidTranscript, TurnscriptError
from turnscript.core.json_text import FEWER_LEVELS, UTF_8
from turnscript.engine.files import FILES
from turnscript.engine.template.program import InvalidTemplate

_SAYING = {
    ONE_SIDE: "--side request or --side response says it",
    ONE_FORMAT: "--from NAME says it",
    ONE_REQUEST: "give a request; `turnscript convert` reads answers, too, if --side does not say that they are none",
}
"""These words are said where it is plain what is missing, by what was expected."""


def advice(error: TurnscriptError, source: str, data: bytes, rows: str) -> str:
    """One line for people, or nothing. `source` is what --from says; `rows` is what to do with JSON Lines."""
    if not isinstance(error, InvalidInput) or isinstance(error, InvalidTemplate | InvalidConversation):
        return ""
    if plain := lookalike(error, data):
        return plain
    if error.expected in (UTF_8, FEWER_LEVELS):
        return ""  # another API or format would read it no better
    if error.expected in _SAYING:
        return _SAYING[error.expected]
    if error.line and not isinstance(error, InvalidTranscript) and data.lstrip()[:1] in (b"{", b"["):
        return f"correct the JSON there; {rows}" if b"\n{" in data else "correct the JSON there"
    if source != AUTO:
        return f"it was read as {source}, because --from says so"
    if holds_files(data):
        return f"it was read as {FILES}; if it is something else, name that with --from"
    try:
        return f"it was read as {recognised(data)[0]}; if it is something else, name that with --from"
    except InvalidInput:
        return "--from NAME says what it is; `turnscript apis` and `turnscript formats` list the names"


def lookalike(error: InvalidInput, data: bytes) -> str:
    """One line if the input is plainly something else, or holds what is wanted, or nothing."""
    if error.expected == FEWER_LEVELS:
        return ""
    if error.line:
        is_json = error.expected != UTF_8 and data.lstrip()[:1] in (b"{", b"[")
        slip = by_slip(data, error.line, error.column) if is_json else by_answer(data)
        return by_beginning(data) or slip
    return by_content(data) if error.path == "$" else by_elements(data) if data.lstrip()[:1] == b"[" else ""


def row_advice(error: TurnscriptError, row: bytes) -> str:
    """The same for a row of JSON Lines."""
    if row.strip() in (b"{", b"["):
        return "if the file is one document over several lines, add --no-lines"
    return lookalike(error, row) if isinstance(error, InvalidInput) else ""
