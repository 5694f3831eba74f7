"""Owns what to try for an input that could not be read, where its error does not say it."""

from __future__ import annotations

from turnscript.errors import InvalidInput, InvalidTranscript, TurnscriptError
from turnscript.jsontext import FEWER_LEVELS, UTF_8
from turnscript.recognition import AUTO, ONE_REQUEST, ONE_SIDE, recognised


def advice(error: TurnscriptError, source: str, data: bytes, rows: str) -> str:
    """One line for people, or nothing. `source` is what --from says; `rows` is what to do with JSON Lines."""
    if not isinstance(error, InvalidInput) or error.expected in (UTF_8, FEWER_LEVELS):
        return ""  # another API or format would read it no better
    if error.expected == ONE_SIDE:
        return "--side request or --side response says it"
    if error.expected == ONE_REQUEST:
        return "give a request; `turnscript convert` reads answers, too, if --side does not say that they are none"
    if error.line and not isinstance(error, InvalidTranscript) and data.lstrip()[:1] in (b"{", b"["):
        return f"correct the JSON there; {rows}" if b"\n{" in data else "correct the JSON there"
    if source != AUTO:
        return f"it was read as {source}, because --from says so"
    try:
        return f"it was read as {recognised(data)[0]}; if it is something else, name that with --from"
    except InvalidInput:
        return "--from NAME says what it is; `turnscript apis` and `turnscript formats` list the names"
