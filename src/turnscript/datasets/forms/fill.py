"""Texts with a hole, and files: what models learn from that fill the middle of a text.

    {"prefix": "def add(a, b):\\n    return ", "suffix": "\\n\\nadd(1, 2)", "middle": "a + b"}
    {"prompt": "2 + 2 = ", "suffix": ".", "completion": "4"}
    {"files": ["import math", {"prefix": "2 + 2 = ", "suffix": ".", "middle": "4"}], "leading": true}

Spec: https://platform.openai.com/docs/api-reference/completions/create, `suffix`; the third is turnscript's own.

Quirks: only the middle is trained, in the order in which the format's prompts are, or in that of the plan. Files
without a hole are trained whole, as plain texts are. `label` beside a completion says, as a boolean, whether it is
wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidRequest
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import absent, check_unread, check_wanted, record, required_text, unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.engine.files import FILES, LEADING, FileSequence, Fill, files_of, is_files

_BEFORE, _BEHIND, _BETWEEN = ("prefix", "prompt"), "suffix", ("middle", "completion")


class Filled(Form):
    """Rows of files or of a text with a hole."""

    name = "fill"
    members = frozenset({_BEHIND, FILES})
    title = "Texts with a hole and what fills it, and files"
    fields = "prefix (or prompt), suffix, middle (or completion); or files: [text, {prefix, suffix, middle}], leading"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for the three texts, or for files. A prompt with nothing behind it is more likely a prompt alone."""
        if is_files(record):
            files = record[FILES]
            fits = isinstance(files, list) and files and all(isinstance(one, str | dict) for one in files)
            return (1, "files, each a text or one with a hole") if fits else (0, "")
        before, between = _first(record, _BEFORE), _first(record, _BETWEEN)
        if not all(isinstance(record.get(key), str) for key in (before, _BEHIND, between)):
            return 0, ""
        if extra := unread(record, (before, _BEHIND, between)):
            return 0.2, f"{before}, {_BEHIND} and {between}, but also {extra[0]}"
        sure = before == _BEFORE[0] or between == _BETWEEN[0] or bool(record[_BEHIND])
        return 1 if sure else 0.8, f"{before}, {_BEHIND} and {between}"

    def read(self, data: bytes) -> list[Example]:
        """Return one document."""
        members = record(data)
        if FILES in members:
            check_unread(members, (FILES, LEADING), self.name)
            try:
                shown = {key: value for key, value in members.items() if key in (FILES, LEADING)}
                return [Example(Request(), files=files_of(shown))]
            except InvalidRequest as error:
                raise BadRow(Code.SHAPE, error.message, path=error.path) from None
        before, between = _first(members, _BEFORE), _first(members, _BETWEEN)
        check_unread(members, (before, _BEHIND, between), self.name)
        for both in (_BEFORE, _BETWEEN):
            if members.keys() >= set(both):
                message = f"{' and '.join(both)} are two names of one text; leave one of them out"
                raise BadRow(Code.SHAPE, message, path=f"$.{both[1]}")
        check_wanted(members)
        for key in (before, _BEHIND, between):
            if key not in members:
                raise absent(f"$.{key}", "a text, maybe an empty one")
        texts = [required_text(members, key) for key in (before, _BEHIND, between)]
        return [Example(Request(), files=FileSequence([Fill(*texts)]))]


def _first(record: Mapping[str, Any], names: tuple[str, str]) -> str:
    return next((name for name in names if name in record), names[0])


FORMS = (Filled(),)
