"""Owns the comparison of one template: every conversation, each wish about thinking, with and without an opening."""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import turnscript as ts
from tools.parity import reader, writer
from tools.parity.conversations import Conversation, conversations
from tools.parity.difference import before, cause
from tools.parity.oracle import MODES, Oracle, Refused
from tools.parity.places import Place


@dataclass
class Result:
    """What was found of one template. `causes`: how often, by what differs, and a case to try each with."""

    name: str
    reading: str = ""
    equal: int = 0
    other: int = 0  # both write, and not the same
    failed: int = 0  # the template takes it, turnscript does not
    refused: int = 0  # the template does not take it
    arranged: int = 0  # of these, what turnscript writes all the same
    causes: Counter[str] = field(default_factory=Counter)
    cases: dict[str, str] = field(default_factory=dict)
    turns: reader.Turns = field(default_factory=reader.Turns)

    @property
    def accepted(self) -> int:
        """Count what the template takes."""
        return self.equal + self.other + self.failed

    def _note(self, why: str, case: str) -> None:
        self.causes[why] += 1
        self.cases.setdefault(why, case)


def compared(place: Place) -> Result:
    """Compare one template with itself in transformers' hands."""
    result = Result(place.name)
    oracle = Oracle(place)
    with tempfile.TemporaryDirectory(prefix="parity-") as root:
        try:
            fmt = writer.loaded(place.folder(Path(root)))
        except writer.Failed as error:
            result.reading = "nothing"
            _count_failed(result, oracle, f"fails: {error}")
            return result
        result.reading = writer.reading(fmt)
        for mode in MODES:
            oracle.tell(mode, writer.wishes(fmt, mode))
        for conversation in conversations():
            for mode in MODES:
                for generates in (True, False):
                    _compare(result, oracle, fmt, conversation, (mode, generates))
            reader.read_back(result.turns, oracle, fmt, conversation)
    return result


def _count_failed(result: Result, oracle: Oracle, why: str) -> None:
    """Count what transformers writes with a template that turnscript does not take at all."""
    for conversation in conversations():
        for mode in MODES:
            for generates in (True, False):
                try:
                    oracle.text(conversation, mode, generates)
                except Refused:
                    result.refused += 1
                else:
                    result.failed += 1
                    result._note(why, _case(conversation, (mode, generates)))


def _compare(result: Result, oracle: Oracle, fmt: ts.Format, conversation: Conversation, how: tuple[str, bool]) -> None:
    mode, generates = how
    try:
        expected = oracle.text(conversation, mode, generates)
    except Refused:
        expected = None
    try:
        actual = writer.text(fmt, conversation, mode, generates)
    except writer.Failed as error:
        if expected is None:
            result.refused += 1
        else:
            result.failed += 1
            result._note(f"fails: {error}", _case(conversation, how))
        return
    if expected is None:
        result.refused += 1
        result.arranged += 1
    elif expected == actual:
        result.equal += 1
    else:
        result.other += 1
        names = [tool["function"]["name"] for tool in conversation.tools or []]
        case = f"{_case(conversation, how)}, after {before(expected, actual)}"
        result._note(cause(expected, actual, names), case)


def _case(conversation: Conversation, how: tuple[str, bool]) -> str:
    mode, generates = how
    return f"{conversation.name!r}, thinking {mode}, {'with' if generates else 'without'} generation prompt"
