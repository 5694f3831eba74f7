r"""Owns the escape that keeps content from being read as a tag: one backslash put inside the tag (requirements D-X-3).

    <<USER>>     is written  <<\USER>>
    <<\USER>>    is written  <<\\USER>>
    <|im_end|>   is written  <\|im_end|>

A text that already has n backslashes there gets n + 1, and reading removes one. So the map is reversible, no literal of
the format occurs in what it gives, and every other character stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from turnscript.core.errors import InvalidConversation

Rule = tuple[str, Iterable[str]]
"""What begins a tag, and what the rest of one begins with: `("<<", ["USER", "SYS"])`."""

_BRACKETS = r"\[+/?[A-Za-z_]+(?:\]+|\Z)"  # whole, or an opening that goes on with attributes
_TOKEN = re.compile(rf"<<[A-Z_]+|<[^<>\s]+>?|{_BRACKETS}|```\w*")
_TAG = re.compile(rf"<<[A-Z_]+(?:>>)?|<[^<>\s]+>?|{_BRACKETS}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SEEN = re.compile(r".[^\s<>\[\]]*[>\]]*|.", re.DOTALL)  # so much of a tag is shown
_LEADS = ("<<", "<", "[", "```")


class Escape:
    """The escape of one format, or of one place in it.

    No right boundary is looked for: with the rest `USER`, `<<USERNAME` is escaped too, which does no harm.
    """

    def __init__(self, *rules: Rule) -> None:
        rests: dict[str, list[str]] = {}
        for lead, names in rules:
            rests.setdefault(lead, []).extend(name for name in names if name not in rests.get(lead, ()))
        self.rules: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
            (lead, tuple(sorted(names, key=len, reverse=True))) for lead, names in rests.items()
        )
        self.leads = tuple(rests)
        # Whether a lead is the end of another, as `<` is of `<<`.
        self._overlaps = any(one != other and other.endswith(one) for one in rests for other in rests)
        self._tags = tuple(
            (lead, lead[:1], re.compile(rf"{re.escape(lead)}(?=\\*(?:{_alternatives(names)}))"))
            for lead, names in self.rules
        )
        slashed = "|".join(rf"(?<={re.escape(lead)})\\(?=\\*(?:{_alternatives(names)}))" for lead, names in self.rules)
        self._remove = re.compile(slashed or r"(?!)")
        self._slashed = tuple(lead + "\\" for lead, _ in self.rules)
        self._in_strings = _in_strings(self.rules)

    def apply(self, text: str) -> str:
        """Return content as it may stand in a transcript."""
        for lead, first, tag in self._tags:  # one character is found many times as fast as two
            if first in text and lead in text and tag.search(text) is not None:
                if self._overlaps:
                    return self._broken(text)
                text = tag.sub(lambda match: match[0] + "\\", text)
        return text

    def _broken(self, text: str) -> str:
        """Return the content where two rules may mean one place, which gets one backslash for both."""
        places = sorted({match.end() for *_, tag in self._tags for match in tag.finditer(text)})
        return "\\".join([text[start:end] for start, end in pairwise([0, *places, len(text)])])

    def remove(self, text: str, start: int = 0) -> str:
        """Return content as it was before `apply`: what follows `start`, where an escape may have begun before."""
        if "\\" not in text:  # one character is found many times as fast as two
            return text[start:]
        for slashed in self._slashed:
            if slashed in text and not start:
                return self._remove.sub("", text)
            if slashed in text:
                removed = [match.start() for match in self._remove.finditer(text, start)]
                return "".join(text[one + 1 : end] for one, end in pairwise([start - 1, *removed, len(text)]))
        return text[start:]

    def spelled(self, text: str) -> str:
        """Return JSON text without `<` and `>`, the first character of each tag in its strings an escape."""
        if self._in_strings is None or self._in_strings.search(text) is None:
            return text
        return _STRING.sub(lambda string: self._respelled(string[0]), text)

    def in_json(self, text: str) -> str:
        """Return the inside of a string of JSON, the first character of each tag an escape, which JSON takes back."""
        for lead, first, tag in self._tags:
            if first in text and lead in text:
                text = tag.sub(lambda match: f"\\u{ord(match[0][0]):04x}{match[0][1:]}", text)
        return text

    def _respelled(self, string: str) -> str:
        assert self._in_strings is not None
        return self._in_strings.sub(lambda found: f"{found[1]}\\u{ord(found[2]):04x}", string)

    def holds(self, text: str) -> bool:
        """Return whether `apply` would change the text."""
        return any(first in text and lead in text and tag.search(text) is not None for lead, first, tag in self._tags)

    def bare(self, text: str) -> list[tuple[int, str]]:
        """Return the tags that no backslash breaks, each with its place: `apply` writes none."""
        found = [match for *_, tag in self._tags for match in tag.finditer(text)]
        return sorted({(one.start(), _SEEN.match(text, one.start())[0]) for one in found if text[one.end()] != "\\"})  # type: ignore[index]

    def forges(self, text: str) -> bool:
        """Return whether the text, so written, holds a tag: never, but under a policy that protects nothing."""
        return False

    def plus(self, *rules: Rule) -> Escape:
        """Return an escape of the same policy with more rules."""
        return type(self)(*self.rules, *rules)


class Verbatim(Escape):
    """The policy `none`: texts are written as they are. Whoever chooses it answers for what is in them."""

    def apply(self, text: str) -> str:
        """Return the text as it is."""
        return text

    def in_json(self, text: str) -> str:
        """Return the text as it is."""
        return text

    def forges(self, text: str) -> bool:
        """Return whether the text holds a tag."""
        return self.holds(text)


class Rejecting(Escape):
    """The policy `reject`: a text that would have to be changed is an error."""

    def apply(self, text: str) -> str:
        """Return the text, if it holds no tag. Raises InvalidConversation."""
        changed = super().apply(text)
        if changed != text:
            at = next(index for index, pair in enumerate(zip(text, changed, strict=False)) if pair[0] != pair[1])
            tag = text[max(at - 2, 0) : at + 24]
            message = f"the text holds a tag of the format ({tag!r}); remove it, or choose the escape 'auto'"
            raise InvalidConversation(message, expected="text without tags of the format", got=tag)
        return text


AUTO = "auto"
POLICIES: dict[str, type[Escape]] = {AUTO: Escape, "reject": Rejecting, "none": Verbatim}
"""What to do with a text that holds a tag (requirements D-X-4). Reading unescapes under all of them."""


def rules_of(literals: Iterable[str]) -> list[Rule]:
    """Return the rules that protect control literals: every tag in them. Labels such as `User:` have none."""
    rests: dict[str, list[str]] = {}
    for literal in literals:
        for token in _TOKEN.findall(literal):
            lead = next(one for one in _LEADS if token.startswith(one))
            if len(token) > len(lead):
                rests.setdefault(lead, []).append(token[len(lead) :])
    return list(rests.items())


def tags_in(literal: str) -> list[str]:
    """Return the tags in a control literal, whole or as far as it goes. A fence and a label are none."""
    return _TAG.findall(literal)


def _in_strings(rules: Iterable[tuple[str, Iterable[str]]]) -> re.Pattern[str] | None:
    """Finds tags without angle brackets in a string of JSON, where a character that is itself escaped begins none."""
    tags = [f"{lead[1:]}{name}" for lead, names in rules for name in names]
    firsts = [lead[0] for lead, names in rules for _ in names]
    found = [
        f"{re.escape(first)}(?={re.escape(rest)})"
        for first, rest in zip(firsts, tags, strict=True)
        if not set(f"{first}{rest}") & set('<>"\\')
    ]
    return re.compile(rf"((?<!\\)(?:\\\\)*)({'|'.join(found)})") if found else None


def _alternatives(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, names))
