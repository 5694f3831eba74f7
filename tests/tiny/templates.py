"""Owns telling whether a request is one that training could hold: the lines of topics and talk as expressions."""

from __future__ import annotations

import re
from functools import cache, cached_property

from tiny.dialogs import conversations, shapes, talk, tools, values
from tiny.dialogs.phrases import Node, parsed
from tiny.dialogs.topics import MORE, TOPICS, UNSEEN, Parameter

_SLOT = re.compile(r"\{(\w+)\}")
_NUMBER = r"-?\d[\d.]*"
_WORDS = r"[^\d\"“”`,.?!:;]{1,120}"
_KINDS = {
    **dict.fromkeys(("city", "city2", "person"), r"[^\W\d_]+(?: [^\W\d_]+)?"),
    "label": r"[\w./-]+(?: \w+){0,3}",
    "choice": r"\w+",
    "expression": r"[\d.()+*/ -]+",
    "email": r"[\w.@-]+",
    "phone": r"[+\d ]+",
    "site": r"[\w.]+",
    "time": r"\d\d:\d\d",
    "code": r"[A-Z]+-?\d+",
    "path": r"[\w./-]+",
    "command": r"[^`]+",
    "symbol": r"[a-z]{2,5}",
    **dict.fromkeys(("subject", "task", "meeting"), r"[^\"“”?.!]{1,120}"),
    "phrase": r"[^\"“”]+",
    "day": r"[\w -]+",
    "room": r"[a-z ]{1,12}|[^\W\d]{2}",
    "unit": r"[^\W\d_/]+(?:/h)?",
    "unit2": r"[^\W\d_/]+(?:/h)?",
    **dict.fromkeys(("currency", "currency2", "language"), r"[^\W\d_]+"),
    **dict.fromkeys(
        ("quantity", "minutes", "percent", "few", "number", "small", "degrees_high", "thousand", "decimal"), _NUMBER
    ),
}
_JOINTS = tuple(dict.fromkeys((*conversations._JOINTS, *conversations._JOINTS_ZH)))
_MADE = r"[a-z]{3,}"
_BEHIND = tuple(dict.fromkeys(text.strip().lower() for text in conversations._BACK))
_BEFORE = tuple(dict.fromkeys(text.strip().lower() for text in conversations._FRONT))
_ENDS = (".", "?", "!", "。", "？")


def fits(text: str, *, made: bool = True) -> list[str]:
    """The lines that make this text, whatever its values: none, one, or those of two requests in one message.

    `made`: also those of made-up things and verbs. Any word may be one, so without them only the known ones count.
    """
    whole = _line(text, made, talk_too=True)
    if whole:
        return [whole]
    for joint in _JOINTS:
        for place in (found.start() for found in re.finditer(re.escape(joint), text)):
            first = next(filter(None, (_line(text[:place] + end, made) for end in ("", "?", "？", ".", "!", "。"))), "")
            if first and (second := _line(text[place + len(joint) :], made)):
                return [first, second]
    return []


class Line:
    """A line and the expression of the texts that it makes."""

    def __init__(self, line: str, kinds: dict[str, str]) -> None:
        self.line = line
        self._kinds = kinds
        # Nearly every text lacks what all texts of a line have. That is seen long before an expression gives up.
        fixed = (piece for node in parsed(line) if isinstance(node, str) for piece in _SLOT.split(node)[::2])
        self.always = max(fixed, key=len, default="").lower()

    def makes(self, text: str) -> bool:
        """Whether it makes this text."""
        return self.always in text.lower() and any(map(self._pattern.fullmatch, _bodies(text)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_expression(parsed(self.line), self._kinds), re.IGNORECASE)


@cache
def _bodies(text: str) -> tuple[str, ...]:
    """A text, and what is left of it without a word before it, without an end, and without a word behind that.

    They may stand at every line. To try them here keeps them out of thousands of expressions.
    """
    starts, stops = {0}, {len(text)}
    for before in _BEFORE:
        if text[: len(before)].lower() == before:
            starts |= {len(before), len(before) + text.startswith(" ", len(before))}
    for behind in _BEHIND:
        if text[-len(behind) :].lower() == behind:
            stop = len(text) - len(behind)
            stops |= {stop, stop - text.endswith(" ", 0, stop)}
    stops |= {stop - 1 for stop in stops if text.endswith(_ENDS, 0, stop)}
    return tuple({text[start:stop] for start in starts for stop in stops if start <= stop})


def _line(text: str, made: bool, *, talk_too: bool = False) -> str:
    known = (*lines(made), *_talk()) if talk_too else lines(made)
    texts, small = {text, text.strip()}, text.lower()  # one, nearly always
    return next((one.line for one in known if one.always in small and any(map(one.makes, texts))), "")


@cache
def lines(made: bool = True) -> tuple[Line, ...]:
    """The lines of requests; `made` as for `fits`."""
    found: list[Line] = []
    words = {
        "verb": "|".join((*values.VERBS, *((_MADE,) if made else ()))),
        "noun": "|".join((*values.NOUNS, *((_MADE,) if made else ()))),
    }
    for topic in (*TOPICS, *MORE, *UNSEEN, *shapes._SHAPES):
        kinds = words | {one.slot: _value(one) for one in topic.parameters}
        if topic.several:
            kinds[topic.several] = f"(?:{kinds[topic.several]})(?:(?:, | and |、|和)(?:{kinds[topic.several]}))*"
        found += [Line(line, kinds) for line in (*topic.asks, *topic.asks_zh)]
    listed = words | {"tool": r"\w+" if made else r"[a-z]+_\w+", "list": r".+"}
    found += [Line(line, listed) for line in (*tools._INVENTED, *tools._INVENTED_ZH)]
    return tuple(found)


@cache
def _talk() -> tuple[Line, ...]:
    """What needs no tool: it is never joined with something else."""
    said = {"text": r"[^\"“”]+", "name": _WORDS, "facts": r".+(?: is |: | = ).+"}
    fixed = [line for name in (*talk._ANSWERS, *talk._ANSWERS_ZH) for line in talk.talked(name)]
    talked = (*fixed, *talk._SAY, *talk._SAY_ZH, *talk._NAMED, *talk._WHO_AM_I, *talk._RECALL)
    return tuple(Line(line, said) for line in talked)


def _value(parameter: Parameter) -> str:
    known = "|".join(map(re.escape, parameter.choices))
    return known or _KINDS.get(parameter.kind, _WORDS)


def _expression(nodes: tuple[Node, ...], kinds: dict[str, str]) -> str:
    pieces = []
    for node in nodes:
        if isinstance(node, str):
            cut = _SLOT.split(node)
            pieces += [f"(?:{kinds[text.lower()]})" if place % 2 else re.escape(text) for place, text in enumerate(cut)]
        else:
            pieces.append("(?:" + "|".join(_expression(choice, kinds) for choice in node) + ")")
    return "".join(pieces)
