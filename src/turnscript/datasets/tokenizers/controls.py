"""Owns control tokens that are kept in a file beside a vocabulary that has no room for them in its own form.

    {"controls": {"<|im_start|>": 65530, "<|im_end|>": 65531}, "vocabulary": "e6dee3d4..."}

`vocabulary` is the SHA-256 of the vocabulary file that the ids were chosen for; empty if it does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from turnscript.core.errors import InvalidInput


class Controls(Struct, frozen=True, forbid_unknown_fields=True):
    """Control tokens by their literals, and the vocabulary whose free ids they have."""

    controls: dict[str, int] = {}
    vocabulary: str = ""

    def check(self, taken: Mapping[int, object], vocabulary: bytes) -> None:
        """Check that the ids are free in a vocabulary. Raises InvalidInput with the literal and what to do."""
        found = hashlib.sha256(vocabulary).hexdigest()
        if self.vocabulary and found != self.vocabulary:
            message = "these control tokens were chosen for another vocabulary; choose them again for this one"
            raise InvalidInput(message, expected=f"SHA-256 {self.vocabulary}", got=found)
        used: dict[int, str] = {}
        for literal, number in self.controls.items():
            if not literal or number < 0:
                message = f"a control token is a text and an id from 0 on, not {literal!r} and {number}"
                raise InvalidInput(message, path="$.controls")
            if number in taken or number in used:
                other = "the vocabulary" if number in taken else repr(used[number])
                message = f"the id {number} of {literal!r} is taken by {other}; give it a free one"
                raise InvalidInput(message, path="$.controls", expected="an id that is free", got=str(number))
            used[number] = literal


def read_controls(path: str) -> Controls:
    """Return the control tokens that a file declares. Raises InvalidInput with what is wrong in it."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Controls)
    except OSError as error:
        message = f"cannot read the file of control tokens {path}: {error.strerror}; check the path"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path} is no file of control tokens: {error}; write one with `turnscript data tokens`"
    raise InvalidInput(message, expected='{"controls": {"<tag>": 65530}}', got=path)


def controls_bytes(found: Controls) -> bytes:
    """Return the file, the same bytes for the same tokens."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
