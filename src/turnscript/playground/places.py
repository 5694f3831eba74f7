"""Owns where in a source something stands that a loss or an error names: by a JSON path, or by a line.

Theory of operation. A source is scanned once, token by token, for all paths that are asked for. Of each open object or
list it is known whether one of them leads into it, so that the paths of all others are never made: a body may have very
many members, and very long names.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_LINE = re.compile(r"line (\d+)\b")
_LONGEST = 1_000
"""A path that is longer is not looked for."""
_SHOWN = 24
"""Of a line with an error, so many characters from its column on."""


class Place(NamedTuple):
    """A stretch of a source, in UTF-16 units, as browsers count: where it begins, and where it is over."""

    start: int
    end: int


class Places:
    """Finds stretches of one source. `paths`: the JSON paths that will be asked for."""

    def __init__(self, source: str, paths: Iterable[str] = ()) -> None:
        self._source = source
        self._beyond = [] if source.isascii() else [at for at, one in enumerate(source) if one > "\uffff"]
        self._wanted = sorted({path for path in paths if path.startswith("$") and len(path) <= _LONGEST})
        self._found = self._scan() if self._wanted else {}

    def of(self, path: str) -> Place | None:
        """Where a path leads, or the nearest thing around it that is there; a line, where it names one."""
        line = _LINE.match(path)
        if line:
            return self.line(int(line[1]))
        if len(path) > _LONGEST:
            return None
        while path not in self._found:
            path = path[: max(path.rfind("."), path.rfind("["))]
            if not path.startswith("$") or path == "$":
                return None
        start, end = self._found[path]
        return None if path == "$" else self._place(start, end)

    def line(self, number: int, column: int = 0) -> Place | None:
        """A line, or a little of it from a column on; both count from 1."""
        start = 0
        for _ in range(number - 1):
            start = self._source.find("\n", start) + 1
            if not start:
                return None
        end = self._source.find("\n", start)
        end = len(self._source) if end < 0 else end
        if column:
            first = start
            start = max(first, min(start + column - 1, end - 1))
            end = min(end, start + _SHOWN)
        return self._place(start, end) if end > start else None

    def _place(self, start: int, end: int) -> Place:
        return Place(start + bisect_left(self._beyond, start), end + bisect_left(self._beyond, end))

    def _leads_into(self, path: str, sign: str) -> bool:
        at = bisect_left(self._wanted, path + sign)
        return at < len(self._wanted) and self._wanted[at].startswith(path + sign)

    def _scan(self) -> dict[str, tuple[int, int]]:
        """Each value that a path leads to or through; of a member, its name too."""
        found: dict[str, tuple[int, int]] = {}
        scan = _Scan("$.messages" if self._source.lstrip("\ufeff \t\r\n").startswith("[") else "$")
        for token in _TOKEN.finditer(self._source):
            word = token[0]
            if word in ("{", "["):
                scan.open(token.start(), word, wanted=self._leads_into(scan.path, "." if word == "{" else "["))
            elif word in ("}", "]"):
                if not scan.stack:
                    break
                one = scan.stack.pop()
                if one.path:
                    found[one.path] = (one.start, token.end())
            elif word == ",":
                scan.next()
            elif scan.names and word.startswith('"'):
                scan.name(word, token.start())
            elif word != ":" and scan.path:
                found[scan.path] = (scan.start if scan.start >= 0 else token.start(), token.end())
        return found


class _Open:
    """An object or list that is open. `path` is empty where nothing in it is asked for, and nor is it."""

    __slots__ = ("index", "is_list", "path", "start", "wanted")

    def __init__(self, path: str, start: int, is_list: bool, wanted: bool) -> None:
        self.path = path
        self.start = start
        self.is_list = is_list
        self.wanted = wanted
        self.index = 0


class _Scan:
    """How far a scan is. `path`: of the value that comes next; `start`: of its name, -1 where it has none; `names`:
    whether a name comes next."""

    def __init__(self, root: str) -> None:
        self.stack: list[_Open] = []
        self.path = root
        self.start = -1
        self.names = False

    def open(self, start: int, word: str, *, wanted: bool) -> None:
        """An object or a list begins."""
        wanted = wanted and bool(self.path)
        self.stack.append(_Open(self.path, self.start if self.start >= 0 else start, word == "[", wanted))
        self.path, self.start = f"{self.path}[0]" if word == "[" and wanted else "", -1
        self.names = word == "{"

    def next(self) -> None:
        """Another member or element follows."""
        if not self.stack:
            return
        one = self.stack[-1]
        one.index += 1
        self.path, self.start = f"{one.path}[{one.index}]" if one.is_list and one.wanted else "", -1
        self.names = not one.is_list

    def name(self, word: str, start: int) -> None:
        """A member has a name."""
        self.names, self.start = False, start
        if self.stack and self.stack[-1].wanted and len(word) <= _LONGEST:
            self.path = f"{self.stack[-1].path}.{_text_of(word)}"


def _text_of(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:  # it is no JSON, and an error says so
        return word[1:-1]
